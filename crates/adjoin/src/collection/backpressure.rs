//! Decides when merges begin, and how long writes wait if merges fall behind.

use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, lock};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::format_bytes;
use crate::base::report::Cancel;

/// By default, a merge begins when the rows in memory take `1 / AT_SHARE` of the budget, but at most `AT_BYTES`. The
/// bound limits the time of searches that compare each query with all of these rows.
const AT_SHARE: u64 = 8;
const AT_BYTES: u64 = 256 << 20;
/// Smallest valid value of [`MergerOptions::at_bytes`].
const AT_BYTES_MIN: u64 = 64 << 10;
/// A write waits for the end of a merge if the rows in memory would take more than `MOST` times
/// [`MergerOptions::at_bytes`].
const MOST: u64 = 2;
/// Grouping rows into buckets again holds their packed form twice. This is about this fraction of the memory of the rows.
const GROUPING_SHARE: f64 = 0.5;
/// Writes have some memory left between the start of a merge and the point at which they must wait for its end. They
/// may use this fraction of that memory at once. The rest is released as the merge proceeds.
const FREE_SHARE: f64 = 0.5;
/// Expected duration of the first merge in seconds, per row and for one thread. 800,000 rows of 128 bytes took 80 s while
/// searches ran.
const SECONDS_OF_ROW: f64 = 1e-4;
/// Least number of rows of a merge whose duration is used to predict the next one. A smaller merge mostly creates and
/// syncs files.
const LEARNED_ROWS: u64 = 10_000;
/// Expected remaining time of a merge that takes longer than expected: this fraction of the expected duration, but at
/// least this number of seconds.
const MORE_SHARE: f64 = 0.25;
const MORE_SECONDS: f64 = 5.0;
/// Delay before a failed merge is tried again. Each further failure doubles the delay, at most `RETRY_DOUBLINGS`
/// times.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_DOUBLINGS: u32 = 3;
/// Interval at which a waiting thread checks whether it is cancelled.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Options of background merges: when they begin, and which resources they use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergerOptions {
    /// Bytes of rows in memory, without their buckets, at which a merge begins.
    pub at_bytes: u64,
    /// Threads of a merge. They run at low priority, so searches get the cores that they need.
    pub threads: usize,
    /// Delay before a failed merge is tried again. Each further failure doubles the delay, up to eight times its first
    /// value.
    pub retry_after: Duration,
}

impl MergerOptions {
    /// Returns the default options for the memory and threads of `context`.
    pub fn of(context: &Context) -> Self {
        let at_bytes = (context.budget().total() / AT_SHARE).clamp(AT_BYTES_MIN, AT_BYTES);
        Self { at_bytes, threads: (context.threads / 2).max(1), retry_after: RETRY_AFTER }
    }

    /// Refuses options out of range.
    pub(super) fn check(&self) -> Result<()> {
        if self.at_bytes < AT_BYTES_MIN {
            let (given, least) = (format_bytes(self.at_bytes), format_bytes(AT_BYTES_MIN));
            return Err(Error::option(format!("merging at {given} of rows is too frequent; give {least} or more")));
        }
        Ok(())
    }
}

/// State shared by writers and the merge thread.
#[derive(Default)]
pub(super) struct Backpressure {
    pub(super) state: Mutex<Shared>,
    pub(super) changed: Condvar,
}

/// Progress of the merger, and the time that writes waited for it.
#[derive(Default)]
pub(super) struct Shared {
    /// `None` if the collection has no merger.
    pub(super) merger: Option<Pacing>,
    pub(super) waits: Waits,
}

/// State of the merger.
pub(super) struct Pacing {
    options: MergerOptions,
    /// The running merge, if any.
    pub(super) begun: Option<Begun>,
    /// Duration of the last merge of many rows in seconds, divided by the number of its rows.
    seconds_of_row: f64,
    /// Consecutive failed merges.
    failures: u32,
    /// Earliest time of the next merge. `None` unless the last merge failed.
    retry_at: Option<Instant>,
    /// Number of merges that have ended, including failed ones.
    attempts: u64,
    /// Whether a write waits for a merge to free memory.
    is_asked_for: bool,
    pub(super) is_ended: bool,
}

