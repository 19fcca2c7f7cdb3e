//! A join as a user requests it, with the names of vectors, a threshold, and a result. The command line and the
//! Python package both run joins through this module.

mod checkpoint;
mod columns;
mod conditions;
mod nearest;
mod output;
mod parts;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::base::checkpoint::damaged;
use crate::base::context::Context;
use crate::base::error::{ErrorKind, Result};
use crate::base::message::{Argument, Mention};
use crate::base::mutex::lock;
use crate::base::options::VectorType;
use crate::base::output::Target;
use crate::base::report::{CommonStatistics, JoinStatistics, Stopwatch};
use crate::join::{JoinEffort, JoinOptions, JoinSide, PairFilter, RowFilter, Sets, UnopenedSet, memory_bound};
use crate::load::check_comparable;
use crate::sink::Removals;
use crate::source::{self, IdChoice, IdKind, SourceOptions, VectorSource};
use crate::sql::{Condition, PairCondition};
use crate::store::{
    BuildOptions, BuildReport, OnBad, OnDuplicateId, Store, TemporaryStore, check_new_ids, check_same_kind,
    has_manifest, read_manifest,
};

use checkpoint::JoinCheckpoint;

use self::sources::context_of_later;
pub use conditions::Conditions;
pub use nearest::NearestJob;
pub use output::{Output, ResultKind};
pub use parts::{PartOptions, PartPlan};
pub use sources::open_source;

/// A join, from the names of its vectors to its statistics.
pub struct Job<'a> {
    /// A store, or sources from which one is built for this job.
    pub inputs: &'a [String],
    /// A second set, as a store or sources, to join with the first. If empty, the rows of the first set are joined with
    /// each other.
    pub with: &'a [String],
    /// New rows, as a store or sources, to join with the rows of the first set and with each other. May be empty.
    pub new: &'a [String],
    /// Options for reading sources.
    pub source: SourceOptions,
    /// Options for building a store from sources. The predicate determines the metric of the store.
    pub build: BuildOptions,
    /// Filters on rows and pairs.
    pub conditions: Conditions,
    /// Columns that the lines of the result carry: of both rows for pairs and removed rows, and of the row for clusters.
    /// A store must keep these columns. If a store is built for the job, it keeps them.
    pub columns: &'a [String],
    /// Options of the join.
    pub join: JoinOptions,
    /// The result to produce.
    pub output: Output<'a>,
    /// Whether to run the join even if the disk seems to have too little space for the result.
    pub yes: bool,
    /// File next to which checkpoints are written, usually the file of the result. The run continues from the checkpoints
    /// of an earlier run. `None` to write none.
    pub resume: Option<Target>,
}

/// The vectors of a job. A store that was built for the job is removed when this is dropped.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Filter on the rows, if any.
    filter: Option<RowFilter>,
    /// Report of the build, if there was one.
    built: Option<BuildReport>,
    _temporary: Option<TemporaryStore>,
}

/// The sets of a job: one set, two sets, or a set and new rows.
pub struct OpenedSets {
    first: Opened,
    second: Option<Opened>,
    /// Whether the second set has new rows for the first.
    is_grown: bool,
    /// Filter on pairs, if any.
    pairs: Option<PairFilter>,
    /// Checkpoints, until the join has run.
    kept: Mutex<Option<JoinCheckpoint>>,
}

/// A named set: a store, or sources to build one from.
enum Named {
    Store(Box<Store>),
    Source(Arc<dyn VectorSource>),
}

impl Named {
    fn open(
        context: &Context,
        inputs: &[String],
        source: &SourceOptions,
        only_for_builds: Option<Mention>,
    ) -> Result<Self> {
        Ok(match Store::sole_input(context, inputs, only_for_builds)? {
            Some(folder) => Self::Store(Box::new(Store::open(&Job::context_of_store(context, folder, true)?, folder)?)),
            None => Self::Source(open_source(context, inputs, source)?),
        })
    }

    /// Converts sources of floats to sources of bytes, if all of their floats are integers that fit into a byte.
    fn narrowed(context: &Context, first: Self, second: Option<Self>) -> Result<(Self, Option<Self>)> {
        Ok(match (first, second) {
            (Self::Source(first), None) => {
                let [first] = source::narrowed(context, [first])?;
                (Self::Source(first), None)
            }
            (Self::Source(first), Some(Self::Source(second))) => {
                let [first, second] = source::narrowed(context, [first, second])?;
                (Self::Source(first), Some(Self::Source(second)))
            }
            others => others,
        })
    }

