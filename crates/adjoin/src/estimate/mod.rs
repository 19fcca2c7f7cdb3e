//! Estimates the result and the cost of a join from a sample, before anything is built.
//!
//! The first scan checks the rows and samples some (`survey.rs`). The second scan compares the sample with all rows
//! (`compare.rs`) and counts neighbors within many thresholds at once (`ladder.rs`, `notes.rs`). The third scan
//! searches for earlier neighbors of some of these neighbors. From these follows how many rows are removed if the first
//! of near-duplicates is kept (`removed.rs`). Pairs near each threshold are examples (`examples.rs`). Time, memory and
//! disk follow from the measurements of the scans and from the choices of planning (`cost.rs`).

mod compare;
mod cost;
mod examples;
mod ladder;
mod memory;
mod near_pairs;
mod notes;
mod removed;
mod survey;
mod target;

use serde::Serialize;

use self::compare::{Among, Compared};
use self::cost::Clock;
pub(crate) use self::cost::Footprint;
use self::examples::{ExampleColumns, PairExample};
use self::ladder::Ladder;
use self::memory::Sizes;
use self::removed::RemovalEstimate;
use self::survey::{Scans, Survey};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, Threshold, with_coordinates};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::base::predicate::Predicate;
use crate::base::report::{CommonStatistics, Interval, PredictedStatistics, SecondsStatistics, Stopwatch};
use crate::join::JoinEffort;
use crate::source::VectorSource;
use crate::store::BuildOptions;
use crate::truth::means;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "this estimate";
/// Mean numbers of neighbors. The estimate is reported for the thresholds at which vectors have these numbers.
const NEIGHBORS: [f64; 4] = [0.1, 1.0, 10.0, 100.0];
/// Approximate mean number of neighbors at the farthest threshold.
const NEIGHBORS_MAX: f64 = 200.0;
/// If vectors have more neighbors than this on average within the requested threshold, fewer rows are compared, but
/// at least `COMPARED_MIN`.
const NEIGHBORS_MANY: f64 = 1_000.0;
const COMPARED_MIN: usize = 256;
/// Minimum number of distances between sampled rows from which a threshold is derived.
const PAIRS_MIN: u64 = 32;

/// Request for an estimate.
struct EstimateQuestion<'a> {
    /// Options of the build of a store. Their metric is also the metric of the thresholds.
    build: &'a BuildOptions,
    /// Threshold to report in addition to those for [`NEIGHBORS`].
    asked: Option<Predicate>,
    /// Recall of the join.
    aim: JoinEffort,
}

/// Predicted result and cost of joins.
#[derive(Debug, Clone, Serialize)]
pub struct Estimate {
    /// Statistics of the run of the estimate. Its `predicted` describes the join with the requested threshold.
    #[serde(flatten)]
    pub common: CommonStatistics,
    /// Prediction for joins of the source.
    pub explain: Explained,
}

/// Prediction for joins of a source.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// Number of rows that were compared with all others.
    pub compared_rows: u64,
    /// Predictions by threshold, from the nearest to the farthest.
    pub thresholds: Vec<AtThreshold>,
    /// Memory and disk of a join with any threshold.
    pub footprint: Footprint,
}

impl Explained {
    /// Returns the prediction for the requested threshold.
    pub fn asked(&self) -> Option<&AtThreshold> {
        self.thresholds.iter().find(|at| at.asked)
    }
}

/// Prediction for a join with a threshold. The bounds have 95 % confidence and come from the sample. A join with a
/// recall below 1 may find only that fraction of the pairs; the lower bounds of pairs and of their bytes allow for
/// it.
#[derive(Debug, Clone, Serialize)]
pub struct AtThreshold {
    /// A distance or a similarity.
    pub threshold: f64,
    /// Whether it is the requested threshold.
    pub asked: bool,
    /// Mean number of neighbors of a vector.
    pub neighbors: f64,
    /// Number of pairs within the threshold.
    pub pairs: Interval,
    /// Bytes of these pairs as a Parquet file.
    pub pairs_bytes: Interval,
    /// Number of rows removed if the first of near-duplicates is kept.
    pub removed_rows: Interval,
    /// Seconds of a join including the build, if this machine is otherwise idle. The bounds are the range that was
    /// observed in real runs.
    pub seconds: Interval,
    /// The sampled pairs within the threshold that are nearest to it, if the build has columns to show.
    pub examples: Vec<PairExample>,
}

