//! Finds the vertices near the inserted rows of a merge.
//!
//! Walks over the index find the old vertices near an inserted row. A separate graph in memory finds the inserted rows
//! near each other. Without this graph, all inserted rows of a new region would find only the few old vertices that are
//! nearest to the region.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::{Newcomers, PURPOSE};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, copy_row};
use crate::graph::{Graph, GraphOptions};
use crate::index::Index;
use crate::index::cache::PageCache;
use crate::index::delete_list::DeleteList;
use crate::index::filtered_vertices::FilteredVertices;
use crate::index::promise::aim_at;
use crate::index::walk::WalkAim;
use crate::index::walk_strategy::WalkStrategy;
use crate::index::walks::{WalkQueries, Walks};
use crate::load::Members;

/// Least number of inserted rows whose walks run together.
const TOGETHER_MIN: u64 = 4_096;
/// Number of inserted rows whose vectors are converted at once.
const LOADED_TOGETHER: usize = 4_096;
/// Bytes of a hit while it is found and sorted.
const HIT_BYTES: u64 = 64;

/// Old vertices and inserted rows near each inserted row that has its own vertex, nearest first.
pub(super) struct Near {
    ends: Vec<u32>,
    vertices: Vec<u32>,
    among: Among,
    _memory: Reservation,
}

/// Out-neighbors of each inserted row that has its own vertex, in a graph of these rows.
struct Among {
    ends: Vec<u32>,
    places: Vec<u32>,
    _memory: Reservation,
}

/// Inserted rows that have their own vertices.
#[derive(Clone, Copy)]
pub(super) struct WalkingRows<'a> {
    pub(super) newcomers: &'a dyn Newcomers,
    /// Numbers of these rows among all inserted rows.
    pub(super) numbers: &'a [u32],
}

/// Number of vertices that a walk finds, and length of its list.
#[derive(Clone, Copy)]
pub(super) struct Depth {
    pub(super) near: usize,
    pub(super) list: usize,
}

impl Near {
    /// Finds the kept vertices near inserted rows by walks over an index.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn find<T: Coordinate>(
        context: &Context,
        index: &Index,
        deleted: &DeleteList,
        rows: WalkingRows<'_>,
        depth: Depth,
    ) -> Result<Self> {
        let WalkingRows { newcomers, numbers: walking } = rows;
        let facts = index.facts();
        let strategy = WalkStrategy::default();
        let admitted = FilteredVertices::excluding(index, deleted);
        let admitted = admitted.as_ref();
        let aim = aim_at(admitted, depth.near, depth.list);
        let among = Among::find::<T>(context, facts.space(), &facts.parameters().graph, rows)?;
        // Each row has its nearest vertices, and the end of their list.
        let held = walking.len() as u64 * ((depth.near + 1) * size_of::<u32>()) as u64;
        let memory = context.reserve(held, PURPOSE)?;
        let of_query = Members::<T>::memory_bytes(1, facts.space()) + 2 * facts.vectors.bytes() as u64;
        let of_query = of_query + depth.near as u64 * HIT_BYTES;
        // A quarter of the free memory is for the queries. The rest is for walks and for the cache of pages.
        let together = (context.budget().free() / 4 / of_query).max(TOGETHER_MIN).min(walking.len() as u64);
        let _queries = context.reserve(together * of_query, PURPOSE)?;
        let left = 4 * walking_bytes::<T>(context, index, aim, strategy);
        let cache = &PageCache::filled(context, index, left, walking.len() as u64 * depth.list as u64)?;
        let walks = Walks::<T>::new(context, index, aim, admitted, strategy, cache);
        let mut near = Self { ends: Vec::new(), vertices: Vec::new(), among, _memory: memory };
        context.progress.begin("search", "vectors", walking.len() as u64);
        for some in walking.chunks((together as usize).max(1)) {
            let stored: Vec<u8> = some.iter().flat_map(|&newcomer| newcomers.vector(newcomer)).copied().collect();
            let queries = Members::<T>::new(context.kernel, facts.space(), &stored);
            // Inserted rows are not in the index, so no vertex is hidden from their walks.
            let found = walks.search(WalkQueries::inside(&queries, &[]), 0..some.len() as u32)?;
            for found in found.expect("the buffer has room for all hits") {
                near.push(found.hits.iter().map(|hit| index.vertex_of(hit.place.0)));
            }
            context.progress.advance(near.ends.len() as u64);
        }
        Ok(near)
    }

    /// Appends the vertices that the walk of the next inserted row found. A vertex with several rows may occur more
    /// than once in `vertices`, and is appended once.
    fn push(&mut self, vertices: impl Iterator<Item = u32>) {
        let start = self.vertices.len();
        for vertex in vertices {
            // The list is so short that a linear search is fastest.
            if !self.vertices[start..].contains(&vertex) {
                self.vertices.push(vertex);
            }
        }
        self.ends.push(self.vertices.len() as u32);
    }

    /// Returns the old vertices near the inserted row at a place, nearest first.
    pub(super) fn of(&self, place: usize) -> &[u32] {
        list_of(&self.ends, &self.vertices, place)
    }

    /// Returns the places of the inserted rows near the inserted row at a place, nearest first.
    pub(super) fn newcomers(&self, place: usize) -> &[u32] {
        list_of(&self.among.ends, &self.among.places, place)
    }

    /// Returns the order in which inserted rows are numbered: their places, sorted by the nearest old vertex, and the
    /// nearest old vertex of each. If the walk of a row found no vertex, the vertex `otherwise` is used.
    pub(super) fn order(&self, otherwise: u32) -> (Vec<u32>, Vec<u32>) {
        let nearest = |place: u32| self.of(place as usize).first().copied().unwrap_or(otherwise);
        let mut places: Vec<u32> = (0..self.ends.len() as u32).collect();
        // The sort is stable: rows with one nearest vertex keep their order, so equal merges give equal indexes.
        places.sort_by_key(|&place| nearest(place));
        let behind = places.iter().map(|&place| nearest(place)).collect();
        (places, behind)
    }
}

