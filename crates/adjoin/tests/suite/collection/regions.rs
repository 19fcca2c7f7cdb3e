//! Recall after merges. Seeded histories contain drift, new regions, copies, deletes of whole clusters, and
//! reinserts. After each merge, every row is a query, and the hits are compared with brute force. All rows, and the
//! rows that were inserted last, must reach the promised recall, or the search must report that they do not.

use std::collections::BTreeMap;
use std::path::Path;

use adjoin::{
    Collect, Collection, Context, Durability, Element, IdKind, Ids, Metric, QueryTarget, Random, SearchEffort,
    SearchOptions, VectorType, Write,
    lab::{collection::MergeMethod, query::QuerySources},
};

use super::options;
use crate::harness::{Set, Setup};

const DIMENSIONS: usize = 8;
const VECTORS: VectorType = VectorType { element: Element::F32, dimensions: DIMENSIONS };
/// Approximate number of rows before the first merge, approximate number of rows of each later step, and number of
/// steps.
const ROWS: u64 = 1_500;
const STEP_ROWS: u64 = 150;
const STEPS: u64 = 4;
const K: usize = 10;
/// Seeds of histories that once broke a promise. A merge that built a new index had inserted rows of a region. Their
/// recall was not measured separately, and they were not found.
const BROKEN_ONCE: [u64; 5] = [8, 12, 16, 109, 158];
/// Number of histories by default, and with `ADJOIN_EVERY_FAULT`. If `ADJOIN_HISTORIES` is set, it selects a range of
/// seeds instead: `from..to`.
const HISTORIES: u64 = 2;
const HISTORIES_STRESS: u64 = 200;

type Vector = [f32; DIMENSIONS];

/// A collection, and the rows that it must have. Each row has the number of its cluster.
struct History {
    context: Context,
    collection: Collection,
    random: Random,
    rows: BTreeMap<i64, (u64, Vector)>,
    clusters: Vec<Vector>,
    /// Rows of clusters that were deleted.
    deleted: Vec<(u64, Vector)>,
    next_id: i64,
    /// Ids of the rows that were inserted since the last merge.
    inserted: Vec<i64>,
}

/// Result of a search: whether it reports that it kept its promise, the mean recall of all rows, and the mean recall
/// of the rows that were inserted last.
struct Searched {
    kept: bool,
    reached: f64,
    of_inserted: f64,
}

impl History {
    fn new(folder: &Path, seed: u64) -> Self {
        let context = Setup::default().context();
        let metric = if seed % 4 == 3 { Metric::Cosine } else { Metric::L2 };
        Collection::create(&context, folder, &options(VECTORS, metric, IdKind::Int64)).unwrap();
        let collection = Collection::open(&context, folder).unwrap();
        let (rows, random) = (BTreeMap::new(), Random::new(seed, "regions"));
        let mut history = Self {
            context,
            collection,
            random,
            rows,
            clusters: Vec::new(),
            deleted: Vec::new(),
            next_id: 0,
            inserted: Vec::new(),
        };
        for _ in 0..6 {
            history.add_cluster(4.0);
        }
        history
    }

    fn metric(&self) -> Metric {
        self.collection.manifest().metric
    }

    /// Adds a random center at about the distance `far` from the others. Returns its number.
    fn add_cluster(&mut self, far: f64) -> u64 {
        self.clusters.push([(); DIMENSIONS].map(|()| (far * self.random.normal()) as f32));
        self.clusters.len() as u64 - 1
    }

    fn near(&mut self, cluster: u64) -> Vector {
        self.clusters[cluster as usize].map(|x| x + self.random.normal() as f32)
    }

    fn insert(&mut self, rows: Vec<(u64, Vector)>) {
        let ids: Vec<i64> = (self.next_id..).take(rows.len()).collect();
        self.next_id += rows.len() as i64;
        let values: Vec<f64> = rows.iter().flat_map(|(_, vector)| vector.map(f64::from)).collect();
        let set = Set::of(Element::F32, DIMENSIONS, &values).with_ids(&ids);
        let write = Write { delete: None, insert: Some(&set), upsert: None };
        self.collection.write(&write, Durability::Buffered).unwrap();
        self.inserted.extend_from_slice(&ids);
        self.rows.extend(ids.into_iter().zip(rows));
    }

