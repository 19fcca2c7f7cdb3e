//! A join as a user asks for it: here are my vectors and a threshold, that is what I want to have. The command line and
//! Python both come here.

mod output;
mod sources;

use crate::context::Context;
use crate::error::Result;
use crate::join::{JoinOptions, join, prepare};
use crate::message::{Argument, Mention};
use crate::report::JoinStatistics;
use crate::source::{IdChoice, SourceOptions};
use crate::store::{BuildOptions, BuildReport, OnBad, OnDuplicateId, Store, TemporaryStore, sole_store};

pub use output::Output;
pub use sources::open_source;

/// A join, from the names of its vectors to its statistics.
pub struct Job<'a> {
    /// A store, or sources of which one is built for this job.
    pub inputs: &'a [String],
    /// What is read of sources.
    pub source: SourceOptions,
    /// How a store is built of them; its metric is that of the predicate.
    pub build: BuildOptions,
    /// Which pairs are wanted.
    pub join: JoinOptions,
    /// What is made of them.
    pub output: Output<'a>,
    /// Whether a result is tried for which the disk seems to have no room.
    pub yes: bool,
}

/// The vectors of a job. A store that was built for it is removed with this.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What the build took, where there was one.
    built: Option<BuildReport>,
    _temporary: Option<TemporaryStore>,
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
        if let Some(folder) = sole_store(context, inputs, only_for_builds)? {
            return Ok(Self { store: Store::open(context, folder)?, built: None, _temporary: None });
        }
        let source = open_source(context, inputs, source)?;
        let (temporary, report) = TemporaryStore::build(context, &*source, build)?;
        let store = Store::open(context, temporary.folder())?;
        Ok(Self { store, built: Some(report), _temporary: Some(temporary) })
    }
}

impl Job<'_> {
    /// Opens the store, or builds one of sources where temporary files go.
    ///
    /// # Errors
    /// As [`Opened::new`].
    pub fn open(&self, context: &Context) -> Result<Opened> {
        let build = BuildOptions { metric: self.join.predicate.metric(), ..self.build.clone() };
        Opened::new(context, self.inputs, (&self.source, &build), only_for_builds(&self.source, &build))
    }

    /// Joins what was opened. What a build took and wrote on the way is part of the statistics.
    ///
    /// # Errors
    /// As [`prepare`] and [`join`], or where the result would be larger than the disk has room for.
    pub fn run(&self, context: &Context, opened: &Opened) -> Result<JoinStatistics> {
        let Self { join: options, output, .. } = self;
        let store = &opened.store;
        // A sink for rows takes its memory first; the join is planned with what it leaves.
        let of_rows = output.sink_of_rows(context, store, options)?;
        let prepared = prepare(context, store, options, output.wants_ids())?;
        output.announce(context, store, prepared.predicted_results(), self.yes)?;
        let sink = match of_rows {
            Some(sink) => sink,
            None => output.sink_of_pairs(context, store)?,
        };
        let mut statistics = join(context, store, &prepared, sink)?;
        if let Some(built) = &opened.built {
            let common = &mut statistics.common;
            common.seconds.build = Some(built.seconds.total);
            common.seconds.total += built.seconds.total;
            *common.io.spill_bytes.get_or_insert(0) += built.spill_bytes;
        }
        Ok(statistics)
    }
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
