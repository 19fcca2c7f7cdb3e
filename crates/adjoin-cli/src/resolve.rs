//! Converts flags to options of the engine.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    BuildOptions, Context, Error, FolderKind, IdChoice, IndexOptions, Interval, KeepRule, Metric, Output,
    RecallStatistics, Result, ResultKind, SourceOptions, Target, VectorSource,
    device::{Device, FileSystem, LimitedBy, Location, MemoryLimit, current_resident_bytes, forget_code, memory_limit},
    format_bytes, format_count,
    kernels::Kernel,
    open_source, parse_bytes,
};

use crate::args::{
    IndexShape, JoinOutput, MemoryOption, Quiet, ReadInterface, Resources, SourceColumns, StoreOptions, TemporaryPlace,
};
use crate::print::percent;
use crate::progress::with_progress;
use crate::signals::Stopped;

/// Returns a context that accounts for the memory that this process holds already. Releases the code that parsed
/// arguments first.
pub(crate) fn own_context() -> Context {
    forget_code();
    let context = plain_context();
    context.in_process_of(current_resident_bytes())
}

/// Returns a context with default resources, which reads files and objects.
pub(crate) fn plain_context() -> Context {
    let mut context = Context::default();
    context.device = with_object_stores(context.device);
    context
}

/// Adds object stores to a device, if this build has them.
fn with_object_stores(files: Arc<dyn Device>) -> Arc<dyn Device> {
    #[cfg(feature = "object")]
    return Arc::new(adjoin_object::ObjectDevice::over(files));
    #[cfg(not(feature = "object"))]
    files
}

/// Returns the context of a command that computes.
///
/// # Errors
/// If a resource is out of range or not available.
pub(crate) fn context(resources: &Resources, stopped: &Stopped) -> Result<Context> {
    let Resources { limit, threads, kernel, device, quiet } = resources;
    let mut context = limited_context(limit, *threads, quiet, stopped)?;
    if let Some(name) = kernel {
        context.kernel = available_kernel(name)?;
    }
    if let Some(limit) = memory_limit().filter(|limit| context.memory_bytes() > limit.bytes) {
        context.progress.note(&beyond_limit(context.memory_bytes(), limit));
    }
    context.device = with_object_stores(Arc::new(files(*device, &context)?));
    Ok(context)
}

/// Returns a context with a memory limit, and with progress unless the command is quiet.
///
/// # Errors
/// If the limit or the number of threads is out of range.
pub(crate) fn limited_context(
    limit: &MemoryOption,
    threads: Option<usize>,
    quiet: &Quiet,
    stopped: &Stopped,
) -> Result<Context> {
    let mut context = own_context().with_resources(limit.memory.as_deref(), threads)?;
    context.cancel = stopped.cancel.clone();
    Ok(with_progress(context, quiet))
}

/// Returns a warning about a budget that exceeds the available memory. The system kills a process that uses too much
/// memory without a message.
fn beyond_limit(memory_bytes: u64, limit: MemoryLimit) -> String {
    let whose = match limit.by {
        LimitedBy::Machine => "machine",
        LimitedBy::Cgroup => "cgroup",
    };
    let [budget, there] = [memory_bytes, limit.bytes].map(format_bytes);
    format!(
        "the budget of {budget} is more than the {there} of this {whose}, so the run may be killed; give --memory 80% \
         for a fraction of it"
    )
}

/// Sets the folder for temporary files, if one was given.
pub(crate) fn temporary(context: Context, place: &TemporaryPlace) -> Result<Context> {
    match &place.temporary {
        Some(folder) => context.with_temporary(folder),
        None => Ok(context),
    }
}

fn files(interface: Option<ReadInterface>, context: &Context) -> Result<FileSystem> {
    match interface {
        Some(ReadInterface::Pread) => Ok(FileSystem::pread()),
        Some(ReadInterface::IoUring) => FileSystem::io_uring().map_err(|error| {
            let refused = format!("this system refuses io_uring: {error}; leave out --device io_uring");
            Error::device(refused).caused_by(error)
        }),
        None => {
            let (files, refused) = FileSystem::detect();
            refused.iter().for_each(|note| context.progress.note(note));
            Ok(files)
        }
    }
}

fn available_kernel(name: &str) -> Result<Kernel> {
    Kernel::named(name).ok_or_else(|| {
        let there: Vec<&str> = Kernel::available().iter().map(Kernel::name).collect();
        Error::option(format!("there is no kernel {name} on this processor; choose one of {}", there.join(", ")))
    })
}

/// Converts the options for reading tables.
pub(crate) fn source_options(columns: &SourceColumns) -> Result<SourceOptions> {
    let ids = IdChoice::new(columns.id_column.as_deref(), columns.no_ids)?;
    Ok(SourceOptions { vector_column: columns.vector_column.clone(), ids, split: columns.split.clone() })
}

