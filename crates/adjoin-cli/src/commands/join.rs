use std::path::Path;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::estimate::{Leaving, threshold_leaving};
use adjoin::job::{Conditions, Job, Output};
use adjoin::join::{JoinEffort, JoinOptions};
use adjoin::options::{Metric, format_bytes, format_count, format_number, parse_bytes};
use adjoin::output::{LaterFile, Target, check_free, parent};
use adjoin::predicate::Predicate;
use adjoin::report::{JoinStatistics, MemoryStatistics, MemoryWatch, ResumeStatistics};
use adjoin::sink::TableFormat;

use serde::Serialize;

use super::memory::{memory_verdict, print_memory};
use super::nearest::nearest;
use super::tracing::{Tracing, cannot_write};
use crate::Outcome;
use crate::args::Join;
use crate::print::percent;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn join(arguments: &Join, stopped: &Stopped) -> Result<Outcome> {
    if let Some(k) = arguments.sought.nearest {
        return nearest(arguments, k, stopped);
    }
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
    let (predicate, missed) = predicate(&context, arguments)?;
    let aim = JoinEffort::of(arguments.wanted.recall, arguments.wanted.exact)?;
    let cache_bytes = arguments.cache.as_deref().map(parse_bytes).transpose()?;
    let [rows, other_rows, pairs] = [&arguments.condition, &arguments.where_other, &arguments.where_pair];
    let conditions = Conditions::parse(rows.as_deref(), other_rows.as_deref(), pairs.as_deref())?;
    let seed = arguments.store.seed;
    let join = JoinOptions { seed, cache_bytes, ..JoinOptions::approximate(predicate, aim) };
    let job = Job {
        inputs: &arguments.inputs,
        with: &arguments.with,
        new: &arguments.new,
        source: resolve::source_options(&arguments.store.columns)?,
        build: resolve::build_options(&arguments.store, predicate.metric(), (&[], false))?,
        conditions,
        join,
        output: resolve::output(arguments)?,
        yes: arguments.yes,
        resume: arguments.resume,
    };
    check_outputs(&context, &job.output, arguments)?;
    if let Some(path) = job.output.target().and_then(Target::path) {
        context = context.or_temporary(parent(path)); // that disk must have room anyway
    }
    let stats =
        arguments.stats.as_deref().map(|path| StatisticsFile::begin(&context, path, arguments.force)).transpose()?;
    let tracing = arguments.trace.as_deref().map(|path| Tracing::begin(&mut context, path)).transpose()?;

    let opened = job.open(&context)?;
    let mut statistics = job.run(&context, &opened)?;
    drop(opened);
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet {
        summarize(&statistics, &job.output);
    }
    let outcome = verdict(&statistics);
    let Some(missed) = missed else { return Ok(outcome) };
    eprintln!("adjoin: {missed}");
    Ok(Outcome::PromiseNotKept)
}

/// Returns the threshold of the pairs: the given one, or the one that leaves `--target-rows` rows; and a message if no
/// threshold leaves that many.
fn predicate(context: &Context, arguments: &Join) -> Result<(Predicate, Option<String>)> {
    let Some(rows) = arguments.sought.target_rows else {
        if arguments.metric.is_some() {
            return Err(Error::option(
                "the threshold decides the metric: --eps is a distance (L2), --min-similarity a similarity (cosine); leave \
                 out --metric",
            ));
        }
        return Ok((Predicate::of(arguments.sought.eps, arguments.sought.min_similarity)?, None));
    };
    if arguments.what != "keep" {
        return Err(Error::option("--target-rows says how many rows are to be left; add --output keep"));
    }
    if arguments.keep_rule != "greedy" {
        return Err(Error::option(
            "--target-rows counts rows that stay where the first of near ones does; give --keep-rule greedy",
        ));
    }
    check_outputs(context, &resolve::output(arguments)?, arguments)?;
    let metric = arguments.metric.as_deref().map_or(Ok(Metric::L2), str::parse)?;
    let source = resolve::source_options(&arguments.store.columns)?;
    let build = resolve::build_options(&arguments.store, metric, (&[], false))?;
    let leaving = threshold_leaving(context, &arguments.inputs, &source, &build, rows)?;
    let missed = leaving.misses(rows).then(|| {
        let [wanted, left] = [rows, leaving.rows.estimate.round() as u64].map(format_number);
        format!("--target-rows {wanted}: no threshold leaves so many rows; the nearest number is about {left}")
    });
    let Leaving { predicate, threshold, rows } = leaving;
    let [about, low, high] = [rows.estimate, rows.low, rows.high].map(|rows| format_number(rows.round() as u64));
    let option = if metric == Metric::L2 { "--eps" } else { "--min-similarity" };
    context.progress.note(&format!("{option} {threshold} leaves about {about} rows (between {low} and {high})"));
    Ok((predicate, missed))
}

/// Refuses existing output files before any work.
fn check_outputs(context: &Context, output: &Output<'_>, arguments: &Join) -> Result<()> {
    check_results(context, &resolve::targets(output), arguments)
}

