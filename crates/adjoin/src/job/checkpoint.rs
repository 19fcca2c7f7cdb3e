//! A join with checkpoints. If it is interrupted, the next run continues from the last checkpoint. The checkpoints
//! contain the plan, and the pairs of each finished leg (a range of tasks).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Conditions, Job, Named, OpenedSets};
use crate::base::checkpoint::{Checkpoint, Fact, FrameReader, FrameWriter, KEPT_BYTES};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::format_bytes;
use crate::base::output::Target;
use crate::base::report::{JoinStatistics, ResumeStatistics, Written};
use crate::join::{
    Done, JoinEffort, JoinOptions, JoinPlan, Prepared, SaveCheckpoints, Sets, hand_over, resume_within, run_in_legs,
};
use crate::plan::Task;
use crate::sink::{Discard, PairBatch, PairSink, keep_pairs, kept_bytes_of_a_pair, kept_pairs};
use crate::source::{IdKind, facts_of_files};
use crate::sql::{Condition, PairCondition};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "the checkpoint of the join";
/// Names of the files with the plan and with its tasks.
const PLAN_FILE: &str = "plan";
const TASKS_FILE: &str = "tasks";
/// Tasks per frame.
const TASKS_A_FRAME: usize = 64 << 10;
/// Bytes of a task.
const TASK_BYTES: usize = 8;

/// Progress of a join.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct JoinState {
    /// The stored plan; `None` until it is complete.
    plan: Option<PlanCheckpoint>,
    legs_done: usize,
    done: Done,
    /// Bytes of the file of pairs of each leg.
    pairs: Vec<u64>,
    /// The run that created the plan or finished the last leg.
    run: u64,
    /// Upper bound on the number of pairs that were compared again because a run was interrupted within a leg.
    repeated: u64,
}

/// A plan that is stored in files.
#[derive(Clone, Serialize, Deserialize)]
struct PlanCheckpoint {
    plan_bytes: u64,
    tasks_bytes: u64,
    /// For each leg, the number of tasks up to its end. The last leg ends with the last task.
    legs: Vec<usize>,
    whole: Done,
}

/// The checkpoints of a join.
pub(super) struct JoinCheckpoint(Checkpoint<JoinState>);

impl JoinCheckpoint {
    /// Opens the checkpoints next to `at` that an earlier run of this job left, or starts without any.
    ///
    /// # Errors
    /// Fails if `at` is not a file, changes of a source could go unnoticed, or [`Checkpoint::open`] fails.
    pub(super) fn open(context: &Context, job: &Job<'_>, at: &Target, named: &[&Named]) -> Result<Self> {
        let Target::File { path, force } = at else {
            let words = " keeps checkpoints next to the result, so it needs -o FILE; leave it out otherwise";
            return Err(Error::option(message![Argument::Resume, words]));
        };
        let mut kept = Checkpoint::open(context, path, job.facts(named)?, *force)?;
        if named.iter().any(|named| matches!(named, Named::Source(_))) {
            kept.hold(); // the build of the store in this folder has its own checkpoints
        }
        Ok(Self(kept))
    }

    /// Returns the path for the store of a set, if it is built for the join.
    pub(super) fn store(&self, set: usize) -> PathBuf {
        self.0.path(&format!("store-{set}"))
    }

    pub(super) fn explain(&mut self, error: Error) -> Error {
        self.0.explain(error)
    }

    /// Joins the remaining tasks, and passes all pairs found to the sink. Removes the checkpoints at the end.
    ///
    /// # Errors
    /// Fails as a join does.
    pub(super) fn run(mut self, context: &Context, job: &Job<'_>, opened: &OpenedSets) -> Result<JoinStatistics> {
        let done = self.join(context, job, opened.sets());
        let statistics = done.map_err(|error| self.0.explain(error))?;
        self.0.finish()?;
        Ok(statistics)
    }

