//! A join or a build in parts: the plan, the run of a part, and the merge.

use std::path::Path;

use adjoin::{
    BuildOptions, BuildPlan, Context, Error, JoinEffort, JoinOptions, KeepRule, PartOptions, PartPlan, Predicate,
    Result, ResultKind, TableFormat, Target, device::forget_code, format_bytes, format_count,
};

use super::join::verdict;
use super::memory::{memory_verdict, print_memory};
use super::statistics_file::StatisticsFile;
use crate::Outcome;
use crate::args::{Merge, Plan, PlanBuild, RunPart};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn plan(arguments: &Plan, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let predicate = Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?;
    let aim = JoinEffort::of(arguments.wanted.recall, arguments.wanted.exact)?;
    let aim = aim.with_recall_of(&arguments.meaning.recall_of)?;
    let cache_bytes = arguments.cache.bytes()?;
    let join = JoinOptions { seed: arguments.seed.seed, cache_bytes, ..JoinOptions::approximate(predicate, aim) };
    let options = PartOptions { join, parts: arguments.parts, result: arguments.result };
    let (path, force, stats) = (&arguments.output, arguments.replace.force, arguments.statistics.stats.as_deref());
    let inputs = [arguments.store.display().to_string()];
    check_files(&context, &inputs, &[("-o", Some(path)), ("--stats", stats)], force)?;
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, force)).transpose()?;
    let (_, mut statistics) = PartPlan::create(&context, &arguments.store, &options, path, force)?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let plan = &statistics.plan;
        eprintln!("{} written to {}", format_count(plan.parts.len() as u64, "part"), path.display());
        let read = plan.parts.iter().map(|part| part.read_bytes).max();
        let memory = plan.parts.iter().map(|part| part.memory_bytes).max();
        let [read, memory] = [read, memory].map(|most| format_bytes(most.unwrap_or(0)));
        let seconds = plan.parts.iter().map(|part| part.seconds).fold(0.0, f64::max);
        eprintln!("each part: at most {read} read, --memory {memory}, about {seconds:.1} s on this machine");
        let [all, one] = [plan.read_bytes, plan.read_bytes_of_one_machine].map(format_bytes);
        eprintln!("all parts together read {all}, one machine {one}");
        print_memory(&statistics.common.memory);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

pub(crate) fn plan_build(arguments: &PlanBuild, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?;
    let source = resolve::source_options(&arguments.store.columns)?;
    let (attributes, sort_by) = (arguments.columns.names.clone(), arguments.sort_by.clone());
    let options = BuildOptions { attributes, sort_by, ..resolve::build_options(&arguments.store, arguments.metric) };
    let (path, force, stats) = (&arguments.output, arguments.replace.force, arguments.statistics.stats.as_deref());
    check_files(&context, &arguments.sources, &[("-o", Some(path)), ("--stats", stats)], force)?;
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, force)).transpose()?;
    let planned = BuildPlan::create(&context, &arguments.sources, &source, &options, arguments.parts, path, force)?;
    let (plan, mut statistics) = planned;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let (parts, at) = (arguments.parts, path.display());
        let all = u64::from(parts) * 2;
        eprintln!("parts 1 to {parts} read rows, parts {} to {all} write buckets; plan written to {at}", parts + 1);
        let bytes = plan.parts().iter().map(|part| part.bytes).max();
        let memory = plan.parts().iter().map(|part| part.memory_bytes).max();
        let [bytes, memory] = [bytes, memory].map(|most| format_bytes(most.unwrap_or(0)));
        eprintln!("each part: about {bytes} or less of rows, --memory {memory}");
        print_memory(&statistics.common.memory);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

/// Reports that a part was done before.
fn done_before(context: Context, arguments: &RunPart) -> Outcome {
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        eprintln!("part {} is in {} already", arguments.part, arguments.output.display());
    }
    Outcome::Done
}

/// Runs a part of a build.
fn run_build_part(context: Context, arguments: &RunPart) -> Result<Outcome> {
    if arguments.store.is_some() {
        return Err(Error::option("--store can be used only with the plan of a join; leave it out"));
    }
    let plan = BuildPlan::read(&context, &arguments.plan)?;
    let (number, force) = (plan.part_number(&arguments.part)?, arguments.force);
    let stats = arguments.statistics.stats.as_deref();
    check_files(&context, &[arguments.plan.display().to_string()], &[("--stats", stats)], force)?;
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, force)).transpose()?;
    let done = plan.run_part(&context, number, &arguments.output, force)?;
    let (folder, quiet) = (arguments.output.display(), arguments.resources.quiet.quiet);
    let Some(mut statistics) = done else { return Ok(done_before(context, arguments)) };
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !quiet {
        let (rows, seconds) = (format_count(statistics.build_part.rows, "row"), statistics.common.seconds.total);
        eprintln!("part {}: {rows} written to {folder} in {seconds:.1} s", arguments.part);
        print_memory(&statistics.common.memory);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

/// Merges the parts of a build.
fn merge_build(context: Context, arguments: &Merge) -> Result<Outcome> {
    let joins = [
        (arguments.result.is_some(), "--result"),
        (arguments.keep_rule != KeepRule::default(), "--keep-rule"),
        (arguments.store.is_some(), "--store"),
        (!arguments.columns.is_empty(), "--columns"),
    ];
    if let Some((_, option)) = joins.iter().find(|(is_given, _)| *is_given) {
        return Err(Error::option(format!("{option} can be used only with the plan of a join; leave it out")));
    }
    let Some(store) = arguments.file.as_deref().map(Path::new) else {
        return Err(Error::option("-o is missing; give the folder of the store"));
    };
    let (force, stats) = (arguments.replace.force, arguments.statistics.stats.as_deref());
    let plan = BuildPlan::read(&context, &arguments.plan)?;
    let inputs = [arguments.plan.display().to_string()];
    resolve::check_outputs(&context, &inputs, &[("-o", store)])?;
    check_files(&context, &inputs, &[("--stats", stats)], force)?;
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, force)).transpose()?;
    let (report, mut statistics) = plan.merge(&context, &arguments.folder, store, force)?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let (what, bytes) = (report.manifest.in_words(), format_bytes(report.bytes_written));
        eprintln!("{}: {what}, {bytes} merged in {:.1} s", store.display(), report.seconds.total);
        print_memory(&statistics.common.memory);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

