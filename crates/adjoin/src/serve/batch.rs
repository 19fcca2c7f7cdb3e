//! Queries that are answered together, each as soon as its answer is known.

use std::sync::Mutex;
use std::time::Instant;

use super::options::{Answer, Request};
use super::queue::{Reply, Waiting};
use crate::error::{Error, Result};
use crate::workers::lock;

/// Queries, and the callbacks that receive their answers.
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// `None` once the answer was sent.
    replies: Vec<Mutex<Option<Reply>>>,
}

impl Batch {
    pub(super) fn new(waiting: Vec<Waiting>) -> Self {
        let each = waiting.into_iter().map(|Waiting { request, reply, .. }| (request, Mutex::new(Some(reply))));
        let (requests, replies) = each.unzip();
        Self { requests, replies }
    }

    /// Returns whether a query has no answer yet.
    pub(super) fn is_open(&self, number: usize) -> bool {
        lock(&self.replies[number]).is_some()
    }

    /// Sends an error to an open query if its deadline has passed.
    pub(super) fn refuse_late(&self, number: usize) {
        let is_late = self.requests[number].deadline.is_some_and(|deadline| deadline <= Instant::now());
        if is_late && self.is_open(number) {
            self.answer(number, Err(Error::late("the deadline passed before the query was answered; allow more")));
        }
    }

    /// Returns the latest deadline of some queries; `None` if one of them has none.
    pub(super) fn last_deadline(&self, numbers: impl Iterator<Item = usize>) -> Option<Instant> {
        let deadlines: Option<Vec<Instant>> = numbers.map(|number| self.requests[number].deadline).collect();
        deadlines?.into_iter().max()
    }

    /// Sends the answer of a query.
    ///
    /// # Panics
    /// If the query has an answer already.
    pub(super) fn answer(&self, number: usize, answer: Result<Answer>) {
        // The lock is released before the call, which runs code of the caller.
        let reply = lock(&self.replies[number]).take();
        reply.expect("a query is answered once")(answer);
    }
}
