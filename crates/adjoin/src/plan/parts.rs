//! Divides the tasks of a join into parts of approximately equal work, for several machines. Tries to have few buckets
//! that several parts read.

use std::collections::{BinaryHeap, HashMap};

use super::order::Task;

/// Maximum work of a part as a fraction of the mean work, if tasks are small enough: 108 / 100.
const WORK_MAX: (u128, u128) = (108, 100);

/// The inputs of a division.
pub(crate) struct PartInputs<'a> {
    /// The tasks, in order.
    pub(crate) tasks: &'a [Task],
    /// Bytes to read for each bucket.
    pub(crate) bytes: &'a [u64],
    /// Relative work of a task.
    pub(crate) work: &'a dyn Fn(Task) -> u64,
}

impl PartInputs<'_> {
    /// Returns the number of the part of each task, from 0.
    ///
    /// Buckets are divided into consecutive ranges, one for each part. A task inside a range belongs to its part. A
    /// task between two ranges can be done by either part, which must then also read the other bucket. For these
    /// tasks, pairs of a part and a bucket are chosen greedily: first the pair that covers the most remaining tasks
    /// and, of several such pairs, the one with the smallest bucket. A pair is skipped if the part would exceed its
    /// limit of work.
    pub(crate) fn divide(&self, parts: u32) -> Vec<u32> {
        let consecutive = self.consecutive(parts);
        let covered = self.covered(parts);
        let [first, second] = [&consecutive, &covered].map(|division| self.read_bytes(division));
        let [even, covered_even] = [&consecutive, &covered].map(|division| self.work_max(division, parts));
        // If a part had more work than necessary, all other parts would wait for it.
        let is_even = covered_even <= even.max(self.limit(parts));
        if is_even && second < first { covered } else { consecutive }
    }

    /// Divides the tasks into consecutive ranges of their order. Takes less memory than [`PartInputs::divide`].
    pub(crate) fn consecutive(&self, parts: u32) -> Vec<u32> {
        let weights: Vec<u128> = self.tasks.iter().map(|&task| self.weight(task)).collect();
        ranges_of(&weights, parts)
    }

    fn covered(&self, parts: u32) -> Vec<u32> {
        let mut weights = vec![0; self.bytes.len()];
        for &task in self.tasks {
            [task.0, task.1].into_iter().for_each(|bucket| weights[bucket as usize] += self.weight(task));
        }
        let range_of = ranges_of(&weights, parts);
        let range = |bucket: u32| range_of[bucket as usize];
        let mut cover =
            Cover { inputs: self, part_of: vec![u32::MAX; self.tasks.len()], work: vec![0; parts as usize] };
        // For each part and each bucket of another range, the tasks that the part can do if it reads the bucket.
        let mut choices: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for (number, &(i, j)) in self.tasks.iter().enumerate() {
            if range(i) == range(j) {
                cover.assign(number, range(i));
            } else {
                choices.entry((range(i), j)).or_default().push(number as u32);
                choices.entry((range(j), i)).or_default().push(number as u32);
            }
        }
        let gain = |tasks: usize, bucket: u32| (tasks as u64) << 32 | u64::from(u32::MAX - self.bytes_of(bucket));
        let mut heap: BinaryHeap<(u64, u32, u32)> =
            choices.iter().map(|(&(part, bucket), tasks)| (gain(tasks.len(), bucket), part, bucket)).collect();
        let limit = self.limit(parts);
        while let Some((before, part, bucket)) = heap.pop() {
            let tasks = choices.get_mut(&(part, bucket)).expect("each choice has tasks");
            tasks.retain(|&task| cover.part_of[task as usize] == u32::MAX);
            let now = gain(tasks.len(), bucket);
            if tasks.is_empty() {
                continue;
            }
            // Other parts may have taken some of these tasks in the meantime, so the pair is put back with its current
            // value.
            if now < before {
                heap.push((now, part, bucket));
                continue;
            }
            let work: u128 = tasks.iter().map(|&task| self.weight(self.tasks[task as usize])).sum();
            if cover.work[part as usize] + work <= limit {
                tasks.iter().for_each(|&task| cover.assign(task as usize, part));
            }
        }
        cover.assign_rest(range);
        cover.part_of
    }

    fn weight(&self, task: Task) -> u128 {
        // The weight is at least 1, so that tasks without work are divided too. Sums and products may need more than
        // 64 bits.
        (self.work)(task).max(1).into()
    }

    /// Returns the size of a bucket in units of 64 bytes, so that it fits into 32 bits.
    fn bytes_of(&self, bucket: u32) -> u32 {
        u32::try_from(self.bytes[bucket as usize] >> 6).unwrap_or(u32::MAX)
    }

    /// Returns the maximum work of a part for a division to count as even.
    fn limit(&self, parts: u32) -> u128 {
        let all: u128 = self.tasks.iter().map(|&task| self.weight(task)).sum();
        all * WORK_MAX.0 / WORK_MAX.1 / u128::from(parts)
    }

    fn work_max(&self, division: &[u32], parts: u32) -> u128 {
        let mut work = vec![0; parts as usize];
        self.tasks.iter().zip(division).for_each(|(&task, &part)| work[part as usize] += self.weight(task));
        work.into_iter().max().unwrap_or(0)
    }

    /// Returns the total bytes that all parts read, if each part reads a bucket once.
    fn read_bytes(&self, division: &[u32]) -> u64 {
        let reads = self.tasks.iter().zip(division).flat_map(|(&(i, j), &part)| [(part, i), (part, j)]);
        let reads: std::collections::HashSet<(u32, u32)> = reads.collect();
        reads.into_iter().map(|(_, bucket)| self.bytes[bucket as usize]).sum()
    }
}

