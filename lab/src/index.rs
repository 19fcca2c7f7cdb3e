//! Measures the reads and the recall of searches of a graph index.
//!
//! `index BASE QUERIES FOLDER [NAME=VALUE...]` builds a store and an index in FOLDER unless they exist. It uses the
//! first 1,000 queries. For several list lengths, it prints the recall of the 10 nearest, reads and distances per
//! query, queries per second, and the processor time per query. Reads depend only on the index and the queries. Rates
//! also depend on the machine. Names:
//! - `layout`, `page-bytes`, `code-bytes`, `degree`
//! - `graph`: near, or vamana for a graph that is built in memory by inserting one vertex after another
//!   (FreshDiskANN, Algorithm 2)
//! - `megabytes` (budget of the build), `search-megabytes`, `kernel`, `threads`
//! - `strategy` (of walks), `lists` and `recalls` (numbers separated by commas), `rounds` (number of searches with
//!   all lists)
//! - `lone=1`: searches for one query after another

use std::path::Path;

use crate::one_query::OneQuery;
use crate::page_orders::{PageOrder, relayout};
use crate::walks;
use adjoin::{
    BuildOptions, BuiltIndex, Collect, Context, Error, Index, IndexOptions, QueryTarget, Result, SearchEffort,
    SearchOptions, SearchQueries, SourceOptions, Store, VectorSource,
    kernels::Kernel,
    lab::{
        VertexVectors, buckets, build_with_graph,
        graph::Graph,
        index,
        query::QuerySources,
        report::{LatencyStatistics, Stopwatch},
        source, vertex_vectors,
    },
};

const QUERIES: usize = 1_000;
const K: usize = 10;
const LISTS: &str = "20,30,40,60,80,120,160";
const RECALLS: &str = "0.8,0.9,0.95,0.99";

/// Returns the value given for a name, or `otherwise` if there is none.
fn named<N: std::str::FromStr>(arguments: &[String], name: &str, otherwise: N) -> Result<N> {
    let mut values = arguments.iter().filter_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
    let Some(text) = values.next() else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::option(format!("{text} is no {name}")))
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [base, queries, folder, arguments @ ..] = arguments else {
        return Err(Error::input("give BASE QUERIES FOLDER"));
    };
    let folder = Path::new(folder);
    let mut options = IndexOptions::default();
    let layout = named(arguments, "layout", PageOrder::Grown)?;
    options.page_bytes = named(arguments, "page-bytes", options.page_bytes)?;
    let (degree, code_bytes) = (named(arguments, "degree", 0)?, named(arguments, "code-bytes", 0)?);
    options.degree = Some(degree).filter(|&degree| degree > 0);
    options.code_bytes = Some(code_bytes).filter(|&bytes| bytes > 0);
    let method = named(arguments, "graph", "near".to_owned())?;
    let megabytes: u64 = named(arguments, "megabytes", 8_000)?;
    let mut context = Context::default().with_memory(named(arguments, "search-megabytes", 8_000)? * 1_000_000);
    context.threads = named(arguments, "threads", context.threads)?;
    if let Some(kernel) = Kernel::named(&named(arguments, "kernel", String::new())?) {
        context.kernel = kernel;
    }
    let building = Context::default().with_memory(megabytes * 1_000_000);
    let open = |file: &String| source::open(&context, std::slice::from_ref(file), &SourceOptions::default());
    let (base, queries) = (open(base)?, open(queries)?);
    let at = folder.join("store");
    if !at.exists() {
        Store::build(&context, &*base, &at, &BuildOptions::default())?;
    }
    let store = Store::open(&context, &at)?;
    let graph = options.graph(store.manifest().vectors);
    let place =
        folder.join(format!("{layout}-{}-{code_bytes}-{}-{method}-{megabytes}", options.page_bytes, graph.degree));
    if !place.exists() {
        let built = match method.as_str() {
            "near" => Index::build(&building, &store, &place, &options, false)?,
            "vamana" => build_by_inserts(&building, &store, &place, &options)?,
            _ => return Err(Error::option(format!("{method} is no graph; give near or vamana"))),
        };
        let (load, graph) = (built.load_seconds, built.graph_seconds);
        let (order, write) = (built.layout_seconds, built.write_seconds);
        println!("built: load {load:.1} s, graph {graph:.1} s, layout {order:.1} s, codes and writing {write:.1} s");
        println!("recall {:.1} s, {:?}, {:?}", built.calibrate_seconds, built.io, building.memory());
        if layout != PageOrder::Grown {
            relayout(&context, &place, &place, layout)?;
        }
    }
    let strategy = walks::parse(&named(arguments, "strategy", String::new())?)?;
    let index = Index::open(&context, &place)?.walking_by(strategy);
    let facts = index.facts();
    println!("{} vectors, {options:?}, overlap ratio {:.3}", facts.rows, facts.overlap_ratio);
    let truth = truth(&context, &store, &*queries)?;
    let bench = Bench { context: &context, index: &index, queries: &*queries, truth: &truth };
    let lists = named(arguments, "lists", LISTS.to_owned())?;
    println!("list  recall@10  reads  from disk  distances  queries/s  CPU ms  mean ms  p50 ms  p99 ms");
    for _ in 0..named(arguments, "rounds", 1)? {
        for list in lists.split(',').map(str::parse) {
            let list = list.map_err(|_| Error::option(format!("{lists} are no lists")))?;
            if named(arguments, "lone", 0)? == 1 {
                bench.measure_lone(list)?;
            } else {
                bench.measure(SearchEffort::List(list))?;
            }
        }
    }
    for recall in named(arguments, "recalls", RECALLS.to_owned())?.split(',').filter_map(|recall| recall.parse().ok()) {
        println!("asked for {recall}:");
        bench.measure(SearchEffort::Recall(recall))?;
    }
    Ok(())
}

