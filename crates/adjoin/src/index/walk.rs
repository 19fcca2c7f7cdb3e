//! Block search (Starling, Algorithm 2): the walk of one query over the pages of an index.
//!
//! A walk keeps the nearest vertices that it has seen, by codes, and looks at the page of the nearest whose neighbours it does
//! not know. All vertices of a page are compared exactly and seen, so that they lead on without another read where they are
//! near enough: a walk keeps its pages until it ends. It depends on nothing but the index and the query.

use adjoin_device::AlignedBuffer;
use adjoin_kernels::{Kernel, prefetch};

use super::Index;
use super::navigation::Navigator;
use super::page::{Page, PageShape};
use crate::error::Result;
use crate::execute::{Hit, Nearest};
use crate::geometry::{Coordinate, Space};
use crate::graph::GreedySearch;
use crate::load::Members;
use crate::predicate::Predicate;
use crate::quantize::Table;

/// Share of the vertices of a page, the nearest, whose neighbours are seen even where the list has nearer vertices (Starling's
/// sigma, appendix K).
const EXPANDED_SHARE: f64 = 0.3;

/// Number of the way in which walks go: another one where they come to find others, so that what was learned of the recall of
/// earlier ones is not taken for theirs.
pub(super) const WALKS: u32 = 1;

/// A vertex that was seen.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    distance: f32,
    vertex: u32,
    /// Its neighbours were seen.
    expanded: bool,
    /// Its page is held.
    held: bool,
}

impl Candidate {
    fn is_before(&self, other: &Self) -> bool {
        self.distance.total_cmp(&other.distance).then(self.vertex.cmp(&other.vertex)).is_lt()
    }
}

/// What a walk needs next.
pub(super) enum Next {
    /// A page.
    Read(u32),
    /// Nothing: it has ended.
    End,
}

/// Queries that are searched for, and what they are searched in.
pub(super) struct Searched<'a, T: Coordinate> {
    pub(super) kernel: Kernel,
    pub(super) index: &'a Index,
    pub(super) shape: PageShape,
    pub(super) space: Space<'a>,
    pub(super) navigator: &'a Navigator<'a, T>,
    pub(super) k: usize,
    pub(super) list: usize,
}

/// What a walk has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WalkCounts {
    pub(super) reads: u64,
    pub(super) distances: u64,
}

/// The walk of a query, and the memory that it needs: made once, used for any number of queries.
pub(super) struct Walk<T: Coordinate> {
    query: u32,
    /// A vertex that the walk does not know of.
    hidden: Option<u32>,
    list: Vec<Candidate>,
    seen: Seen,
    held: Vec<(u32, AlignedBuffer)>,
    table: Table,
    nearest: Nearest,
    navigation: GreedySearch<T>,
    /// Vertices that are new, and their distances by codes.
    new: Vec<u32>,
    distances: Vec<f32>,
    /// Vertices of a page that are near, by their exact nearness.
    on_page: Vec<(f64, u32)>,
    pub(super) counts: WalkCounts,
}

impl<T: Coordinate> Walk<T> {
    pub(super) fn new(searched: &Searched<'_, T>) -> Self {
        Self {
            query: 0,
            hidden: None,
            list: Vec::new(),
            seen: Seen::default(),
            held: Vec::new(),
            table: Table::default(),
            nearest: Nearest::of(0, searched.space.metric, None),
            navigation: searched.navigator.search(),
            new: Vec::new(),
            distances: Vec::new(),
            counts: WalkCounts::default(),
            on_page: Vec::new(),
        }
    }

    /// Begins with a query. A `hidden` vertex is neither found nor does it lead on, as if the index did not have it.
    pub(super) fn begin(
        &mut self,
        searched: &Searched<'_, T>,
        (queries, query): (&Members<T>, u32),
        hidden: Option<u32>,
    ) {
        (self.query, self.hidden) = (query, hidden);
        self.list.clear();
        self.seen.clear();
        self.counts = WalkCounts::default();
        self.nearest = Nearest::of(searched.k, searched.space.metric, hidden.map(|vertex| (vertex, 0)));
        let row = queries.panel.row(query as usize);
        searched.index.quantizer.fill_table(searched.kernel, row, &mut self.table);
        self.new.clear();
        self.counts.distances = searched.navigator.enter(&mut self.navigation, row, &mut self.new);
        self.new.push(searched.index.facts().entry);
        if let Some(vertex) = hidden {
            self.seen.insert(vertex);
        }
        self.see(searched);
    }

