//! The allocator of NDSearch (sections IV-C3 and VI-B1). It determines which page reads serve which queries.

use std::ops::Range;

use crate::device::Geometry;
use crate::layout::LunCsr;
use crate::machine::PageAddress;

/// A distance to compute, between a query and a vertex.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) query: u32,
    pub(super) vertex: u32,
    address: PageAddress,
    /// Whether the vector of the query is sent to the LUN with this task.
    carries_query: bool,
}

/// Tasks on one page. One read serves all of them.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) address: PageAddress,
    /// Positions of the tasks in [`Allocation::tasks`].
    pub(super) tasks: Range<usize>,
    /// Number of vectors of queries that are sent with the read.
    pub(super) queries: u32,
}

/// Tasks in groups, and groups in rounds that are executed one after another.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    pub(super) tasks: Vec<Task>,
    pub(super) groups: Vec<Group>,
    pub(super) rounds: Vec<Range<usize>>,
}

/// Options of the allocator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocating {
    /// Whether all queries share the read of a page (batch-wise dynamic allocating). Otherwise each query has its own
    /// reads.
    pub(super) together: bool,
    /// Number of queries that the queue of a LUN can hold. If there are more, they wait for another round.
    pub(super) queue: usize,
}

impl Allocation {
    /// Allocates tasks. `wanted` has the query and vertex of each, sorted by query.
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

    /// Divides tasks into rounds. In a round, no LUN has more queries than its queue can hold, unless the round
    /// consists of a single query.
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
                    // Tasks are sorted by query. If the last task of this LUN was for another query, the LUN does not
                    // have the vector yet.
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
        // `PageAddress` is ordered by LUN and page before block and plane. Thus pages that planes can sense together
        // are adjacent.
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
