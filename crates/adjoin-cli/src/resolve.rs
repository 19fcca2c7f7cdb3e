//! Flags as decided.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::{FileSystem, current_resident_bytes};
use adjoin::error::{Error, Result};
use adjoin::join::Aim;
use adjoin::kernels::Kernel;
use adjoin::output::{Target, parent};
use adjoin::plan::{Order, Policy, Rule};
use adjoin::predicate::Predicate;
use adjoin::report::RecallStatistics;
use adjoin::sink::KeepRule;
use adjoin::source::{self, SourceOptions, VectorSource};
use adjoin::store::{BuildOptions, Centers, OnBad, OnDuplicateId};

use crate::args::{Columns, Join, Resources, StoreOptions, Threshold, Wanted};
use crate::progress::Terminal;
use crate::signals::Stopped;

/// A context for this process, whatever it holds already.
pub(crate) fn own_context() -> Context {
    Context::default().in_process_of(current_resident_bytes())
}

pub(crate) fn context(resources: &Resources, stopped: &Stopped) -> Result<Context> {
    let mut context = own_context().with_resources(&resources.memory, resources.threads)?;
    context.cancel = stopped.cancel.clone();
    if let Some(name) = &resources.kernel {
        context.kernel = kernel(name)?;
    }
    if !resources.quiet {
        context.progress = Arc::new(Terminal::new());
    }
    context.device = Arc::new(device(resources.device.as_deref(), &context)?);
    Ok(context)
}

fn device(name: Option<&str>, context: &Context) -> Result<FileSystem> {
    match name {
        Some("pread") => Ok(FileSystem::pread()),
        Some(_) => FileSystem::io_uring().map_err(|error| {
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

fn kernel(name: &str) -> Result<Kernel> {
    Kernel::named(name).ok_or_else(|| {
        let there: Vec<&str> = Kernel::available().iter().map(Kernel::name).collect();
        Error::option(format!("this processor has no kernel {name}; it has {}", there.join(", ")))
    })
}

pub(crate) fn predicate(threshold: &Threshold) -> Result<Predicate> {
    match (threshold.eps, threshold.min_similarity) {
        (Some(eps), None) => Predicate::l2(eps),
        (None, Some(similarity)) => Predicate::cosine(similarity),
        _ => Err(Error::option("give a threshold: either --eps or --min-similarity")),
    }
}

/// The recall to promise: that of every pair where `--exact` is given, 0.95 where nothing is.
pub(crate) fn aim(wanted: &Wanted) -> Result<Aim> {
    match wanted.recall {
        _ if wanted.exact => Ok(Aim::Every),
        None => Ok(Aim::Unsaid),
        Some(recall) => Aim::recall(recall),
    }
}

/// Opens what is named as one set of vectors; one without rows is refused.
pub(crate) fn source(context: &Context, names: &[String], columns: &Columns) -> Result<Arc<dyn VectorSource>> {
    let options = SourceOptions { vector_column: columns.vector_column.clone(), id_column: columns.id_column.clone() };
    let source = source::open(context, names, &options)?;
    if source.info().rows == 0 {
        return Err(Error::input(format!("{} has no rows; name a source that has some", names.join(", "))));
    }
    Ok(source)
}

/// Refuses a result that would replace what it is made from.
pub(crate) fn check_not_read(sources: &[String], path: &Path) -> Result<()> {
    match sources.iter().find(|source| is_same(Path::new(source), path)) {
        Some(source) => Err(Error::option(format!("{source} is read and cannot be the result; choose another name"))),
        None => Ok(()),
    }
}

/// Whether two names are those of one file, there or yet to come.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| match path.canonicalize() {
        Ok(place) => Some(place),
        Err(_) => Some(parent(path).canonicalize().ok()?.join(path.file_name()?)),
    };
    one == other || place(one).is_some_and(|place_of_one| place(other) == Some(place_of_one))
}

/// What a join is to give, and where that goes.
pub(crate) struct Output {
    pub(crate) what: What,
    pub(crate) target: Option<Target>,
    /// Rows that stay.
    pub(crate) kept: Option<Target>,
}

/// What a join is to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Pairs,
    Counts,
    Clusters,
    Keep(KeepRule),
}

impl Output {
    /// Where most of it goes.
    pub(crate) fn place(&self) -> Option<&Target> {
        self.target.as_ref().or(self.kept.as_ref())
    }
}

pub(crate) fn output(arguments: &Join) -> Result<Output> {
    let what = match arguments.what.as_str() {
        "counts" => What::Counts,
        "clusters" => What::Clusters,
        "keep" => What::Keep(arguments.keep_rule.parse()?),
        _ => What::Pairs,
    };
    let target = |output: &String| target(output, arguments.force);
    let (target, kept) = (arguments.output.as_ref().map(target), arguments.kept.as_ref().map(target));
    let is_keep = matches!(what, What::Keep(_));
    let meant_for_keep = [("--kept", kept.is_some()), ("--keep-rule", arguments.keep_rule != "greedy")];
    if let Some((option, _)) = meant_for_keep.iter().find(|(_, given)| *given && !is_keep) {
        return Err(Error::option(format!("{option} has a meaning only with --output keep; leave it out")));
    }
    if kept == Some(Target::Standard) {
        return Err(Error::option("--kept writes to a file, not to standard output; name one"));
    }
    Ok(Output { what, target, kept })
}

pub(crate) fn target(output: &str, force: bool) -> Target {
    match output {
        "-" => Target::Standard,
        path => Target::File { path: PathBuf::from(path), force },
    }
}

/// Strategies by name; what is not named stays the default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Strategy {
    pub(crate) rule: Option<Rule>,
    pub(crate) threshold: Option<f64>,
    pub(crate) order: Option<Order>,
    pub(crate) policy: Policy,
    pub(crate) centers: Centers,
}

