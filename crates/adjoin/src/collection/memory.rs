//! Memory for opening, writing to and merging a collection.
//!
//! If a collection has a merger, it refuses a write after which the budget would be too small for a merge. The memory
//! of a merge depends on its clusters, which are not known in advance. So these functions return upper bounds that use
//! a few known sizes.

use std::path::{Path, PathBuf};

use super::change::Change;
use super::log::Log;
use super::log_files::Segments;
use super::long_term_index::folder_name;
use super::manifest::CollectionManifest;
use super::merged_texts::MergedTexts;
use super::operations::Collection;
use super::segment::{LogRows, READING_BYTES};
use super::state::WriteRoom;
use super::temporary_index::{TemporaryIndex, TemporaryView};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::index::{self, DeleteList, Index, IndexManifest};
use crate::sink::vectors_bytes;
use crate::source::{IdKind, SourceInfo, VectorScan, VectorSource};
use crate::store::{BuildInput, BuildOptions};

/// Purposes of memory in error messages.
const PURPOSE_WRITE: &str = "writing these rows, and merging them later,";
const PURPOSE_START: &str = "merging the rows of this collection";
/// Memory of one write of [`Collection::load`] in bytes, in addition to its source.
const LOADING_BYTES: u64 = 16 << 20;
/// [`Collection::load`] merges when the rows in memory take more than `1 / MERGED_SHARE` of the budget.
const MERGED_SHARE: u64 = 4;

/// Additional bytes that a collection holds after a restart, compared with before it. Not included is the buffer for
/// reading the log, which the collection holds until its first write. Measured: 2.7 MB with a buffer of 1 MiB.
const RESTART_BYTES: u64 = 3 << 20;
/// Assumed bytes of an id whose length is not known before a scan.
const UNKNOWN_ID_BYTES: u64 = 16;
/// Approximate bytes of vectors that one batch of a source holds during a write.
const WRITE_SCAN_BYTES: u64 = 1 << 20;
/// Memory for a scan of all rows, in bytes.
const SCAN_BYTES: u64 = 4 << 20;

/// Work for which a collection is opened.
#[derive(Debug, Clone, Copy)]
pub(super) enum CollectionWork {
    /// Merging it.
    Merge,
    /// Writing rows.
    Write {
        /// Number of rows to insert or update.
        rows: u64,
        /// Bytes of these rows with their ids and columns.
        bytes: u64,
        /// Memory in bytes for reading the source that needs the most.
        source_bytes: u64,
    },
    /// Writing all rows to a file.
    Snapshot,
    /// Reading the collection, with this number of bytes in addition to the memory of the open collection.
    Read(u64),
    /// Verifying it.
    Verify,
}

/// Returns a context for reading all rows of the collection in `folder`. If the budget is too small, errors name a
/// budget that suffices. `bytes_of` gets a source with the shape of the rows, and returns the memory for the work in
/// bytes, in addition to that of the open collection.
pub(crate) fn context_of_rows(
    context: &Context,
    folder: &Path,
    bytes_of: &dyn Fn(&dyn VectorSource) -> u64,
) -> Context {
    context_naming(context, folder, |manifests| manifests.least_with_rows(context, folder, bytes_of))
}

/// Returns a context for `work` on the collection in `folder`. If the budget is too small for any step, the error
/// names a budget that suffices for all steps. If the folder cannot be read, because it is damaged or another process
/// is merging, the error names the memory of that step only. Opening the collection then reports the damage or reads
/// the folder again.
pub(super) fn collection_context(context: &Context, folder: &Path, work: CollectionWork) -> Context {
    context_naming(context, folder, |manifests| manifests.least_bytes(context, folder, work))
}

impl Collection {
    /// Returns a context for opening the collection in a folder and merging it. If the budget is too small, errors
    /// name a budget that suffices.
    pub fn context_of_merge(context: &Context, folder: &Path) -> Context {
        collection_context(context, folder, CollectionWork::Merge)
    }

    /// Returns a context for opening the collection in a folder and writing its rows to a file. If the budget is too
    /// small, errors name a budget that suffices.
    pub fn context_of_snapshot(context: &Context, folder: &Path) -> Context {
        collection_context(context, folder, CollectionWork::Snapshot)
    }

