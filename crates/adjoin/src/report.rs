//! What a run tells: how far it is, what it did, and whether its promises were kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adjoin_device::current_resident_bytes;
use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::options::format_number;
use crate::workers::lock;

/// Set by whoever wants the work to stop; clones share one flag and one deadline.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Cancel {
    /// Asks the work to stop at its next check.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked.
    pub fn is_cancelled(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// For a part of the work that has a deadline of its own: it stops when all of it does, too.
    pub fn with_deadline(&self, deadline: Option<Instant>) -> Self {
        Self { asked: self.asked.clone(), deadline: Arc::new(Mutex::new(deadline)) }
    }

    /// From when on the result is of no use.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *lock(&self.deadline) = deadline;
    }

    /// # Errors
    /// [`crate::error::ErrorKind::Cancelled`] where the work is to stop, [`crate::error::ErrorKind::Late`] where its deadline has
    /// passed.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::cancelled());
        }
        let deadline = *lock(&self.deadline);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::late("the deadline passed before all was looked at; allow more"));
        }
        Ok(())
    }
}

/// Who is told how far the work is. All methods may be called from any thread.
pub trait Progress: Send + Sync {
    /// A phase begins: its name, what is counted, and how much of it there is.
    fn begin(&self, phase: &str, unit: &str, total: u64);
    /// So much of the phase is done, in its unit, since it began.
    fn advance(&self, done: u64);
    /// One line that a person should read once.
    fn note(&self, line: &str);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, _line: &str) {}
}

/// Time since it was made.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// Seconds since the start, or since the last lap.
    pub fn lap(&mut self) -> f64 {
        let seconds = self.seconds();
        *self = Self::start();
        seconds
    }
}

/// Time added up over threads, in seconds.
#[derive(Debug, Default)]
pub struct SharedSeconds(AtomicU64);

impl SharedSeconds {
    /// Runs `work` and adds the time that it took.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.0.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// The sum.
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)).as_secs_f64()
    }
}

/// Looks at the resident memory of the process from time to time, on a thread of its own.
pub struct MemoryWatch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(f64, u64)>>,
}

/// Time between two looks at first.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Looks that are kept; of more every second one is let go, and from then on half as many are taken.
const LOOKS_MAX: usize = 512;

impl MemoryWatch {
    /// Begins to look; not at all where the system gives no thread.
    pub fn begin() -> Option<Self> {
        let (stop, stopped) = unbounded();
        let look = move || {
            let (watch, mut every, mut looks) = (Stopwatch::start(), LOOK_EVERY, Vec::new());
            loop {
                looks.push((watch.seconds(), current_resident_bytes()));
                if looks.len() == LOOKS_MAX {
                    let mut number = 0;
                    looks.retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    every *= 2;
                }
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return looks;
                }
            }
        };
        let thread = std::thread::Builder::new().name("memory".into()).spawn(look).ok()?;
        Some(Self { stop, thread })
    }

    /// Ends; returns seconds since the beginning and bytes, one after the other.
    pub fn finish(self) -> Vec<(f64, u64)> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Lines noted during a run, kept for tests and for callers that show them later.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Progress for Notes {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}

/// A cluster of so many rows, and of more than one part in so many of all, is worth a warning.
const CLUSTER_ROWS_MANY: u64 = 100;
const CLUSTER_SHARE_MANY: u64 = 100;

/// What a sink wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows of the result.
    pub rows: u64,
    /// Rows to keep, where they are a result of their own.
    pub kept_rows: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Bytes of temporary files.
    pub spill_bytes: u64,
    /// Rows of the largest cluster, if the result is made of clusters.
    pub largest_cluster: Option<u64>,
    /// Rows to remove that are not within the threshold of the row that is kept for them.
    pub removed_beyond_threshold: Option<u64>,
}

impl Written {
    /// A warning, if one cluster has so many of all rows that the threshold is probably too loose.
    pub(crate) fn cluster_warning(&self, rows: u64) -> Option<String> {
        let largest = self.largest_cluster.filter(|&rows| rows >= CLUSTER_ROWS_MANY)?;
        (largest.saturating_mul(CLUSTER_SHARE_MANY) > rows).then(|| {
            let [largest, rows] = [largest, rows].map(format_number);
            format!(
                "warning: one cluster has {largest} of {rows} rows; the threshold may be too loose, or these are empty or \
                 default values"
            )
        })
    }
}