/// Refuses existing output files; each result has the option that names it.
pub(super) fn check_results(
    context: &Context,
    results: &[(&'static str, Option<&Target>)],
    arguments: &Join,
) -> Result<()> {
    let results = results.iter().map(|(option, target)| (*option, target.and_then(Target::path)));
    let others = [("--stats", &arguments.stats), ("--trace", &arguments.trace)];
    let others = others.map(|(option, path)| (option, path.as_deref()));
    let outputs = results.into_iter().chain(others);
    let outputs: Vec<(&str, &Path)> = outputs.filter_map(|(option, path)| Some((option, path?))).collect();
    let inputs = [&arguments.inputs[..], &arguments.with, &arguments.new].concat();
    resolve::check_files(context, &inputs, &outputs)?;
    for (option, path) in outputs {
        if matches!(option, "-o" | "--kept") {
            TableFormat::of(path)?;
        }
        check_free(&*context.device, path, arguments.force)?;
    }
    Ok(())
}

/// The file of `--stats`, opened before the work to find out whether it can be written.
pub(super) struct StatisticsFile<'a> {
    path: &'a Path,
    file: LaterFile,
    memory: Option<MemoryWatch>,
}

impl<'a> StatisticsFile<'a> {
    pub(super) fn begin(context: &Context, path: &'a Path, force: bool) -> Result<Self> {
        Ok(Self { path, file: LaterFile::begin(context, path, force)?, memory: MemoryWatch::begin() })
    }

    /// Writes the statistics of a run; `memory` returns the part of them about memory.
    pub(super) fn finish<S: Serialize>(
        self,
        statistics: &mut S,
        memory: impl FnOnce(&mut S) -> &mut MemoryStatistics,
    ) -> Result<()> {
        memory(statistics).over_time = self.memory.map(MemoryWatch::finish);
        let text = serde_json::to_string_pretty(statistics);
        let text = text.map_err(|error| cannot_write(self.path, error))?;
        self.file.finish(|out| out.write_all((text + "\n").as_bytes()))
    }
}

fn summarize(statistics: &JoinStatistics, output: &Output<'_>) {
    let JoinStatistics { common, join, written, resume } = statistics;
    let found = format_count(join.pairs, "pair");
    eprintln!("{found} found in {:.1} s", common.seconds.total);
    if let Some(resume) = resume.filter(|resume| resume.runs > 1) {
        let ResumeStatistics { runs, legs, legs_done_before, .. } = resume;
        eprintln!("run {runs} of this join: {legs_done_before} of {legs} legs were done before");
    }
    let what = match output {
        Output::Pairs(_) | Output::Sink(_) => format_count(written.rows, "pair"),
        Output::Counts(_) => format!("counts of {}", format_count(written.rows, "row")),
        Output::Clusters(_) => format!("{} in clusters", format_count(written.rows, "row")),
        Output::Keep { .. } | Output::Removals(_) => format!("{} to remove", format_count(written.rows, "row")),
    };
    let kept = format!("{} to keep", format_count(written.kept_rows, "row"));
    for (what, (_, target)) in [what, kept].iter().zip(resolve::targets(output)) {
        if let Some(path) = target.and_then(Target::path) {
            eprintln!("{what} written to {}", path.display());
        }
    }
    summarize_rows(statistics);
    let rows = join.passing_rows.unwrap_or(common.rows) as f64;
    let [with, new] = [join.with_passing_rows.or(join.with_rows), join.new_passing_rows.or(join.new_rows)]
        .map(|rows| rows.map(|rows| rows as f64));
    let within = |rows: f64| rows * (rows - 1.0) / 2.0;
    let all = match (with, new) {
        (Some(others), _) => rows * others,
        (None, Some(new)) => rows * new + within(new),
        (None, None) => within(rows),
    };
    let (verified, share) = (format_number(join.verified_pairs), percent(join.candidate_pairs as f64 / all.max(1.0)));
    eprintln!("distances computed: {verified} (candidates: {share} of all pairs)");
    if common.skipped_rows > 0 {
        eprintln!("skipped: {} without a usable vector", format_count(common.skipped_rows, "row"));
    }
    if let Some(recall) = &common.recall {
        eprintln!("recall: {}", resolve::recall_in_words(recall));
    }
    print_memory(&common.memory);
}

/// Prints how many rows took part, if not all did.
fn summarize_rows(JoinStatistics { common, join, .. }: &JoinStatistics) {
    let sides = [
        (join.passing_rows, Some(common.rows)),
        (join.with_passing_rows, join.with_rows),
        (join.new_passing_rows, join.new_rows),
    ];
    for (passing, all) in sides.into_iter().filter_map(|(passing, all)| passing.zip(all)) {
        eprintln!("{} of {} meet the condition", format_number(passing), format_count(all, "row"));
    }
    if let Some((buckets, bytes)) = join.skipped_buckets.zip(join.skipped_bytes).filter(|skipped| skipped.0 > 0) {
        eprintln!("not read: {} without such a row, {}", format_count(buckets, "bucket"), format_bytes(bytes));
    }
}

/// Prints which promise was not kept. A given rule threshold without a recall promises nothing.
fn verdict(statistics: &JoinStatistics) -> Outcome {
    let mut outcome = memory_verdict(&statistics.common.memory);
    let broken = statistics.common.recall.as_ref().filter(|recall| !recall.kept);
    if let Some(recall) = broken {
        let measured = resolve::recall_in_words(recall);
        eprintln!("adjoin: the recall that was promised is not reached: {measured}");
        outcome = Outcome::PromiseNotKept;
    }
    outcome
}
