//! Merges the results of all parts of a join.

use std::path::Path;

use super::{PartEnd, PartPlan};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::WriterLock;
use crate::base::report::{JoinStatistics, Stopwatch, Written};
use crate::job::Output;
use crate::join::{Done, JoinOptions, Prepared, Sets, least_memory, resume_within};
use crate::sink::{KeepRule, PairSink, PairSorter, PartContent, PartRecords};
use crate::source::IdKind;
use crate::store::Store;

/// Memory of a decoded frame of a part.
const FRAME_BYTES: u64 = 2 << 20;

impl PartPlan {
    /// Merges the results of all parts in a folder. The result equals the result of a join on one machine. Pairs are
    /// in the order of their rows.
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
    ) -> Result<JoinStatistics> {
        self.check_content(output)?;
        let lock = WriterLock::take_for(&context.device, folder, "merged")?;
        let files = self.files();
        files.check_all(folder, 1..=files.parts, |number| self.open_part(context, folder, number))?;
        let sets = Sets::from(store);
        let merged = Merge { plan: self, context, sets, folder, watch: Stopwatch::start() }.run(output);
        lock.release()?;
        merged
    }

    /// Refuses a result that cannot be computed from the records of the parts.
    fn check_content(&self, output: &Output<'_>) -> Result<()> {
        let is_possible = match (output, self.head.content) {
            (_, PartContent::Pairs) => true,
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
        let _frame = context.reserve(FRAME_BYTES, "merging parts")?;
        let sink = output.rows(context, sets, predicate, least_memory(sets, &JoinOptions::exact(predicate))?, &[])?;
        let path = output.target().and_then(crate::base::output::Target::path);
        let at = context.temporary(path.map(crate::base::output::Target::parent_of));
        let mut sorter = match &sink {
            Some(_) => None,
            None => Some(PairSorter::new(context, &at, self.ids())?),
        };
        let prepared = resume_within(context, sets, plan.head.plan.clone(), None)?;
        let mut sink = sink.map_or_else(|| output.sink_of_pairs(context, sets, &[]), Ok)?;
        let mut done = Done::default();
        context.progress.begin("merge", "parts", plan.head.parts.len() as u64);
        for number in 1..=plan.head.parts.len() as u32 {
            done += self.pass_part(number, &prepared, &mut |records| match (&mut sorter, &records) {
                (Some(sorter), PartRecords::Pairs(batch)) => sorter.push(batch),
                _ => records.pass_to(&mut *sink),
            })?;
            done += plan.head.parts[number as usize - 1].whole.clone();
            context.progress.advance(number.into());
        }
        let spilled = sorter.map_or(Ok(0), |sorter| pass_sorted(context, sorter, &mut *sink))?;
        self.finish(&prepared, done, sink, spilled)
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

    fn finish(
        &self,
        prepared: &Prepared,
        done: Done,
        sink: Box<dyn PairSink + '_>,
        spilled: u64,
    ) -> Result<JoinStatistics> {
        let Self { context, sets, .. } = *self;
        let done = done.took(self.watch.seconds());
        let mut statistics = prepared.statistics(context, sets, &done, Written::default());
        statistics.write(|| sink.finish())?;
        let common = &mut statistics.common;
        (common.command, common.memory) = ("merge", context.memory());
        // The reads of the store are in the statistics of the parts, which may have run on other machines.
        let io = &mut common.io;
        (io.bytes_read, io.bytes_requested, io.read_amplification) = (None, None, None);
        (io.passes, io.reads, io.direct) = (None, None, None);
        *io.spill_bytes.get_or_insert(0) += spilled;
        Ok(statistics)
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
