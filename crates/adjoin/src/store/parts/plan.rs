//! Plans a build in parts.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::Location;

use super::{
    BuildPartCounts, BuildPartFacts, BuildPhase, BuildPlan, BuildPlanCounts, BuildPlanStatistics, PARTS_MAX, PLAN,
    PlanHead,
};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::message::{Argument, message};
use crate::base::output::Target;
use crate::base::report::Stopwatch;
use crate::base::sealed::SealedWriter;
use crate::source::{self, SourceInfo, SourceOptions, VectorSource, facts_of_files};
use crate::store::assign::TwoLevel;
use crate::store::centers::encode_center;
use crate::store::checkpoint::Learned;
use crate::store::intake::{self, Intake};
use crate::store::learning::{Learning, Survey};
use crate::store::manifest::FolderKind;
use crate::store::memory::{BuildInput, BuildMemory, WritingPart};
use crate::store::options::BuildOptions;
use crate::store::records::RECORD_BYTES;
use crate::store::tree::tree_order;
use crate::store::writer::check_input;

/// Part of a prediction that is added to it: rows are in blocks that are not full.
const SPARE: u64 = 4;

impl BuildPlan {
    /// Plans a build with `parts` parts in each of its two phases, and writes the plan to a file. Scans the source and
    /// trains the centers, as a build does.
    ///
    /// # Errors
    /// Fails if an option is out of range or not supported, a build of the source would fail before it assigns rows, or
    /// the file cannot be written.
    pub fn create(
        context: &Context,
        inputs: &[String],
        source_options: &SourceOptions,
        options: &BuildOptions,
        parts: u32,
        path: &Path,
        force: bool,
    ) -> Result<(Self, BuildPlanStatistics)> {
        let watch = Stopwatch::start();
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(Error::option(message![Argument::Parts, format!(" is {parts}; give 1 to {PARTS_MAX}")]));
        }
        if options.sort_by.is_some() {
            return Err(Error::option(message![
                Argument::SortBy,
                " is not supported for a build in parts; leave it out, or build on one machine"
            ]));
        }
        // The file is created first, so that an error is reported before any work if it cannot be written.
        let mut file = SealedWriter::create(context, path, force, PLAN)?;
        // Parts open the source by these names, and compare the state of files by name.
        let sources: Vec<String> = inputs.iter().map(|name| name_for_others(name)).collect();
        let source = open_files(context, &sources, source_options)?;
        check_input(source.info(), options)?;
        let plain = Space::plain(source.info().vectors, options.metric);
        let input = BuildInput::of(context, &*source, options);
        if !options.attributes.is_empty() {
            // Refuses missing columns now, and not after all parts.
            source::Attributes::of(context, &*source, &options.attributes, &Argument::Columns.into())?;
        }
        let (run, memory) = with_coordinates!(plain, T => BuildMemory::plan::<T>(context, input)?);
        intake::tell(context, &*source);
        let (metric, on_bad, remedy) = (options.metric, options.on_bad, intake::fix_or_skip);
        let intake = Intake {
            context: &run,
            source: &*source,
            metric,
            on_bad,
            left_out: None,
            remedy,
            batch_bytes: memory.batch,
        };
        let temporary = run.temporary(Some(Target::parent_of(path)));
        let learning = Learning { context: &run, intake, options, memory, temporary };
        let sample = run.reserve(memory.sample, "the build")?;
        let survey = learning.survey()?;
        let plain = plain.up_to_length(survey.longest);
        let coding = learning.coding(&survey, plain)?;
        let space = Space { coding: coding.as_ref(), ..plain };
        let least = with_coordinates!(plain, T => BuildMemory::foresee::<T>(context.threads, input, 0, 0).least);
        let planning = Planning { learning: &learning, survey: &survey, parts, least, sources, source_options };
        with_coordinates!(space, T => planning.write::<T>(space, &mut file))?;
        file.finish()?;
        drop((survey, sample));
        let plan = Self::read(context, path)?;
        let mut common = plan.statistics(context, "plan-build", BuildPartCounts::default()).common;
        common.seconds.total = watch.seconds();
        let counts = BuildPlanCounts { parts: plan.head.facts.clone() };
        Ok((plan, BuildPlanStatistics { common, plan: counts }))
    }
}

/// Opens files. Refuses a collection, whose rows may change between two parts.
fn open_files(context: &Context, inputs: &[String], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
    for name in inputs {
        if FolderKind::of(context, Path::new(name))? == Some(FolderKind::Collection) {
            return Err(Error::option(format!(
                "{name} is a collection, whose rows may change between two parts; build from it on one machine"
            )));
        }
    }
    source::open_nonempty(context, inputs, options)
}

/// Returns a name of a source that is valid in other processes: an absolute path or glob, or a URL.
fn name_for_others(name: &str) -> String {
    match Location::of(Path::new(name)) {
        Location::Remote(_) => name.to_owned(),
        Location::Local(path) => {
            let absolute = std::path::absolute(&path).ok().and_then(|path| path.to_str().map(str::to_owned));
            absolute.unwrap_or_else(|| name.to_owned())
        }
    }
}

/// A plan that is being written.
struct Planning<'a> {
    learning: &'a Learning<'a>,
    survey: &'a Survey,
    parts: u32,
    /// Minimum memory of a build.
    least: u64,
    sources: Vec<String>,
    source_options: &'a SourceOptions,
}

