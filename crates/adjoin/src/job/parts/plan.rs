//! Plans a join in parts.

use std::path::{Path, PathBuf};

use adjoin_device::Location;

use xxhash_rust::xxh3::Xxh3;

use super::timed::Timed;
use super::{
    PARTS_MAX, PLAN, PartFacts, PartOptions, PartPlan, PlanCounts, PlanHead, PlanStatistics, TASK_BYTES, TASKS_A_FRAME,
    content_of,
};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::report::JoinStatistics;
use crate::base::sealed::SealedWriter;
use crate::join::{DividedTasks, PlannedPart, Sets, least_memory};
use crate::plan::Task;
use crate::sink::PartContent;
use crate::store::{Store, read_manifest};

/// Divisor: sinks and parts get their memory plus this part of it, so that `divide` finds it free.
const SPARE: u64 = 7;

impl PartPlan {
    /// Plans a join of a store with itself, and writes the plan to a file.
    ///
    /// # Errors
    /// Fails if an option is out of range, planning fails, or the file cannot be written.
    pub fn create(
        context: &Context,
        folder: &Path,
        options: &PartOptions,
        path: &Path,
        force: bool,
    ) -> Result<(Self, PlanStatistics)> {
        let &PartOptions { join, parts, result } = options;
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(Error::option(message![Argument::Parts, format!(" is {parts}; give 1 to {PARTS_MAX}")]));
        }
        // The file is created first, so that an error is reported before any work if it cannot be written.
        let mut file = SealedWriter::create(context, path, force, PLAN)?;
        read_manifest(context, folder)?; // refuses a folder that is no store
        let store = Store::open(context, folder)?;
        let (sets, content) = (Sets::from(&store), content_of(result));
        let outside = content.least_bytes(store.manifest().source_rows);
        drop(context.reserve(outside + least_memory(sets, &join)?, "planning, and the result of a part")?);
        let prepared = join.prepare(context, sets, content == PartContent::Pairs)?;
        let divider = prepared.divider();
        let whole = prepared.whole();
        let statistics = prepared.statistics_of_plan(context, sets);
        let plan = prepared.plan(sets);
        drop(prepared); // the timed runs need its memory
        let _tasks = context.reserve((2 * TASK_BYTES * plan.tasks()) as u64, "the plan of this join")?;
        let DividedTasks { tasks, parts: planned } = divider.divide(context, sets, plan.all_tasks(), parts)?;
        let plan = plan.with_tasks(tasks);
        let timed = Timed::measure(context, sets, &plan, content, &planned)?;
        let facts = facts_of(context, &planned, outside, &timed);
        let mut head = PlanHead {
            store: name_for_others(folder),
            result: result.to_string(),
            content,
            tasks: plan.tasks(),
            whole_read_bytes: whole.foreseen_bytes(),
            parts: planned,
            facts,
            plan: plan.part(0..0),
            identity: None,
        };
        head.identity = Some(identity_of(&head, plan.all_tasks()));
        file.append(&serde_json::to_vec(&head).expect("a plan has no map with other keys than text"))?;
        for tasks in plan.all_tasks().chunks(TASKS_A_FRAME) {
            file.append(&encoded(tasks))?;
        }
        file.finish()?;
        let plan = Self::read(context, path)?;
        let statistics = plan.statistics(context, statistics);
        Ok((plan, statistics))
    }

    fn statistics(&self, context: &Context, join: JoinStatistics) -> PlanStatistics {
        let mut common = join.common;
        (common.command, common.memory, common.seconds.execute) = ("plan", context.memory(), None);
        let parts = self.head.facts.clone();
        let most = parts.iter().map(|part| part.comparisons).max().unwrap_or(0) as f64;
        let mean = parts.iter().map(|part| part.comparisons).sum::<u64>() as f64 / parts.len() as f64;
        let plan = PlanCounts {
            read_bytes: parts.iter().map(|part| part.read_bytes).sum(),
            read_bytes_of_one_machine: self.head.whole_read_bytes,
            balance: if mean > 0.0 { most / mean } else { 1.0 },
            parts,
        };
        PlanStatistics { common, plan }
    }
}

/// Encodes tasks as a frame.
fn encoded(tasks: &[Task]) -> Vec<u8> {
    tasks.iter().flat_map(|&(i, j)| (u64::from(j) << 32 | u64::from(i)).to_le_bytes()).collect()
}

/// Returns the checksum of a plan without its measured and predicted times. So a join that is planned twice gets the
/// same checksum, and the parts of one plan can be used with the other.
fn identity_of(head: &PlanHead, tasks: &[Task]) -> String {
    let facts: Vec<PartFacts> = head.facts.iter().map(|&facts| PartFacts { seconds: 0.0, ..facts }).collect();
    let PlanHead { store: _, result, content, plan, tasks: count, whole_read_bytes, parts, .. } = head;
    let contents = (result, content, plan.without_times(), count, whole_read_bytes, parts, facts);
    let mut hash = Xxh3::new();
    hash.update(&serde_json::to_vec(&contents).expect("a plan has no map with other keys than text"));
    tasks.chunks(TASKS_A_FRAME).for_each(|tasks| hash.update(&encoded(tasks)));
    format!("{:016x}", hash.digest())
}

/// Returns a name of a store that is valid in other processes: an absolute path, or the URL of an object store.
fn name_for_others(folder: &Path) -> PathBuf {
    match Location::of(folder) {
        Location::Remote(_) => folder.to_owned(),
        Location::Local(path) => std::path::absolute(&path).unwrap_or_else(|_| path.into_owned()),
    }
}

/// Returns the predictions for all parts. `outside` is the memory for the result of a part. `timed` predicts seconds.
fn facts_of(context: &Context, planned: &[PlannedPart], outside: u64, timed: &Timed) -> Vec<PartFacts> {
    let mut begin = 0;
    let facts = planned.iter().zip(1..).map(|(part, number)| {
        let tasks = std::mem::replace(&mut begin, part.end)..part.end;
        let memory = part.memory_bytes + outside;
        PartFacts {
            part: number,
            tasks: tasks.len() as u64,
            comparisons: part.comparisons,
            buckets: part.buckets,
            read_bytes: part.read_bytes,
            halo_bytes: part.halo_bytes,
            memory_bytes: context.whole_budget(memory + memory / SPARE).min(context.memory_bytes()),
            seconds: timed.seconds(&tasks, part),
        }
    });
    facts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_name_stores_in_buckets_by_url() {
        for (given, name) in [
            ("s3://bucket/vectors.store", "s3://bucket/vectors.store"),
            ("file:///shared/vectors.store", "/shared/vectors.store"),
            ("/shared/vectors.store", "/shared/vectors.store"),
        ] {
            assert_eq!(name_for_others(Path::new(given)), Path::new(name), "{given}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(name_for_others(Path::new("vectors.store")), here.join("vectors.store"));
    }
}
