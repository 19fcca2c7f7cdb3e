//! Measures the build time and the recall of a graph in memory.
//!
//! `vamana FILE [THREADS [DEGREE [LIST [ALPHA]]]]` uses the last 1,000 vectors of a `.u8bin` file as queries, and
//! builds a graph over the others. For several list lengths, it prints the recall of the 10 nearest, distances and
//! hops per query, and queries per second on one thread. Except for times and rates, the numbers depend only on the
//! graph: equal numbers mean equal graphs.

use crate::held_out::{HeldOut, KS, TEN};
use adjoin::{
    Context, Error, GraphOptions, Result,
    lab::{graph::Graph, report::Stopwatch},
};

const LISTS: [usize; 6] = [10, 20, 40, 75, 100, 200];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let file = arguments.first().ok_or_else(|| Error::input("give a u8bin file"))?;
    let usual = GraphOptions::default();
    let degree = number(arguments, 2, usual.degree)?;
    let options = GraphOptions {
        degree,
        build_list: number(arguments, 3, usual.build_list.max(degree))?,
        alpha: number(arguments, 4, usual.alpha)?,
        ..usual
    };
    let threads = number(arguments, 1, 2)?;
    let context = Context::default().with_resources(Some("8GiB"), Some(threads))?;
    let held = HeldOut::<u8>::read(&context, file, 0)?;
    let (rows, watch) = (held.base.rows(), Stopwatch::start());
    let graph = Graph::build(&context, &held.base, &options)?;
    println!("{rows} vectors, {options:?}, {} threads: {:.1} s", context.threads, watch.seconds());
    graph.verify()?;
    let edges: usize = (0..rows as u32).map(|vertex| graph.neighbors(vertex).len()).sum();
    println!("mean degree {:.2}", edges as f64 / rows.max(1) as f64);
    for list in LISTS {
        let found = held.search(&context, &graph, list);
        println!(
            "L {list:3}: recall@{} {:.4}, {:.0} distances, {:.1} hops, {:.0} queries a second",
            KS[TEN],
            found.recalls[TEN],
            found.distances,
            found.hops,
            1.0 / found.seconds
        );
    }
    Ok(())
}

fn number<N: std::str::FromStr>(arguments: &[String], place: usize, otherwise: N) -> Result<N> {
    let Some(text) = arguments.get(place) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::option(format!("{text} is no number that fits")))
}
