//! Computes page layouts, which are orders of the vertices that put neighbors on one page.
//!
//! Vertices are first numbered in the order of buckets, so similar vectors have numbers near each other. The vertices
//! are divided into windows of about equal size, and each window is ordered by the edges within it (`edges.rs`). All
//! threads work on windows, and only windows in progress are in memory. The bounds of windows depend only on the number
//! of vertices and on the number of vertices per page.
//!
//! The engine computes its layout in `grown.rs`, or keeps an earlier one as far as its vertices remain (`kept.rs`), and
//! improves it in `swaps.rs`. The laboratory has other layouts for comparison.

mod edges;
mod filling;
mod grown;
mod kept;
mod swaps;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use self::edges::{Edges, Tie};
pub use self::filling::{Filling, Room};
pub use self::grown::{grown, weight};
use self::kept::kept;
pub use self::swaps::swapped;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::report::Cancel;
use crate::graph::Graph;

/// Approximate number of vertices in a window.
const WINDOW: u64 = 1 << 16;
/// Largest number of rounds of swaps.
pub const ROUNDS_MAX: usize = 8;
/// Name of the engine's layout in manifests. Searches work with any layout.
pub(super) const GROWN: &str = "grown";
/// Name of the layout in which vertices are ordered by row. Near vectors may be far from each other on disk.
pub(super) const ROWS: &str = "rows";

/// Order of the vertices of a window, and its quality.
pub(super) struct Arrangement {
    /// Number of the vertex at each place.
    pub(super) order: Vec<u32>,
    /// Overlap ratio OR(G) (Starling, section 4.1): the number of neighbors of a vertex on its page, divided by the
    /// number of other vertices on this page, on average over all vertices.
    pub(super) overlap_ratio: f64,
}

/// Places of all vertices on pages.
pub(super) struct Places {
    /// Place of each vertex, which is its number in the index.
    pub(super) by_vertex: Vec<u32>,
    /// Overlap ratio OR(G) of the whole graph.
    pub(super) overlap_ratio: f64,
}

impl Places {
    /// Returns the bytes of the places of `vertices` vertices.
    pub(super) fn memory_bytes(vertices: u64) -> u64 {
        vertices * size_of::<u32>() as u64
    }

    /// Combines the arrangements of all windows. Each is given with the first place of its window. The windows have
    /// `vertices` vertices in total.
    pub(super) fn of_windows(vertices: u32, windows: impl IntoIterator<Item = (u32, Arrangement)>) -> Self {
        let (mut by_vertex, mut sum) = (vec![0; vertices as usize], 0.0);
        for (first, Arrangement { order, overlap_ratio }) in windows {
            (first..).zip(&order).for_each(|(place, &vertex)| by_vertex[vertex as usize] = place);
            // Windows differ in size, so their ratios are weighted by vertices.
            sum += overlap_ratio * order.len() as f64;
        }
        Self { by_vertex, overlap_ratio: sum / f64::from(vertices.max(1)) }
    }

    /// Returns the vertices of a window in the order of their places.
    pub(super) fn order(&self, window: Range<u32>) -> Vec<u32> {
        let mut order = vec![0; window.len()];
        for vertex in window.clone() {
            order[(self.by_vertex[vertex as usize] - window.start) as usize] = vertex;
        }
        order
    }
}

impl Arrangement {
    /// Creates an arrangement from an order of all vertices, with `records` vertices per page. `neighbors` returns the
    /// out-neighbors of a vertex.
    pub(super) fn in_order<'g>(order: Vec<u32>, records: usize, neighbors: impl Fn(u32) -> &'g [u32]) -> Self {
        let room = Room::new(order.len(), records);
        let sum = overlap_sum(|vertex| neighbors(vertex).iter().copied(), &order, room);
        Self { overlap_ratio: sum / order.len().max(1) as f64, order }
    }

    /// Arranges the vertices of a window, with `records` vertices per page. `neighbors` returns the out-neighbors of a
    /// vertex. `before` has the page that each vertex had in an earlier order, if these pages are to be kept ([`kept`]).
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(super) fn of_window<'g>(
        cancel: &Cancel,
        records: usize,
        window: Range<u32>,
        before: Option<&[Option<u32>]>,
        neighbors: impl Fn(u32) -> &'g [u32],
    ) -> Result<Self> {
        let (edges, room) = (Edges::of(window.clone(), neighbors), Room::new(window.len(), records));
        let mut order = match before {
            None => order_of(cancel, &edges, room)?,
            Some(before) => swapped(cancel, &edges, room, kept(&edges, room, before, weight), weight, ROUNDS_MAX)?,
        };
        let overlap_ratio = overlap_ratio(&edges, &order, room);
        order.iter_mut().for_each(|vertex| *vertex += window.start);
        Ok(Self { order, overlap_ratio })
    }
}

