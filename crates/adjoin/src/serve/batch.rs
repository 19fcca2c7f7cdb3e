//! A batch of queries that are answered together. The hits of each query are delivered as soon as they are known.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::options::{ServedHits, ServedQuery};
use crate::base::error::{Error, Result};
use crate::base::mutex::lock;

/// Callback that receives the number of a query and its hits. It is called on any thread.
pub(super) type Deliver<'a> = &'a mut (dyn FnMut(usize, Result<ServedHits>) + Send);

/// A batch of queries, and the callback that receives their hits.
pub(super) struct Batch<'a> {
    pub(super) queries: &'a [ServedQuery<'a>],
    /// Whether each query is still without an answer.
    open: Vec<AtomicBool>,
    deliver: Mutex<Deliver<'a>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(queries: &'a [ServedQuery<'a>], deliver: Deliver<'a>) -> Self {
        let open = queries.iter().map(|_| AtomicBool::new(true)).collect();
        Self { queries, open, deliver: Mutex::new(deliver) }
    }

    /// Returns whether a query has no answer yet.
    pub(super) fn is_open(&self, number: usize) -> bool {
        self.open[number].load(Ordering::Acquire)
    }

    /// Delivers an error for an open query if its deadline has passed.
    pub(super) fn refuse_late(&self, number: usize) {
        let is_late = self.queries[number].deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late && self.is_open(number) {
            self.answer(number, Err(Error::late("the deadline passed before the query was answered; allow more time")));
        }
    }

    /// Returns the numbers of all queries, sorted by deadline. Queries without a deadline are last.
    pub(super) fn by_deadline(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.queries.len()).collect();
        // The sort is stable, so it keeps the order of arrival.
        numbers.sort_by_key(|&number| {
            let deadline = self.queries[number].deadline;
            (deadline.is_none(), deadline)
        });
        numbers
    }

    /// Returns the latest deadline of some queries, or `None` if one of them has no deadline.
    pub(super) fn last_deadline(&self, numbers: impl Iterator<Item = usize>) -> Option<Instant> {
        let deadlines: Option<Vec<Instant>> = numbers.map(|number| self.queries[number].deadline).collect();
        deadlines?.into_iter().max()
    }

    /// Delivers the hits of a query.
    ///
    /// # Panics
    /// If the query has an answer already.
    pub(super) fn answer(&self, number: usize, hits: Result<ServedHits>) {
        assert!(self.open[number].swap(false, Ordering::AcqRel), "a query is answered once");
        lock(&self.deliver)(number, hits);
    }
}
