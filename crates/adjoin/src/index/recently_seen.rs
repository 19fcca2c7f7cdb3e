//! Records the vertices that a walk has seen recently.

/// A lossy set of vertices, as a direct-mapped cache: a later vertex may take the slot of an earlier one, which is then
/// forgotten. Vertices near each other often share neighbors, and a walk expands such vertices one after another. Therefore
/// few vertices are compared twice, and the set is small however long a walk is.
pub(super) struct RecentlySeen {
    /// Each slot is 0 if it is free, or the number of a vertex plus 1.
    slots: Box<[u32; Self::SLOTS]>,
}

impl Default for RecentlySeen {
    fn default() -> Self {
        Self { slots: Box::new([0; Self::SLOTS]) }
    }
}

impl RecentlySeen {
    /// Number of slots, a power of two. Unit tests have few of them, so that walks forget vertices.
    const SLOTS: usize = if cfg!(test) { 1 << 6 } else { 1 << 12 };
    /// Spreads numbers over the slots (Knuth, TAOCP 3, 6.4).
    const MULTIPLIER: u32 = 0x9e37_79b1;
    /// Bytes of a set.
    pub(super) const BYTES: u64 = (Self::SLOTS * size_of::<u32>()) as u64;

    /// Removes all vertices.
    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Inserts a vertex. Returns `false` if the set has it. Returns `true` if it is new, or if it was forgotten.
    pub(super) fn insert(&mut self, vertex: u32) -> bool {
        let number = vertex + 1;
        // The upper bits of the product depend on all bits of the number.
        let slot = number.wrapping_mul(Self::MULTIPLIER) >> (u32::BITS - Self::SLOTS.trailing_zeros());
        std::mem::replace(&mut self.slots[slot as usize], number) != number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::base::random::Random;

    #[test]
    fn a_vertex_that_was_never_inserted_is_new() {
        let (mut seen, mut random) = (RecentlySeen::default(), Random::new(1, "seen"));
        for values in [10, 3_000, 1 << 31] {
            seen.clear();
            let mut inserted = HashSet::new();
            for _ in 0..5_000 {
                let vertex = random.below(values) as u32;
                let (is_new, is_first) = (seen.insert(vertex), inserted.insert(vertex));
                assert!(is_new || !is_first, "{vertex}");
                assert!(!seen.insert(vertex), "{vertex}");
            }
        }
    }
}
