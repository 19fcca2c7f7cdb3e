use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::Recorder;
use adjoin::error::{Error, Result};
use adjoin::join::{JoinOptions, join as run_join, least_memory, prepare};
use adjoin::locks::OwnFolder;
use adjoin::options::{format_bytes, format_count, format_number, parse_bytes};
use adjoin::output::{Target, check_free, parent, write_file};
use adjoin::predicate::Predicate;
use adjoin::report::{MemoryWatch, Statistics};
use adjoin::sink::{Clusters, Counts, Discard, Keep, KeepRule, PairSchema, PairSink, PairWriter, TableFormat};
use adjoin::store::{Store, TemporaryStore, sole_store};

use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::Join;
use crate::print::percent;
use crate::resolve::{self, Output, Strategy, What};
use crate::signals::Stopped;

/// A result is announced when it is so many times as large as the vectors, and not small.
const RESULT_MUCH_LARGER: u64 = 4;
const RESULT_SMALL_BYTES: u64 = 16 << 20;

pub(crate) fn join(arguments: &Join, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::context(&arguments.resources, stopped)?;
    context = resolve::temporary(context, &arguments.temporary)?;
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
    if let Some(path) = output.place().and_then(Target::path) {
        context = context.or_temporary(parent(path)); // on that disk there must be room anyway
    }
    let memory = arguments.stats.as_ref().and_then(|_| MemoryWatch::begin());
    let tracing = arguments.trace.as_deref().map(|path| Tracing::begin(&mut context, path)).transpose()?;

    let opened = open(&context, arguments, predicate, strategy)?;
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
        summarise(&statistics, &output);
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

/// A sink for rows. It is made before the join is planned, which gets the memory that it leaves.
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
    let results = [("-o", &output.target), ("--kept", &output.kept)];
    let results = results.map(|(option, target)| (option, target.as_ref().and_then(Target::path)));
    let others = [("--stats", &arguments.stats), ("--trace", &arguments.trace)];
    let others = others.map(|(option, path)| (option, path.as_deref()));
    let outputs = results.into_iter().chain(others);
    let outputs: Vec<(&str, &Path)> = outputs.filter_map(|(option, path)| Some((option, path?))).collect();
    if let Some((option, _)) = outputs.iter().find(|(_, path)| *path == Path::new("-")) {
        return Err(Error::option(format!("{option} writes to a file, not to standard output; name one")));
    }
    resolve::check_outputs(context, &arguments.inputs, &outputs)?;
    for (option, path) in outputs {
        if matches!(option, "-o" | "--kept") {
            TableFormat::of(path)?;
        }
        check_free(&*context.device, path, arguments.force)?;
    }
    Ok(())
}

/// Says so where the result is going to be much larger than what it is made from; refuses it where the disk has no room
/// for it and nobody said to try.
fn announce(context: &Context, store: &Store, pairs: u64, output: &Output, yes: bool) -> Result<()> {
    let manifest = store.manifest();
    let Some(path) = output.place().and_then(Target::path) else { return Ok(()) };
    let (place, sorting) = (path.display(), context.temporary(Some(parent(path))));
    let (a_pair, what, at) = match output.what {
        What::Pairs => (TableFormat::of(path)?.bytes_of_a_pair(manifest.ids), place.to_string(), parent(path)),
        What::Keep(KeepRule::Greedy) => (Keep::BYTES_OF_A_PAIR, format!("sorting pairs for {place}"), &*sorting),
        _ => return Ok(()), // a line for each row at most
    };
    let bytes = pairs.saturating_mul(a_pair);
    let source = manifest.rows * manifest.vectors.bytes() as u64;
    let free = context.device.free_bytes(at)?;
    if bytes > free && !yes {
        return Err(Error::device(format!(
            "{what} would take about {}, the disk has {} free; give a stricter threshold, another folder, or --yes to try",
            format_bytes(bytes),
            format_bytes(free)
        )));
    }
    if bytes > (RESULT_MUCH_LARGER * source).max(RESULT_SMALL_BYTES) {
        let (pairs, result, source) = (format_count(pairs, "pair"), format_bytes(bytes), format_bytes(source));
        context.progress.note(&format!("about {pairs} expected, which take {result}; the vectors take {source}"));
    }
    Ok(())
}

