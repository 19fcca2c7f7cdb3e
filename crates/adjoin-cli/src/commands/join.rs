use std::path::Path;

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::job::{Job, Output};
use adjoin::join::{Aim, JoinOptions};
use adjoin::options::{format_count, format_number, parse_bytes};
use adjoin::output::{LaterFile, Target, check_free, parent};
use adjoin::predicate::Predicate;
use adjoin::report::{CommonStatistics, JoinStatistics, MemoryStatistics, MemoryWatch};
use adjoin::sink::TableFormat;

use serde::Serialize;

use super::memory::{memory_verdict, print_memory};
use super::tracing::{Tracing, cannot_write};
use crate::Outcome;
use crate::args::Join;
use crate::print::percent;
use crate::resolve::{self, Strategy};
use crate::signals::Stopped;

pub(crate) fn join(arguments: &Join, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let strategy =
        resolve::strategy(arguments.strategy.as_deref(), &["rule", "threshold", "order", "cache", "centers"])?;
    let aim = Aim::of(arguments.wanted.recall, arguments.wanted.exact)?;
    let cache_bytes = arguments.cache.as_deref().map(parse_bytes).transpose()?;
    let seed = arguments.store.seed;
    let Strategy { rule, t, order, policy, .. } = strategy;
    let join = JoinOptions { predicate, aim, rule, t, seed, order, policy, cache_bytes };
    let job = Job {
        inputs: &arguments.inputs,
        source: resolve::source_options(&arguments.store.columns)?,
        build: resolve::build_options(&arguments.store, predicate.metric(), strategy.centers, (&[], false))?,
        join,
        output: resolve::output(arguments)?,
        yes: arguments.yes,
    };
    check_outputs(&context, &job.output, arguments)?;
    if let Some(path) = job.output.target().and_then(Target::path) {
        context = context.or_temporary(parent(path)); // on that disk there must be room anyway
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
        summarise(&statistics, &job.output);
    }
    Ok(verdict(&statistics.common, arguments))
}

/// Refuses names that are taken before any work is done.
fn check_outputs(context: &Context, output: &Output<'_>, arguments: &Join) -> Result<()> {
    let results = resolve::targets(output).map(|(option, target)| (option, target.and_then(Target::path)));
    let others = [("--stats", &arguments.stats), ("--trace", &arguments.trace)];
    let others = others.map(|(option, path)| (option, path.as_deref()));
    let outputs = results.into_iter().chain(others);
    let outputs: Vec<(&str, &Path)> = outputs.filter_map(|(option, path)| Some((option, path?))).collect();
    resolve::check_files(context, &arguments.inputs, &outputs)?;
    for (option, path) in outputs {
        if matches!(option, "-o" | "--kept") {
            TableFormat::of(path)?;
        }
        check_free(&*context.device, path, arguments.force)?;
    }
    Ok(())
}

/// The file of `--stats`, which shows before the work whether it can be written.
pub(super) struct StatisticsFile<'a> {
    path: &'a Path,
    file: LaterFile,
    memory: Option<MemoryWatch>,
}

impl<'a> StatisticsFile<'a> {
    pub(super) fn begin(context: &Context, path: &'a Path, force: bool) -> Result<Self> {
        Ok(Self { path, file: LaterFile::begin(context, path, force)?, memory: MemoryWatch::begin() })
    }

    /// Writes what a run tells; `memory` is where that has its memory.
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

fn summarise(statistics: &JoinStatistics, output: &Output<'_>) {
    let JoinStatistics { common, join, written } = statistics;
    let found = format_count(join.pairs, "pair");
    eprintln!("{found} found in {:.1} s", common.seconds.total);
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
    let all = common.rows as f64 * common.rows.saturating_sub(1) as f64 / 2.0;
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

/// Says which promise was not kept. A threshold that was given, without a recall, promises none.
fn verdict(statistics: &CommonStatistics, arguments: &Join) -> Outcome {
    let mut outcome = memory_verdict(&statistics.memory);
    if let Some(recall) = statistics.recall.as_ref().filter(|recall| !recall.kept)
        && arguments.wanted.recall.is_some()
    {
        let measured = resolve::recall_in_words(recall);
        eprintln!("adjoin: the recall is not promised with the threshold of --strategy: {measured}");
        outcome = Outcome::PromiseNotKept;
    }
    outcome
}
