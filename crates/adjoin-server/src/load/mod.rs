//! Load generator with an open loop. Arrival times and requests are computed in advance. Each request is sent at its
//! time, even if earlier requests have not been answered. Latency is measured from the intended time. So if a server
//! stalls for a second, the latencies of all requests of that second include the stall.

mod arrivals;
mod client;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use adjoin::{Cancel, Error, Result};
use histogram::Histogram;
use serde::Serialize;

use self::arrivals::arrivals;
use self::client::{Client, Target};

/// Maximum duration of one sleep, so that a thread notices cancellation soon.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Stack size of a thread that waits for answers.
const STACK_BYTES: usize = 128 << 10;
/// Parameters of the latency histograms: relative precision and range, as powers of two. Latencies are recorded in
/// microseconds, to a thousandth of their value, up to ten minutes.
const GROUPING_POWER: u8 = 10;
const VALUE_POWER: u8 = 30;
const MICROSECONDS_MAX: u64 = 600_000_000;

/// Options of a load test.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Address that answers searches: `http://HOST:PORT/PATH`.
    pub url: String,
    /// Key to send.
    pub key: Option<String>,
    /// Requests per second, on average outside of bursts.
    pub rate: f64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Seed of the arrival times.
    pub seed: u64,
    /// Maximum number of concurrent requests.
    pub connections: usize,
}

/// Outcome of a load test.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Requests sent.
    pub requests: u64,
    /// Requests answered with 200.
    pub answered: u64,
    /// Requests refused with 429 or 503.
    pub refused: u64,
    /// Requests that passed their deadline (504).
    pub late: u64,
    /// Requests with any other status, or without an answer.
    pub failed: u64,
    /// Reason of the first such failure.
    pub failure: Option<String>,
    /// Seconds from the first moment to the last answer.
    pub seconds: f64,
    /// Answers per second.
    pub answered_per_second: f64,
    /// Latencies from the intended times to the answers.
    pub latency_ms: Option<LoadLatency>,
    /// Latencies from the actual sending to the refusals.
    pub refusal_ms: Option<LoadLatency>,
    /// Largest delay between the intended time of a request and its sending. If it is more than a few milliseconds,
    /// the load generator was too slow, not the server.
    pub sent_late_ms_max: f64,
}

/// Times of requests, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct LoadLatency {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// Counts and times of the requests, by outcome.
struct Tally {
    answered: Times,
    refused: Times,
    late: u64,
    failed: u64,
    failure: Option<String>,
    sent_late_us_max: u64,
}

/// Sends requests at times that the seed determines, until `cancel` is set. The bodies are used in turn, repeatedly.
///
/// # Errors
/// If an option is invalid, or no server listens at the address.
pub fn load(options: &LoadOptions, bodies: &[Vec<u8>], cancel: &Cancel) -> Result<LoadReport> {
    check(options, bodies)?;
    let target = Target::of(&options.url, options.key.as_deref())?;
    let moments = arrivals(options.rate, options.seconds, options.seed);
    let requests: Vec<Vec<u8>> = bodies.iter().map(|body| target.request(body)).collect();
    drop(Client::connect(&target)?);
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::none()?));
    let begun = Instant::now();
    let work = || {
        let mut client = Client::none(&target);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&moment) = moments.get(number) else { return };
            let intended = begun + moment;
            if !sleep_until(intended, cancel) {
                return;
            }
            let sent = Instant::now();
            let status = client.ask(&requests[number % requests.len()]);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(status, RequestTimes { intended, sent, ended: Instant::now() });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.connections.min(moments.len()) {
            let builder = std::thread::Builder::new().name("load".into()).stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, work).map_err(|error| {
                cancel.cancel(); // started threads stop
                Error::no_thread(error)
            })?;
        }
        Ok::<(), Error>(())
    })?;
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(tally.report(begun.elapsed().as_secs_f64()))
}

/// Sleeps until `moment`; returns false if canceled before.
fn sleep_until(moment: Instant, cancel: &Cancel) -> bool {
    loop {
        if cancel.is_cancelled() {
            return false;
        }
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLEEP_MAX));
    }
}

