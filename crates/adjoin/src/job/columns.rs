//! A join whose result carries columns of its rows. The pairs are first written to a temporary file, so that the
//! columns can be read after the join, when its memory is free. A join with checkpoints has its pairs on disk already.

use super::{Job, Named, OpenedSets, Output};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::message::Argument;
use crate::base::output::Target;
use crate::base::predicate::Predicate;
use crate::base::report::{JoinStatistics, Written};
use crate::join::{Sets, run};
use crate::sink::{CarriedColumns, PairBatch, PairWriter, SpilledPairReader, SpilledPairs, TableFormat};
use crate::source::Attributes;
use crate::store::{BuildOptions, ColumnNeeds, kept_needs};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "the columns of the result";

impl Job<'_> {
    /// Returns an upper bound on the memory for the columns of the sets, before stores are built from sources.
    ///
    /// # Errors
    /// Fails if a set does not have a column.
    pub(super) fn columns_bound(&self, context: &Context, sets: &[&Named]) -> Result<u64> {
        if self.columns.is_empty() {
            return Ok(0);
        }
        let needs = sets.iter().map(|named| match named {
            Named::Store(store) => store.result_columns(self.columns)?.expect("there is a name").needs(),
            Named::Source(source) => {
                let columns = Attributes::of(context, &**source, self.columns, &Argument::Columns.into())?;
                Ok(kept_needs(columns.schema(), columns.row_bytes_max()))
            }
        });
        let needs = needs.collect::<Result<Vec<ColumnNeeds>>>()?;
        let rows = |named: &&Named| named.unopened(&BuildOptions::default()).rows;
        Ok(self.carrying().memory_bytes(&needs, sets.iter().map(rows).sum()))
    }

    /// Joins the opened sets, and writes a result that carries columns.
    ///
    /// # Errors
    /// Fails as [`Job::run`] does.
    pub(super) fn run_with_columns(&self, context: &Context, opened: &OpenedSets) -> Result<JoinStatistics> {
        let (sets, carrying) = (opened.sets(), self.carrying());
        let context = &carrying.check(context, sets)?;
        let (statistics, pairs) = self.spill(context, sets)?;
        carrying.write_spilled(context, sets, self.join.predicate, statistics, pairs)
    }

    pub(super) fn carrying(&self) -> Carrying<'_> {
        Carrying { output: &self.output, columns: self.columns }
    }

    /// Joins the opened sets, and writes the pairs to a temporary file.
    fn spill(&self, context: &Context, sets: Sets<'_>) -> Result<(JoinStatistics, SpilledPairReader)> {
        let mut pairs = SpilledPairs::create(context, &self.output.temporary(context), self.output.ids_of_pairs(sets))?;
        let prepared = self.join.prepare(context, sets, self.output.wants_ids())?;
        self.output.announce(context, sets, prepared.predicted_results(), self.yes)?;
        let done = run(context, sets, &prepared, &mut pairs)?;
        Ok((prepared.statistics(context, sets, &done, Written::default()), pairs.read()?))
    }
}

/// A result that carries columns of its rows.
#[derive(Clone, Copy)]
pub(super) struct Carrying<'a> {
    pub(super) output: &'a Output<'a>,
    pub(super) columns: &'a [String],
}

impl Carrying<'_> {
    /// Returns the memory for writing the result of sets of `rows` rows.
    fn memory_bytes(&self, needs: &[ColumnNeeds], rows: u64) -> u64 {
        let written = PairWriter::memory_bytes(true) + self.output.bound(rows);
        Sets::columns_bytes(rows) + CarriedColumns::least_bytes(needs) + SpilledPairs::memory_bytes() + written
    }

    /// Checks the name of the result, and the memory for writing it. The result is created only after all pairs have
    /// been found, which may take hours. Returns a context whose errors name a budget for all of it.
    ///
    /// # Errors
    /// Fails if the result cannot be created, a set does not have a column, or memory does not suffice.
    pub(super) fn check(&self, context: &Context, sets: Sets<'_>) -> Result<Context> {
        if let Some(Target::File { path, force }) = self.output.target() {
            TableFormat::of(path)?;
            Target::check_free(&*context.device, path, *force)?;
        }
        let rows = sets.stores().map(|store| store.manifest().source_rows).sum();
        let needs = self.output.numbered(sets).column_needs(self.columns)?;
        let bytes = self.memory_bytes(&needs, rows);
        let context = context.naming_more(bytes);
        drop(context.reserve(bytes, PURPOSE)?);
        Ok(context)
    }

    /// Writes the result from pairs in a temporary file, as [`Self::write`] does.
    ///
    /// # Errors
    /// The errors of [`Self::write`].
    pub(super) fn write_spilled(
        &self,
        context: &Context,
        sets: Sets<'_>,
        predicate: Predicate,
        statistics: JoinStatistics,
        mut pairs: SpilledPairReader,
    ) -> Result<JoinStatistics> {
        let mut statistics = self.write(context, sets, predicate, statistics, || pairs.next())?;
        *statistics.common.io.spill_bytes.get_or_insert(0) += pairs.bytes();
        Ok(statistics)
    }

    /// Writes the result from the pairs that `next` returns, and completes the statistics of the join.
    ///
    /// # Errors
    /// Fails if the result cannot be written, or a disk fails.
    pub(super) fn write(
        &self,
        context: &Context,
        sets: Sets<'_>,
        predicate: Predicate,
        mut statistics: JoinStatistics,
        mut next: impl FnMut() -> Result<Option<PairBatch>>,
    ) -> Result<JoinStatistics> {
        let _writing = context.reserve(PairWriter::memory_bytes(true), PURPOSE)?;
        let mut sink = self.output.sink(context, sets, predicate, self.columns)?;
        context.progress.begin("columns", "pairs", statistics.join.pairs);
        let mut done = 0;
        while let Some(batch) = next()? {
            context.cancel.check()?;
            sink.accept(&batch)?;
            done += batch.len() as u64;
            context.progress.advance(done);
        }
        statistics.write(|| sink.finish())?;
        Ok(statistics)
    }
}
