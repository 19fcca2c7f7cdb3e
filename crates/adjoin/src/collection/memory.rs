//! Memory needed to open, write to and merge a collection.
//!
//! A collection with a merger refuses a write after which a merge would no longer fit into the budget. The memory of a
//! merge depends on clusters that are unknown before it, so these functions return upper bounds, as close as a few
//! facts allow.

use std::path::{Path, PathBuf};

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::log::{Log, on_disk};
use super::manifest::CollectionManifest;
use super::merge::LEAST_BYTES;
use super::operations::Collection;
use super::segment::READING_BYTES;
use super::temporary_index::{TemporaryIndex, TemporaryView};
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Coordinate, Space, with_coordinates};
use crate::index::{Index, IndexManifest};
use crate::source::{IdKind, SourceInfo, VectorScan, VectorSource};
use crate::store::{BuildMemory, BuildOptions};

/// Purposes of memory in error messages.
const PURPOSE_WRITE: &str = "taking these rows, and merging them later,";
const PURPOSE_START: &str = "merging the rows of this collection";
const PURPOSE_ADVICE: &str = "this";
/// Bytes that a merge holds for each of the first rows, up to a maximum, and for each further row.
const FEW_ROWS_BYTES: u64 = 16 << 10;
const FEW_ROWS_BYTES_MAX: u64 = 16 << 20;
const ROW_BYTES: u64 = 32;
/// Rows whose lists of neighbors are laid out together, and bytes of a neighbor in a list.
const WINDOW_ROWS: u64 = 1 << 16;
const NEIGHBOR_BYTES: u64 = 6;
/// Rows in the training sample of codes, and rows that a thread encodes at once.
const CODE_SAMPLE: u64 = 16 << 10;
const ENCODED_ROWS: u64 = 1 << 10;
/// Extents in memory at the same time.
const EXTENTS: u64 = 6;
/// Bytes for columns of rows, and of each row.
const COLUMNS_BYTES: u64 = 8 << 20;
const COLUMNS_ROW_BYTES: u64 = 32;
/// Bytes of one write of [`Collection::load`], in addition to its source.
const LOADING_BYTES: u64 = 16 << 20;
/// [`Collection::load`] merges when rows in memory exceed `1 / MERGED_SHARE` of the budget.
const MERGED_SHARE: u64 = 4;

/// Work for which a collection is opened.
#[derive(Debug, Clone, Copy)]
pub enum CollectionWork {
    /// Merging it.
    Merge,
    /// Writing rows.
    Write {
        /// Number of rows to insert or update.
        rows: u64,
        /// Bytes that the largest source holds while it is read.
        source_bytes: u64,
    },
}

/// Runs work on the collection in a folder. If the budget is too small, the error names a budget that suffices for all of the
/// work, at whichever step it failed.
///
/// # Errors
/// Those of the work.
pub fn with_advice<R>(
    context: &Context,
    folder: &Path,
    of: impl FnOnce() -> Result<CollectionWork>,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    work().map_err(|error| {
        if error.kind() != ErrorKind::Budget {
            return error;
        }
        // If the facts cannot be read, the original error is better than none.
        let least = of().and_then(|of| least_bytes(context, folder, of));
        match least {
            Ok(least) if least > context.budget().total() => context.too_small(least, PURPOSE_ADVICE),
            _ => error,
        }
    })
}

/// Returns the bytes of budget that suffice for work on the collection in a folder.
fn least_bytes(context: &Context, folder: &Path, work: CollectionWork) -> Result<u64> {
    let manifest = CollectionManifest::read(context, folder)?;
    let of_base = match manifest.merged() {
        Some(sequence) => {
            let index = IndexManifest::read(context, &folder.join(super::long_term_index::folder_name(sequence)))?;
            Index::memory_bytes(&index) + super::places::memory_bytes(index.rows)
        }
        None => 0,
    };
    let (_, log_bytes) = on_disk(context, folder)?;
    let row = TemporaryIndex::row_bytes(manifest.space(), 0);
    // A row takes at least its vector and its id in the log. The rest of the log is ids and columns, which are copied.
    let logged_rows = log_bytes / (manifest.vectors.bytes() as u64 + 4);
    let logged = 3 * log_bytes + logged_rows * row;
    let opened = of_base + TemporaryIndex::least_bytes() + logged + Log::memory_bytes() + 2 * READING_BYTES;
    let rows = manifest.merged_rows + logged_rows;
    match work {
        CollectionWork::Merge => Ok(opened + merging_bytes(context, &manifest, rows)?),
        CollectionWork::Write { rows: more, source_bytes } => {
            let writing = source_bytes + LOADING_BYTES + 8 * manifest.vectors.bytes() as u64;
            let unmerged = opened + more * (row + 3 * (manifest.vectors.bytes() as u64 + 16)) + writing;
            let beside = opened + writing + merging_bytes(context, &manifest, rows + more)?;
            Ok(unmerged.min(beside / (MERGED_SHARE - 1) * MERGED_SHARE))
        }
    }
}

