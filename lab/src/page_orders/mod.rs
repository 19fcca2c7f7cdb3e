//! Orders of the vertices of an index on its pages, to compare the order of the engine with. An order is a file.
//!
//! All but `rows` put the vertices of a window of the engine into an order of their own, and all of these but `gp1` go by the
//! edges among them alone.

mod bnf;
mod bnp;
mod breadth_first;
mod growing;
mod halving;
mod margo;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::index::{Index, RelayoutReport};
use adjoin::kernels::{Kernel, Panel};
use adjoin::lab::{
    Edges, GivenOrder, PageGraph, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, relayout_in_order, swapped, weight,
    windows,
};
use adjoin::report::{Cancel, Stopwatch};
use adjoin::workers::map_items;

use self::bnf::Turns;

/// Rounds end where the overlap ratio gains less than this (Starling's tau; with the paper's 0.01 most of beta goes unused).
const GAIN_MIN: f64 = 0.001;

/// In which order vertices lie on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageOrder {
    /// By row number, as DiskANN lays them.
    Rows,
    /// A vertex and its neighbors, page by page: block neighbor padding (Starling, section 4.1).
    Bnp,
    /// Each to the page on which most of its neighbors are: block neighbor frequency (Starling, section 4.1).
    Bnf,
    /// Swaps of two vertices after that: block neighbor swap (Starling, appendix E).
    Bns,
    /// Pages that grow along the edges, then the same swaps: the order of the engine.
    Grown,
    /// Heavy edges first, where an edge weighs as a monotonic path needs it (MARGO, VLDB 2025).
    Margo,
    /// Breadth first, from and to vertices of few edges before others (NDSearch, section VI-A).
    Degree,
    /// Breadth first by the numbers of vertices, the base of that.
    Bfs,
    /// Halves of halves of the vectors, down to a page: hierarchical balanced clustering (GP1 in Starling, appendix G).
    Gp1,
    /// All pages grow at the same time: k-way greedy graph growing (GP2 in Starling, appendix G).
    Gp2,
    /// Block neighbor frequency, who gains most first: prioritised restreaming (GP3 in Starling, appendix G).
    Gp3,
}

/// The vectors of a window, in the order of its vertices.
type Vectors<'v> = (Kernel, &'v Panel<f32>);

impl PageOrder {
    /// All orders.
    pub(crate) const ALL: [Self; 11] = [
        Self::Rows,
        Self::Bnp,
        Self::Bnf,
        Self::Bns,
        Self::Grown,
        Self::Margo,
        Self::Degree,
        Self::Bfs,
        Self::Gp1,
        Self::Gp2,
        Self::Gp3,
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Bnp => "bnp",
            Self::Bnf => "bnf",
            Self::Bns => "bns",
            Self::Grown => "grown",
            Self::Margo => "margo",
            Self::Degree => "degree",
            Self::Bfs => "bfs",
            Self::Gp1 => "gp1",
            Self::Gp2 => "gp2",
            Self::Gp3 => "gp3",
        }
    }

    /// Whether it improves another order in rounds.
    pub(crate) fn has_rounds(self) -> bool {
        matches!(self, Self::Bnf | Self::Bns | Self::Grown | Self::Gp3)
    }

    /// Orders the vertices of a window; an order that improves another one does so in at most `rounds_max` rounds (Starling's
    /// beta, appendix C). `vectors` are needed by `gp1` alone.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(crate) fn of_window(
        self,
        cancel: &Cancel,
        (edges, vectors): (&Edges, Option<Vectors<'_>>),
        room: Room,
        rounds_max: usize,
    ) -> Result<Vec<u32>> {
        let swaps = |weight: fn(Tie) -> u32, order| swapped(cancel, (edges, room), (weight, rounds_max), order);
        match self {
            // The order of rows is that of no window.
            Self::Rows => Ok(edges.numbers().collect()),
            Self::Bnp => Ok(bnp::bnp(edges, room)),
            Self::Bnf => bnf::bnf(cancel, (edges, room), (Turns::Before, rounds_max)),
            Self::Bns => swaps(Tie::edges, bnf::bnf(cancel, (edges, room), (Turns::Before, ROUNDS_MAX))?),
            Self::Grown => swaps(weight, grown(cancel, edges, room)?),
            Self::Margo => margo::margo(cancel, edges, room),
            Self::Degree => Ok(breadth_first::by_degree(edges)),
            Self::Bfs => Ok(breadth_first::by_number(edges)),
            Self::Gp1 => halving::halved(cancel, vectors.expect("those of the window"), room),
            Self::Gp2 => growing::growing(cancel, edges, room),
            Self::Gp3 => bnf::bnf(cancel, (edges, room), (Turns::Gain, rounds_max)),
        }
    }

    /// Orders all vertices of an index; returns the vertex at each place, and the overlap ratio OR(G): which share of the other
    /// vertices on its page are neighbors of a vertex, on average.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(crate) fn of_graph(self, context: &Context, graph: &PageGraph, rounds_max: usize) -> Result<(Vec<u32>, f64)> {
        let (vertices, records) = (graph.rows.len() as u32, graph.records);
        if self == Self::Rows {
            let mut order: Vec<u32> = (0..vertices).collect();
            order.sort_unstable_by_key(|&vertex| graph.rows[vertex as usize]);
            let ratio = ratio(graph, &order);
            return Ok((order, ratio));
        }
        let windows: Vec<_> = windows(vertices, records).collect();
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
            let vectors = panel.as_ref().map(|panel| (context.kernel, panel));
            let room = Room::new(window.len(), records);
            let order = self.of_window(&context.cancel, (&edges, vectors), room, rounds_max)?;
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

/// The overlap ratio of an order that knows no windows.
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

/// Lays out an index in an order, into another folder, in place of an index there; `layout_seconds` are those of the order.
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

/// `relayout INDEX FOLDER ORDER [threads=N]` writes an index whose vectors lie on pages in an order of this module.
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
