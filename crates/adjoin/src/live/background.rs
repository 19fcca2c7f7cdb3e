//! Merges that come by themselves while others write and search, and writes that are slowed down where merges fall behind.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use adjoin_device::give_way;

use super::collection::Collection;
use super::sync::{Condvar, Mutex, lock};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::format_bytes;
use crate::report::Cancel;
use crate::workers::no_thread;

/// A merge begins where rows in memory take more than one part in so many of the budget, or so many bytes: each query is compared
/// with all of them.
const AT_SHARE: u64 = 8;
const AT_BYTES: u64 = 64 << 20;
/// Least bytes at which one may begin.
const AT_BYTES_MIN: u64 = 64 << 10;
/// Rows may come to take so many times the bytes at which a merge begins; then writes wait until it has ended.
const MOST: u64 = 2;
/// A merge begins too where one row on disk in so many is gone, as searches go by way of these.
const GONE_SHARE: u64 = 4;
/// Of the room that is left when a merge begins, so much may be taken at any rate, the rest no faster than the merge goes.
const FREE_SHARE: f64 = 0.5;
/// A merge that takes longer than the last one is expected to take so many seconds more.
const MORE_SECONDS: f64 = 5.0;
/// After so long, whoever waits looks whether that was cancelled.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// When merges come by themselves, and what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergerOptions {
    /// Bytes of memory of rows that are not merged yet at which a merge begins.
    pub at_bytes: u64,
    /// Threads of a merge, which give way to all other threads of the machine: searches get the cores that they need.
    pub threads: usize,
}

impl MergerOptions {
    /// The usual ones where so much memory and so many threads are for a live index.
    pub fn of(context: &Context) -> Self {
        let at_bytes = (context.budget().total() / AT_SHARE).clamp(AT_BYTES_MIN, AT_BYTES);
        Self { at_bytes, threads: (context.threads / 2).max(1) }
    }

    fn check(&self) -> Result<()> {
        if self.at_bytes < AT_BYTES_MIN {
            let (given, least) = (format_bytes(self.at_bytes), format_bytes(AT_BYTES_MIN));
            return Err(Error::option(format!("merges at {given} of rows would never end; give {least} or more")));
        }
        Ok(())
    }
}

/// Merges a live index whenever that is due, until it is dropped. A merge that is under way then is cancelled: all rows are still
/// in the log, and it is as if it had not begun.
pub struct Merger {
    collection: Arc<Collection>,
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
}

/// What those who write and the thread that merges tell each other.
#[derive(Default)]
pub(super) struct Pressure {
    state: Mutex<Shared>,
    changed: Condvar,
}

#[derive(Default)]
struct Shared {
    /// None where merges do not come by themselves.
    merger: Option<Pacing>,
    waits: Waits,
}

/// How merges go.
struct Pacing {
    options: MergerOptions,
    /// When the merge that is under way began, and the bytes of rows in memory then.
    begun: Option<(Instant, u64)>,
    /// How long the last one took.
    last_seconds: f64,
    /// Bytes of rows in memory when the last one failed.
    failed_at: Option<u64>,
    is_ended: bool,
}

/// How often writes waited for merges, and how long.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    pub(super) count: u64,
    pub(super) seconds: f64,
    /// Why the last merge that came by itself failed; none where it did not.
    pub(super) failure: Option<String>,
}

