//! Builds the lists of a merged index. New vertices get neighbors, and vertices with deleted neighbors get other
//! neighbors instead.

use std::ops::Range;
use std::path::Path;

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::cells::CENTERS;
use super::mixed::{Mixed, until_last};
use super::near::Near;
use super::numbering::Vertex;
use super::survey::Survey;
use super::{PURPOSE, list_of};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;
use crate::graph::GraphOptions;
use crate::index::build::lists::{Edges, ListWriter, Lists, Sources, Windows};
use crate::index::build::pruning::{BACK_MAX, Next, Pruning, spread};
use crate::index::scan::Pieces;

/// Number of vertices for which a thread collects candidates at once.
const LINKED_TOGETHER: usize = 4_096;

/// Inputs for building the lists.
pub(super) struct Linking<'a, T: Coordinate> {
    pub(super) mixed: &'a Mixed<'a>,
    pub(super) survey: &'a Survey,
    pub(super) near: &'a Near,
    /// Place in `near` of each new vertex.
    pub(super) places: &'a [u32],
    /// New vertex at each place of `near`.
    pub(super) new_at: &'a [u32],
    /// Vectors of all vertices, if memory holds them.
    pub(super) all: Option<&'a Panel<T>>,
    pub(super) options: &'a GraphOptions,
    /// Largest number of candidates from the list of a deleted neighbor ([`super::Merge::replacements`]).
    pub(super) replacements: usize,
    pub(super) temporary: &'a Path,
    /// Memory for the lists. The edges back get this amount of memory too.
    pub(super) memory: u64,
}

/// Out-neighbors of the new vertices.
struct OwnEdges {
    ends: Vec<u32>,
    all: Vec<u32>,
    _memory: Reservation,
}

impl OwnEdges {
    fn of(&self, new: u32) -> &[u32] {
        list_of(&self.ends, &self.all, new as usize)
    }
}

/// Candidates of some vertices.
#[derive(Default)]
struct Candidates {
    /// Vertices, each with the end of its candidates in `all`.
    ends: Vec<(Next, usize)>,
    all: Vec<u32>,
}

/// Edges from new vertices to the vertices of a window.
#[derive(Clone, Copy)]
struct BackEdges<'a> {
    /// End of the edges to each vertex in `sources`.
    ends: &'a [u32],
    sources: &'a [u32],
}

impl<'a> BackEdges<'a> {
    /// Returns the sources of the edges to a vertex, given its number in the window.
    fn of(self, number: usize) -> &'a [u32] {
        list_of(self.ends, self.sources, number)
    }
}

impl Candidates {
    fn each(&self) -> impl Iterator<Item = (Next, &[u32])> {
        let mut start = 0;
        self.ends.iter().map(move |&(next, end)| (next, &self.all[std::mem::replace(&mut start, end)..end]))
    }
}