/// Builds an index with a graph that is built in memory, by inserting one vertex after another.
fn build_by_inserts(context: &Context, store: &Store, place: &Path, options: &IndexOptions) -> Result<BuiltIndex> {
    let mut watch = Stopwatch::start();
    let vectors = vertex_vectors(context, store)?;
    let load_seconds = watch.lap();
    let of_graph = options.graph(store.manifest().vectors);
    let graph = match vectors {
        VertexVectors::Bytes(vectors) => Graph::build(context, &vectors, &of_graph)?,
        VertexVectors::Floats(vectors) => Graph::build(context, &vectors, &of_graph)?,
    };
    let graph_seconds = watch.lap();
    let built = build_with_graph(context, store, place, options, &graph, "vamana")?;
    let load_seconds = built.load_seconds + load_seconds;
    Ok(BuiltIndex { load_seconds, graph_seconds: built.graph_seconds + graph_seconds, ..built })
}

/// An index, and queries. `truth` has, for each query, the distance to the farthest of its true hits.
struct Bench<'a> {
    context: &'a Context,
    index: &'a Index,
    queries: &'a dyn VectorSource,
    truth: &'a [f32],
}

impl Bench<'_> {
    /// Searches with a given effort, and prints recall and cost.
    fn measure(&self, effort: SearchEffort) -> Result<()> {
        let &Self { context, index, queries, truth } = self;
        let sink = Collect::default();
        let options = SearchOptions::new(QueryTarget::Nearest(K as u64), effort, 1);
        let before = processor_ms();
        let found = index::search(context, index, QuerySources::new(queries), &options, Box::new(sink.clone()))?;
        let (list, read) = (found.common.strategy.t.unwrap_or(0.0), found.common.io.reads.unwrap_or(0));
        let found = found.search;
        let read = read as f64 / found.queries as f64;
        let processor_ms = (processor_ms() - before) / found.queries as f64;
        let hits = sink.hits();
        let right = |(hits, &far): (&Vec<(u64, f32)>, &f32)| hits.iter().filter(|hit| hit.1 <= far).count();
        let right: usize = hits.iter().zip(truth).map(right).sum();
        let recall = right as f64 / (K * truth.len()) as f64;
        let latency = found.latency_ms.map_or((0.0, 0.0, 0.0), |latency| (latency.mean, latency.p50, latency.p99));
        println!(
            "{list:4} {recall:10.4} {:6.1} {read:10.1} {:10.0} {:10.0} {processor_ms:7.3} {:8.2} {:7.2} {:7.2}",
            found.reads_per_query, found.distances_per_query, found.queries_per_second, latency.0, latency.1, latency.2
        );
        Ok(())
    }

    /// Searches for one query at a time, and prints the cost.
    fn measure_lone(&self, list: usize) -> Result<()> {
        let &Self { context, index, queries, .. } = self;
        let (mut latencies_ms, mut reads, mut pages_read) = (Vec::new(), 0.0, 0);
        let (before, options) =
            (processor_ms(), SearchOptions::new(QueryTarget::Nearest(K as u64), SearchEffort::List(list), 1));
        let mut scan = queries.scan(1)?;
        while let Some(batch) = scan.next_batch()? {
            let bytes = queries.info().vectors.bytes();
            for stored in batch.bytes.chunks_exact(bytes) {
                let query = OneQuery::new(queries.info(), stored.to_vec());
                let found =
                    index::search(context, index, QuerySources::new(&query), &options, Box::new(Collect::default()))?;
                latencies_ms.extend(found.search.latency_ms.map(|latency| latency.mean as f32));
                reads += found.search.reads_per_query;
                pages_read += found.common.io.reads.unwrap_or(0);
            }
        }
        let count = latencies_ms.len() as f64;
        let processor_ms = (processor_ms() - before) / count;
        let latency = LatencyStatistics::of(latencies_ms).ok_or_else(|| Error::input("there are no queries"))?;
        let (reads, pages_read) = (reads / count, pages_read as f64 / count);
        let LatencyStatistics { mean, p50, p99, .. } = latency;
        println!("{list:4} {reads:6.1} of {pages_read:6.1} {processor_ms:7.3} {mean:8.3} {p50:7.3} {p99:7.3}");
        Ok(())
    }
}

/// Returns the processor time of this process in milliseconds. Returns 0 if the system does not report it.
fn processor_ms() -> f64 {
    const TICK_MS: f64 = 10.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    TICK_MS * fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
}

/// Returns, for each query, the distance to the farthest of its true hits.
fn truth(context: &Context, store: &Store, queries: &dyn VectorSource) -> Result<Vec<f32>> {
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(K as u64), SearchEffort::Exact, 1);
    let sets = SearchQueries::new(queries);
    buckets::search(context, store, sets, &options, Box::new(sink.clone()))?;
    Ok(sink.hits().iter().filter_map(|hits| hits.last()).take(QUERIES).map(|farthest| farthest.1).collect())
}