    /// Goes on as far as it can without another page.
    ///
    /// # Errors
    /// Where a page says what cannot be.
    pub(super) fn next(&mut self, searched: &Searched<'_, T>) -> Result<Next> {
        // What costs no read comes first: it may lead nearer than what costs one.
        while self.expand_held(searched)? {
            self.see(searched);
        }
        let open = self.list.iter().find(|candidate| !candidate.expanded);
        Ok(open.map_or(Next::End, |candidate| Next::Read(searched.shape.page_of(candidate.vertex))))
    }

    /// Adds to `pages` those that the walk reads next, unless a page before leads it elsewhere: at most so many, the first
    /// of which is that of [`Next::Read`].
    pub(super) fn likely(&self, searched: &Searched<'_, T>, most: usize, pages: &mut Vec<u32>) {
        for candidate in self.list.iter().filter(|candidate| !candidate.expanded) {
            let page = searched.shape.page_of(candidate.vertex);
            if pages.len() == most {
                return;
            }
            if !pages.contains(&page) {
                pages.push(page);
            }
        }
    }

    /// Takes a page that was read: compares its vertices, and sees them.
    ///
    /// # Errors
    /// Where it is not as written.
    pub(super) fn take(
        &mut self,
        searched: &Searched<'_, T>,
        queries: &Members<T>,
        number: u32,
        buffer: AlignedBuffer,
    ) -> Result<()> {
        let Searched { kernel, index, shape, space, .. } = *searched;
        let page =
            Page::check(shape, number, &buffer).ok_or_else(|| index.damaged_page(number, "checksum mismatch"))?;
        let vertices = shape.vertices(number, index.facts().vertices);
        let members = Members::new(kernel, space, page.vectors(vertices.len()));
        let (all, first, nearest) = (Predicate::all(space.metric), vertices.start, &mut self.nearest);
        let hidden = self.hidden;
        let on_page = &mut self.on_page;
        on_page.clear();
        queries.each_nearness((kernel, all), self.query, (&members, 0..vertices.len() as u32), |member, nearness| {
            nearest.offer(Hit { nearness, row: page.row(member as usize), place: (first + member, 0) });
            if hidden != Some(first + member) {
                on_page.push((nearness, first + member));
            }
            all
        });
        self.counts.reads += 1;
        self.counts.distances += vertices.len() as u64;
        for candidate in &mut self.list {
            candidate.held |= vertices.contains(&candidate.vertex);
        }
        self.held.push((number, buffer));
        self.new.clear();
        self.new.extend(vertices);
        self.see(searched);
        self.expand_nearest(searched)?;
        self.expand_held(searched)?;
        self.see(searched);
        Ok(())
    }

    /// Expands the vertices of a page that are nearest, wherever they are in the list.
    fn expand_nearest(&mut self, searched: &Searched<'_, T>) -> Result<()> {
        let mut on_page = std::mem::take(&mut self.on_page);
        on_page.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let count = (on_page.len() as f64 * EXPANDED_SHARE).round() as usize;
        for &(_, vertex) in &on_page[..count] {
            if let Some(candidate) = self.list.iter_mut().find(|candidate| candidate.vertex == vertex) {
                if candidate.expanded {
                    continue;
                }
                candidate.expanded = true;
            }
            self.expand(searched, vertex)?;
        }
        self.on_page = on_page;
        Ok(())
    }

