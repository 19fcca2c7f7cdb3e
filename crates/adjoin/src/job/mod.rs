//! A join as a user asks for it: here are my vectors and a threshold, that is what I want to have. The command line and
//! Python both come here.

mod conditions;
mod kept;
mod nearest;
mod output;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::context::Context;
use crate::error::{ErrorKind, Result};
use crate::join::{Aim, JoinOptions, PairFilter, RowFilter, Sets, Side, UnopenedSet, join, prepare};
use crate::kept::damaged;
use crate::load::check_comparable;
use crate::message::{Argument, Mention};
use crate::options::VectorType;
use crate::report::{CommonStatistics, JoinStatistics};
use crate::source::{IdChoice, IdKind, SourceOptions, VectorSource};
use crate::sql::{Condition, PairCondition};
use crate::store::{
    self, BuildOptions, BuildReport, OnBad, OnDuplicateId, Store, TemporaryStore, check_new_ids, check_same_kind,
    has_manifest, read_manifest, sole_store,
};
use crate::workers::lock;

use kept::KeptJoin;

pub use conditions::Conditions;
pub use nearest::NearestJob;
pub use output::{Output, schema_of};
pub use sources::open_source;

/// A join, from the names of its vectors to its statistics.
pub struct Job<'a> {
    /// A store, or sources of which one is built for this job.
    pub inputs: &'a [String],
    /// The same of another set whose rows those of the first are joined with; nothing where they are joined with each other.
    pub with: &'a [String],
    /// The same of rows that come to those of the first: these are joined with each other and with those; nothing where none do.
    pub new: &'a [String],
    /// What is read of sources.
    pub source: SourceOptions,
    /// How a store is built of them; its metric is that of the predicate.
    pub build: BuildOptions,
    /// Which rows take part.
    pub conditions: Conditions,
    /// Which pairs are wanted.
    pub join: JoinOptions,
    /// What is made of them.
    pub output: Output<'a>,
    /// Whether a result is tried for which the disk seems to have no room.
    pub yes: bool,
    /// Whether what was done is kept beside the result, for a second try, which goes on with that.
    pub resume: bool,
}

/// The vectors of a job. A store that was built for it is removed with this.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// The rows that take part, where not all do.
    filter: Option<RowFilter>,
    /// What the build took, where there was one.
    built: Option<BuildReport>,
    _temporary: Option<TemporaryStore>,
}

/// What a job joins: one set, or two, or one to which rows come.
pub struct OpenedSets {
    first: Opened,
    second: Option<Opened>,
    /// Whether the second has rows that come to the first.
    is_grown: bool,
    /// Which pairs count, where not all do.
    pairs: Option<PairFilter>,
    /// What is kept for a second try, until the join has run.
    kept: Mutex<Option<KeptJoin>>,
}

/// What is named as a set: a store, or sources of which one is to be built.
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
        Ok(match sole_store(context, inputs, only_for_builds)? {
            Some(folder) => Self::Store(Box::new(Store::open(&context_of_join(context, folder, true)?, folder)?)),
            None => Self::Source(open_source(context, inputs, source)?),
        })
    }

    /// Returns what the memory of a join depends on.
    fn unopened(&self, build: &BuildOptions) -> UnopenedSet {
        match self {
            Self::Store(store) => UnopenedSet::of_store(store.manifest()),
            Self::Source(source) => UnopenedSet::of_source(source.info(), build),
        }
    }

    /// The type of the vectors.
    fn vectors(&self) -> VectorType {
        match self {
            Self::Store(store) => store.manifest().vectors,
            Self::Source(source) => source.info().vectors,
        }
    }

    /// The kind of the ids.
    fn ids(&self) -> IdKind {
        match self {
            Self::Store(store) => store.manifest().ids,
            Self::Source(source) => source.info().ids,
        }
    }
}

impl Opened {
    /// Opens a store, or builds one of sources where temporary files go.
    ///
    /// # Errors
    /// Where an input cannot be read or is not what it must be, or it is a store and an option is given that only a build
    /// heeds.
    pub fn new(
        context: &Context,
        inputs: &[String],
        (source, build): (&SourceOptions, &BuildOptions),
        only_for_builds: Option<Mention>,
    ) -> Result<Self> {
        Self::of(context, Named::open(context, inputs, source, only_for_builds)?, build, None)
    }

