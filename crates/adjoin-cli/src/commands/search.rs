use std::path::Path;

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::options::{format_bytes, format_count, format_number};
use adjoin::output::{Target, check_free};
use adjoin::report::SearchStatistics;
use adjoin::search::{Effort, QuerySet, SearchOptions, Wanted, hit_schema, search as find};
use adjoin::sink::{HitSchema, HitSink, HitWriter, TableFormat};
use adjoin::store::Store;

use super::join::StatisticsFile;
use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::{Search, SearchRun};
use crate::print::percent;
use crate::resolve;
use crate::signals::Stopped;

pub(crate) fn search(arguments: &Search, stopped: &Stopped) -> Result<Outcome> {
    let run = &arguments.run;
    let context = resolve::context(&run.resources, stopped)?;
    let wanted = Wanted::of(arguments.k, arguments.radius, arguments.min_similarity)?;
    let effort = Effort::of(arguments.recall, arguments.exact, arguments.nprobe)?;
    let options = SearchOptions { wanted, effort, seed: arguments.seed };
    let (target, stats) = outputs(&context, run, &arguments.queries, &arguments.store)?;
    let store = Store::open(&context, &arguments.store)?;
    let source = match is_itself(arguments) {
        true => None,
        false => Some(resolve::source(&context, &arguments.queries, &run.columns)?),
    };
    let queries = source.as_deref().map_or(QuerySet::Rows, QuerySet::Source);
    let like = match &arguments.calibrate_with {
        Some(name) => Some(resolve::source(&context, std::slice::from_ref(name), &run.columns)?),
        None => None,
    };
    let like = like.as_deref().map_or(QuerySet::Rows, QuerySet::Source);
    let schema = hit_schema(&store, queries);
    let mut statistics =
        with_writer(&context, &target, schema, |sink| find(&context, &store, (queries, like), &options, sink))?;
    stats.map_or(Ok(()), |stats| stats.finish(&mut statistics, |of| &mut of.common.memory))?;
    drop(context); // ends the progress bar
    if !run.resources.quiet {
        summarise(&statistics, arguments);
    }
    Ok(memory_verdict(&statistics.common.memory))
}

/// Where the hits and the statistics of a search go; refused before any work is done where they cannot.
pub(super) fn outputs<'a>(
    context: &Context,
    run: &'a SearchRun,
    queries: &[String],
    searched: &Path,
) -> Result<(Target, Option<StatisticsFile<'a>>)> {
    let hits = Some(Path::new(&run.output)).filter(|path| *path != Path::new("-"));
    let outputs = [("-o", hits), ("--stats", run.stats.as_deref())];
    let outputs: Vec<(&str, &Path)> = outputs.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    let inputs: Vec<String> = queries.iter().cloned().chain([searched.display().to_string()]).collect();
    resolve::check_files(context, &inputs, &outputs)?;
    hits.map_or(Ok(()), |path| TableFormat::of(path).map(drop))?;
    outputs.iter().try_for_each(|(_, path)| check_free(&*context.device, path, run.force))?;
    let stats = run.stats.as_deref().map(|path| StatisticsFile::begin(context, path, run.force)).transpose()?;
    Ok((resolve::target(&run.output, run.force, false), stats))
}

/// A search whose hits are written.
pub(super) fn with_writer(
    context: &Context,
    target: &Target,
    schema: HitSchema,
    search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<SearchStatistics>,
) -> Result<SearchStatistics> {
    let _of_writer = context.reserve(HitWriter::memory_bytes(target, schema)?, "writing the hits")?;
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
}

fn summarise(statistics: &SearchStatistics, arguments: &Search) {
    let SearchStatistics { common, search } = statistics;
    print_found(statistics, &arguments.run.output);
    let read = format_bytes(search.bytes_per_query as u64);
    if let (Some(probes), Some(buckets)) = (search.probes_per_query, search.buckets) {
        let buckets = format_number(buckets);
        eprintln!("a query looked into {probes:.1} of {buckets} buckets on average; {read} were read for it");
    }
    match &common.recall {
        None => eprintln!("recall: nothing is promised with --nprobe"),
        Some(recall) => match (recall.sample_queries, recall.at_k, recall.p5) {
            (Some(sample), Some(at_k), Some(p5)) => {
                let [estimate, low, high, p5, target] =
                    [at_k.estimate, at_k.low, at_k.high, p5, recall.target].map(percent);
                eprintln!(
                    "recall: {estimate} of what a query is to find, on average (between {low} and {high}), {p5} or more \
                     for 95 % of queries, measured with {} {} as queries; at least {target} requested",
                    format_count(sample, "row"),
                    if arguments.calibrate_with.is_some() { "of --calibrate-with" } else { "of the store" }
                );
            }
            _ => eprintln!("recall: 100 % (exact); at least {} requested", percent(recall.target)),
        },
    }
    print_memory(&common.memory);
}