    fn join(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<JoinStatistics> {
        let legs_before = self.0.state().legs_done;
        let (mut statistics, legs) = match job.columns {
            [] => self.join_at_once(context, job, sets)?,
            _ => self.join_with_columns(context, job, sets)?,
        };
        *statistics.common.io.spill_bytes.get_or_insert(0) += self.0.state().pairs.iter().sum::<u64>();
        statistics.resume = Some(ResumeStatistics {
            runs: self.0.runs(),
            legs,
            legs_done_before: legs_before as u64,
            verified_pairs_repeated_max: self.0.state().repeated,
        });
        Ok(statistics)
    }

    /// Joins, and passes the pairs to the sink. Returns the statistics and the number of legs.
    fn join_at_once(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<(JoinStatistics, u64)> {
        // A sink for results about rows reserves its memory first. The join is planned with the rest.
        let sink = job.output.sink_of_rows(context, sets, &job.join)?;
        let (prepared, plan) = self.find_pairs(context, job, sets)?;
        let mut sink = sink.map_or_else(|| job.output.sink_of_pairs(context, sets, &[]), Ok)?;
        let mut statistics = self.hand_over(context, job, sets, (&prepared, &plan), &mut *sink)?;
        statistics.write(|| sink.finish())?;
        Ok((statistics, plan.legs.len() as u64))
    }

    /// Joins, and writes a result that carries columns, when the memory of the join is free again. Returns the
    /// statistics and the number of legs.
    fn join_with_columns(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<(JoinStatistics, u64)> {
        let carrying = job.carrying();
        let context = &carrying.check(context, sets)?;
        let (statistics, legs) = {
            let (prepared, plan) = self.find_pairs(context, job, sets)?;
            (self.hand_over(context, job, sets, (&prepared, &plan), &mut Discard)?, plan.legs.len() as u64)
        };
        let _memory = context.reserve(KEPT_BYTES, PURPOSE)?;
        let mut pairs = self.pairs(job, sets);
        Ok((carrying.write(context, sets, job.join.predicate, statistics, || pairs.next())?, legs))
    }

    /// Joins the remaining tasks. All pairs are in the checkpoint afterwards.
    fn find_pairs(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<(Prepared, PlanCheckpoint)> {
        let _memory = context.reserve(KEPT_BYTES, PURPOSE)?;
        let legs_before = self.0.state().legs_done;
        let (prepared, plan) = self.prepared(context, job, sets)?;
        let ids = job.output.ids_of_pairs(sets);
        job.output.announce(context, sets, prepared.predicted_results(), job.yes)?;
        self.check_room(context, job, prepared.predicted_results().saturating_mul(kept_bytes_of_a_pair(ids)))?;
        let done_before = plan.tasks_before(legs_before);
        // The ends of the remaining legs, relative to the first remaining task.
        let ends: Vec<usize> = plan.legs[legs_before..].iter().map(|end| end - done_before).collect();
        if !ends.is_empty() {
            let done = self.0.state().done.clone();
            let mut legs = Legs { kept: &mut self.0, before: done, pairs: None };
            run_in_legs(context, sets, &prepared, done_before as u64, &ends, &mut legs)?;
        }
        Ok((prepared, plan))
    }

    /// Passes all pairs to the sink. Returns the statistics of all runs.
    fn hand_over(
        &self,
        context: &Context,
        job: &Job<'_>,
        sets: Sets<'_>,
        (prepared, plan): (&Prepared, &PlanCheckpoint),
        sink: &mut dyn PairSink,
    ) -> Result<JoinStatistics> {
        let mut pairs = self.pairs(job, sets);
        let mut done = hand_over(context, prepared, || pairs.next(), sink)?;
        done += self.0.state().done.clone();
        done += plan.whole.clone();
        Ok(prepared.statistics(context, sets, &done, Written::default()))
    }

    fn pairs(&self, job: &Job<'_>, sets: Sets<'_>) -> Pairs<'_> {
        Pairs { kept: &self.0, ids: job.output.ids_of_pairs(sets), leg: 0, reader: None }
    }

    /// Returns the plan of the remaining tasks, and the stored plan of all tasks.
    fn prepared(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<(Prepared, PlanCheckpoint)> {
        let JoinState { plan, legs_done, .. } = self.0.state();
        if let Some(plan) = plan.clone() {
            let rest = self.read_plan(&plan, plan.tasks_before(*legs_done))?;
            return Ok((resume_within(context, sets, rest, job.join.cache_bytes)?, plan));
        }
        let prepared = job.join.prepare(context, sets, job.output.wants_ids())?;
        let plan = self.write_plan(&prepared, sets)?;
        let run = self.0.runs();
        // The state refers to the plan only after its files are complete.
        self.0.keep(|state| (state.plan, state.run) = (Some(plan.clone()), run))?;
        Ok((prepared, plan))
    }

    fn write_plan(&self, prepared: &Prepared, sets: Sets<'_>) -> Result<PlanCheckpoint> {
        let mut file = self.0.create(PLAN_FILE)?;
        file.append(prepared.plan_without_tasks(sets).write().as_bytes())?;
        let plan_bytes = file.finish()?;
        let mut file = self.0.create(TASKS_FILE)?;
        for tasks in prepared.tasks().chunks(TASKS_A_FRAME) {
            let bytes = |&(i, j): &Task| (u64::from(j) << 32 | u64::from(i)).to_le_bytes();
            file.append(&tasks.iter().flat_map(bytes).collect::<Vec<u8>>())?;
        }
        let (tasks_bytes, legs) = (file.finish()?, prepared.leg_ends(sets)?);
        Ok(PlanCheckpoint { plan_bytes, tasks_bytes, legs, whole: prepared.whole() })
    }

    /// Reads the plan, with the tasks from number `from` on. The caller then reserves the memory for the tasks.
    fn read_plan(&self, plan: &PlanCheckpoint, from: usize) -> Result<JoinPlan> {
        let mut file = self.0.read(PLAN_FILE, plan.plan_bytes)?;
        let text = file.next()?.map(|frame| String::from_utf8_lossy(frame).into_owned());
        let read = JoinPlan::read(&text.unwrap_or_default())?;
        let mut file = self.0.read(TASKS_FILE, plan.tasks_bytes)?;
        let (mut tasks, mut number) = (Vec::with_capacity(plan.tasks() - from), 0);
        while let Some(frame) = file.next()? {
            for &task in frame.as_chunks::<TASK_BYTES>().0 {
                let task = u64::from_le_bytes(task);
                if number >= from {
                    tasks.push((task as u32, (task >> 32) as u32));
                }
                number += 1;
            }
        }
        // Each frame has a checksum, but a missing frame can be detected only by the number of tasks.
        if number != plan.tasks() {
            return Err(file.damaged());
        }
        Ok(read.with_tasks(tasks))
    }

    /// Fails if the disk has too little space for the checkpoints.
    fn check_room(&self, context: &Context, job: &Job<'_>, bytes: u64) -> Result<()> {
        let at = job.resume.as_ref().and_then(Target::path);
        let path = at.expect("checkpoints are next to a file, as checked at first");
        let kept = self.0.state().pairs.iter().sum::<u64>();
        let free = context.device.free_bytes(Target::parent_of(path))?;
        if bytes.saturating_sub(kept) <= free || job.yes {
            return Ok(());
        }
        let [wanted, free] = [bytes, free].map(format_bytes);
        let at = path.display();
        Err(Error::device(message![
            format!("the checkpoint of {at} needs about {wanted}, but the disk has {free} free; leave out "),
            Argument::Resume,
            ", or give ",
            Argument::Yes,
            " to try anyway"
        ]))
    }
}

impl PlanCheckpoint {
    fn tasks(&self) -> usize {
        self.tasks_before(self.legs.len())
    }

    /// Returns the number of tasks of the first `leg` legs.
    fn tasks_before(&self, leg: usize) -> usize {
        leg.checked_sub(1).map_or(0, |last| self.legs[last])
    }
}

/// Returns the name of the file of the pairs of a leg.
fn pairs_file(leg: usize) -> String {
    format!("pairs-{leg}")
}

/// Writes a checkpoint at the end of each leg of a run.
struct Legs<'a> {
    kept: &'a mut Checkpoint<JoinState>,
    /// Counts of earlier runs.
    before: Done,
    pairs: Option<FrameWriter>,
}

impl Legs<'_> {
    fn pairs(&mut self) -> Result<&mut FrameWriter> {
        Ok(match &mut self.pairs {
            Some(pairs) => pairs,
            none => none.insert(self.kept.create(&pairs_file(self.kept.state().legs_done))?),
        })
    }
}

impl SaveCheckpoints for Legs<'_> {
    fn take(&mut self, batch: &PairBatch) -> Result<()> {
        keep_pairs(batch, self.pairs()?)
    }

    fn end_leg(&mut self, _tasks: usize, done: Done) -> Result<()> {
        // A leg without pairs has an empty file.
        self.pairs()?;
        let bytes = self.pairs.take().expect("the file of pairs was just created").finish()?;
        let (run, before) = (self.kept.runs(), self.before.clone());
        self.kept.keep(|state| {
            let mut now = before;
            now += done;
            let of_leg = now.verified_pairs() - state.done.verified_pairs();
            // Each run that was interrupted within this leg may have compared all pairs of the leg.
            state.repeated += of_leg * (run - state.run);
            (state.done, state.run) = (now, run);
            state.pairs.push(bytes);
            state.legs_done += 1;
        })
    }
}

/// The pairs of all legs.
struct Pairs<'a> {
    kept: &'a Checkpoint<JoinState>,
    ids: [IdKind; 2],
    leg: usize,
    reader: Option<FrameReader>,
}

