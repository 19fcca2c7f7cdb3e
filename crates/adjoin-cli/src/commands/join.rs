use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::Recorder;
use adjoin::error::{Error, Result};
use adjoin::join::{JoinOptions, join as run_join, least_memory, prepare};
use adjoin::options::{format_bytes, parse_bytes};
use adjoin::output::{Target, check_free, parent, write_file};
use adjoin::predicate::Predicate;
use adjoin::report::{MemoryWatch, Statistics};
use adjoin::sink::{Clusters, Counts, Discard, Keep, KeepRule, PairSchema, PairSink, PairWriter, TableFormat};
use adjoin::store::{Store, TemporaryStore, sole_store};

use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Join;
use crate::resolve::{self, Output, Strategy, What};
use crate::signals::Stopped;

/// A result is announced when it is so many times as large as the vectors, and no trifle.
const RESULT_MUCH_LARGER: u64 = 4;
const RESULT_TRIFLE_BYTES: u64 = 16 << 20;

pub(crate) fn join(arguments: &Join, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    let predicate = resolve::predicate(&arguments.threshold)?;
    let strategy =
        resolve::strategy(arguments.strategy.as_deref(), &["rule", "threshold", "order", "cache", "centers"])?;
    let aim = resolve::aim(&arguments.wanted)?;
    let cache_bytes = arguments.cache.as_deref().map(parse_bytes).transpose()?;
    let seed = arguments.store.seed;
    let Strategy { rule, threshold, order, policy, .. } = strategy;
    let options = JoinOptions { predicate, aim, rule, threshold, seed, order, policy, cache_bytes };
    let output = resolve::output(arguments)?;
    check_outputs(&context, &output, arguments)?;
    let memory = arguments.stats.as_ref().and_then(|_| MemoryWatch::begin());
    let tracing = arguments.trace.as_deref().map(|path| Tracing::begin(&mut context, path)).transpose()?;

    let opened = open(&context, arguments, predicate, strategy, output.place())?;
    let store = &opened.store;
    let mut statistics = {
        let with_ids = output.what == What::Pairs && output.target.is_some();
        let of_rows = sink_of_rows(&context, store, &options, &output)?;
        let prepared = prepare(&context, store, &options, with_ids)?;
        announce(&context, store, prepared.predicted_results(), &output, arguments.yes)?;
        let sink = match of_rows {
            Some(sink) => sink,
            None => sink_of_pairs(&context, store, output.target.as_ref())?,
        };
        run_join(&context, store, &prepared, &options, sink)?
    };
    statistics.seconds.build = opened.build_seconds;
    statistics.seconds.total += opened.build_seconds.unwrap_or(0.0);
    statistics.memory.over_time = memory.map(MemoryWatch::finish);
    if let Some(path) = &arguments.stats {
        write_statistics(&context, path, arguments.force, &statistics)?;
    }
    tracing.map_or(Ok(()), Tracing::finish)?;
    drop(context); // ends the progress bar
    if !arguments.resources.quiet {
        summarise(&statistics, arguments);
    }
    Ok(verdict(&statistics, arguments))
}

/// Where pairs go as they come.
fn sink_of_pairs(context: &Context, store: &Store, target: Option<&Target>) -> Result<Box<dyn PairSink>> {
    let schema = PairSchema { ids: store.manifest().ids, metric: store.manifest().metric };
    Ok(match target {
        Some(target) => Box::new(PairWriter::create(context, target, schema)?),
        None => Box::new(Discard),
    })
}

/// A sink that speaks of rows. It is made before the join is planned, which gets the memory that it leaves.
fn sink_of_rows<'a>(
    context: &'a Context,
    store: &'a Store,
    options: &JoinOptions,
    output: &Output,
) -> Result<Option<Box<dyn PairSink + 'a>>> {
    let target = output.target.as_ref();
    let beside = || least_memory(context, store, options);
    Ok(match output.what {
        What::Pairs => None,
        What::Counts => Some(Box::new(Counts::create(context, store, target, beside()?)?)),
        What::Clusters => Some(Box::new(Clusters::create(context, store, target, beside()?)?)),
        What::Keep(rule) => {
            Some(Box::new(Keep::create(context, store, rule, (target, output.kept.as_ref()), beside()?)?))
        }
    })
}

