//! Page layouts: orders of vertices on pages that put neighbors on the same page.
//!
//! Vertices are first numbered in the order of buckets, in which similar vectors have numbers near each other. The
//! pages are divided into windows of about equal size. Each window is ordered separately, by the edges within it
//! (`edges.rs`): windows are laid out on all threads, and only those in progress are in memory. The bounds of windows
//! depend on the number of vertices and on the number per page. Each layout has its own file, and `name.rs` lists them.

mod bnf;
mod bnp;
mod breadth_first;
mod edges;
mod filling;
mod growing;
mod grown;
mod halving;
mod margo;
mod name;
mod swaps;
#[cfg(test)]
mod tests;

use std::ops::Range;

use adjoin_kernels::{Kernel, Panel};

use self::bnf::Turns;
use self::edges::{Edges, Tie};
use self::filling::Room;
pub use self::name::Layout;
use crate::context::Context;
use crate::error::Result;
use crate::graph::Graph;
use crate::report::Cancel;

/// Approximate number of vertices in a window.
const WINDOW: u64 = 1 << 16;
/// Default limit on the rounds of a layout that improves another one.
const ROUNDS_MAX: usize = 8;
/// Rounds end when the overlap ratio gains less than this (Starling's tau; the paper's 0.01 would leave most of beta
/// unused).
const GAIN_MIN: f64 = 0.001;

/// Parameters of a layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageOrder {
    pub(super) layout: Layout,
    /// Limit on the rounds of a layout that improves another one (Starling's beta, appendix C).
    pub(super) rounds_max: usize,
    /// Number of vertices per page.
    pub(super) records: usize,
}

impl PageOrder {
    /// Returns the parameters of a layout with the default number of rounds.
    pub(super) fn usual(layout: Layout, records: usize) -> Self {
        Self { layout, rounds_max: ROUNDS_MAX, records }
    }
}

/// Vectors of a window, in the order of their vertices.
pub(super) type Vectors<'v> = (Kernel, &'v Panel<f32>);

/// Order of the vertices of a window, and its quality.
pub(super) struct Arrangement {
    /// Vertex of the graph at each place.
    pub(super) order: Vec<u32>,
    /// Overlap ratio OR(G): the mean fraction of the other vertices on a vertex's page that are its neighbors
    /// (Starling, section 4.1).
    pub(super) overlap_ratio: f64,
}

/// Places of all vertices.
pub(super) struct Places {
    /// Place of each vertex.
    pub(super) of: Vec<u32>,
    /// Overlap ratio OR(G) of the whole graph.
    pub(super) overlap_ratio: f64,
}

impl Places {
    /// Returns the bytes of the places of `vertices` vertices.
    pub(super) fn memory_bytes(vertices: u64) -> u64 {
        vertices * size_of::<u32>() as u64
    }

    /// Combines the arrangements of windows, each given with its first place. The windows have `vertices` vertices in
    /// total.
    pub(super) fn of_windows(vertices: u32, windows: impl IntoIterator<Item = (u32, Arrangement)>) -> Self {
        let (mut of, mut sum) = (vec![0; vertices as usize], 0.0);
        for (first, Arrangement { order, overlap_ratio }) in windows {
            (first..).zip(&order).for_each(|(place, &vertex)| of[vertex as usize] = place);
            sum += overlap_ratio * order.len() as f64;
        }
        Self { of, overlap_ratio: sum / f64::from(vertices.max(1)) }
    }

    /// Returns the vertices of a window in the order of their places.
    pub(super) fn order(&self, window: Range<u32>) -> Vec<u32> {
        let mut order = vec![0; window.len()];
        for vertex in window.clone() {
            order[(self.of[vertex as usize] - window.start) as usize] = vertex;
        }
        order
    }
}

impl Arrangement {
    /// Creates an arrangement from a known order, with `records` vertices per page. `neighbors` returns the
    /// out-neighbors of a vertex.
    pub(super) fn in_order<'g>(order: Vec<u32>, records: usize, neighbors: impl Fn(u32) -> &'g [u32]) -> Self {
        let room = Room::new(order.len(), records);
        let sum = overlap_sum(|vertex| neighbors(vertex).iter().copied(), &order, room);
        Self { overlap_ratio: sum / order.len().max(1) as f64, order }
    }

    /// Arranges the vertices of a window. `neighbors` returns the out-neighbors of a vertex, and `vectors` is set for a
    /// layout that needs vectors.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(super) fn of_window<'g>(
        cancel: &Cancel,
        way: PageOrder,
        window: Range<u32>,
        neighbors: impl Fn(u32) -> &'g [u32],
        vectors: Option<Vectors<'_>>,
    ) -> Result<Self> {
        let (edges, room) = (Edges::of(window.clone(), neighbors), Room::new(window.len(), way.records));
        let mut order = way.order(cancel, (&edges, vectors), room)?;
        let overlap_ratio = overlap_ratio(&edges, &order, room);
        order.iter_mut().for_each(|vertex| *vertex += window.start);
        Ok(Self { order, overlap_ratio })
    }
}

