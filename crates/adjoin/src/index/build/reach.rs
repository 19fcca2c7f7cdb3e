//! Makes every vertex reachable from the entry point.
//!
//! Pruning may remove the last edge to a vertex. Vertices that have edges only to each other may form an island.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use adjoin_device::Reservation;

use super::PURPOSE;
use super::lists::{Lists, WindowLists, Windows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::RowSet;
use crate::index::navigation::ISLANDS_MAX;

/// Bytes of a changed list in the map, in addition to its vertices.
const ENTRY_BYTES: u64 = 64;

/// Least number of vertices of an island that gets a vertex in the navigation graph.
const ISLAND_MIN: u64 = 8;
/// Largest number of steps from an outlier of an island toward its middle.
const INWARD_MAX: usize = 64;

/// Lists of a graph, with changes to some of them.
pub(in crate::index) struct Repaired {
    lists: Lists,
    changed: HashMap<u32, Vec<u32>>,
    memory: Reservation,
    degree: usize,
    /// One vertex of each of the largest islands, ascending.
    islands: Vec<u32>,
}

impl Repaired {
    /// Returns one vertex of each of the largest islands, ascending. An island is a part of the graph to which no edge
    /// led from other parts. The repair links it by a single edge, which walks from other regions rarely find.
    pub(in crate::index) fn islands(&self) -> &[u32] {
        &self.islands
    }

    /// Returns the out-neighbors of a vertex of a window, including changes.
    fn of<'a>(&'a self, window: &'a WindowLists, vertex: u32) -> &'a [u32] {
        self.changed.get(&vertex).map_or_else(|| window.of(vertex), Vec::as_slice)
    }

    pub(in crate::index) fn windows(&self) -> Windows {
        self.lists.windows()
    }

    /// Reads the lists of consecutive vertices.
    ///
    /// # Errors
    /// If memory does not suffice, or if they cannot be read.
    pub(in crate::index) fn range(&self, context: &Context, vertices: Range<u32>) -> Result<RangeLists<'_>> {
        let windows = self.lists.windows();
        let first = windows.of(vertices.start);
        let numbers = first..=windows.of(vertices.end - 1);
        let windows = numbers.map(|window| self.lists.window(context, window)).collect::<Result<_>>()?;
        Ok(RangeLists { graph: self, first, windows })
    }

    fn change(&mut self, context: &Context, vertex: u32, neighbors: Vec<u32>) -> Result<()> {
        if self.changed.insert(vertex, neighbors).is_none() {
            let bytes = self.memory.bytes() + ENTRY_BYTES + 4 * self.degree as u64;
            context.grow(&mut self.memory, bytes, PURPOSE)?;
        }
        Ok(())
    }
}

/// Lists of consecutive vertices, in memory.
pub(in crate::index) struct RangeLists<'a> {
    graph: &'a Repaired,
    /// Number of the first window.
    first: u32,
    windows: Vec<WindowLists>,
}

impl RangeLists<'_> {
    /// Returns the out-neighbors of one of the vertices.
    pub(in crate::index) fn of(&self, vertex: u32) -> &[u32] {
        let window = self.graph.lists.windows().of(vertex) - self.first;
        self.graph.of(&self.windows[window as usize], vertex)
    }
}

/// Flood fill of the graph. It has the reached vertices, and the *open* ones among them, which are not yet expanded.
struct Flood<'a> {
    context: &'a Context,
    graph: Repaired,
    reached: RowSet,
    open: RowSet,
    /// Number of open vertices in each window.
    open_in: Vec<u32>,
    /// Number of reached vertices.
    count: u64,
    /// Window that was read last, with its number.
    window: Option<(u32, WindowLists)>,
}

/// Returns the bytes for repairing a graph of `vertices` vertices.
pub(in crate::index) fn memory_bytes(vertices: u64) -> u64 {
    2 * RowSet::memory_bytes(vertices)
}

/// Links each vertex that is unreachable from the entry point. The new edge starts at the nearest of the vertex's
/// out-neighbors that is reachable. If none is, it starts at the reachable vertex with the nearest number, which is in
/// a bucket nearby.
///
/// # Errors
/// If the lists cannot be read, or if memory does not suffice.
pub(in crate::index) fn repair(context: &Context, lists: Lists, entry: u32, degree: usize) -> Result<Repaired> {
    let windows = lists.windows();
    let vertices = windows.vertices(windows.count() - 1).end;
    let _memory = context.reserve(memory_bytes(vertices.into()), PURPOSE)?;
    let none = RowSet::new(vertices.into());
    let graph =
        Repaired { lists, changed: HashMap::new(), memory: context.reserve(0, PURPOSE)?, degree, islands: Vec::new() };
    let open_in = vec![0; windows.count() as usize];
    let mut flood = Flood { context, graph, reached: none.clone(), open: none, open_in, count: 0, window: None };
    let mut islands = Vec::new();
    flood.take(entry);
    flood.run()?;
    for vertex in 0..vertices {
        // The link may lead to another vertex of the island, from which this vertex is not reachable. The loop then
        // links this vertex too.
        while !flood.reached.contains(vertex.into()) {
            context.cancel.check()?;
            let (first, before) = (flood.innermost(vertex)?, flood.count);
            flood.link(first, vertices)?;
            flood.take(first);
            flood.run()?;
            if flood.count - before >= ISLAND_MIN {
                islands.push((flood.count - before, first));
                // Only the largest islands are held in memory.
                islands.sort_unstable_by_key(|&(size, vertex)| (Reverse(size), vertex));
                islands.truncate(ISLANDS_MAX);
            }
        }
    }
    flood.graph.islands = islands.into_iter().map(|(_, vertex)| vertex).collect();
    flood.graph.islands.sort_unstable();
    Ok(flood.graph)
}