impl Merger {
    /// Begins to merge `collection` whenever that is due.
    ///
    /// # Errors
    /// Where an option is out of range, the live index is only read, it has a merger already, or the system gives no thread.
    pub fn start(collection: &Arc<Collection>, options: MergerOptions) -> Result<Self> {
        options.check()?;
        let writer = collection.writer()?;
        {
            let mut state = lock(&writer.pressure.state);
            if state.merger.is_some() {
                let at = collection.folder().display();
                return Err(Error::option(format!("{at} is merged by itself already; one merger suffices")));
            }
            let last_seconds = lock(&writer.merges).last_seconds();
            state.merger = Some(Pacing { options, begun: None, last_seconds, failed_at: None, is_ended: false });
        }
        let cancel = Cancel::default();
        let mut merger = Self { collection: collection.clone(), cancel: cancel.clone(), thread: None };
        let mut context = collection.context.with_threads(options.threads);
        context.cancel = cancel;
        let collection = collection.clone();
        let thread = Builder::new().name("adjoin merge".into()).spawn(move || collection.merge_when_due(&context));
        merger.thread = Some(thread.map_err(no_thread)?);
        Ok(merger)
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        // A forked child does not have the thread, and may find the locks locked.
        if self.collection.check_creator().is_err() {
            self.thread.take().into_iter().for_each(std::mem::forget);
            return;
        }
        self.cancel.cancel();
        let Ok(writer) = self.collection.writer() else { return };
        if let Some(pacing) = &mut lock(&writer.pressure.state).merger {
            pacing.is_ended = true;
        }
        writer.pressure.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it tells of a panic itself
        }
        lock(&writer.pressure.state).merger = None;
        writer.pressure.changed.notify_all();
    }
}

impl Collection {
    /// Merges whenever that is due, until the merger ends.
    fn merge_when_due(&self, context: &Context) {
        let Ok(writer) = self.writer() else { return };
        give_way();
        while writer.pressure.wait_until_due(&|| self.held()) {
            let before = self.held().bytes;
            let merged = self.merge(context);
            if let Err(error) = &merged
                && !context.cancel.is_cancelled()
            {
                context.progress.note(&format!("rows stay in memory, unmerged: {error}"));
            }
            writer.pressure.merged(merged.map(|merged| merged.seconds), before);
        }
    }

    /// Waits before a write of some bytes where merges have fallen behind.
    pub(super) fn keep_pace(&self, bytes: u64) -> Result<()> {
        self.writer()?.pressure.keep_pace(bytes, &|| self.held(), &self.context.cancel)
    }

    /// Tells the merger that something was written.
    pub(super) fn tell_merger(&self) -> Result<()> {
        self.writer()?.pressure.tell(&|| self.held());
        Ok(())
    }

    /// Whether merges come by themselves.
    pub(super) fn has_merger(&self) -> bool {
        self.writer().is_ok_and(|writer| lock(&writer.pressure.state).merger.is_some())
    }

    fn held(&self) -> Held {
        let state = self.state();
        let of_base = state.base.as_ref().map_or(0, |base| base.index.facts().rows);
        Held { bytes: state.fresh.held_bytes(), is_gone: state.gone.rows * GONE_SHARE > of_base }
    }
}

/// What a merge would take from memory.
struct Held {
    bytes: u64,
    /// Whether so many rows on disk are gone that it should come for these alone.
    is_gone: bool,
}

