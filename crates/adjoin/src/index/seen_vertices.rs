//! Records the vertices that a walk has seen.

use adjoin_kernels::prefetch;

/// Set of vertices, as a hash table with open addressing.
#[derive(Default)]
pub(super) struct SeenVertices {
    /// Each slot is 0 if it is free, or the number of a vertex plus 1. The length is a power of two.
    table: Vec<u32>,
    count: usize,
}

impl SeenVertices {
    const LEAST: usize = 1 << 10;
    /// Spreads numbers over the table (Knuth, TAOCP 3, 6.4).
    const MULTIPLIER: u32 = 0x9e37_79b1;

    /// Removes all vertices. Resizes the table for as many vertices as it had, since the next query is likely to see
    /// about as many. A small table stays in the processor's cache.
    pub(super) fn clear(&mut self) {
        let len = Self::len_for(self.count);
        self.table.clear();
        self.table.resize(len, 0);
        self.count = 0;
    }

    /// Returns the length of a table for `count` vertices. It has at least a third more slots than vertices.
    fn len_for(count: usize) -> usize {
        (count + count / 3 + 1).next_power_of_two().max(Self::LEAST)
    }

    pub(super) fn contains(&self, vertex: u32) -> bool {
        !self.table.is_empty() && self.table[self.place(vertex + 1)] != 0
    }

    /// Inserts a vertex. Returns whether it was new.
    pub(super) fn insert(&mut self, vertex: u32) -> bool {
        if self.table.len() < Self::len_for(self.count + 1) {
            self.grow();
        }
        let place = self.place(vertex + 1);
        let is_new = self.table[place] == 0;
        self.table[place] = vertex + 1;
        self.count += usize::from(is_new);
        is_new
    }

    /// Prefetches the slot of a vertex that will be inserted soon.
    pub(super) fn prefetch(&self, vertex: u32) {
        if let Some(place) = self.table.get(self.first_place(vertex + 1)) {
            prefetch(std::slice::from_ref(place));
        }
    }

    /// Returns the first slot to try for `number`, a vertex plus 1. It uses the upper bits of the product, since these
    /// depend on all bits of the number.
    fn first_place(&self, number: u32) -> usize {
        let bits = self.table.len().trailing_zeros();
        (number.wrapping_mul(Self::MULTIPLIER).unbounded_shr(u32::BITS - bits)) as usize
    }

    /// Returns the slot that has `number`, or the free slot in which it belongs.
    fn place(&self, number: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = self.first_place(number);
        while self.table[place] != 0 && self.table[place] != number {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let old = std::mem::replace(&mut self.table, vec![0; Self::len_for(self.count + 1)]);
        for number in old.into_iter().filter(|&number| number != 0) {
            let place = self.place(number);
            self.table[place] = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::random::Random;

    #[test]
    fn seen_vertices_are_a_set() {
        let (mut seen, mut random) = (SeenVertices::default(), Random::new(1, "seen"));
        for values in [10, 3_000, 1 << 31] {
            seen.clear();
            let mut expected = HashSet::new();
            for _ in 0..5_000 {
                let vertex = random.below(values) as u32;
                assert_eq!(seen.insert(vertex), expected.insert(vertex), "{vertex}");
            }
        }
    }
}
