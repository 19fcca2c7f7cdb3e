//! Finds rows whose vectors are near each other, by a join.

use std::sync::Arc;

use super::{COMMAND, Found, RowOrder, SORTING_SHARE, Tables};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::{Metric, VectorType};
use crate::base::report::{CommonStatistics, JoinCounts, JoinStatistics};
use crate::base::row_numbers::RowSet;
use crate::job::{Conditions, Job, Output, removals_bytes};
use crate::join::JoinOptions;
use crate::sink::{Removals, RemovedRows};
use crate::source::{self, IdChoice, SourceFile, SourceOptions, VectorSource};
use crate::store::{BuildOptions, NoUsableRow, OnBad};

/// An open source of vectors, and how they are joined.
pub(super) struct NearVectors<'a> {
    inputs: &'a [String],
    /// Options without ids. The join uses row numbers, since two rows may have one id.
    options: SourceOptions,
    build: &'a BuildOptions,
    join: &'a JoinOptions,
    source: Arc<dyn VectorSource>,
}

impl<'a> NearVectors<'a> {
    pub(super) fn open(
        context: &Context,
        inputs: &'a [String],
        options: &SourceOptions,
        build: &'a BuildOptions,
        join: &'a JoinOptions,
    ) -> Result<Self> {
        let options = SourceOptions { ids: IdChoice::RowNumbers, ..options.clone() };
        let source = source::open_nonempty(context, inputs, &options)?;
        Ok(Self { inputs, options, build, join, source })
    }

    pub(super) fn files(&self) -> Vec<SourceFile> {
        self.source.files()
    }

    pub(super) fn rows(&self) -> u64 {
        self.source.info().rows
    }

    pub(super) fn metric(&self) -> Metric {
        self.join.predicate.metric()
    }

    /// Returns an upper bound on the memory of the join.
    pub(super) fn least_bytes(&self) -> u64 {
        removals_bytes(&*self.source, self.build, self.join)
    }

    /// Determines which rows to remove. The rows in `left_out` are not compared.
    pub(super) fn find(self, tables: &Tables<'_>, left_out: Option<Arc<RowSet>>, order: RowOrder) -> Result<Found> {
        let Self { inputs, options, build, join, source } = self;
        let vectors = source.info().vectors;
        // The source is dropped to free its memory for the join, which opens the files again.
        drop(source);
        let context = tables.context;
        let removals = Removals::new(order.places).never_removing(order.never_removed);
        let left_out_rows = left_out.as_deref().map_or(0, RowSet::len);
        let leaves_out = left_out.is_some();
        let job = Job {
            conditions: Conditions::default(),
            columns: &[],
            inputs,
            with: &[],
            new: &[],
            source: options,
            build: BuildOptions { left_out, ..build.clone() },
            join: *join,
            output: Output::Removals(removals.clone()),
            yes: false,
            resume: None,
        };
        let mut found = match job.open(context) {
            // If no row remains to be compared, there are no near-duplicates.
            Err(error) if is_for_want_of_rows(&error) && (build.on_bad == OnBad::Skip || leaves_out) => {
                nothing_near(tables, vectors, build, join)?
            }
            opened => {
                let JoinStatistics { common, join, .. } = job.run(context, &opened?)?;
                let removed = removals.take().ok_or_else(|| Error::input("the join ended without a decision"))?;
                Found { common, join, text: None, removed }
            }
        };
        // The join counts the rows that were left out as skipped, but they are not rows without vectors.
        found.common.skipped_rows -= left_out_rows;
        Ok(found)
    }
}

/// Returns the result of a join that removes no rows, for the case that no row has a vector to compare.
fn nothing_near(tables: &Tables<'_>, vectors: VectorType, build: &BuildOptions, join: &JoinOptions) -> Result<Found> {
    let (sorter, memory) = tables.sorter(SORTING_SHARE)?;
    let removed = RemovedRows { gone: RowSet::new(tables.rows), pairs: sorter.finish()?, _memory: memory };
    let (eps, min_similarity) = join.predicate.thresholds();
    let common = CommonStatistics {
        dimensions: vectors.dimensions,
        element: vectors.element.to_string(),
        metric: join.predicate.metric().to_string(),
        seed: build.seed,
        skipped_rows: tables.rows,
        ..tables.context.statistics(COMMAND)
    };
    let join = JoinCounts { eps, min_similarity, ..JoinCounts::default() };
    Ok(Found { common, join, text: None, removed })
}

/// Returns whether a build failed because no usable row was left.
fn is_for_want_of_rows(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<NoUsableRow>())
}
