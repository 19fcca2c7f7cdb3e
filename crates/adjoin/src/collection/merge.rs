//! Merges, which move the rows in memory into the long-term index.
//!
//! A merge builds a new index of all rows of one moment next to the current one, while writes and searches continue.
//! Then it reads the state from the new index and the log, as at opening. This state includes the writes made
//! meanwhile, and replaces the current state. The merge takes effect with the rename of the manifest.

use std::path::Path;

use adjoin_device::Reservation;

use super::attributes::{Attribute, names};
use super::leftovers::remove_unnamed;
use super::long_term_index::{LongTermIndex, folder_name};
use super::manifest::CollectionManifest;
use super::memory::building_bytes;
use super::method::MergeMethod;
use super::operations::{Collection, Merged, Writer};
use super::places::file_bytes;
use super::snapshot::Snapshot;
use super::state::{State, StateView};
use super::sync::lock;
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::format_bytes;
use crate::base::report::Stopwatch;
use crate::index::{Index, Merge, Newcomers as _, REPLACEMENTS, build_merged};
use crate::store::{BuildOptions, Role, Store, TemporaryStore};

/// Purpose of the memory, for error messages.
const PURPOSE: &str = "merging";
/// Maximum number of passes over the log while other threads write. The last pass, after these, holds the write lock.
const READINGS_MAX: usize = 8;
/// A merge waits until other runs have released this number of bytes. The build checks the rest of its memory itself.
pub(super) const LEAST_BYTES: u64 = 12 << 20;

impl Collection {
    /// Merges the rows in memory and the delete list into the long-term index. Writes and searches continue meanwhile.
    /// Only one merge runs at a time. Returns at once if there is nothing to merge.
    ///
    /// # Errors
    /// If the collection is open for reading only, memory or disk space does not suffice, or the work is cancelled. The
    /// collection is then unchanged.
    pub fn merge(&self, context: &Context) -> Result<Merged> {
        self.merge_by(context, MergeMethod::default())
    }

    /// Merges by a given method; see [`Self::merge`].
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub fn merge_by(&self, context: &Context, method: MergeMethod) -> Result<Merged> {
        self.merge_with(context, method, REPLACEMENTS)
    }

    /// Merges by changing the index. At most `replacements` neighbors of each deleted vertex become candidates. See
    /// [`Self::merge`].
    ///
    /// # Errors
    /// As [`Self::merge`].
    #[doc(hidden)]
    pub fn merge_replacing(&self, context: &Context, replacements: usize) -> Result<Merged> {
        self.merge_with(context, MergeMethod::Change, replacements)
    }

    fn merge_with(&self, context: &Context, method: MergeMethod, replacements: usize) -> Result<Merged> {
        let writer = self.writer()?;
        let _merging = lock(&writer.merging);
        let watch = Stopwatch::start();
        let moment = self.state().moment();
        if moment.view.is_empty() && moment.deleted.len() == 0 {
            return Ok(Merged { rows: moment.rows, sequence: moment.sequence, ..Merged::default() });
        }
        self.check_room(&moment)?;
        self.check_disk(&moment)?;
        // Most records are synced before the lock is taken, so that writes do not wait for the disk while it is held.
        self.flush()?;
        let moment = {
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
            // A new log file starts after the records of the view. So the earlier files can be removed after the
            // merge.
            writer.log.begin_file().inspect_err(|_| self.undo_dropped(writer))?;
            self.state().moment().without_packed()
        };
        let (sequence, rows) = (moment.sequence, moment.rows);
        let merged = self.index_of(context, moment, method, replacements).and_then(|(manifest, bytes_written)| {
            self.replace(writer, manifest)?;
            let merged = Merged { rows, sequence, seconds: watch.seconds(), bytes_written };
            lock(&writer.merges).add(merged);
            Ok(merged)
        });
        if merged.is_err() {
            // Best effort: the original error is reported, and opening the collection again also removes leftovers.
            let _ = remove_unnamed(context, self.folder(), &self.manifest());
        }
        merged
    }