    /// Runs a random step. Steps of each kind have degraded merged indexes before.
    fn step(&mut self) {
        let rows = STEP_ROWS / 2 + self.random.below(STEP_ROWS);
        match self.random.below(5) {
            0 => {
                // Drift: each row is slightly farther away than the previous one.
                let cluster = self.random.below(self.clusters.len() as u64);
                let away = [(); DIMENSIONS].map(|()| self.random.normal() as f32 * 0.05);
                for _ in 0..3 {
                    let center = self.clusters[cluster as usize];
                    let mut moved = center;
                    moved.iter_mut().zip(away).for_each(|(x, away)| *x += away * rows as f32 / 3.0);
                    self.clusters[cluster as usize] = moved;
                    let some = (0..rows / 3).map(|_| (cluster, self.near(cluster))).collect();
                    self.insert(some);
                }
            }
            1 => {
                let cluster = self.add_cluster(60.0);
                let some = (0..rows).map(|_| (cluster, self.near(cluster))).collect();
                self.insert(some);
            }
            2 => {
                // Copies of one row, in a cluster or in an empty region.
                let cluster = self.random.below(self.clusters.len() as u64);
                let copied = self.near(cluster).map(|x| if rows.is_multiple_of(2) { x } else { x + 40.0 });
                let mut some = vec![(cluster, copied); rows as usize];
                some.extend((0..STEP_ROWS / 3).map(|_| (cluster, self.near(cluster))));
                self.insert(some);
            }
            3 => {
                let cluster = self.random.below(self.clusters.len() as u64);
                let ids: Vec<i64> = self.rows.iter().filter(|(_, row)| row.0 == cluster).map(|(&id, _)| id).collect();
                if ids.len() * 2 > self.rows.len() {
                    return;
                }
                let gone = Ids::Int64(ids.clone());
                let write = Write { delete: Some(&gone), insert: None, upsert: None };
                self.collection.write(&write, Durability::Buffered).unwrap();
                self.inserted.retain(|id| ids.binary_search(id).is_err());
                self.deleted = ids.iter().filter_map(|id| self.rows.remove(id)).collect();
            }
            _ => {
                let again = std::mem::take(&mut self.deleted);
                self.insert(again);
            }
        }
    }

    fn merge(&mut self) {
        let number = self.random.below(MergeMethod::ALL.len() as u64 + 1) as usize;
        match MergeMethod::ALL.get(number) {
            Some(&method) => self.collection.merge_by(&self.context, method).unwrap(),
            None => self.collection.merge_replacing(&self.context, 1).unwrap(),
        };
    }

    /// Searches with every row as a query.
    fn search(&self, effort: SearchEffort) -> Searched {
        let values: Vec<f64> = self.rows.values().flat_map(|(_, vector)| vector.map(f64::from)).collect();
        let (queries, hits) = (Set::of(Element::F32, DIMENSIONS, &values), Collect::default());
        let options = SearchOptions::new(QueryTarget::Nearest(K as u64), effort, 1);
        let statistics = self
            .collection
            .search(&self.context, QuerySources::new(&queries), &options, Box::new(hits.clone()))
            .unwrap();
        let found = hits.hits();
        assert_eq!(found.len(), self.rows.len());
        let far: Vec<f64> = self.rows.values().map(|(_, vector)| self.kth_of(vector)).collect();
        let recalls = found.iter().zip(&far).map(|(hits, far)| {
            let is_hit = |&&(_, value): &&(u64, f32)| self.far_of(f64::from(value)) <= far * (1.0 + 1e-5) + 1e-6;
            hits.iter().filter(is_hit).count() as f64 / K.min(self.rows.len()) as f64
        });
        let recalls: Vec<(i64, f64)> = self.rows.keys().copied().zip(recalls).collect();
        let mean = |some: Vec<f64>| some.iter().sum::<f64>() / some.len().max(1) as f64;
        let inserted = recalls.iter().filter(|(id, _)| self.inserted.binary_search(id).is_ok());
        let of_inserted: Vec<f64> = inserted.map(|&(_, recall)| recall).collect();
        Searched {
            kept: statistics.common.recall.unwrap().kept,
            reached: mean(recalls.iter().map(|&(_, recall)| recall).collect()),
            // The mean of a few rows varies too much to be compared with the promise.
            of_inserted: if of_inserted.len() < 60 { 1.0 } else { mean(of_inserted) },
        }
    }

