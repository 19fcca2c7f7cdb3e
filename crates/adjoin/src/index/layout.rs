//! In which order vertices lie on pages, so that the neighbours of a vertex lie on its page.

use std::cmp::Reverse;

use super::options::Layout;
use crate::context::Context;
use crate::error::Result;
use crate::graph::Graph;
use crate::row_numbers::RowSet;

/// Rounds of block neighbour frequency at most (Starling's beta, appendix C).
const ROUNDS_MAX: usize = 8;
/// Rounds end where the overlap ratio gains less than this (Starling's tau, appendix C).
const GAIN_MIN: f64 = 0.01;
/// What no page has.
const NO_PAGE: u32 = u32::MAX;

/// Where vertices lie: in which order, and what of it.
pub(super) struct Arrangement {
    /// The vertex of the graph at each place.
    pub(super) order: Vec<u32>,
    /// The overlap ratio OR(G): which share of the other vertices on its page are neighbours of a vertex, on average
    /// (Starling, section 4.1).
    pub(super) overlap_ratio: f64,
}

impl Arrangement {
    /// Arranges the vertices of a graph, which are numbered in the order of buckets, on pages of so many.
    ///
    /// # Errors
    /// Where the work is cancelled.
    pub(super) fn of(
        context: &Context,
        graph: &Graph,
        layout: Layout,
        records: usize,
        first_row: impl Fn(u32) -> u64,
    ) -> Result<Self> {
        let mut order: Vec<u32> = (0..graph.vertices() as u32).collect();
        match layout {
            Layout::Buckets => {}
            Layout::Rows => order.sort_unstable_by_key(|&vertex| first_row(vertex)),
            Layout::Bnf => return bnf(context, graph, order, records),
            Layout::Grown => order = grown(context, graph, &order, records)?,
        }
        let overlap_ratio = overlap_ratio(graph, &order, records);
        Ok(Self { order, overlap_ratio })
    }

    /// Bytes that arranging so many vertices takes.
    pub(super) fn memory_bytes(vertices: u64) -> u64 {
        5 * vertices * size_of::<u32>() as u64
    }
}

/// Block neighbour frequency (Starling, Algorithm 1): in each round a vertex goes to the page on which most of its neighbours
/// lay in the round before, among those with room; what finds no room fills up the rest.
fn bnf(context: &Context, graph: &Graph, order: Vec<u32>, records: usize) -> Result<Arrangement> {
    let mut best = Arrangement { overlap_ratio: overlap_ratio(graph, &order, records), order };
    context.progress.begin("layout", "rounds", ROUNDS_MAX as u64);
    for round in 0..ROUNDS_MAX {
        context.cancel.check()?;
        let order = bnf_round(graph, &best.order, records);
        let next = Arrangement { overlap_ratio: overlap_ratio(graph, &order, records), order };
        let gain = next.overlap_ratio - best.overlap_ratio;
        if gain > 0.0 {
            best = next;
        }
        if gain < GAIN_MIN {
            break;
        }
        context.progress.advance(round as u64 + 1);
    }
    Ok(best)
}

/// Pages filled one after the other, each from the first vertex in `order` that has no page: always with the vertex that has
/// the most edges from and to those on the page, of equal ones the first.
fn grown(context: &Context, graph: &Graph, order: &[u32], records: usize) -> Result<Vec<u32>> {
    let mut growth = Growth { graph, placed: RowSet::new(order.len() as u64), near: Vec::new() };
    let mut grown: Vec<u32> = Vec::with_capacity(order.len());
    let mut seeds = order.iter().copied();
    for start in (0..order.len()).step_by(records) {
        context.cancel.check()?;
        growth.near.clear();
        while grown.len() < (start + records).min(order.len()) {
            let seed = || seeds.find(|&vertex| !growth.placed.contains(vertex.into())).expect("some have no page");
            let vertex = growth.nearest().unwrap_or_else(seed);
            grown.push(vertex);
            growth.place(vertex, &grown[start..]);
        }
    }
    Ok(grown)
}

/// A page that grows.
struct Growth<'a> {
    graph: &'a Graph,
    /// Vertices that have a page.
    placed: RowSet,
    /// Vertices without one that edges lead to from this page, and how many edges lie between each and the page.
    near: Vec<(u32, u32)>,
}

impl Growth<'_> {
    /// The vertex with the most edges.
    fn nearest(&self) -> Option<u32> {
        self.near.iter().max_by_key(|near| (near.1, Reverse(near.0))).map(|near| near.0)
    }

    /// Puts a vertex on the page, whose vertices it is among.
    fn place(&mut self, vertex: u32, page: &[u32]) {
        let Self { graph, placed, near } = self;
        placed.insert(vertex.into());
        near.retain(|near| near.0 != vertex);
        near.iter_mut().for_each(|near| near.1 += u32::from(graph.neighbours(near.0).contains(&vertex)));
        for &neighbour in graph.neighbours(vertex).iter().filter(|&&neighbour| !placed.contains(neighbour.into())) {
            if let Some(near) = near.iter_mut().find(|near| near.0 == neighbour) {
                near.1 += 1;
                continue;
            }
            let back = graph.neighbours(neighbour).iter().filter(|member| page.contains(member)).count();
            near.push((neighbour, 1 + back as u32));
        }
    }
}

