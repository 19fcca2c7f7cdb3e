//! Compares page orders of an index, and the time to compute them.
//!
//! `layouts INDEX` prints OR(G) and the seconds to compute each page order. Some orders improve another one in
//! rounds. For these, it prints the values for each maximum number of rounds (Starling's beta, Tables 5 to 12).
//!
//! `layouts INDEX FOLDER [QUERIES]` writes the index into FOLDER in each page order. It prints OR(G), the bandwidth
//! (NDSearch, section VI-A) and the time. If QUERIES are given, it also prints the reads per query at some recalls of
//! the 10 nearest, for the first 1,000 queries. The true hits are found by a search with a long list.

use std::path::Path;

use adjoin::{
    Collect, Context, Error, Index, QueryTarget, Result, SearchEffort, SearchOptions, SearchStatistics, SourceOptions,
    VectorSource,
    lab::{PageGraph, index, query::QuerySources, report::Stopwatch, source},
};

use crate::page_orders::{PageOrder, relayout};

const QUERIES: usize = 1_000;
const K: usize = 10;
const LIST_OF_TRUTH: usize = 1_000;
const LISTS: [usize; 10] = [10, 15, 20, 25, 30, 40, 50, 60, 80, 120];
const ROUNDS: [usize; 5] = [1, 2, 4, 8, 16];
const RECALLS: [f64; 3] = [0.9, 0.95, 0.99];

type OfQuery = Vec<(u64, f32)>;
type Hits = Vec<OfQuery>;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let context = Context::default().with_memory(8 << 30);
    let (index, folder, queries) = match arguments {
        [index] => return by_rounds(&context, Path::new(index)),
        [index, folder, queries @ ..] => (index, folder, queries),
        [] => return Err(Error::input("give INDEX, or INDEX FOLDER [QUERIES]")),
    };
    let (from, folder) = (Path::new(index), Path::new(folder));
    let queries = match queries {
        [] => None,
        files => Some(source::open(&context, files, &SourceOptions::default())?),
    };
    std::fs::create_dir_all(folder).map_err(|error| Error::device(format!("{}: {error}", folder.display())))?;
    let index = Index::open(&context, from)?;
    let truth = queries.as_ref().map(|queries| search(&context, &index, &**queries, LIST_OF_TRUTH)).transpose()?;
    println!("layout   OR(G)  bandwidth  layout s  write s  reads at recall {RECALLS:?}");
    let of_source = [(index.facts().layout.clone(), None)].into_iter();
    for (name, order) in of_source.chain(PageOrder::ALL.into_iter().map(|order| (order.to_string(), Some(order)))) {
        let to = order.map(|_| folder.join(&name));
        let relaid = order.zip(to.as_ref()).map(|(order, to)| relayout(&context, from, to, order)).transpose()?;
        let laid = Index::open(&context, to.as_deref().unwrap_or(from))?;
        let ratio = laid.facts().overlap_ratio;
        let measures = relaid.map_or(String::new(), |relaid| {
            format!("{:10.0} {:9.2} {:8.2}", relaid.bandwidth, relaid.layout_seconds, relaid.write_seconds)
        });
        let reads = match (&queries, &truth) {
            (Some(queries), Some((truth, _))) => reads(&context, &laid, &**queries, truth)?,
            _ => String::new(),
        };
        println!("{name:11} {ratio:.3} {measures:29} {reads}");
    }
    Ok(())
}

fn by_rounds(context: &Context, folder: &Path) -> Result<()> {
    let graph = PageGraph::read(context, &Index::open(context, folder)?)?;
    println!("layout   rounds  OR(G)   seconds");
    for order in PageOrder::ALL {
        for &rounds in if order.has_rounds() { &ROUNDS[..] } else { &[0] } {
            let mut watch = Stopwatch::start();
            let (_, overlap_ratio) = order.of_graph(context, &graph, rounds)?;
            println!("{order:8} {rounds:6}  {overlap_ratio:.4} {:8.2}", watch.lap());
        }
    }
    Ok(())
}

fn search(
    context: &Context,
    index: &Index,
    queries: &dyn VectorSource,
    list: usize,
) -> Result<(Hits, SearchStatistics)> {
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(K as u64), SearchEffort::List(list), 1);
    let statistics = index::search(context, index, QuerySources::new(queries), &options, Box::new(sink.clone()))?;
    Ok((sink.hits(), statistics))
}

/// Returns the reads per query at each recall. Interpolates between the two list lengths with the next lower and the
/// next higher recall.
fn reads(context: &Context, index: &Index, queries: &dyn VectorSource, truth: &Hits) -> Result<String> {
    let mut measured: Vec<(f64, f64)> = Vec::new();
    for list in LISTS {
        let (hits, statistics) = search(context, index, queries, list)?;
        let right = |(hits, truth): (&OfQuery, &OfQuery)| {
            let far = truth.last().map_or(0.0, |hit| hit.1);
            hits.iter().filter(|hit| hit.1 <= far).count()
        };
        let right: usize = hits.iter().zip(truth).take(QUERIES).map(right).sum();
        measured.push((right as f64 / (K * QUERIES.min(truth.len())) as f64, statistics.search.reads_per_query));
    }
    let at = |recall: f64| {
        let two = measured.windows(2).find(|two| two[0].0 < recall && recall <= two[1].0)?;
        let share = (recall - two[0].0) / (two[1].0 - two[0].0);
        Some(format!(" {:6.2}", two[0].1 + share * (two[1].1 - two[0].1)))
    };
    Ok(RECALLS.iter().map(|&recall| at(recall).unwrap_or_else(|| "      -".into())).collect())
}
