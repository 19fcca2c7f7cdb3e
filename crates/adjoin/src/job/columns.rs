//! A join whose result carries columns of its rows. The pairs are first written to a temporary file, so that the
//! columns can be read after the join, when its memory is free.

use super::{Job, Named, OpenedSets};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::output::Target;
use crate::base::report::{JoinStatistics, Written};
use crate::join::{Sets, run};
use crate::sink::{CarriedColumns, PairWriter, SpilledPairReader, SpilledPairs, TableFormat};
use crate::source::Attributes;
use crate::store::{BuildOptions, ColumnNeeds, kept_needs};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "the columns of the result";

impl Job<'_> {
    /// Refuses columns if the lines of the result do not name two rows, and in a run with checkpoints.
    pub(super) fn check_columns(&self) -> Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        if !self.output.names_two_rows() {
            let words = " is for pairs and removed rows, which name two rows each; leave it out";
            return Err(Error::option(message![Argument::Columns, words]));
        }
        if self.resume {
            let words = " cannot continue a run with columns; leave out one of the two";
            return Err(Error::option(message![Argument::Resume, words]));
        }
        Ok(())
    }

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
        Ok(self.carrying_bytes(&needs, sets.iter().map(rows).sum()))
    }

    /// Returns the memory for writing a result with columns, for sets of `rows` rows.
    fn carrying_bytes(&self, needs: &[ColumnNeeds], rows: u64) -> u64 {
        let written = PairWriter::memory_bytes(true) + self.output.bound(rows);
        Sets::columns_bytes(rows) + CarriedColumns::least_bytes(needs) + SpilledPairs::memory_bytes() + written
    }

    /// Joins the opened sets, and writes a result that carries columns.
    ///
    /// # Errors
    /// Fails as [`Job::run`] does.
    pub(super) fn run_with_columns(&self, context: &Context, opened: &OpenedSets) -> Result<JoinStatistics> {
        let sets = opened.sets();
        if let Some(Target::File { path, force }) = self.output.target() {
            // The result is created only after the join, which may take hours, so its name is checked now.
            TableFormat::of(path)?;
            Target::check_free(&*context.device, path, *force)?;
        }
        let rows = sets.stores().map(|store| store.manifest().source_rows).sum();
        let carrying = self.carrying_bytes(&sets.column_needs(self.columns)?, rows);
        let context = &context.naming_more(carrying);
        drop(context.reserve(carrying, PURPOSE)?);
        let (mut statistics, mut pairs) = self.spill(context, sets)?;
        let _writing = context.reserve(PairWriter::memory_bytes(true), PURPOSE)?;
        let mut sink = self.output.sink(context, sets, self.join.predicate, self.columns)?;
        context.progress.begin("columns", "pairs", statistics.join.pairs);
        let mut done = 0;
        while let Some(batch) = pairs.next()? {
            context.cancel.check()?;
            sink.accept(&batch)?;
            done += batch.len() as u64;
            context.progress.advance(done);
        }
        statistics.write(|| sink.finish())?;
        *statistics.common.io.spill_bytes.get_or_insert(0) += pairs.bytes();
        Ok(statistics)
    }

    /// Joins the opened sets, and writes the pairs to a temporary file.
    fn spill(&self, context: &Context, sets: Sets<'_>) -> Result<(JoinStatistics, SpilledPairReader)> {
        let at = context.temporary(self.output.target().and_then(Target::path).map(Target::parent_of));
        let mut pairs = SpilledPairs::create(context, &at, self.output.ids_of_pairs(sets))?;
        let prepared = self.join.prepare(context, sets, self.output.wants_ids())?;
        self.output.announce(context, sets, prepared.predicted_results(), self.yes)?;
        let done = run(context, sets, &prepared, &mut pairs)?;
        Ok((prepared.statistics(context, sets, &done, Written::default()), pairs.read()?))
    }
}
