//! A join that may be ended at any moment and goes on from there: its plan and what it found are kept, leg by leg.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Conditions, Job, Named, OpenedSets};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::join::{
    Aim, Done, JoinOptions, JoinPlan, KeepLegs, Prepared, Sets, hand_over, prepare, resume_within, run_in_legs,
};
use crate::kept::{Fact, FrameReader, FrameWriter, KEPT_BYTES, Kept};
use crate::message::{Argument, message};
use crate::options::format_bytes;
use crate::output::{Target, parent};
use crate::plan::Task;
use crate::report::{JoinStatistics, ResumeStatistics, Written};
use crate::sink::{PairBatch, keep_pairs, kept_bytes_of_a_pair, kept_pairs};
use crate::source::{IdKind, facts_of_files};
use crate::sql::{Condition, PairCondition};

/// The file of the plan, and that of its tasks.
const PLAN_FILE: &str = "plan";
const TASKS_FILE: &str = "tasks";
/// Tasks of a frame.
const TASKS_A_FRAME: usize = 64 << 10;
/// Bytes of a task.
const TASK_BYTES: usize = 8;

/// How far a join is.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct JoinState {
    /// What was planned, once it was.
    plan: Option<KeptPlan>,
    legs_done: usize,
    done: Done,
    /// Bytes of the file of pairs of each leg.
    pairs: Vec<u64>,
    /// The run that made the plan or ended the last leg.
    run: u64,
    /// Pairs that were compared again because a run was ended within a leg, at most.
    repeated: u64,
}

/// A plan that is kept in files.
#[derive(Clone, Serialize, Deserialize)]
struct KeptPlan {
    plan_bytes: u64,
    tasks_bytes: u64,
    /// Before which tasks legs end, the last with all.
    legs: Vec<usize>,
    whole: Done,
}

/// What a run of a join keeps.
pub(super) struct KeptJoin(Kept<JoinState>);

impl KeptJoin {
    /// What an earlier run of this job has kept, or nothing yet.
    ///
    /// # Errors
    /// Where the result is in no file, a source can change unseen, or as [`Kept::open`].
    pub(super) fn open(context: &Context, job: &Job<'_>, named: &[&Named]) -> Result<Self> {
        let Some(Target::File { path, force }) = job.output.target() else {
            let words = " keeps what was done beside the result; write that to a file, or leave it out";
            return Err(Error::option(message![Argument::Resume, words]));
        };
        let mut kept = Kept::open(context, path, job.facts(named)?, *force)?;
        if named.iter().any(|named| matches!(named, Named::Source(_))) {
            kept.hold(); // a store is built in it, of which more and more is kept
        }
        Ok(Self(kept))
    }

    /// Where a store lies that is built for the join.
    pub(super) fn store(&self, set: usize) -> PathBuf {
        self.0.path(&format!("store-{set}"))
    }

    pub(super) fn explain(&mut self, error: Error) -> Error {
        self.0.explain(error)
    }

    /// Joins what was not joined yet, and hands all that was found to the sink. Nothing is kept from then on.
    ///
    /// # Errors
    /// As those of a join.
    pub(super) fn run(mut self, context: &Context, job: &Job<'_>, opened: &OpenedSets) -> Result<JoinStatistics> {
        let done = self.join(context, job, opened.sets());
        let statistics = done.map_err(|error| self.0.explain(error))?;
        self.0.finish()?;
        Ok(statistics)
    }

