//! Block search (Starling, Algorithm 2): the walk of one query over the pages of an index.
//!
//! A walk keeps a list of the nearest vertices that it has seen, with distances that are estimated by codes. In each
//! step it visits the page of the nearest vertex in the list that is not expanded. It compares all vertices of the page
//! with the query exactly, and offers them to the list. The neighbors of all vertices of the page that the list keeps
//! are held until these vertices are expanded, so that no page is needed twice. The hits depend only on the index, the
//! query and the parameters of the walk.
//!
//! Vertices are expanded nearest first, whatever the length of the list. Therefore a walk with a short list takes the
//! first steps of a walk with a longer one, and ends as soon as all vertices of the short list are expanded. So one walk
//! measures which hits each shorter list finds ([`Walk::least_lists`]).

use std::collections::HashSet;
use std::ops::{AddAssign, Range};

use adjoin_kernels::Kernel;

use super::Index;
use super::filtered_vertices::FilteredVertices;
use super::last_hit::LastHit;
use super::navigation::Navigator;
use super::page::{Page, PageShape};
use super::recently_seen::RecentlySeen;
use super::walk_strategy::{Entry, WalkStrategy};
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space};
use crate::base::predicate::Predicate;
use crate::execute::{Hit, Nearest};
use crate::graph::GreedySearch;
use crate::load::{Decider, Members};
use crate::quantize::Table;
use crate::query::QueryTarget;

/// Version of the walks. It must be increased if a change affects the hits, so that calibrations by older walks are not
/// used.
pub(super) const WALKS: u32 = 2;

/// Number of vertices whose distances by codes are computed at once.
const SEEN_TOGETHER: usize = 256;

/// A vertex that a walk has seen.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Distance to the query, estimated by codes.
    distance: f32,
    vertex: u32,
    stage: Stage,
}

/// Progress of a walk with a vertex of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The page of the vertex was not processed.
    Seen,
    /// The page was processed. The neighbors of the vertex are in this slot of [`HeldNeighbors`].
    Held(usize),
    /// The neighbors of the vertex were offered to the list.
    Expanded,
}

impl Candidate {
    fn is_before(&self, other: &Self) -> bool {
        self.distance.total_cmp(&other.distance).then(self.vertex.cmp(&other.vertex)).is_lt()
    }
}

/// Target and depth of walks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WalkAim {
    pub(super) wanted: QueryTarget,
    /// Number of candidates that a walk keeps, not counting vertices that cannot be hits.
    pub(super) list: usize,
    /// Vertices with a distance by codes of at most this are visited even if the list does not keep them.
    pub(super) reach: f32,
    /// Approximate length of the list, including vertices that cannot be hits.
    pub(super) held: usize,
    /// If `true`, the candidates are the nearest of all vertices that can be hits, as estimated by codes. If `false`,
    /// they are the nearest of the vertices that the walk reaches.
    pub(super) by_codes: bool,
    /// Whether walks report the shortest list that finds each hit.
    pub(super) measures: bool,
}

impl WalkAim {
    /// Returns the aim of walks that find the `k` nearest with a list of `list` candidates.
    pub(super) fn nearest(k: usize, list: usize) -> Self {
        let (wanted, reach) = (QueryTarget::Nearest(k as u64), f32::NEG_INFINITY);
        Self { wanted, list, reach, held: list, by_codes: false, measures: false }
    }

    /// Returns the aim of walks that find all rows within a threshold.
    pub(super) fn within(predicate: Predicate, list: usize, reach: f32) -> Self {
        Self { wanted: QueryTarget::Within(predicate), list, reach, held: list, by_codes: false, measures: false }
    }
}

