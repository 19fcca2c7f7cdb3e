use std::path::Path;
use std::sync::Arc;

use adjoin::buckets::{QuerySet, hit_schema, search as find};
use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::options::{format_bytes, format_count, format_number};
use adjoin::output::{Target, check_free};
use adjoin::query::{QueryTarget, SearchEffort, SearchOptions};
use adjoin::report::{CommonStatistics, SearchStatistics};
use adjoin::sink::{HitSchema, HitSink, HitWriter, TableFormat};
use adjoin::source::VectorSource;
use adjoin::sql::Condition;
use adjoin::store::Store;

use super::join::StatisticsFile;
use super::memory::{memory_verdict, print_memory};
use super::tracing::Tracing;
use crate::Outcome;
use crate::args::{Search, SearchRun, TargetOptions};
use crate::print::percent;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn search(arguments: &Search, stopped: &Stopped) -> Result<Outcome> {
    let run = &arguments.run;
    let mut context = resolve::context(&run.resources, stopped)?;
    let wanted = wanted_of(&arguments.sought)?;
    let effort = SearchEffort::of(arguments.recall, arguments.exact, arguments.nprobe)?;
    let condition = run.condition.as_deref().map(Condition::parse).transpose()?;
    let options = SearchOptions { filter: condition, ..SearchOptions::new(wanted, effort, run.seed) };
    let (target, stats) = outputs(&context, run, &arguments.queries, &arguments.store)?;
    let tracing = run.trace.as_deref().map(|path| Tracing::begin(&mut context, path)).transpose()?;
    let store = Store::open(&context, &arguments.store)?;
    let source = match is_itself(arguments) {
        true => None,
        false => Some(resolve::source(&context, &arguments.queries, &run.columns)?),
    };
    let queries = source.as_deref().map_or(QuerySet::Rows, QuerySet::Source);
    let like = like(&context, run)?;
    let like = like.as_deref().map_or(QuerySet::Rows, QuerySet::Source);
    let schema = hit_schema(&store, queries);
    let mut statistics =
        with_writer(&context, &target, schema, |sink| find(&context, &store, (queries, like), &options, sink))?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(store);
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !run.resources.quiet {
        summarize(&statistics, arguments);
    }
    Ok(verdict(&statistics.common))
}

/// What is wanted of each query.
pub(super) fn wanted_of(sought: &TargetOptions) -> Result<QueryTarget> {
    QueryTarget::of(sought.k, sought.radius, sought.min_similarity)
}

/// The queries that those of a search are like, where they were given.
pub(super) fn like(context: &Context, run: &SearchRun) -> Result<Option<Arc<dyn VectorSource>>> {
    let open = |name| resolve::source(context, std::slice::from_ref(name), &run.columns);
    run.calibrate_with.as_ref().map(open).transpose()
}

/// Says which promise of a search was not kept.
pub(super) fn verdict(common: &CommonStatistics) -> Outcome {
    let outcome = memory_verdict(&common.memory);
    match common.recall.as_ref().filter(|recall| !recall.kept) {
        None => outcome,
        Some(recall) => {
            let (target, reached) = (percent(recall.target), recall.at_k.map(|at_k| percent(at_k.estimate)));
            let reached = reached.map_or_else(String::new, |reached| format!("; about {reached} is"));
            eprintln!("adjoin: no search that makes sense supports a recall of {target}{reached}");
            Outcome::PromiseNotKept
        }
    }
}

/// Where the hits and the statistics of a search go; refused before any work is done where they cannot.
pub(super) fn outputs<'a>(
    context: &Context,
    run: &'a SearchRun,
    queries: &[String],
    searched: &Path,
) -> Result<(Target, Option<StatisticsFile<'a>>)> {
    let hits = Some(Path::new(&run.output)).filter(|path| *path != Path::new("-"));
    let outputs = [("-o", hits), ("--stats", run.stats.as_deref()), ("--trace", run.trace.as_deref())];
    let outputs: Vec<(&str, &Path)> = outputs.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    let inputs: Vec<String> = queries.iter().cloned().chain([searched.display().to_string()]).collect();
    resolve::check_files(context, &inputs, &outputs)?;
    hits.map_or(Ok(()), |path| TableFormat::of(path).map(drop))?;
    outputs.iter().try_for_each(|(_, path)| check_free(&*context.device, path, run.force))?;
    let stats = run.stats.as_deref().map(|path| StatisticsFile::begin(context, path, run.force)).transpose()?;
    Ok((resolve::target(&run.output, run.force, false), stats))
}

/// A search whose hits are written.
pub(super) fn with_writer<S>(
    context: &Context,
    target: &Target,
    schema: HitSchema,
    search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<S>,
) -> Result<S> {
    search(Box::new(HitWriter::new(context, target, schema)))
}

/// Whether the queries are the vectors of the store.
fn is_itself(arguments: &Search) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let [queries] = &arguments.queries[..] else { return false };
    real(Path::new(queries)).is_some_and(|queries| real(&arguments.store) == Some(queries))
}

/// Says how much was found, and where it is.
pub(super) fn print_found(SearchStatistics { common, search }: &SearchStatistics, output: &str) {
    let (queries, found) = (format_number(search.queries), format_count(search.hits, "hit"));
    let place = if output == "-" { String::new() } else { format!(" written to {output}") };
    eprintln!("queries: {queries}; {found} found in {:.1} s{place}", common.seconds.total);
    if let Some(rows) = search.passing_rows {
        eprintln!("{} of {} meet the condition", format_number(rows), format_count(common.rows, "row"));
    }
}

fn summarize(statistics: &SearchStatistics, arguments: &Search) {
    let SearchStatistics { common, search } = statistics;
    print_found(statistics, &arguments.run.output);
    let read = format_bytes(search.bytes_per_query as u64);
    if let (Some(probes), Some(buckets)) = (search.probes_per_query, search.buckets) {
        let buckets = format_number(buckets);
        eprintln!("a query looked into {probes:.1} of {buckets} buckets on average; {read} were read for it");
    }
    print_recall(common, arguments.run.calibrate_with.is_some(), ("--nprobe", "of the store"));
    print_memory(&common.memory);
}

/// Says what recall is reached, and whose it is: that of rows or of the queries that were given. With one option none is.
pub(super) fn print_recall(common: &CommonStatistics, with_others: bool, (unpromised, rows): (&str, &str)) {
    let Some(recall) = &common.recall else { return eprintln!("recall: nothing is promised with {unpromised}") };
    let (Some(sample), Some(at_k), Some(p5)) = (recall.sample_queries, recall.at_k, recall.p5) else {
        return eprintln!("recall: 100 % (exact); at least {} requested", percent(recall.target));
    };
    let [estimate, low, high, p5, target] = [at_k.estimate, at_k.low, at_k.high, p5, recall.target].map(percent);
    let inserted = recall.queries.as_deref().filter(|queries| queries.contains("merge"));
    let (rows, others) = match (with_others, inserted) {
        (true, _) => ("of --calibrate-with", ""),
        (false, None) => (rows, " (of other queries, give some as --calibrate-with)"),
        (false, Some(_)) => ("that the last merge inserted", ", whose recall is the lowest"),
    };
    eprintln!(
        "recall: {estimate} of what a query is to find, on average (between {low} and {high}), {p5} or more for 95 % of \
         queries, measured with {} {rows} as queries{others}; at least {target} requested",
        format_count(sample, "row"),
    );
}
