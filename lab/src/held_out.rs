//! Vectors of a `.u8bin` file, held-out queries with their true neighbors, and the recall of searches of a graph in memory.

use adjoin::{
    Context, Error, Result,
    kernels::Panel,
    lab::{
        graph::{Graph, GreedySearch},
        report::Stopwatch,
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
pub(crate) struct HeldOut {
    pub(crate) base: Panel<u8>,
    queries: Panel<u8>,
    /// For each query and each k of [`KS`], the squared distance of the k-th nearest vector. A vector counts as found if it
    /// is not farther.
    truth: Vec<[u32; KS.len()]>,
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

impl HeldOut {
    /// Reads a file, and of its vectors the first `rows`, or all if `rows` is 0.
    ///
    /// # Errors
    /// If the file cannot be read or has too few vectors.
    pub(crate) fn read(context: &Context, file: &str, rows: usize) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(|error| Error::input(format!("{file}: {error}")))?;
        let (header, elements) = bytes.split_at_checked(8).ok_or_else(|| Error::input(format!("{file}: too short")))?;
        let of_header = |at: usize| header[at..at + 4].iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte));
        let (all, dimensions) = (of_header(0), of_header(4));
        if elements.len() != all * dimensions || all <= QUERIES {
            return Err(Error::input(format!("{file}: not a u8bin file of more than {QUERIES} vectors")));
        }
        let panel = |first: usize, count: usize| {
            let mut panel = Panel::zeroed(count, dimensions);
            for row in 0..count {
                panel.row_mut(row).copy_from_slice(&elements[(first + row) * dimensions..][..dimensions]);
            }
            panel
        };
        let first = all - QUERIES;
        let base = panel(0, if rows == 0 { first } else { rows.min(first) });
        let mut held = Self { base, queries: panel(first, QUERIES), truth: Vec::new() };
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
        let distances = || vec![0; self.base.rows()];
        self.truth = map_items(context.threads, QUERIES, &context.cancel, distances, |distances, query| {
            context.kernel.one_to_many(self.queries.row(query), &self.base, distances);
            absent.iter().for_each(|&row| distances[row] = u32::MAX);
            distances.select_nth_unstable(least - 1);
            distances[..least].sort_unstable();
            Ok(KS.map(|k| distances[k - 1]))
        })?;
        Ok(())
    }

    /// Searches for all queries with a list length, on one thread.
    pub(crate) fn search(&self, context: &Context, graph: &Graph, list: usize) -> Found {
        let mut search = GreedySearch::new(graph);
        let (mut found, mut distances, mut hops) = ([0; KS.len()], 0, 0);
        let watch = Stopwatch::start();
        for (query, truth) in self.truth.iter().enumerate() {
            search.run(context.kernel, graph, &self.base, self.queries.row(query), list);
            for ((found, &k), &farthest) in found.iter_mut().zip(&KS).zip(truth) {
                *found += search.nearest(k).filter(|near| near.squared_distance <= f64::from(farthest)).count();
            }
            distances += search.distances();
            hops += search.hops();
        }
        let seconds = watch.seconds() / QUERIES as f64;
        let mean = |sum: f64| sum / QUERIES as f64;
        let recalls = std::array::from_fn(|at| mean(found[at] as f64) / KS[at] as f64);
        Found { recalls, distances: mean(distances as f64), hops: mean(hops as f64), seconds }
    }

    /// Returns the shortest list length, at least k, with which the searches reach a recall of the k nearest; all vectors
    /// if none does. `at` is the place of k in [`KS`].
    pub(crate) fn shortest_list(&self, context: &Context, graph: &Graph, at: usize, recall: f64) -> usize {
        let rows = self.base.rows();
        (KS[at]..rows).find(|&list| self.search(context, graph, list).recalls[at] >= recall).unwrap_or(rows)
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