/// The index, and the parameters that all walks share.
pub(super) struct WalkedIndex<'a, T: Coordinate> {
    pub(super) kernel: Kernel,
    pub(super) index: &'a Index,
    pub(super) shape: PageShape,
    pub(super) space: Space<'a>,
    pub(super) navigator: &'a Navigator<'a, T>,
    pub(super) aim: WalkAim,
    /// Vertices that can be hits; `None` if all can.
    pub(super) admitted: Option<&'a FilteredVertices<'a>>,
    pub(super) strategy: WalkStrategy,
}

impl<T: Coordinate> WalkedIndex<'_, T> {
    fn admits(&self, vertex: u32) -> bool {
        self.admitted.is_none_or(|admitted| admitted.admits_vertex(vertex))
    }

    /// Returns the number of the first row of `vertex` that can be a hit. `first` is the number of its first row.
    fn row_of(&self, vertex: u32, first: u64) -> u64 {
        self.admitted.map_or(first, |admitted| admitted.row_of(vertex, first))
    }
}

/// Counters of a walk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WalkCounts {
    pub(super) reads: u64,
    pub(super) distances: u64,
    /// Number of vertices on the pages that the walk needed.
    pub(super) on_pages: u64,
    /// Number of these vertices that were expanded.
    pub(super) led_on: u64,
}

impl AddAssign for WalkCounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.distances += other.distances;
        self.on_pages += other.on_pages;
        self.led_on += other.led_on;
    }
}

/// Neighbors of vertices that are not expanded yet, although their pages were processed.
#[derive(Default)]
struct HeldNeighbors {
    slots: Vec<Vec<u32>>,
    /// Slots that are not in use.
    free: Vec<usize>,
}

impl HeldNeighbors {
    fn clear(&mut self) {
        self.free.clear();
        self.free.extend(0..self.slots.len());
    }

    /// Returns a free slot.
    fn take(&mut self) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            self.slots.len() - 1
        });
        self.slots[slot].clear();
        slot
    }

    /// Frees the slot of a candidate, if it has one.
    fn release(&mut self, candidate: Candidate) {
        if let Stage::Held(slot) = candidate.stage {
            self.free.push(slot);
        }
    }
}

/// The walk of a query, with its buffers. It is created once and reused for any number of queries.
pub(super) struct Walk<T: Coordinate> {
    query: u32,
    /// Vertex that the walk ignores.
    hidden: Option<u32>,
    /// Candidates, nearest first. At most `aim.list` of them can be hits. The others cannot be hits, but are kept to be
    /// expanded. Once the list is full, its last candidate can be a hit.
    list: Vec<Candidate>,
    /// Number of candidates in the list that can be hits.
    kept: usize,
    /// Number of candidates at the start of the list that are certainly expanded.
    expanded: usize,
    /// Pages with vertices within `aim.reach` that the list does not keep. Each page is added once.
    beyond: Vec<u32>,
    /// Pages that were added to `beyond`.
    queued: HashSet<u32>,
    seen: RecentlySeen,
    /// Pages that were processed. Recorded only if `aim.reach` is set.
    taken: HashSet<u32>,
    held: HeldNeighbors,
    /// Length of the shortest list with which the walk would take the next step. Updated only if `aim.measures` is set.
    least_list: usize,
    /// Pages that were processed, each with the shortest list with which a walk processes it. Recorded only if
    /// `aim.measures` is set.
    pages: Vec<(u32, u32)>,
    table: Table,
    nearest: Nearest,
    last_hit: LastHit,
    navigation: GreedySearch<T>,
    /// Vertices to be offered to the list.
    new: Vec<u32>,
    distances: Vec<f32>,
    /// Vertices of the current page with their exact nearness.
    on_page: Vec<(f64, u32)>,
    /// Vertices of the current page to expand.
    leading: Vec<u32>,
    pub(super) counts: WalkCounts,
}