    /// Checks that memory suffices for opening the new index next to the current one, which searches use until then.
    /// Called before any work is done.
    fn check_room(&self, moment: &StateView) -> Result<()> {
        let Some(long_term) = &moment.long_term else { return Ok(()) };
        let facts = long_term.index.facts();
        let share = (moment.rows as f64 / facts.rows.max(1) as f64).min(1.0);
        let manifest = self.manifest();
        let options = manifest.index_parameters();
        let foreseen = |rows| Index::foreseen_memory_bytes(rows, manifest.space(), &options);
        let grown = foreseen(moment.rows).saturating_sub(foreseen(facts.rows));
        let bytes = (share * Index::memory_bytes(facts) as f64) as u64 + grown;
        self.context.reserve_between_runs(bytes, "opening the merged index next to the present one").map(drop)
    }

    /// Checks that the disk has space for the new index and for the log that is written meanwhile. Called before any
    /// work is done: a merge that fills the disk would stop writes.
    fn check_disk(&self, moment: &StateView) -> Result<()> {
        // If the free space is unknown, the merge is tried.
        let Ok(free) = self.context.device.free_bytes(self.folder()) else { return Ok(()) };
        let CollectionManifest { vectors, degree, code_bytes, .. } = self.manifest();
        let row = (vectors.bytes() + degree * size_of::<u32>() + code_bytes + size_of::<u64>()) as u64;
        let (index, log) = (moment.rows * row + text_file_bytes(moment), self.state().temporary.held_bytes());
        if index + log <= free {
            return Ok(());
        }
        let [index, log, free] = [index, log, free].map(format_bytes);
        let at = self.folder().display();
        Err(Error::device(format!(
            "{at}: a merge needs at least {index} for the index and {log} for the log, but the disk has {free} free; \
             free some space on that disk"
        )))
    }

    /// Computes the index of a view. Returns the manifest that names it, and the number of bytes written.
    fn index_of(
        &self,
        context: &Context,
        moment: StateView,
        method: MergeMethod,
        replacements: usize,
    ) -> Result<(CollectionManifest, u64)> {
        let (collection, manifest, mut bytes_written) = (self.folder(), self.manifest(), 0);
        if moment.rows > 0 {
            // First tries to get the upper bound, which always suffices. If that is impossible, starts with less,
            // since most merges need less than the bound.
            let enough = building_bytes(context, &manifest, moment.rows, moment.texts());
            let of_writes = self.set_aside_for_writes(context, enough)?;
            let run = context.for_long_run(enough, PURPOSE).or_else(|_| context.for_long_run(LEAST_BYTES, PURPOSE))?;
            drop(of_writes);
            let context = &run.or_temporary(collection);
            let folder = &collection.join(folder_name(moment.sequence));
            bytes_written = match change(context, &moment, &manifest.attributes, method, replacements, folder)? {
                Some(bytes_written) => bytes_written,
                None => build_of(
                    context,
                    &manifest,
                    &Snapshot::new(&manifest, moment.clone(), collection.to_owned()),
                    folder,
                )?,
            };
            LongTermIndex::complete(context, collection, moment.sequence)?;
            bytes_written += file_bytes(moment.rows);
        }
        Ok((manifest.with_merged(moment.sequence, moment.rows), bytes_written))
    }

    /// Reserves the memory that writes may need until a merge ends, as far as a merge with `enough` bytes leaves it free.
    /// The caller drops it once the merge has its memory. Otherwise the merge would leave too little, and writes would wait
    /// for its end.
    fn set_aside_for_writes(&self, context: &Context, enough: u64) -> Result<Option<Reservation>> {
        let room = self.writer()?.pressure.room_of_writes(self.state().temporary.rows_bytes());
        let free = context.budget().free().saturating_sub(enough);
        // Another thread may have taken the memory meanwhile. Then nothing is set aside.
        Ok(context.reserve(room.min(free), PURPOSE).ok())
    }

