//! Determines which reads of a trace may be issued now.
//!
//! A read depends on a step of its consumer, as recorded in a trace of version 2. It waits for the earlier reads of
//! that consumer and step. Reads that do not wait may be in flight at the same time, up to a depth. Both the model
//! and a real disk are driven by this schedule, so they receive the same requests in the same order. It holds a
//! bounded window of reads, even if the trace is long.

use std::collections::{HashMap, VecDeque};

use crate::device::Ps;

/// Size of the window, per read of the depth: how many unfinished reads are taken from the trace.
const WINDOW_PER_DEPTH: usize = 64;

/// A read of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceRead {
    /// Number of the consumer.
    pub consumer: u32,
    /// Step that needs the bytes.
    pub step: Option<u64>,
    /// Step whose reads must end before this one starts.
    pub after: Option<u64>,
    /// Offset of the first byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Earliest start of the read, in picoseconds; 0 if there is no bound.
    pub at: Ps,
}

/// A step with unfinished reads.
#[derive(Debug, Default)]
struct Step {
    open: u32,
    /// Reads that depend on this step.
    waiting: Vec<u32>,
}

/// Issues the reads of a trace when their dependencies allow it.
pub struct Schedule<I> {
    reads: I,
    depth: usize,
    /// Reads that were taken from the trace and have not ended, by slot.
    slots: Vec<TraceRead>,
    free: Vec<u32>,
    steps: HashMap<(u32, u64), Step>,
    ready: VecDeque<u32>,
    in_flight: usize,
    held: usize,
    exhausted: bool,
}

impl<I: Iterator<Item = TraceRead>> Schedule<I> {
    /// Creates a schedule of the reads of a trace. At most `depth` reads are in flight, at least 1.
    pub fn new(reads: I, depth: usize) -> Self {
        Self {
            reads,
            depth: depth.max(1),
            slots: Vec::new(),
            free: Vec::new(),
            steps: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            held: 0,
            exhausted: false,
        }
    }

    /// Returns the next read to issue, and the slot to pass to [`Schedule::ended`]. Returns `None` if the depth is
    /// reached, if all remaining reads of the window wait, or if the trace has ended.
    pub fn next_read(&mut self) -> Option<(u32, TraceRead)> {
        if self.in_flight >= self.depth {
            return None;
        }
        // The window limits memory when many reads wait for one step.
        while self.ready.is_empty() && !self.exhausted && self.held < self.depth * WINDOW_PER_DEPTH {
            match self.reads.next() {
                Some(read) => self.take(read),
                None => self.exhausted = true,
            }
        }
        let slot = self.ready.pop_front()?;
        self.in_flight += 1;
        Some((slot, self.slots[slot as usize]))
    }

    fn take(&mut self, read: TraceRead) {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = read,
            None => self.slots.push(read),
        }
        self.held += 1;
        // If the step has no open reads, it has ended or had no reads. Then there is nothing to wait for.
        let after = read.after.and_then(|after| self.steps.get_mut(&(read.consumer, after)));
        match after {
            Some(step) => step.waiting.push(slot),
            None => self.ready.push_back(slot),
        }
        // A read that waits counts as open too, so that steps can form chains.
        if let Some(step) = read.step {
            self.steps.entry((read.consumer, step)).or_default().open += 1;
        }
    }

    /// Records that the read in `slot` has ended.
    pub fn ended(&mut self, slot: u32) {
        let TraceRead { consumer, step, .. } = self.slots[slot as usize];
        self.free.push(slot);
        self.in_flight -= 1;
        self.held -= 1;
        let Some(step) = step else { return };
        let of = self.steps.get_mut(&(consumer, step)).expect("the step of a read in flight is open");
        of.open -= 1;
        // A step that has ended is removed, so a later read that depends on it does not wait.
        if of.open == 0
            && let Some(step) = self.steps.remove(&(consumer, step))
        {
            self.ready.extend(step.waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(step: u64, after: Option<u64>, offset: u64) -> TraceRead {
        TraceRead { step: Some(step), after, offset, bytes: 1, ..TraceRead::default() }
    }

    #[test]
    fn reads_wait_only_for_the_step_that_they_depend_on() {
        let reads = [read(0, None, 0), read(0, None, 1), read(1, Some(0), 2), read(2, None, 3)];
        let mut schedule = Schedule::new(reads.into_iter(), 8);
        let mut begun = Vec::new();
        while let Some((slot, read)) = schedule.next_read() {
            begun.push((slot, read.offset));
        }
        assert_eq!(begun.iter().map(|read| read.1).collect::<Vec<_>>(), [0, 1, 3]);
        schedule.ended(begun[0].0);
        assert_eq!(schedule.next_read(), None);
        schedule.ended(begun[1].0);
        assert_eq!(schedule.next_read().unwrap().1.offset, 2);
    }

    proptest! {
        #[test]
        fn every_read_is_issued_once_and_in_time(
            steps in prop::collection::vec((0u32..3, 0u64..6, prop::option::of(0u64..6)), 0..200),
            depth in 1usize..9,
            order in prop::collection::vec(any::<prop::sample::Index>(), 400),
        ) {
            let reads: Vec<TraceRead> = (0..).zip(&steps).map(|(offset, &(consumer, step, after))| {
                let after = after.filter(|&after| after < step);
                TraceRead { consumer, step: Some(step), after, offset, bytes: 1, at: 0 }
            }).collect();
            let mut schedule = Schedule::new(reads.iter().copied(), depth);
            let (mut flying, mut ended, mut order) = (Vec::new(), vec![false; reads.len()], order.iter());
            loop {
                while let Some((slot, read)) = schedule.next_read() {
                    let before = &reads[..read.offset as usize];
                    let needed = before.iter().filter(|other| other.consumer == read.consumer && other.step == read.after);
                    let needed: Vec<_> = needed.filter(|_| read.after.is_some()).collect();
                    prop_assert!(needed.iter().all(|other| ended[other.offset as usize]));
                    flying.push((slot, read));
                    prop_assert!(flying.len() <= depth);
                }
                if flying.is_empty() {
                    break;
                }
                let which = order.next().map_or(0, |index| index.index(flying.len()));
                let (slot, read) = flying.swap_remove(which);
                ended[read.offset as usize] = true;
                schedule.ended(slot);
            }
            prop_assert!(ended.iter().all(|ended| *ended));
        }
    }
}