/// Refuses names that are taken before any work is done.
fn check_outputs(context: &Context, output: &Output, arguments: &Join) -> Result<()> {
    let mut taken: Vec<(&str, &Path)> = Vec::new();
    let results = [("-o", &output.target), ("--kept", &output.kept)];
    let results = results.map(|(option, target)| (option, target.as_ref().and_then(Target::path)));
    let others = [("--stats", &arguments.stats), ("--trace", &arguments.trace)];
    let others = others.map(|(option, path)| (option, path.as_deref()));
    for (option, path) in results.into_iter().chain(others) {
        let Some(path) = path else { continue };
        if path == Path::new("-") {
            return Err(Error::option(format!("{option} writes to a file, not to standard output; name one")));
        }
        if matches!(option, "-o" | "--kept") {
            TableFormat::of(path)?;
        }
        check_free(&*context.device, path, arguments.force)?;
        resolve::check_not_read(&arguments.inputs, path)?;
        if let Some((other, _)) = taken.iter().find(|(_, other)| resolve::is_same(other, path)) {
            let at = path.display();
            return Err(Error::option(format!("{at} cannot be both {other} and {option}; name two files")));
        }
        taken.push((option, path));
    }
    Ok(())
}

/// Says so where the result is going to be much larger than what it is made from; refuses it where the disk has no room
/// for it and nobody said to try.
fn announce(context: &Context, store: &Store, pairs: u64, output: &Output, yes: bool) -> Result<()> {
    let manifest = store.manifest();
    let Some(path) = output.place().and_then(Target::path) else { return Ok(()) };
    let (a_pair, what) = match output.what {
        What::Pairs => (TableFormat::of(path)?.bytes_of_a_pair(manifest.ids), path.display().to_string()),
        What::Keep(KeepRule::Greedy) => (Keep::BYTES_OF_A_PAIR, format!("sorting pairs for {}", path.display())),
        _ => return Ok(()), // a line for each row at most
    };
    let bytes = pairs.saturating_mul(a_pair);
    let source = manifest.rows * manifest.vectors.bytes() as u64;
    let free = context.device.free_bytes(parent(path))?;
    if bytes > free && !yes {
        return Err(Error::device(format!(
            "{what} would take about {}, the disk has {}; give a stricter threshold, another place, or --yes to try",
            format_bytes(bytes),
            format_bytes(free)
        )));
    }
    if bytes > (RESULT_MUCH_LARGER * source).max(RESULT_TRIFLE_BYTES) {
        let (result, source) = (format_bytes(bytes), format_bytes(source));
        context.progress.note(&format!("about {pairs} pairs are expected, {result}; the vectors have {source}"));
    }
    Ok(())
}

/// A trace that is being written, of all that is asked of the device from now on; removed where it does not become whole.
struct Tracing<'a> {
    path: &'a Path,
    partial: PathBuf,
    recorder: Arc<Recorder>,
}

impl<'a> Tracing<'a> {
    fn begin(context: &mut Context, path: &'a Path) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let recorder = Recorder::create(context.device.clone(), &partial);
        let recorder = Arc::new(recorder.map_err(|error| cannot_write(path, error))?);
        context.device = recorder.clone();
        Ok(Self { path, partial, recorder })
    }

    fn finish(self) -> Result<()> {
        let named = self.recorder.finish().and_then(|()| std::fs::rename(&self.partial, self.path));
        named.map_err(|error| cannot_write(self.path, error))
    }
}

impl Drop for Tracing<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.partial); // where it has its name, none is there
    }
}

fn cannot_write(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::device(format!("cannot write {}: {error}", path.display())).caused_by(error)
}