/// Version of the names of [`CommonStatistics`] and of what each command adds to them.
pub const STATISTICS_VERSION: u32 = 2;

/// What every command that computes reports; the names are fixed, what does not apply is null. Beside it a command has one
/// object of its own name.
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

/// Everything that a join reports.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct JoinStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub join: JoinCounts,
    /// Of a join that another run can go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeStatistics>,
    #[serde(skip)]
    pub written: Written,
}

/// In how many runs a join was made, and what these did twice.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct ResumeStatistics {
    pub runs: u64,
    pub legs: u64,
    pub legs_done_before: u64,
    pub verified_pairs_repeated_max: u64,
}

impl JoinStatistics {
    /// Takes note of what `finish` writes, and of the time that it takes.
    ///
    /// # Errors
    /// Those of `finish`.
    pub(crate) fn write(&mut self, finish: impl FnOnce() -> Result<Written>) -> Result<()> {
        let watch = Stopwatch::start();
        self.written = finish()?;
        let Self { common: CommonStatistics { seconds, io, .. }, written, .. } = self;
        let took = watch.seconds();
        seconds.total += took;
        for part in [&mut seconds.execute, &mut seconds.write] {
            *part.get_or_insert(0.0) += took;
        }
        (io.bytes_written, io.spill_bytes) = (Some(written.bytes), Some(written.spill_bytes));
        self.join.largest_cluster = written.largest_cluster;
        self.join.removed_beyond_threshold = written.removed_beyond_threshold;
        Ok(())
    }
}

/// What a join was asked for, found and computed.
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
    /// Of the second set, where two are joined.
    pub with_rows: Option<u64>,
    /// Rows that meet the condition, where there is one; the same of the second set.
    pub passing_rows: Option<u64>,
    pub with_passing_rows: Option<u64>,
    /// Rows that came to those that were there, where any did, and those that meet the condition.
    pub new_rows: Option<u64>,
    pub new_passing_rows: Option<u64>,
    /// Buckets without a row that meets the condition of its set, which are never read, and their bytes; where there is one.
    pub skipped_buckets: Option<u64>,
    pub skipped_bytes: Option<u64>,
    /// Rows of the largest cluster, and rows to remove that are not within the threshold of the row kept for them; if the
    /// result is made of clusters.
    pub largest_cluster: Option<u64>,
    pub removed_beyond_threshold: Option<u64>,
}

/// Everything that the writing of a data set without its near-duplicates reports.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct DedupeStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub dedupe: DedupeCounts,
}

/// Which rows went and stayed, and what the join took that decided about near ones.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct DedupeCounts {
    pub source_rows: u64,
    pub equal_rows: u64,
    pub near_rows: u64,
    pub kept_rows: u64,
    #[serde(flatten)]
    pub join: JoinCounts,
}

/// Everything that a search reports.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SearchStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub search: SearchCounts,
}

/// What a search did for a query, on average, the calibration apart.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct SearchCounts {
    pub queries: u64,
    pub k: Option<u64>,
    pub hits: u64,
    /// Rows that meet the condition, where there is one.
    pub passing_rows: Option<u64>,
    pub buckets: Option<u64>,
    pub probes_per_query: Option<f64>,
    pub distances_per_query: f64,
    pub center_distances_per_query: Option<f64>,
    pub reads_per_query: f64,
    pub bytes_per_query: f64,
    /// Of the vertices on the pages that walks needed, the share that led them on (Starling, appendix B).
    pub vertex_utilization: Option<f64>,
    pub queries_per_second: f64,
    /// Where queries are answered one by one.
    pub latency_ms: Option<LatencyStatistics>,
}

/// Everything that a run reports which finds the nearest neighbours of each row.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct NearestStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub nearest: NearestCounts,
}