impl<T: Coordinate> Walk<T> {
    pub(super) fn new(searched: &WalkedIndex<'_, T>) -> Self {
        Self {
            query: 0,
            hidden: None,
            list: Vec::new(),
            kept: 0,
            expanded: 0,
            beyond: Vec::new(),
            queued: HashSet::new(),
            seen: RecentlySeen::default(),
            taken: HashSet::new(),
            held: HeldNeighbors::default(),
            least_list: 1,
            pages: Vec::new(),
            table: Table::default(),
            nearest: Nearest::of(0, searched.space.metric, None),
            last_hit: LastHit::default(),
            navigation: searched.navigator.search(),
            new: Vec::new(),
            distances: Vec::new(),
            on_page: Vec::new(),
            leading: Vec::new(),
            counts: WalkCounts::default(),
        }
    }

    /// Starts a query. A `hidden` vertex is neither found nor expanded, as if it were not in the index. `outside` are hits
    /// of the query outside the index, nearest first.
    pub(super) fn begin(
        &mut self,
        searched: &WalkedIndex<'_, T>,
        queries: &Members<T>,
        query: u32,
        hidden: Option<u32>,
        outside: &[Hit],
    ) {
        (self.query, self.hidden) = (query, hidden);
        self.list.clear();
        (self.kept, self.expanded) = (0, 0);
        self.beyond.clear();
        self.queued.clear();
        self.seen.clear();
        self.taken.clear();
        self.held.clear();
        self.least_list = 1;
        self.pages.clear();
        self.counts = WalkCounts::default();
        self.nearest = searched.aim.wanted.nearest(searched.space.metric, hidden.map(|vertex| (vertex, 0)));
        self.last_hit.begin(searched.aim.wanted, searched.aim.held, outside);
        let row = queries.panel.row(query as usize);
        searched.index.quantizer.fill_table(searched.kernel, row, &mut self.table);
        self.new.clear();
        if let Some(admitted) = searched.admitted.filter(|_| searched.aim.by_codes) {
            return self.see_all(searched, admitted);
        }
        if searched.strategy.entry == Entry::Navigation {
            self.counts.distances = searched.navigator.enter(&mut self.navigation, row, &mut self.new);
        }
        // All vertices are reachable from this entry, but not always from the vertices of the navigation graph. With
        // this entry, a walk whose list has room for all vertices misses none.
        self.new.push(searched.index.facts().entry);
        self.see(searched);
    }

    /// Offers all vertices that can be hits to the list.
    fn see_all(&mut self, searched: &WalkedIndex<'_, T>, admitted: &FilteredVertices<'_>) {
        let hidden = self.hidden;
        let mut vertices = admitted.iter().filter(|&vertex| hidden != Some(vertex)).peekable();
        while vertices.peek().is_some() {
            self.new.extend(vertices.by_ref().take(SEEN_TOGETHER));
            self.keep_near(searched);
        }
    }

    /// Appends the pages that the walk is likely to need next, until `pages` has `most` pages. The first appended page
    /// is certainly needed. The others are needed unless an earlier page changes the course of the walk. Appends
    /// nothing if the walk has ended.
    pub(super) fn likely(&mut self, searched: &WalkedIndex<'_, T>, most: usize, pages: &mut Vec<u32>) {
        let Self { list, beyond, taken, last_hit, .. } = self;
        let page_of = |vertex: u32| searched.shape.page_of(vertex);
        while beyond.pop_if(|page| taken.contains(page)).is_some() {}
        let near = &list[..list.len().min(last_hit.candidates(searched.aim.list))];
        let open = near.iter().filter(|candidate| candidate.stage == Stage::Seen).map(|candidate| candidate.vertex);
        let beyond = beyond.iter().rev().copied().filter(|page| !taken.contains(page));
        for page in open.map(page_of).chain(beyond.take(most)) {
            if pages.len() == most {
                return;
            }
            if !pages.contains(&page) {
                pages.push(page);
            }
        }
    }