/// Computes the order of the vertices of a window on pages.
///
/// # Errors
/// If the work is cancelled.
pub(crate) fn order_of(cancel: &Cancel, edges: &Edges, room: Room) -> Result<Vec<u32>> {
    swapped(cancel, edges, room, grown(cancel, edges, room)?, weight, ROUNDS_MAX)
}

/// Computes the order of all vertices of a graph. `order_of` orders the vertices of a window. If the number of vertices
/// allows it, the whole graph is one window.
///
/// # Errors
/// If memory does not suffice, the work is cancelled, or `order_of` fails.
pub fn whole_order(
    context: &Context,
    graph: &Graph,
    records: usize,
    order_of: impl Fn(&Cancel, &Edges, Room) -> Result<Vec<u32>>,
) -> Result<Vec<u32>> {
    let vertices = graph.vertices();
    let all: Vec<Range<u32>> = match vertices <= edges::WINDOW_MAX {
        true => std::iter::once(0..vertices as u32).collect(),
        false => windows(vertices as u32, records).collect(),
    };
    let largest = all.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let bytes = window_bytes(largest, graph.options().degree) + 4 * vertices as u64;
    let _working = context.reserve(bytes, "the order of a graph on pages")?;
    let mut order = Vec::with_capacity(vertices);
    for window in all {
        let edges = Edges::of(window.clone(), |vertex| graph.neighbors(vertex));
        let of_window = order_of(&context.cancel, &edges, Room::new(window.len(), records))?;
        order.extend(of_window.into_iter().map(|vertex| vertex + window.start));
    }
    Ok(order)
}

/// Divides `vertices` vertices into windows, with `records` vertices per page. No page is in two windows.
pub fn windows(vertices: u32, records: usize) -> impl Iterator<Item = Range<u32>> {
    let pages = u64::from(vertices).div_ceil(records as u64);
    let count = u64::from(vertices).div_ceil(WINDOW).min(pages);
    let start = move |window: u64| (pages * window / count.max(1) * records as u64).min(vertices.into()) as u32;
    (0..count).map(move |window| start(window)..start(window + 1))
}

/// Returns the number of vertices in the largest window.
pub(super) fn window_vertices(vertices: u32, records: usize) -> usize {
    windows(vertices, records).map(|window| window.len()).max().unwrap_or(0)
}

/// Returns the bytes for laying out a window of `vertices` vertices, each with at most `degree` neighbors.
pub(super) fn window_bytes(vertices: usize, degree: usize) -> u64 {
    // In addition to its edges, a vertex has at most eight numbers, such as its place, its page and its weights.
    Edges::memory_bytes(vertices, degree) + 8 * vertices as u64 * size_of::<u32>() as u64
}

/// Returns OR(G) of the vertices of a window in the order `order`. It is 0 if each vertex has a page of its own.
pub fn overlap_ratio(edges: &Edges, order: &[u32], room: Room) -> f64 {
    overlap_sum(|vertex| edges.neighbors(vertex), order, room) / order.len().max(1) as f64
}

/// Returns the sum of a fraction over all vertices. For a vertex, it is the number of its neighbors on its page,
/// divided by the number of other vertices on this page.
fn overlap_sum<N: Iterator<Item = u32>>(neighbors: impl Fn(u32) -> N, order: &[u32], room: Room) -> f64 {
    let pages = room.pages_of(order);
    let of_page = |(page, on_page): (u32, &[u32])| {
        let others = on_page.len() - 1;
        let all = on_page.iter().flat_map(|&vertex| neighbors(vertex));
        let near = all.filter(|&neighbor| pages[neighbor as usize] == page).count();
        if others == 0 { 0.0 } else { near as f64 / others as f64 }
    };
    (0..).zip(order.chunks(room.records())).map(of_page).sum()
}
