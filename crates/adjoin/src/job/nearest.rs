//! A search for the nearest neighbors of each row, as a user requests it.

use super::Opened;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::message::Argument;
use crate::base::options::Metric;
use crate::base::report::NearestStatistics;
use crate::buckets::{NearestOptions, nearest};
use crate::join::{JoinEffort, UnopenedSet};
use crate::query::SearchEffort;
use crate::sink::{Discard, HitSink, SourceOrder};
use crate::source::{SourceOptions, VectorSource};
use crate::store::BuildOptions;

/// A search for the neighbors of each row, from the names of the vectors to its statistics.
pub struct NearestJob<'a> {
    /// A store, or sources from which one is built for this job.
    pub inputs: &'a [String],
    /// Options for reading sources.
    pub source: SourceOptions,
    /// Options for building a store from sources.
    pub build: BuildOptions,
    /// Metric of the store that is built, if given.
    pub metric: Option<Metric>,
    /// Number of neighbors of each row, without the row itself; at least 1.
    pub k: u64,
    /// Threshold within which neighbors must be, if given: a distance or, under cosine, a similarity.
    pub within: Option<f64>,
    /// How hard the search works.
    pub effort: SearchEffort,
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
            let sorting = SourceOrder::foreseen_bytes();
            joining.saturating_add(sorting + self.options().bytes_besides_join(rows.info().rows))
        };
        Opened::new(context, inputs, source, build, of_builds, &bytes_of)
    }

    /// Finds the neighbors of each row of the opened store, and passes them to `sink` in the order of row numbers. Without
    /// a sink, it only counts them. The statistics include the build, if there was one.
    ///
    /// # Errors
    /// Fails if an option is out of range, the budget is too small, the store cannot be read, or the sink fails.
    pub fn run(
        &self,
        context: &Context,
        opened: &Opened,
        sink: Option<Box<dyn HitSink + '_>>,
    ) -> Result<NearestStatistics> {
        // Buckets are searched in their own order, but users expect that of their rows.
        let sorted = |sink| -> Box<dyn HitSink + '_> { Box::new(SourceOrder::new(context, &opened.store, sink)) };
        let sink = sink.map_or_else(|| Box::new(Discard) as Box<dyn HitSink + '_>, sorted);
        let mut statistics = nearest(context, &opened.store, &self.options(), sink)?;
        opened.add_build(&mut statistics.common);
        Ok(statistics)
    }

    fn options(&self) -> NearestOptions {
        let Self { k, within, effort, ref build, .. } = *self;
        NearestOptions { k, within, effort, seed: build.seed }
    }
}
