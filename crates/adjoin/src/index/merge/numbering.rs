//! Numbers the vertices of a merged index. Kept old vertices keep their order, and each new vertex follows the old
//! vertex that is nearest to it. Thus vertices near each other still have numbers near each other.

use crate::base::row_numbers::{RankedSet, RowSet};

/// Number of old vertices per block. For each block, the number of preceding new vertices is stored.
const BLOCK: u32 = 64;

/// Vertex that a number of the merged index stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vertex {
    /// Vertex of the old index.
    Old(u32),
    /// New vertex, given by its rank among the new vertices.
    New(u32),
}

/// Numbers of kept old vertices and of new vertices.
pub(super) struct Numbering {
    /// Kept old vertices.
    kept: RankedSet,
    /// Number of old vertices before each new vertex, ascending.
    before: Vec<u32>,
    /// Number of new vertices before the first kept vertex of each block.
    blocks: Vec<u32>,
}

impl Numbering {
    /// Numbers the kept vertices and the new vertices. `behind` has the kept vertex that each new vertex follows,
    /// ascending.
    pub(super) fn new(kept: RowSet, behind: &[u32]) -> Self {
        let kept = RankedSet::new(kept);
        // The old vertex that a new vertex follows counts too, so 1 is added.
        let before: Vec<u32> = behind.iter().map(|&old| kept.rank(old) + 1).collect();
        let blocks = (0..=kept.len() / BLOCK).map(|block| block * BLOCK);
        let blocks = blocks.map(|rank| before.partition_point(|&before| before <= rank) as u32).collect();
        Self { kept, before, blocks }
    }

    /// Returns the bytes of a numbering of `old` old and `new` new vertices.
    pub(super) fn memory_bytes(old: u64, new: u64) -> u64 {
        RankedSet::memory_bytes(old) + (new + old / u64::from(BLOCK) + 1) * size_of::<u32>() as u64
    }

    /// Returns the number of vertices.
    pub(super) fn vertices(&self) -> u32 {
        self.kept.len() + self.before.len() as u32
    }

    /// Returns the number of new vertices.
    pub(super) fn new_vertices(&self) -> u32 {
        self.before.len() as u32
    }

    pub(super) fn is_kept(&self, old: u32) -> bool {
        self.kept.contains(old)
    }

    /// Returns the number of an old vertex, or `None` if it is deleted.
    pub(super) fn of_kept(&self, old: u32) -> Option<u32> {
        self.is_kept(old).then(|| self.of_old(old))
    }

    /// Returns the number of a kept old vertex.
    pub(super) fn of_old(&self, old: u32) -> u32 {
        let rank = self.kept.rank(old);
        let known = self.blocks[(rank / BLOCK) as usize];
        // `blocks` has the number of new vertices before the start of the block. New vertices within the block are
        // counted here.
        let more = self.before[known as usize..].iter().take_while(|&&before| before <= rank).count();
        rank + known + more as u32
    }

    /// Returns the number of a new vertex.
    pub(super) fn of_new(&self, new: u32) -> u32 {
        // Old vertices precede it and, since `before` ascends, so do all new vertices of lower rank.
        self.before[new as usize] + new
    }

    /// Returns the vertex that a number stands for.
    pub(super) fn vertex(&self, number: u32) -> Vertex {
        self.vertex_from(self.new_before(number), number)
    }

    /// Returns the vertices that some numbers stand for. The numbers must be ascending.
    pub(super) fn vertices_of(&self, numbers: &[u32]) -> Vec<Vertex> {
        let mut before = numbers.first().map_or(0, |&first| self.new_before(first));
        let mut vertex = |&number: &u32| {
            while before < self.new_vertices() && self.of_new(before) < number {
                before += 1;
            }
            self.vertex_from(before, number)
        };
        numbers.iter().map(&mut vertex).collect()
    }

    /// Returns the number of new vertices with numbers below `number`.
    fn new_before(&self, number: u32) -> u32 {
        let mut range = 0..self.new_vertices();
        while !range.is_empty() {
            let middle = range.start + (range.end - range.start) / 2;
            match self.of_new(middle) < number {
                true => range.start = middle + 1,
                false => range.end = middle,
            }
        }
        range.start
    }

    /// Returns the vertex that a number stands for, given the number of new vertices before it.
    fn vertex_from(&self, before: u32, number: u32) -> Vertex {
        match before < self.new_vertices() && self.of_new(before) == number {
            true => Vertex::New(before),
            false => Vertex::Old(self.kept.at_rank(number - before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn new_numbers_equal_positions_in_the_merged_list() {
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
            let some: Vec<u32> = numbers.clone().filter(|_| random.below(3) == 0).collect();
            let of_some: Vec<Vertex> = some.iter().map(|&number| expected[number as usize]).collect();
            assert_eq!(numbering.vertices_of(&some), of_some);
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