/// Returns the options of an index that apply to builds and to collections.
pub(crate) fn index_options(shape: &IndexShape, seed: u64) -> Result<IndexOptions> {
    let IndexShape { degree, build_list, alpha, code_bytes, .. } = *shape;
    let page_bytes = parse_bytes(&shape.page)?;
    Ok(IndexOptions { degree, build_list, alpha, seed, code_bytes, page_bytes, navigation: None })
}

/// Opens names as one set of vectors; refuses a set without rows.
pub(crate) fn source(context: &Context, names: &[String], columns: &SourceColumns) -> Result<Arc<dyn VectorSource>> {
    forget_code(); // code that was used before: opening a Parquet file maps another 8 MB of code
    let source = open_source(context, names, &source_options(columns)?)?;
    forget_code(); // most of the code that reads headers does not run again
    Ok(source)
}

/// Refuses results that would replace an input or be written into an input folder, even if the paths are spelled
/// differently. Also refuses two results with one path. Each of `outputs` is an option and its path.
pub(crate) fn check_outputs(context: &Context, inputs: &[String], outputs: &[(&str, &Path)]) -> Result<()> {
    for (option, path) in outputs {
        if let Location::Remote(name) = Location::of(path) {
            let url = name.public_url();
            return Err(Error::option(format!(
                "{option} cannot write to {url}; name a local file or folder, and copy \
                                              it"
            )));
        }
    }
    let outputs: Vec<(&str, Cow<'_, Path>)> = outputs.iter().map(|(option, path)| (*option, local(path))).collect();
    for input in inputs {
        let read = Read::of(context, input)?;
        outputs.iter().try_for_each(|(option, path)| read.refuse(option, path))?;
    }
    for (k, (option, path)) in outputs.iter().enumerate() {
        // A path whose folder does not exist has no identity, so the spelling of paths is compared too.
        let is_same =
            |path: &Path, other: &Path| path == other || place(path).is_some_and(|at| place(other) == Some(at));
        if let Some((other, _)) = outputs[..k].iter().find(|(_, other)| is_same(path, other)) {
            let at = path.display();
            return Err(Error::option(format!("{at} cannot be both {other} and {option}; name two files")));
        }
    }
    Ok(())
}

/// Returns the path that a URL such as `file:///data/set.npy` names. Only paths have an identity.
fn local(name: &Path) -> Cow<'_, Path> {
    match Location::of(name) {
        Location::Local(path) => path,
        Location::Remote(_) => Cow::Borrowed(name),
    }
}

/// Checks results as [`check_outputs`] does, and also refuses standard output.
pub(crate) fn check_files(context: &Context, inputs: &[String], outputs: &[(&str, &Path)]) -> Result<()> {
    if let Some((option, _)) = outputs.iter().find(|(_, path)| *path == Path::new("-")) {
        return Err(Error::option(format!("{option} writes to a file, not to standard output; name one")));
    }
    check_outputs(context, inputs, outputs)
}

/// Device and inode number of an existing file or folder, which identify it under any name.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|facts| (facts.dev(), facts.ino()))
}

/// Returns the identity of a path. If the path does not exist, returns the identity of its folder, and its name.
fn place(path: &Path) -> Option<(Identity, Option<&OsStr>)> {
    let there = identity(path).map(|there| (there, None));
    there.or_else(|| Some((identity(Target::parent_of(path))?, Some(path.file_name()?))))
}

/// The files that a command reads under one of its input names.
struct Read<'a> {
    name: &'a str,
    kind: Option<FolderKind>,
    /// Identities of the files, and of the folder if the name is a folder.
    parts: HashSet<Identity>,
    /// Folders of which all files are read.
    folders: HashSet<Identity>,
    files: Vec<PathBuf>,
}

impl<'a> Read<'a> {
    fn of(context: &Context, name: &'a str) -> Result<Self> {
        let path = &*local(Path::new(name));
        let kind = FolderKind::of(context, path)?;
        let files = match kind {
            Some(_) => context.device.list(path)?.into_iter().map(|file| path.join(file)).collect(),
            None => SourceOptions::expand(name).unwrap_or_default(), // an invalid name is reported when it is opened
        };
        let parts = files.iter().map(PathBuf::as_path).chain([path]).filter_map(identity).collect();
        // The parents of files count only if a folder is read: a new file next to single files would not be read.
        let parents = files.iter().filter(|_| path.is_dir()).map(|file| Target::parent_of(file));
        let folders = parents.chain([path]).filter(|folder| folder.is_dir()).filter_map(identity).collect();
        Ok(Self { name, kind, parts, folders, files })
    }

    fn refuse(&self, option: &str, output: &Path) -> Result<()> {
        let (name, at) = (self.name, output.display());
        let refused = |why: String| Err(Error::option(why));
        if identity(output).is_some_and(|there| self.parts.contains(&there)) {
            return refused(format!("{name} is an input, so {option} cannot write {at}; choose another name"));
        }
        if self.is_around(output) {
            let what = self.kind.map_or_else(|| "a folder of sources".to_owned(), |kind| kind.to_string());
            return refused(format!(
                "{name} is {what} and an input, so {option} cannot write {at} into it; choose another folder"
            ));
        }
        if self.lies_in(output) {
            return refused(format!(
                "{name} is an input inside {at}, so {option} cannot replace that folder; choose another folder"
            ));
        }
        Ok(())
    }

