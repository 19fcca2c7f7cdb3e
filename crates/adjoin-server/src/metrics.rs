//! Counters and histograms in the format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adjoin::{CacheStatistics, device::current_resident_bytes};

/// Upper bounds of the histogram buckets of durations, in seconds.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, f64::INFINITY];
/// Upper bounds of the histogram buckets of queries per batch.
const QUERIES: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, f64::INFINITY];

/// Classes of response status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Reasons to reject a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadShedding {
    /// There was no memory or capacity for the request, or it was predicted to miss its deadline.
    Crowded,
    /// The server is shutting down, or all connections are taken.
    Closed,
    /// The deadline of the request passed.
    Late,
}

impl LoadShedding {
    const ALL: [Self; 3] = [Self::Crowded, Self::Closed, Self::Late];

    fn name(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::Closed => "closed",
            Self::Late => "late",
        }
    }

    /// Returns the reason of a rejection from the status of the response, or `None` if it is no rejection.
    pub(crate) fn of(status: u16) -> Option<Self> {
        match status {
            429 => Some(Self::Crowded),
            503 => Some(Self::Closed),
            504 => Some(Self::Late),
            _ => None,
        }
    }
}

/// All counts since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Durations from the arrival of requests to their responses.
    request_seconds: Histogram<15>,
    /// Durations from the arrival of requests to the start of their batches.
    queue_seconds: Histogram<15>,
    batch_queries: Histogram<9>,
    responses: [AtomicU64; 5],
    shed: [AtomicU64; 3],
    queries: AtomicU64,
    read_bytes: AtomicU64,
    connections: AtomicU64,
    generations: AtomicU64,
    generations_refused: AtomicU64,
}

/// Current values that are read when metrics are requested.
pub(crate) struct Gauges {
    pub(crate) budget_bytes: u64,
    pub(crate) waiting: usize,
    pub(crate) rows: u64,
    /// Statistics of a store's cached search since the current generation was opened.
    pub(crate) cache: Option<CacheStatistics>,
}

impl Metrics {
    /// Records a response to a search or a write, and how long it took.
    pub(crate) fn responded(&self, status: u16, seconds: Duration) {
        self.request_seconds.add(&SECONDS, seconds.as_secs_f64());
        self.answered(status);
    }