impl<T: Coordinate> Linking<'_, T> {
    /// Builds the lists of all vertices. Returns the lists, and the bytes written to temporary files.
    ///
    /// # Errors
    /// If pages cannot be read, if a temporary file cannot be written, or if memory does not suffice.
    pub(super) fn lists(&self) -> Result<(Lists, u64)> {
        let (own, sources) = self.own()?;
        let (context, windows) = (self.mixed.context, self.windows());
        let mut lists = ListWriter::new(context, self.temporary, windows)?;
        let pruning = self.pruning();
        context.progress.begin("graph", "windows", windows.count().into());
        for window in 0..windows.count() {
            let (ends, sources, _memory) = sources.window(context, window)?;
            let back = BackEdges { ends: &ends, sources: &sources };
            let vertices = windows.vertices(window);
            let bytes = vertices.len() * (3 * self.options.degree + 4) * size_of::<u32>();
            let _candidates = context.reserve(bytes as u64, PURPOSE)?;
            let parts = vertices.len().div_ceil(LINKED_TOGETHER);
            let pieces = || Pieces::new(self.mixed.index);
            let candidates = map_items(context.threads, parts, &context.cancel, pieces, |pieces, part| {
                let numbers = part * LINKED_TOGETHER..vertices.len().min((part + 1) * LINKED_TOGETHER);
                self.candidates(pieces, vertices.start, numbers, &own, back)
            })?;
            let mut all = candidates.iter().flat_map(Candidates::each);
            let mut next = |some: &mut Vec<u32>| {
                let Some((next, candidates)) = all.next() else { return Ok(None) };
                some.extend_from_slice(candidates);
                Ok(Some(next))
            };
            pruning.run(&mut next, &mut |vertex, neighbors| lists.push(vertex, neighbors))?;
            context.progress.advance(u64::from(window) + 1);
        }
        let lists = lists.finish()?;
        let spilled = sources.spilled() + lists.spilled();
        Ok((lists, spilled))
    }

    /// Collects the candidates of the vertices with the given numbers in a window. The window starts at vertex `first`.
    fn candidates(
        &self,
        pieces: &mut Pieces<'_>,
        first: u32,
        numbers: Range<usize>,
        own: &OwnEdges,
        back_edges: BackEdges<'_>,
    ) -> Result<Candidates> {
        let numbering = self.mixed.numbering;
        let of_numbers: Vec<u32> = numbers.clone().map(|number| first + number as u32).collect();
        let vertices = numbering.vertices_of(&of_numbers);
        // Pages after the last of these vertices are not needed.
        until_last(pieces, &vertices);
        let (mut found, mut old) = (Candidates::default(), Vec::new());
        for (number, vertex) in numbers.zip(vertices) {
            let (back, all) = (back_edges.of(number), &mut found.all);
            let before = all.len();
            // If a vertex has no edge back and no deleted neighbor, its list does not change and is not pruned.
            let mut is_kept = back.is_empty();
            match vertex {
                Vertex::New(new) => all.extend_from_slice(own.of(new)),
                Vertex::Old(vertex) => {
                    old.clear();
                    pieces.neighbors(vertex, &mut old)?;
                    is_kept &= !self.add_left(vertex, &old, all);
                }
            }
            // A vertex may have many edges back. To bound the cost of pruning, only a selection of them is used, which
            // is spread over all of them.
            for source in spread(back, BACK_MAX * self.options.degree) {
                if !all[before..].contains(&source) {
                    all.push(source);
                }
            }
            found.ends.push((Next { vertex: first + number as u32, is_kept }, found.all.len()));
        }
        Ok(found)
    }

    fn windows(&self) -> Windows {
        Windows::within(self.memory, self.mixed.numbering.vertices())
    }

    fn pruning(&self) -> Pruning<'_, T, Mixed<'_>> {
        let Self { mixed, all, options, .. } = *self;
        let candidates_max = candidates_max(options, self.replacements);
        Pruning { origin: mixed, all, options, candidates_max, candidates: 2 * options.degree }
    }

    /// Chooses the out-neighbors of the new vertices. Returns them, and the edges grouped by target.
    fn own(&self) -> Result<(OwnEdges, Sources)> {
        let Mixed { context, numbering, .. } = *self.mixed;
        let count = numbering.new_vertices();
        let bytes = u64::from(count) * (self.options.degree as u64 + 1) * size_of::<u32>() as u64;
        let memory = context.reserve(bytes, PURPOSE)?;
        let mut own = OwnEdges { ends: Vec::with_capacity(count as usize), all: Vec::new(), _memory: memory };
        let mut edges = Edges::new(context, self.temporary, self.windows())?;
        let mut new = 0..count;
        let mut next = |all: &mut Vec<u32>| {
            let Some(new) = new.next() else { return Ok(None) };
            let place = self.places[new as usize] as usize;
            all.extend(self.near.of(place).iter().map(|&old| numbering.of_old(old)));
            all.extend(self.near.newcomers(place).iter().map(|&place| numbering.of_new(self.new_at[place as usize])));
            Ok(Some(Next { vertex: numbering.of_new(new), is_kept: false }))
        };
        self.pruning().run(&mut next, &mut |vertex, neighbors| {
            own.all.extend_from_slice(neighbors);
            own.ends.push(own.all.len() as u32);
            neighbors.iter().try_for_each(|&neighbor| edges.push(vertex, neighbor))
        })?;
        Ok((own, edges.finish()?))
    }

    /// Adds the kept neighbors of an old vertex to its candidates and, for each deleted neighbor, kept neighbors of
    /// this neighbor. Returns whether any neighbor is deleted.
    fn add_left(&self, vertex: u32, neighbors: &[u32], all: &mut Vec<u32>) -> bool {
        let numbering = self.mixed.numbering;
        let first = all.len();
        all.extend(neighbors.iter().filter_map(|&old| numbering.of_kept(old)));
        if all.len() - first == neighbors.len() {
            return false;
        }
        for &deleted in neighbors.iter().filter(|&&old| !numbering.is_kept(old)) {
            let beyond = self.survey.neighbors_of(deleted).iter().copied();
            let beyond = beyond.filter(|&old| old != vertex).filter_map(|old| numbering.of_kept(old));
            // Lists are sorted by distance, so the first vertices are the nearest to the deleted vertex.
            let mut left = self.replacements;
            for number in beyond {
                if left == 0 {
                    break;
                }
                if !all[first..].contains(&number) {
                    all.push(number);
                    left -= 1;
                }
            }
        }
        true
    }
}

/// Returns the largest number of vectors that are compared to prune a vertex.
pub(super) fn candidates_max(options: &GraphOptions, replacements: usize) -> usize {
    let replaced = replacements.min(options.degree);
    // Old vertices have the first number of candidates, new vertices have the second.
    1 + ((1 + replaced + BACK_MAX) * options.degree).max(options.build_list + CENTERS + options.degree)
}
