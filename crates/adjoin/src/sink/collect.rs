//! A sink that keeps its results in memory.

use std::sync::{Arc, Mutex};

use super::hits::{HitBatch, HitSink};
use super::sink::{PairBatch, PairSink, Written};
use crate::base::error::Result;
use crate::base::mutex::lock;

/// A pair: left row, right row, value.
type Pair = (u64, u64, f32);

/// Collects pairs or hits in memory, for small results and for tests. All clones share one collection.
#[derive(Debug, Clone, Default)]
pub struct Collect {
    pairs: Arc<Mutex<Vec<Pair>>>,
    batches: Arc<Mutex<Vec<HitBatch>>>,
}

impl Collect {
    /// Returns the pairs that were collected so far, as (left row, right row, value), in ascending order of rows.
    pub fn pairs(&self) -> Vec<(u64, u64, f32)> {
        let mut pairs = lock(&self.pairs).clone();
        pairs.sort_by_key(|pair| (pair.0, pair.1));
        pairs
    }

    /// Returns the batches of hits that were collected so far.
    pub fn batches(&self) -> Vec<HitBatch> {
        lock(&self.batches).clone()
    }

    /// Returns the hits of each query as (row, value).
    pub fn hits(&self) -> Vec<Vec<(u64, f32)>> {
        let mut all: Vec<Vec<(u64, f32)>> = Vec::new();
        for HitBatch { hits_before, ends, rows, values, .. } in self.batches() {
            let mut start = 0;
            for (query, end) in ends.into_iter().enumerate() {
                let hits = rows[start..end].iter().copied().zip(values[start..end].iter().copied());
                // The first query of a batch may be the last query of the previous batch, with further hits.
                match all.last_mut().filter(|_| query == 0 && hits_before > 0) {
                    Some(last) => last.extend(hits),
                    None => all.push(hits.collect()),
                }
                start = end;
            }
        }
        all
    }
}

impl PairSink for Collect {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let rows = batch.left_rows.iter().zip(&batch.right_rows);
        let pairs = rows.zip(&batch.values).map(|((&left, &right), &value)| (left, right, value));
        lock(&self.pairs).extend(pairs);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

impl HitSink for Collect {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        lock(&self.batches).push(batch.clone());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}
