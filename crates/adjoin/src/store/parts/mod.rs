//! A build on many machines: a plan, two phases of parts, and a merge.
//!
//! [`BuildPlan::create`] scans the source and trains the centers, and writes them to one file. Each part of the first
//! phase reads some rows, and writes them to one file, sorted by center. Each part of the second phase reads the rows of
//! some centers from all these files, and writes their buckets. [`BuildPlan::merge`] appends the buckets and publishes the
//! store. Each result depends only on the plan and the source, so the store has the bytes of a build on one machine.

mod merge;
mod plan;
mod read;
mod write;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_kernels::Panel;
use serde::{Deserialize, Serialize};

use super::centers::decode_center;
use super::checkpoint::Learned;
use super::options::{BuildOptions, OnBad, OnDuplicateId};
use super::shuffle::SHUFFLE;
use crate::base::checkpoint::Fact;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space};
use crate::base::message::{Argument, message};
use crate::base::options::{Metric, VectorType};
use crate::base::part_files::PartFiles;
use crate::base::report::CommonStatistics;
use crate::base::sealed::{SealedKind, SealedReader};
use crate::source::{self, IdKind, SourceInfo, SourceOptions, VectorSource, facts_of_files};

const PLAN: SealedKind =
    SealedKind { magic: *b"adjBPLN\n", version: 1, name: "the plan of a build in parts", remedy: "plan again" };
const BUCKETS: SealedKind = SealedKind {
    magic: *b"adjBUCK\n",
    version: 1,
    name: "the result of a writing part of a build",
    remedy: "run that part again",
};
/// Maximum number of parts of a phase.
const PARTS_MAX: u32 = 10_000;

/// The plan of a build in parts.
pub struct BuildPlan {
    path: PathBuf,
    head: PlanHead,
    /// Checksum of the file. Parts identify their plan by it. The file has no times, so it is equal if the build is
    /// planned again.
    seal: u64,
}

/// First frame of a plan. The tree order of the centers and the centers follow.
#[derive(Serialize, Deserialize)]
struct PlanHead {
    /// Names of the sources, as absolute paths or URLs.
    sources: Vec<String>,
    source_options: SourceOptions,
    /// State of the files of the source.
    files: Vec<Fact>,
    rows: u64,
    vectors: VectorType,
    ids: IdKind,
    rounded_from_f64: bool,
    metric: Metric,
    seed: u64,
    buckets: Option<u32>,
    on_bad: OnBad,
    on_duplicate_id: OnDuplicateId,
    columns: Vec<String>,
    learned: Learned,
    /// Number of distances to centers that all parts compute.
    distances: u64,
    /// End of the rows of each reading part.
    row_ends: Vec<u64>,
    /// End of the places in the tree order of each writing part.
    place_ends: Vec<usize>,
    facts: Vec<BuildPartFacts>,
}

/// The phase of a part of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildPhase {
    /// Reads rows and sorts them by center.
    Read,
    /// Writes buckets.
    Write,
}

/// Predictions for a part of a build.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct BuildPartFacts {
    /// Number of the part, from 1.
    pub part: u32,
    /// Phase of the part.
    pub phase: BuildPhase,
    /// Rows that it reads or writes.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes: u64,
    /// Memory budget with which the part is fast. Any budget from the least of the plan on suffices.
    pub memory_bytes: u64,
}

/// Statistics of the plan of a build.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // docs/statistics.md explains each
pub struct BuildPlanStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub plan: BuildPlanCounts,
}

/// The parts of a plan.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct BuildPlanCounts {
    pub parts: Vec<BuildPartFacts>,
}

/// Statistics of a part or of the merge.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct BuildPartStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub build_part: BuildPartCounts,
}

/// Counts of a part or of the merge.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[allow(missing_docs)]
pub struct BuildPartCounts {
    /// Phase of the part; `None` for the merge.
    pub phase: Option<BuildPhase>,
    pub rows: u64,
    pub buckets: u64,
}

/// First frame of the result of a part.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct PartHead {
    plan: String,
    part: u32,
}

impl BuildPlan {
    /// Returns whether a file is a plan of a build. A plan of a join is not.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn is_at(context: &Context, path: &Path) -> Result<bool> {
        PLAN.is_at(context, path)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// Fails if the file is missing, damaged, or of another kind or version.
    pub fn read(context: &Context, path: &Path) -> Result<Self> {
        let mut reader = Self::open(context, path)?;
        let seal = reader.seal();
        let head: Option<PlanHead> = serde_json::from_slice(reader.next()?.unwrap_or_default()).ok();
        let Some(head) = head else { return Err(reader.damaged()) };
        let PlanHead { rows, learned, row_ends, place_ends, .. } = &head;
        let is_whole = (1..=PARTS_MAX as usize).contains(&row_ends.len())
            && row_ends.len() == place_ends.len()
            && row_ends.is_sorted()
            && row_ends.last() == Some(rows)
            && place_ends.is_sorted()
            && place_ends.last() == Some(&learned.centers)
            && learned.coding.as_ref().is_none_or(|coding| coding.fits(head.vectors.dimensions));
        if !is_whole {
            return Err(reader.damaged());
        }
        Ok(Self { path: path.to_owned(), head, seal })
    }

    fn open(context: &Context, path: &Path) -> Result<SealedReader> {
        SealedReader::open(context, path, PLAN)?.ok_or_else(|| {
            let at = path.display();
            Error::input(format!("{at} is missing; name the file that adjoin plan-build has written"))
        })
    }

    /// Returns the predictions for each part.
    pub fn parts(&self) -> &[BuildPartFacts] {
        &self.head.facts
    }

