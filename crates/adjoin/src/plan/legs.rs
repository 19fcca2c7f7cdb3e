//! A schedule in legs, so that a run that is ended somewhere has lost no more than the leg that it was in.

use super::order::Task;

/// Multiplications of a leg, at least: about a second of work for a thread, beside which it is little to make durable what
/// was found.
const LEG_WORK: u64 = 20_000_000_000;
/// Legs of a schedule with little work, and of one with very much.
const LEGS_MIN: u64 = 16;
const LEGS_MAX: u64 = 1_024;

/// Where the legs of tasks end that take so many multiplications together: before tasks of these numbers, the last with
/// all. The work of one is what `weight` says of it beside others.
pub fn leg_ends(tasks: &[Task], multiplications: u64, weight: impl Fn(Task) -> u64) -> Vec<usize> {
    let legs = (multiplications / LEG_WORK).clamp(LEGS_MIN, LEGS_MAX);
    let of_task = |&task: &Task| u128::from(weight(task).max(1));
    let all: u128 = tasks.iter().map(of_task).sum();
    let (mut ends, mut done) = (Vec::new(), 0);
    for (number, task) in tasks.iter().enumerate() {
        done += of_task(task);
        if done * u128::from(legs) >= all * (ends.len() as u128 + 1) {
            ends.push(number + 1);
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_hold_all_tasks_and_about_the_same_work() {
        let tasks: Vec<Task> = (0..1_000).map(|k| (k, k)).collect();
        let weight = |(k, _): Task| u64::from(k % 10);
        for (work, count) in [(0, 16), (100 * LEG_WORK, 100), (u64::MAX, 1_000)] {
            let ends = leg_ends(&tasks, work, weight);
            assert!(ends.is_sorted() && ends.last() == Some(&1_000) && ends.len() <= count, "{ends:?}");
            assert!(ends.len() * 10 >= count * 9, "{} of {count}", ends.len());
        }
        assert_eq!(leg_ends(&tasks[..3], 0, weight), [1, 2, 3]);
        assert!(leg_ends(&[], 0, weight).is_empty());
    }
}
