//! Predicts the seconds of parts from runs of a few of their tasks.

use std::ops::{Range, RangeInclusive};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::report::Stopwatch;
use crate::join::{JoinPlan, PlannedPart, Sets, comparisons, members_of, resume_within, run};
use crate::plan::Task;
use crate::sink::{Discard, PairSink, PartContent, PartSink};

/// Seconds that a process takes to start, and to read a plan and a store.
const PROCESS_SECONDS: f64 = 0.05;
/// Together the timed runs have the comparisons of all tasks divided by `SHARE`, at most `COMPARISONS_MAX`.
const SHARE: u64 = 16;
const COMPARISONS_MAX: u64 = 40_000_000_000;
/// Comparisons of a run, for as many runs as are in `RUNS`. Fewer would take less time than the start of a run.
const COMPARISONS_OF_RUN: u64 = 100_000_000;
const RUNS: RangeInclusive<u64> = 8..=192;
/// Minimum number of runs within a part for rates of its own. Other parts have the rates of all runs.
const RUNS_OF_A_PART: usize = 8;

/// Times of runs of a few tasks.
pub(super) struct Timed {
    /// Seconds of a part with almost no comparisons.
    start: f64,
    runs: Vec<TimedRun>,
}

struct TimedRun {
    /// Number of the first task.
    first: usize,
    comparisons: u64,
    times: Times,
}

/// Times of a run of some tasks.
struct Times {
    read_bytes: u64,
    /// Seconds without waits for the disk. A [`TimedRun`] leaves out the start, too.
    computed: f64,
    waited: f64,
}

impl Timed {
    /// Runs a few tasks as the parts will. Pairs are sorted too, but not written.
    ///
    /// # Errors
    /// Fails if memory does not suffice or a disk fails.
    pub(super) fn measure(
        context: &Context,
        sets: Sets<'_>,
        plan: &JoinPlan,
        content: PartContent,
        planned: &[PlannedPart],
    ) -> Result<Self> {
        let (tasks, members) = (plan.all_tasks(), members_of(sets)?);
        let all: u64 = planned.iter().map(|part| part.comparisons).sum();
        let chosen = chosen(tasks, |task| comparisons(&members, task), all, (all / SHARE).min(COMPARISONS_MAX));
        let timed = |tasks: Range<usize>| timed(context, sets, plan.part(tasks), content);
        // The first run pays for what the system loads only once.
        let starts: Vec<f64> = chosen
            .iter()
            .take(3)
            .map(|run| timed(run.start..run.start + 1).map(|times| times.computed + times.waited))
            .collect::<Result<_>>()?;
        let start = starts.into_iter().fold(f64::INFINITY, f64::min);
        let of_run = |run: Range<usize>| {
            let (first, some) = (run.start, &tasks[run.clone()]);
            let comparisons = some.iter().map(|&task| comparisons(&members, task)).sum();
            let times = timed(run)?;
            let computed = (times.computed - start).max(0.0);
            Ok(TimedRun { first, comparisons, times: Times { computed, ..times } })
        };
        let runs = chosen.into_iter().map(of_run).collect::<Result<_>>()?;
        Ok(Self { start: start + empty_result(context, sets, content)?, runs })
    }

    /// Returns the predicted seconds of a part with these tasks.
    pub(super) fn seconds(&self, tasks: &Range<usize>, part: &PlannedPart) -> f64 {
        let is_within = |run: &&TimedRun| tasks.contains(&run.first);
        let has_own_rates = self.runs.iter().filter(is_within).count() >= RUNS_OF_A_PART;
        let some = || self.runs.iter().filter(|run| !has_own_rates || is_within(run));
        let rate = |seconds: fn(&TimedRun) -> f64, work: fn(&TimedRun) -> u64| {
            some().map(seconds).sum::<f64>() / some().map(work).sum::<u64>().max(1) as f64
        };
        let computed = rate(|run| run.times.computed, |run| run.comparisons) * part.comparisons as f64;
        let waited = rate(|run| run.times.waited, |run| run.times.read_bytes) * part.read_bytes as f64;
        PROCESS_SECONDS + if self.runs.is_empty() { 0.0 } else { self.start + computed + waited }
    }
}