impl Pressure {
    /// Waits until a merge is due, which begins then; whether there is to be one.
    fn wait_until_due(&self, held: &dyn Fn() -> Held) -> bool {
        let mut state = lock(&self.state);
        loop {
            let Some(pacing) = &mut state.merger else { return false };
            if pacing.is_ended {
                return false;
            }
            let now = held();
            if pacing.is_due(&now) {
                pacing.begun = Some((Instant::now(), now.bytes));
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// A merge has ended, that began where so many bytes were held.
    fn merged(&self, seconds: Result<f64>, before: u64) {
        let mut state = lock(&self.state);
        if let Some(pacing) = &mut state.merger {
            pacing.begun = None;
            pacing.failed_at = seconds.is_err().then_some(before);
            pacing.last_seconds = *seconds.as_ref().unwrap_or(&pacing.last_seconds);
        }
        state.waits.failure = seconds.err().map(|error| error.to_string());
        self.changed.notify_all();
    }

    fn tell(&self, held: &dyn Fn() -> Held) {
        let state = lock(&self.state);
        if state.merger.as_ref().is_some_and(|pacing| pacing.begun.is_none() && pacing.is_due(&held())) {
            self.changed.notify_all();
        }
    }

    fn keep_pace(&self, bytes: u64, held: &dyn Fn() -> Held, cancel: &Cancel) -> Result<()> {
        let mut state = lock(&self.state);
        let mut since = None;
        while let Some(wait) = state.merger.as_ref().and_then(|pacing| pacing.wait(held().bytes + bytes)) {
            since.get_or_insert_with(Instant::now);
            cancel.check()?;
            let waited = self.changed.wait_timeout(state, wait.min(LOOK_AFTER));
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        if let Some(since) = since {
            state.waits.count += 1;
            state.waits.seconds += since.elapsed().as_secs_f64();
        }
        Ok(())
    }

    pub(super) fn waits(&self) -> Waits {
        lock(&self.state).waits.clone()
    }
}

impl Pacing {
    fn is_due(&self, held: &Held) -> bool {
        // What failed is tried again when there is more.
        let at = self.failed_at.map_or(0, |before| before + self.options.at_bytes);
        (held.bytes >= self.options.at_bytes || held.is_gone) && held.bytes >= at
    }

    /// How long a write must wait after which rows in memory take so many bytes.
    fn wait(&self, bytes: u64) -> Option<Duration> {
        let most = self.options.at_bytes * MOST;
        if self.is_ended || self.failed_at.is_some() {
            // Then memory says when there is too much.
            return None;
        }
        let Some((begun, before)) = self.begun else { return (bytes > most).then_some(LOOK_AFTER) };
        let (room, came) = (most.saturating_sub(before).max(1) as f64, bytes.saturating_sub(before) as f64);
        let elapsed = begun.elapsed().as_secs_f64();
        let expected = self.last_seconds.max(elapsed + MORE_SECONDS);
        let at = (came / room - FREE_SHARE) / (1.0 - FREE_SHARE) * expected;
        (at > elapsed).then(|| Duration::from_secs_f64((at - elapsed).min(LOOK_AFTER.as_secs_f64())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacing(begun: Option<(f64, u64)>, last_seconds: f64) -> Pacing {
        let begun =
            begun.map(|(ago, bytes)| (Instant::now().checked_sub(Duration::from_secs_f64(ago)).unwrap(), bytes));
        let options = MergerOptions { at_bytes: 1_000, threads: 1 };
        Pacing { options, begun, last_seconds, failed_at: None, is_ended: false }
    }

    #[test]
    fn writes_wait_the_longer_the_less_room_is_left() {
        // Half of the room of 1,000 bytes is free.
        for bytes in [1_000, 1_500] {
            assert_eq!(pacing(Some((0.0, 1_000)), 100.0).wait(bytes), None);
        }
        let wait = |bytes| pacing(Some((0.0, 1_000)), 0.1).wait(bytes).map_or(0.0, |wait| wait.as_secs_f64());
        let waits: Vec<f64> = (1_500..=2_000).step_by(5).map(wait).collect();
        assert!(waits.is_sorted() && waits[0] == 0.0 && waits[100] > 0.0, "{waits:?}");
        // In the middle of a merge, half of the rest is free too.
        assert_eq!(pacing(Some((50.0, 1_000)), 100.0).wait(1_749), None);
        assert!(pacing(Some((50.0, 1_000)), 100.0).wait(1_760).is_some());
        // Beyond the room, however long it takes.
        assert!(pacing(Some((1e6, 1_000)), 1.0).wait(2_100).is_some());
    }

    #[test]
    fn a_merge_is_due_by_size_or_by_what_is_gone_and_after_a_failure_when_there_is_more() {
        let (small, large) = (Held { bytes: 999, is_gone: false }, Held { bytes: 1_000, is_gone: false });
        let mut pacing = pacing(None, 0.0);
        assert!(!pacing.is_due(&small) && pacing.is_due(&large) && pacing.is_due(&Held { is_gone: true, ..small }));
        pacing.failed_at = Some(1_200);
        assert!(!pacing.is_due(&large) && pacing.is_due(&Held { bytes: 2_200, is_gone: false }));
        assert_eq!(pacing.wait(1 << 40), None);
    }
}
