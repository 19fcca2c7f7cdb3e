//! The face that results leave through.

use super::tally::Tally;
use crate::error::Result;
use crate::options::Metric;
pub use crate::report::Written;
use crate::source::{IdKind, Ids};

/// Pairs of the result: of a set the earlier row is the left one, of two sets that of the first set.
#[derive(Debug, Clone, PartialEq)]
pub struct PairBatch {
    /// Row numbers of the left vectors.
    pub left_rows: Vec<u64>,
    /// Row numbers of the right vectors.
    pub right_rows: Vec<u64>,
    /// Ids of the left vectors, where the sink wants ids.
    pub left_ids: Ids,
    /// Ids of the right vectors.
    pub right_ids: Ids,
    /// Distances (L2, true) or similarities (cosine).
    pub values: Vec<f32>,
}

impl PairBatch {
    /// No pairs yet.
    pub fn new(ids: IdKind) -> Self {
        Self::of_kinds([ids; 2])
    }

    /// No pairs yet, of rows whose ids on the left and on the right are of such kinds.
    pub fn of_kinds(ids: [IdKind; 2]) -> Self {
        Self {
            left_rows: Vec::new(),
            right_rows: Vec::new(),
            left_ids: Ids::empty(ids[0]),
            right_ids: Ids::empty(ids[1]),
            values: Vec::new(),
        }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        let a_pair = 2 * size_of::<u64>() + size_of::<f32>();
        (self.len() * a_pair) as u64 + self.left_ids.held_bytes() + self.right_ids.held_bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// What is known of the pairs before the first comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairSchema {
    /// Kinds of the ids, of the left rows and the right ones.
    pub ids: [IdKind; 2],
    /// Metric: it names the column of values.
    pub metric: Metric,
}

/// Takes the pairs of a join, batch by batch, on one thread. Those who make pairs wait for it; it never drops any.
pub trait PairSink: Send {
    /// Whether pairs must come with their ids.
    fn wants_ids(&self) -> bool;

    /// Where it wants to know no more than how many pairs each row has: all threads count there, and no pairs are handed
    /// over.
    fn tally(&self) -> Option<&Tally> {
        None
    }

    /// Takes some pairs.
    ///
    /// # Errors
    /// Where they cannot be kept, as on a full disk; the join then ends.
    fn accept(&mut self, batch: &PairBatch) -> Result<()>;

    /// Ends the result and makes it appear under its name.
    ///
    /// # Errors
    /// As [`PairSink::accept`].
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Drops pairs, or what queries found; they are still counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

impl PairSink for Discard {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, _batch: &PairBatch) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

/// Keeps the pairs in memory: for small results and for tests.
#[derive(Debug, Clone, Default)]
pub struct Collect(std::sync::Arc<std::sync::Mutex<Vec<(u64, u64, f32)>>>);

impl Collect {
    /// The pairs so far as (left row, right row, value), ascending.
    pub fn pairs(&self) -> Vec<(u64, u64, f32)> {
        let mut pairs = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        pairs.sort_by_key(|pair| (pair.0, pair.1));
        pairs
    }
}

impl PairSink for Collect {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let rows = batch.left_rows.iter().zip(&batch.right_rows);
        let pairs = rows.zip(&batch.values).map(|((&left, &right), &value)| (left, right, value));
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(pairs);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}
