//! Builds a graph from the nearest rows of each row. One search of the store finds the nearest rows of all rows.
//!
//! RobustPrune chooses the neighbors of a vertex from its nearest rows. Then edges back are added, and RobustPrune
//! shortens lists that become too long. All steps process vertices in the order of buckets. The vectors that are
//! compared at a time are then in a few buckets near each other, and only these buckets must be in memory.
//!
//! A vertex has more candidates than its nearest rows: for its own bucket and for each of the nearest buckets, the row
//! nearest to the center. If rows are so dense that the nearest rows link only to each other, edges to these candidates
//! lead to other regions.

use std::path::Path;

use adjoin_kernels::Panel;

use super::gathering::Gathering;
use super::lists::{Edges, ListWriter, Lists, Sources, Windows};
use super::pruning::{self, BACK_MAX, Next, Pruning, spread};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::buckets::NearRows;
use crate::graph::GraphOptions;
use crate::load::Buckets;

/// Approximate recall of the search for the nearest rows. A larger recall does not improve the graph.
const RECALL: f64 = 0.8;
/// Number of nearest rows that are candidates of a vertex, as a fraction of the build list. Edges back are additional
/// candidates.
const NEAR_SHARE: f64 = 2.0 / 3.0;
/// Number of buckets, including its own, from which a vertex gets a candidate near the center.
const REPRESENTATIVES: usize = 8;

/// Returns the number of nearest rows to find for each row.
pub(super) fn near_rows(options: &GraphOptions) -> u64 {
    (options.build_list as f64 * NEAR_SHARE).round() as u64
}

/// Returns the largest number of vectors that are compared to prune a vertex.
pub(super) fn candidates_max(options: &GraphOptions) -> u64 {
    let near = near_rows(options) + REPRESENTATIVES as u64;
    // The vertex itself, and the longer list of the two rounds. The first round compares the nearest rows, the second
    // round compares the neighbors and the edges back.
    1 + near.max(((1 + BACK_MAX) * options.degree) as u64)
}

/// A build in progress.
pub(super) struct JoinBuild<'a, T: Coordinate> {
    pub(super) gathering: &'a Gathering<'a>,
    /// Vectors of all vertices, if memory holds them. Otherwise vectors are gathered when they are compared.
    pub(super) all: Option<&'a Panel<T>>,
    pub(super) options: &'a GraphOptions,
    pub(super) temporary: &'a Path,
    /// Memory for the lists. The edges back get this amount of memory too.
    pub(super) memory: u64,
}

/// Returns the approximate number of candidates of a typical vertex.
fn candidates(options: &GraphOptions) -> usize {
    near_rows(options) as usize + REPRESENTATIVES + 2 * options.degree
}

/// Returns the bytes of a vertex while it is pruned: its candidates and its chosen neighbors.
pub(super) fn bytes_of_vertex(options: &GraphOptions) -> u64 {
    pruning::bytes_of_vertex(candidates(options), options.degree)
}

