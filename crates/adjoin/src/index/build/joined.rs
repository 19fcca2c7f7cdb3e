//! A graph of the nearest rows of each row, which a search of the store finds for all rows at once: RobustPrune chooses among
//! them, edges back are added, and RobustPrune goes over what has too many. All in the order of buckets, so that the vectors
//! which are compared lie in a few buckets near each other, and none of this needs more than these in memory.
//!
//! Beside its nearest rows a vertex has one row of its own bucket and of each of the nearest buckets as candidates, those that
//! are nearest to the centers: where rows lie so close together that all that are near are among themselves, these lead on.

use std::path::Path;

use adjoin_kernels::Panel;

use super::gathering::Gathering;
use super::lists::{Edges, ListWriter, Lists, Sources, Windows};
use super::pruning::{self, BACK_MAX, Next, Pruning, spread};
use crate::buckets::NearRows;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::graph::GraphOptions;
use crate::load::Buckets;

/// Share of the nearest rows that is to be found, about: more makes the graph no better.
const RECALL: f64 = 0.8;
/// Of the candidates of a vertex, the share that are its nearest rows; edges back come on top.
const NEAR_SHARE: f64 = 2.0 / 3.0;
/// Buckets whose representatives are candidates, its own among them.
const REPRESENTATIVES: usize = 8;

/// Nearest rows that are asked for of each row.
pub(super) fn near_rows(options: &GraphOptions) -> u64 {
    (options.build_list as f64 * NEAR_SHARE).round() as u64
}

/// Most vectors that pruning one vertex compares.
pub(super) fn candidates_max(options: &GraphOptions) -> u64 {
    let near = near_rows(options) + REPRESENTATIVES as u64;
    1 + near.max(((1 + BACK_MAX) * options.degree) as u64)
}

/// A build under way.
pub(super) struct JoinBuild<'a, T: Coordinate> {
    pub(super) gathering: &'a Gathering<'a>,
    /// The vectors of all vertices, where memory holds them: others are gathered where they are compared.
    pub(super) all: Option<&'a Panel<T>>,
    pub(super) options: &'a GraphOptions,
    pub(super) temporary: &'a Path,
    /// Memory for the lists and for edges back, each.
    pub(super) memory: u64,
}

/// Candidates of most vertices, about.
fn candidates(options: &GraphOptions) -> usize {
    near_rows(options) as usize + REPRESENTATIVES + 2 * options.degree
}

/// Bytes of a vertex whose candidates are pruned: these, and what is kept of them.
pub(super) fn bytes_of_vertex(options: &GraphOptions) -> u64 {
    pruning::bytes_of_vertex(candidates(options), options.degree)
}

impl<T: Coordinate> JoinBuild<'_, T> {
    /// The graph, in which not every vertex may be reached.
    ///
    /// # Errors
    /// Where the store cannot be read, a temporary file cannot be written, or memory does not suffice.
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

    /// The out-neighbors of each vertex among the nearest rows, and where edges come from.
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

    /// For each bucket the representatives of the nearest buckets.
    fn representatives(&self, buckets: &Buckets<'_>, centers: &Panel<T>) -> Vec<Vec<u32>> {
        let Gathering { context, map, .. } = *self.gathering;
        let mut distances = vec![T::Distance::default(); centers.rows()];
        let of_bucket = |bucket: u32| {
            context.kernel.one_to_many(centers.row(bucket as usize), centers, &mut distances);
            let mut near: Vec<(u32, u32)> =
                distances.iter().map(|&distance| T::distance_key(distance)).zip(0..).collect();
            let count = REPRESENTATIVES.min(near.len());
            near.select_nth_unstable(count - 1);
            near.truncate(count);
            near.iter().filter_map(|&(_, bucket)| map.representatives[bucket as usize]).collect()
        };
        (0..buckets.count()).map(of_bucket).collect()
    }

    /// All lists with edges back to them, pruned where they are too long.
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
                all.extend(spread(back, BACK_MAX * self.options.degree).filter(|source| !known.contains(source)));
                Ok(Some(Next { vertex, is_kept: false }))
            };
            pruning.run(&mut next, &mut |vertex, neighbors| lists.push(vertex, neighbors))?;
            context.progress.advance(u64::from(window) + 1);
        }
        lists.finish()
    }
}