    /// Returns whether a file at `output` would be directly in an input folder, or anywhere below a store or an
    /// index.
    fn is_around(&self, output: &Path) -> bool {
        let depth = if self.kind.is_some() { usize::MAX } else { 1 };
        // If the output is a link, both its own folder and its target's folder count.
        let target = output.canonicalize().ok();
        let folders = [target.as_deref().map(Target::parent_of), Some(Target::parent_of(output))].into_iter().flatten();
        let folders = folders.filter_map(|folder| folder.canonicalize().ok());
        folders.into_iter().any(|folder| {
            folder.ancestors().take(depth).filter_map(identity).any(|folder| self.folders.contains(&folder))
        })
    }

    /// Returns whether `output` is a folder that contains one of the files, so that replacing it would remove an
    /// input.
    fn lies_in(&self, output: &Path) -> bool {
        let Ok(folder) = output.canonicalize() else { return false };
        self.files.iter().filter_map(|file| file.canonicalize().ok()).any(|file| file.starts_with(&folder))
    }
}

/// Returns the results of a join with their destinations.
///
/// # Errors
/// If an option applies to another kind of result.
pub(crate) fn output(arguments: &JoinOutput) -> Result<Output<'static>> {
    let JoinOutput { result, kept, keep_rule, .. } = arguments;
    if *keep_rule != KeepRule::default() && !matches!(result, ResultKind::Removed | ResultKind::Kept) {
        return Err(Error::option("--keep-rule can be used only with --result removed or kept; leave it out"));
    }
    if kept.is_some() && *result != ResultKind::Removed {
        return Err(Error::option(
            "--kept names a second file, next to --result removed; add that, or use --result kept with -o",
        ));
    }
    match targets(arguments) {
        [_, (option, Some(Target::Standard { .. }))] => {
            Err(Error::option(format!("{option} writes to a file, not to standard output; name one")))
        }
        [(_, removed), (_, Some(kept))] => Ok(Output::Keep { rule: *keep_rule, removed, kept: Some(kept) }),
        [(_, file), _] => Ok(result.output(file, *keep_rule)),
    }
}

/// Returns the file next to which a join keeps its checkpoints: the file of its result. The join refuses standard output.
pub(crate) fn checkpoint(arguments: &JoinOutput, output: &Output<'_>) -> Option<Target> {
    let standard = Target::Standard { outlives_reader: false };
    arguments.resume.then(|| output.target().cloned().unwrap_or(standard))
}

/// Returns the destinations of a join's results, each with the option that names it.
pub(crate) fn targets(arguments: &JoinOutput) -> [(&'static str, Option<Target>); 2] {
    let JoinOutput { file, kept, statistics, tracing, replace, .. } = arguments;
    // With other results, the run must complete even if the reader of the pairs exits.
    let outlives_reader = kept.is_some() || statistics.stats.is_some() || tracing.trace.is_some();
    let target = |file: &Option<String>| file.as_deref().map(|file| target(file, replace.force, outlives_reader));
    [("-o", target(file)), ("--kept", target(kept))]
}

/// Returns the destination of a result. If `outlives_reader`, the run continues when the reader of standard output
/// exits, since it has other results.
pub(crate) fn target(output: &str, force: bool, outlives_reader: bool) -> Target {
    match output {
        "-" => Target::Standard { outlives_reader },
        path => Target::File { path: PathBuf::from(path), force },
    }
}

/// Returns the options of a build that keeps no columns.
pub(crate) fn build_options(store: &StoreOptions, metric: Metric) -> BuildOptions {
    BuildOptions {
        metric,
        seed: store.seed.seed,
        buckets: store.buckets,
        on_bad: store.bad_rows.on_bad,
        on_duplicate_id: store.on_duplicate_id,
        ..BuildOptions::default()
    }
}

/// Describes a recall in one line.
pub(crate) fn recall_in_words(recall: &RecallStatistics) -> String {
    let of = if recall.of_pairs_only { "all pairs" } else { "each" };
    let requested = format!("at least {} requested", percent(recall.target));
    let known = recall.sample_vectors_with_neighbors.zip(recall.pair).zip(recall.per_vector);
    let Some(((vectors, pair), per_vector)) = known else {
        return format!("100 % (exact); {requested}");
    };
    let estimated = |Interval { estimate, low, high }: Interval, of: &str| {
        format!("{} of {of} (between {} and {})", percent(estimate), percent(low), percent(high))
    };
    let pairs = estimated(pair, "all pairs");
    let vector = match recall.per_right_vector {
        None => estimated(per_vector, "the pairs of a vector on average"),
        Some(right) => {
            let left = estimated(per_vector, "the pairs of a left vector on average");
            format!("{left}, {}", estimated(right, "those of a right one"))
        }
    };
    format!("{pairs}, {vector}, measured with {}; {requested} of {of}", format_count(vectors, "sampled vector"))
}