    /// Returns a context for opening the collection in a folder and writing rows from sources to it. If the budget is
    /// too small, errors name a budget that suffices.
    pub fn context_of_write(context: &Context, folder: &Path, sources: &[&dyn VectorSource]) -> Context {
        let rows = sources.iter().map(|source| source.info().rows).sum();
        let row_bytes = |source: &dyn VectorSource| {
            source.row_bytes().unwrap_or(source.info().vectors.bytes() as u64 + UNKNOWN_ID_BYTES)
        };
        let bytes = sources.iter().map(|source| source.info().rows * row_bytes(*source)).sum();
        // Sources are read one after the other, so only the one with the largest buffers counts.
        let source_bytes = sources.iter().map(|source| source.scan_bytes(WRITE_SCAN_BYTES)).max().unwrap_or(0);
        collection_context(context, folder, CollectionWork::Write { rows, bytes, source_bytes })
    }
}

/// Returns a context whose errors name the number of bytes that `least` computes, if the manifests can be read.
fn context_naming(context: &Context, folder: &Path, least: impl FnOnce(Manifests) -> Result<u64>) -> Context {
    let read = CollectionManifest::read(context, folder);
    let manifests = read.and_then(|manifest| Manifests::read(context, folder, manifest));
    context.naming_at_least(manifests.and_then(least).unwrap_or(0))
}

/// Manifests of a collection and, after its first merge, of its long-term index.
pub(super) struct Manifests {
    pub(super) collection: CollectionManifest,
    pub(super) index: Option<IndexManifest>,
}

impl Manifests {
    /// Reads the manifest of the long-term index, if there is one.
    ///
    /// # Errors
    /// If the manifest cannot be read or is damaged.
    pub(super) fn read(context: &Context, folder: &Path, collection: CollectionManifest) -> Result<Self> {
        let read = |sequence| IndexManifest::read(context, &folder.join(folder_name(sequence)));
        let index = collection.merged().map(read).transpose()?;
        Ok(Self { collection, index })
    }

    /// Returns a budget in bytes that suffices for `work` on the collection in `folder`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(super) fn least_bytes(&self, context: &Context, folder: &Path, work: CollectionWork) -> Result<u64> {
        self.least_by(context, folder, &|of_index, unmerged| self.least_with(context, work, of_index, unmerged))
    }

    /// Returns a budget in bytes that suffices for reading all rows. It includes the bytes that `bytes_of` returns for
    /// a source with the shape of the rows.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(super) fn least_with_rows(
        &self,
        context: &Context,
        folder: &Path,
        bytes_of: &dyn Fn(&dyn VectorSource) -> u64,
    ) -> Result<u64> {
        self.least_by(context, folder, &|of_index, unmerged| {
            let rows = self.collection.merged_rows + unmerged.rows;
            let rows = Unread::new(&self.collection, rows, of_index.max(unmerged.texts));
            self.least_with(context, CollectionWork::Read(bytes_of(&rows)), of_index, unmerged)
        })
    }

    /// Calls `least` with the sizes of texts of the long-term index and with bounds on the unmerged rows. Returns its
    /// result.
    fn least_by(&self, context: &Context, folder: &Path, least: &dyn Fn(MergedTexts, &Unmerged) -> u64) -> Result<u64> {
        let log = Segments::open(context, folder, self.collection.log())?;
        let of_index = self.texts_of_index(context, folder)?;
        let bound = least(of_index, &Unmerged::bound(&self.collection, &log));
        if bound <= context.budget().total() {
            return Ok(bound);
        }
        // The first bound is computed from the size of the log, and overestimates the number of rows if ids are long.
        // Before that could refuse the work, the rows are counted.
        Ok(least(of_index, &Unmerged::count(&self.collection, &log)?).min(bound))
    }

    /// Returns the sizes of texts and columns of the rows of the long-term index.
    fn texts_of_index(&self, context: &Context, folder: &Path) -> Result<MergedTexts> {
        let Some(index) = &self.index else { return Ok(MergedTexts::default()) };
        let folder = self.collection.merged().map_or_else(PathBuf::new, |sequence| folder.join(folder_name(sequence)));
        let reading_bytes = index::columns_reading_bytes(context, &folder, index)?;
        Ok(MergedTexts { id_bytes: index.id_bytes(), column_bytes: 0, reading_bytes })
    }

    /// Returns a budget in bytes that suffices for `work`, given bounds on the unmerged rows.
    fn least_with(&self, context: &Context, work: CollectionWork, of_index: MergedTexts, unmerged: &Unmerged) -> u64 {
        let Self { collection: manifest, index } = self;
        let index_bytes =
            index.as_ref().map_or(0, |index| Index::memory_bytes(index) + super::places::memory_bytes(index.rows));
        let on_disk = index.as_ref().map_or(0, |index| index.rows);
        let opened = index_bytes
            + TemporaryIndex::least_bytes()
            + unmerged.bytes
            + deleting_bytes(unmerged.rows.max(on_disk), on_disk, unmerged.rows)
            + Log::memory_bytes()
            + unmerged.reading_bytes;
        let row = TemporaryIndex::row_bytes(manifest.space(), 0);
        let (rows, texts) = (manifest.merged_rows + unmerged.rows, of_index.max(unmerged.texts));
        match work {
            CollectionWork::Read(bytes) => opened.saturating_add(bytes),
            CollectionWork::Snapshot => {
                let of_columns = texts.columns_reading_bytes(manifest);
                opened + vectors_bytes(manifest.vectors) + SCAN_BYTES + 2 * texts.id_bytes + of_columns
            }
            // The collection is closed before its index is verified.
            CollectionWork::Verify => opened.max(index.as_ref().map_or(0, index::verifying_bytes)),
            CollectionWork::Merge => opened + merging_bytes(context, manifest, rows, texts),
            CollectionWork::Write { rows: more, bytes, source_bytes } => {
                let of_row = (bytes / more.max(1)).saturating_sub(manifest.vectors.bytes() as u64);
                let texts = texts.max(MergedTexts::of_row(manifest, of_row));
                let deleting = deleting_bytes(more, on_disk, unmerged.rows + more);
                let writing = source_bytes + LOADING_BYTES + 8 * manifest.vectors.bytes() as u64 + deleting;
                let unmerged = opened + more * row + 3 * bytes + writing;
                let merging = opened + writing + merging_bytes(context, manifest, rows + more, texts);
                // One of two conditions suffices: all rows fit into memory unmerged; or the merge fits into three
                // quarters of the budget, since `load` merges once the rows take one quarter.
                unmerged.min(merging / (MERGED_SHARE - 1) * MERGED_SHARE)
            }
        }
    }
}

