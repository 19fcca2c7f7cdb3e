//! Durations of writes, as quantiles.

use histogram::Histogram;
use serde::Serialize;

use super::sync::{Mutex, lock};
use crate::base::error::Result;
use crate::base::report::Stopwatch;

/// Parameters of the histogram of microseconds: relative precision and range, as powers of two. Durations are counted to
/// 3 % of their value, up to 18 minutes. Longer ones count as that.
const GROUPING_POWER: u8 = 5;
const VALUE_POWER: u8 = 30;

/// Durations of writes in milliseconds, from the call until the write is as durable as it demands, waits included. A
/// write that takes several steps counts once for each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WriteLatency {
    /// Half of the writes took at most this long.
    pub p50: f64,
    /// 99 % of the writes took at most this long.
    pub p99: f64,
    /// 99.9 % of the writes took at most this long.
    pub p999: f64,
    /// Duration of the longest write.
    pub max: f64,
}

/// Durations of writes so far.
pub(super) struct WriteLatencies(Mutex<Counted>);

struct Counted {
    counts: Histogram,
    max_us: u64,
}

impl WriteLatencies {
    pub(super) fn none() -> Self {
        let counts = Histogram::new(GROUPING_POWER, VALUE_POWER).expect("the parameters are in range");
        Self(Mutex::new(Counted { counts, max_us: 0 }))
    }

    /// Runs a write. Counts its duration if it succeeds.
    pub(super) fn of<R>(&self, write: impl FnOnce() -> Result<R>) -> Result<R> {
        let watch = Stopwatch::start();
        let written = write()?;
        self.add((watch.seconds() * 1e6) as u64);
        Ok(written)
    }

    fn add(&self, microseconds: u64) {
        let microseconds = microseconds.min((1 << VALUE_POWER) - 1);
        let mut counted = lock(&self.0);
        counted.counts.increment(microseconds).expect("longer durations were shortened");
        counted.max_us = counted.max_us.max(microseconds);
    }

    /// Returns the quantiles; `None` if nothing was written.
    pub(super) fn quantiles(&self) -> Option<WriteLatency> {
        let Counted { counts, max_us } = &*lock(&self.0);
        let ms = |microseconds: u64| microseconds as f64 / 1e3;
        let quantile = |share| Some(ms(counts.quantile_bucket(share).ok().flatten()?.end().min(*max_us)));
        Some(WriteLatency { p50: quantile(0.5)?, p99: quantile(0.99)?, p999: quantile(0.999)?, max: ms(*max_us) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

    #[test]
    fn quantiles_equal_those_of_sorted_durations() {
        let latencies = WriteLatencies::none();
        assert_eq!(latencies.quantiles(), None);
        (1..=1_000).for_each(|milliseconds| latencies.add(1_000 * milliseconds));
        let WriteLatency { p50, p99, p999, max } = latencies.quantiles().unwrap();
        for (found, wanted) in [(p50, 500.0), (p99, 990.0), (p999, 999.0)] {
            assert!((wanted..wanted * 1.04).contains(&found), "{found}, not {wanted}");
        }
        assert_eq!(max, 1_000.0);
        latencies.add(u64::MAX);
        assert_eq!(latencies.quantiles().unwrap().max, ((1 << VALUE_POWER) - 1) as f64 / 1e3);
    }

    #[test]
    fn failed_writes_do_not_count() {
        let latencies = WriteLatencies::none();
        assert!(latencies.of::<()>(|| Err(Error::input("refused"))).is_err());
        assert_eq!(latencies.quantiles(), None);
        latencies.of(|| Ok(())).unwrap();
        assert!(latencies.quantiles().is_some());
    }
}