impl Flood<'_> {
    /// Marks a vertex as reached. If it was not reached before, it becomes open.
    fn take(&mut self, vertex: u32) {
        if !self.reached.contains(vertex.into()) {
            self.reached.insert(vertex.into());
            self.count += 1;
            self.open.insert(vertex.into());
            self.open_in[self.graph.lists.windows().of(vertex) as usize] += 1;
        }
    }

    /// Returns the out-neighbors of a vertex.
    fn neighbors(&mut self, vertex: u32) -> Result<Vec<u32>> {
        let number = self.graph.lists.windows().of(vertex);
        if self.window.as_ref().is_none_or(|(held, _)| *held != number) {
            // The memory of the previous window is freed before the next one is read.
            self.window = None;
            self.window = Some((number, self.graph.lists.window(self.context, number)?));
        }
        let (_, window) = self.window.as_ref().expect("the window was just read");
        Ok(self.graph.of(window, vertex).to_vec())
    }

    /// Expands open vertices, window by window, until all vertices that can be reached from them are reached.
    fn run(&mut self) -> Result<()> {
        let windows = self.graph.lists.windows();
        while let Some(window) = self.open_in.iter().position(|&open| open > 0) {
            // All open vertices of a window are expanded before another window is read.
            let mut stack: Vec<u32> =
                windows.vertices(window as u32).filter(|&vertex| self.open.contains(vertex.into())).collect();
            while let Some(vertex) = stack.pop() {
                self.open.remove(vertex.into());
                self.open_in[window] -= 1;
                for neighbor in self.neighbors(vertex)? {
                    let is_new = !self.reached.contains(neighbor.into());
                    self.take(neighbor);
                    // Vertices of other windows are expanded when their window is read.
                    if is_new && windows.of(neighbor) as usize == window {
                        stack.push(neighbor);
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves from an unreached vertex to its nearest neighbor as long as this neighbor is unreached too. Returns the
    /// last vertex.
    ///
    /// If the first vertex is an outlier of an island, it is thus not the vertex by which the island is linked. It is
    /// linked later, from its own nearest neighbor, which is where walks to the outlier arrive.
    fn innermost(&mut self, mut vertex: u32) -> Result<u32> {
        for _ in 0..INWARD_MAX {
            match self.neighbors(vertex)?.first() {
                Some(&nearest) if !self.reached.contains(nearest.into()) => vertex = nearest,
                _ => break,
            }
        }
        Ok(vertex)
    }

    /// Adds an edge to an unreached vertex. If the list of the source is full, the new edge replaces another edge, and
    /// `vertex` gets an edge to the target of the replaced edge. Thus reached vertices stay reachable.
    fn link(&mut self, vertex: u32, vertices: u32) -> Result<()> {
        let mut own = self.neighbors(vertex)?;
        let degree = self.graph.degree;
        // The nearest reached neighbor is used, since a walk to the vertex visits it, but may not visit the other
        // neighbors.
        let near = own.iter().copied().find(|&near| self.reached.contains(near.into()));
        let from = near.unwrap_or_else(|| self.nearest_number(vertex, vertices));
        let mut neighbors = self.neighbors(from)?;
        if neighbors.len() < degree {
            neighbors.push(vertex);
            return self.graph.change(self.context, from, neighbors);
        }
        let passed_on = std::mem::replace(&mut neighbors[0], vertex);
        self.graph.change(self.context, from, neighbors)?;
        if own.contains(&passed_on) {
            return Ok(());
        }
        // The list is sorted nearest first, so its farthest neighbor is replaced.
        own.truncate(degree - 1);
        own.push(passed_on);
        self.graph.change(self.context, vertex, own)
    }

    /// Returns the reached vertex with the nearest number. The entry point is always reached.
    fn nearest_number(&self, vertex: u32, vertices: u32) -> u32 {
        let is_reached = |other: &u32| self.reached.contains((*other).into());
        let before = (0..vertex).rev().find(is_reached);
        let after = (vertex + 1..vertices).find(is_reached);
        match (before, after) {
            (Some(before), Some(after)) if vertex - before <= after - vertex => before,
            (Some(before), None) => before,
            (_, after) => after.expect("the entry point is reached"),
        }
    }
}