/// What was done for a row, on average, the calibration apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct NearestCounts {
    pub k: u64,
    pub within: Option<f64>,
    pub neighbours: u64,
    pub buckets: u64,
    pub probes_per_row: f64,
    pub distances_per_row: f64,
    /// Of the distances to all other rows.
    pub distances_share: f64,
    pub center_distances_per_row: f64,
    pub bytes_per_row: f64,
    pub rows_per_second: f64,
}

/// How long queries took, each from its first step to its last, in milliseconds.
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
    /// Of times in milliseconds; none of none.
    pub fn of(mut times: Vec<f32>) -> Option<Self> {
        times.sort_unstable_by(f32::total_cmp);
        let max = f64::from(*times.last()?);
        let share = |share: f64| f64::from(times[((times.len() - 1) as f64 * share).round() as usize]);
        let mean = times.iter().copied().map(f64::from).sum::<f64>() / times.len() as f64;
        Some(Self { mean, p50: share(0.5), p95: share(0.95), p99: share(0.99), max })
    }
}

/// The recall that was promised and what is known of the one reached: of the hits of queries ([`Self::at_k`]), or of pairs
/// ([`Self::pair`], [`Self::per_vector`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RecallStatistics {
    pub target: f64,
    pub kept: bool,
    pub at_k: Option<Interval>,
    /// What 95 % of the queries reach.
    pub p5: Option<f64>,
    /// Whose recall that is.
    pub queries: Option<String>,
    pub sample_queries: Option<u64>,
    pub pair: Option<Interval>,
    pub per_vector: Option<Interval>,
    /// Of the vectors of the second set, where two are joined.
    pub per_right_vector: Option<Interval>,
    pub sample_vectors: Option<u64>,
    pub sample_vectors_with_neighbours: Option<u64>,
    pub sample_pairs: Option<u64>,
}

impl RecallStatistics {
    /// A promise of which nothing is known yet.
    pub fn promised(target: f64) -> Self {
        Self {
            target,
            kept: true,
            at_k: None,
            p5: None,
            queries: None,
            sample_queries: None,
            pair: None,
            per_vector: None,
            per_right_vector: None,
            sample_vectors: None,
            sample_vectors_with_neighbours: None,
            sample_pairs: None,
        }
    }

    /// Of a rule that is proved to miss no pair.
    pub fn proved_of_pairs(target: f64) -> Self {
        Self { pair: Some(Interval::ONE), per_vector: Some(Interval::ONE), ..Self::promised(target) }
    }

    /// Of a search that looks everywhere.
    pub fn proved_at_k(target: f64) -> Self {
        Self { at_k: Some(Interval::ONE), p5: Some(1.0), ..Self::promised(target) }
    }
}

/// An estimate between its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// All, for certain.
    const ONE: Self = Self { estimate: 1.0, low: 1.0, high: 1.0 };
}

/// Resident memory of the process against its budget.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct MemoryStatistics {
    pub budget_bytes: u64,
    /// Of a budget that is a share of what the system gives: which share, of how much, and whose that is, `machine` or
    /// `cgroup`.
    pub share: Option<f64>,
    pub share_of_bytes: Option<u64>,
    pub share_of: Option<&'static str>,
    pub peak_bytes: u64,
    pub before_bytes: Option<u64>,
    pub kept: bool,
    pub over_time: Option<Vec<(f64, u64)>>,
}

/// What was read and written.
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

/// Where the time went.
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

/// What the plan expected.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct PredictedStatistics {
    pub bytes_read: Option<u64>,
    pub verified_pairs: Option<u64>,
    pub center_distances: Option<u64>,
    /// Of a join that builds its store first.
    pub seconds: Option<f64>,
}

/// How it was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct StrategyStatistics {
    pub rule: Option<&'static str>,
    pub probes: Option<&'static str>,
    /// The threshold of a rule or of probes that need one.
    pub t: Option<f64>,
    pub per_margin: Option<f64>,
    pub sample_seed: Option<u64>,
    pub sample_distances: Option<u64>,
    pub order: Option<&'static str>,
    pub lead: Option<&'static str>,
    pub cache: Option<&'static str>,
    pub centers: Option<&'static str>,
}
