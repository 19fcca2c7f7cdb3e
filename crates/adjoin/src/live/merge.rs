//! Rows in memory become rows of the index on disk.
//!
//! A new index is built beside the one that there is, of all rows of a moment, while writes and searches go on. Then the new
//! one takes its place together with what was written meanwhile, which is read from the log again: the same as opening the
//! live index after that. One rename of the manifest is the moment at which it counts.

use std::path::Path;

use super::base::{Base, folder_name, is_of_merge, places_name};
use super::collection::{Collection, Merged, Writer};
use super::manifest::LiveManifest;
use super::segment::{DRAFT, first_of};
use super::snapshot::Snapshot;
use super::state::{Moment, State};
use crate::context::Context;
use crate::error::Result;
use crate::index::build;
use crate::report::Stopwatch;
use crate::store::{BuildOptions, Store, TemporaryStore};
use crate::workers::lock;

impl Collection {
    /// Makes the rows in memory, and what was deleted, part of the index on disk; one merge at a time. Where there is nothing
    /// to merge, nothing is done. Writes and searches go on meanwhile.
    ///
    /// # Errors
    /// Where it is only read, memory or the disk does not suffice, or the work is cancelled. What there was is then still there.
    pub fn merge(&self, context: &Context) -> Result<Merged> {
        let writer = self.writer()?;
        let _merging = lock(&writer.merging);
        let watch = Stopwatch::start();
        let moment = {
            let _order = lock(&writer.order);
            let moment = self.state().moment();
            if moment.view.is_empty() && moment.gone.rows == 0 {
                return Ok(Merged { rows: moment.rows, sequence: moment.sequence, ..Merged::default() });
            }
            writer.log.begin_file()?;
            moment
        };
        let context = &context.clone().or_temporary(self.folder());
        let (sequence, rows) = (moment.sequence, moment.rows);
        let merged = self.replace(context, writer, moment);
        if merged.is_err() {
            // Best effort: the error that led here is the one to report, and opening it again removes them too.
            let _ = remove_of_merge(context, self.folder(), self.manifest().merged());
        }
        merged.map(|()| Merged { rows, sequence, seconds: watch.seconds() })
    }

    /// Builds the index of a moment, and puts it in the place of the one that is there.
    fn replace(&self, context: &Context, writer: &Writer, moment: Moment) -> Result<()> {
        let folder = self.folder();
        let (sequence, rows) = (moment.sequence, moment.rows);
        let manifest = self.manifest();
        if rows > 0 {
            build_of(context, folder, &manifest, &moment)?;
        }
        drop(moment);
        let manifest = manifest.with_merged(sequence, rows);
        // Nobody writes while what was written meanwhile is read again.
        let _order = lock(&writer.order);
        writer.log.flush()?;
        let (state, _) = State::read(&self.context, folder, &manifest)?;
        manifest.publish(context, folder)?;
        let merged = manifest.merged();
        self.set_manifest(manifest);
        *self.state_mut() = state;
        remove_of_merge(context, folder, merged)?;
        remove_log_before(context, folder, sequence + 1)
    }
}

/// Builds the index of a moment.
fn build_of(context: &Context, live: &Path, manifest: &LiveManifest, moment: &Moment) -> Result<()> {
    let rows = Snapshot::new(manifest, moment, live.to_owned());
    let options = BuildOptions { metric: manifest.metric, seed: manifest.seed, ..BuildOptions::default() };
    let (temporary, _) = TemporaryStore::build(context, &rows, &options)?;
    let store = Store::open(context, temporary.folder())?;
    build(context, &store, &live.join(folder_name(moment.sequence)), &manifest.index_options(), true)?;
    drop(store);
    Base::complete(context, live, moment.sequence)
}

/// Removes what other merges than one have left.
pub(super) fn remove_of_merge(context: &Context, live: &Path, but: Option<u64>) -> Result<()> {
    let kept = but.map(|sequence| [folder_name(sequence), places_name(sequence)]);
    let is_left = |name: &str| is_of_merge(name) && !kept.iter().flatten().any(|kept| kept == name);
    let device = &context.device;
    for name in device.list_only(live, &|name| name.to_str().is_some_and(is_left))? {
        let path = live.join(&name);
        match name.to_str().is_some_and(|name| name.starts_with("index-")) {
            true => device.remove_folder(&path)?,
            false => device.remove(&path)?,
        }
    }
    Ok(())
}

/// Removes files of the log whose records are all before one.
pub(super) fn remove_log_before(context: &Context, live: &Path, first: u64) -> Result<()> {
    let is_left = |name: &str| name == DRAFT || first_of(name).is_some_and(|of_file| of_file < first);
    for name in context.device.list_only(live, &|name| name.to_str().is_some_and(is_left))? {
        context.device.remove(&live.join(name))?;
    }
    Ok(())
}