    /// The same, where a store of sources is built at `kept`, if it is not there yet, for a run that may be ended.
    fn of(context: &Context, named: Named, build: &BuildOptions, kept: Option<PathBuf>) -> Result<Self> {
        let (store, built, _temporary) = match (named, kept) {
            (Named::Store(store), _) => (*store, None, None),
            (Named::Source(source), Some(at)) => {
                let built = has_manifest(context, &at)?;
                let report = if built { None } else { Some(store::build(context, &*source, &at, build)?) };
                // Else a next run would find the same, though it was told to begin anew.
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

    /// The same, of which the rows take part that meet a condition, where there is one.
    fn among(self, context: &Context, condition: Option<&Condition>) -> Result<Self> {
        let filter = condition.map(|condition| RowFilter::new(context, &self.store, condition)).transpose()?;
        Ok(Self { filter, ..self })
    }

    /// The rows that take part.
    fn side(&self) -> Side<'_> {
        Side::new(&self.store, self.filter.as_ref())
    }

    /// Adds what the build took, where there was one.
    fn add_build(&self, common: &mut CommonStatistics) {
        if let Some(built) = &self.built {
            *common.seconds.build.get_or_insert(0.0) += built.seconds.total;
            common.seconds.total += built.seconds.total;
            *common.io.spill_bytes.get_or_insert(0) += built.spill_bytes;
        }
    }
}

impl OpenedSets {
    /// What is joined.
    pub fn sets(&self) -> Sets<'_> {
        let sets = match &self.second {
            Some(second) if self.is_grown => Sets::grown(self.first.side(), second.side()),
            Some(second) => Sets::between(self.first.side(), second.side()),
            None => self.first.side().into(),
        };
        sets.with_pairs(self.pairs.as_ref())
    }

    /// The same of which only the pairs count that meet a condition, where there is one.
    fn among_pairs(self, context: &Context, condition: Option<&PairCondition>) -> Result<Self> {
        let pairs = condition.map(|condition| self.sets().pairs_that_meet(context, condition.clone())).transpose()?;
        Ok(Self { pairs, ..self })
    }
}

impl Job<'_> {
    /// Opens the stores, or builds them of sources where temporary files go.
    ///
    /// # Errors
    /// Where an input cannot be read or is not what it must be, two sets cannot be compared, or nothing is to be built and an
    /// option is given that only a build heeds; where a condition is not of the rows that there are.
    pub fn open(&self, context: &Context) -> Result<OpenedSets> {
        let is_grown = !self.new.is_empty();
        let beside = if is_grown { self.new } else { self.with };
        // A set that has grown is one set, whose rows are all under the same conditions.
        let are_two_sets = !beside.is_empty() && !is_grown;
        self.conditions.check(are_two_sets)?;
        let build = BuildOptions { metric: self.join.predicate.metric(), ..self.build.clone() };
        let open = |inputs| Named::open(context, inputs, &self.source, None);
        let first = open(self.inputs)?;
        let second = (!beside.is_empty()).then(|| open(beside)).transpose()?;
        let builds = [Some(&first), second.as_ref()].into_iter().flatten().any(|of| matches!(of, Named::Source(_)));
        if !builds {
            sole_store(context, self.inputs, only_for_builds(&self.source, &build))?;
        }
        if let Some(second) = &second {
            let [named, other_named] = [self.inputs, beside].map(|names| names.join(", "));
            check_comparable((&named, first.vectors()), (&other_named, second.vectors()))?;
            if is_grown {
                check_same_kind(first.ids(), second.ids())?;
            }
        }
        let Conditions { rows, other_rows, pairs } = &self.conditions;
        let named: Vec<&Named> = [Some(&first), second.as_ref()].into_iter().flatten().collect();
        let context = &context.naming_at_least(self.bound(&named, &build));
        let mut kept = self.resume.then(|| KeptJoin::open(context, self, &named)).transpose()?;
        let mut opened = |(set, names): (usize, &[String]), named, condition: &Option<Condition>| {
            let attributes = self.conditions.columns(set, are_two_sets);
            if let Named::Source(_) = named {
                self.conditions.check_source(set, &attributes)?;
            }
            let at = kept.as_ref().map(|kept| kept.store(set));
            let build = BuildOptions { attributes, resume: at.as_ref().map(|_| self.source.clone()), ..build.clone() };
            let opened = Opened::of(context, named, &build, at);
            let opened = opened.map_err(|error| match &mut kept {
                Some(kept) => kept.explain(error),
                None => error,
            })?;
            opened.among(context, condition.as_ref()).map_err(|error| match error.kind() {
                ErrorKind::Option => error.after(&format!("{}: ", names.join(", "))),
                _ => error,
            })
        };
        let first = opened((0, self.inputs), first, rows)?;
        let (set, condition) = if is_grown { (0, rows) } else { (1, other_rows) };
        let second = second.map(|second| opened((set, beside), second, condition)).transpose()?;
        if let Some(second) = second.as_ref().filter(|_| is_grown && build.on_duplicate_id == OnDuplicateId::Error) {
            check_new_ids(context, &first.store, (&beside.join(", "), &second.store), builds)?;
        }
        let opened = OpenedSets { first, second, is_grown, pairs: None, kept: Mutex::new(kept) };
        opened.among_pairs(context, pairs.as_ref())
    }

