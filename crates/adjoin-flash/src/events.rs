//! Building blocks of a discrete-event model: events ordered by time, and servers with queues.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::device::Ps;

/// Future events. Events with equal times are processed in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<Event<E>>>,
    added: u64,
}

#[derive(Debug)]
struct Event<E> {
    at: (Ps, u64),
    what: E,
}

// `at` includes the number of the event, which makes it unique. Therefore `what` needs no order.
impl<E> PartialEq for Event<E> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<E> Eq for Event<E> {}

impl<E> PartialOrd for Event<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Event<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }
}

impl<E> Events<E> {
    pub(crate) fn add(&mut self, time: Ps, what: E) {
        // A heap does not order equal times. The number does, so that a run is repeatable.
        self.added += 1;
        self.heap.push(Reverse(Event { at: (time, self.added), what }));
    }

    /// Returns the time of the next event.
    pub(crate) fn next_time(&self) -> Option<Ps> {
        self.heap.peek().map(|event| event.0.at.0)
    }

    pub(crate) fn next(&mut self) -> Option<(Ps, E)> {
        self.heap.pop().map(|Reverse(event)| (event.at.0, event.what))
    }
}

/// One or several equal servers with one queue, which serve requests in order of arrival. Requests must be added in
/// order of time.
#[derive(Debug, Clone)]
pub(crate) struct Station {
    /// For each server, the time at which it has finished all requests assigned to it.
    free_at: BinaryHeap<Reverse<Ps>>,
    servers: u32,
    busy: Ps,
}

impl Station {
    pub(crate) fn new(servers: u32) -> Self {
        Self { free_at: (0..servers).map(|_| Reverse(0)).collect(), servers, busy: 0 }
    }

    /// Serves a request that arrives at `now` and needs a server for `takes`. Returns when it begins and when it
    /// ends.
    pub(crate) fn serve(&mut self, now: Ps, takes: Ps) -> (Ps, Ps) {
        let mut first = self.free_at.peek_mut().expect("a station has servers");
        // When the value from `peek_mut` is dropped, the order of the heap is restored.
        let begins = now.max(first.0);
        first.0 = begins + takes;
        self.busy += takes;
        (begins, begins + takes)
    }

    /// Returns the busy time, summed over the servers.
    pub(crate) fn busy(&self) -> Ps {
        self.busy
    }

    pub(crate) fn servers(&self) -> u32 {
        self.servers
    }
}

/// A bus that performs one transfer at a time. Commands take priority over waiting data, so that the work that they
/// start overlaps with data transfers. With `data_first`, data take priority.
#[derive(Debug)]
pub(crate) struct Bus<T> {
    commands: VecDeque<(Ps, T)>,
    data: VecDeque<(Ps, T)>,
    data_first: bool,
    is_busy: bool,
    busy: Ps,
}

impl<T> Bus<T> {
    pub(crate) fn new(data_first: bool) -> Self {
        Self { commands: VecDeque::new(), data: VecDeque::new(), data_first, is_busy: false, busy: 0 }
    }

    pub(crate) fn add_command(&mut self, takes: Ps, transfer: T) {
        self.commands.push_back((takes, transfer));
    }

    pub(crate) fn add_data(&mut self, takes: Ps, transfer: T) {
        self.data.push_back((takes, transfer));
    }

    /// Begins the next transfer. Returns its duration and the transfer, or `None` if another one is in progress or
    /// none waits.
    pub(crate) fn begin(&mut self) -> Option<(Ps, T)> {
        if self.is_busy {
            return None;
        }
        let Self { commands, data, .. } = self;
        let [first, second] = if self.data_first { [data, commands] } else { [commands, data] };
        let next = first.pop_front().or_else(|| second.pop_front())?;
        self.is_busy = true;
        self.busy += next.0;
        Some(next)
    }

    /// Ends the transfer in progress.
    pub(crate) fn end(&mut self) {
        self.is_busy = false;
    }

    /// Returns the busy time.
    pub(crate) fn busy(&self) -> Ps {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_by_insertion() {
        let mut events = Events::default();
        [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')].into_iter().for_each(|(time, what)| events.add(time, what));
        assert_eq!(events.next_time(), Some(3));
        let order: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(order, [(3, 'b'), (3, 'd'), (5, 'a'), (5, 'c')]);
    }

    #[test]
    fn a_bus_prefers_commands_or_data_after_the_current_transfer() {
        for (data_first, order) in [(false, [(1, 'c'), (6, 'b')]), (true, [(6, 'b'), (1, 'c')])] {
            let mut bus = Bus::new(data_first);
            [(5, 'a'), (6, 'b')].into_iter().for_each(|(takes, what)| bus.add_data(takes, what));
            assert_eq!(bus.begin(), Some((5, 'a')));
            bus.add_command(1, 'c');
            assert_eq!(bus.begin(), None);
            bus.end();
            assert_eq!(bus.begin(), Some(order[0]));
            bus.end();
            assert_eq!((bus.begin(), bus.busy()), (Some(order[1]), 12));
        }
    }

    #[test]
    fn a_station_serves_requests_in_order_of_arrival() {
        let mut two = Station::new(2);
        assert_eq!(
            [two.serve(0, 10), two.serve(0, 4), two.serve(1, 4), two.serve(20, 1)],
            [(0, 10), (0, 4), (4, 8), (20, 21)]
        );
        assert_eq!(two.busy(), 19);
    }
}