/// Returns the order of a whole graph in a layout that is based on edges, with `records` vertices per page. Uses one
/// window if possible. For layouts by rows and by buckets, this is the order of the numbers.
///
/// # Errors
/// If memory does not suffice, or if the work is cancelled.
pub(crate) fn whole_order(context: &Context, graph: &Graph, layout: Layout, records: usize) -> Result<Vec<u32>> {
    let vertices = graph.vertices();
    let all: Vec<Range<u32>> = match vertices <= edges::WINDOW_MAX {
        true => std::iter::once(0..vertices as u32).collect(),
        false => windows(vertices as u32, records).collect(),
    };
    let largest = all.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let bytes = window_bytes(layout, largest, graph.options().degree) + 4 * vertices as u64;
    let _working = context.reserve(bytes, "the order of a graph on pages")?;
    let mut order = Vec::with_capacity(vertices);
    for window in all {
        let way = PageOrder::usual(layout, records);
        order.extend(
            Arrangement::of_window(&context.cancel, way, window, |vertex| graph.neighbors(vertex), None)?.order,
        );
    }
    Ok(order)
}

/// Returns the windows of `vertices` vertices, with `records` of them per page. Each window has whole pages.
pub(super) fn windows(vertices: u32, records: usize) -> impl Iterator<Item = Range<u32>> {
    let pages = u64::from(vertices).div_ceil(records as u64);
    let count = u64::from(vertices).div_ceil(WINDOW).min(pages);
    let start = move |window: u64| (pages * window / count.max(1) * records as u64).min(vertices.into()) as u32;
    (0..count).map(move |window| start(window)..start(window + 1))
}

/// Returns the number of vertices in the largest window.
pub(super) fn window_vertices(vertices: u32, records: usize) -> usize {
    windows(vertices, records).map(|window| window.len()).max().unwrap_or(0)
}

/// Returns the bytes for laying out a window of `vertices` vertices with at most `degree` neighbors each.
pub(super) fn window_bytes(layout: Layout, vertices: usize, degree: usize) -> u64 {
    let ties = 2 * (vertices * degree) as u64;
    let further = match layout {
        Layout::Margo => margo::sorting_bytes(ties),
        Layout::Gp2 => growing::wishes_bytes(ties),
        _ => 0,
    };
    // Orders, pages of vertices, and values per vertex: at most eight numbers for a vertex.
    Edges::memory_bytes(vertices, degree) + further + 8 * vertices as u64 * size_of::<u32>() as u64
}

impl PageOrder {
    /// Returns the vertices of a window in the order of the layout.
    fn order(self, cancel: &Cancel, (edges, vectors): (&Edges, Option<Vectors<'_>>), room: Room) -> Result<Vec<u32>> {
        let swapped =
            |weight: fn(Tie) -> u32, order| swaps::swapped(cancel, (edges, room), (weight, self.rounds_max), order);
        match self.layout {
            // The order of rows ignores windows, so it is not computed here.
            Layout::Rows | Layout::Buckets => Ok(edges.numbers().collect()),
            Layout::Bnp => Ok(bnp::bnp(edges, room)),
            Layout::Bnf => bnf::bnf(cancel, (edges, room), (Turns::Before, self.rounds_max)),
            Layout::Bns => swapped(Tie::edges, bnf::bnf(cancel, (edges, room), (Turns::Before, ROUNDS_MAX))?),
            Layout::Grown => swapped(grown::weight, grown::grown(cancel, edges, room)?),
            Layout::Margo => margo::margo(cancel, edges, room),
            Layout::Degree => Ok(breadth_first::by_degree(edges)),
            Layout::Bfs => Ok(breadth_first::by_number(edges)),
            Layout::Gp1 => halving::halved(cancel, vectors.expect("those of the window"), room),
            Layout::Gp2 => growing::growing(cancel, edges, room),
            Layout::Gp3 => bnf::bnf(cancel, (edges, room), (Turns::Gain, self.rounds_max)),
        }
    }
}

/// Returns OR(G) of a window in this order, or 0 if no two vertices share a page.
fn overlap_ratio(edges: &Edges, order: &[u32], room: Room) -> f64 {
    overlap_sum(|vertex| edges.neighbors(vertex), order, room) / order.len().max(1) as f64
}

/// Returns the sum over all vertices of the fraction of others on the page that are neighbors.
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