    /// Returns the properties of the set on which the memory of a join depends.
    fn unopened(&self, build: &BuildOptions) -> UnopenedSet {
        match self {
            Self::Store(store) => UnopenedSet::of_store(store.manifest()),
            Self::Source(source) => UnopenedSet::of_source(&**source, build),
        }
    }

    /// Returns the type of the vectors.
    fn vectors(&self) -> VectorType {
        match self {
            Self::Store(store) => store.manifest().vectors,
            Self::Source(source) => source.info().vectors,
        }
    }

    /// Returns the kind of the ids.
    fn ids(&self) -> IdKind {
        match self {
            Self::Store(store) => store.manifest().ids,
            Self::Source(source) => source.info().ids,
        }
    }
}

impl Opened {
    /// Opens a store, or builds one from sources in the folder for temporary files.
    ///
    /// # Errors
    /// Fails if an input cannot be read or is unsuitable, or if it is a store and an option is given that applies only
    /// to builds.
    pub fn new(
        context: &Context,
        inputs: &[String],
        source: &SourceOptions,
        build: &BuildOptions,
        only_for_builds: Option<Mention>,
        bytes_of: &dyn Fn(&dyn VectorSource) -> u64,
    ) -> Result<Self> {
        let named = Named::open(&context_of_later(context, inputs, bytes_of), inputs, source, only_for_builds)?;
        let later = if let Named::Source(source) = &named { bytes_of(&**source) } else { 0 };
        Self::of(&context.naming_more(later), named, build, None)
    }

    /// Opens a set. In a run with checkpoints, `kept` is the path of the store that is built from sources. If the
    /// store exists there already, it is opened.
    fn of(context: &Context, named: Named, build: &BuildOptions, kept: Option<PathBuf>) -> Result<Self> {
        let (store, built, _temporary) = match (named, kept) {
            (Named::Store(store), _) => (*store, None, None),
            (Named::Source(source), Some(at)) => {
                // A store appears only when it is complete. So if it exists, an earlier run has finished it.
                let built = has_manifest(context, &at)?;
                let report = if built { None } else { Some(Store::build(context, &*source, &at, build)?) };
                // A store of an earlier run that cannot be opened is reported as a damaged checkpoint, whose remedy
                // is to start again.
                let store = Store::open(context, &at).map_err(|error| match error.kind() {
                    ErrorKind::Device | ErrorKind::Corrupt if built => damaged(&at, &error.to_string()),
                    _ => error,
                })?;
                (store, report, None)
            }
            (Named::Source(source), None) => {
                let (temporary, report) = TemporaryStore::build(context, &*source, build)?;
                (Store::open(context, temporary.folder())?, Some(report), Some(temporary))
            }
        };
        Ok(Self { store, filter: None, built, _temporary })
    }

    /// Restricts the set to the rows that pass a filter, if one is given.
    fn among(self, context: &Context, condition: Option<&Condition>) -> Result<Self> {
        let filter = condition.map(|condition| RowFilter::new(context, &self.store, condition)).transpose()?;
        Ok(Self { filter, ..self })
    }

    /// Returns the rows to join.
    fn side(&self) -> JoinSide<'_> {
        JoinSide::new(&self.store, self.filter.as_ref())
    }

    /// Adds the time and the temporary files of the build to statistics, if a store was built.
    fn add_build(&self, common: &mut CommonStatistics) {
        if let Some(built) = &self.built {
            *common.seconds.build.get_or_insert(0.0) += built.seconds.total;
            common.seconds.total += built.seconds.total;
            *common.io.spill_bytes.get_or_insert(0) += built.spill_bytes;
        }
    }
}

impl OpenedSets {
    /// Returns the sets to join.
    pub fn sets(&self) -> Sets<'_> {
        let sets = match &self.second {
            Some(second) if self.is_grown => Sets::grown(self.first.side(), second.side()),
            Some(second) => Sets::between(self.first.side(), second.side()),
            None => self.first.side().into(),
        };
        sets.with_pairs(self.pairs.as_ref())
    }

    /// Restricts the join to the pairs that pass a filter, if one is given.
    fn among_pairs(self, context: &Context, condition: Option<&PairCondition>) -> Result<Self> {
        let pairs = condition.map(|condition| self.sets().pairs_that_meet(context, condition.clone())).transpose()?;
        Ok(Self { pairs, ..self })
    }
}

