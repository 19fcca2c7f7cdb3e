//! Lookup of row numbers by id.

use std::collections::HashMap;

use crate::source::{IdKind, Ids};

/// Numbers of the rows in memory, by id.
pub(super) enum Numbers {
    OfIntegers(HashMap<i64, u32>),
    OfTexts(HashMap<Box<[u8]>, u32>),
}

impl Numbers {
    pub(super) fn new(kind: IdKind) -> Self {
        match kind {
            IdKind::Utf8 => Self::OfTexts(HashMap::new()),
            IdKind::Int64 | IdKind::None => Self::OfIntegers(HashMap::new()),
        }
    }

    /// Returns the memory to reserve for an id with a text of `text` bytes, in a hash table that grows by doubling.
    pub(super) fn memory_bytes(text: u64) -> u64 {
        64 + text
    }

    /// Returns the number of the row with id `k`.
    pub(super) fn get(&self, ids: &Ids, k: usize) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.get(&ids[k]).copied(),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.get(ids.get(k)).copied(),
            _ => None,
        }
    }

    /// Assigns id `k` to row `number`. Returns the number of the row that had the id before.
    pub(super) fn set(&mut self, ids: &Ids, k: usize, number: u32) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.insert(ids[k], number),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.insert(ids.get(k).into(), number),
            _ => None,
        }
    }

    /// Removes id `k`. Returns the number of the row that had it.
    pub(super) fn remove(&mut self, ids: &Ids, k: usize) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.remove(&ids[k]),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.remove(ids.get(k)),
            _ => None,
        }
    }
}