impl Estimate {
    /// Estimates the result and the cost of joins of a source, with the recall of `aim`. The thresholds have the
    /// metric of the build. The threshold `asked`, if given, is reported too. If the build has columns to keep, each
    /// threshold has examples of pairs with these columns.
    ///
    /// # Errors
    /// If rows are invalid or cannot be read, if there are fewer than two, if the threshold has another metric, if there
    /// is no such column, or if the budget is too small.
    pub fn new(
        context: &Context,
        source: &dyn VectorSource,
        build: &BuildOptions,
        asked: Option<Predicate>,
        aim: JoinEffort,
    ) -> Result<Self> {
        let watch = Stopwatch::start();
        let columns = ExampleColumns::open(context, source, &build.attributes)?;
        let question = EstimateQuestion { build, asked, aim };
        let mut estimate = surveyed(context, source, &question, |estimator, space, free| {
            let Estimator { scans, survey, .. } = estimator;
            let mut thresholds = with_coordinates!(space, T => estimator.run::<T>(space)?);
            if columns.is_some() {
                examples::number_rows(scans, survey.scanned.skipped_rows, &mut thresholds)?;
            } else {
                thresholds.iter_mut().for_each(|at| at.examples.clear());
            }
            let footprint = with_coordinates!(space, T => Footprint::new::<T>(scans, survey, free));
            let explain = Explained { compared_rows: survey.places.len() as u64, thresholds, footprint };
            let info = source.info();
            let common = CommonStatistics {
                rows: survey.scanned.usable_rows,
                dimensions: info.vectors.dimensions,
                element: info.vectors.element.to_string(),
                metric: build.metric.to_string(),
                seed: build.seed,
                skipped_rows: survey.scanned.skipped_rows,
                predicted: explain.asked().map(|at| PredictedStatistics {
                    seconds: Some(at.seconds.estimate),
                    ..PredictedStatistics::default()
                }),
                ..scans.context.statistics("explain")
            };
            Ok(Self { common, explain })
        })?;
        if let Some(columns) = columns {
            columns.read(context, &mut estimate.explain.thresholds)?;
        }
        let seconds = SecondsStatistics { total: watch.seconds(), ..SecondsStatistics::default() };
        estimate.common = CommonStatistics { seconds, memory: context.memory(), ..estimate.common };
        Ok(estimate)
    }
}

/// Samples rows of a source, and calls `work` with an estimator for them and the space in which they are compared.
/// The last argument of `work` is the memory that was free before.
fn surveyed<R>(
    context: &Context,
    source: &dyn VectorSource,
    question: &EstimateQuestion<'_>,
    work: impl FnOnce(&Estimator<'_>, Space<'_>, u64) -> Result<R>,
) -> Result<R> {
    let metric = question.build.metric;
    check(question, source)?;
    let least = Sizes::new(source, question.build, 0).bytes(context, source, metric);
    let context = context.for_run(least, PURPOSE)?;
    let free = context.budget().free();
    // The sizes are chosen for the free memory. If they do not fit, the smallest sizes are used.
    let sizes =
        Some(Sizes::new(source, question.build, free)).filter(|sizes| sizes.bytes(&context, source, metric) <= free);
    let sizes = &sizes.unwrap_or_else(|| Sizes::new(source, question.build, 0));
    let _memory = context.reserve(sizes.bytes(&context, source, metric), PURPOSE)?;
    let scans = Scans { context: &context, source, options: question.build, sizes };
    let survey = scans.survey()?;
    let coding = survey.coding(&scans)?;
    let plain = Space::plain(scans.vectors(), metric);
    let space = Space { coding: coding.as_ref(), ..plain };
    work(&Estimator { scans, question, survey: &survey }, space, free)
}

fn check(question: &EstimateQuestion<'_>, source: &dyn VectorSource) -> Result<()> {
    let metric = question.build.metric;
    metric.check_joins("the estimate")?;
    if let Some(asked) = question.asked.filter(|asked| asked.metric() != metric) {
        let right = if metric == Metric::L2 { Argument::Eps } else { Argument::MinSimilarity };
        return Err(Error::option(message![
            format!("the threshold is for the metric {}; give ", asked.metric()),
            right,
            ", or leave out ",
            Argument::Metric.with(metric)
        ]));
    }
    match source.info().rows {
        0 => Err(Error::input("the source has no rows; there is nothing to join")),
        1 => Err(Error::input("the source has only one row, so no pairs; give more rows")),
        _ => Ok(()),
    }
}

/// An estimate after the first scan, when its rows have been sampled.
struct Estimator<'a> {
    scans: Scans<'a>,
    question: &'a EstimateQuestion<'a>,
    survey: &'a Survey,
}

