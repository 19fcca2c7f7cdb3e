//! Merges the results of all parts of a join.

use std::path::Path;

use super::{PartEnd, PartPlan};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::WriterLock;
use crate::base::report::{JoinStatistics, Stopwatch, Written};
use crate::job::Output;
use crate::job::columns::Carrying;
use crate::join::{Done, JoinOptions, Prepared, Sets, least_memory, resume_within};
use crate::sink::{KeepRule, PairSink, PairSorter, PartContent, PartRecords, SpilledPairs};
use crate::source::IdKind;
use crate::store::Store;

/// Memory of a decoded frame of a part.
const FRAME_BYTES: u64 = 2 << 20;
/// Purpose of the memory, in error messages.
const PURPOSE: &str = "merging parts";

impl PartPlan {
    /// Merges the results of all parts in a folder. The result equals the result of a join on one machine. Pairs are
    /// in the order of their rows. Pairs and removed rows carry `columns`, which the store must keep.
    ///
    /// # Errors
    /// Fails if a part is missing, damaged or of another plan, the result cannot be computed from the records of the
    /// parts, memory does not suffice, another process merges the folder, or a disk fails. No result appears then.
    pub fn merge(
        &self,
        context: &Context,
        store: &Store,
        folder: &Path,
        output: &Output<'_>,
        columns: &[String],
    ) -> Result<JoinStatistics> {
        self.check_content(output, columns)?;
        let lock = WriterLock::take_for(&context.device, folder, "merged")?;
        let files = self.files();
        files.check_all(folder, 1..=files.parts, |number| self.open_part(context, folder, number))?;
        let sets = Sets::from(store);
        let merge = Merge { plan: self, context, sets, folder, watch: Stopwatch::start() };
        let merged = if columns.is_empty() { merge.run(output) } else { merge.run_with_columns(output, columns) };
        lock.release()?;
        let mut statistics = merged?;
        statistics.common.memory = context.memory(); // after the result was written
        Ok(statistics)
    }

    /// Refuses a result that cannot be computed from the records of the parts.
    fn check_content(&self, output: &Output<'_>, columns: &[String]) -> Result<()> {
        output.check_columns(columns)?;
        let is_possible = match (output, self.head.content) {
            (_, PartContent::Pairs) => true,
            // Columns are added to pairs, from which removed rows are then chosen.
            _ if !columns.is_empty() => false,
            (Output::Pairs(_) | Output::Sink(_), _) => false,
            (Output::Clusters(_) | Output::Keep { rule: KeepRule::Cluster, .. }, PartContent::Forest) => true,
            (Output::Counts(_), PartContent::Counts) => true,
            (_, content) => content == PartContent::Rows,
        };
        if is_possible {
            return Ok(());
        }
        let (at, planned) = (self.path.display(), &self.head.result);
        Err(Error::option(format!(
            "{at} was planned for the result {planned}, whose parts have too few records for this result; ask for {planned}, \
             or plan for pairs, which suffice for every result"
        )))
    }
}

struct Merge<'a> {
    plan: &'a PartPlan,
    context: &'a Context,
    sets: Sets<'a>,
    folder: &'a Path,
    watch: Stopwatch,
}