    /// Converts a value that a search reports to a distance.
    fn far_of(&self, value: f64) -> f64 {
        if self.metric() == Metric::L2 { value } else { 1.0 - value }
    }

    /// Returns the distance from `query` to the Kth nearest row, by brute force.
    fn kth_of(&self, query: &Vector) -> f64 {
        let dot = |a: &Vector, b: &Vector| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let far = |other: &Vector| match self.metric() {
            Metric::L2 => query.iter().zip(other).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>(),
            _ => 1.0 - dot(query, other) / (dot(query, query) * dot(other, other)).sqrt(),
        };
        let mut all: Vec<f64> = self.rows.values().map(|(_, other)| far(other)).collect();
        let at = K.min(all.len()) - 1;
        let (_, &mut kth, _) = all.select_nth_unstable_by(at, f64::total_cmp);
        if self.metric() == Metric::L2 { kth.sqrt() } else { kth }
    }
}

/// Runs the history of a seed. Returns the number of searches that kept their promise, and the number of those that
/// did not.
fn run(seed: u64) -> [u64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let mut history = History::new(&folder.path().join("collection"), seed);
    let copies_first = seed % 5 == 4;
    if copies_first {
        let copied = history.near(0);
        history.insert(vec![(0, copied); ROWS as usize / 4]);
        history.merge();
        history.inserted.clear();
    }
    let rows = (0..ROWS).map(|row| row % 6).map(|cluster| (cluster, history.near(cluster))).collect();
    history.insert(rows);
    history.merge();
    let mut outcomes = [0; 2];
    for step in 0..STEPS {
        let merges = history.random.below(4) > 0 || step + 1 == STEPS;
        if merges {
            history.inserted.clear();
        }
        history.step();
        if merges {
            history.merge();
        }
        let target = [0.8, 0.9, 0.95][history.random.below(3) as usize];
        let Searched { kept, reached, of_inserted } = history.search(SearchEffort::Recall(target));
        // Without a merge, the inserted rows are in memory and are all compared. Their recall is not checked
        // separately then.
        let least = if merges { reached.min(of_inserted) } else { reached };
        assert!(!kept || least >= target, "seed {seed}, step {step}: {target} promised, {reached} and {of_inserted}");
        outcomes[usize::from(!kept)] += 1;
        let exact = history.search(SearchEffort::Exact);
        assert!(exact.kept && exact.reached == 1.0, "seed {seed}, step {step}: exact finds {}", exact.reached);
    }
    outcomes
}

#[test]
fn the_recall_is_reached_after_merges() {
    let usual = if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { HISTORIES_STRESS } else { HISTORIES };
    let asked = std::env::var("ADJOIN_HISTORIES").ok();
    let asked = asked.as_deref().and_then(|range| range.split_once(".."));
    let seeds: Vec<u64> = match asked {
        Some((from, to)) => (from.parse().unwrap()..to.parse().unwrap()).collect(),
        None => BROKEN_ONCE.into_iter().chain((0..usual).filter(|seed| !BROKEN_ONCE.contains(seed))).collect(),
    };
    let mut outcomes = [0; 2];
    for seed in seeds {
        let of_seed = run(seed);
        eprintln!("seed {seed}: {of_seed:?}");
        outcomes.iter_mut().zip(of_seed).for_each(|(all, of_seed)| *all += of_seed);
    }
    let [kept, not_kept] = outcomes;
    assert!(not_kept * 10 <= kept + not_kept, "{not_kept} promises not kept, {kept} kept");
}
