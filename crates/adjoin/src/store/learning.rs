//! Learns the centers of a store: the first scan checks the rows and draws a sample, from which centers are trained.

use std::path::PathBuf;

use adjoin_kernels::Panel;

use super::assign::TwoLevel;
use super::centers::{Training, TrainingSample, default_buckets, sample_rows, train};
use super::checkpoint::Learned;
use super::draw::Draw;
use super::held::HeldRows;
use super::ids::{self, IdCheck};
use super::intake::{Intake, Scanned};
use super::memory::BuildMemory;
use super::options::{BuildOptions, OnDuplicateId};
use super::partitions::Partitions;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{self, Coding, Coordinate, Space};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::base::random::Random;
use crate::source::IdKind;

/// The phases of a build in which centers are learned.
pub(super) struct Learning<'a> {
    pub(super) context: &'a Context,
    pub(super) intake: Intake<'a>,
    pub(super) options: &'a BuildOptions,
    pub(super) memory: BuildMemory,
    /// Folder for temporary files.
    pub(super) temporary: PathBuf,
}

/// Result of the first scan.
pub(super) struct Survey {
    scanned: Scanned,
    duplicate_ids: u64,
    /// Total size of the ids, in bytes.
    id_bytes: u64,
    /// Length of the longest vector; inner products only.
    pub(super) longest: Option<f64>,
    sample: TrainingSample,
    /// The rows, if memory holds them.
    pub(super) held: Option<HeldRows>,
}

impl Learning<'_> {
    /// Checks all rows and draws the sample. The sample depends only on the number of usable rows and the seed.
    pub(super) fn survey(&self) -> Result<Survey> {
        let info = self.intake.source.info();
        let rows = info.rows;
        let _memory = self.context.reserve(self.memory.survey(), "the build")?;
        let check_ids = info.ids != IdKind::None;
        let mut check = check_ids.then(|| IdCheck::new(self.context, &self.temporary, rows, self.memory.id_check));
        let mut id_bytes_seen = 0;
        let draw_of = |rows| {
            let picked = Random::new(self.options.seed, "training sample").ascending_sample(sample_rows(rows), rows);
            let sizes = self.memory.sample_sizes();
            Draw::new(picked, Partitions::new(self.context, &self.temporary, "sample", sizes))
        };
        let BuildMemory { held, held_texts_max, .. } = self.memory;
        let holds = held > 0;
        let mut held = holds.then(|| HeldRows::new(self.context, info, held, held_texts_max)).transpose()?;
        // Assumes that all rows are usable. In this common case no other scan is needed for the sample.
        let mut draw = draw_of(rows);
        self.context.progress.begin("check", "rows", rows);
        let mut longest = (self.options.metric == Metric::Ip).then_some(0.0_f64);
        let scanned = self.intake.scan(|usable| {
            if let Some(longest) = &mut longest {
                *longest = longest.max(geometry::longest(self.context.kernel, info.vectors, &usable.stored));
            }
            if let Some(check) = &mut check {
                check.add(&usable)?;
                id_bytes_seen += usable.ids.bytes();
            }
            draw.take(&usable)?;
            if held.as_mut().is_some_and(|held| !held.push(self.context, &usable)) {
                held = None;
            }
            Ok(())
        })?;
        if scanned.usable_rows == 0 {
            return Err(Error::input("no row of the source has a usable vector").caused_by(NoUsableRow));
        }
        let duplicates = check.map_or(Ok(ids::Duplicates::default()), |check| check.finish(0))?;
        if let (Some(first), OnDuplicateId::Error) = (duplicates.first, self.options.on_duplicate_id) {
            let remedy = message![Argument::NoIds, " to use row numbers"];
            return Err(ids::refusal(self.intake.source, first, duplicates.count, remedy)?);
        }
        if scanned.skipped_rows > 0 {
            // The sample was drawn as if all rows were usable. Draw it again, now that the number of usable rows is
            // known.
            drop(draw);
            draw = draw_of(scanned.usable_rows);
            match &held {
                Some(held) => draw.take(held.rows())?,
                None => drop(self.intake.scan(|usable| draw.take(&usable))?),
            }
        }
        let sample = draw.finish()?;
        Ok(Survey { scanned, duplicate_ids: duplicates.count, id_bytes: id_bytes_seen, longest, sample, held })
    }

    /// Chooses how to round floats to bytes. Returns `None` if rounding would blur which center is nearest.
    ///
    /// # Errors
    /// Fails if the sample cannot be read.
    pub(super) fn coding(&self, survey: &Survey, space: Space<'_>) -> Result<Option<Coding>> {
        // Only the choice of the coding needs this memory. Training reserves the same amount again.
        let _memory = self.context.reserve(self.memory.training, "the build")?;
        survey.sample.coding(self.context.kernel, space, self.options.seed)
    }

    /// Trains the centers.
    ///
    /// # Errors
    /// Fails if the work is canceled or the sample cannot be read.
    pub(super) fn train<T: Coordinate>(&self, space: Space<'_>, survey: &Survey) -> Result<(Panel<T>, Learned)> {
        let Survey { scanned, duplicate_ids, id_bytes, longest, sample, .. } = survey;
        let Training { centers, distances } = self.train_on::<T>(space, sample)?;
        let learned = Learned {
            usable_rows: scanned.usable_rows,
            skipped_rows: scanned.skipped_rows,
            duplicate_ids: *duplicate_ids,
            id_bytes: *id_bytes,
            longest: *longest,
            coding: space.coding.cloned(),
            distances,
            spilled: sample.records.spilled(),
            centers_bytes: 0,
            centers: centers.rows(),
        };
        Ok((centers, learned))
    }

    fn train_on<T: Coordinate>(&self, space: Space<'_>, sample: &TrainingSample) -> Result<Training<T>> {
        let _memory = self.context.reserve(self.memory.training, "the build")?;
        let buckets = self.options.buckets.unwrap_or(default_buckets(self.intake.source.info().rows));
        match &self.options.centers {
            None => train(self.context, sample, space, buckets, self.options.seed),
            Some(given) => {
                let mut centers = Panel::zeroed(given.len() / space.vectors.bytes(), space.dimensions());
                T::load(space, self.context.kernel, given, &mut centers);
                Ok(Training { centers, distances: 0 })
            }
        }
    }

    /// Counts the rows of the sample that are nearest to each center.
    ///
    /// # Errors
    /// Fails if the work is canceled or the sample cannot be read.
    pub(super) fn count_sample<T: Coordinate>(
        &self,
        space: Space<'_>,
        survey: &Survey,
        centers: &Panel<T>,
    ) -> Result<Vec<u64>> {
        let _memory = self.context.reserve(self.memory.training, "the build")?;
        let levels = TwoLevel::new(self.context.kernel, centers);
        let mut counts = vec![0; centers.rows()];
        survey.sample.records.read(0, |stored| {
            let nearest = levels.nearest(self.context, space, stored)?;
            nearest.iter().for_each(|nearest| counts[nearest.center as usize] += 1);
            Ok(())
        })?;
        Ok(counts)
    }
}

/// Cause of an error: no row with a usable vector is left for the build.
#[derive(Debug, thiserror::Error)]
#[error("all rows are left out")]
pub(crate) struct NoUsableRow;
