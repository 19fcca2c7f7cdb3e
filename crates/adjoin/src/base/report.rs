//! Reports of a run: its progress, its statistics, and whether its targets were met.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::mutex::lock;
use crate::base::options::format_number;

/// Cancellation by the caller or by a deadline. Clones share one flag and one deadline.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Cancel {
    /// Requests the work to stop at its next check.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns a handle with its own deadline for a part of the work. If the whole work is cancelled, the part is
    /// cancelled, too.
    pub fn with_deadline(&self, deadline: Option<Instant>) -> Self {
        Self { asked: self.asked.clone(), deadline: Arc::new(Mutex::new(deadline)) }
    }

    /// Sets the time after which the result is not needed any more.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *lock(&self.deadline) = deadline;
    }

    /// Checks whether the work must stop. Returns an error if it must.
    ///
    /// # Errors
    /// Fails with [`crate::base::error::ErrorKind::Cancelled`] if cancellation was requested, and with
    /// [`crate::base::error::ErrorKind::Late`] if the deadline has passed.
    pub fn check(&self) -> Result<()> {
        // Cancellation takes precedence over the deadline, since the user requested it.
        if self.is_cancelled() {
            return Err(Error::cancelled());
        }
        let deadline = *lock(&self.deadline);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::late("the deadline passed before the work was complete; allow more time"));
        }
        Ok(())
    }
}

/// Observer of progress. All methods may be called from any thread.
pub trait Progress: Send + Sync {
    /// Starts a phase with its name, its unit, and its total number of units.
    fn begin(&self, phase: &str, unit: &str, total: u64);
    /// Reports how many units of the phase are done.
    fn advance(&self, done: u64);
    /// Reports a line of text to the user.
    fn note(&self, line: &str);
}

/// Observer that ignores all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, _line: &str) {}
}

/// Stopwatch that measures the time since its start.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the stopwatch.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// Returns the seconds since the start or the previous lap.
    pub fn lap(&mut self) -> f64 {
        let seconds = self.seconds();
        *self = Self::start();
        seconds
    }
}

/// Time summed over threads, in seconds.
#[derive(Debug, Default)]
pub(crate) struct SharedSeconds(AtomicU64);

impl SharedSeconds {
    /// Runs `work` and adds its duration to the sum.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.0.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Returns the sum in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)).as_secs_f64()
    }
}

/// Observer that collects the notes of a run, for tests and for callers that show them later.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

impl Progress for Notes {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, line: &str) {
        lock(&self.0).push(line.to_owned());
    }
}

/// A cluster triggers a warning if it has at least this many rows and more than the fraction 1 / `CLUSTER_SHARE_MANY`
/// of all rows.
const CLUSTER_ROWS_MANY: u64 = 100;
const CLUSTER_SHARE_MANY: u64 = 100;

/// Summary of what a sink has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of rows in the result.
    pub rows: u64,
    /// Number of kept rows, if they are a separate result.
    pub kept_rows: u64,
    /// Bytes of the result, including the separate result of kept rows.
    pub bytes: u64,
    /// Bytes written to temporary files.
    pub spill_bytes: u64,
    /// Number of rows in the largest cluster, if the result consists of clusters.
    pub largest_cluster: Option<u64>,
    /// Number of removed rows that are not within the threshold of the row that is kept for them.
    pub removed_beyond_threshold: Option<u64>,
}

impl Written {
    /// Returns a warning if one cluster has a large fraction of all rows. In that case, the threshold is probably too
    /// loose.
    pub(crate) fn cluster_warning(&self, rows: u64) -> Option<String> {
        let largest = self.largest_cluster.filter(|&rows| rows >= CLUSTER_ROWS_MANY)?;
        (largest.saturating_mul(CLUSTER_SHARE_MANY) > rows).then(|| {
            let [largest, rows] = [largest, rows].map(format_number);
            format!(
                "warning: one cluster has {largest} of {rows} rows; the threshold may be too loose, or its rows may \
                 have empty or default values"
            )
        })
    }
}

/// Version of the names in [`CommonStatistics`] and in the object that each command adds.
pub(crate) const STATISTICS_VERSION: u32 = 2;

/// Statistics that all computing commands report. Their names are fixed. Values that do not apply are null. Each
/// command adds an object, which has the name of the command.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)] // docs/statistics.md explains each
pub struct CommonStatistics {
    pub version: u32,
    pub command: &'static str,
    pub rows: u64,
    pub dimensions: usize,
    pub element: String,
    pub metric: String,
    pub seed: u64,
    pub skipped_rows: u64,
    pub duplicate_ids: Option<u64>,
    pub recall: Option<RecallStatistics>,
    pub memory: MemoryStatistics,
    pub io: IoStatistics,
    pub seconds: SecondsStatistics,
    pub predicted: Option<PredictedStatistics>,
    pub strategy: StrategyStatistics,
    pub threads: usize,
    pub kernel: &'static str,
}

impl CommonStatistics {
    /// Version of the names in these statistics and in the object that each command adds.
    pub const VERSION: u32 = STATISTICS_VERSION;
}