impl Among {
    /// Builds the graph of the inserted rows and stores its lists. The lists must not depend on the budget, since the
    /// merged index must not depend on it.
    fn find<T: Coordinate>(
        context: &Context,
        space: Space<'_>,
        options: &GraphOptions,
        WalkingRows { newcomers, numbers: walking }: WalkingRows<'_>,
    ) -> Result<Self> {
        let rows = walking.len();
        let _panel = context.reserve(Panel::<T>::bytes_for(rows, space.dimensions()), PURPOSE)?;
        let mut panel = Panel::<T>::zeroed(rows, space.dimensions());
        let mut stored = Vec::new();
        for (part, some) in walking.chunks(LOADED_TOGETHER).enumerate() {
            stored.clear();
            some.iter().for_each(|&newcomer| stored.extend_from_slice(newcomers.vector(newcomer)));
            let mut loaded = Panel::<T>::zeroed(some.len(), space.dimensions());
            T::load(space, context.kernel, &stored, &mut loaded);
            (0..some.len()).for_each(|row| copy_row(&loaded, row, &mut panel, part * LOADED_TOGETHER + row));
        }
        let graph = Graph::build(context, &panel, options)?;
        let memory = context.reserve(Self::memory_bytes(rows as u64, options), PURPOSE)?;
        let (mut ends, mut places) = (Vec::with_capacity(rows), Vec::new());
        for place in 0..rows as u32 {
            places.extend_from_slice(graph.neighbors(place));
            ends.push(places.len() as u32);
        }
        // No memory is reserved for spare capacity.
        places.shrink_to_fit();
        Ok(Self { ends, places, _memory: memory })
    }

    fn memory_bytes(rows: u64, options: &GraphOptions) -> u64 {
        rows * (options.degree as u64 + 1) * size_of::<u32>() as u64
    }
}

/// Returns the bytes for finding the inserted rows near each of `rows` inserted rows.
pub(super) fn among_bytes<T: Coordinate>(
    context: &Context,
    space: Space<'_>,
    options: &GraphOptions,
    rows: u64,
) -> u64 {
    let panel = Panel::<T>::bytes_for(rows as usize, space.dimensions());
    panel + Graph::build_bytes(context.threads, rows as usize, options) + Among::memory_bytes(rows, options)
}

/// Returns one of several concatenated lists.
fn list_of<'a>(ends: &[u32], all: &'a [u32], number: usize) -> &'a [u32] {
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &all[start as usize..ends[number] as usize]
}

/// Returns the bytes of all walks in flight.
fn walking_bytes<T: Coordinate>(context: &Context, index: &Index, aim: WalkAim, strategy: WalkStrategy) -> u64 {
    (context.threads * strategy.walks) as u64 * Walks::<T>::walk_bytes(index.facts(), aim, strategy)
}
