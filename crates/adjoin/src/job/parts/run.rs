//! Runs one part of a join.

use std::path::Path;

use super::{PART, PartEnd, PartPlan};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::part_files::create_part_folder;
use crate::base::report::{JoinStatistics, Written};
use crate::join::{JoinOptions, Sets, least_memory, resume_within, run};
use crate::sink::PartSink;
use crate::store::Store;

impl PartPlan {
    /// Runs a part, and writes its result into a folder, which is created if it is missing. If a complete result
    /// exists already, returns `None`, unless `force` is true.
    ///
    /// # Errors
    /// Fails if the plan is for another store, the folder has the part of another plan, memory does not suffice, or a
    /// disk fails.
    pub fn run_part(
        &self,
        context: &Context,
        store: &Store,
        number: u32,
        folder: &Path,
        force: bool,
    ) -> Result<Option<JoinStatistics>> {
        let sets = Sets::from(store);
        let part = &self.head.parts[number as usize - 1];
        create_part_folder(context, folder)?;
        if !force && self.files().is_done(context, folder, || self.open_part(context, folder, number))? {
            return Ok(None);
        }
        let mut file = self.files().create(context, folder, number, PART, &self.part_head(number))?;
        let plan = self.head.plan.clone().with_tasks(self.tasks(context, number)?).without_costs();
        let least = least_memory(sets, &JoinOptions::exact(plan.predicate()))?;
        let mut sink = PartSink::create(context, sets, self.head.content, &context.temporary(Some(folder)), least)?;
        let prepared = resume_within(context, sets, plan, Some(part.cache_bytes))?;
        let done = run(context, sets, &prepared, &mut sink)?;
        let mut statistics = prepared.statistics(context, sets, &done, Written::default());
        drop(prepared); // frees its memory before the records are written
        statistics.write(|| {
            let spill_bytes = sink.write(&mut |frame| file.append(frame))?;
            let end = PartEnd { frames: file.frames(), done: done.reproducible() };
            file.append(&serde_json::to_vec(&end).expect("counts have no map"))?;
            Ok(Written { bytes: file.finish()?, spill_bytes, ..Written::default() })
        })?;
        let common = &mut statistics.common;
        (common.command, common.memory) = ("run-part", context.memory());
        common.recall = None; // the pairs of a row are known only after all parts
        if let Some(predicted) = &mut common.predicted {
            predicted.verified_pairs = None; // the prediction is for all parts together
            predicted.seconds = Some(self.head.facts[number as usize - 1].seconds);
        }
        Ok(Some(statistics))
    }
}
