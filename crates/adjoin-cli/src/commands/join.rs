use adjoin::{
    Conditions, Context, Error, Estimate, Job, JoinEffort, JoinOptions, JoinStatistics, KeepRule, Metric, Predicate,
    Result, ResultKind, Target, device::forget_code, format_bytes, format_count, format_number,
};

use super::join_files::check_files;
use super::memory::{memory_verdict, print_memory};
use super::nearest::nearest;
use super::statistics_file::StatisticsFile;
use super::tracing::Tracing;
use crate::Outcome;
use crate::args::{Join, JoinFilters, JoinOutput};
use crate::print::percent;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn join(arguments: &Join, stopped: &Stopped) -> Result<Outcome> {
    if let Some(k) = arguments.neighbors {
        return nearest(arguments, k, stopped);
    }
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
    let (predicate, missed) = predicate(&context, arguments)?;
    let aim = JoinEffort::of(arguments.wanted.recall, arguments.wanted.exact)?;
    let aim = aim.with_recall_of(&arguments.meaning.recall_of)?;
    let cache_bytes = arguments.cache.bytes()?;
    let JoinFilters { condition, where_other, where_pair } = &arguments.filters;
    let [rows, other_rows, pairs] = [condition, where_other, where_pair];
    let conditions = Conditions::parse(rows.as_deref(), other_rows.as_deref(), pairs.as_deref())?;
    let output = resolve::output(&arguments.output)?;
    let seed = arguments.store.seed.seed;
    let join = JoinOptions { seed, cache_bytes, ..JoinOptions::approximate(predicate, aim) };
    let job = Job {
        inputs: &arguments.inputs,
        with: &arguments.other.with,
        new: &arguments.other.new,
        source: resolve::source_options(&arguments.store.columns)?,
        build: resolve::build_options(&arguments.store, predicate.metric()),
        conditions,
        columns: &arguments.output.columns,
        join,
        resume: resolve::checkpoint(&arguments.output, &output),
        output,
        yes: arguments.output.yes,
    };
    check_files(&context, arguments)?;
    if let Some(path) = job.output.target().and_then(Target::path) {
        context = context.or_temporary(Target::parent_of(path)); // that disk must have space for the result anyway
    }
    let JoinOutput { statistics, tracing, replace, .. } = &arguments.output;
    let stats = statistics.stats.as_deref();
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, replace.force)).transpose()?;
    // The trace replaces the device of the context, so it contains only operations from here on.
    let tracing = tracing.trace.as_deref().map(|path| Tracing::begin(&mut context, path)).transpose()?;

    let opened = job.open(&context)?;
    forget_code(); // of opening files and of building a store
    let mut statistics = job.run(&context, &opened)?;
    drop(opened);
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        summarize(&statistics, &arguments.output);
    }
    let outcome = verdict(&statistics);
    let Some(missed) = missed else { return Ok(outcome) };
    eprintln!("adjoin: {missed}");
    Ok(Outcome::PromiseNotKept)
}

/// Returns the threshold of the pairs: the given one, or the one at which `--target-rows` rows are kept. Also returns
/// a message if no threshold keeps this number of rows.
fn predicate(context: &Context, arguments: &Join) -> Result<(Predicate, Option<String>)> {
    let Some(rows) = arguments.target_rows else {
        if arguments.metric.is_some() {
            return Err(Error::option(
                "the threshold decides the metric: --eps is a distance (L2), --min-similarity a similarity (cosine); leave \
                 out --metric",
            ));
        }
        return Ok((Predicate::of(arguments.threshold.eps, arguments.threshold.min_similarity)?, None));
    };
    if !matches!(arguments.output.result, ResultKind::Removed | ResultKind::Kept) {
        return Err(Error::option(
            "--target-rows is the number of rows to keep; add --result kept or --result removed",
        ));
    }
    if arguments.output.keep_rule != KeepRule::Greedy {
        return Err(Error::option("--target-rows counts the rows that the rule greedy keeps; give --keep-rule greedy"));
    }
    // All options are checked before the threshold is estimated, since that compares a sample with all rows.
    resolve::output(&arguments.output)?;
    check_files(context, arguments)?;
    let metric = arguments.metric.unwrap_or(Metric::L2);
    let source = resolve::source_options(&arguments.store.columns)?;
    let build = resolve::build_options(&arguments.store, metric);
    let leaving = Estimate::threshold_leaving(context, &arguments.inputs, &source, &build, rows)?;
    let missed = leaving.misses(rows).then(|| {
        let [wanted, left] = [rows, leaving.rows.estimate.round() as u64].map(format_number);
        format!("--target-rows {wanted}: no threshold leaves that number of rows; the nearest number is about {left}")
    });
    let (predicate, threshold, rows) = (leaving.predicate, leaving.threshold, leaving.rows);
    let [about, low, high] = [rows.estimate, rows.low, rows.high].map(|rows| format_number(rows.round() as u64));
    let option = if metric == Metric::L2 { "--eps" } else { "--min-similarity" };
    context.progress.note(&format!("{option} {threshold} leaves about {about} rows (between {low} and {high})"));
    Ok((predicate, missed))
}

