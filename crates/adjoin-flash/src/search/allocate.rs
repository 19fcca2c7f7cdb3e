//! The allocator of NDSearch (sections IV-C3 and VI-B1): assigns page reads to queries.

use std::ops::Range;

use crate::device::Geometry;
use crate::layout::LunCsr;
use crate::machine::PageAddress;

/// A distance to compute.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) query: u32,
    pub(super) vertex: u32,
    address: PageAddress,
    /// Whether the query's vector is sent to the LUN with this task.
    carries_query: bool,
}

/// Tasks on one page, done by one read.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) address: PageAddress,
    /// Range within all tasks.
    pub(super) tasks: Range<usize>,
    /// Number of query vectors sent with the read.
    pub(super) queries: u32,
}

/// Tasks in groups, and groups in consecutive rounds.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    pub(super) tasks: Vec<Task>,
    pub(super) groups: Vec<Group>,
    pub(super) rounds: Vec<Range<usize>>,
}

/// Options of the allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocating {
    /// Whether queries share pages (batch-wise dynamic allocating); otherwise each reads for itself, one after another.
    pub(super) together: bool,
    /// Queries that a LUN's queue holds; further ones are deferred to another round.
    pub(super) queue: usize,
}

impl Allocation {
    /// Allocates the tasks `wanted`, pairs of query and vertex, sorted by query.
    pub(super) fn of(layout: &LunCsr, wanted: &[(u32, u32)], options: Allocating) -> Self {
        let task = |&(query, vertex): &(u32, u32)| Task {
            query,
            vertex,
            address: layout.address(vertex),
            carries_query: false,
        };
        let mut allocation = Self { tasks: wanted.iter().map(task).collect(), ..Self::default() };
        for round in allocation.split(layout.geometry(), options.queue) {
            allocation.group(round, options.together);
        }
        allocation
    }

    /// Divides tasks into rounds in which no LUN has more queries than its queue holds, unless the round has a
    /// single query.
    fn split(&mut self, geometry: &Geometry, queue: usize) -> Vec<Range<usize>> {
        let luns = geometry.luns() as usize;
        let (mut queued, mut last) = (vec![0; luns], vec![u32::MAX; luns]);
        let (mut rounds, mut from) = (Vec::new(), 0);
        let mut begins = 0;
        for by_query in self.tasks.chunk_by_mut(|a, b| a.query == b.query) {
            let touched: Vec<usize> = by_query
                .iter_mut()
                .filter_map(|task| {
                    let lun = task.address.lun as usize;
                    // Tasks are sorted by query, so a LUN that saw another query last does not have this vector yet.
                    task.carries_query = std::mem::replace(&mut last[lun], task.query) != task.query;
                    task.carries_query.then_some(lun)
                })
                .collect();
            if touched.iter().any(|&lun| queued[lun] >= queue) && from < begins {
                rounds.push(from..begins);
                from = begins;
                queued.fill(0);
            }
            touched.iter().for_each(|&lun| queued[lun] += 1);
            begins += by_query.len();
        }
        if from < begins {
            rounds.push(from..begins);
        }
        rounds
    }

    fn group(&mut self, round: Range<usize>, together: bool) {
        let first_group = self.groups.len();
        let tasks = &mut self.tasks[round.clone()];
        // `PageAddress` is ordered by LUN and page number before block and plane, so pages that planes can sense
        // together are adjacent.
        match together {
            true => tasks.sort_unstable_by_key(|task| (task.address, task.query, task.vertex)),
            false => tasks.sort_by_key(|task| (task.query, task.address)),
        }
        let mut from = round.start;
        let same = |a: &Task, b: &Task| a.address == b.address && (together || a.query == b.query);
        for group in tasks.chunk_by(same) {
            let queries = group.iter().filter(|task| task.carries_query).count() as u32;
            self.groups.push(Group { address: group[0].address, tasks: from..from + group.len(), queries });
            from += group.len();
        }
        self.rounds.push(first_group..self.groups.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::Mapping;

    fn layout() -> LunCsr {
        let geometry = Geometry {
            channels: 2,
            chips_per_channel: 1,
            luns_per_chip: 2,
            planes_per_lun: 2,
            blocks_per_plane: 4,
            pages_per_block: 4,
            page_bytes: 512,
        };
        LunCsr::new(&geometry, 200, 0, |_| &[], 128, Mapping::MultiPlane).unwrap()
    }

    proptest! {
        #[test]
        fn every_task_runs_once_on_its_page(
            wanted in prop::collection::btree_set((0u32..40, 0u32..200), 0..300),
            together: bool,
            queue in 1usize..20,
        ) {
            let (layout, wanted) = (layout(), wanted.into_iter().collect::<Vec<_>>());
            let allocation = Allocation::of(&layout, &wanted, Allocating { together, queue });
            let mut done = Vec::new();
            for round in &allocation.rounds {
                let groups = &allocation.groups[round.clone()];
                let mut queries_of = [0; 4];
                for group in groups {
                    queries_of[group.address.lun as usize] += group.queries as usize;
                    let tasks = &allocation.tasks[group.tasks.clone()];
                    prop_assert!(tasks.iter().all(|task| layout.address(task.vertex) == group.address));
                    prop_assert!(together || tasks.iter().all(|task| task.query == tasks[0].query));
                    done.extend(tasks.iter().map(|task| (task.query, task.vertex)));
                }
                prop_assert!(queries_of.iter().all(|&queries| queries <= queue));
                if together {
                    let pages: std::collections::HashSet<_> = groups.iter().map(|group| group.address).collect();
                    prop_assert_eq!(pages.len(), groups.len());
                }
            }
            done.sort_unstable();
            prop_assert_eq!(done, wanted);
        }
    }
}