pub(crate) fn run_part(arguments: &RunPart, stopped: &Stopped) -> Result<Outcome> {
    let context = resolve::context(&arguments.resources, stopped)?;
    let context = resolve::temporary(context, &arguments.temporary)?;
    if BuildPlan::is_at(&context, &arguments.plan)? {
        return run_build_part(context, arguments);
    }
    let plan = PartPlan::read(&context, &arguments.plan)?;
    let number = plan.part_number(&arguments.part)?;
    let stats = arguments.statistics.stats.as_deref();
    let inputs = [arguments.plan.display().to_string()];
    check_files(&context, &inputs, &[("--stats", stats)], arguments.force)?;
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, arguments.force)).transpose()?;
    let store = plan.open_store(&context, arguments.store.as_deref())?;
    forget_code(); // of opening files
    let statistics = plan.run_part(&context, &store, number, &arguments.output, arguments.force)?;
    let folder = arguments.output.display();
    let quiet = arguments.resources.quiet.quiet;
    let Some(mut statistics) = statistics else { return Ok(done_before(context, arguments)) };
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !quiet {
        let (found, seconds) = (format_count(statistics.join.pairs, "pair"), statistics.common.seconds.execute);
        eprintln!("part {}: {found} found in {:.1} s, written to {folder}", arguments.part, seconds.unwrap_or(0.0));
        print_memory(&statistics.common.memory);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

pub(crate) fn merge(arguments: &Merge, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
    if BuildPlan::is_at(&context, &arguments.plan)? {
        return merge_build(context, arguments);
    }
    let (force, stats) = (arguments.replace.force, arguments.statistics.stats.as_deref());
    let plan = PartPlan::read(&context, &arguments.plan)?;
    let result = arguments.result.unwrap_or_else(|| plan.result());
    if arguments.keep_rule != KeepRule::default() && !matches!(result, ResultKind::Removed | ResultKind::Kept) {
        return Err(Error::option("--keep-rule can be used only with --result removed or kept; leave it out"));
    }
    let target = arguments.file.as_deref().map(|file| resolve::target(file, force, stats.is_some()));
    let path = target.as_ref().and_then(Target::path).map(Path::to_owned);
    let inputs = [arguments.plan.display().to_string()];
    check_files(&context, &inputs, &[("-o", path.as_deref()), ("--stats", stats)], force)?;
    if let Some(path) = &path {
        TableFormat::of(path)?;
        context = context.or_temporary(Target::parent_of(path)); // that disk must have space for the result anyway
    }
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, force)).transpose()?;
    let store = plan.open_store(&context, arguments.store.as_deref())?;
    forget_code(); // of opening files
    let output = result.output(target, arguments.keep_rule);
    let mut statistics = plan.merge(&context, &store, &arguments.folder, &output, &arguments.columns)?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        let parts = format_count(plan.parts().len() as u64, "part");
        let (found, seconds) = (format_count(statistics.join.pairs, "pair"), statistics.common.seconds.execute);
        eprintln!("{found} of {parts} merged in {:.1} s", seconds.unwrap_or(0.0));
        if let Some(path) = &path {
            let rows = statistics.written.rows.max(statistics.written.kept_rows);
            eprintln!("{}: {} written to {}", result, format_count(rows, "row"), path.display());
        }
        if let Some(recall) = &statistics.common.recall {
            eprintln!("recall: {}", resolve::recall_in_words(recall));
        }
        print_memory(&statistics.common.memory);
    }
    Ok(verdict(&statistics))
}

/// Refuses output files that exist or would replace inputs, before any work.
fn check_files(
    context: &Context,
    inputs: &[String],
    outputs: &[(&'static str, Option<&Path>)],
    force: bool,
) -> Result<()> {
    let outputs: Vec<(&str, &Path)> = outputs.iter().filter_map(|&(option, path)| Some((option, path?))).collect();
    resolve::check_files(context, inputs, &outputs)?;
    outputs.iter().try_for_each(|(_, path)| Target::check_free(&*context.device, path, force))
}
