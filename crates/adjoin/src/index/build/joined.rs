//! A graph of the nearest rows of each row, which a search of the store finds for all rows at once: RobustPrune chooses among
//! them, edges back are added, and RobustPrune goes over what has too many. All in the order of buckets, so that the vectors
//! which are compared lie in a few buckets near each other, and none of this needs more than these in memory.
//!
//! Beside its nearest rows a vertex has one row of its own bucket and of each of the nearest buckets as candidates, those that
//! are nearest to the centers: where rows lie so close together that all that are near are among themselves, these lead on.

use std::path::Path;

use adjoin_kernels::Panel;

use super::gathering::{Gathering, Wanted};
use super::lists::{Edges, ListWriter, Lists, Sources, Windows};
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::graph::{GraphOptions, Pruner, Vectors};
use crate::load::Buckets;
use crate::search::NearRows;
use crate::workers::map_items;

/// Share of the nearest rows that is to be found, about: more makes the graph no better.
const RECALL: f64 = 0.8;
/// Of the candidates of a vertex, the share that are its nearest rows; edges back come on top.
const NEAR_SHARE: f64 = 2.0 / 3.0;
/// Buckets whose representatives are candidates, its own among them.
const REPRESENTATIVES: usize = 8;
/// Edges back that are considered of a vertex: so many times its degree. Of more, some evenly spread ones.
const BACK_MAX: usize = 8;
/// Vertices that a thread prunes at once.
const PRUNED_TOGETHER: usize = 64;

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
pub(super) struct Joined<'a, T: Coordinate> {
    pub(super) gathering: &'a Gathering<'a>,
    /// The vectors of all vertices, where memory holds them: others are gathered where they are compared.
    pub(super) all: Option<&'a Panel<T>>,
    pub(super) options: &'a GraphOptions,
    pub(super) temporary: &'a Path,
    /// Memory for the lists and for edges back, each.
    pub(super) memory: u64,
}

/// Lists of some vertices from one on: where those of each end, and all.
#[derive(Default)]
struct Batch {
    first: u32,
    ends: Vec<usize>,
    all: Vec<u32>,
}

impl Batch {
    fn of(&self, number: usize) -> &[u32] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.all[start..self.ends[number]]
    }
}

/// Bytes of a vertex whose candidates are pruned: these, and what is kept of them.
pub(super) fn bytes_of_vertex(options: &GraphOptions) -> u64 {
    // A list that grows may have twice the room that it needs.
    let candidates = near_rows(options) as usize + REPRESENTATIVES + 2 * options.degree;
    ((2 * candidates + 2 * options.degree + 8) * size_of::<u32>()) as u64
}