impl Planning<'_> {
    /// Trains the centers, divides the work, and writes all frames.
    fn write<T: Coordinate>(self, space: Space<'_>, file: &mut SealedWriter) -> Result<()> {
        let Learning { context, intake, memory, options, .. } = *self.learning;
        let (centers, learned) = self.learning.train::<T>(space, self.survey)?;
        let counts = self.learning.count_sample(space, self.survey, &centers)?;
        let _memory = context.reserve(memory.training, "the build")?;
        let order = tree_order(context.kernel, &centers);
        let distances = TwoLevel::new(context.kernel, &centers).distances_a_vector() as u64 * learned.usable_rows;
        let &SourceInfo { rows, vectors, ids, rounded_from_f64 } = intake.source.info();
        let row_ends = (1..=u64::from(self.parts)).map(|part| ending(rows, part, self.parts)).collect::<Vec<_>>();
        let place_ends = balanced(&order, &counts, self.parts as usize);
        let facts = self.facts(&learned, &order, &counts, &row_ends, &place_ends);
        let head = PlanHead {
            sources: self.sources,
            source_options: self.source_options.clone(),
            files: facts_of_files(intake.source)?,
            rows,
            vectors,
            ids,
            rounded_from_f64,
            metric: options.metric,
            seed: options.seed,
            buckets: options.buckets,
            on_bad: options.on_bad,
            on_duplicate_id: options.on_duplicate_id,
            columns: options.attributes.clone(),
            learned,
            distances,
            row_ends,
            place_ends,
            facts,
        };
        file.append(&serde_json::to_vec(&head).expect("a plan has no map with other keys than text"))?;
        file.append(&order.iter().flat_map(|center| center.to_le_bytes()).collect::<Vec<u8>>())?;
        (0..centers.rows()).try_for_each(|row| file.append(&encode_center(&centers, row, space.dimensions())))
    }

    /// Returns the predictions for all parts.
    fn facts(
        &self,
        learned: &Learned,
        order: &[u32],
        counts: &[u64],
        row_ends: &[u64],
        place_ends: &[usize],
    ) -> Vec<BuildPartFacts> {
        let (context, info) = (self.learning.context, self.learning.intake.source.info());
        let row_bytes = info.vectors.bytes() as u64 + RECORD_BYTES + learned.id_bytes / learned.usable_rows.max(1);
        let sampled = counts.iter().sum::<u64>().max(1);
        let (vectors, rows, buckets) = (info.vectors, learned.usable_rows, learned.centers);
        let least_to_write = BuildMemory::least_to_write(&WritingPart { vectors, rows, buckets, records: 0 });
        let facts = |part: usize, phase, rows: u64, least: u64| {
            let bytes = rows * row_bytes;
            let wanted = context.whole_budget(least + bytes + bytes / SPARE);
            let memory_bytes = wanted.min(context.memory_bytes());
            BuildPartFacts { part: part as u32, phase, rows, bytes, memory_bytes }
        };
        let mut before = 0;
        let read = (1..).zip(row_ends).map(|(part, &end)| {
            let rows = end - std::mem::replace(&mut before, end);
            facts(part, BuildPhase::Read, rows, self.least)
        });
        let mut before = 0;
        let write = (row_ends.len() + 1..).zip(place_ends).map(|(part, &end)| {
            let places = std::mem::replace(&mut before, end)..end;
            let counted: u64 = order[places].iter().map(|&center| counts[center as usize]).sum();
            let rows = (u128::from(learned.usable_rows) * u128::from(counted) / u128::from(sampled)) as u64;
            facts(part, BuildPhase::Write, rows, least_to_write)
        });
        let read: Vec<_> = read.collect();
        read.into_iter().chain(write).collect()
    }
}

/// Returns the end of part `part`, counted from 1, of `count` things in `parts` parts.
fn ending(count: u64, part: u64, parts: u32) -> u64 {
    (u128::from(count) * u128::from(part) / u128::from(parts)) as u64
}

/// Divides the centers in tree order into `parts` ranges with about equal counts. Returns the end of each range.
fn balanced(order: &[u32], counts: &[u64], parts: usize) -> Vec<usize> {
    let total: u64 = counts.iter().sum();
    let (mut ends, mut counted) = (Vec::with_capacity(parts), 0);
    for (place, &center) in order.iter().enumerate() {
        // A range ends before the center that would exceed its fraction by more than half of the center.
        let with_half = counted + counts[center as usize] / 2;
        while ends.len() + 1 < parts && with_half >= ending(total, ends.len() as u64 + 1, parts as u32) {
            ends.push(place);
        }
        counted += counts[center as usize];
    }
    ends.resize(parts, order.len());
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_centers_have_about_equal_counts() {
        assert_eq!(balanced(&[2, 0, 1, 3], &[10, 10, 10, 10], 2), [2, 4]);
        assert_eq!(balanced(&[0, 1, 2, 3], &[90, 5, 5, 0], 2), [1, 4], "a large center has a range of its own");
        assert_eq!(balanced(&[0, 1], &[1, 1], 4).last(), Some(&2), "there may be fewer centers than parts");
        assert_eq!(balanced(&[0], &[0], 3), [0, 0, 1]);
    }
}