    /// Expands all candidates whose pages are held; false where there are none.
    fn expand_held(&mut self, searched: &Searched<'_, T>) -> Result<bool> {
        let mut any = false;
        for place in 0..self.list.len() {
            let Candidate { vertex, expanded, held, .. } = self.list[place];
            if held && !expanded {
                self.list[place].expanded = true;
                self.expand(searched, vertex)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// What was found, nearest first; the pages that were held go to `spare`.
    pub(super) fn end(&mut self, searched: &Searched<'_, T>, spare: &mut Vec<AlignedBuffer>) -> Vec<Hit> {
        spare.extend(self.held.drain(..).map(|(_, buffer)| buffer));
        let nearest = std::mem::replace(&mut self.nearest, Nearest::of(0, searched.space.metric, None));
        let vertices = searched.index.facts().vertices;
        searched.index.duplicates.expand(vertices, nearest.into_sorted(), searched.k)
    }

    /// Adds to the new vertices the neighbours of a vertex whose page is held.
    fn expand(&mut self, searched: &Searched<'_, T>, vertex: u32) -> Result<()> {
        let Searched { index, shape, .. } = *searched;
        let number = shape.page_of(vertex);
        let (_, buffer) = self.held.iter().find(|(held, _)| *held == number).expect("its page is held");
        let vertices = index.facts().vertices;
        let slot = (vertex - shape.vertices(number, vertices).start) as usize;
        let impossible = || index.damaged_page(number, "a vertex has neighbours that cannot be");
        let neighbours = Page::of_checked(shape, buffer).neighbours(slot).ok_or_else(impossible)?;
        for neighbour in neighbours {
            if neighbour >= vertices {
                return Err(impossible());
            }
            self.seen.prefetch(neighbour);
            self.new.push(neighbour);
        }
        Ok(())
    }

    /// Takes those of the new vertices into the list that were not seen before and are near enough; then none is new.
    fn see(&mut self, searched: &Searched<'_, T>) {
        let Searched { kernel, index, shape, .. } = *searched;
        let mut new = std::mem::take(&mut self.new);
        new.retain(|&vertex| self.seen.insert(vertex));
        self.distances.resize(new.len(), 0.0);
        index.quantizer.distances(kernel, &self.table, &index.codes, &new, &mut self.distances);
        let distances = std::mem::take(&mut self.distances);
        for (&vertex, &distance) in new.iter().zip(&distances) {
            let number = shape.page_of(vertex);
            let farthest = self.list.last().filter(|_| self.list.len() == searched.list);
            if farthest.is_some_and(|farthest| farthest.distance < distance) {
                continue;
            }
            let held = self.held.iter().any(|(page, _)| *page == number);
            self.insert(Candidate { distance, vertex, expanded: false, held }, searched.list);
        }
        new.clear();
        (self.new, self.distances) = (new, distances);
    }

    fn insert(&mut self, candidate: Candidate, most: usize) {
        if self.list.len() == most {
            match self.list.last() {
                Some(last) if candidate.is_before(last) => self.list.pop(),
                _ => return,
            };
        }
        let place = self.list.partition_point(|other| other.is_before(&candidate));
        self.list.insert(place, candidate);
    }
}

/// Vertices that a walk has seen: a table of vertices with open addresses.
#[derive(Default)]
struct Seen {
    /// One more than the vertex, 0 where there is none; a power of two of them.
    table: Vec<u32>,
    count: usize,
}

impl Seen {
    const LEAST: usize = 1 << 10;
    /// Spreads numbers over the table (Knuth, TAOCP 3, 6.4).
    const MULTIPLIER: u32 = 0x9e37_79b1;

    /// Takes all out, and makes room for about as many: no more, as it stays in the cache of the processor.
    fn clear(&mut self) {
        let len = Self::len_for(self.count);
        self.table.clear();
        self.table.resize(len, 0);
        self.count = 0;
    }

    /// Places for so many vertices, a third more at least.
    fn len_for(count: usize) -> usize {
        (count + count / 3 + 1).next_power_of_two().max(Self::LEAST)
    }

    /// Puts a vertex in; whether it was not there.
    fn insert(&mut self, vertex: u32) -> bool {
        if self.table.len() < Self::len_for(self.count + 1) {
            self.grow();
        }
        let place = self.place(vertex + 1);
        let is_new = self.table[place] == 0;
        self.table[place] = vertex + 1;
        self.count += usize::from(is_new);
        is_new
    }

    /// Asks for the memory of a vertex that is put in soon.
    fn prefetch(&self, vertex: u32) {
        if let Some(place) = self.table.get(self.first_place(vertex + 1)) {
            prefetch(std::slice::from_ref(place));
        }
    }

    /// Where a number is, unless others were there before: by the upper bits, on which all of it has a say.
    fn first_place(&self, number: u32) -> usize {
        let bits = self.table.len().trailing_zeros();
        (number.wrapping_mul(Self::MULTIPLIER).unbounded_shr(u32::BITS - bits)) as usize
    }

    /// Where a number is, or is to be.
    fn place(&self, number: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut place = self.first_place(number);
        while self.table[place] != 0 && self.table[place] != number {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let old = std::mem::replace(&mut self.table, vec![0; Self::len_for(self.count + 1)]);
        for number in old.into_iter().filter(|&number| number != 0) {
            let place = self.place(number);
            self.table[place] = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::Random;

    #[test]
    fn what_was_seen_is_a_set() {
        let (mut seen, mut random) = (Seen::default(), Random::new(1, "seen"));
        for values in [10, 3_000, 1 << 31] {
            seen.clear();
            let mut wanted = HashSet::new();
            for _ in 0..5_000 {
                let vertex = random.below(values) as u32;
                assert_eq!(seen.insert(vertex), wanted.insert(vertex), "{vertex}");
            }
        }
    }
}