impl<T: Coordinate> JoinBuild<'_, T> {
    /// Builds the graph, in which some vertices may be unreachable. Returns its lists, and the bytes written to
    /// temporary files.
    ///
    /// # Errors
    /// If the store cannot be read, if a temporary file cannot be written, or if memory does not suffice.
    pub(super) fn build(&self, centers: &Panel<T>) -> Result<(Lists, u64)> {
        let (own, sources) = self.near(centers)?;
        let spilled = own.spilled() + sources.spilled();
        let lists = self.with_back_edges(&own, &sources)?;
        let spilled = spilled + lists.spilled();
        Ok((lists, spilled))
    }

    fn pruning(&self) -> Pruning<'_, T, Gathering<'_>> {
        let Self { gathering, all, options, .. } = *self;
        let candidates_max = candidates_max(options) as usize;
        Pruning { origin: gathering, all, options, candidates_max, candidates: candidates(options) }
    }

    /// Chooses the out-neighbors of each vertex from its nearest rows. Returns the lists, and the edges grouped by
    /// target.
    fn near(&self, centers: &Panel<T>) -> Result<(Lists, Sources)> {
        let Gathering { context, buckets, map, .. } = *self.gathering;
        let windows = Windows::within(self.memory, map.len());
        let mut lists = ListWriter::new(context, self.temporary, windows)?;
        let mut edges = Edges::new(context, self.temporary, windows)?;
        let representatives = self.representatives(buckets, centers);
        let (subset, seed) = (map.subset(), self.options.seed);
        let near = NearRows { buckets, subset, count: near_rows(self.options), recall: RECALL, seed };
        let (pruning, mut bucket) = (self.pruning(), 0);
        near.each(context, &mut |first, found| {
            let mut found = (first..).zip(found);
            let mut next = |all: &mut Vec<u32>| {
                let Some((vertex, places)) = found.next() else { return Ok(None) };
                // Vertices ascend in the order of buckets, so the bucket only moves forward.
                while vertex >= map.of_bucket(bucket).end {
                    bucket += 1;
                }
                let start = all.len();
                all.extend(places.into_iter().map(|place| map.vertex_at(place)));
                for &other in &representatives[bucket as usize] {
                    if other != vertex && !all[start..].contains(&other) {
                        all.push(other);
                    }
                }
                Ok(Some(Next { vertex, is_kept: false }))
            };
            pruning.run(&mut next, &mut |vertex, neighbors| {
                lists.push(vertex, neighbors)?;
                neighbors.iter().try_for_each(|&neighbor| edges.push(vertex, neighbor))
            })
        })?;
        Ok((lists.finish()?, edges.finish()?))
    }

    /// Returns, for each bucket, the representatives of the nearest buckets.
    fn representatives(&self, buckets: &Buckets<'_>, centers: &Panel<T>) -> Vec<Vec<u32>> {
        let Gathering { context, map, .. } = *self.gathering;
        let mut distances = vec![T::Distance::default(); centers.rows()];
        let of_bucket = |bucket: u32| {
            context.kernel.one_to_many(centers.row(bucket as usize), centers, &mut distances);
            let mut near: Vec<(u32, u32)> =
                distances.iter().map(|&distance| T::distance_key(distance)).zip(0..).collect();
            let count = REPRESENTATIVES.min(near.len());
            // The buckets are not sorted, since pruning sorts the candidates.
            near.select_nth_unstable(count - 1);
            near.truncate(count);
            // A bucket has no vertex if rows in other buckets represent all of its rows.
            near.iter().filter_map(|&(_, bucket)| map.representatives[bucket as usize]).collect()
        };
        (0..buckets.count()).map(of_bucket).collect()
    }

    /// Adds edges back to all lists and prunes lists that become too long.
    fn with_back_edges(&self, own: &Lists, sources: &Sources) -> Result<Lists> {
        let Gathering { context, .. } = *self.gathering;
        let (windows, pruning) = (own.windows(), self.pruning());
        let mut lists = ListWriter::new(context, self.temporary, windows)?;
        context.progress.begin("graph", "windows", windows.count().into());
        for window in 0..windows.count() {
            let own = own.window(context, window)?;
            let (ends, sources, _memory) = sources.window(context, window)?;
            let mut start = 0;
            let mut vertices = windows.vertices(window).zip(ends);
            let mut next = |all: &mut Vec<u32>| {
                let Some((vertex, end)) = vertices.next() else { return Ok(None) };
                let back = &sources[std::mem::replace(&mut start, end as usize)..end as usize];
                let known = own.of(vertex);
                all.extend_from_slice(known);
                // Edges back are in the order of buckets, so the first of them are all from one region. A selection
                // spread over all of them is used instead.
                all.extend(spread(back, BACK_MAX * self.options.degree).filter(|source| !known.contains(source)));
                Ok(Some(Next { vertex, is_kept: false }))
            };
            pruning.run(&mut next, &mut |vertex, neighbors| lists.push(vertex, neighbors))?;
            context.progress.advance(u64::from(window) + 1);
        }
        lists.finish()
    }
}