    /// Processes a page that was read. Compares its vertices with the query and offers them to the list. Then expands
    /// the nearest vertices of the page (a fraction of `strategy.expanded`). After that, expands vertices of the list,
    /// nearest first, up to one whose page was not processed.
    ///
    /// The page is not needed again: the neighbors of its vertices in the list are held, and a vertex that the list
    /// rejects now would also be rejected later, since the farthest distance in the list never grows.
    ///
    /// # Errors
    /// If the page has impossible values.
    pub(super) fn take(
        &mut self,
        searched: &WalkedIndex<'_, T>,
        queries: &Members<T>,
        number: u32,
        page: Page<'_>,
    ) -> Result<()> {
        let vertices = searched.shape.vertices(number, searched.index.facts().vertices);
        if searched.aim.measures {
            self.pages.push((number, self.least_list as u32));
        }
        self.compare(searched, queries, page, vertices.clone());
        self.new.clear();
        // If candidates are chosen by codes, the list is complete before the first page is read.
        if !searched.aim.by_codes {
            self.new.extend(vertices.clone());
            self.see(searched);
        }
        self.leading.clear();
        self.on_page.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let count = (self.on_page.len() as f64 * searched.strategy.expanded).round() as usize;
        self.leading.extend(self.on_page[..count].iter().map(|&(_, vertex)| vertex));
        if searched.aim.reach > f32::NEG_INFINITY {
            self.taken.insert(number);
            self.lead_within(searched, vertices.clone());
        }
        self.hold(searched, number, page, vertices.clone())?;
        if !searched.aim.by_codes {
            self.counts.led_on += self.leading.len() as u64;
            for k in 0..self.leading.len() {
                let slot = (self.leading[k] - vertices.start) as usize;
                neighbors(searched, number, page, slot, |neighbor| self.new.push(neighbor))?;
            }
            self.see(searched);
        }
        self.expand_held(searched);
        Ok(())
    }

    /// Holds the neighbors of the vertices of a page that are in the list and that are not expanded at once.
    fn hold(&mut self, searched: &WalkedIndex<'_, T>, number: u32, page: Page<'_>, vertices: Range<u32>) -> Result<()> {
        let Self { list, leading, held, .. } = self;
        for candidate in list.iter_mut().filter(|candidate| vertices.contains(&candidate.vertex)) {
            if searched.aim.by_codes || leading.contains(&candidate.vertex) {
                candidate.stage = Stage::Expanded;
                continue;
            }
            let slot = held.take();
            candidate.stage = Stage::Held(slot);
            let vertex = (candidate.vertex - vertices.start) as usize;
            neighbors(searched, number, page, vertex, |neighbor| held.slots[slot].push(neighbor))?;
        }
        Ok(())
    }

    /// Expands vertices of the list whose neighbors are held, nearest first, up to one whose page was not processed.
    fn expand_held(&mut self, searched: &WalkedIndex<'_, T>) {
        let most = self.last_hit.candidates(searched.aim.list);
        while let Some(next) = self.first_to_expand().filter(|&next| next < most) {
            self.expanded = next;
            // A shorter list would not have this vertex, and the walk would have ended.
            if searched.aim.measures {
                let before = self.list[..next].iter().filter(|candidate| searched.admits(candidate.vertex)).count();
                self.least_list = self.least_list.max(before + 1);
            }
            let candidate = &mut self.list[next];
            let Stage::Held(slot) = candidate.stage else { return };
            self.held.release(*candidate);
            candidate.stage = Stage::Expanded;
            self.counts.led_on += 1;
            self.new.extend_from_slice(&self.held.slots[slot]);
            self.see(searched);
        }
    }

    /// Returns the position of the nearest vertex in the list that is not expanded.
    fn first_to_expand(&self) -> Option<usize> {
        let rest = self.list.get(self.expanded..)?;
        rest.iter().position(|candidate| candidate.stage != Stage::Expanded).map(|further| self.expanded + further)
    }