    /// Counts a response whose duration is not recorded.
    pub(crate) fn answered(&self, status: u16) {
        // The clamp protects the index only: no handler returns a status outside of 100 to 599.
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.responses[class].fetch_add(1, Ordering::Relaxed);
        if let Some(shed) = LoadShedding::of(status) {
            self.shed[shed as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a batch that starts.
    pub(crate) fn batch(&self, queries: u64) {
        self.batch_queries.add(&QUERIES, queries as f64);
    }

    /// Records how long a request waited for its batch.
    pub(crate) fn queued(&self, waited: Duration) {
        self.queue_seconds.add(&SECONDS, waited.as_secs_f64());
    }

    /// Counts answered queries, and the bytes read for them.
    pub(crate) fn searched(&self, queries: u64, read_bytes: u64) {
        self.queries.fetch_add(queries, Ordering::Relaxed);
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
    }

    /// Counts a connection as open until the returned guard is dropped.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self)
    }

    /// Counts a new generation that was opened.
    pub(crate) fn generation(&self) {
        self.generations.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new generation that could not be opened.
    pub(crate) fn generation_refused(&self) {
        self.generations_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4.
    pub(crate) fn text(&self, now: &Gauges) -> String {
        let mut text = String::new();
        let named = "adjoin_request_duration_seconds";
        self.request_seconds.write(&mut text, &SECONDS, named, "From the arrival of a request to its response.");
        let waited = "From the arrival of a request to the start of its batch.";
        self.queue_seconds.write(&mut text, &SECONDS, "adjoin_queue_seconds", waited);
        self.batch_queries.write(&mut text, &QUERIES, "adjoin_batch_queries", "Queries per batch.");
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let classes =
            CLASSES.iter().zip(&self.responses).map(|(class, count)| (format!("{{class=\"{class}\"}}"), of(count)));
        family(&mut text, "adjoin_responses_total", "counter", "Responses by status class.", classes);
        let shed =
            LoadShedding::ALL.map(|shed| (format!("{{reason=\"{}\"}}", shed.name()), of(&self.shed[shed as usize])));
        family(&mut text, "adjoin_shed_total", "counter", "Rejected requests.", shed);
        for (name, help, count) in [
            ("adjoin_queries_total", "Answered queries.", &self.queries),
            (
                "adjoin_read_bytes_total",
                "Bytes read for queries, including pages of an index that were cached.",
                &self.read_bytes,
            ),
            ("adjoin_generations_total", "Published generations that the server switched to.", &self.generations),
            (
                "adjoin_generations_refused_total",
                "Failed attempts to switch to a published generation.",
                &self.generations_refused,
            ),
        ] {
            family(&mut text, name, "counter", help, [(String::new(), of(count))]);
        }
        let memory = [("resident", current_resident_bytes()), ("budget", now.budget_bytes)];
        let memory = memory.map(|(kind, bytes)| (format!("{{kind=\"{kind}\"}}"), bytes));
        family(&mut text, "adjoin_memory_bytes", "gauge", "Memory of the process, and its budget.", memory);
        for (name, help, value) in [
            ("adjoin_connections", "Open connections.", of(&self.connections)),
            ("adjoin_waiting_requests", "Requests that wait for a batch.", now.waiting as u64),
            ("adjoin_rows", "Rows served.", now.rows),
        ] {
            family(&mut text, name, "gauge", help, [(String::new(), value)]);
        }
        if let Some(CacheStatistics { counts, cache_bytes, .. }) = now.cache {
            for (name, help, value) in [
                ("adjoin_cache_uses", "Buckets that queries probed since the last generation.", counts.uses),
                ("adjoin_cache_misses", "Probed buckets that were not in memory.", counts.misses),
                ("adjoin_cache_loads", "Buckets read.", counts.loads),
                ("adjoin_cache_bytes", "Bytes of buckets that may stay in memory.", cache_bytes),
            ] {
                family(&mut text, name, "gauge", help, [(String::new(), value)]);
            }
        }
        text
    }
}

/// Guard of an open connection.
pub(crate) struct Connected<'a>(&'a Metrics);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts of values, by range.
struct Histogram<const N: usize> {
    counts: [AtomicU64; N],
    /// Sum in millionths.
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Histogram<N> {
    fn add(&self, ends: &[f64; N], value: f64) {
        let at = ends.iter().position(|&end| value <= end).unwrap_or(N - 1);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        // The sum is an integer, since there are no atomic floats.
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, ends: &[f64; N], name: &str, help: &str) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut total = 0;
        for (end, count) in ends.iter().zip(&self.counts) {
            // Buckets of Prometheus are cumulative: each counts all values up to its upper bound.
            total += count.load(Ordering::Relaxed);
            let end = if end.is_finite() { end.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {total}");
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {total}");
    }
}

/// Writes one line for each set of labels of a metric.
pub(crate) fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, u64)>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Gauges = Gauges { budget_bytes: 100, waiting: 3, rows: 7, cache: None };

    #[test]
    fn metrics_are_in_prometheus_format() {
        let metrics = Metrics::default();
        let connected = metrics.connected();
        metrics.responded(200, Duration::from_millis(3));
        metrics.responded(429, Duration::from_millis(1));
        metrics.responded(504, Duration::from_secs(100));
        metrics.batch(7);
        metrics.searched(7, 4_096);
        let text = metrics.text(&NOW);
        for line in [
            "# TYPE adjoin_request_duration_seconds histogram",
            "adjoin_request_duration_seconds_bucket{le=\"0.001\"} 1",
            "adjoin_request_duration_seconds_bucket{le=\"0.005\"} 2",
            "adjoin_request_duration_seconds_bucket{le=\"30\"} 2",
            "adjoin_request_duration_seconds_bucket{le=\"+Inf\"} 3",
            "adjoin_request_duration_seconds_sum 100.004",
            "adjoin_request_duration_seconds_count 3",
            "adjoin_batch_queries_bucket{le=\"10\"} 1",
            "adjoin_responses_total{class=\"2xx\"} 1",
            "adjoin_responses_total{class=\"4xx\"} 1",
            "adjoin_shed_total{reason=\"crowded\"} 1",
            "adjoin_shed_total{reason=\"late\"} 1",
            "adjoin_queries_total 7",
            "adjoin_read_bytes_total 4096",
            "adjoin_memory_bytes{kind=\"budget\"} 100",
            "adjoin_connections 1",
            "adjoin_waiting_requests 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("adjoin_cache"), "nothing is cached of an index");
        drop(connected);
        assert!(metrics.text(&NOW).contains("\nadjoin_connections 0\n"));
    }

    #[test]
    fn every_name_is_declared_once_before_its_values() {
        let now = Gauges { cache: Some(CacheStatistics::default()), ..NOW };
        let text = Metrics::default().text(&now);
        let mut declared = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(declared.insert(rest.split(' ').next().unwrap().to_owned()), "{line}");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let family =
                    ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
                assert!(declared.contains(family), "{line}");
            }
        }
    }
}