impl Pairs<'_> {
    fn next(&mut self) -> Result<Option<PairBatch>> {
        loop {
            if let Some(reader) = &mut self.reader
                && let Some(batch) = kept_pairs(reader, self.ids)?
            {
                return Ok(Some(batch));
            }
            let Some(&bytes) = self.kept.state().pairs.get(self.leg) else { return Ok(None) };
            self.reader = Some(self.kept.read(&pairs_file(self.leg), bytes)?);
            self.leg += 1;
        }
    }
}

/// Describes the requested strategy.
fn strategy_in_words(join: &JoinOptions) -> String {
    join.rule.map_or("none asked for".to_owned(), |rule| format!("rule={}", rule.name()))
}

impl Job<'_> {
    /// Returns all facts that determine which pairs are found and which result is computed from them.
    fn facts(&self, named: &[&Named]) -> Result<Vec<Fact>> {
        let Self { join, conditions, output, .. } = self;
        let joined = match (self.with, self.new) {
            ([], []) => "one set",
            (_, []) => "two sets",
            _ => "one set and new rows",
        };
        let mut facts = vec![Fact::new("the joined sets", joined)];
        for named in named {
            match named {
                Named::Store(store) => {
                    let at = store.folder().display();
                    facts.push(Fact::new(format!("the store {at}"), &store.manifest().manifest_xxh3));
                }
                Named::Source(source) => {
                    facts.extend(facts_of_files(&**source)?);
                    facts.push(Fact::new("the source options", self.source.in_words()));
                    facts.extend(self.build.facts());
                }
            }
        }
        let (eps, min_similarity) = join.predicate.thresholds();
        facts.push(match (eps, min_similarity) {
            (Some(eps), _) => Fact::new("the threshold", format!("a distance of {eps}")),
            (None, similarity) => Fact::new("the threshold", format!("a similarity of {}", similarity.unwrap_or(0.0))),
        });
        facts.push(Fact::new(
            "the recall",
            match join.aim {
                JoinEffort::Every => "every pair".to_owned(),
                JoinEffort::Recall(recall) => format!("{recall}"),
                JoinEffort::RecallOfPairs(recall) => format!("{recall} of all pairs"),
                JoinEffort::Unsaid => "the default".to_owned(),
            },
        ));
        facts.push(Fact::new("the strategy", strategy_in_words(join)));
        facts.push(Fact::new("the seed", join.seed));
        let Conditions { rows, other_rows, pairs } = conditions;
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        facts.push(Fact::new("the filter on rows", text(rows.as_ref().map(Condition::text))));
        facts.push(Fact::new("the filter on the other rows", text(other_rows.as_ref().map(Condition::text))));
        facts.push(Fact::new("the filter on pairs", text(pairs.as_ref().map(PairCondition::text))));
        facts.push(Fact::new("the result", output.name()));
        let columns = if self.columns.is_empty() { "none".to_owned() } else { self.columns.join(", ") };
        facts.push(Fact::new("the columns of the result", columns));
        Ok(facts)
    }
}