impl<'a> Job<'a> {
    /// Creates a job that joins the rows of a store or of sources with each other. It counts the pairs and discards
    /// them.
    pub fn new(inputs: &'a [String], join: JoinOptions) -> Self {
        Self {
            inputs,
            with: &[],
            new: &[],
            source: SourceOptions::default(),
            build: BuildOptions::default(),
            conditions: Conditions::default(),
            columns: &[],
            join,
            output: Output::Pairs(None),
            yes: false,
            resume: None,
        }
    }

    /// Opens the stores, or builds them from sources in the folder for temporary files.
    ///
    /// # Errors
    /// Fails if
    /// - an input cannot be read or is unsuitable, or two sets cannot be compared,
    /// - - all inputs are stores but an option applies only to builds, or
    /// - a filter does not match the sets.
    pub fn open(&self, context: &Context) -> Result<OpenedSets> {
        let is_grown = !self.new.is_empty();
        let beside = if is_grown { self.new } else { self.with };
        // New rows and old rows form one set, with the same filter.
        let are_two_sets = !beside.is_empty() && !is_grown;
        self.conditions.check(are_two_sets)?;
        self.output.check_columns(self.columns)?;
        let build = BuildOptions { metric: self.join.predicate.metric(), ..self.build.clone() };
        let open = |inputs: &[String]| {
            let later = |rows: &dyn VectorSource| self.bound(&[UnopenedSet::of_source(rows, &build)]);
            Named::open(&context_of_later(context, inputs, &later), inputs, &self.source, None)
        };
        let first = open(self.inputs)?;
        let second = (!beside.is_empty()).then(|| open(beside)).transpose()?;
        let builds = [Some(&first), second.as_ref()].into_iter().flatten().any(|of| matches!(of, Named::Source(_)));
        // If nothing is built, an option that applies only to builds would have no effect, so it is refused.
        if !builds {
            Store::sole_input(context, self.inputs, self.source.only_for_builds(&build))?;
        }
        if let Some(second) = &second {
            let [named, other_named] = [self.inputs, beside].map(|names| names.join(", "));
            check_comparable(&named, first.vectors(), &other_named, second.vectors())?;
            if is_grown {
                check_same_kind(first.ids(), second.ids())?;
            }
        }
        let Conditions { rows, other_rows, pairs } = &self.conditions;
        let named: Vec<&Named> = [Some(&first), second.as_ref()].into_iter().flatten().collect();
        let sets: Vec<UnopenedSet> = named.iter().map(|named| named.unopened(&build)).collect();
        let context = &context.naming_more(self.bound(&sets).max(self.columns_bound(context, &named)?));
        let mut kept = self.resume.as_ref().map(|at| JoinCheckpoint::open(context, self, at, &named)).transpose()?;
        let watch = Stopwatch::start();
        let (first, second) = Named::narrowed(context, first, second)?;
        let narrowing_seconds = watch.seconds();
        let mut opened = |(set, names): (usize, &[String]), named, condition: &Option<Condition>| {
            let mut attributes = self.conditions.columns(set, are_two_sets);
            if let Named::Source(_) = named {
                self.conditions.check_source(set, &attributes)?;
            }
            let carried = self.columns.iter().filter(|name| !attributes.contains(name));
            attributes.extend(carried.cloned().collect::<Vec<_>>());
            let at = kept.as_ref().map(|kept| kept.store(set));
            let build = BuildOptions { attributes, resume: at.as_ref().map(|_| self.source.clone()), ..build.clone() };
            let opened = Opened::of(context, named, &build, at);
            let opened = opened.map_err(|error| match &mut kept {
                Some(kept) => kept.explain(error),
                None => error,
            })?;
            opened.among(context, condition.as_ref()).map_err(|error| match error.kind() {
                // The message names the set, since the two sets may have different columns.
                ErrorKind::Option => error.after(&format!("{}: ", names.join(", "))),
                _ => error,
            })
        };
        let mut first = opened((0, self.inputs), first, rows)?;
        if let Some(built) = &mut first.built {
            built.seconds.total += narrowing_seconds;
        }
        let (set, condition) = if is_grown { (0, rows) } else { (1, other_rows) };
        let second = second.map(|second| opened((set, beside), second, condition)).transpose()?;
        // New rows must not repeat ids of the old ones, unless duplicate ids are kept.
        if let Some(second) = second.as_ref().filter(|_| is_grown && build.on_duplicate_id == OnDuplicateId::Error) {
            check_new_ids(context, &first.store, &second.store, &beside.join(", "), builds)?;
        }
        let opened = OpenedSets { first, second, is_grown, pairs: None, kept: Mutex::new(kept) };
        opened.among_pairs(context, pairs.as_ref())
    }