struct Opened {
    store: Store,
    build_seconds: Option<f64>,
    _temporary: Option<TemporaryStore>,
}

/// Opens the store that is named, or builds one from sources beside the result.
fn open(
    context: &Context,
    arguments: &Join,
    predicate: Predicate,
    strategy: Strategy,
    target: Option<&Target>,
) -> Result<Opened> {
    if let Some(folder) = sole_store(context, &arguments.inputs, &only_for_builds(arguments))? {
        let store = Store::open(context, folder)?;
        return Ok(Opened { store, build_seconds: None, _temporary: None });
    }
    let source = resolve::source(context, &arguments.inputs, &arguments.store.columns)?;
    let options = resolve::build_options(&arguments.store, predicate.metric(), strategy.centers, false)?;
    let (temporary, report) = TemporaryStore::build(context, &*source, &folder_beside(target), &options)?;
    let store = Store::open(context, temporary.folder())?;
    Ok(Opened { store, build_seconds: Some(report.seconds.total), _temporary: Some(temporary) })
}

/// The folder of the result, on whose disk there must be room anyway; else the system's place for temporary files.
fn folder_beside(target: Option<&Target>) -> PathBuf {
    let path = target.and_then(Target::path);
    path.map_or_else(std::env::temp_dir, |path| parent(path).to_owned())
}

/// What only a build can heed, and whether it was given.
fn only_for_builds(arguments: &Join) -> [(&'static str, bool); 6] {
    let options = &arguments.store;
    [
        ("--vector-column", options.columns.vector_column.is_some()),
        ("--id-column", options.columns.id_column.is_some()),
        ("--buckets", options.buckets.is_some()),
        ("--on-bad skip", options.on_bad == "skip"),
        ("--on-duplicate-id keep", options.on_duplicate_id == "keep"),
        ("--strategy centers=", arguments.strategy.as_deref().is_some_and(|strategy| strategy.contains("centers="))),
    ]
}

fn write_statistics(context: &Context, path: &Path, force: bool, statistics: &Statistics) -> Result<()> {
    let text = serde_json::to_string_pretty(statistics);
    let text = text.map_err(|error| cannot_write(path, error))?;
    write_file(context, path, force, |out| out.write_all((text + "\n").as_bytes()))
}

fn summarise(statistics: &Statistics, arguments: &Join) {
    let pairs = statistics.pairs.unwrap_or(0);
    let file = arguments.output.as_deref().filter(|output| *output != "-");
    let place = match (arguments.what.as_str(), file) {
        (_, None) => String::new(),
        ("pairs", Some(file)) => format!(" in {file}"),
        (what, Some(file)) => format!(", {what} in {file}"),
    };
    eprintln!("{pairs} pairs{place}, {:.1} s", statistics.seconds.total);
    let (candidates, verified) = (statistics.candidate_pairs.unwrap_or(0), statistics.verified_pairs.unwrap_or(0));
    let all = statistics.rows as f64 * statistics.rows.saturating_sub(1) as f64 / 2.0;
    let share = 100.0 * candidates as f64 / all.max(1.0);
    eprintln!("compared   {candidates} pairs, {share:.2} % of all, by {verified} distances in whole tiles");
    if let Some(recall) = &statistics.recall {
        eprintln!("recall     {}", resolve::recall_in_words(recall));
    }
    print_memory(&statistics.memory);
}

/// Says which promise was not kept. A threshold that was given, without a recall, promises none.
fn verdict(statistics: &Statistics, arguments: &Join) -> Outcome {
    let mut outcome = memory_verdict(&statistics.memory);
    if let Some(recall) = statistics.recall.as_ref().filter(|recall| !recall.kept)
        && arguments.wanted.recall.is_some()
    {
        let measured = resolve::recall_in_words(recall);
        eprintln!("adjoin: the threshold that was given does not promise the recall: {measured}");
        outcome = Outcome::PromiseNotKept;
    }
    outcome
}
