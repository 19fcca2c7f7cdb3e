//! Divides a schedule into parts with a checkpoint after each, so that an interrupted run loses at most one part.

use super::order::Task;

/// Minimum number of multiplications of a part. They take a thread about a second; compared with that, a durable
/// checkpoint costs little.
const LEG_WORK: u64 = 20_000_000_000;
/// Number of parts of a schedule with little work.
const LEGS_MIN: u64 = 16;
/// Number of parts of a schedule with very much work.
const LEGS_MAX: u64 = 1_024;

/// Divides tasks that take `multiplications` in total into parts of similar work. Returns the end of each part as a
/// task number; the last one is the number of tasks. `weight` returns the relative work of a task.
pub(crate) fn leg_ends(tasks: &[Task], multiplications: u64, weight: impl Fn(Task) -> u64) -> Vec<usize> {
    let legs = (multiplications / LEG_WORK).clamp(LEGS_MIN, LEGS_MAX);
    // The weight is at least 1: if all weights were 0, each task would become a part.
    let of_task = |&task: &Task| u128::from(weight(task).max(1));
    let all: u128 = tasks.iter().map(of_task).sum();
    let (mut ends, mut done) = (Vec::new(), 0);
    for (number, task) in tasks.iter().enumerate() {
        done += of_task(task);
        // The product of the work and the number of parts may need more than 64 bits.
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
    fn checkpoints_divide_all_tasks_into_about_equal_work() {
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
