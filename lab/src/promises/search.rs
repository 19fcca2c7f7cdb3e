//! Counts how often searches reach the promised recall, over many runs. Some rows of each set are held out of its
//! store and used as queries. Each search samples calibration queries from the store with another seed. Some queries
//! are of another kind than the rows of the store. For these, a recall is promised only if other queries of that kind
//! calibrate the effort. Otherwise, it is only measured.
//!
//! Graph indexes of these stores are measured in the same way. The recall of each list length is measured only once,
//! since a seed affects only the length that is chosen.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use adjoin::{
    BuildOptions, Collect, Context, Error, IdKind, Ids, Index, IndexOptions, Metric, QueryTarget, Random, Result,
    SearchEffort, SearchOptions, SearchQueries, SourceInfo, SourceOptions, Store, VectorBatch, VectorScan,
    VectorSource,
    lab::{buckets::search, index, query::QuerySources, source},
};

/// A set to search, and where its queries are from.
struct Asked {
    name: &'static str,
    set: &'static str,
    metric: Metric,
    /// Set that the queries are from, and whether other rows of that set calibrate. `None` if held-out rows are the
    /// queries.
    queries: Option<(&'static str, bool)>,
}

const fn by_its_rows(set: &'static str, metric: Metric) -> Asked {
    Asked { name: set, set, metric, queries: None }
}

const fn descriptions_in_words(name: &'static str, calibrate: bool) -> Asked {
    Asked { name, set: "wordnet-20k.f16.npy", metric: Metric::Cosine, queries: Some(("debdesc.f16.npy", calibrate)) }
}

const ALL: [Asked; 7] = [
    by_its_rows("sift-200k.u8bin", Metric::L2),
    by_its_rows("sift-stars-50k.u8bin", Metric::L2),
    by_its_rows("debdesc.f16.npy", Metric::Cosine),
    by_its_rows("wordnet-20k.f16.npy", Metric::Cosine),
    descriptions_in_words("debdesc in wordnet", true),
    descriptions_in_words("debdesc, not promised", false),
    by_its_rows("sift-900k.u8bin", Metric::L2),
];

impl Asked {
    fn is_there(&self, data: &Path) -> bool {
        data.join(self.set).exists() && self.queries.is_none_or(|(queries, _)| data.join(queries).exists())
    }

    fn is_promised(&self) -> bool {
        self.queries.is_none_or(|(_, calibrate)| calibrate)
    }
}

const KS: [u64; 3] = [1, 10, 100];
const RECALLS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
const SEEDS: u64 = 20;
const SEEDS_AT_ONCE: u64 = 5;
/// Number of held-out rows. It exceeds the number of rows that a calibration samples, since a smaller number of
/// queries would be compared with all rows.
const QUERIES: u64 = 3_000;
/// Minimum fraction of all runs that must reach the recall.
const REACHED_SHARE: f64 = 0.93;

/// Runs the searches that are not listed yet. Returns whether the promise is kept over all runs.
pub(crate) fn all(context: &Context, data: &Path, work: &Path) -> Result<bool> {
    let of_stores = all_of(context, data, work, Searched::Stores)?;
    Ok(of_stores && of_indexes(context, data, work)?)
}

/// Runs the searches of indexes that are not listed yet. Returns whether the promise is kept over all runs.
pub(crate) fn of_indexes(context: &Context, data: &Path, work: &Path) -> Result<bool> {
    all_of(context, data, work, Searched::Indexes)
}

/// Kind of folder that is searched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Searched {
    Stores,
    Indexes,
}

fn all_of(context: &Context, data: &Path, work: &Path, searched: Searched) -> Result<bool> {
    let list = work.join(if searched == Searched::Stores { "search.csv" } else { "index.csv" });
    let failed = |error: std::io::Error| Error::device(format!("{}: {error}", list.display()));
    let sets: Vec<&Asked> = ALL.iter().filter(|asked| asked.is_there(data)).collect();
    for first in (1..=SEEDS).step_by(SEEDS_AT_ONCE as usize) {
        for &asked in &sets {
            let name = asked.name;
            let done = fs::read_to_string(&list).unwrap_or_default();
            let runs = (first..first + SEEDS_AT_ONCE).flat_map(|seed| KS.map(|k| (seed, k)));
            let runs = runs.flat_map(|(seed, k)| RECALLS.map(|recall| (seed, k, recall)));
            let key = |(seed, k, recall): (u64, u64, f64)| format!("{name},{k},{recall},{seed},");
            let missing: Vec<_> = runs.filter(|&run| !done.lines().any(|line| line.starts_with(&key(run)))).collect();
            if missing.is_empty() {
                continue;
            }
            let setting = Setting::open(context, data, work, asked, searched)?;
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&list).map_err(failed)?;
            for run @ (seed, k, recall) in missing {
                let (reached, probes) = match &setting.index {
                    None => setting.reached(context, k, SearchEffort::Recall(recall), seed)?,
                    Some(index) => setting.reached_by_walks(context, index, k, recall, seed)?,
                };
                writeln!(file, "{}{reached},{probes}", key(run)).map_err(failed)?;
            }
        }
    }
    let unit = if searched == Searched::Stores { "buckets" } else { "list" };
    Ok(summarize(&fs::read_to_string(&list).map_err(failed)?, unit))
}

