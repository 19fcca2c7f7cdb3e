//! Divides a schedule into parts of about equal work, for several machines.

use super::order::Task;

/// Returns the ends of `parts` consecutive parts of tasks with about equal work: task numbers, the last of which is the
/// number of tasks. A part is empty if a task before it has more than the work of a part. `weight` returns the relative
/// work of a task.
pub(crate) fn part_ends(tasks: &[Task], parts: u32, weight: impl Fn(Task) -> u64) -> Vec<usize> {
    // At least 1: tasks without work are divided too.
    let of_task = |&task: &Task| u128::from(weight(task).max(1));
    let all: u128 = tasks.iter().map(of_task).sum();
    let (mut ends, mut done, mut next) = (Vec::with_capacity(parts as usize), 0, 0);
    for part in 1..=u128::from(parts) {
        // A task belongs to the part that has its middle, so that a part has at most half a task too much. In 128 bits,
        // since the product of the work and the number of parts may exceed 64.
        while let Some(task) = tasks.get(next)
            && (2 * done + of_task(task)) * u128::from(parts) < 2 * all * part
        {
            done += of_task(task);
            next += 1;
        }
        ends.push(next);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_about_equal_work() {
        let tasks: Vec<Task> = (0..1_000).map(|k| (k, k)).collect();
        let weight = |(k, _): Task| u64::from(k % 10);
        for parts in [1, 2, 7, 64] {
            let ends = part_ends(&tasks, parts, weight);
            assert!(ends.is_sorted() && ends.len() == parts as usize && ends.last() == Some(&1_000), "{ends:?}");
            let begins = std::iter::once(0).chain(ends.iter().copied());
            let works = begins.zip(&ends).map(|(begin, &end)| tasks[begin..end].iter().map(|&task| weight(task)).sum());
            let works: Vec<u64> = works.collect();
            let (least, most) = (works.iter().min().unwrap(), works.iter().max().unwrap());
            assert!(most - least <= 2 * 9, "{parts}: {least} {most}");
        }
    }

    #[test]
    fn more_parts_than_tasks_are_possible() {
        assert_eq!(part_ends(&[(0, 0)], 3, |_| 5), [0, 1, 1]);
        assert_eq!(part_ends(&[], 2, |_| 5), [0, 0]);
        assert_eq!(part_ends(&[(0, 0), (1, 1)], 2, |_| u64::MAX), [1, 2]);
    }
}