impl Estimator<'_> {
    fn run<T: Coordinate>(&self, space: Space<'_>) -> Result<Vec<AtThreshold>> {
        let Self { scans, question, survey } = *self;
        let compared = Compared::<T>::new(scans, space, &survey.compared, &survey.places);
        let among = compared.among()?;
        let (ladder, count) = self.ladder(&compared, &among)?;
        let notes = compared.with_all(&ladder, count)?;
        let neighbors = |rung: usize| notes.iter().flat_map(move |notes| notes.neighbors(rung));
        let mean = |rung: usize| neighbors(rung).sum::<u64>() as f64 / count as f64;
        let rungs = rungs(&ladder, mean, survey.scanned.usable_rows);
        let mut examples = rungs.iter().map(|&rung| examples::within(&notes, rung)).collect::<Vec<_>>().into_iter();
        let of: Vec<Vec<u64>> = rungs.iter().map(|&rung| neighbors(rung).collect()).collect();
        let going =
            RemovalEstimate::new(&compared, &ladder, notes, &rungs, survey.scanned.usable_rows, question.build.seed)?;
        let whole = count as u64 == survey.scanned.usable_rows;
        let numbers: Vec<Vec<f64>> = of.iter().map(|of| of.iter().map(|&n| n as f64).collect()).collect();
        let means = means(&numbers, whole, question.build.seed);
        let clock = Clock::new(&compared, survey, among.nanoseconds, question.aim)?;
        let at = |(k, &rung): (usize, &usize)| {
            let pairs = match whole {
                true => certain(of[k].iter().sum::<u64>() as f64 / 2.0),
                // Each pair is counted once for each of its rows, so the sum is halved.
                false => times(means[k], survey.scanned.usable_rows as f64 / 2.0),
            };
            let way = clock.way(&Threshold::new(ladder.predicate(rung)?, space));
            let seconds = clock.seconds(&way, pairs);
            // A join with a recall below 1 may find only this fraction of the pairs.
            let pairs = Interval { low: pairs.low * way.recall, ..pairs };
            Ok(AtThreshold {
                threshold: ladder.threshold(rung),
                asked: ladder.asked == Some(rung),
                neighbors: means[k].estimate,
                pairs,
                pairs_bytes: clock.bytes(pairs),
                removed_rows: going.removed(rung),
                seconds,
                examples: examples.next().unwrap_or_default(),
            })
        };
        rungs.iter().enumerate().map(at).collect()
    }

    /// Returns the thresholds, and the number of rows to compare. The farthest threshold is one at which vectors have
    /// many neighbors, or the requested one.
    fn ladder<T: Coordinate>(&self, compared: &Compared<'_, T>, among: &Among) -> Result<(Ladder, usize)> {
        let Self { question, survey, .. } = *self;
        let others = (survey.scanned.usable_rows - 1) as f64;
        let &Among { ref histogram, pairs, .. } = among;
        let share = (NEIGHBORS_MAX / others).min(1.0);
        let rank = ((share * pairs as f64).ceil() as u64).clamp(PAIRS_MIN.min(pairs), pairs.max(1));
        let squared = histogram.squared_of(rank).unwrap_or(0.0);
        let farthest = compared.space.stored_length(squared.sqrt());
        let ladder = Ladder::new(question.build.metric, farthest, question.asked.as_ref());
        let last = Threshold::new(ladder.predicate(ladder.len() - 1)?, compared.space);
        let many = histogram.count_within(last.distance * last.distance) as f64 / pairs as f64 * others;
        let all = survey.places.len();
        let whole = all as u64 == survey.scanned.usable_rows;
        if whole || many <= NEIGHBORS_MANY {
            return Ok((ladder, all));
        }
        // The time grows with the number of pairs found, so fewer rows are compared if they have many neighbors.
        let fewer = (all as f64 * NEIGHBORS_MANY / many) as usize;
        Ok((ladder, fewer.max(COMPARED_MIN).min(all)))
    }
}

/// Returns the rungs to report: the requested one, and those at which the mean number of neighbors is nearest to each
/// of [`NEIGHBORS`].
fn rungs(ladder: &Ladder, mean: impl Fn(usize) -> f64, rows: u64) -> Vec<usize> {
    let means: Vec<f64> = (0..ladder.len()).map(mean).collect();
    let nearest = |wanted: f64| {
        // Numbers are compared by their ratio: half as many neighbors are as far off as twice as many.
        let off = |rung: &usize| (means[*rung] / wanted).ln().abs();
        let some = (0..ladder.len()).filter(|&rung| means[rung] > 0.0);
        some.min_by(|a, b| off(a).total_cmp(&off(b)))
    };
    let possible = NEIGHBORS.into_iter().filter(|wanted| *wanted <= (rows - 1) as f64);
    let mut rungs: Vec<usize> = possible.filter_map(nearest).chain(ladder.asked).collect();
    if rungs.is_empty() {
        rungs.push(ladder.len() - 1); // no vector has a neighbor within any rung
    }
    rungs.sort_unstable();
    rungs.dedup();
    rungs
}

fn certain(number: f64) -> Interval {
    Interval { estimate: number, low: number, high: number }
}

fn times(interval: Interval, factor: f64) -> Interval {
    let Interval { estimate, low, high } = interval;
    Interval { estimate: estimate * factor, low: low * factor, high: high * factor }
}