    /// Returns an upper bound on the memory for joining the sets and for the result. Earlier steps name it if they
    /// refuse a budget.
    fn bound(&self, sets: &[UnopenedSet]) -> u64 {
        let (first, others) = sets.split_first().expect("a join has at least one set");
        let all = others.iter().fold(*first, |all, set| UnopenedSet {
            rows: all.rows + set.rows,
            buckets: all.buckets + set.buckets,
            id_bytes: all.id_bytes.max(set.id_bytes),
            ..all
        });
        all.join_bytes(self.output.wants_ids(), self.join.aim.target()) + self.output.bound(all.rows)
    }

    /// Joins the opened sets. The statistics include the build, if there was one.
    ///
    /// # Errors
    /// Fails as [`JoinOptions::prepare`] does, if the sink fails, or if the disk has too little space for the result.
    pub fn run(&self, context: &Context, opened: &OpenedSets) -> Result<JoinStatistics> {
        let sets = opened.sets();
        let rows = sets.sides().map(JoinSide::rows).sum();
        let bound = memory_bound(sets, &self.join, self.output.wants_ids())? + self.output.bound(rows);
        let context = &context.naming_more(bound);
        // The checkpoints are taken, since the run removes them at its end.
        let kept = lock(&opened.kept).take();
        let mut statistics = match kept {
            Some(kept) => kept.run(context, self, opened),
            None if !self.columns.is_empty() && self.output.target().is_some() => {
                self.run_with_columns(context, opened)
            }
            None => self.run_at_once(context, opened),
        }?;
        statistics.common.memory = context.memory();
        let all = std::iter::once(&opened.first).chain(&opened.second);
        all.for_each(|opened| opened.add_build(&mut statistics.common));
        Ok(statistics)
    }

    fn run_at_once(&self, context: &Context, opened: &OpenedSets) -> Result<JoinStatistics> {
        let Self { join: options, output, .. } = self;
        let sets = opened.sets();
        // A sink for rows reserves its memory first; the join is planned with the rest.
        let sink = output.sink_of_rows(context, sets, options)?;
        let prepared = options.prepare(context, sets, output.wants_ids())?;
        output.announce(context, sets, prepared.predicted_results(), self.yes)?;
        let sink = sink.map_or_else(|| output.sink_of_pairs(context, sets, &[]), Ok)?;
        prepared.run(context, sets, sink)
    }
}

/// Returns an upper bound on the memory for finding the rows of a source that are near other rows.
pub(crate) fn removals_bytes(source: &dyn VectorSource, build: &BuildOptions, join: &JoinOptions) -> u64 {
    let joining = UnopenedSet::of_source(source, build).join_bytes(false, join.aim.target());
    joining + Output::Removals(Removals::new(None)).bound(source.info().rows)
}

impl Job<'_> {
    /// Returns a context whose refusals name at least the memory that a join of the store in a folder needs at the
    /// default recall, as far as the manifest determines it.
    ///
    /// # Errors
    /// Fails if the manifest cannot be read.
    pub fn context_of_store(context: &Context, folder: &Path, with_ids: bool) -> Result<Context> {
        let manifest = read_manifest(context, folder)?;
        Ok(context.naming_at_least(UnopenedSet::of_store(&manifest).join_bytes(with_ids, JoinEffort::Unsaid.target())))
    }
}

impl SourceOptions {
    /// Returns an option that applies only to builds, if one was given.
    pub fn only_for_builds(&self, build: &BuildOptions) -> Option<Mention> {
        let of = |argument, given: bool| given.then_some(Mention { argument, value: None });
        let given = [
            only_for_files(self),
            of(Argument::Columns, !build.attributes.is_empty()),
            of(Argument::Buckets, build.buckets.is_some()),
            (build.on_bad == OnBad::Skip).then(|| Argument::OnBad.with("skip")),
            (build.on_duplicate_id == OnDuplicateId::Keep).then(|| Argument::OnDuplicateId.with("keep")),
        ];
        given.into_iter().flatten().next()
    }
}

/// Returns an option that applies only to reading files, if one was given.
fn only_for_files(source: &SourceOptions) -> Option<Mention> {
    let SourceOptions { vector_column, ids, split } = source;
    let given = [
        (Argument::VectorColumn, vector_column.is_some()),
        (Argument::IdColumn, matches!(ids, IdChoice::Column(_))),
        (Argument::NoIds, *ids == IdChoice::RowNumbers),
        (Argument::Split, split.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(argument, _)| Mention { argument, value: None })
}
