//! Finds the nearest neighbors of each row, as a user asks for it.

use super::Opened;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::message::Argument;
use crate::base::options::Metric;
use crate::base::report::NearestStatistics;
use crate::buckets::{NearestOptions, nearest};
use crate::join::{JoinEffort, UnopenedSet};
use crate::sink::HitSink;
use crate::source::{SourceOptions, VectorSource};
use crate::store::BuildOptions;

/// A search for the neighbors of each row, from the names of the vectors to its statistics.
pub struct NearestJob<'a> {
    /// A store, or sources from which one is built for this job.
    pub inputs: &'a [String],
    /// Options for reading sources.
    pub source: SourceOptions,
    /// Options for building a store from them.
    pub build: BuildOptions,
    /// Metric of that store, if given.
    pub metric: Option<Metric>,
    /// The neighbors to find.
    pub nearest: NearestOptions,
}

impl NearestJob<'_> {
    /// Opens the store, or builds one from sources in the folder for temporary files.
    ///
    /// # Errors
    /// Fails as [`Opened::new`] does.
    pub fn open(&self, context: &Context) -> Result<Opened> {
        let Self { inputs, source, build, metric, .. } = self;
        let of_builds = metric.map(|metric| Argument::Metric.with(metric)).or_else(|| source.only_for_builds(build));
        let bytes_of = |rows: &dyn VectorSource| {
            let joining = UnopenedSet::of_source(rows, build).join_bytes(true, JoinEffort::Unsaid.target());
            joining.saturating_add(self.nearest.bytes_besides_join(rows.info().rows))
        };
        Opened::new(context, inputs, source, build, of_builds, &bytes_of)
    }

    /// Finds the neighbors of each row of the opened store. The statistics include the build, if there was one.
    ///
    /// # Errors
    /// Fails if an option is out of range, the budget is too small, the store cannot be read, or the sink fails.
    pub fn run(&self, context: &Context, opened: &Opened, sink: Box<dyn HitSink + '_>) -> Result<NearestStatistics> {
        let mut statistics = nearest(context, &opened.store, &self.nearest, sink)?;
        opened.add_build(&mut statistics.common);
        Ok(statistics)
    }
}
