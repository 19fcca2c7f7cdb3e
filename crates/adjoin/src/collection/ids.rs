//! Where the row with an id is.

use std::collections::HashMap;

use crate::source::{IdKind, Ids};

/// The numbers of rows in memory, by their ids.
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

    /// Bytes granted for an id that has `text` bytes, in a table that doubles.
    pub(super) fn memory_bytes(text: u64) -> u64 {
        64 + text
    }

    /// The number of the row with id `k`.
    pub(super) fn get(&self, ids: &Ids, k: usize) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.get(&ids[k]).copied(),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.get(ids.get(k)).copied(),
            _ => None,
        }
    }

    /// Gives id `k` to a row; returns the number of the row that had it.
    pub(super) fn set(&mut self, ids: &Ids, k: usize, number: u32) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.insert(ids[k], number),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.insert(ids.get(k).into(), number),
            _ => None,
        }
    }

    /// Takes id `k` from its row; returns the number of that.
    pub(super) fn remove(&mut self, ids: &Ids, k: usize) -> Option<u32> {
        match (self, ids) {
            (Self::OfIntegers(numbers), Ids::Int64(ids)) => numbers.remove(&ids[k]),
            (Self::OfTexts(numbers), Ids::Utf8(ids)) => numbers.remove(ids.get(k)),
            _ => None,
        }
    }
}
