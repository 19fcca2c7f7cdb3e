//! The nearest neighbours of each row, as a user asks for them.

use super::{Opened, only_for_builds};
use crate::context::Context;
use crate::error::Result;
use crate::message::Argument;
use crate::options::Metric;
use crate::report::NearestStatistics;
use crate::search::{NearestOptions, nearest};
use crate::sink::HitSink;
use crate::source::SourceOptions;
use crate::store::BuildOptions;

/// A search for the neighbours of each row, from the names of the vectors to its statistics.
pub struct NearestJob<'a> {
    /// A store, or sources of which one is built for this job.
    pub inputs: &'a [String],
    /// What is read of sources.
    pub source: SourceOptions,
    /// How a store is built of them.
    pub build: BuildOptions,
    /// The metric of that store, where one was named.
    pub metric: Option<Metric>,
    /// Which neighbours are wanted.
    pub nearest: NearestOptions,
}

impl NearestJob<'_> {
    /// Opens the store, or builds one of sources where temporary files go.
    ///
    /// # Errors
    /// As [`Opened::new`].
    pub fn open(&self, context: &Context) -> Result<Opened> {
        let Self { inputs, source, build, metric, .. } = self;
        let of_builds = metric.map(|metric| Argument::Metric.with(metric)).or_else(|| only_for_builds(source, build));
        Opened::new(context, inputs, (source, build), of_builds)
    }

    /// Finds the neighbours of each row of what was opened. What a build took and wrote on the way is part of the statistics.
    ///
    /// # Errors
    /// As [`nearest`].
    pub fn run(&self, context: &Context, opened: &Opened, sink: Box<dyn HitSink + '_>) -> Result<NearestStatistics> {
        let mut statistics = nearest(context, &opened.store, &self.nearest, sink)?;
        opened.add_build(&mut statistics.common);
        Ok(statistics)
    }
}