/// Start of a merge.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    at: Instant,
    /// Bytes of the rows in memory.
    bytes: u64,
    /// Number of rows of the merged index.
    rows: u64,
}

/// Number of writes that waited for merges, and their total waiting time.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits {
    pub(super) count: u64,
    pub(super) seconds: f64,
    /// Why the last merge in the background failed; `None` if it succeeded.
    pub(super) failure: Option<String>,
    /// Whether the merge thread ended unexpectedly.
    pub(super) is_broken: bool,
}

/// Rows in memory and deleted rows that the next merge would remove.
pub(super) struct MergeFootprint {
    /// Bytes of the rows in memory, without their buckets: these are made at once, so a write would wait long for them.
    pub(super) bytes: u64,
    /// Number of all rows.
    pub(super) rows: u64,
    /// Whether the deleted rows of the long-term index alone make a merge due.
    pub(super) has_many_deleted: bool,
    /// Whether there are enough rows in memory to group them into buckets.
    pub(super) needs_buckets: bool,
}

impl Backpressure {
    /// Waits until a merge is due, and records its start. Returns `false` if the merger has been dropped.
    pub(super) fn wait_until_due(&self, held: &dyn Fn() -> MergeFootprint) -> bool {
        let mut state = lock(&self.state);
        loop {
            let Some(pacing) = &mut state.merger else { return false };
            if pacing.is_ended {
                return false;
            }
            let now = held();
            if pacing.is_due(&now) {
                pacing.begun = Some(Begun { at: Instant::now(), bytes: now.bytes, rows: now.rows });
                return true;
            }
            state = match pacing.retry_at {
                Some(at) if pacing.is_wanted(&now) => {
                    let left = at.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
                }
                _ => self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner),
            };
        }
    }

    /// Waits until `is_due` returns true. Returns `false` if the merger has been dropped.
    pub(super) fn wait_until(&self, is_due: &dyn Fn() -> bool) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.merger.as_ref().is_none_or(|pacing| pacing.is_ended) {
                return false;
            }
            if is_due() {
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Records the result of a merge.
    pub(super) fn merged(&self, seconds: Result<f64>) {
        let mut state = lock(&self.state);
        if let Some(pacing) = &mut state.merger {
            pacing.ended(seconds.as_ref().ok().copied());
        }
        state.waits.failure = seconds.err().map(|error| error.to_string());
        self.changed.notify_all();
    }

    pub(super) fn tell(&self, held: &dyn Fn() -> MergeFootprint) {
        let state = lock(&self.state);
        let has_work = |pacing: &Pacing| {
            let held = held();
            held.needs_buckets || pacing.begun.is_none() && pacing.is_due(&held)
        };
        if state.merger.as_ref().is_some_and(has_work) {
            self.changed.notify_all();
        }
    }

    pub(super) fn keep_pace(&self, bytes: u64, held: &dyn Fn() -> MergeFootprint, cancel: &Cancel) -> Result<()> {
        let mut state = lock(&self.state);
        let (mut since, seen) = (None, state.merger.as_ref().map_or(0, |pacing| pacing.attempts));
        while let Some(wait) = state.merger.as_ref().and_then(|pacing| pacing.wait(&held(), bytes, seen)) {
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

    pub(super) fn wait_for_merge(&self, held: &dyn Fn() -> MergeFootprint, cancel: &Cancel) -> Result<bool> {
        let mut state = lock(&self.state);
        let mut seen = None;
        loop {
            let Some(pacing) = &mut state.merger else { return Ok(false) };
            let seen = *seen.get_or_insert(pacing.attempts);
            if pacing.attempts > seen {
                return Ok(pacing.failures == 0);
            }
            let now = held();
            if pacing.is_ended || pacing.begun.is_none() && now.bytes == 0 && !now.has_many_deleted {
                return Ok(false);
            }
            if pacing.begun.is_none() && !pacing.is_asked_for {
                pacing.is_asked_for = true;
                self.changed.notify_all();
            }
            cancel.check()?;
            state = self.changed.wait_timeout(state, LOOK_AFTER).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Returns the memory in bytes that writes may take until the running merge ends: for rows in addition to the `held`
    /// bytes of rows, and for grouping all of them into buckets again. Returns 0 if the collection has no merger.
    pub(super) fn room_of_writes(&self, held: u64) -> u64 {
        let most = lock(&self.state).merger.as_ref().map_or(0, |pacing| pacing.options.at_bytes.saturating_mul(MOST));
        ((most as f64 * (1.0 + GROUPING_SHARE)) as u64).saturating_sub(held)
    }

    pub(super) fn waits(&self) -> Waits {
        lock(&self.state).waits.clone()
    }
}

impl Pacing {
    pub(super) fn new(options: MergerOptions) -> Self {
        Self {
            options,
            begun: None,
            seconds_of_row: SECONDS_OF_ROW / options.threads.max(1) as f64,
            failures: 0,
            retry_at: None,
            attempts: 0,
            is_asked_for: false,
            is_ended: false,
        }
    }

    /// Records the end of the running merge, with its duration if it succeeded.
    fn ended(&mut self, seconds: Option<f64>) {
        let begun = self.begun.take();
        self.is_asked_for = false;
        self.attempts += 1;
        if let Some(seconds) = seconds {
            (self.failures, self.retry_at) = (0, None);
            // A merge without anything to merge takes no time.
            if let Some(begun) = begun.filter(|begun| begun.rows >= LEARNED_ROWS && seconds > 0.0) {
                self.seconds_of_row = seconds / begun.rows as f64;
            }
        } else {
            let times = 1 << self.failures.min(RETRY_DOUBLINGS);
            self.retry_at = Some(Instant::now() + self.options.retry_after * times);
            self.failures += 1;
        }
    }

    fn is_wanted(&self, held: &MergeFootprint) -> bool {
        held.bytes >= self.options.at_bytes || held.has_many_deleted || self.is_asked_for && held.bytes > 0
    }

    fn is_due(&self, held: &MergeFootprint) -> bool {
        self.is_wanted(held) && self.retry_at.is_none_or(|at| at <= Instant::now())
    }

    /// Returns how long a write of `bytes` waits before it asks again, or `None` if it may proceed. `seen` is the
    /// number of merges that had ended when the write arrived.
    fn wait(&self, held: &MergeFootprint, bytes: u64, seen: u64) -> Option<Duration> {
        let (after, most) = (held.bytes + bytes, self.options.at_bytes * MOST);
        if self.is_ended {
            return None;
        }
        if self.failures > 0 {
            // A write waits for one more attempt only. After that, the budget alone decides whether the write is
            // accepted.
            let comes = self.begun.is_some() || self.is_wanted(held);
            return (after > most && comes && self.attempts == seen).then_some(LOOK_AFTER);
        }
        // Waits only if a merge is due: otherwise nothing would end the wait.
        let Some(begun) = self.begun else {
            return (after > most && self.is_due(held)).then_some(LOOK_AFTER);
        };
        let (room, came) = (most.saturating_sub(begun.bytes).max(1) as f64, after.saturating_sub(begun.bytes) as f64);
        let elapsed = begun.at.elapsed().as_secs_f64();
        let expected = self.seconds_of_row * begun.rows as f64;
        let expected = expected.max(elapsed + MORE_SECONDS.max(MORE_SHARE * expected));
        // The memory after the free fraction is released in proportion to the elapsed part of the merge. A write that
        // uses the last byte waits until the expected end of the merge.
        let at = (came / room - FREE_SHARE) / (1.0 - FREE_SHARE) * expected;
        (at > elapsed).then(|| Duration::from_secs_f64((at - elapsed).min(LOOK_AFTER.as_secs_f64())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: MergeFootprint =
        MergeFootprint { bytes: 999, rows: 100, has_many_deleted: false, needs_buckets: false };
    const LARGE: MergeFootprint = MergeFootprint { bytes: 1_000, ..SMALL };

    /// Returns the state of a merger whose merge of 100 rows began `begun.0` seconds ago with `begun.1` bytes, if any, and
    /// is expected to take `seconds`.
    fn pacing(begun: Option<(f64, u64)>, seconds: f64) -> Pacing {
        let begun = begun.map(|(ago, bytes)| Begun {
            at: Instant::now().checked_sub(Duration::from_secs_f64(ago)).unwrap(),
            bytes,
            rows: 100,
        });
        let options = MergerOptions { at_bytes: 1_000, threads: 1, retry_after: Duration::from_secs(3_600) };
        Pacing { begun, seconds_of_row: seconds / 100.0, ..Pacing::new(options) }
    }

    #[test]
    fn writes_wait_longer_as_free_memory_shrinks() {
        // Writes may use half of the remaining 1,000 bytes at once.
        for bytes in [0, 500] {
            assert_eq!(pacing(Some((0.0, 1_000)), 100.0).wait(&LARGE, bytes, 0), None);
        }
        let wait =
            |bytes| pacing(Some((0.0, 1_000)), 0.1).wait(&LARGE, bytes, 0).map_or(0.0, |wait| wait.as_secs_f64());
        let waits: Vec<f64> = (500..=1_000).step_by(5).map(wait).collect();
        assert!(waits.is_sorted() && waits[0] == 0.0 && waits[100] > 0.0, "{waits:?}");
        // In the middle of a merge, half of the other 500 bytes is released too.
        assert_eq!(pacing(Some((50.0, 1_000)), 100.0).wait(&LARGE, 749, 0), None);
        assert!(pacing(Some((50.0, 1_000)), 100.0).wait(&LARGE, 760, 0).is_some());
        // A write above the limit waits, no matter how long the merge takes.
        assert!(pacing(Some((1e6, 1_000)), 1.0).wait(&LARGE, 1_100, 0).is_some());
    }

    #[test]
    fn a_write_waits_only_for_a_running_or_due_merge() {
        // No write waits, no matter how large it is: there is nothing to merge, so no merge would free memory.
        assert_eq!(pacing(None, 0.0).wait(&SMALL, 1 << 40, 0), None);
        assert!(pacing(None, 0.0).wait(&LARGE, 1 << 40, 0).is_some());
        assert!(pacing(Some((0.0, 1_000)), 1.0).wait(&SMALL, 1 << 40, 0).is_some());
        let ended = Pacing { is_ended: true, ..pacing(Some((0.0, 1_000)), 1.0) };
        assert_eq!(ended.wait(&LARGE, 1 << 40, 0), None);
    }

    #[test]
    fn a_merge_is_due_by_size_deletes_or_retry_time() {
        let mut pacing = pacing(None, 0.0);
        assert!(
            !pacing.is_due(&SMALL)
                && pacing.is_due(&LARGE)
                && pacing.is_due(&MergeFootprint { has_many_deleted: true, ..SMALL })
        );
        pacing.is_asked_for = true;
        assert!(pacing.is_due(&SMALL));
        pacing.ended(None);
        assert!(!pacing.is_due(&LARGE) && pacing.is_wanted(&LARGE) && !pacing.is_wanted(&SMALL));
        // A write above the limit still waits, but only for one more attempt.
        assert_eq!((pacing.wait(&LARGE, 1_000, 1), pacing.wait(&LARGE, 1_001, 0)), (None, None));
        assert!(pacing.wait(&LARGE, 1_001, 1).is_some());
        pacing.retry_at = Some(Instant::now());
        assert!(pacing.is_due(&LARGE));
        pacing.ended(None);
        let later = pacing.retry_at.unwrap() - Instant::now();
        assert!(later > pacing.options.retry_after, "{later:?}");
        pacing.ended(Some(1.0));
        assert!(pacing.is_due(&LARGE) && pacing.failures == 0);
    }

    #[test]
    fn the_next_merge_is_predicted_from_merges_of_many_rows() {
        let mut pacing = pacing(None, 0.0);
        let mut after = |rows, seconds| {
            pacing.begun = Some(Begun { at: Instant::now(), bytes: 0, rows });
            pacing.ended(seconds);
            pacing.seconds_of_row
        };
        assert_eq!([after(0, Some(1.0)), after(LEARNED_ROWS - 1, Some(1.0))], [0.0; 2]);
        assert_eq!(after(2 * LEARNED_ROWS, Some(1.0)), 0.5 / LEARNED_ROWS as f64);
        assert_eq!(after(LEARNED_ROWS, Some(0.0)), 0.5 / LEARNED_ROWS as f64);
        assert_eq!(after(LEARNED_ROWS, None), 0.5 / LEARNED_ROWS as f64);
    }
}
