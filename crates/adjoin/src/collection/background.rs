//! Background merges, which a thread of the writing process starts when they are due.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use adjoin_device::give_way;

use super::backpressure::{Backpressure, MergeFootprint, MergerOptions, Pacing};
use super::operations::Collection;
use super::sync::lock;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::report::Cancel;

/// A merge is due when more than one in `DELETED_SHARE` rows of the long-term index is deleted, even if few rows are
/// in memory. Walks still pass through deleted rows, so they slow searches down.
const DELETED_SHARE: u64 = 4;

/// Background threads that merge a collection whenever a merge is due, and that group unmerged rows into buckets, until
/// this value is dropped. Dropping it cancels a running merge. The collection is then unchanged, since all rows are still
/// in the log.
pub struct Merger {
    collection: Arc<Collection>,
    cancel: Cancel,
    threads: Vec<JoinHandle<()>>,
}

/// Work of a background thread.
type BackgroundWork = fn(&Collection, &Context);

/// Names of the background threads, and their work.
const BACKGROUND: [(&str, BackgroundWork); 2] =
    [("adjoin merge", Collection::merge_when_due), ("adjoin group", Collection::bucket_when_due)];

/// Guard of the merge thread. When the thread ends, by a panic too, it releases the writes that wait for a merge.
struct Merging<'a>(&'a Backpressure);

impl Drop for Merging<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        let Some(pacing) = &mut state.merger else { return };
        if !pacing.is_ended {
            (pacing.is_ended, pacing.begun) = (true, None);
            state.waits.is_broken = true;
            state.waits.failure = Some("the merge thread has ended; open the collection again".into());
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Merger {
    /// Starts the merge thread. A merge begins when the rows in memory take `at_bytes`. The default is a fraction of
    /// the budget.
    ///
    /// # Errors
    /// If `at_bytes` is too small, the collection is open for reading only or already has a merger, the budget is too
    /// small for a merge, or the thread cannot be started.
    pub fn start(collection: &Arc<Collection>, at_bytes: Option<u64>) -> Result<Self> {
        let usual = MergerOptions::of(&collection.context);
        start_merger(collection, MergerOptions { at_bytes: at_bytes.unwrap_or(usual.at_bytes), ..usual })
    }
}

/// Starts the merge thread with the given options.
///
/// # Errors
/// As [`Merger::start`].
pub fn start_merger(collection: &Arc<Collection>, options: MergerOptions) -> Result<Merger> {
    options.check()?;
    let writer = collection.writer()?;
    collection.check_mergeable()?;
    {
        let mut state = lock(&writer.pressure.state);
        if state.merger.is_some() {
            let at = collection.folder().display();
            return Err(Error::option(format!(
                "{at} is already merged in the background; leave out the second merger"
            )));
        }
        state.merger = Some(Pacing::new(options));
    }
    let cancel = Cancel::default();
    let mut merger = Merger { collection: collection.clone(), cancel: cancel.clone(), threads: Vec::new() };
    let mut context = collection.context.with_threads(options.threads);
    context.cancel = cancel;
    for (name, work) in BACKGROUND {
        let (collection, context) = (collection.clone(), context.clone());
        let thread = Builder::new().name(name.into()).spawn(move || work(&collection, &context));
        merger.threads.push(thread.map_err(Error::no_thread)?);
    }
    Ok(merger)
}

impl Drop for Merger {
    fn drop(&mut self) {
        // A forked child has a copy of this value but not the thread, and the locks may be held forever.
        if self.collection.check_creator().is_err() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.cancel.cancel();
        let Ok(writer) = self.collection.writer() else { return };
        if let Some(pacing) = &mut lock(&writer.pressure.state).merger {
            pacing.is_ended = true;
        }
        writer.pressure.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic hook has reported it already
        }
        // Waiting writers see that there is no merger, and continue.
        lock(&writer.pressure.state).merger = None;
        writer.pressure.changed.notify_all();
    }
}

impl Collection {
    /// Runs in the merge thread: merges whenever a merge is due, until the merger is dropped.
    fn merge_when_due(&self, context: &Context) {
        let Ok(writer) = self.writer() else { return };
        let _merging = Merging(&writer.pressure);
        give_way();
        while writer.pressure.wait_until_due(&|| self.held()) {
            let merged = self.merge(context);
            if let Err(error) = &merged
                && !context.cancel.is_cancelled()
            {
                context.progress.note(&format!("rows are kept in memory, unmerged: {error}"));
            }
            writer.pressure.merged(merged.map(|merged| merged.seconds));
        }
    }

    /// Runs in a background thread: groups unmerged rows into buckets whenever there are enough, until the merger is
    /// dropped.
    fn bucket_when_due(&self, context: &Context) {
        let Ok(writer) = self.writer() else { return };
        give_way();
        let is_due = || self.state().temporary.needs_buckets();
        while writer.pressure.wait_until(&is_due) {
            let Some(bucketing) = self.state_mut().temporary.begin_bucketing() else { continue };
            // Without memory for buckets, searches continue to compare their queries with all rows.
            let made = bucketing.run(context, self.manifest().seed).ok();
            self.state_mut().temporary.end_bucketing(&bucketing, made);
        }
    }

    /// Delays a write of `bytes` if merges have fallen behind the writes.
    ///
    /// # Errors
    /// If the write is cancelled in the meantime, or its deadline passes.
    pub(super) fn keep_pace(&self, bytes: u64, cancel: &Cancel) -> Result<()> {
        self.writer()?.pressure.keep_pace(bytes, &|| self.held(), cancel)
    }

    /// Waits until the running or the next merge has ended and freed its memory. Returns whether that merge succeeded.
    /// Returns `false` at once if there is nothing to merge or no merger.
    ///
    /// # Errors
    /// If the write is cancelled in the meantime, or its deadline passes.
    pub(super) fn wait_for_merge(&self, cancel: &Cancel) -> Result<bool> {
        self.writer()?.pressure.wait_for_merge(&|| self.held(), cancel)
    }

    /// Returns whether a merge is running.
    pub fn is_merging(&self) -> bool {
        self.writer().is_ok_and(|writer| writer.merging.try_lock().is_err())
    }

    /// Returns why this collection can no longer be written to or merged; `None` if it can. Searches work in any case.
    pub fn failure(&self) -> Option<String> {
        let writer = self.writer().ok()?;
        let of_merger = || Some(writer.pressure.waits()).filter(|waits| waits.is_broken)?.failure;
        writer.log.failure().or_else(of_merger)
    }

    /// Wakes the background threads if there is work for them. Called after each write.
    pub(super) fn tell_merger(&self) -> Result<()> {
        self.writer()?.pressure.tell(&|| self.held());
        Ok(())
    }

    /// Returns whether the collection has a merger.
    pub(super) fn has_merger(&self) -> bool {
        self.writer().is_ok_and(|writer| lock(&writer.pressure.state).merger.is_some())
    }

    fn held(&self) -> MergeFootprint {
        let state = self.state();
        let rows_on_disk = state.long_term.as_ref().map_or(0, |long_term| long_term.index.facts().rows);
        MergeFootprint {
            bytes: state.temporary.rows_bytes(),
            rows: state.rows(),
            has_many_deleted: state.deleted.len() * DELETED_SHARE > rows_on_disk,
            needs_buckets: state.temporary.needs_buckets(),
        }
    }
}