/// Bounds on the rows in a log.
struct Unmerged {
    rows: u64,
    texts: MergedTexts,
    /// Bytes that the rows take in memory.
    bytes: u64,
    /// Bytes for reading the log.
    reading_bytes: u64,
}

impl Unmerged {
    /// Computes bounds from the size of the log, without reading it.
    fn bound(manifest: &CollectionManifest, log: &Segments) -> Self {
        let log_bytes = log.file_bytes();
        let id_bytes = if manifest.ids == IdKind::Utf8 { size_of::<u32>() } else { size_of::<i64>() };
        let row_bytes = (manifest.vectors.bytes() + id_bytes) as u64;
        Self::new(manifest, log_bytes, LogRows { rows: log_bytes / row_bytes, record_bytes_max: log_bytes })
    }

    /// Counts the rows by reading the log.
    fn count(manifest: &CollectionManifest, log: &Segments) -> Result<Self> {
        Ok(Self::new(manifest, log.file_bytes(), log.count_rows()?))
    }

    /// Returns bounds for the `counted` rows in a log of `log_bytes` bytes.
    fn new(manifest: &CollectionManifest, log_bytes: u64, counted: LogRows) -> Self {
        let LogRows { rows, record_bytes_max } = counted;
        let vectors = rows * manifest.vectors.bytes() as u64;
        // Ids are also in a hash table, and each row has an offset of its columns.
        let others = log_bytes.saturating_sub(vectors);
        let bytes =
            vectors + 3 * others + rows * (size_of::<u64>() as u64 + TemporaryIndex::row_bytes(manifest.space(), 0));
        let texts = MergedTexts::of_row(manifest, others.div_ceil(rows.max(1)));
        // The memory holds a record, a second copy to write after it, and the change that the record contains.
        Self { rows, texts, bytes, reading_bytes: 2 * READING_BYTES.max(record_bytes_max) + 2 * record_bytes_max }
    }
}

/// Returns the memory in bytes for deleting rows in `changes` writes, of `on_disk` rows of the long-term index and of
/// `in_memory` rows of the temporary index.
fn deleting_bytes(changes: u64, on_disk: u64, in_memory: u64) -> u64 {
    // The rows of a write are also marked if the write is undone.
    let of_memory = TemporaryIndex::marking_bytes(2 * changes, in_memory);
    2 * (DeleteList::change_bytes(changes, on_disk) + of_memory)
}

/// Returns the memory in bytes that must be free for a merge into an index of `rows` rows.
fn merging_bytes(context: &Context, manifest: &CollectionManifest, rows: u64, texts: MergedTexts) -> u64 {
    building_bytes(context, manifest, rows, texts).max(opening_bytes(manifest, rows))
}

/// Returns the memory in bytes for opening an index of `rows` rows, without unmerged rows.
fn opening_bytes(manifest: &CollectionManifest, rows: u64) -> u64 {
    let index = Index::foreseen_memory_bytes(rows, manifest.space(), &manifest.index_parameters());
    index + super::places::memory_bytes(rows) + TemporaryIndex::least_bytes() + 2 * READING_BYTES
}