fn bnf_round(graph: &Graph, order: &[u32], records: usize) -> Vec<u32> {
    let pages = order.len().div_ceil(records);
    let before = pages_of(order, records);
    let mut of_vertex = vec![NO_PAGE; order.len()];
    let mut filled = vec![0u32; pages];
    let room = |page: u32| match page as usize + 1 == pages {
        true => order.len() - (pages - 1) * records,
        false => records,
    };
    let mut of_neighbours: Vec<u32> = Vec::new();
    for &vertex in order {
        of_neighbours.clear();
        of_neighbours.extend(graph.neighbours(vertex).iter().map(|&neighbour| before[neighbour as usize]));
        of_neighbours.sort_unstable();
        // The most frequent page with room; of equally frequent ones the first.
        let mut most: Option<(usize, u32)> = None;
        for same in of_neighbours.chunk_by(|a, b| a == b) {
            let has_room = (filled[same[0] as usize] as usize) < room(same[0]);
            if has_room && most.is_none_or(|(count, _)| same.len() > count) {
                most = Some((same.len(), same[0]));
            }
        }
        if let Some((_, page)) = most {
            of_vertex[vertex as usize] = page;
            filled[page as usize] += 1;
        }
    }
    let mut free = 0;
    for &vertex in order {
        if of_vertex[vertex as usize] == NO_PAGE {
            while filled[free as usize] as usize == room(free) {
                free += 1;
            }
            of_vertex[vertex as usize] = free;
            filled[free as usize] += 1;
        }
    }
    by_page(order, &of_vertex, pages)
}

/// The vertices in the order of their pages, and on one page in that of `order`.
fn by_page(order: &[u32], of_vertex: &[u32], pages: usize) -> Vec<u32> {
    let mut starts = vec![0u32; pages + 1];
    of_vertex.iter().for_each(|&page| starts[page as usize + 1] += 1);
    for page in 0..pages {
        starts[page + 1] += starts[page];
    }
    let mut sorted = vec![0; order.len()];
    for &vertex in order {
        let start = &mut starts[of_vertex[vertex as usize] as usize];
        sorted[*start as usize] = vertex;
        *start += 1;
    }
    sorted
}

/// The page of each vertex.
fn pages_of(order: &[u32], records: usize) -> Vec<u32> {
    let mut pages = vec![0; order.len()];
    (0..).zip(order.chunks(records)).for_each(|(page, on_page): (u32, &[u32])| {
        on_page.iter().for_each(|&vertex| pages[vertex as usize] = page);
    });
    pages
}

/// OR(G) of vertices in this order; 0 where no vertex shares its page.
fn overlap_ratio(graph: &Graph, order: &[u32], records: usize) -> f64 {
    let pages = pages_of(order, records);
    let of_page = |(page, on_page): (u32, &[u32])| {
        let others = on_page.len() - 1;
        let neighbours = on_page.iter().flat_map(|&vertex| graph.neighbours(vertex));
        let near = neighbours.filter(|&&neighbour| pages[neighbour as usize] == page).count();
        if others == 0 { 0.0 } else { near as f64 / others as f64 }
    };
    (0..).zip(order.chunks(records)).map(of_page).sum::<f64>() / order.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use adjoin_kernels::Panel;

    use super::*;
    use crate::graph::GraphOptions;
    use crate::random::Random;

    /// OR(G) by its formula.
    fn ratio(graph: &Graph, order: &[u32], records: usize) -> f64 {
        let of = |page: &[u32], vertex: u32| {
            let near = page.iter().filter(|&&other| graph.neighbours(vertex).contains(&other)).count();
            if page.len() == 1 { 0.0 } else { near as f64 / (page.len() - 1) as f64 }
        };
        let pages = order.chunks(records);
        let all: f64 = pages.flat_map(|page| page.iter().map(move |&vertex| of(page, vertex))).sum();
        all / order.len() as f64
    }

    #[test]
    fn all_layouts_are_orders_of_all_vertices_with_the_ratio_that_they_say() {
        let (context, mut random) = (Context::default(), Random::new(1, "layouts"));
        for vertices in [1, 2, 15, 16, 200] {
            let mut panel = Panel::<u8>::zeroed(vertices, 3);
            (0..vertices).for_each(|row| panel.row_mut(row).fill_with(|| random.below(256) as u8));
            let options = GraphOptions { degree: 5, build_list: 10, ..GraphOptions::default() };
            let graph = Graph::build(&context, &panel, &options).unwrap();
            for (layout, records) in [Layout::Rows, Layout::Buckets, Layout::Bnf, Layout::Grown]
                .into_iter()
                .flat_map(|layout| [1, 4, 15].map(|records| (layout, records)))
            {
                let first_row = |vertex: u32| u64::from(1_000 - vertex);
                let arrangement = Arrangement::of(&context, &graph, layout, records, first_row).unwrap();
                let mut sorted = arrangement.order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..vertices as u32).collect::<Vec<_>>(), "{layout}");
                let difference = arrangement.overlap_ratio - ratio(&graph, &arrangement.order, records);
                assert!(difference.abs() < 1e-12, "{layout}: {difference}");
            }
        }
    }
}
