//! The walk of one query through a graph. In each step, it expands the nearest vertex of its list that was not
//! expanded yet, until there is none. The result depends only on distances, so it is the same on every platform.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use crate::ecc::mixed;
use crate::layout::LunCsr;

/// A vertex found by a query, with its distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Distance that [`Distances::distance`](super::Distances::distance) returned.
    pub distance: f64,
    /// The vertex.
    pub vertex: u32,
}

/// Hasher of numbers of vertices.
#[derive(Default)]
pub(super) struct Mixing(u64);

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = mixed(self.0 << 32 ^ u64::from(number));
    }
}

pub(super) type VertexSet = HashSet<u32, BuildHasherDefault<Mixing>>;

#[derive(Debug, Clone, Copy)]
struct Candidate {
    hit: Hit,
    rank: u32,
    is_expanded: bool,
}

/// The state of a query's walk.
pub(super) struct Walk {
    /// Nearest vertices seen so far, ordered by distance and then by rank.
    list: Vec<Candidate>,
    most: usize,
    seen: VertexSet,
    /// Start vertex, until it was requested.
    start: Option<u32>,
}

impl Walk {
    /// Creates a walk that starts at vertex `start` and keeps the `most` nearest vertices in its list.
    pub(super) fn new(most: usize, start: u32) -> Self {
        Self { list: Vec::with_capacity(most), most, seen: VertexSet::default(), start: Some(start) }
    }

    /// Returns the next vertex to expand, or `None` if the walk has ended. Adds to `wanted` the vertices whose
    /// distances are needed. The first call requests and returns the start vertex.
    pub(super) fn next(&mut self, layout: &LunCsr, wanted: &mut Vec<u32>) -> Option<u32> {
        if let Some(start) = self.start.take() {
            self.seen.insert(start);
            wanted.push(start);
            return Some(start);
        }
        let nearest = self.list.iter_mut().find(|candidate| !candidate.is_expanded)?;
        nearest.is_expanded = true;
        let vertex = nearest.hit.vertex;
        // A vertex is marked when it is requested. Thus no distance is computed twice, even if the vertex does not
        // enter the list.
        wanted.extend(layout.neighbors(vertex).iter().copied().filter(|&neighbor| self.seen.insert(neighbor)));
        Some(vertex)
    }

    pub(super) fn has_seen(&self, vertex: u32) -> bool {
        self.seen.contains(&vertex)
    }

    /// Inserts a vertex with its distance into the list. Equal distances are ordered by rank.
    pub(super) fn take(&mut self, hit: Hit, rank: u32) {
        let before =
            |other: &Candidate| other.hit.distance.total_cmp(&hit.distance).then(other.rank.cmp(&rank)).is_lt();
        let place = self.list.partition_point(before);
        if place < self.most {
            // Truncated before the insertion, so that the list never exceeds its capacity.
            self.list.truncate(self.most - 1);
            self.list.insert(place, Candidate { hit, rank, is_expanded: false });
        }
    }

    /// Returns the `k` nearest vertices, nearest first.
    pub(super) fn hits(&self, k: usize) -> Vec<Hit> {
        self.list.iter().take(k).map(|candidate| candidate.hit).collect()
    }
}
