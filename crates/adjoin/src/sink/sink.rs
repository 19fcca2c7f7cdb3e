//! The trait of sinks, through which results leave the engine.

use super::tally::Tally;
use crate::base::error::Result;
use crate::base::options::Metric;
pub(crate) use crate::base::report::Written;
use crate::source::{IdKind, Ids};

/// Pairs of the result. In a join of one set, the earlier row is on the left. In a join of two sets, the row of the
/// first set is on the left.
#[derive(Debug, Clone, PartialEq)]
pub struct PairBatch {
    /// Row numbers of the left vectors.
    pub left_rows: Vec<u64>,
    /// Row numbers of the right vectors.
    pub right_rows: Vec<u64>,
    /// Ids of the left vectors, if the sink needs ids.
    pub left_ids: Ids,
    /// Ids of the right vectors, if the sink needs ids.
    pub right_ids: Ids,
    /// Distances (L2, true) or similarities (cosine).
    pub values: Vec<f32>,
}

impl PairBatch {
    /// Creates an empty batch.
    pub fn new(ids: IdKind) -> Self {
        Self::of_kinds([ids; 2])
    }

    /// Creates an empty batch. `ids` are the kinds of the ids on the left and on the right.
    pub fn of_kinds(ids: [IdKind; 2]) -> Self {
        Self {
            left_rows: Vec::new(),
            right_rows: Vec::new(),
            left_ids: Ids::empty(ids[0]),
            right_ids: Ids::empty(ids[1]),
            values: Vec::new(),
        }
    }

    /// Creates an empty batch with room for as many pairs as `other` has, and the same kinds of ids.
    pub(crate) fn with_room_of(other: &Self) -> Self {
        let kinds = [other.left_ids.kind(), other.right_ids.kind()];
        let rows = || Vec::with_capacity(other.len());
        let values = Vec::with_capacity(other.len());
        Self { left_rows: rows(), right_rows: rows(), values, ..Self::of_kinds(kinds) }
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the bytes of the batch.
    pub fn bytes(&self) -> u64 {
        let a_pair = 2 * size_of::<u64>() + size_of::<f32>();
        (self.len() * a_pair) as u64 + self.left_ids.held_bytes() + self.right_ids.held_bytes()
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Facts about the pairs, known before the first batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairSchema {
    /// Kinds of the ids of left and right rows.
    pub ids: [IdKind; 2],
    /// Metric, which determines the name of the value column.
    pub metric: Metric,
    /// Whether left and right rows are of two sets. If so, equal ids on the left and on the right are different rows.
    pub of_two_sets: bool,
}

/// Consumer of the pairs of a join. It gets them batch by batch, on one thread. If it is slow, the threads that find
/// pairs wait; no pair is dropped.
pub trait PairSink: Send {
    /// Returns whether pairs must include ids.
    fn wants_ids(&self) -> bool;

    /// Returns a tally if the sink needs only the number of pairs per row. All threads then count pairs in the tally,
    /// and [`PairSink::accept`] is not called.
    fn tally(&self) -> Option<&Tally> {
        None
    }

    /// Consumes some pairs.
    ///
    /// # Errors
    /// If the pairs cannot be stored, for example on a full disk. The join then ends.
    fn accept(&mut self, batch: &PairBatch) -> Result<()>;

    /// Completes the result, and makes it appear under its name.
    ///
    /// # Errors
    /// If the result cannot be stored.
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Discards pairs or hits. They are still counted in the statistics.
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