    /// Returns a bound on what the join of these sets and its result need, which refusals before it name.
    fn bound(&self, named: &[&Named], build: &BuildOptions) -> u64 {
        let mut sets = named.iter().map(|named| named.unopened(build));
        let first = sets.next().expect("there is a set");
        let all = sets.fold(first, |all, set| UnopenedSet {
            rows: all.rows + set.rows,
            buckets: all.buckets + set.buckets,
            id_bytes: all.id_bytes.max(set.id_bytes),
            ..all
        });
        all.join_bytes(self.output.wants_ids(), self.join.aim.target()) + self.output.bound(all.rows)
    }

    /// Joins what was opened. What a build took and wrote on the way is part of the statistics.
    ///
    /// # Errors
    /// As [`prepare`] and [`run`], or where the result would be larger than the disk has room for.
    pub fn run(&self, context: &Context, opened: &OpenedSets) -> Result<JoinStatistics> {
        let kept = lock(&opened.kept).take();
        let mut statistics = match kept {
            Some(kept) => kept.run(context, self, opened),
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
        // A sink for rows takes its memory first; the join is planned with what it leaves.
        let sink = output.sink_of_rows(context, sets, options)?;
        let prepared = prepare(context, sets, options, output.wants_ids())?;
        output.announce(context, sets, prepared.predicted_results(), self.yes)?;
        let sink = sink.map_or_else(|| output.sink_of_pairs(context, sets), Ok)?;
        join(context, sets, &prepared, sink)
    }
}

/// Returns a context whose refusals name what a join with the default recall of the store in a folder needs, as far as its
/// manifest says it.
///
/// # Errors
/// If the manifest cannot be read.
pub fn context_of_join(context: &Context, folder: &Path, with_ids: bool) -> Result<Context> {
    let manifest = read_manifest(context, folder)?;
    Ok(context.naming_at_least(UnopenedSet::of_store(&manifest).join_bytes(with_ids, Aim::Unsaid.target())))
}

/// An option that only a build heeds, where one was given.
pub fn only_for_builds(source: &SourceOptions, build: &BuildOptions) -> Option<Mention> {
    let of = |argument, given: bool| given.then_some(Mention { argument, value: None });
    let given = [
        only_for_files(source),
        of(Argument::Attributes, !build.attributes.is_empty()),
        of(Argument::Buckets, build.buckets.is_some()),
        (build.on_bad == OnBad::Skip).then(|| Argument::OnBad.with("skip")),
        (build.on_duplicate_id == OnDuplicateId::Keep).then(|| Argument::OnDuplicateId.with("keep")),
        build.centers.map(|centers| Argument::Centers.with(centers.name())),
    ];
    given.into_iter().flatten().next()
}

/// An option that is heeded only while files are read, where one was given.
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
