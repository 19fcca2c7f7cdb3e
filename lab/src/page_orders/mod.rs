//! Orders of the vertices of an index on its pages, to compare the engine's order with. Each order has a file of its
//! own.
//!
//! All orders except `rows` work on a window. Except for `gp1`, they use only the edges within the window. For the
//! orders of Starling that use edges and for `grown-whole`, the whole graph is one window, as in the paper, unless it is
//! too large for that. The other orders have the windows of the engine.

mod bnf;
mod bnp;
mod breadth_first;
mod growing;
mod halving;
mod margo;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use adjoin::{
    Cancel, Context, Error, Index, RelayoutReport, Result,
    kernels::{Kernel, Panel},
    lab::{
        Edges, GivenOrder, PageGraph, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, relayout_in_order,
        report::Stopwatch, swapped, weight, windows, workers::map_items,
    },
};

use self::bnf::Turns;

/// Largest number of vertices that an order of Starling sees at once. It is the most that [`Edges`] takes.
const WHOLE_MAX: u32 = 1 << 20;

/// An order of vertices on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageOrder {
    /// By row number, as in DiskANN.
    Rows,
    /// Page by page, each with a vertex and its neighbors: block neighbor padding (Starling, section 4.1).
    Bnp,
    /// Puts each vertex on the page with the most of its neighbors: block neighbor frequency (Starling, section 4.1).
    Bnf,
    /// `Bnf`, followed by swaps of two vertices: block neighbor swap (Starling, appendix E).
    Bns,
    /// Pages that grow along edges, followed by swaps. This is the order of the engine.
    Grown,
    /// `Grown`, with the whole graph as one window.
    GrownWhole,
    /// Heavy edges first. The weight of an edge is its use for monotonic paths (MARGO, VLDB 2025).
    Margo,
    /// Breadth first, with vertices of few edges before others (NDSearch, section VI-A).
    Degree,
    /// Breadth first by vertex number. `Degree` is compared with it.
    Bfs,
    /// Repeated halving of the vectors, until each group fits on a page: hierarchical balanced clustering (GP1 in
    /// Starling, appendix G).
    Gp1,
    /// All pages grow at the same time: k-way greedy graph growing (GP2 in Starling, appendix G).
    Gp2,
    /// Block neighbor frequency with larger gains first: prioritized restreaming (GP3 in Starling, appendix G).
    Gp3,
}

/// Vectors of a window in the order of its vertices, and the kernel that compares them.
#[derive(Clone, Copy)]
pub(crate) struct WindowVectors<'v> {
    kernel: Kernel,
    panel: &'v Panel<f32>,
}