/// Statistics of a join.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct JoinStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub join: JoinCounts,
    /// Present if another run can continue the join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeStatistics>,
    #[serde(skip)]
    pub written: Written,
}

/// Number of runs of a join, and the work that they repeated.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct ResumeStatistics {
    pub runs: u64,
    pub legs: u64,
    pub legs_done_before: u64,
    pub verified_pairs_repeated_max: u64,
}

impl JoinStatistics {
    /// Runs `finish`, and records what it wrote and how long it took.
    ///
    /// # Errors
    /// Returns the errors of `finish`.
    pub(crate) fn write(&mut self, finish: impl FnOnce() -> Result<Written>) -> Result<()> {
        let watch = Stopwatch::start();
        self.written = finish()?;
        let Self { common: CommonStatistics { seconds, io, .. }, written, .. } = self;
        let took = watch.seconds();
        seconds.total += took;
        // Writing the result is a part of the execution, so its time is added to both.
        for part in [&mut seconds.execute, &mut seconds.write] {
            *part.get_or_insert(0.0) += took;
        }
        (io.bytes_written, io.spill_bytes) = (Some(written.bytes), Some(written.spill_bytes));
        self.join.largest_cluster = written.largest_cluster;
        self.join.removed_beyond_threshold = written.removed_beyond_threshold;
        Ok(())
    }
}

/// Targets, results and amount of work of a join.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct JoinCounts {
    pub eps: Option<f64>,
    pub min_similarity: Option<f64>,
    pub pairs: u64,
    pub candidate_pairs: u64,
    pub verified_pairs: u64,
    pub exact_checks: u64,
    pub center_distances: u64,
    pub edges: u64,
    pub buckets: u64,
    /// Number of rows in the second set, if two sets are joined.
    pub with_rows: Option<u64>,
    /// Number of rows that pass the filter, if there is one.
    pub passing_rows: Option<u64>,
    /// Number of rows of the second set that pass their filter, if there is one.
    pub with_passing_rows: Option<u64>,
    /// Number of new rows, if there are any.
    pub new_rows: Option<u64>,
    /// Number of new rows that pass the filter, if there is one.
    pub new_passing_rows: Option<u64>,
    /// Number of buckets that are never read, because none of their rows passes the filter. `None` without a filter.
    pub skipped_buckets: Option<u64>,
    /// Bytes of these buckets.
    pub skipped_bytes: Option<u64>,
    /// Number of rows in the largest cluster, if the result consists of clusters.
    pub largest_cluster: Option<u64>,
    /// Number of removed rows that are not within the threshold of the row that is kept for them, if the result
    /// consists of clusters.
    pub removed_beyond_threshold: Option<u64>,
}

/// Statistics of writing a copy of a data set without its near-duplicates.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DedupeStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub dedupe: DedupeCounts,
}

/// Numbers of removed and kept rows, and the work of the join that found near-duplicates.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DedupeCounts {
    pub source_rows: u64,
    pub equal_rows: u64,
    pub near_rows: u64,
    /// Number of rows that were removed because a user decided so.
    pub decided_rows: u64,
    pub kept_rows: u64,
    /// Present if texts were compared, not vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextCounts>,
    #[serde(flatten)]
    pub join: JoinCounts,
}

/// How texts were compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct TextCounts {
    pub min_jaccard: f64,
    pub shingles: String,
    pub shingle_size: u64,
    /// Number of bands of MinHash; `None` if the comparison is exact.
    pub bands: Option<u64>,
    pub hashes_per_band: Option<u64>,
    /// Probability that two texts at the threshold are compared.
    pub promised_recall: f64,
    /// Number of passes over the texts.
    pub passes: u64,
}

/// Statistics of a search.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SearchStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub search: SearchCounts,
}

/// Results of a search, and its average work per query. Calibration is not included.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SearchCounts {
    pub queries: u64,
    pub k: Option<u64>,
    pub hits: u64,
    /// Number of rows that pass the filter, if there is one.
    pub passing_rows: Option<u64>,
    pub buckets: Option<u64>,
    pub probes_per_query: Option<f64>,
    pub distances_per_query: f64,
    pub center_distances_per_query: Option<f64>,
    pub reads_per_query: f64,
    pub bytes_per_query: f64,
    /// Fraction of expanded vertices among the vertices on the pages that walks needed (Starling, appendix B).
    pub vertex_utilization: Option<f64>,
    pub queries_per_second: f64,
    /// Present if queries are answered one by one.
    pub latency_ms: Option<LatencyStatistics>,
}

/// Statistics of finding the nearest neighbors of each row.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct NearestStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub nearest: NearestCounts,
}

/// Results of the search for neighbors, and its average work per row. Calibration is not included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct NearestCounts {
    pub k: u64,
    pub within: Option<f64>,
    pub neighbors: u64,
    pub buckets: u64,
    pub probes_per_row: f64,
    pub distances_per_row: f64,
    /// Number of computed distances, as a fraction of the distances to all other rows.
    pub distances_share: f64,
    pub center_distances_per_row: f64,
    pub bytes_per_row: f64,
    pub rows_per_second: f64,
}