impl<T: Coordinate> Joined<'_, T> {
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

    /// The out-neighbours of each vertex among the nearest rows, and where edges come from.
    fn near(&self, centers: &Panel<T>) -> Result<(Lists, Sources)> {
        let Gathering { context, buckets, map, .. } = *self.gathering;
        let windows = Windows::within(self.memory, map.len());
        let mut lists = ListWriter::new(context, self.temporary, windows)?;
        let mut edges = Edges::new(context, self.temporary, windows)?;
        let representatives = self.representatives(buckets, centers);
        let (subset, seed) = (map.subset(), self.options.seed);
        let near = NearRows { buckets, subset, count: near_rows(self.options), recall: RECALL, seed };
        let mut bucket = 0;
        near.each(context, &mut |first, found| {
            let mut found = (first..).zip(found);
            let mut next = |all: &mut Vec<u32>| {
                let (vertex, places) = found.next()?;
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
                Some(vertex)
            };
            self.prune_all(&mut next, &mut |vertex, neighbours| {
                lists.push(vertex, neighbours)?;
                neighbours.iter().try_for_each(|&neighbour| edges.push(vertex, neighbour))
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
        let windows = own.windows();
        let mut lists = ListWriter::new(context, self.temporary, windows)?;
        context.progress.begin("graph", "windows", windows.count().into());
        for window in 0..windows.count() {
            let own = own.window(context, window)?;
            let (ends, sources, _memory) = sources.window(context, window)?;
            let mut start = 0;
            let mut vertices = windows.vertices(window).zip(ends);
            let mut next = |all: &mut Vec<u32>| {
                let (vertex, end) = vertices.next()?;
                let back = &sources[std::mem::replace(&mut start, end as usize)..end as usize];
                let known = own.of(vertex);
                all.extend_from_slice(known);
                all.extend(spread(back, BACK_MAX * self.options.degree).filter(|source| !known.contains(source)));
                Some(vertex)
            };
            self.prune_all(&mut next, &mut |vertex, neighbours| lists.push(vertex, neighbours))?;
            context.progress.advance(u64::from(window) + 1);
        }
        lists.finish()
    }

    /// Hands each vertex and what is kept of its candidates, nearest first, to `take`; `next` adds the candidates of the next
    /// vertex to a list.
    fn prune_all(
        &self,
        next: &mut dyn FnMut(&mut Vec<u32>) -> Option<u32>,
        take: &mut dyn FnMut(u32, &[u32]) -> Result<()>,
    ) -> Result<()> {
        let vertices_max = (self.gathering.beside / bytes_of_vertex(self.options)).max(1) as usize;
        let room = candidates_max(self.options) as usize;
        loop {
            let mut wanted = Wanted::none(if self.all.is_some() { 0 } else { self.gathering.map.len() });
            let mut some = Batch::default();
            while wanted.len() + room <= self.gathering.most && some.ends.len() < vertices_max {
                let start = some.all.len();
                let Some(vertex) = next(&mut some.all) else { break };
                if some.ends.is_empty() {
                    some.first = vertex;
                }
                if self.all.is_none() {
                    wanted.add(vertex);
                    some.all[start..].iter().for_each(|&candidate| wanted.add(candidate));
                }
                some.ends.push(some.all.len());
            }
            if some.ends.is_empty() {
                return Ok(());
            }
            match self.all {
                Some(panel) => self.prune_some((panel, |vertex| vertex), &some, take)?,
                None => {
                    let vectors = self.gathering.vectors::<T>(wanted)?;
                    self.prune_some((&vectors.panel, |vertex| vectors.row_of(vertex)), &some, take)?;
                }
            }
        }
    }

    /// The same with some vertices, whose vectors and those of their candidates are rows of a panel.
    fn prune_some(
        &self,
        (panel, row_of): (&Panel<T>, impl Fn(u32) -> u32 + Sync),
        candidates: &Batch,
        take: &mut dyn FnMut(u32, &[u32]) -> Result<()>,
    ) -> Result<()> {
        let Gathering { context, .. } = *self.gathering;
        let compared = Vectors { kernel: context.kernel, panel };
        let count = candidates.ends.len();
        let state = || (Pruner::<T>::new(self.options), Vec::new(), Vec::new());
        let chunks = count.div_ceil(PRUNED_TOGETHER);
        let pruned = map_items(context.threads, chunks, &context.cancel, state, |(pruner, sorted, rows), chunk| {
            let numbers = chunk * PRUNED_TOGETHER..count.min((chunk + 1) * PRUNED_TOGETHER);
            let mut kept = Batch { first: candidates.first + numbers.start as u32, ..Batch::default() };
            for number in numbers {
                let (vertex, of_vertex) = (candidates.first + number as u32, candidates.of(number));
                sorted.clear();
                sorted.extend_from_slice(of_vertex);
                sorted.sort_unstable();
                rows.clear();
                rows.extend(sorted.iter().map(|&candidate| row_of(candidate)));
                pruner.begin(row_of(vertex));
                pruner.add_vertices(compared, rows);
                let chosen = match of_vertex.len() <= self.options.degree {
                    true => pruner.sorted(),
                    false => pruner.prune(compared),
                };
                let vertex_of = |row: &u32| sorted[rows.binary_search(row).expect("a candidate")];
                kept.all.extend(chosen.iter().map(vertex_of));
                kept.ends.push(kept.all.len());
            }
            kept.all.shrink_to_fit();
            Ok(kept)
        })?;
        for some in pruned {
            (some.first..).zip(0..some.ends.len()).try_for_each(|(vertex, number)| take(vertex, some.of(number)))?;
        }
        Ok(())
    }
}

/// At most so many, evenly spread.
fn spread(all: &[u32], most: usize) -> impl Iterator<Item = u32> {
    let count = all.len().min(most);
    (0..count).map(move |number| all[number * all.len() / count])
}