/// Chooses ranges of tasks, evenly spread by their comparisons, with approximately `share` of all `all` comparisons. If all
/// are few, chooses all tasks in one range.
fn chosen(tasks: &[Task], comparisons: impl Fn(Task) -> u64, all: u64, share: u64) -> Vec<Range<usize>> {
    let whole = 0..tasks.len();
    if !whole.is_empty() && all <= RUNS.start() * COMPARISONS_OF_RUN {
        return vec![whole];
    }
    let runs = (share / COMPARISONS_OF_RUN).clamp(*RUNS.start(), *RUNS.end());
    let mut chosen: Vec<Range<usize>> = Vec::new();
    let (mut before, mut end, mut of_run) = (0u64, 0, 0);
    for (number, &task) in tasks.iter().enumerate() {
        let of_task = comparisons(task);
        let due = u128::from(all) * chosen.len() as u128 / u128::from(runs);
        if number >= end && chosen.len() < runs as usize && u128::from(before) >= due {
            chosen.push(number..number + 1);
            (end, of_run) = (number + 1, of_task);
        } else if number == end && of_run < share / runs {
            end += 1;
            of_run += of_task;
            chosen.last_mut().expect("the first task begins a run").end = end;
        }
        before += of_task;
    }
    chosen
}

/// Returns whether the memory of a result depends on the rows of the sets, not only on the pairs that are found. Then it
/// takes long to create, and is measured once.
fn is_by_row(content: PartContent) -> bool {
    match content {
        PartContent::Pairs | PartContent::Rows => false,
        PartContent::Forest | PartContent::Counts => true,
    }
}

/// Runs a plan. Its start counts as computing.
fn timed(context: &Context, sets: Sets<'_>, plan: JoinPlan, content: PartContent) -> Result<Times> {
    let watch = Stopwatch::start();
    let run_into = |sink: &mut dyn PairSink| {
        let prepared = resume_within(context, sets, plan, None)?;
        run(context, sets, &prepared, sink)
    };
    let done = if is_by_row(content) {
        run_into(&mut Discard)?
    } else {
        let mut sink = part_sink(context, sets, content)?;
        let done = run_into(&mut sink)?;
        sink.write(&mut |_| Ok(()))?;
        done
    };
    let waited = done.waited_for_disk() / context.threads as f64;
    let computed = (watch.seconds() - waited).max(0.0);
    Ok(Times { read_bytes: done.foreseen_bytes(), computed, waited })
}

/// Returns the seconds for creating and writing an empty result, unless all runs do.
fn empty_result(context: &Context, sets: Sets<'_>, content: PartContent) -> Result<f64> {
    let watch = Stopwatch::start();
    if is_by_row(content) {
        part_sink(context, sets, content)?.write(&mut |_| Ok(()))?;
    }
    Ok(watch.seconds())
}

fn part_sink<'a>(context: &'a Context, sets: Sets<'a>, content: PartContent) -> Result<PartSink<'a>> {
    PartSink::create(context, sets, content, &context.temporary(None), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_runs_are_disjoint_and_spread() {
        for count in [0, 1, 40, 48, 1_000, 100_000] {
            let tasks: Vec<Task> = (0..count).map(|k| (k, k)).collect();
            let work = |(k, _): Task| 1_000_000 * u64::from(k % 7);
            let all: u64 = tasks.iter().map(|&task| work(task)).sum();
            let chosen = chosen(&tasks, work, all, all / SHARE);
            assert_eq!(chosen.is_empty(), count == 0);
            if (1..100).contains(&count) {
                assert!(chosen.len() == 1 && chosen[0] == (0..tasks.len()), "{chosen:?}");
            }
            assert!(chosen.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let of_runs: u64 = chosen.iter().flat_map(|run| &tasks[run.clone()]).map(|&task| work(task)).sum();
            if count >= 1_000 {
                let runs = if count == 1_000 { *RUNS.start() } else { 187 };
                assert_eq!(chosen.len() as u64, runs);
                assert!(
                    (all / SHARE..=all / SHARE + runs * 7_000_000).contains(&of_runs),
                    "{count}: {of_runs} of {all}"
                );
                let half = chosen.iter().filter(|run| run.start < tasks.len() / 2).count() as u64;
                assert!((runs / 2 - 1..=runs / 2 + 1).contains(&half), "{half}");
            }
        }
    }

    #[test]
    fn parts_with_few_runs_have_the_rates_of_all() {
        let times = |computed| Times { read_bytes: 5, computed, waited: 0.5 };
        let run = |first, computed| TimedRun { first, comparisons: 10, times: times(computed) };
        let of_first = (0..8).map(|first| run(first, 1.0));
        let timed = Timed { start: 1.0, runs: of_first.chain([run(20, 10.0)]).collect() };
        let part = PlannedPart { comparisons: 100, read_bytes: 10, ..PlannedPart::default() };
        assert_eq!(timed.seconds(&(0..10), &part), PROCESS_SECONDS + 1.0 + 10.0 + 1.0);
        assert_eq!(timed.seconds(&(10..30), &part), PROCESS_SECONDS + 1.0 + 20.0 + 1.0);
        assert_eq!(Timed { start: f64::INFINITY, runs: Vec::new() }.seconds(&(0..0), &part), PROCESS_SECONDS);
    }
}
