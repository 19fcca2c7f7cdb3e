//! Numbers of vertices while an index is merged with rows that came: old ones that stay keep their order, and each new one comes
//! behind the old one that is nearest to it, so that near ones have near numbers still.

use crate::row_numbers::{RankedSet, RowSet};

/// Old vertices of a block, for which is noted how many new ones come before.
const BLOCK: u32 = 64;

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vertex {
    /// A vertex of the index that was there.
    Old(u32),
    /// One of those that came, in the order of their numbers.
    New(u32),
}

/// Numbers of old vertices that stay and of new ones.
pub(super) struct Numbering {
    /// Old vertices that stay.
    kept: RankedSet,
    /// For each new vertex how many old ones come before it, ascending.
    before: Vec<u32>,
    /// How many new ones come before the first kept vertex of each block.
    blocks: Vec<u32>,
}

impl Numbering {
    /// Of kept vertices out of so many, and new ones, each of which is to come behind an old one that is kept: ascending.
    pub(super) fn new(kept: RowSet, behind: &[u32]) -> Self {
        let kept = RankedSet::new(kept);
        let before: Vec<u32> = behind.iter().map(|&old| kept.rank(old) + 1).collect();
        let blocks = (0..=kept.len() / BLOCK).map(|block| block * BLOCK);
        let blocks = blocks.map(|rank| before.partition_point(|&before| before <= rank) as u32).collect();
        Self { kept, before, blocks }
    }

    /// Bytes of numbers of so many old vertices and new ones.
    pub(super) fn memory_bytes(old: u64, new: u64) -> u64 {
        RankedSet::memory_bytes(old) + (new + old / u64::from(BLOCK) + 1) * size_of::<u32>() as u64
    }

    /// How many numbers there are.
    pub(super) fn vertices(&self) -> u32 {
        self.kept.len() + self.before.len() as u32
    }

    /// How many new vertices.
    pub(super) fn new_vertices(&self) -> u32 {
        self.before.len() as u32
    }

    /// Whether an old vertex stays.
    pub(super) fn is_kept(&self, old: u32) -> bool {
        self.kept.contains(old)
    }

    /// The number of an old vertex that stays.
    pub(super) fn of_old(&self, old: u32) -> u32 {
        let rank = self.kept.rank(old);
        let known = self.blocks[(rank / BLOCK) as usize];
        let more = self.before[known as usize..].iter().take_while(|&&before| before <= rank).count();
        rank + known + more as u32
    }

    /// The number of a new vertex.
    pub(super) fn of_new(&self, new: u32) -> u32 {
        self.before[new as usize] + new
    }

    /// What a number stands for.
    pub(super) fn vertex(&self, number: u32) -> Vertex {
        // New vertices with smaller numbers.
        let mut range = 0..self.before.len() as u32;
        while !range.is_empty() {
            let middle = range.start + (range.end - range.start) / 2;
            match self.of_new(middle) < number {
                true => range.start = middle + 1,
                false => range.end = middle,
            }
        }
        match range.start < self.new_vertices() && self.of_new(range.start) == number {
            true => Vertex::New(range.start),
            false => Vertex::Old(self.kept.at_rank(number - range.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn numbers_are_those_of_a_list_into_which_new_vertices_are_put() {
        let mut random = Random::new(7, "numbering");
        for (old, share, new) in [(1, 1, 0), (1, 1, 3), (200, 2, 0), (200, 2, 50), (1_000, 10, 700), (130, 130, 400)] {
            let mut kept = RowSet::new(old);
            (0..old).filter(|_| random.below(share) == 0).for_each(|vertex| kept.insert(vertex));
            kept.insert(random.below(old));
            let kept_ones: Vec<u64> = kept.iter().collect();
            let mut behind: Vec<u32> =
                (0..new).map(|_| kept_ones[random.below(kept_ones.len() as u64) as usize] as u32).collect();
            behind.sort_unstable();
            let mut expected = Vec::new();
            for &vertex in &kept_ones {
                expected.push(Vertex::Old(vertex as u32));
                let of_it = (0..).zip(&behind).filter(|&(_, &old)| u64::from(old) == vertex);
                expected.extend(of_it.map(|(new, _)| Vertex::New(new)));
            }
            let numbering = Numbering::new(kept, &behind);
            let numbers = 0..numbering.vertices();
            assert_eq!(numbers.clone().map(|number| numbering.vertex(number)).collect::<Vec<_>>(), expected);
            for (number, vertex) in numbers.zip(expected) {
                let back = match vertex {
                    Vertex::Old(old) => numbering.of_old(old),
                    Vertex::New(new) => numbering.of_new(new),
                };
                assert_eq!(back, number, "{vertex:?}");
            }
        }
    }
}
