//! `adjoin join --neighbors`: the nearest neighbors of each row.

use adjoin::{
    EffortOptions, HitSink, HitWriter, Metric, NearestJob, NearestStatistics, Result, SearchEffort, Target,
    device::forget_code, format_count, format_number,
};

use super::join_files::check_files;
use super::memory::print_memory;
use super::recall::{print_recall, verdict};
use super::statistics_file::StatisticsFile;
use super::tracing::Tracing;
use crate::Outcome;
use crate::args::{Join, JoinOutput};
use crate::resolve;
use crate::signals::Stopped;

/// Runs a join with `--neighbors K`.
pub(super) fn nearest(arguments: &Join, k: u64, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
    let effort = SearchEffort::try_from(EffortOptions {
        recall: arguments.wanted.recall,
        exact: arguments.wanted.exact,
        ..EffortOptions::default()
    })?;
    let metric = arguments.metric;
    let job = NearestJob {
        inputs: &arguments.inputs,
        source: resolve::source_options(&arguments.store.columns)?,
        build: resolve::build_options(&arguments.store, metric.unwrap_or(Metric::L2)),
        metric,
        k,
        within: arguments.within,
        effort,
    };
    let JoinOutput { statistics, tracing, replace, .. } = &arguments.output;
    let (stats, trace) = (statistics.stats.as_deref(), tracing.trace.as_deref());
    // The second target belongs to `--kept`, which conflicts with `--neighbors`, so it is ignored.
    let [(_, target), _] = resolve::targets(&arguments.output);
    check_files(&context, arguments)?;
    if let Some(path) = target.as_ref().and_then(Target::path) {
        context = context.or_temporary(Target::parent_of(path)); // that disk must have space for the result anyway
    }
    let stats = stats.map(|path| StatisticsFile::begin(&context, path, replace.force)).transpose()?;
    let tracing = trace.map(|path| Tracing::begin(&mut context, path)).transpose()?;

    let opened = job.open(&context)?;
    forget_code(); // of opening files and of building a store
    let writer = target.as_ref().map(|target| HitWriter::new(&context, target, opened.store.neighbor_schema()));
    let mut statistics = job.run(&context, &opened, writer.map(|writer| Box::new(writer) as Box<dyn HitSink>))?;
    // Deletes the temporary store, if there is one.
    drop(opened);
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        summarize(&statistics, target.as_ref());
    }
    Ok(verdict(&statistics.common))
}

fn summarize(NearestStatistics { common, nearest }: &NearestStatistics, target: Option<&Target>) {
    let (rows, found) = (format_number(common.rows), format_count(nearest.neighbors, "neighbor"));
    let place =
        target.and_then(Target::path).map_or_else(String::new, |path| format!(", written to {}", path.display()));
    eprintln!("rows: {rows}; {found} found in {:.1} s{place}", common.seconds.total);
    let (probes, buckets) = (nearest.probes_per_row, format_number(nearest.buckets));
    // There may be more distances than other rows, so their number is not printed as a percentage.
    let distances = [nearest.distances_per_row.round() as u64, common.rows.saturating_sub(1)].map(format_number);
    let ([distances, others], passes) = (distances, common.io.passes.unwrap_or_default());
    eprintln!(
        "a row probed {probes:.1} of {buckets} buckets on average; distances computed for it: {distances}, of {others} \
         other rows; the store was read {passes:.1} times"
    );
    if common.skipped_rows > 0 {
        eprintln!("skipped: {} without a usable vector", format_count(common.skipped_rows, "row"));
    }
    print_recall(common, false, "--neighbors", "of the store");
    print_memory(&common.memory);
}
