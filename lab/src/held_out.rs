//! Vectors of a file, held-out queries with their true neighbors, and the recall of searches of a graph in memory.

use adjoin::{
    Context, Error, Metric, Result, SourceOptions,
    kernels::Panel,
    lab::{
        geometry::{Coordinate, Space},
        graph::{Graph, GreedySearch},
        report::Stopwatch,
        source,
        workers::map_items,
    },
};
use serde_json::{Value, json};

/// Number of vectors at the end of a file that are used as queries.
const QUERIES: usize = 1_000;
/// Numbers of nearest vectors for which recalls are measured.
pub(crate) const KS: [usize; 4] = [1, 5, 10, 100];
/// Places in [`KS`] of the k that FreshDiskANN measures, and of the usual k.
pub(crate) const FIVE: usize = 1;
pub(crate) const TEN: usize = 2;
/// Target recall of a list length that stays the same while a graph changes.
pub(crate) const RECALL: f64 = 0.95;

/// The vectors of a file, except the last 1,000. These are queries.
pub(crate) struct HeldOut<T> {
    pub(crate) base: Panel<T>,
    queries: Panel<T>,
    /// For each query and each k of [`KS`], the squared distance of the k-th nearest vector. A vector counts as found if it
    /// is not farther.
    truth: Vec<[f64; KS.len()]>,
}

/// Recalls and costs of the searches for all queries with one list length.
pub(crate) struct Found {
    /// For each of [`KS`], the fraction of the k nearest vectors that are among the k hits.
    pub(crate) recalls: [f64; KS.len()],
    /// Mean numbers of distances and of expanded vertices per query.
    pub(crate) distances: f64,
    pub(crate) hops: f64,
    /// Time of a query, on one thread.
    pub(crate) seconds: f64,
}

/// Cost of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Number of distances.
    pub(crate) distances: u64,
    /// Number of expanded vertices.
    pub(crate) hops: u64,
}

/// Searches of a graph in memory.
pub(crate) trait Searcher<T> {
    /// Searches for the vectors near a padded row, with a list length. Returns the cost.
    fn run(&mut self, x: &[T], list: usize) -> Cost;

    /// Returns the squared distances of the first `k` hits of the last search, nearest first.
    fn squared_distances(&self, k: usize) -> impl Iterator<Item = f64>;
}

/// Searches of a graph of the engine.
struct GraphSearcher<'a, T: Coordinate> {
    context: &'a Context,
    graph: &'a Graph,
    panel: &'a Panel<T>,
    search: GreedySearch<T>,
}

/// Returns whether the vectors of a file are bytes.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn is_of_bytes(context: &Context, file: &str) -> Result<bool> {
    let source = source::open(context, &[file.to_owned()], &SourceOptions::default())?;
    Ok(Space::plain(source.info().vectors, Metric::L2).is_of_bytes())
}

impl<T: Coordinate> HeldOut<T> {
    /// Reads a file, and of its vectors the first `rows`, or all if `rows` is 0.
    ///
    /// # Errors
    /// If the file cannot be read, has too few vectors, or has vectors of another type.
    pub(crate) fn read(context: &Context, file: &str, rows: usize) -> Result<Self> {
        let source = source::open(context, &[file.to_owned()], &SourceOptions::default())?;
        let (vectors, all) = (source.info().vectors, source.info().rows as usize);
        let space = Space::plain(vectors, Metric::L2);
        if all <= QUERIES || space.is_of_bytes() == T::is_float() {
            let wanted = if T::is_float() { "floats" } else { "bytes" };
            return Err(Error::input(format!("{file}: not a file of more than {QUERIES} vectors of {wanted}")));
        }
        let first = all - QUERIES;
        let mut base = Panel::zeroed(if rows == 0 { first } else { rows.min(first) }, vectors.dimensions);
        let mut queries = Panel::zeroed(QUERIES, vectors.dimensions);
        let (mut scan, mut next) = (source.scan(1 << 20)?, 0);
        while let Some(batch) = scan.next_batch()? {
            let mut panel = Panel::<T>::zeroed(batch.rows, vectors.dimensions);
            T::load(space, context.kernel, &batch.bytes, &mut panel);
            for row in next..next + batch.rows {
                let to = match row.checked_sub(first) {
                    Some(query) => queries.row_mut(query),
                    None if row < base.rows() => base.row_mut(row),
                    None => continue,
                };
                to.copy_from_slice(&panel.row(row - next)[..vectors.dimensions]);
            }
            next += batch.rows;
        }
        let mut held = Self { base, queries, truth: Vec::new() };
        held.compare_with(context, |_| true)?;
        Ok(held)
    }