fn check(options: &LoadOptions, bodies: &[Vec<u8>]) -> Result<()> {
    let LoadOptions { rate, seconds, connections, .. } = *options;
    if bodies.is_empty() {
        return Err(Error::input("there are no queries to send; name a source that has some"));
    }
    if !(rate > 0.0 && rate <= 1e6 && seconds > 0.0 && seconds <= 86_400.0 && rate * seconds <= 1e8) {
        return Err(Error::option(format!(
            "{rate} requests per second for {seconds} s; give a rate up to 1000000, for up to a day, 100 million in all"
        )));
    }
    if !(1..=4_096).contains(&connections) {
        return Err(Error::option(format!("{connections} connections; give 1 to 4096")));
    }
    Ok(())
}

/// Moments of a request.
struct RequestTimes {
    /// The time at which it should have been sent.
    intended: Instant,
    sent: Instant,
    ended: Instant,
}

impl Tally {
    fn none() -> Result<Self> {
        let (answered, refused) = (Times::none()?, Times::none()?);
        Ok(Self { answered, refused, late: 0, failed: 0, failure: None, sent_late_us_max: 0 })
    }

    fn add(&mut self, status: std::io::Result<u16>, times: RequestTimes) {
        let RequestTimes { intended, sent, ended } = times;
        let microseconds = |time: Duration| (time.as_micros() as u64).clamp(1, MICROSECONDS_MAX);
        self.sent_late_us_max = self.sent_late_us_max.max(microseconds(sent.saturating_duration_since(intended)));
        match status {
            // Latency counts from the intended time. If an earlier answer was slow, so that a request was sent late,
            // this request must count as slow too (coordinated omission).
            Ok(200) => self.answered.add(microseconds(ended - intended)),
            Ok(429 | 503) => self.refused.add(microseconds(ended - sent)),
            Ok(504) => self.late += 1,
            Ok(status) => self.fail(format!("status {status}")),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        self.failure.get_or_insert(why);
    }

    fn report(self, seconds: f64) -> LoadReport {
        let (answered, refused) = (self.answered.count, self.refused.count);
        LoadReport {
            requests: answered + refused + self.late + self.failed,
            answered,
            refused,
            late: self.late,
            failed: self.failed,
            failure: self.failure,
            seconds,
            answered_per_second: answered as f64 / seconds,
            latency_ms: self.answered.statistics(),
            refusal_ms: self.refused.statistics(),
            sent_late_ms_max: self.sent_late_us_max as f64 / 1e3,
        }
    }
}

/// Histogram of times in microseconds.
struct Times {
    counts: Histogram,
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Times {
    fn none() -> Result<Self> {
        let impossible = |error| Error::option(format!("latencies cannot be counted: {error}"));
        let counts = Histogram::new(GROUPING_POWER, VALUE_POWER).map_err(impossible)?;
        Ok(Self { counts, count: 0, sum_us: 0, max_us: 0 })
    }

    fn add(&mut self, microseconds: u64) {
        if self.counts.increment(microseconds).is_ok() {
            self.count += 1;
            self.sum_us += microseconds;
            self.max_us = self.max_us.max(microseconds);
        }
    }

    /// Returns the statistics; `None` if there are no times.
    fn statistics(&self) -> Option<LoadLatency> {
        let ms = |microseconds: u64| microseconds as f64 / 1e3;
        let share = |share: f64| {
            let bucket = self.counts.quantile_bucket(share).ok().flatten()?;
            Some(ms(bucket.end().min(self.max_us)))
        };
        let (p50, p95, p99) = (share(0.5)?, share(0.95)?, share(0.99)?);
        Some(LoadLatency { mean: ms(self.sum_us) / self.count as f64, p50, p95, p99, max: ms(self.max_us) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_starts_at_the_intended_time_and_refusals_at_sending() {
        let mut tally = Tally::none().unwrap();
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let times = |intended, sent, ended| RequestTimes { intended: at(intended), sent: at(sent), ended: at(ended) };
        tally.add(Ok(200), times(0, 30, 50));
        tally.add(Ok(429), times(0, 30, 32));
        tally.add(Ok(504), times(0, 0, 9));
        tally.add(Ok(500), times(0, 0, 9));
        tally.add(Err(std::io::Error::other("gone")), times(0, 0, 9));
        let report = tally.report(2.0);
        assert_eq!((report.requests, report.answered, report.refused, report.late, report.failed), (5, 1, 1, 1, 2));
        assert_eq!(report.failure.as_deref(), Some("status 500"));
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted / 500.0;
        assert!(near(report.latency_ms.unwrap().p99, 50.0) && near(report.refusal_ms.unwrap().max, 2.0));
        assert!(near(report.sent_late_ms_max, 30.0) && report.answered_per_second == 0.5);
    }
}