/// Hits of a query: rows with their values.
type Hits = Vec<(u64, f32)>;

/// A store or an index to search, with queries and the truth.
struct Setting {
    store: Store,
    queries: InMemory,
    /// Calibration queries. `None` if rows of the store calibrate.
    like: Option<InMemory>,
    /// For each query, its nearest rows for the largest K.
    truth: Vec<Hits>,
    /// Index that is searched, if it is not the store.
    index: Option<Index>,
    /// Recall of walks that was measured already, by K and list length.
    known: RefCell<HashMap<(u64, usize), f64>>,
}

impl Setting {
    fn open(context: &Context, data: &Path, work: &Path, asked: &Asked, searched: Searched) -> Result<Self> {
        let open =
            |name: &str| source::open(context, &[data.join(name).display().to_string()], &SourceOptions::default());
        let (rows, rest) = split(&*open(asked.set)?)?;
        let folder = work.join(format!("{}.search.store", asked.set));
        let options = BuildOptions { metric: asked.metric, force: true, ..BuildOptions::default() };
        Store::build(context, &rest, &folder, &options)?;
        let store = Store::open(context, &folder)?;
        let (queries, like) = match asked.queries {
            None => (rows, None),
            Some((name, calibrate)) => {
                let (queries, others) = split(&*open(name)?)?;
                (queries, calibrate.then_some(others))
            }
        };
        let index = match searched {
            Searched::Stores => None,
            Searched::Indexes => {
                let folder = work.join(format!("{}.search.index", asked.set));
                if !folder.exists() {
                    Index::build(context, &store, &folder, &IndexOptions::default(), false)?;
                }
                Some(Index::open(context, &folder)?)
            }
        };
        let mut setting = Self { store, queries, like, truth: Vec::new(), index, known: RefCell::default() };
        setting.truth = setting.search(context, KS[KS.len() - 1], SearchEffort::Exact, 1)?.0;
        Ok(setting)
    }

    fn search(&self, context: &Context, k: u64, effort: SearchEffort, seed: u64) -> Result<(Vec<Hits>, f64)> {
        let sink = Collect::default();
        let options = SearchOptions::new(QueryTarget::Nearest(k), effort, seed);
        let calibrate_with = self.like.as_ref().map(|like| like as &dyn VectorSource);
        let queries = SearchQueries { source: Some(&self.queries), calibrate_with };
        let done = search(context, &self.store, queries, &options, Box::new(sink.clone()))?;
        Ok((sink.hits(), done.search.probes_per_query.unwrap_or_default()))
    }

    /// Returns the mean recall@k of the queries, and the mean number of buckets that they probed.
    fn reached(&self, context: &Context, k: u64, effort: SearchEffort, seed: u64) -> Result<(f64, f64)> {
        let (found, probes) = self.search(context, k, effort, seed)?;
        Ok((self.share(&found, k as usize), probes))
    }

    /// Searches an index with a promised recall. Returns the mean recall@K of the queries, and the list length of
    /// their walks.
    fn reached_by_walks(&self, context: &Context, index: &Index, k: u64, recall: f64, seed: u64) -> Result<(f64, f64)> {
        let like = self.like.as_ref().map(|like| like as &dyn VectorSource);
        let search = |queries: &InMemory, calibrate_with, effort| -> Result<(Vec<Hits>, f64)> {
            let sink = Collect::default();
            let options = SearchOptions::new(QueryTarget::Nearest(k), effort, seed);
            let queries = QuerySources { queries, calibrate_with };
            let done = index::search(context, index, queries, &options, Box::new(sink.clone()))?;
            Ok((sink.hits(), done.common.strategy.t.unwrap_or_default()))
        };
        let list = search(&self.queries.first(), like, SearchEffort::Recall(recall))?.1;
        let key = (k, list as usize);
        if let Some(&reached) = self.known.borrow().get(&key) {
            return Ok((reached, list));
        }
        let found = search(&self.queries, None, SearchEffort::List(key.1))?.0;
        let reached = self.share(&found, k as usize);
        self.known.borrow_mut().insert(key, reached);
        Ok((reached, list))
    }