    fn join(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<JoinStatistics> {
        // A sink for rows takes its memory first; the join is planned with what it leaves.
        let sink = job.output.sink_of_rows(context, sets, &job.join)?;
        let memory = context.reserve(KEPT_BYTES, "what is kept of the join")?;
        let legs_before = self.0.state().legs_done;
        let (prepared, plan) = self.prepared(context, job, sets)?;
        let ids = ids_of(job, sets);
        job.output.announce(context, sets, prepared.predicted_results(), job.yes)?;
        self.check_room(context, job, prepared.predicted_results().saturating_mul(kept_bytes_of_a_pair(ids)))?;
        let done_before = plan.tasks_before(legs_before);
        let ends: Vec<usize> = plan.legs[legs_before..].iter().map(|end| end - done_before).collect();
        if !ends.is_empty() {
            let done = self.0.state().done.clone();
            let mut legs = Legs { kept: &mut self.0, before: done, pairs: None };
            run_in_legs(context, sets, &prepared, (done_before as u64, &ends), &mut legs)?;
        }
        drop(memory);

        let mut sink = sink.map_or_else(|| job.output.sink_of_pairs(context, sets), Ok)?;
        let mut pairs = Pairs { kept: &self.0, ids, leg: 0, reader: None };
        let mut done = hand_over(context, &prepared, || pairs.next(), &mut *sink)?;
        done += self.0.state().done.clone();
        done += plan.whole.clone();
        let mut statistics = prepared.statistics(context, sets, &done, Written::default());
        statistics.write(|| sink.finish())?;
        *statistics.common.io.spill_bytes.get_or_insert(0) += self.0.state().pairs.iter().sum::<u64>();
        statistics.resume = Some(ResumeStatistics {
            runs: self.0.runs(),
            legs: plan.legs.len() as u64,
            legs_done_before: legs_before as u64,
            verified_pairs_repeated_max: self.0.state().repeated,
        });
        Ok(statistics)
    }

    /// The plan of what is still to do, and that of all.
    fn prepared(&mut self, context: &Context, job: &Job<'_>, sets: Sets<'_>) -> Result<(Prepared, KeptPlan)> {
        let JoinState { plan, legs_done, .. } = self.0.state();
        if let Some(plan) = plan.clone() {
            let rest = self.read_plan(&plan, plan.tasks_before(*legs_done))?;
            return Ok((resume_within(context, sets, rest, job.join.cache_bytes)?, plan));
        }
        let prepared = prepare(context, sets, &job.join, job.output.wants_ids())?;
        let plan = self.write_plan(&prepared, sets)?;
        let run = self.0.runs();
        self.0.keep(|state| (state.plan, state.run) = (Some(plan.clone()), run))?;
        Ok((prepared, plan))
    }

    fn write_plan(&self, prepared: &Prepared, sets: Sets<'_>) -> Result<KeptPlan> {
        let mut file = self.0.create(PLAN_FILE)?;
        file.append(prepared.plan_without_tasks(sets).write().as_bytes())?;
        let plan_bytes = file.finish()?;
        let mut file = self.0.create(TASKS_FILE)?;
        for tasks in prepared.tasks().chunks(TASKS_A_FRAME) {
            let bytes = |&(i, j): &Task| (u64::from(j) << 32 | u64::from(i)).to_le_bytes();
            file.append(&tasks.iter().flat_map(bytes).collect::<Vec<u8>>())?;
        }
        let (tasks_bytes, legs) = (file.finish()?, prepared.leg_ends(sets)?);
        Ok(KeptPlan { plan_bytes, tasks_bytes, legs, whole: prepared.whole() })
    }

    /// The plan without its first tasks. Those that are read take the memory that the run reserves for them next.
    fn read_plan(&self, plan: &KeptPlan, from: usize) -> Result<JoinPlan> {
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
        if number != plan.tasks() {
            return Err(file.damaged());
        }
        Ok(read.with_tasks(tasks))
    }

    /// Refuses to begin what the disk has no room to keep.
    fn check_room(&self, context: &Context, job: &Job<'_>, bytes: u64) -> Result<()> {
        let path = job.output.target().and_then(Target::path).expect("it was checked at first");
        let kept = self.0.state().pairs.iter().sum::<u64>();
        let free = context.device.free_bytes(parent(path))?;
        if bytes.saturating_sub(kept) <= free || job.yes {
            return Ok(());
        }
        let [wanted, free] = [bytes, free].map(format_bytes);
        let at = path.display();
        Err(Error::device(message![
            format!("what is kept for {at} would take about {wanted}, the disk has {free} free; leave out "),
            Argument::Resume,
            ", or give ",
            Argument::Yes,
            " to try"
        ]))
    }
}

impl KeptPlan {
    fn tasks(&self) -> usize {
        self.tasks_before(self.legs.len())
    }

