//! In which order vertices lie on pages, so that the neighbors of a vertex lie on its page.
//!
//! Vertices are numbered in the order of buckets first, in which near ones have near numbers. The pages are divided into windows
//! of about equal size, and the vertices of each are put into an order of their own, by the edges among them alone
//! (`edges.rs`): windows are laid out on all threads, and while no more of a graph than that is in memory. Where windows end
//! depends on how many vertices there are and on how many lie on a page. A layout is a file; `name.rs` says which there are.

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

/// Vertices of a window, about.
const WINDOW: u64 = 1 << 16;
/// Rounds of a layout that improves another one, at most, where nothing is said.
const ROUNDS_MAX: usize = 8;
/// Rounds end where the overlap ratio gains less than this (Starling's tau; with the paper's 0.01 most of beta goes unused).
const GAIN_MIN: f64 = 0.001;

/// How vertices are put into an order.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageOrder {
    pub(super) layout: Layout,
    /// Rounds of a layout that improves another one, at most (Starling's beta, appendix C).
    pub(super) rounds_max: usize,
    /// Vertices of a page.
    pub(super) records: usize,
}

impl PageOrder {
    /// That of a layout in as many rounds as are usual.
    pub(super) fn usual(layout: Layout, records: usize) -> Self {
        Self { layout, rounds_max: ROUNDS_MAX, records }
    }
}

/// The vectors of a window in the order of their vertices.
pub(super) type Vectors<'v> = (Kernel, &'v Panel<f32>);

/// Where the vertices of a window lie: in which order, and what of it.
pub(super) struct Arrangement {
    /// The vertex of the graph at each place.
    pub(super) order: Vec<u32>,
    /// The overlap ratio OR(G): which share of the other vertices on its page are neighbors of a vertex, on average
    /// (Starling, section 4.1).
    pub(super) overlap_ratio: f64,
}

/// Where all vertices lie.
pub(super) struct Places {
    /// The place of each vertex.
    pub(super) of: Vec<u32>,
    /// The overlap ratio OR(G) of all.
    pub(super) overlap_ratio: f64,
}

impl Places {
    /// Bytes of those of so many vertices.
    pub(super) fn memory_bytes(vertices: u64) -> u64 {
        vertices * size_of::<u32>() as u64
    }

    /// Those of windows that hold so many vertices together, and whose arrangements come with the first place of each.
    pub(super) fn of_windows(vertices: u32, windows: impl IntoIterator<Item = (u32, Arrangement)>) -> Self {
        let (mut of, mut sum) = (vec![0; vertices as usize], 0.0);
        for (first, Arrangement { order, overlap_ratio }) in windows {
            (first..).zip(&order).for_each(|(place, &vertex)| of[vertex as usize] = place);
            sum += overlap_ratio * order.len() as f64;
        }
        Self { of, overlap_ratio: sum / f64::from(vertices.max(1)) }
    }

    /// The vertices of a window in the order of their places.
    pub(super) fn order(&self, window: Range<u32>) -> Vec<u32> {
        let mut order = vec![0; window.len()];
        for vertex in window.clone() {
            order[(self.of[vertex as usize] - window.start) as usize] = vertex;
        }
        order
    }
}

impl Arrangement {
    /// Vertices in an order that is known, whose out-neighbors `neighbors` gives, on pages of so many.
    pub(super) fn in_order<'g>(order: Vec<u32>, records: usize, neighbors: impl Fn(u32) -> &'g [u32]) -> Self {
        let room = Room::new(order.len(), records);
        let sum = overlap_sum(|vertex| neighbors(vertex).iter().copied(), &order, room);
        Self { overlap_ratio: sum / order.len().max(1) as f64, order }
    }

    /// Arranges the vertices of a window, whose out-neighbors `neighbors` gives. `vectors` are there for a layout that goes by
    /// them.
    ///
    /// # Errors
    /// Where the work is cancelled.
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

/// The vertices of a whole graph in the order of a layout that does not go by vectors, so many on a page: one window, where that
/// can be, else several. By rows and by buckets, that is the order of their numbers.
///
/// # Errors
/// Where memory does not suffice, or the work is cancelled.
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

/// The windows of so many vertices, so many of which lie on a page: each has whole pages.
pub(super) fn windows(vertices: u32, records: usize) -> impl Iterator<Item = Range<u32>> {
    let pages = u64::from(vertices).div_ceil(records as u64);
    let count = u64::from(vertices).div_ceil(WINDOW).min(pages);
    let start = move |window: u64| (pages * window / count.max(1) * records as u64).min(vertices.into()) as u32;
    (0..count).map(move |window| start(window)..start(window + 1))
}

/// Vertices of the largest window of so many.
pub(super) fn window_vertices(vertices: u32, records: usize) -> usize {
    windows(vertices, records).map(|window| window.len()).max().unwrap_or(0)
}

/// Bytes that it takes to lay out a window of so many vertices, each with so many neighbors at most.
pub(super) fn window_bytes(layout: Layout, vertices: usize, degree: usize) -> u64 {
    let ties = 2 * (vertices * degree) as u64;
    let further = match layout {
        Layout::Margo => margo::sorting_bytes(ties),
        Layout::Gp2 => growing::wishes_bytes(ties),
        _ => 0,
    };
    // Orders, pages of vertices, and what is noted of each: eight numbers of a vertex at most.
    Edges::memory_bytes(vertices, degree) + further + 8 * vertices as u64 * size_of::<u32>() as u64
}

impl PageOrder {
    /// The vertices of a window in the order of the layout.
    fn order(self, cancel: &Cancel, (edges, vectors): (&Edges, Option<Vectors<'_>>), room: Room) -> Result<Vec<u32>> {
        let swapped =
            |weight: fn(Tie) -> u32, order| swaps::swapped(cancel, (edges, room), (weight, self.rounds_max), order);
        match self.layout {
            // The order of rows is that of no window.
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

/// OR(G) of the vertices of a window in this order; 0 where no vertex shares its page.
fn overlap_ratio(edges: &Edges, order: &[u32], room: Room) -> f64 {
    overlap_sum(|vertex| edges.neighbors(vertex), order, room) / order.len().max(1) as f64
}

/// For each vertex, which share of the others on its page are neighbors of it: all of these added up.
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