    /// Adds all vertices of a page that are within `aim.reach` to the vertices to expand.
    fn lead_within(&mut self, searched: &WalkedIndex<'_, T>, vertices: Range<u32>) {
        let WalkedIndex { kernel, index, aim, .. } = *searched;
        let Self { table, distances, leading, new, .. } = self;
        new.clear();
        new.extend(vertices);
        distances.resize(new.len(), 0.0);
        index.quantizer.distances(kernel, table, &index.codes, new, distances);
        let near = new.iter().zip(&*distances).filter(|&(_, &distance)| distance <= aim.reach);
        let more: Vec<u32> = near.map(|(&vertex, _)| vertex).filter(|vertex| !leading.contains(vertex)).collect();
        leading.extend(more);
        new.clear();
    }

    /// Compares the vertices of a page with the query. Fills `on_page`, and offers vertices that can be hits to
    /// `nearest`.
    fn compare(&mut self, searched: &WalkedIndex<'_, T>, queries: &Members<T>, page: Page<'_>, vertices: Range<u32>) {
        let (first, count) = (vertices.start, vertices.len());
        let WalkedIndex { kernel, space, aim, .. } = *searched;
        let members = Members::new(kernel, space, page.vectors(count));
        let all = Predicate::all(space.metric);
        let Self { nearest, last_hit, on_page, hidden, .. } = self;
        let row_of = |member: u32| searched.row_of(first + member, page.row(member as usize));
        let hit = |member: u32, nearness| Hit { nearness, row: row_of(member), place: (first + member, 0) };
        let offers_all = matches!(aim.wanted, QueryTarget::Nearest(_));
        on_page.clear();
        let decider = Decider { kernel, predicate: all };
        queries.each_nearness(decider, self.query, &members, 0..count as u32, |member, nearness| {
            if offers_all && searched.admits(first + member) {
                nearest.offer(hit(member, nearness));
            }
            if *hidden != Some(first + member) {
                on_page.push((nearness, first + member));
            }
            all
        });
        last_hit.add(on_page, |vertex| searched.admits(vertex));
        // The comparison above has no threshold, since it orders all vertices for expansion. This one decides by the
        // exact rule of the threshold which vertices are hits.
        if let QueryTarget::Within(within) = aim.wanted {
            let found = (0..count as u32).filter(|member| searched.admits(first + member));
            let decider = Decider { kernel, predicate: within };
            queries.each_nearness(decider, self.query, &members, found, |member, nearness| {
                nearest.offer(hit(member, nearness));
                within
            });
        }
        self.counts += WalkCounts { reads: 1, distances: count as u64, on_pages: count as u64, led_on: 0 };
    }

    /// Returns the length of the shortest list with which the walk finds each of some hits.
    pub(super) fn least_lists(&self, searched: &WalkedIndex<'_, T>, hits: &[Hit]) -> Vec<u32> {
        let page_of = |hit: &Hit| searched.shape.page_of(searched.index.vertex_of(hit.place.0));
        let least = |page: u32| self.pages.iter().find(|&&(number, _)| number == page).map(|&(_, list)| list);
        hits.iter().map(|hit| least(page_of(hit)).expect("the page of a hit was processed")).collect()
    }

    pub(super) fn hits(&self) -> u64 {
        self.nearest.len() as u64
    }

    /// Ends the walk and returns its hits, nearest first. If a found vertex has several rows, each of them can be a
    /// hit.
    pub(super) fn end(&mut self, searched: &WalkedIndex<'_, T>) -> Vec<Hit> {
        let nearest = std::mem::replace(&mut self.nearest, Nearest::of(0, searched.space.metric, None));
        let vertices = searched.index.facts().vertices;
        let (hits, most) = (nearest.into_sorted(), searched.aim.wanted.hits_max());
        match searched.admitted {
            None => searched.index.duplicates.expand(vertices, hits, most, |_| true),
            Some(admitted) => searched.index.duplicates.expand(vertices, hits, most, |entry| admitted.admits(entry)),
        }
    }