    /// Tasks of the first legs.
    fn tasks_before(&self, leg: usize) -> usize {
        leg.checked_sub(1).map_or(0, |last| self.legs[last])
    }
}

/// Kinds of the ids of the pairs that are kept.
fn ids_of(job: &Job<'_>, sets: Sets<'_>) -> [IdKind; 2] {
    let wanted = job.output.wants_ids();
    [sets.left(), sets.right()].map(|store| if wanted { store.manifest().ids } else { IdKind::None })
}

/// The file of the pairs of a leg.
fn pairs_file(leg: usize) -> String {
    format!("pairs-{leg}")
}

/// Keeps the legs of a run.
struct Legs<'a> {
    kept: &'a mut Kept<JoinState>,
    /// What earlier runs have done.
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

impl KeepLegs for Legs<'_> {
    fn take(&mut self, batch: &PairBatch) -> Result<()> {
        keep_pairs(batch, self.pairs()?)
    }

    fn end_leg(&mut self, _tasks: usize, done: Done) -> Result<()> {
        self.pairs()?;
        let bytes = self.pairs.take().expect("it is there now").finish()?;
        let (run, before) = (self.kept.runs(), self.before.clone());
        self.kept.keep(|state| {
            let mut now = before;
            now += done;
            let of_leg = now.verified_pairs() - state.done.verified_pairs();
            state.repeated += of_leg * (run - state.run);
            (state.done, state.run) = (now, run);
            state.pairs.push(bytes);
            state.legs_done += 1;
        })
    }
}

/// The pairs of all legs.
struct Pairs<'a> {
    kept: &'a Kept<JoinState>,
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

/// The choices that were asked for.
fn strategy_in_words(join: &JoinOptions) -> String {
    let asked = [
        join.rule.map(|rule| format!("rule={}", rule.name())),
        join.t.map(|t| format!("threshold={t}")),
        join.order.map(|order| format!("order={}", order.name())),
        join.lead.map(|lead| format!("lead={}", lead.name())),
    ];
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    if asked.is_empty() { "none asked for".to_owned() } else { asked.join(",") }
}

impl Job<'_> {
    /// What decides which pairs are found, and what becomes of them.
    fn facts(&self, named: &[&Named]) -> Result<Vec<Fact>> {
        let Self { join, conditions, output, .. } = self;
        let joined = match (self.with, self.new) {
            ([], []) => "one set",
            (_, []) => "two sets",
            _ => "a set and rows that come to it",
        };
        let mut facts = vec![Fact::new("what is joined", joined)];
        for named in named {
            match named {
                Named::Store(store) => {
                    let at = store.folder().display();
                    facts.push(Fact::new(format!("the store {at}"), &store.manifest().manifest_xxh3));
                }
                Named::Source(source) => {
                    facts.extend(facts_of_files(&**source)?);
                    facts.push(Fact::new("what is read of it", self.source.in_words()));
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
            "what is promised",
            match join.aim {
                Aim::Every => "every pair".to_owned(),
                Aim::Recall(recall) => format!("a recall of {recall}"),
                Aim::Unsaid => "what is usual".to_owned(),
            },
        ));
        facts.push(Fact::new("the strategy", strategy_in_words(join)));
        facts.push(Fact::new("the seed", join.seed));
        let Conditions { rows, other_rows, pairs } = conditions;
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        facts.push(Fact::new("the condition of rows", text(rows.as_ref().map(Condition::text))));
        facts.push(Fact::new("the condition of the other rows", text(other_rows.as_ref().map(Condition::text))));
        facts.push(Fact::new("the condition of pairs", text(pairs.as_ref().map(PairCondition::text))));
        facts.push(Fact::new("what is wanted", output.name()));
        Ok(facts)
    }
}