/// Returns the bytes that must be free for a merge into an index of `rows` rows.
fn merging_bytes(context: &Context, manifest: &CollectionManifest, rows: u64) -> Result<u64> {
    let space = manifest.space();
    // A merge takes three quarters of the free memory.
    let building = with_coordinates!(space, T => building_bytes::<T>(context, manifest, rows, space)) / 3 * 4;
    let opening =
        Index::foreseen_memory_bytes(rows, space, &manifest.index_options()) + super::places::memory_bytes(rows);
    Ok(building.max(opening + TemporaryIndex::least_bytes() + 2 * READING_BYTES))
}

/// Returns the bytes that an open collection holds whose rows are all merged.
fn opened_bytes(manifest: &CollectionManifest, rows: u64) -> u64 {
    let index = Index::foreseen_memory_bytes(rows, manifest.space(), &manifest.index_options());
    index + super::places::memory_bytes(rows) + TemporaryIndex::least_bytes() + Log::memory_bytes() + 2 * READING_BYTES
}

fn building_bytes<T: Coordinate>(
    context: &Context,
    manifest: &CollectionManifest,
    rows: u64,
    space: Space<'static>,
) -> u64 {
    if rows == 0 {
        return LEAST_BYTES;
    }
    let (vectors, dimensions, threads) = (manifest.vectors, space.dimensions(), context.threads as u64);
    let ids = if manifest.ids == IdKind::None { IdKind::Int64 } else { manifest.ids };
    let source = Unread(SourceInfo { rows, vectors, ids, rounded_from_f64: false });
    let (metric, attributes) = (manifest.metric, super::attributes::names(&manifest.attributes));
    let options = BuildOptions { metric, attributes, ..BuildOptions::default() };
    let of_store = BuildMemory::foresee::<T>(context.threads, (&source, &options), (0, 0)).least;
    let panel = |rows: u64| Panel::<f32>::bytes_for(rows as usize, dimensions);
    let coding = (4 * panel(rows.min(CODE_SAMPLE))).max(threads * 3 * panel(ENCODED_ROWS));
    let extents = EXTENTS * BuildMemory::largest_extent(rows, vectors, &options);
    let lists = rows.min(WINDOW_ROWS) * manifest.degree as u64 * NEIGHBOR_BYTES;
    let columns = if manifest.attributes.is_empty() { 0 } else { COLUMNS_BYTES + rows * COLUMNS_ROW_BYTES };
    let of_rows = (rows * FEW_ROWS_BYTES).min(FEW_ROWS_BYTES_MAX) + rows * (ROW_BYTES + manifest.degree as u64 / 2);
    (LEAST_BYTES + of_rows + coding + extents + lists + columns).max(of_store)
}

/// A source with the shape of the rows of a collection, to ask how much memory a build of them needs.
struct Unread(SourceInfo);

impl VectorSource for Unread {
    fn info(&self) -> &SourceInfo {
        &self.0
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
    /// Reserves `bytes` for a change with `rows` new rows. If the collection has a merger, this leaves enough memory free to merge
    /// all rows, and waits for a merge if one can make room.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled.
    pub(super) fn make_room(&self, context: &Context, rows: u64, bytes: u64) -> Result<Reservation> {
        if rows > 0 && self.has_merger() {
            let mut was_merged = false;
            while let Err(error) = self.check_left(rows, bytes, PURPOSE_WRITE) {
                if was_merged || !self.wait_for_merge(&context.cancel)? {
                    return Err(error);
                }
                was_merged = true;
            }
        }
        TemporaryIndex::room_for(context, bytes)
    }

    /// Checks that a merge of all rows fits into the budget, as far as that is known before the merge.
    ///
    /// # Errors
    /// If it does not: names a budget that suffices.
    pub(super) fn check_mergeable(&self) -> Result<()> {
        self.check_left(0, 0, PURPOSE_START)
    }

    fn check_left(&self, rows: u64, bytes: u64, purpose: &str) -> Result<()> {
        let context = &self.context;
        // At the start, one row is assumed: a collection that could not take even that is refused.
        let (manifest, all) = (self.manifest(), (self.state().rows() + rows).max(1));
        let merging = merging_bytes(context, &manifest, all)?;
        let (left, total) = (context.budget().free_between_runs(), context.budget().total());
        let now = total - left + bytes;
        // A restart after the merge opens an index of all rows, and must not be refused.
        let restarted = if rows > 0 { opened_bytes(&manifest, all) } else { 0 };
        let needed = now.max(restarted) + merging;
        if needed <= total {
            return Ok(());
        }
        // A server takes a fraction of a larger budget for its clients.
        Err(context.too_small(needed + (needed - total) / 4, purpose))
    }
}
