//! Decides how many buckets the queries of a search probe, and which recall is promised.

use super::calibration::{self, Calibrated, CalibrationDraw, CalibrationSamples, calibrate};
use super::queries::QuerySet;
use super::searcher::Searcher;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::report::RecallStatistics;
use crate::plan::Probes;
use crate::query::{SearchEffort, SearchGoal};

/// Rule by which queries choose their probes, and the recall that it reaches.
#[derive(Debug, Clone)]
pub(crate) struct ProbePlan {
    pub(crate) probes: Probes,
    pub(crate) recall: Option<RecallStatistics>,
    pub(super) calibrated: bool,
}

/// Returns the recall for which a search of `queries` queries among `rows` rows is calibrated, or `None` if no
/// calibration is needed.
///
/// An exact search needs none. Neither does a search that has at most as many queries as a calibration: a calibration
/// compares each of its queries with all vectors. Doing so for the queries themselves costs less, and misses nothing.
pub(crate) fn recall_to_learn(effort: SearchEffort, queries: u64, rows: u64) -> Option<f64> {
    let target = effort.recall().filter(|&target| target < 1.0)?;
    (queries > calibration::VECTORS && calibration::is_worth_it(rows, calibration::VECTORS)).then_some(target)
}

impl ProbePlan {
    /// Returns the plan that probes every bucket that may hold a hit. It reaches any recall.
    pub(crate) fn everywhere(target: f64) -> Self {
        Self { probes: Probes::Bound, recall: Some(RecallStatistics::proved_at_k(target)), calibrated: false }
    }

    /// Chooses the probes for `queries` queries. `seed` is the seed of the calibration sample. `samples` are earlier
    /// samples that can be used, if any.
    ///
    /// # Errors
    /// If the store or the calibration queries cannot be read, or if memory does not suffice.
    pub(crate) fn of<T: Coordinate>(
        searcher: &Searcher<'_, T>,
        queries: u64,
        calibration_queries: QuerySet<'_>,
        SearchGoal { target, effort }: SearchGoal,
        seed: u64,
        samples: Option<&mut CalibrationSamples>,
    ) -> Result<Self> {
        if let SearchEffort::Probes(count) = effort {
            let probes = Probes::Nearest(count.min(searcher.buckets.count()));
            return Ok(Self { probes, recall: None, calibrated: false });
        }
        let Some(recall) = recall_to_learn(effort, queries, searcher.all_rows()) else {
            return Ok(Self::everywhere(effort.recall().unwrap_or(1.0)));
        };
        let draw = CalibrationDraw { queries: calibration_queries, count: calibration::VECTORS, seed };
        let Some(Calibrated { rule, at_k, p5, vectors }) = calibrate(searcher, draw, target, recall, samples)? else {
            // The calibration did not support the promise, but it is reported since it took time.
            return Ok(Self { calibrated: true, ..Self::everywhere(recall) });
        };
        let drawn_from = match calibration_queries {
            QuerySet::Rows | QuerySet::AllRows => "rows of the store",
            QuerySet::Source(_) => "calibrate-with",
        };
        let promised = RecallStatistics {
            at_k: Some(at_k),
            p5: Some(p5),
            queries: Some(drawn_from.to_owned()),
            sample_queries: Some(vectors),
            ..RecallStatistics::promised(recall)
        };
        Ok(Self { probes: Probes::By(rule), recall: Some(promised), calibrated: true })
    }
}