    /// Computes the true neighbors among the vectors for which `is_present` is true.
    ///
    /// # Errors
    /// If there are fewer of them than the largest of [`KS`].
    pub(crate) fn compare_with(&mut self, context: &Context, is_present: impl Fn(u32) -> bool + Sync) -> Result<()> {
        let least = *KS.last().unwrap();
        let absent: Vec<usize> = (0..self.base.rows()).filter(|&row| !is_present(row as u32)).collect();
        let present = self.base.rows() - absent.len();
        if present < least {
            return Err(Error::input(format!("{present} vectors; give at least {least}")));
        }
        let distances = || (vec![T::Distance::default(); self.base.rows()], Vec::new());
        self.truth = map_items(context.threads, QUERIES, &context.cancel, distances, |(distances, keys), query| {
            context.kernel.one_to_many(self.queries.row(query), &self.base, distances);
            keys.clear();
            keys.extend(distances.iter().map(|&distance| T::distance_key(distance)));
            absent.iter().for_each(|&row| keys[row] = u32::MAX);
            keys.select_nth_unstable(least - 1);
            keys[..least].sort_unstable();
            Ok(KS.map(|k| T::distance_of(keys[k - 1])))
        })?;
        Ok(())
    }

    /// Searches a graph for all queries with a list length, on one thread.
    pub(crate) fn search(&self, context: &Context, graph: &Graph, list: usize) -> Found {
        self.search_by(&mut GraphSearcher { context, graph, panel: &self.base, search: GreedySearch::new(graph) }, list)
    }

    /// Runs a searcher for all queries with a list length, on one thread.
    pub(crate) fn search_by(&self, searcher: &mut impl Searcher<T>, list: usize) -> Found {
        let (mut found, mut distances, mut hops) = ([0; KS.len()], 0, 0);
        let watch = Stopwatch::start();
        for (query, truth) in self.truth.iter().enumerate() {
            let cost = searcher.run(self.queries.row(query), list);
            for ((found, &k), &farthest) in found.iter_mut().zip(&KS).zip(truth) {
                *found += searcher.squared_distances(k).filter(|&squared| squared <= farthest).count();
            }
            distances += cost.distances;
            hops += cost.hops;
        }
        let seconds = watch.seconds() / QUERIES as f64;
        let mean = |sum: f64| sum / QUERIES as f64;
        let recalls = std::array::from_fn(|at| mean(found[at] as f64) / KS[at] as f64);
        Found { recalls, distances: mean(distances as f64), hops: mean(hops as f64), seconds }
    }

    /// Returns the shortest list length, at least k, with which searches reach a recall of the k nearest; the number of
    /// vectors if none does. `at` is the place of k in [`KS`]; `search` searches with a list length.
    pub(crate) fn shortest_list(&self, at: usize, recall: f64, search: impl Fn(usize) -> Found) -> usize {
        let rows = self.base.rows();
        (KS[at]..rows).find(|&list| search(list).recalls[at] >= recall).unwrap_or(rows)
    }
}

impl<T: Coordinate> Searcher<T> for GraphSearcher<'_, T> {
    fn run(&mut self, x: &[T], list: usize) -> Cost {
        self.search.run(self.context.kernel, self.graph, self.panel, x, list);
        Cost { distances: self.search.distances(), hops: self.search.hops() }
    }

    fn squared_distances(&self, k: usize) -> impl Iterator<Item = f64> {
        self.search.nearest(k).map(|near| near.squared_distance)
    }
}

impl Found {
    /// Returns a record with `recall_at_1` and so on, and the costs of a query.
    pub(crate) fn record(&self) -> Value {
        let mut record = json!({"distances": self.distances, "microseconds": 1e6 * self.seconds});
        KS.iter().zip(self.recalls).for_each(|(k, recall)| record[format!("recall_at_{k}")] = json!(recall));
        record
    }
}
