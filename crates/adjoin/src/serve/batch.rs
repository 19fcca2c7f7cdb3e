//! Queries that are answered together, each as soon as its answer is known.

use std::sync::Mutex;

use super::options::{Answer, Request};
use super::queue::{Reply, Waiting};
use crate::error::Result;
use crate::workers::lock;

/// Queries and who waits for their answers.
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// None once it was told.
    replies: Vec<Mutex<Option<Reply>>>,
}

impl Batch {
    pub(super) fn new(waiting: Vec<Waiting>) -> Self {
        let each = waiting.into_iter().map(|Waiting { request, reply, .. }| (request, Mutex::new(Some(reply))));
        let (requests, replies) = each.unzip();
        Self { requests, replies }
    }

    /// Whether a query has no answer yet.
    pub(super) fn is_open(&self, number: usize) -> bool {
        lock(&self.replies[number]).is_some()
    }

    /// Tells a query its answer, which is the first.
    pub(super) fn answer(&self, number: usize, answer: Result<Answer>) {
        let reply = lock(&self.replies[number]).take();
        reply.expect("a query is answered once")(answer);
    }
}
