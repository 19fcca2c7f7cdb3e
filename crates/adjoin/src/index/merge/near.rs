//! Which vertices are near those that come: walks over the index find old ones, and among each other they are those that found the
//! same.

use adjoin_device::Reservation;

use super::{Newcomers, PURPOSE};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::index::Index;
use crate::index::admitted::Admitted;
use crate::index::cache::PageCache;
use crate::index::promise::aim_at;
use crate::index::run::Walks;
use crate::index::strategy::WalkStrategy;
use crate::index::walk::Aim;
use crate::load::Members;
use crate::row_numbers::RowSet;

/// Newcomers that walk together, at least.
const TOGETHER_MIN: u64 = 4_096;
/// Newcomers are near each other where so many of the nearest old vertices of each are the same.
const SHARED: usize = 8;
/// Bytes of a hit while it is looked for and sorted.
const HIT_BYTES: u64 = 64;

/// Old vertices near each newcomer that stands for a vertex of its own, nearest first.
pub(super) struct Near {
    ends: Vec<u32>,
    vertices: Vec<u32>,
    /// Nearest old vertices of newcomers, and the place of each of these among all: ascending.
    finders: Vec<(u32, u32)>,
    _memory: Reservation,
}

/// What walks look for: so many vertices, with a list of so many candidates.
#[derive(Clone, Copy)]
pub(super) struct Depth {
    pub(super) near: usize,
    pub(super) list: usize,
}

impl Near {
    /// Lets the newcomers walk over what is left of an index.
    ///
    /// # Errors
    /// Where pages cannot be read, memory does not suffice, or the work is cancelled.
    pub(super) fn find<T: Coordinate>(
        (context, index): (&Context, &Index),
        deleted: &RowSet,
        (newcomers, walking): (&dyn Newcomers, &[u32]),
        depth: Depth,
    ) -> Result<Self> {
        let facts = index.facts();
        let strategy = WalkStrategy::default();
        let admitted = Admitted::without(context, index, deleted)?;
        let admitted = admitted.as_ref();
        let aim = aim_at(index, admitted, (depth.near, depth.list));
        let held =
            walking.len() as u64 * ((depth.near + 1) * size_of::<u32>() + SHARED * size_of::<(u32, u32)>()) as u64;
        let memory = context.reserve(held, PURPOSE)?;
        let of_query = Members::<T>::memory_bytes(1, facts.space()) + 2 * facts.vectors.bytes() as u64;
        let of_query = of_query + depth.near as u64 * HIT_BYTES;
        let together = (context.budget().free() / 4 / of_query).max(TOGETHER_MIN).min(walking.len() as u64);
        let _queries = context.reserve(together * of_query, PURPOSE)?;
        let cache = &PageCache::beside(context, index, 4 * walking_bytes::<T>(context, index, aim, strategy))?;
        cache.fill(context, index, walking.len() as u64 * depth.list as u64)?;
        let walks = Walks::<T>::new((context, index), (aim, admitted), (strategy, cache));
        let mut near = Self { ends: Vec::new(), vertices: Vec::new(), finders: Vec::new(), _memory: memory };
        context.progress.begin("search", "vectors", walking.len() as u64);
        for some in walking.chunks((together as usize).max(1)) {
            let stored: Vec<u8> = some.iter().flat_map(|&newcomer| newcomers.vector(newcomer)).copied().collect();
            let queries = Members::<T>::new(context.kernel, facts.space(), &stored);
            let hidden = vec![None; some.len()];
            let found = walks.search((&queries, &hidden), 0..some.len() as u32)?;
            for found in found.expect("there is room for so many hits") {
                near.push(found.hits.iter().map(|hit| index.vertex_of(hit.place.0)));
            }
            context.progress.advance(near.ends.len() as u64);
        }
        near.finders.sort_unstable();
        Ok(near)
    }

    /// Takes what the next newcomer has found, vertices that have several rows maybe more than once.
    fn push(&mut self, vertices: impl Iterator<Item = u32>) {
        let (start, newcomer) = (self.vertices.len(), self.ends.len() as u32);
        for vertex in vertices {
            if !self.vertices[start..].contains(&vertex) {
                self.vertices.push(vertex);
            }
        }
        self.finders.extend(self.vertices[start..].iter().take(SHARED).map(|&vertex| (vertex, newcomer)));
        self.ends.push(self.vertices.len() as u32);
    }

    /// Old vertices near the newcomer at a place among all, nearest first.
    pub(super) fn of(&self, place: usize) -> &[u32] {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.vertices[start as usize..self.ends[place] as usize]
    }

    /// Adds the places of newcomers near the one at a place to `near`, at most so many.
    pub(super) fn newcomers(&self, place: usize, most: usize, near: &mut Vec<u32>) {
        let start = near.len();
        for &vertex in self.of(place).iter().take(SHARED) {
            let first = self.finders.partition_point(|&(found, _)| found < vertex);
            let same = self.finders[first..].iter().take_while(|&&(found, _)| found == vertex);
            for &(_, other) in same {
                if near.len() - start == most {
                    return;
                }
                if other as usize != place && !near[start..].contains(&other) {
                    near.push(other);
                }
            }
        }
    }

    /// In which order newcomers are numbered: places by the nearest old vertex, or `otherwise` where none is found; and these.
    pub(super) fn order(&self, otherwise: u32) -> (Vec<u32>, Vec<u32>) {
        let nearest = |place: u32| self.of(place as usize).first().copied().unwrap_or(otherwise);
        let mut places: Vec<u32> = (0..self.ends.len() as u32).collect();
        places.sort_by_key(|&place| nearest(place));
        let behind = places.iter().map(|&place| nearest(place)).collect();
        (places, behind)
    }
}

/// Bytes of all walks that are under way.
fn walking_bytes<T: Coordinate>(context: &Context, index: &Index, aim: Aim, strategy: WalkStrategy) -> u64 {
    (context.threads * strategy.walks) as u64 * Walks::<T>::walk_bytes(index.facts(), aim, strategy)
}