/// Returns an upper bound in bytes on the memory for building an index of `rows` rows.
pub(super) fn building_bytes(context: &Context, manifest: &CollectionManifest, rows: u64, texts: MergedTexts) -> u64 {
    let (metric, attributes) = (manifest.metric, super::attributes::names(&manifest.attributes));
    let options = BuildOptions { metric, attributes, ..BuildOptions::default() };
    let columns_bytes = Some(texts.columns_reading_bytes(manifest));
    let input = BuildInput { source: &Unread::new(manifest, rows, texts), options: &options, columns_bytes };
    index::building_bytes_of(context, input, &manifest.index_parameters(), texts.reading_bytes)
}

/// Source with the shape of the rows of a collection. It cannot be read; it is used to ask how much memory a build of
/// these rows needs.
struct Unread {
    info: SourceInfo,
    texts: MergedTexts,
}

impl Unread {
    fn new(manifest: &CollectionManifest, rows: u64, texts: MergedTexts) -> Self {
        let ids = if manifest.ids == IdKind::None { IdKind::Int64 } else { manifest.ids };
        Self { info: SourceInfo { rows, vectors: manifest.vectors, ids, rounded_from_f64: false }, texts }
    }
}

impl VectorSource for Unread {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn id_bytes(&self) -> Option<u64> {
        (self.info.ids == IdKind::Utf8).then_some(self.texts.id_bytes)
    }

    fn row_bytes(&self) -> Option<u64> {
        let ids = self.id_bytes().unwrap_or(0);
        Some(self.info.vectors.bytes() as u64 + ids + self.texts.column_bytes)
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Err(Error::input("these rows are not read"))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        2 * (batch_bytes + TemporaryView::block_bytes())
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (PathBuf::new(), row)
    }
}

impl Collection {
    /// Reserves memory for a change whose rows take `bytes` bytes. If the collection has a merger, enough memory for a
    /// merge of all rows must remain free. If it does not, waits for a merge that frees some.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled.
    pub(super) fn make_room(&self, context: &Context, change: &Change, bytes: u64) -> Result<WriteRoom> {
        // A write that only deletes leaves no more rows to merge.
        if !change.ids.is_empty() && self.has_merger() {
            let mut was_merged = false;
            while let Err(error) = self.check_left(change, bytes, PURPOSE_WRITE) {
                // A merge removes all rows from memory. If the write still does not fit, another merge does not help.
                if was_merged || !self.wait_for_merge(&context.cancel)? {
                    return Err(error);
                }
                was_merged = true;
            }
        }
        let rows = TemporaryIndex::room_for(context, bytes)?;
        // Each id may be the id of a row on disk.
        let ids = (change.deleted.len() + change.ids.len()) as u64;
        let deletes = TemporaryIndex::room_for(context, self.state().deleting_bytes(change, ids))?;
        Ok(WriteRoom { rows, deletes })
    }

    /// Checks that the budget suffices for a merge of all rows, as far as this is known before the merge.
    ///
    /// # Errors
    /// If the budget is too small. The error names a budget that suffices.
    pub(super) fn check_mergeable(&self) -> Result<()> {
        self.check_left(&Change::empty(self.manifest().ids), 0, PURPOSE_START)
    }

    fn check_left(&self, change: &Change, bytes: u64, purpose: &str) -> Result<()> {
        let (context, manifest, rows) = (&self.context, self.manifest(), change.ids.len() as u64);
        let (all, texts, record) = {
            let state = self.state();
            let texts = state.temporary.text_bytes().and(&change.ids, &change.attributes);
            let record = state.temporary.change_bytes_max().max(change.held_bytes());
            (state.rows() + rows, MergedTexts::of(state.long_term.as_deref(), texts), record)
        };
        // Assumes at least one row: a budget that is too small for a collection with one row is refused at the start.
        let all = all.max(1);
        let merging = merging_bytes(context, &manifest, all, texts);
        let (left, total) = (context.budget().free_between_runs(), context.budget().total());
        let now = total - left + bytes;
        // After a restart, the collection holds more memory than it does now, or opens an index of all rows. The
        // restart must not be refused.
        let restarted = now + RESTART_BYTES + READING_BYTES.max(record);
        let (needed, named) = if rows > 0 {
            let needed = restarted.max(opening_bytes(&manifest, all) + Log::memory_bytes()) + merging;
            (needed, needed)
        } else {
            (now + merging, restarted + merging)
        };
        if needed <= total {
            return Ok(());
        }
        // The named budget has room for a row too, and for the fraction that a server takes for its clients.
        Err(context.too_small(named + (named - total) / 4, purpose))
    }
}
