//! Finds the threshold at which a given number of rows is kept.

use super::compare::Compared;
use super::ladder::Ladder;
use super::removed::RemovalEstimate;
use super::{Estimate, EstimateQuestion, Estimator, surveyed};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::options::{format_count, format_number};
use crate::base::predicate::Predicate;
use crate::base::report::Interval;
use crate::job::open_source;
use crate::join::JoinEffort;
use crate::source::SourceOptions;
use crate::store::{BuildOptions, Store};

/// Maximum number of times that nearer thresholds are tried, if all thresholds so far keep too few rows.
const FINER_MAX: usize = 3;

/// Maximum number of times that thresholds between two rungs are tried.
const BETWEEN_MAX: usize = 2;
/// If the number of kept rows differs from the requested number by more than this fraction, the threshold misses the
/// request, unless the bounds of the estimate include the requested number.
const MISSED_SHARE: f64 = 0.02;

/// A threshold, and the number of rows that are kept at it, if the first of near-duplicates is kept.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// Predicate of pairs within the threshold, which is rounded so that it can be typed.
    pub predicate: Predicate,
    /// The threshold: a distance or a similarity.
    pub threshold: f64,
    /// Number of rows that are kept, with bounds of 95 % confidence.
    pub rows: Interval,
}

impl Leaving {
    /// Returns whether the number of kept rows differs significantly from the requested number.
    pub fn misses(&self, requested: u64) -> bool {
        let (requested, Interval { estimate, low, high }) = (requested as f64, self.rows);
        !(low..=high).contains(&requested) && (estimate - requested).abs() > (MISSED_SHARE * requested).max(1.0)
    }
}

impl Estimate {
    /// Finds the threshold at which approximately `rows` rows of the sources are kept, if the first of
    /// near-duplicates is kept. The threshold has the metric of the build.
    ///
    /// The farthest threshold that is tried is one at which rows have a few hundred neighbors on average.
    ///
    /// # Errors
    /// If the estimate fails ([`Self::new`]), if the sources have at most `rows` rows, if every threshold keeps more
    /// rows, or if an input is a store: the rows of a store are not in the order that decides which row is kept.
    pub fn threshold_leaving(
        context: &Context,
        inputs: &[String],
        source: &SourceOptions,
        build: &BuildOptions,
        rows: u64,
    ) -> Result<Leaving> {
        if let Some(folder) = Store::sole_input(context, inputs, None)? {
            return Err(Error::option(format!(
                "{} is a store, but a threshold for a number of rows needs a source; give the source of the store",
                folder.display()
            )));
        }
        let source = &*open_source(context, inputs, source)?;
        let question = EstimateQuestion { build, asked: None, aim: JoinEffort::Unsaid };
        surveyed(
            context,
            source,
            &question,
            |estimator, space, _| with_coordinates!(space, T => estimator.leaving::<T>(space, rows)),
        )
    }
}

impl Estimator<'_> {
    fn leaving<T: Coordinate>(&self, space: Space<'_>, requested: u64) -> Result<Leaving> {
        let Self { scans, survey, .. } = *self;
        let all = survey.scanned.usable_rows;
        if requested >= all {
            let rows = format_count(all, "usable row");
            return Err(Error::option(format!(
                "{} rows cannot be kept of {rows}; ask for fewer",
                format_number(requested)
            )));
        }
        let compared = Compared::<T>::new(scans, space, &survey.compared, &survey.places);
        let (mut ladder, count) = self.ladder(&compared, &compared.among()?)?;
        let mut left = self.left(&compared, &ladder, count)?;
        let reaches = |left: &[Interval]| left.iter().position(|left| left.estimate <= requested as f64);
        for _ in 0..FINER_MAX {
            let Some(finer) = reaches(&left).and_then(|first| ladder.finer(first)) else { break };
            ladder = finer;
            left = self.left(&compared, &ladder, count)?;
        }
        for _ in 0..BETWEEN_MAX {
            // A threshold is near enough if the bounds of its kept rows include the requested number.
            let is_near = |left: &Interval| (left.low..=left.high).contains(&(requested as f64));
            let first =
                reaches(&left).filter(|&first| !is_near(&left[first]) && !is_near(&left[first.saturating_sub(1)]));
            let Some(between) = first.and_then(|first| ladder.between(first)) else { break };
            ladder = between;
            left = self.left(&compared, &ladder, count)?;
        }
        let Some(first) = reaches(&left) else {
            let last = ladder.len() - 1;
            return Err(Error::option(format!(
                "the farthest threshold tried, {}, leaves about {} rows; ask for at least that number",
                ladder.threshold(last),
                format_number(left[last].estimate.round() as u64)
            )));
        };
        let off = |rung: usize| (left[rung].estimate - requested as f64).abs();
        let nearest = if first > 0 && off(first - 1) < off(first) { first - 1 } else { first };
        let (predicate, threshold) = (ladder.predicate(nearest)?, ladder.threshold(nearest));
        Ok(Leaving { predicate, threshold, rows: left[nearest] })
    }

    /// Returns the number of rows that are kept at each rung.
    fn left<T: Coordinate>(&self, compared: &Compared<'_, T>, ladder: &Ladder, count: usize) -> Result<Vec<Interval>> {
        let all = self.survey.scanned.usable_rows;
        let rungs: Vec<usize> = (0..ladder.len()).collect();
        let notes = compared.with_all(ladder, count)?;
        let going = RemovalEstimate::new(compared, ladder, notes, &rungs, all, self.question.build.seed)?;
        let left = |&rung: &usize| {
            let Interval { estimate, low, high } = going.removed(rung);
            // If fewer rows are removed, more are kept, so the lower bound becomes the upper one and vice versa.
            Interval { estimate: all as f64 - estimate, low: all as f64 - high, high: all as f64 - low }
        };
        Ok(rungs.iter().map(left).collect())
    }
}