fn summarize(statistics: &JoinStatistics, output: &JoinOutput) {
    let JoinStatistics { common, join, written, resume } = statistics;
    let found = format_count(join.pairs, "pair");
    eprintln!("{found} found in {:.1} s", common.seconds.total);
    if let Some(resume) = resume.filter(|resume| resume.runs > 1) {
        let (runs, done, legs) = (resume.runs, resume.legs_done_before, resume.legs);
        eprintln!("run {runs} of this join: {done} of {legs} checkpoints were complete before");
    }
    let to_keep = format!("{} to keep", format_count(written.kept_rows, "row"));
    let what = match output.result {
        ResultKind::Pairs => format_count(written.rows, "pair"),
        ResultKind::Counts => format!("counts of {}", format_count(written.rows, "row")),
        ResultKind::Clusters => format!("{} in clusters", format_count(written.rows, "row")),
        ResultKind::Removed => format!("{} to remove", format_count(written.rows, "row")),
        ResultKind::Kept => to_keep.clone(),
    };
    for (what, (_, target)) in [what, to_keep].iter().zip(resolve::targets(output)) {
        if let Some(path) = target.as_ref().and_then(Target::path) {
            eprintln!("{what} written to {}", path.display());
        }
    }
    summarize_rows(statistics);
    let rows = join.passing_rows.unwrap_or(common.rows) as f64;
    let [with, new] = [join.with_passing_rows.or(join.with_rows), join.new_passing_rows.or(join.new_rows)]
        .map(|rows| rows.map(|rows| rows as f64));
    // The number of pairs within one set: each pair counts once, and no row forms a pair with itself.
    let within = |rows: f64| rows * (rows - 1.0) / 2.0;
    // New rows are joined with the rows of the store and with each other.
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

/// Prints how many rows passed the filters, if not all did.
fn summarize_rows(JoinStatistics { common, join, .. }: &JoinStatistics) {
    let sides = [
        (join.passing_rows, Some(common.rows)),
        (join.with_passing_rows, join.with_rows),
        (join.new_passing_rows, join.new_rows),
    ];
    for (passing, all) in sides.into_iter().filter_map(|(passing, all)| passing.zip(all)) {
        eprintln!("{} of {} match the filter", format_number(passing), format_count(all, "row"));
    }
    if let Some((buckets, bytes)) = join.skipped_buckets.zip(join.skipped_bytes).filter(|skipped| skipped.0 > 0) {
        eprintln!("not read: {} without a matching row, {}", format_count(buckets, "bucket"), format_bytes(bytes));
    }
}

/// Prints which promises were not kept. A run with a given rule threshold instead of a recall promises no recall.
pub(super) fn verdict(statistics: &JoinStatistics) -> Outcome {
    let mut outcome = memory_verdict(&statistics.common.memory);
    let broken = statistics.common.recall.as_ref().filter(|recall| !recall.kept);
    if let Some(recall) = broken {
        let measured = resolve::recall_in_words(recall);
        eprintln!("adjoin: the recall target was missed: {measured}");
        outcome = Outcome::PromiseNotKept;
    }
    outcome
}
