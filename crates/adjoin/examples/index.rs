//! How many reads does a search of a graph index take, and what recall does it have?
//!
//! `index BASE QUERIES FOLDER [LAYOUT [PAGE_BYTES [CODE_BYTES [DEGREE]]]]` builds a store and an index in FOLDER, unless they
//! are there, and prints for lists of several lengths, and for lists that are to reach a recall, the recall of the 10 nearest of
//! the first 1,000 queries, reads and distances a query, and queries a second. Reads depend on nothing but the index and the queries; rates on the machine.

use std::path::Path;
use std::process::ExitCode;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::index::{self, Index, IndexEffort, IndexOptions, IndexSearchOptions};
use adjoin::search::{self, Effort, QuerySet, SearchOptions, Wanted};
use adjoin::sink::CollectHits;
use adjoin::source::{self, SourceOptions, VectorSource};
use adjoin::store::{self, BuildOptions, Store};

const QUERIES: usize = 1_000;
const K: usize = 10;
const LISTS: [usize; 7] = [20, 30, 40, 60, 80, 120, 160];
const RECALLS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("index: {error}");
            ExitCode::from(2)
        }
    }
}

fn number<N: std::str::FromStr>(arguments: &[String], place: usize, otherwise: N) -> Result<N> {
    let Some(text) = arguments.get(place) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::option(format!("{text} is none that can be given here")))
}

fn run(arguments: &[String]) -> Result<()> {
    let [base, queries, folder, ..] = arguments else { return Err(Error::input("give BASE QUERIES FOLDER")) };
    let folder = Path::new(folder);
    let mut options = IndexOptions::default();
    options.layout = number(arguments, 3, options.layout)?;
    options.page_bytes = number(arguments, 4, options.page_bytes)?;
    options.code_bytes = number(arguments, 5, options.code_bytes)?;
    options.graph.degree = number(arguments, 6, options.graph.degree)?;
    let context = Context::default().with_memory(8 << 30);
    let open = |file: &String| source::open(&context, std::slice::from_ref(file), &SourceOptions::default());
    let (base, queries) = (open(base)?, open(queries)?);
    let at = folder.join("store");
    if !at.exists() {
        store::build(&context, &*base, &at, &BuildOptions::default())?;
    }
    let IndexOptions { layout, page_bytes, code_bytes, graph } = options;
    let place = folder.join(format!("{layout}-{page_bytes}-{code_bytes}-{}", graph.degree));
    let store = Store::open(&context, &at)?;
    if !place.exists() {
        let built = index::build(&context, &store, &place, &options, false)?;
        let (load, graph) = (built.load_seconds, built.graph_seconds);
        let (layout, write) = (built.layout_seconds, built.write_seconds);
        let calibrate = built.calibrate_seconds;
        println!(
            "built: load {load:.1} s, graph {graph:.1} s, layout {layout:.1} s, codes and writing {write:.1} s, recall \
             {calibrate:.1} s"
        );
    }
    let index = Index::open(&context, &place)?;
    let facts = index.facts();
    println!("{} vectors, {options:?}, overlap ratio {:.3}", facts.rows, facts.overlap_ratio);
    let truth = truth(&context, &store, &*queries)?;
    println!("list  recall@10  reads  distances  queries/s  p50 ms  p99 ms");
    let lists = LISTS.map(IndexEffort::List);
    for effort in lists.into_iter().chain(RECALLS.map(IndexEffort::Recall)) {
        let sink = CollectHits::default();
        let options = IndexSearchOptions { k: K as u64, effort, seed: 1 };
        let found = index::search(&context, &index, (&*queries, None), &options, Box::new(sink.clone()))?;
        let (common, found) = (found.common, found.search);
        let hits = sink.hits();
        let right = |(hits, &far): (&Vec<(u64, f32)>, &f32)| hits.iter().filter(|hit| hit.1 <= far).count();
        let right: usize = hits.iter().zip(&truth).map(right).sum();
        let recall = right as f64 / (K * truth.len()) as f64;
        let latency_ms = found.latency_ms.map_or((0.0, 0.0), |latency| (latency.p50, latency.p99));
        print!(
            "{:4} {recall:10.4} {:6.1} {:10.0} {:10.0} {:7.2} {:7.2}",
            common.strategy.t.unwrap_or(0.0),
            found.reads_per_query,
            found.distances_per_query,
            found.queries_per_second,
            latency_ms.0,
            latency_ms.1
        );
        match (common.recall, common.seconds.calibrate.unwrap_or(0.0)) {
            (Some(recall), seconds) => {
                let at_k = recall.at_k.map_or((0.0, 0.0, 0.0), |at_k| (at_k.estimate, at_k.low, at_k.high));
                println!(
                    "  {} promised, {:.4} ({:.4} to {:.4}) told after {seconds:.1} s",
                    recall.target, at_k.0, at_k.1, at_k.2
                );
            }
            _ => println!(),
        }
    }
    Ok(())
}

/// The distance of the farthest of the nearest vectors of each query.
fn truth(context: &Context, store: &Store, queries: &dyn VectorSource) -> Result<Vec<f32>> {
    let sink = CollectHits::default();
    let options = SearchOptions { wanted: Wanted::Nearest(K as u64), effort: Effort::Every, seed: 1 };
    let sets = (QuerySet::Source(queries), QuerySet::Rows);
    search::search(context, store, sets, &options, Box::new(sink.clone()))?;
    Ok(sink.hits().iter().filter_map(|hits| hits.last()).take(QUERIES).map(|farthest| farthest.1).collect())
}