    /// Parses the number of a part, such as `3/16`.
    ///
    /// # Errors
    /// Fails if there is no such part.
    pub fn part_number(&self, text: &str) -> Result<u32> {
        self.files().number(text)
    }

    /// Runs a part, and writes its result into a folder, which is created if it is missing. If a complete result
    /// exists already, returns `None`, unless `force` is true.
    ///
    /// # Errors
    /// Fails if the source has changed since it was planned, the folder has the part of another plan, the part needs
    /// other parts that are missing or damaged, memory does not suffice, or a disk fails.
    pub fn run_part(
        &self,
        context: &Context,
        number: u32,
        folder: &Path,
        force: bool,
    ) -> Result<Option<BuildPartStatistics>> {
        if !force && self.files().is_done(context, folder, || self.open_part(context, folder, number))? {
            return Ok(None);
        }
        let done = match number.checked_sub(self.phase_parts() + 1) {
            None => self.read_rows(context, number, folder),
            Some(section) => self.write_section(context, number, section as usize, folder),
        };
        done.map(Some)
    }

    /// Returns the number of parts of a phase.
    fn phase_parts(&self) -> u32 {
        self.head.row_ends.len() as u32
    }

    fn files(&self) -> PartFiles<'_> {
        PartFiles { plan: &self.path, parts: 2 * self.phase_parts() }
    }

    fn part_head(&self, part: u32) -> PartHead {
        PartHead { plan: format!("{:016x}", self.seal), part }
    }

    /// Opens the result of a part. Returns `None` if there is none.
    fn open_part(&self, context: &Context, folder: &Path, number: u32) -> Result<Option<SealedReader>> {
        let kind = if number <= self.phase_parts() { SHUFFLE } else { BUCKETS };
        self.files().open(context, folder, number, kind, &self.part_head(number))
    }

    /// Returns the places in the tree order of the centers of a section.
    fn places(&self, section: usize) -> Range<usize> {
        let ends = &self.head.place_ends;
        section.checked_sub(1).map_or(0, |before| ends[before])..ends[section]
    }

    fn info(&self) -> SourceInfo {
        let PlanHead { rows, vectors, ids, rounded_from_f64, .. } = self.head;
        SourceInfo { rows, vectors, ids, rounded_from_f64 }
    }

    fn options(&self, force: bool) -> BuildOptions {
        let PlanHead { metric, seed, buckets, on_bad, on_duplicate_id, ref columns, .. } = self.head;
        let attributes = columns.clone();
        BuildOptions { metric, seed, buckets, on_bad, on_duplicate_id, attributes, force, ..BuildOptions::default() }
    }

    fn space(&self) -> Space<'_> {
        let PlanHead { vectors, metric, ref learned, .. } = self.head;
        Space { coding: learned.coding.as_ref(), ..Space::plain(vectors, metric).up_to_length(learned.longest) }
    }

    /// Opens the source, whose files must not have changed.
    fn open_source(&self, context: &Context) -> Result<Arc<dyn VectorSource>> {
        let PlanHead { sources, source_options, files, .. } = &self.head;
        let source = source::open_nonempty(context, sources, source_options)?;
        let now = facts_of_files(&*source)?;
        if now == *files {
            return Ok(source);
        }
        let plan = self.path.display();
        let changed = now.iter().chain(files).find(|fact| !files.contains(fact) || !now.contains(fact));
        let what = changed.map_or("the list of files", Fact::what);
        Err(Error::input(message![
            format!("{what} has changed since {plan} was written; plan again, with "),
            Argument::Force
        ]))
    }

    /// Opens the plan again, after its head.
    fn reopen(&self, context: &Context) -> Result<SealedReader> {
        let mut reader = Self::open(context, &self.path)?;
        if reader.seal() != self.seal {
            return Err(Error::input(format!("{} was replaced during the run; start again", self.path.display())));
        }
        reader.next()?;
        Ok(reader)
    }

    /// Reads the numbers of the centers in tree order, which follow the head.
    fn order(&self, reader: &mut SealedReader) -> Result<Vec<u32>> {
        let count = self.head.learned.centers;
        let order = reader.next()?.unwrap_or_default().as_chunks().0;
        let order: Vec<u32> = order.iter().map(|&number| u32::from_le_bytes(number)).collect();
        match order.len() == count && order.iter().all(|&number| (number as usize) < count) {
            true => Ok(order),
            false => Err(reader.damaged()),
        }
    }

    /// Reads the centers and their numbers in tree order. The caller has reserved the memory.
    fn centers<T: Coordinate>(&self, context: &Context) -> Result<(Panel<T>, Vec<u32>)> {
        let mut reader = self.reopen(context)?;
        let order = self.order(&mut reader)?;
        let (count, dimensions) = (order.len(), self.space().dimensions());
        let mut centers = Panel::zeroed(count, dimensions);
        for row in 0..count {
            let frame = reader.next()?.filter(|frame| frame.len() == dimensions * size_of::<f32>());
            let Some(frame) = frame else { return Err(reader.damaged()) };
            decode_center(&mut centers, row, frame);
        }
        // The end verifies the seal.
        if reader.next()?.is_some() {
            return Err(reader.damaged());
        }
        Ok((centers, order))
    }

    /// Returns the statistics of a part or of the merge.
    fn statistics(&self, context: &Context, command: &'static str, build_part: BuildPartCounts) -> BuildPartStatistics {
        let PlanHead { vectors, metric, seed, ref learned, .. } = self.head;
        let mut common = context.statistics(command);
        (common.rows, common.skipped_rows) = (learned.usable_rows, learned.skipped_rows);
        (common.dimensions, common.element) = (vectors.dimensions, vectors.element.to_string());
        (common.metric, common.seed) = (metric.to_string(), seed);
        BuildPartStatistics { common, build_part }
    }
}