    /// Replaces the current state by the index that `manifest` names and all later writes.
    fn replace(&self, writer: &Writer, manifest: CollectionManifest) -> Result<()> {
        let (context, folder) = (&self.context, self.folder());
        let era = writer.log.era();
        let (mut state, mut found) = State::read(context, folder, &manifest)?;
        // These passes run while other threads write, so that little is left to read under the lock.
        for _ in 0..READINGS_MAX {
            let before = found.sequence();
            found = state.replay(context, folder, &manifest, Some(&found))?;
            if found.sequence() == before {
                break;
            }
        }
        let (replaced, published) = {
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
            writer.log.flush().inspect_err(|_| self.undo_dropped(writer))?;
            // All records are written, so none can be dropped any more. Undo records refer to the old state and are
            // discarded.
            writer.forget_undo();
            match era.get() {
                None => drop(state.replay(context, folder, &manifest, Some(&found))?),
                // Some of the records that were read may have been dropped since.
                Some(_) => (state, _) = State::read(context, folder, &manifest)?,
            }
            // After a crash before the rename, opening finds the old index and the whole log. After a later crash, it
            // finds the new index and the rest of the log.
            let published = manifest.publish(context, folder);
            // Once renamed, the manifest is in force for every process that opens the collection, even if the rename
            // could not be made durable.
            if published.is_err() && !manifest.is_in_force(context, folder)? {
                return published;
            }
            self.set_manifest(manifest.clone());
            (std::mem::replace(&mut *self.state_mut(), state), published)
        };
        // The old state is dropped after the locks are released: freeing many rows and removing files takes time.
        drop(replaced);
        published?;
        remove_unnamed(context, folder, &manifest)
    }
}

/// Returns the approximate number of bytes that a merge writes for id texts and columns. Columns in memory are not
/// counted, since compression may make them small.
fn text_file_bytes(moment: &StateView) -> u64 {
    let in_memory = moment.view.text_bytes();
    let Some(long_term) = &moment.long_term else { return in_memory.ids * moment.rows / in_memory.rows.max(1) };
    let facts = long_term.index.facts();
    let left = facts.rows - moment.deleted.len();
    let columns = facts.files.get(Role::Attributes).map_or(0, |file| file.bytes);
    // The offset of each text is already counted as part of its row.
    let of_row = columns / facts.rows.max(1) + facts.id_bytes().saturating_sub(size_of::<u64>() as u64);
    left * of_row + in_memory.ids * (moment.rows - left) / in_memory.rows.max(1)
}

/// Builds an index of `rows`. Returns the number of bytes written.
fn build_of(context: &Context, manifest: &CollectionManifest, rows: &Snapshot, folder: &Path) -> Result<u64> {
    let (metric, seed, attributes) = (manifest.metric, manifest.seed, names(&manifest.attributes));
    let options = BuildOptions { metric, seed, attributes, ..BuildOptions::default() };
    let (temporary, of_store) = TemporaryStore::build(context, rows, &options)?;
    let store = Store::open(context, temporary.folder())?;
    let of_index = build_merged(context, &store, folder, &manifest.index_options(), rows.inserted())?.io;
    Ok(of_store.bytes_written + of_store.spill_bytes + of_index.bytes_written + of_index.spill_bytes)
}

/// Copies the long-term index to `folder` and applies the changes of a view to the copy. Does so if the method and the
/// number of changes call for it, and if memory suffices. Returns the number of bytes written, or `None` if the index
/// must be built instead.
fn change(
    context: &Context,
    moment: &StateView,
    attributes: &[Attribute],
    method: MergeMethod,
    replacements: usize,
    folder: &Path,
) -> Result<Option<u64>> {
    let Some(long_term) = &moment.long_term else { return Ok(None) };
    let came = moment.view.came(attributes);
    let _of_numbers = context.reserve(u64::from(came.rows()) * size_of::<u32>() as u64, PURPOSE)?;
    let (index, deleted) = (&long_term.index, &moment.deleted);
    let merge = Merge { context, index, deleted, newcomers: &came, replacements };
    let changes = match method {
        MergeMethod::Fastest => merge.pays(),
        MergeMethod::Change => merge.is_possible(),
        MergeMethod::Build => false,
    };
    if !changes {
        return Ok(None);
    }
    match merge.run(folder) {
        // Falls back to a build, which needs less memory at a time.
        Err(error) if error.kind() == ErrorKind::Budget && method == MergeMethod::Fastest => Ok(None),
        merged => merged.map(Some),
    }
}
