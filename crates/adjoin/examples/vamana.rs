//! How long does a graph in memory take to build, and what recall does it have?
//!
//! `vamana FILE [THREADS [DEGREE [LIST [ALPHA]]]]` takes the last 1,000 vectors of a u8bin file as queries, builds a graph
//! over the others, and prints for lists of several lengths the recall of the 10 nearest, distances and hops a query, and
//! queries a second on one thread. Each line is also true of the graph alone: equal numbers mean equal graphs.

use std::process::ExitCode;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::graph::{Graph, GraphOptions, GreedySearch};
use adjoin::kernels::Panel;
use adjoin::report::Stopwatch;
use adjoin::workers::map_items;

const QUERIES: usize = 1_000;
const K: usize = 10;
const LISTS: [usize; 6] = [10, 20, 40, 75, 100, 200];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vamana: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
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
    let (base, queries) = read(file)?;
    let watch = Stopwatch::start();
    let graph = Graph::build(&context, &base, &options)?;
    println!("{} vectors, {options:?}, {} threads: {:.1} s", base.rows(), context.threads, watch.seconds());
    graph.verify()?;
    let edges: usize = (0..base.rows() as u32).map(|vertex| graph.neighbours(vertex).len()).sum();
    println!("mean degree {:.2}", edges as f64 / base.rows().max(1) as f64);
    let truth = truth(&context, &base, &queries)?;
    LISTS.iter().for_each(|&list| measure(&context, (&graph, &base), &queries, &truth, list));
    Ok(())
}

fn number<N: std::str::FromStr>(arguments: &[String], place: usize, otherwise: N) -> Result<N> {
    let Some(text) = arguments.get(place) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::option(format!("{text} is no number that fits")))
}

/// All vectors of a file but the last, and the last as queries.
fn read(file: &str) -> Result<(Panel<u8>, Panel<u8>)> {
    let bytes = std::fs::read(file).map_err(|error| Error::input(format!("{file}: {error}")))?;
    let (header, elements) = bytes.split_at_checked(8).ok_or_else(|| Error::input(format!("{file}: too short")))?;
    let [rows, dimensions] = [0, 4].map(|at| header[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b)));
    if elements.len() != rows * dimensions || rows <= QUERIES {
        return Err(Error::input(format!("{file}: not a u8bin file of more than {QUERIES} vectors")));
    }
    let panel = |first: usize, count: usize| {
        let mut panel = Panel::zeroed(count, dimensions);
        for row in 0..count {
            panel.row_mut(row).copy_from_slice(&elements[(first + row) * dimensions..][..dimensions]);
        }
        panel
    };
    Ok((panel(0, rows - QUERIES), panel(rows - QUERIES, QUERIES)))
}

/// The squared distance of the tenth nearest to each query.
fn truth(context: &Context, base: &Panel<u8>, queries: &Panel<u8>) -> Result<Vec<u32>> {
    let distances = || vec![0; base.rows()];
    map_items(context.threads, QUERIES, &context.cancel, distances, |distances, query| {
        context.kernel.one_to_many(queries.row(query), base, distances);
        Ok(*distances.select_nth_unstable(K - 1).1)
    })
}

fn measure(context: &Context, (graph, base): (&Graph, &Panel<u8>), queries: &Panel<u8>, truth: &[u32], list: usize) {
    let mut search = GreedySearch::new(graph);
    let (mut found, mut distances, mut hops) = (0, 0, 0);
    let watch = Stopwatch::start();
    for (query, &tenth) in truth.iter().enumerate() {
        search.run(context.kernel, graph, base, queries.row(query), list);
        found += search.nearest(graph, K).filter(|near| near.squared_distance <= f64::from(tenth)).count();
        distances += search.distances();
        hops += search.hops();
    }
    let (seconds, queries) = (watch.seconds(), QUERIES as f64);
    println!(
        "L {list:3}: recall@10 {:.4}, {:.0} distances, {:.1} hops, {:.0} queries a second",
        found as f64 / (queries * K as f64),
        distances as f64 / queries,
        hops as f64 / queries,
        queries / seconds
    );
}