impl PageOrder {
    /// All orders.
    pub(crate) const ALL: [Self; 12] = [
        Self::Rows,
        Self::Bnp,
        Self::Bnf,
        Self::Bns,
        Self::Grown,
        Self::GrownWhole,
        Self::Margo,
        Self::Degree,
        Self::Bfs,
        Self::Gp1,
        Self::Gp2,
        Self::Gp3,
    ];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Bnp => "bnp",
            Self::Bnf => "bnf",
            Self::Bns => "bns",
            Self::Grown => "grown",
            Self::GrownWhole => "grown-whole",
            Self::Margo => "margo",
            Self::Degree => "degree",
            Self::Bfs => "bfs",
            Self::Gp1 => "gp1",
            Self::Gp2 => "gp2",
            Self::Gp3 => "gp3",
        }
    }

    /// Returns whether the order improves another one in rounds.
    pub(crate) fn has_rounds(self) -> bool {
        matches!(self, Self::Bnf | Self::Bns | Self::Grown | Self::GrownWhole | Self::Gp3)
    }

    /// Returns the windows of a graph with `vertices` vertices.
    fn windows(self, vertices: u32, records: usize) -> Vec<Range<u32>> {
        match self {
            Self::Bnp | Self::Bnf | Self::Bns | Self::GrownWhole | Self::Gp2 | Self::Gp3 if vertices <= WHOLE_MAX => {
                std::iter::once(0..vertices).collect()
            }
            _ => windows(vertices, records).collect(),
        }
    }

    /// Orders the vertices of a window. If the order improves another one, it does so in at most `rounds_max` rounds
    /// (Starling's beta, appendix C). Only `gp1` needs `vectors`.
    ///
    /// # Errors
    /// If the work is canceled.
    pub(crate) fn of_window(
        self,
        cancel: &Cancel,
        edges: &Edges,
        vectors: Option<WindowVectors<'_>>,
        room: Room,
        rounds_max: usize,
    ) -> Result<Vec<u32>> {
        let swaps = |weight: fn(Tie) -> u32, order| swapped(cancel, edges, room, order, weight, rounds_max);
        match self {
            // `Rows` is an order of the whole graph, which `of_graph` computes.
            Self::Rows => Ok(edges.numbers().collect()),
            Self::Bnp => Ok(bnp::bnp(edges, room)),
            Self::Bnf => bnf::bnf(cancel, edges, room, Turns::Shuffled, rounds_max),
            Self::Bns => swaps(Tie::edges, bnf::bnf(cancel, edges, room, Turns::Shuffled, ROUNDS_MAX)?),
            Self::Grown | Self::GrownWhole => swaps(weight, grown(cancel, edges, room)?),
            Self::Margo => margo::margo(cancel, edges, room),
            Self::Degree => Ok(breadth_first::by_degree(edges)),
            Self::Bfs => Ok(breadth_first::by_number(edges)),
            Self::Gp1 => halving::halved(cancel, vectors.expect("GP1 gets the vectors of the window"), room),
            Self::Gp2 => growing::growing(cancel, edges, room),
            Self::Gp3 => bnf::bnf(cancel, edges, room, Turns::Gain, rounds_max),
        }
    }

    /// Orders all vertices of an index. Returns the vertex at each place, and the overlap ratio OR(G): the mean
    /// fraction of the other vertices on a vertex's page that are its neighbors.
    ///
    /// # Errors
    /// If the work is canceled.
    pub(crate) fn of_graph(self, context: &Context, graph: &PageGraph, rounds_max: usize) -> Result<(Vec<u32>, f64)> {
        let (vertices, records) = (graph.rows.len() as u32, graph.records);
        if self == Self::Rows {
            let mut order: Vec<u32> = (0..vertices).collect();
            order.sort_unstable_by_key(|&vertex| graph.rows[vertex as usize]);
            let ratio = ratio(graph, &order);
            return Ok((order, ratio));
        }
        let windows = self.windows(vertices, records);
        let of_window = |(): &mut (), number: usize| {
            let window = windows[number].clone();
            let edges = Edges::of(window.clone(), |vertex| graph.neighbors(vertex));
            let panel = (self == Self::Gp1).then(|| {
                let mut panel = Panel::zeroed(window.len(), graph.vectors.dimensions());
                for (at, vertex) in window.clone().enumerate() {
                    let row = &graph.vectors.row(vertex as usize)[..graph.vectors.dimensions()];
                    panel.row_mut(at).copy_from_slice(row);
                }
                panel
            });
            let vectors = panel.as_ref().map(|panel| WindowVectors { kernel: context.kernel, panel });
            let room = Room::new(window.len(), records);
            let order = self.of_window(&context.cancel, &edges, vectors, room, rounds_max)?;
            let ratio = overlap_ratio(&edges, &order, room);
            Ok((order.into_iter().map(|vertex| vertex + window.start).collect::<Vec<u32>>(), ratio))
        };
        let laid = map_items(context.threads, windows.len(), &context.cancel, || (), of_window)?;
        let (mut all, mut sum) = (Vec::with_capacity(vertices as usize), 0.0);
        for (order, ratio) in laid {
            sum += ratio * order.len() as f64;
            all.extend(order);
        }
        Ok((all, sum / f64::from(vertices.max(1))))
    }
}

/// Returns the overlap ratio of an order of all vertices.
fn ratio(graph: &PageGraph, order: &[u32]) -> f64 {
    let mut page_of = vec![0; order.len()];
    (0..).zip(order).for_each(|(place, &vertex): (usize, _)| page_of[vertex as usize] = place / graph.records);
    let of_page = |page: &[u32]| {
        let near = |&vertex: &u32| {
            let own = page_of[vertex as usize];
            graph.neighbors(vertex).iter().filter(|&&other| page_of[other as usize] == own).count()
        };
        let others = page.len() - 1;
        if others == 0 { 0.0 } else { page.iter().map(near).sum::<usize>() as f64 / others as f64 }
    };
    order.chunks(graph.records).map(of_page).sum::<f64>() / order.len().max(1) as f64
}

/// Writes an index in another page order into another folder. An index in that folder is replaced. In the report,
/// `layout_seconds` is the time to compute the order.
///
/// # Errors
/// If the index cannot be read or written.
pub(crate) fn relayout(context: &Context, folder: &Path, output: &Path, order: PageOrder) -> Result<RelayoutReport> {
    let mut watch = Stopwatch::start();
    let graph = PageGraph::read(context, &Index::open(context, folder)?)?;
    let (places, _) = order.of_graph(context, &graph, ROUNDS_MAX)?;
    drop(graph);
    let layout_seconds = watch.lap();
    let order = GivenOrder { name: order.name(), order: &places };
    Ok(RelayoutReport { layout_seconds, ..relayout_in_order(context, folder, Some(output), order, true)? })
}

/// Runs `relayout INDEX FOLDER ORDER [threads=N]`. It writes an index in a page order of this module.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [index, folder, order, named @ ..] = arguments else {
        return Err(Error::option("give INDEX FOLDER ORDER [threads=N]"));
    };
    let mut context = Context::default().with_memory(8 << 30);
    if let Some(threads) = named.iter().find_map(|word| word.strip_prefix("threads=")) {
        context.threads = threads.parse().map_err(|_| Error::option(format!("{threads} is no number of threads")))?;
    }
    let relaid = relayout(&context, Path::new(index), Path::new(folder), order.parse()?)?;
    let (ratio, seconds) = (100.0 * relaid.manifest.overlap_ratio, relaid.layout_seconds);
    eprintln!("{order}: {ratio:.2} % of a vector's page are neighbors; order of pages in {seconds:.1} s");
    Ok(())
}

impl fmt::Display for PageOrder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for PageOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(format!("the order of pages is {name:?}; give one of {names}"))
        })
    }
}