/// A trace that is being written, of all that is asked of the device from now on; removed where it does not become whole.
struct Tracing<'a> {
    path: &'a Path,
    partial: PathBuf,
    /// What the trace lies in until it is whole.
    folder: OwnFolder,
    recorder: Arc<Recorder>,
}

impl<'a> Tracing<'a> {
    fn begin(context: &mut Context, path: &'a Path) -> Result<Self> {
        let folder = OwnFolder::create(&context.device, parent(path), "trace")?;
        let partial = folder.path().join("trace");
        let recorder = Recorder::create(context.device.clone(), &partial);
        let recorder = Arc::new(recorder.map_err(|error| cannot_write(path, error))?);
        context.device = recorder.clone();
        Ok(Self { path, partial, folder, recorder })
    }

    fn finish(self) -> Result<()> {
        let named = self.recorder.finish().and_then(|()| std::fs::rename(&self.partial, self.path));
        drop(self.folder);
        named.map_err(|error| cannot_write(self.path, error))
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

/// Opens the store that is named, or builds one from sources where temporary files go.
fn open(context: &Context, arguments: &Join, predicate: Predicate, strategy: Strategy) -> Result<Opened> {
    if let Some(folder) = sole_store(context, &arguments.inputs, &only_for_builds(arguments))? {
        let store = Store::open(context, folder)?;
        return Ok(Opened { store, build_seconds: None, _temporary: None });
    }
    let source = resolve::source(context, &arguments.inputs, &arguments.store.columns)?;
    let options = resolve::build_options(&arguments.store, predicate.metric(), strategy.centers, false)?;
    let (temporary, report) = TemporaryStore::build(context, &*source, &options)?;
    let store = Store::open(context, temporary.folder())?;
    Ok(Opened { store, build_seconds: Some(report.seconds.total), _temporary: Some(temporary) })
}

/// What only a build can heed, and whether it was given.
fn only_for_builds(arguments: &Join) -> [(&'static str, bool); 7] {
    let options = &arguments.store;
    [
        ("--vector-column", options.columns.vector_column.is_some()),
        ("--id-column", options.columns.id_column.is_some()),
        ("--no-ids", options.columns.no_ids),
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

fn summarise(statistics: &Statistics, output: &Output) {
    let found = format_count(statistics.pairs.unwrap_or(0), "pair");
    eprintln!("{found} found in {:.1} s", statistics.seconds.total);
    let written = statistics.written;
    let what = match output.what {
        What::Pairs => format_count(written.rows, "pair"),
        What::Counts => format!("counts of {}", format_count(written.rows, "row")),
        What::Clusters => format!("{} in clusters", format_count(written.rows, "row")),
        What::Keep(_) => format!("{} to remove", format_count(written.rows, "row")),
    };
    let kept = format!("{} to keep", format_count(written.kept_rows, "row"));
    for (what, target) in [(what, &output.target), (kept, &output.kept)] {
        if let Some(path) = target.as_ref().and_then(Target::path) {
            eprintln!("{what} written to {}", path.display());
        }
    }
    let (candidates, verified) = (statistics.candidate_pairs.unwrap_or(0), statistics.verified_pairs.unwrap_or(0));
    let all = statistics.rows as f64 * statistics.rows.saturating_sub(1) as f64 / 2.0;
    let (verified, share) = (format_number(verified), percent(candidates as f64 / all.max(1.0)));
    eprintln!("distances computed: {verified} (candidates: {share} of all pairs)");
    if statistics.skipped_rows > 0 {
        eprintln!("skipped: {} without a usable vector", format_count(statistics.skipped_rows, "row"));
    }
    if let Some(recall) = &statistics.recall {
        eprintln!("recall: {}", resolve::recall_in_words(recall));
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
        eprintln!("adjoin: the recall is not promised with the threshold of --strategy: {measured}");
        outcome = Outcome::PromiseNotKept;
    }
    outcome
}