impl Merge<'_> {
    fn run(&self, output: &Output<'_>) -> Result<JoinStatistics> {
        let Self { plan, context, sets, .. } = *self;
        let predicate = plan.head.plan.predicate();
        let _frame = context.reserve(FRAME_BYTES, PURPOSE)?;
        let sink = output.rows(context, sets, predicate, least_memory(sets, &JoinOptions::exact(predicate))?, &[])?;
        let sorter = if sink.is_some() { None } else { Some(self.sorter(output)?) };
        let prepared = resume_within(context, sets, plan.head.plan.clone(), None)?;
        let mut sink = sink.map_or_else(|| output.sink_of_pairs(context, sets, &[]), Ok)?;
        let mut statistics = self.gather(&prepared, sorter, &mut *sink)?;
        statistics.write(|| sink.finish())?;
        Ok(statistics)
    }

    /// Merges to a result that carries columns. Pairs are first written to a temporary file, so that the columns are
    /// read when the memory of the merge is free.
    fn run_with_columns(&self, output: &Output<'_>, columns: &[String]) -> Result<JoinStatistics> {
        let Self { plan, context, sets, .. } = *self;
        let carrying = Carrying { output, columns };
        let context = &carrying.check(context, sets)?;
        let mut pairs = SpilledPairs::create(context, &output.temporary(context), self.ids())?;
        let statistics = {
            let _frame = context.reserve(FRAME_BYTES, PURPOSE)?;
            let sorter = self.sorter(output)?;
            let prepared = resume_within(context, sets, plan.head.plan.clone(), None)?;
            self.gather(&prepared, Some(sorter), &mut pairs)?
        };
        carrying.write_spilled(context, sets, plan.head.plan.predicate(), statistics, pairs.read()?)
    }

    fn sorter(&self, output: &Output<'_>) -> Result<PairSorter> {
        PairSorter::new(self.context, &output.temporary(self.context), self.ids())
    }

    /// Passes the records of all parts to the sink, in the order of their rows if there is a sorter.
    fn gather(
        &self,
        prepared: &Prepared,
        mut sorter: Option<PairSorter>,
        sink: &mut dyn PairSink,
    ) -> Result<JoinStatistics> {
        let Self { plan, context, .. } = *self;
        let mut done = Done::default();
        context.progress.begin("merge", "parts", plan.head.parts.len() as u64);
        for number in 1..=plan.head.parts.len() as u32 {
            done += self.pass_part(number, prepared, &mut |records| match (&mut sorter, &records) {
                (Some(sorter), PartRecords::Pairs(batch)) => sorter.push(batch),
                _ => records.pass_to(sink),
            })?;
            done += plan.head.parts[number as usize - 1].whole.clone();
            context.progress.advance(number.into());
        }
        let spilled = sorter.map_or(Ok(0), |sorter| pass_sorted(context, sorter, sink))?;
        Ok(self.statistics(prepared, done, spilled))
    }

    fn ids(&self) -> [IdKind; 2] {
        [self.sets.left(), self.sets.right()].map(|store| store.manifest().ids)
    }

    /// Passes the records of a part to the sink. Returns the counts of the part.
    fn pass_part(
        &self,
        number: u32,
        prepared: &Prepared,
        pass: &mut dyn FnMut(PartRecords) -> Result<()>,
    ) -> Result<Done> {
        let Self { plan, context, sets, folder, .. } = *self;
        let rows = sets.stores().map(|store| store.manifest().source_rows).sum();
        let mut reader = plan.open_part(context, folder, number)?.ok_or_else(|| {
            Error::input(format!(
                "{} was removed during the merge; run that part again",
                plan.files().path(folder, number).display()
            ))
        })?;
        let mut frames = 1; // the head
        // The last frame has the counts, so a frame is passed on only after the next one has been read.
        let mut last = reader.next()?.map(<[u8]>::to_vec);
        while let Some(frame) = reader.next()?.map(<[u8]>::to_vec) {
            context.cancel.check()?;
            let records = last.replace(frame);
            let records = records.and_then(|records| plan.head.content.decode(&records, self.ids(), rows));
            let Some(records) = records else { return Err(reader.damaged()) };
            pass(records)?;
            frames += 1;
        }
        let end = last.and_then(|last| serde_json::from_slice::<PartEnd>(&last).ok());
        let end = end.filter(|end| end.frames == frames && end.done.is_of(prepared));
        end.map(|end| end.done.reproducible()).ok_or_else(|| reader.damaged())
    }

    fn statistics(&self, prepared: &Prepared, done: Done, spilled: u64) -> JoinStatistics {
        let Self { context, sets, .. } = *self;
        let done = done.took(self.watch.seconds());
        let mut statistics = prepared.statistics(context, sets, &done, Written::default());
        statistics.common.command = "merge";
        // The reads of the store are in the statistics of the parts, which may have run on other machines.
        let io = &mut statistics.common.io;
        (io.bytes_read, io.bytes_requested, io.read_amplification) = (None, None, None);
        (io.passes, io.reads, io.direct) = (None, None, None);
        *io.spill_bytes.get_or_insert(0) += spilled;
        statistics
    }
}

/// Passes pairs to the sink in the order of their rows. Returns the bytes of temporary files.
fn pass_sorted(context: &Context, sorter: PairSorter, sink: &mut dyn PairSink) -> Result<u64> {
    let mut pairs = sorter.finish()?;
    while let Some(batch) = pairs.next()? {
        context.cancel.check()?;
        sink.accept(&batch)?;
    }
    Ok(pairs.spilled())
}