    /// Returns the fraction of the true K nearest rows that were found, averaged over the queries.
    fn share(&self, found: &[Hits], k: usize) -> f64 {
        let share = |(hits, truth): (&Hits, &Hits)| {
            hits.iter().filter(|hit| truth[..k].contains(hit)).count() as f64 / k as f64
        };
        found.iter().zip(&self.truth).map(share).sum::<f64>() / found.len() as f64
    }
}

fn summarize(runs: &str, unit: &str) -> bool {
    println!("{:<22} {:>4} {:>7} {:>9} {:>9} {unit:>8}", "set", "k", "recall", "reached", "mean");
    let (mut all, mut kept) = (0, 0);
    let settings = ALL.iter().flat_map(|asked| KS.map(|k| (asked, k)));
    for ((asked, k), recall) in settings.flat_map(|setting| RECALLS.map(|recall| (setting, recall))) {
        let name = asked.name;
        let key = format!("{name},{k},{recall},");
        let figures = runs.lines().filter(|line| line.starts_with(&key)).filter_map(|line| {
            let mut last = line.rsplit(',').map(str::parse::<f64>);
            Some((last.next()?.ok()?, last.next()?.ok()?))
        });
        let figures: Vec<(f64, f64)> = figures.collect();
        if figures.is_empty() {
            continue;
        }
        let reached = figures.iter().filter(|(_, reached)| *reached >= recall).count();
        let mean = |of: fn(&(f64, f64)) -> f64| figures.iter().map(of).sum::<f64>() / figures.len() as f64;
        let share = format!("{reached}/{}", figures.len());
        let (mean_reached, effort) = (mean(|run| run.1), mean(|run| run.0));
        println!("{name:<22} {k:>4} {recall:>7} {share:>9} {mean_reached:>9.4} {effort:>8.1}");
        if asked.is_promised() {
            all += figures.len();
            kept += reached;
        }
    }
    let share = f64::from(kept as u32) / f64::from(all.max(1) as u32);
    println!(
        "\nreached in {kept} of {all} runs, {:.1} %; at least {:.0} % are to be (of those that are promised)",
        100.0 * share,
        100.0 * REACHED_SHARE
    );
    share >= REACHED_SHARE
}

/// A set of vectors in memory.
struct InMemory {
    info: SourceInfo,
    stored: Vec<u8>,
    name: PathBuf,
}

/// Splits a set. Returns randomly sampled rows, and the other rows.
fn split(source: &dyn VectorSource) -> Result<(InMemory, InMemory)> {
    let SourceInfo { rows, vectors, .. } = *source.info();
    let held_out = Random::new(7, "queries").ascending_sample(QUERIES, rows);
    let name = source.locate(0).0;
    let of = |rows| InMemory {
        info: SourceInfo { rows, vectors, ids: IdKind::None, rounded_from_f64: false },
        stored: Vec::new(),
        name: name.clone(),
    };
    let (mut queries, mut rest) = (of(QUERIES), of(rows - QUERIES));
    let mut scan = source.scan(1 << 20)?;
    while let Some(batch) = scan.next_batch()? {
        for (row, vector) in (batch.first_row..).zip(batch.bytes.chunks_exact(vectors.bytes())) {
            let to = if held_out.binary_search(&row).is_ok() { &mut queries } else { &mut rest };
            to.stored.extend_from_slice(vector);
        }
    }
    Ok((queries, rest))
}

impl InMemory {
    /// Returns a set of the first row only.
    fn first(&self) -> Self {
        let info = SourceInfo { rows: 1, ..self.info.clone() };
        Self { stored: self.stored[..info.vectors.bytes()].to_vec(), name: self.name.clone(), info }
    }
}

impl VectorSource for InMemory {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let rows = (batch_bytes / self.info.vectors.bytes()).max(1);
        Ok(Box::new(InMemoryScan { chunks: self.stored.chunks(rows * self.info.vectors.bytes()), set: self, row: 0 }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        batch_bytes
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (self.name.clone(), row)
    }
}

struct InMemoryScan<'a> {
    set: &'a InMemory,
    chunks: std::slice::Chunks<'a, u8>,
    row: u64,
}

impl VectorScan for InMemoryScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let Some(bytes) = self.chunks.next() else { return Ok(None) };
        let (first_row, rows) = (self.row, bytes.len() / self.set.info.vectors.bytes());
        self.row += rows as u64;
        Ok(Some(VectorBatch { first_row, rows, bytes: bytes.to_vec(), faults: Vec::new(), ids: Ids::None }))
    }
}
