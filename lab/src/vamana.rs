//! Measures the build time and the recall of a graph in memory.
//!
//! `vamana FILE [THREADS [DEGREE [LIST [ALPHA]]]]` uses the last 1,000 vectors of a `.u8bin` file as queries, and
//! builds a graph over the others. For several list lengths, it prints the recall of the 10 nearest, distances and
//! hops per query, and queries per second on one thread. Except for times and rates, the numbers depend only on the
//! graph: equal numbers mean equal graphs.

use crate::held_out::{QUERIES, read, truth};
use adjoin::{
    Context, Error, GraphOptions, Result,
    kernels::Panel,
    lab::{
        graph::{Graph, GreedySearch},
        report::Stopwatch,
    },
};

const K: usize = 10;
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
    let (base, queries) = read(file)?;
    let watch = Stopwatch::start();
    let graph = Graph::build(&context, &base, &options)?;
    println!("{} vectors, {options:?}, {} threads: {:.1} s", base.rows(), context.threads, watch.seconds());
    graph.verify()?;
    let edges: usize = (0..base.rows() as u32).map(|vertex| graph.neighbors(vertex).len()).sum();
    println!("mean degree {:.2}", edges as f64 / base.rows().max(1) as f64);
    let truth = truth::<K>(&context, &base, &queries)?;
    LISTS.iter().for_each(|&list| measure(&context, &graph, &base, &queries, &truth, list));
    Ok(())
}

fn number<N: std::str::FromStr>(arguments: &[String], place: usize, otherwise: N) -> Result<N> {
    let Some(text) = arguments.get(place) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::option(format!("{text} is no number that fits")))
}

fn measure(context: &Context, graph: &Graph, base: &Panel<u8>, queries: &Panel<u8>, truth: &[[u32; K]], list: usize) {
    let mut search = GreedySearch::new(graph);
    let (mut found, mut distances, mut hops) = (0, 0, 0);
    let watch = Stopwatch::start();
    for (query, nearest) in truth.iter().enumerate() {
        search.run(context.kernel, graph, base, queries.row(query), list);
        found += search.nearest(K).filter(|near| near.squared_distance <= f64::from(nearest[K - 1])).count();
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