/// Strategies as named in `text`; those that mean something to the command have one of `keys`.
pub(crate) fn strategy(text: Option<&str>, keys: &[&str]) -> Result<Strategy> {
    let mut strategy =
        Strategy { rule: None, threshold: None, order: None, policy: Policy::Belady, centers: Centers::Trained };
    for named in text.into_iter().flat_map(|text| text.split(',')) {
        if let Some((key @ ("rule" | "threshold" | "order" | "cache" | "centers"), _)) = named.split_once('=')
            && !keys.contains(&key)
        {
            return Err(Error::option(format!(
                "--strategy {named} has no meaning here, only {}=; leave it out",
                keys.join("= and ")
            )));
        }
        match named.split_once('=') {
            Some(("rule", rule)) => strategy.rule = Some(rule.parse()?),
            Some(("threshold", number)) => {
                let finite = number.parse().ok().filter(|threshold: &f64| threshold.is_finite());
                let refused = || Error::option(format!("--strategy {named}: a threshold is a number"));
                strategy.threshold = Some(finite.ok_or_else(refused)?);
            }
            Some(("order", order)) => strategy.order = Some(order.parse()?),
            Some(("cache", policy)) => strategy.policy = policy.parse()?,
            Some(("centers", "trained")) => strategy.centers = Centers::Trained,
            Some(("centers", "random")) => strategy.centers = Centers::Random,
            _ => {
                let rules: Vec<String> = Rule::ALL.iter().map(|rule| format!("rule={}", rule.name())).collect();
                return Err(Error::option(format!(
                    "no such strategy: {named}; there are {}, threshold=, order=, cache=, centers=trained and centers=random",
                    rules.join(", ")
                )));
            }
        }
    }
    Ok(strategy)
}

pub(crate) fn build_options(
    store: &StoreOptions,
    metric: adjoin::options::Metric,
    centers: Centers,
    force: bool,
) -> Result<BuildOptions> {
    if store.buckets == Some(0) {
        return Err(Error::option("--buckets 0 holds no vector; give at least 1"));
    }
    Ok(BuildOptions {
        metric,
        seed: store.seed,
        buckets: store.buckets,
        centers,
        on_bad: if store.on_bad == "skip" { OnBad::Skip } else { OnBad::Error },
        on_duplicate_id: if store.on_duplicate_id == "keep" { OnDuplicateId::Keep } else { OnDuplicateId::Error },
        force,
    })
}

/// What is known of a recall, in a line.
pub(crate) fn recall_in_words(recall: &RecallStatistics) -> String {
    let (pair, vector, target) = (recall.pair, recall.per_vector, recall.target);
    let Some(vectors) = recall.sample_vectors_with_neighbours else {
        return format!("1 by proof, {target} was asked");
    };
    format!(
        "{:.4} of all pairs ({:.4} to {:.4}), {:.4} of the average vector's ({:.4} to {:.4}), by {vectors} other \
         sampled vectors; at least {target} was asked",
        pair.estimate, pair.low, pair.high, vector.estimate, vector.low, vector.high
    )
}