/// A division in progress.
struct Cover<'a> {
    inputs: &'a PartInputs<'a>,
    /// Part of each task; `u32::MAX` if it is not assigned yet.
    part_of: Vec<u32>,
    /// Work of each part.
    work: Vec<u128>,
}

impl Cover<'_> {
    fn assign(&mut self, task: usize, part: u32) {
        self.part_of[task] = part;
        self.work[part as usize] += self.inputs.weight(self.inputs.tasks[task]);
    }

    /// Assigns each remaining task to one of the two parts that have one of its buckets: the one with less work.
    fn assign_rest(&mut self, range: impl Fn(u32) -> u32) {
        for number in 0..self.part_of.len() {
            if self.part_of[number] == u32::MAX {
                let (i, j) = self.inputs.tasks[number];
                let (a, b) = (range(i), range(j));
                let part = if self.work[a as usize] <= self.work[b as usize] { a } else { b };
                self.assign(number, part);
            }
        }
    }
}

/// Divides items into consecutive ranges of approximately equal weight. Returns the range of each item. An item
/// belongs to the range that contains its middle, so that a range is at most half an item too heavy.
fn ranges_of(weights: &[u128], parts: u32) -> Vec<u32> {
    let all: u128 = weights.iter().sum();
    let mut done = 0;
    let of_item = |&weight: &u128| {
        let middle = 2 * done + weight;
        done += weight;
        let range = middle * u128::from(parts) / (2 * all).max(1);
        u32::try_from(range).unwrap_or(u32::MAX).min(parts - 1)
    };
    weights.iter().map(of_item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works(tasks: &[Task], division: &[u32], parts: u32, work: impl Fn(Task) -> u64) -> Vec<u64> {
        let mut works = vec![0; parts as usize];
        tasks.iter().zip(division).for_each(|(&task, &part)| works[part as usize] += work(task));
        works
    }

    #[test]
    fn parts_have_about_equal_work() {
        let tasks: Vec<Task> = (0..1_000).map(|k| (k, k)).collect();
        let work = |(k, _): Task| u64::from(k % 10);
        for parts in [1, 2, 7, 64] {
            let division = PartInputs { tasks: &tasks, bytes: &[100; 1_000], work: &work }.divide(parts);
            let works = works(&tasks, &division, parts, work);
            let (least, most) = (works.iter().min().unwrap(), works.iter().max().unwrap());
            assert!(most - least <= 2 * 10, "{parts}: {least} {most}");
        }
    }

    #[test]
    fn more_parts_than_tasks_are_possible() {
        let divide =
            |tasks: &[Task], parts, work: u64| PartInputs { tasks, bytes: &[100; 2], work: &|_| work }.divide(parts);
        assert_eq!(divide(&[(0, 0)], 3, 5), [1]);
        assert!(divide(&[], 2, 5).is_empty());
        assert_eq!(divide(&[(0, 0), (1, 1)], 2, u64::MAX), [0, 1]);
    }

    /// Each bucket has edges to the next four, and every 40th bucket has edges to all later ones. It is better if each
    /// part reads these few buckets than if the parts of these few buckets read all others.
    #[test]
    fn few_buckets_are_read_by_several_parts() {
        let count = 400;
        let mut tasks: Vec<Task> = (0..count).flat_map(|i| (i..count.min(i + 5)).map(move |j| (i, j))).collect();
        tasks.extend((0..count).step_by(40).flat_map(|hub| (hub..count).map(move |j| (hub, j))));
        tasks.sort_unstable();
        tasks.dedup();
        let bytes = vec![1_000; count as usize];
        let inputs = PartInputs { tasks: &tasks, bytes: &bytes, work: &|_| 1 };
        let division = inputs.divide(8);
        let [consecutive, chosen] = [&inputs.consecutive(8), &division].map(|division| inputs.read_bytes(division));
        assert!(chosen * 10 < consecutive * 9, "{chosen} {consecutive}");
        let works = works(&tasks, &division, 8, |_| 1);
        assert!(works.iter().max().unwrap() * 8 * 10 <= tasks.len() as u64 * 12, "{works:?}");
        let division = inputs.divide(1);
        assert!(division.iter().all(|&part| part == 0));
    }
}
