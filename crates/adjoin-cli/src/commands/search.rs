use std::path::Path;
use std::sync::Arc;

use adjoin::{
    ClosedFolder, Condition, Context, EffortOptions, FolderKind, HitSink, HitWriter, QueryTarget, Result, SearchEffort,
    SearchOptions, SearchQueries, SearchStatistics, TableFormat, Target, VectorSource, device::forget_code,
    format_bytes, format_count, format_number,
};

use super::memory::print_memory;
use super::recall::{print_recall, verdict};
use super::statistics_file::StatisticsFile;
use super::tracing::Tracing;
use crate::Outcome;
use crate::args::{EffortArguments, Search};
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn search(arguments: &Search, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    let options = options(arguments)?;
    let (target, stats) = outputs(&context, arguments)?;
    let trace = arguments.tracing.trace.as_deref();
    let tracing = trace.map(|path| Tracing::begin(&mut context, path)).transpose()?;
    let closed = ClosedFolder::read(&context, &arguments.folder)?;
    let source = match closed.kind() == FolderKind::Store && is_itself(arguments) {
        true => None,
        false => Some(resolve::source(&context, &arguments.queries, &arguments.columns)?),
    };
    let calibrate_with = calibration_queries(&context, arguments)?;
    let queries = SearchQueries { source: source.as_deref(), calibrate_with: calibrate_with.as_deref() };
    // The schema of the hits depends on the folder, which is not open yet, so the engine calls this later.
    let sink_bytes = |schema| HitWriter::new(&context, &target, schema).memory_bytes();
    context = closed.search_context(&context, queries, &options, &sink_bytes)?;
    let folder = closed.open(&context)?;
    forget_code(); // of opening files
    let sink = HitWriter::new(&context, &target, folder.hit_schema(queries, &options)?);
    let mut statistics = folder.search(&context, queries, &options, Box::new(sink))?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    let kind = folder.kind();
    // Closes all files, so that the trace is complete below.
    drop(folder);
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet.quiet {
        summarize(&statistics, arguments, kind);
    }
    Ok(verdict(&statistics.common))
}

fn options(arguments: &Search) -> Result<SearchOptions> {
    let target = QueryTarget::of(arguments.target.k, arguments.target.radius, arguments.target.min_similarity)?;
    let EffortArguments { recall, exact, nprobe: probes, list } = arguments.effort;
    let effort = SearchEffort::try_from(EffortOptions { recall, exact, probes, list })?;
    let filter = arguments.target.condition.as_deref().map(Condition::parse).transpose()?;
    // A trace records the reads of each query, so queries must not share pages.
    let shares_pages = arguments.tracing.trace.is_none();
    let columns = arguments.result_columns.names.clone();
    let options = SearchOptions::new(target, effort, arguments.seed.seed);
    let options = SearchOptions { filter, columns, shares_pages, ..options };
    options.check().map(|()| options)
}

/// Opens the calibration queries, if given.
fn calibration_queries(context: &Context, arguments: &Search) -> Result<Option<Arc<dyn VectorSource>>> {
    let open = |name| resolve::source(context, std::slice::from_ref(name), &arguments.columns);
    arguments.calibrate_with.as_ref().map(open).transpose()
}

/// Opens the files for hits and statistics before any work, so that an error is reported at once if one cannot be
/// written.
fn outputs<'a>(context: &Context, arguments: &'a Search) -> Result<(Target, Option<StatisticsFile<'a>>)> {
    let Search { output, statistics, tracing, replace, .. } = arguments;
    let (stats, force) = (statistics.stats.as_deref(), replace.force);
    let hits = Some(Path::new(output)).filter(|path| *path != Path::new("-"));
    let outputs = [("-o", hits), ("--stats", stats), ("--trace", tracing.trace.as_deref())];
    let outputs: Vec<(&str, &Path)> = outputs.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    let folder = arguments.folder.display().to_string();
    let inputs: Vec<String> = arguments.queries.iter().cloned().chain([folder]).collect();
    resolve::check_files(context, &inputs, &outputs)?;
    hits.map_or(Ok(()), |path| TableFormat::of(path).map(drop))?;
    outputs.iter().try_for_each(|(_, path)| Target::check_free(&*context.device, path, force))?;
    let stats = stats.map(|path| StatisticsFile::begin(context, path, force)).transpose()?;
    Ok((resolve::target(output, force, false), stats))
}

/// Returns whether the queries are the vectors of the store.
fn is_itself(arguments: &Search) -> bool {
    // A folder can have several paths, because of relative paths and symbolic links.
    let real = |path: &Path| path.canonicalize().ok();
    let [queries] = &arguments.queries[..] else { return false };
    real(Path::new(queries)).is_some_and(|queries| real(&arguments.folder) == Some(queries))
}

/// Prints the number of hits, and their file.
fn print_found(SearchStatistics { common, search }: &SearchStatistics, output: &str) {
    let (queries, found) = (format_number(search.queries), format_count(search.hits, "hit"));
    let place = if output == "-" { String::new() } else { format!(", written to {output}") };
    eprintln!("queries: {queries}; {found} found in {:.1} s{place}", common.seconds.total);
    if let Some(rows) = search.passing_rows {
        eprintln!("{} of {} match the filter", format_number(rows), format_count(common.rows, "row"));
    }
}

fn summarize(statistics: &SearchStatistics, arguments: &Search, kind: FolderKind) {
    let SearchStatistics { common, search } = statistics;
    print_found(statistics, &arguments.output);
    if let (Some(probes), Some(buckets)) = (search.probes_per_query, search.buckets) {
        let (buckets, read) = (format_number(buckets), format_bytes(search.bytes_per_query as u64));
        eprintln!("a query probed {probes:.1} of {buckets} buckets on average; {read} were read for it");
    } else {
        let (reads, distances) = (search.reads_per_query, format_number(search.distances_per_query.round() as u64));
        eprintln!(
            "a query took {reads:.1} reads and {distances} distances on average; {:.0} queries per second",
            search.queries_per_second
        );
    }
    let (option, rows) = match kind {
        FolderKind::Store => ("--nprobe", "of the store"),
        FolderKind::Index => ("--list", "of the index"),
        FolderKind::Collection => ("--list", "of the collection"),
    };
    print_recall(common, arguments.calibrate_with.is_some(), option, rows);
    print_memory(&common.memory);
}