/// Latency of queries from the first to the last step, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct LatencyStatistics {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl LatencyStatistics {
    /// Computes statistics of times in milliseconds. Returns `None` if there are none.
    pub fn of(mut times: Vec<f32>) -> Option<Self> {
        times.sort_unstable_by(f32::total_cmp);
        let max = f64::from(*times.last()?);
        let share = |share: f64| f64::from(times[((times.len() - 1) as f64 * share).round() as usize]);
        let mean = times.iter().copied().map(f64::from).sum::<f64>() / times.len() as f64;
        Some(Self { mean, p50: share(0.5), p95: share(0.95), p99: share(0.99), max })
    }
}

/// Target recall and measured recall. It is the recall of hits ([`Self::at_k`]) or of pairs ([`Self::pair`],
/// [`Self::per_vector`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RecallStatistics {
    pub target: f64,
    /// Whether the target is for all pairs only, and not for a vector's neighbors on average.
    #[serde(default)]
    pub of_pairs_only: bool,
    pub kept: bool,
    pub at_k: Option<Interval>,
    /// Recall that 95 % of the queries reach or exceed.
    pub p5: Option<f64>,
    /// Description of the queries with which the recall was measured.
    pub queries: Option<String>,
    pub sample_queries: Option<u64>,
    pub pair: Option<Interval>,
    pub per_vector: Option<Interval>,
    /// Recall of the vectors of the second set, if two sets are joined.
    pub per_right_vector: Option<Interval>,
    pub sample_vectors: Option<u64>,
    pub sample_vectors_with_neighbors: Option<u64>,
    pub sample_pairs: Option<u64>,
}

impl RecallStatistics {
    /// Creates statistics with a target recall and without a measurement.
    pub fn promised(target: f64) -> Self {
        Self {
            target,
            of_pairs_only: false,
            kept: true,
            at_k: None,
            p5: None,
            queries: None,
            sample_queries: None,
            pair: None,
            per_vector: None,
            per_right_vector: None,
            sample_vectors: None,
            sample_vectors_with_neighbors: None,
            sample_pairs: None,
        }
    }

    /// Creates statistics for a rule that provably misses no pair.
    pub fn proved_of_pairs(target: f64) -> Self {
        Self { pair: Some(Interval::ONE), per_vector: Some(Interval::ONE), ..Self::promised(target) }
    }

    /// Creates statistics for an exhaustive search.
    pub fn proved_at_k(target: f64) -> Self {
        Self { at_k: Some(Interval::ONE), p5: Some(1.0), ..Self::promised(target) }
    }
}

/// An estimate with a lower and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The value 1, without any uncertainty.
    const ONE: Self = Self { estimate: 1.0, low: 1.0, high: 1.0 };
}

/// Resident memory of the process, compared with its budget.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct MemoryStatistics {
    pub budget_bytes: u64,
    /// The budget as a fraction of the available memory, if it was set as a fraction.
    pub share: Option<f64>,
    /// The available memory to which the fraction applies.
    pub share_of_bytes: Option<u64>,
    /// Limit that determines the available memory: `machine` or `cgroup`.
    pub share_of: Option<&'static str>,
    /// Peak resident memory of the process; `None` if the system does not report it.
    pub peak_bytes: Option<u64>,
    pub before_bytes: Option<u64>,
    /// Whether the process stayed within its budget; `None` if the peak is unknown.
    pub kept: Option<bool>,
    pub over_time: Option<Vec<(f64, u64)>>,
}

/// Bytes read and written.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct IoStatistics {
    pub bytes_read: Option<u64>,
    pub bytes_requested: Option<u64>,
    pub read_amplification: Option<f64>,
    pub passes: Option<f64>,
    pub bytes_written: Option<u64>,
    pub spill_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub cache_hit_rate: Option<f64>,
    pub device: String,
    pub direct: Option<bool>,
}

/// Time spent per phase.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct SecondsStatistics {
    pub total: f64,
    pub build: Option<f64>,
    pub calibrate: Option<f64>,
    pub plan: Option<f64>,
    pub execute: Option<f64>,
    pub write: Option<f64>,
    pub compute_waited_for_disk: Option<f64>,
    pub compute_waited_for_sink: Option<f64>,
}

/// Predictions of the plan.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct PredictedStatistics {
    pub bytes_read: Option<u64>,
    pub verified_pairs: Option<u64>,
    pub center_distances: Option<u64>,
    /// Present if the join builds its store first.
    pub seconds: Option<f64>,
}

/// Methods that the run used.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct StrategyStatistics {
    pub rule: Option<&'static str>,
    pub probes: Option<&'static str>,
    /// Threshold of the rule or of the probes, if they use one.
    pub t: Option<f64>,
    pub per_margin: Option<f64>,
    pub sample_seed: Option<u64>,
    pub sample_distances: Option<u64>,
    pub order: Option<Cow<'static, str>>,
    pub lead: Option<&'static str>,
    pub cache: Option<&'static str>,
    pub centers: Option<&'static str>,
}