    /// Offers the vertices in `new` to the list, except the hidden one and those that were seen recently. Clears `new`.
    fn see(&mut self, searched: &WalkedIndex<'_, T>) {
        let Self { new, seen, hidden, .. } = self;
        let mut left = 0;
        for at in 0..new.len() {
            let vertex = new[at];
            // Each vertex is moved, so that no branch depends on what was seen.
            new[left] = vertex;
            left += usize::from(seen.insert(vertex) & (*hidden != Some(vertex)));
        }
        new.truncate(left);
        self.keep_near(searched);
    }

    /// Adds the vertices in `new` to the list if they are near enough. Clears `new`.
    fn keep_near(&mut self, searched: &WalkedIndex<'_, T>) {
        let WalkedIndex { kernel, index, aim, .. } = *searched;
        let mut new = std::mem::take(&mut self.new);
        self.distances.resize(new.len(), 0.0);
        index.quantizer.distances(kernel, &self.table, &index.codes, &new, &mut self.distances);
        let distances = std::mem::take(&mut self.distances);
        for (&vertex, &distance) in new.iter().zip(&distances) {
            let candidate = Candidate { distance, vertex, stage: Stage::Seen };
            let farthest = self.list.last().filter(|_| self.kept == aim.list);
            let dropped = match farthest.is_none_or(|farthest| distance <= farthest.distance) {
                true => self.insert(searched, candidate),
                false => Some(candidate),
            };
            // Vertices within reach are visited even if the list does not keep them.
            let is_within = |dropped: &Candidate| dropped.stage == Stage::Seen && dropped.distance <= aim.reach;
            let page = dropped.filter(is_within).map(|dropped| searched.shape.page_of(dropped.vertex));
            self.beyond.extend(page.filter(|&page| self.queued.insert(page)));
        }
        new.clear();
        (self.new, self.distances) = (new, distances);
    }

    /// Inserts a candidate into the list, unless the list has it. If the list is full, returns the candidate that is
    /// dropped.
    fn insert(&mut self, searched: &WalkedIndex<'_, T>, candidate: Candidate) -> Option<Candidate> {
        let is_full = self.kept == searched.aim.list;
        if is_full && self.list.last().is_none_or(|last| !candidate.is_before(last)) {
            return Some(candidate);
        }
        let place = self.list.partition_point(|other| other.is_before(&candidate));
        // A vertex that the list has dropped is not nearer than the farthest candidate, so only one in the list can return.
        if self.list.get(place).is_some_and(|other| other.vertex == candidate.vertex) {
            return None;
        }
        let admitted = searched.admits(candidate.vertex);
        self.list.insert(place, candidate);
        self.expanded = self.expanded.min(place);
        let dropped = if is_full && admitted { self.list.pop() } else { None };
        self.kept += usize::from(admitted && !is_full);
        dropped.into_iter().for_each(|dropped| self.held.release(dropped));
        // The last candidate of a full list can be a hit. To keep it so, the candidates after the last one that can be a
        // hit are dropped too.
        while self.kept == searched.aim.list
            && let Some(last) = self.list.pop_if(|last| !searched.admits(last.vertex))
        {
            self.held.release(last);
        }
        dropped
    }
}

/// Passes the neighbors of the vertex at `slot` of a page to `take`.
fn neighbors<T: Coordinate>(
    searched: &WalkedIndex<'_, T>,
    number: u32,
    page: Page<'_>,
    slot: usize,
    mut take: impl FnMut(u32),
) -> Result<()> {
    let WalkedIndex { index, .. } = *searched;
    let vertices = index.facts().vertices;
    let impossible = || index.damaged_page(number, "a vertex has invalid neighbors");
    for neighbor in page.neighbors(slot).ok_or_else(impossible)? {
        if neighbor >= vertices {
            return Err(impossible());
        }
        take(neighbor);
    }
    Ok(())
}
