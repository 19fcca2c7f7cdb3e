//! Brings the two sides of each edge together. A pass over a bucket produces one side of each of its edges. An edge is
//! computed from both of its sides.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::report::Cancel;
use crate::base::workers::map_items;
use crate::plan::{EdgeSide, Task};
use crate::store::{PartitionSizes, Partitions, Records};

/// Collects the sides of edges. Buckets are divided into stripes. A cell holds the sides of all edges between two
/// stripes, in both directions. Consecutive cells are stored in one partition. Sides that do not fit in memory are
/// written to a temporary file.
pub(super) struct EdgeSides<'a, S> {
    context: &'a Context,
    grid: Grid,
    partitions: usize,
    /// Bytes of sides to process at once.
    looked_at: u64,
    taken: Mutex<Taken>,
    of: PhantomData<S>,
}

/// Maps buckets to stripes and edges to cells.
#[derive(Clone, Copy)]
struct Grid {
    buckets: u64,
    stripes: u64,
}

impl Grid {
    /// Returns the cell of an edge. Cells are pairs of stripes, numbered row by row.
    fn cell(self, edge: Task) -> usize {
        let (i, j) = edge;
        let stripe = |bucket: u32| u64::from(bucket) * self.stripes / self.buckets;
        let (low, high) = (stripe(i), stripe(j));
        (low * self.stripes - low * low.saturating_sub(1) / 2 + (high - low)) as usize
    }
}

struct Taken {
    sides: Partitions,
    /// Number of sides in each cell.
    cells: Vec<u32>,
}

impl<'a, S: EdgeSide> EdgeSides<'a, S> {
    /// Creates an empty collection that uses `memory` bytes.
    pub(super) fn new(context: &'a Context, buckets: u32, memory: u64) -> Self {
        let buckets = u64::from(buckets);
        // One eighth of the memory is for the counts of cells, and one quarter for the cells being processed. The
        // number of stripes is such that a cell fits there even if all buckets are near each other.
        let (held, looked_at, most) = (memory / 8 * 5, memory / 4, memory / 8 / size_of::<u32>() as u64);
        let all = buckets * buckets * size_of::<S>() as u64;
        let stripes = ((2 * all).div_ceil(looked_at.max(1)).isqrt() + 1).min((2 * most).isqrt().max(1));
        let cells = stripes * (stripes + 1) / 2;
        let sizes = PartitionSizes::within(held, cells);
        let sides = Partitions::new(context, &context.temporary(None), "edges", sizes);
        let taken = Mutex::new(Taken { sides, cells: vec![0; cells as usize] });
        let grid = Grid { buckets, stripes };
        Self { context, grid, partitions: sizes.partitions, looked_at, taken, of: PhantomData }
    }

    /// Adds sides of edges of a bucket.
    pub(super) fn take(&self, sides: impl Iterator<Item = S>) -> Result<()> {
        let Taken { sides: partitions, cells } = &mut *lock(&self.taken);
        for side in sides {
            let cell = self.grid.cell(side.edge());
            cells[cell] += 1;
            partitions.push(cell * self.partitions / cells.len(), &[side.as_bytes()])?;
        }
        Ok(())
    }

    /// Ends the collection, and returns the collected sides.
    pub(super) fn gather(self) -> Result<Gathered<S>> {
        let Self { context, grid, partitions, looked_at, taken, .. } = self;
        let Taken { sides, cells } = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (records, most) = (sides.finish()?, looked_at as usize / size_of::<S>());
        Ok(Gathered { cancel: context.cancel.clone(), grid, partitions, most, records, cells, of: PhantomData })
    }
}

/// All collected sides of edges.
pub(super) struct Gathered<S> {
    cancel: Cancel,
    grid: Grid,
    partitions: usize,
    /// Number of sides to process at once.
    most: usize,
    records: Records,
    cells: Vec<u32>,
    of: PhantomData<S>,
}

/// Cells that are processed at once.
struct Group {
    partition: usize,
    cells: Range<usize>,
    /// Number of sides in these cells.
    sides: usize,
}

impl<S: EdgeSide> Gathered<S> {
    /// Returns the number of sides.
    pub(super) fn count(&self) -> usize {
        self.cells.iter().map(|&count| count as usize).sum()
    }

    /// Returns the memory in bytes of the sides, including the buffers for reading them.
    pub(super) fn bytes(&self) -> u64 {
        self.records.held_bytes() + size_of_val(&*self.cells) as u64 + self.bytes_of_reading()
    }

    fn bytes_of_reading(&self) -> u64 {
        (self.most * size_of::<S>()) as u64 + self.records.reading_bytes()
    }

    /// Passes all sides to `take`, in slices. Both sides of an edge are adjacent in one slice.
    pub(super) fn each(&self, mut take: impl FnMut(&[S]) -> Result<()>) -> Result<()> {
        let mut sides = Vec::new();
        self.groups().iter().try_for_each(|group| {
            self.cancel.check()?;
            self.read(group, &mut sides)?;
            take(&sides)
        })
    }

    /// Passes all sides to `work`, on several threads. Each thread holds as many sides at once as [`Gathered::each`].
    /// Returns the results in the order of edges.
    pub(super) fn map<R: Send>(&self, threads: usize, work: impl Fn(&[S]) -> R + Sync) -> Result<Vec<R>> {
        let groups = self.groups();
        map_items(threads, groups.len(), &self.cancel, Vec::new, |sides, group| {
            self.read(&groups[group], sides)?;
            Ok(work(sides))
        })
    }

    /// Returns the memory in bytes of [`Gathered::map`], in addition to [`Gathered::bytes`].
    pub(super) fn bytes_of_map(&self, threads: usize) -> u64 {
        (threads.max(1) - 1) as u64 * self.bytes_of_reading()
    }

    fn groups(&self) -> Vec<Group> {
        let Self { partitions, most, ref cells, .. } = *self;
        let first = |partition: usize| (partition * cells.len()).div_ceil(partitions);
        let of = |partition| {
            let groups = groups(cells, first(partition)..first(partition + 1), most).into_iter();
            groups.map(move |(cells, sides)| Group { partition, cells, sides })
        };
        (0..partitions).flat_map(of).collect()
    }

    /// Reads and sorts the sides of a group.
    fn read(&self, Group { partition, cells, sides: count }: &Group, sides: &mut Vec<S>) -> Result<()> {
        sides.clear();
        sides.reserve_exact(*count);
        self.records.read(*partition, |bytes| {
            let side = |bytes| S::read_from_bytes(bytes).expect("chunks are as long as a side");
            let all = bytes.chunks_exact(size_of::<S>()).map(side);
            // A partition may have cells of other groups too.
            sides.extend(all.filter(|side| cells.contains(&self.grid.cell(side.edge()))));
            Ok(())
        })?;
        assert_eq!(sides.len(), *count, "all counted sides were read");
        // After the sort, the two sides of an edge are adjacent, and the order does not depend on threads.
        sides.sort_unstable_by_key(|side| (side.edge(), side.direction().0));
        Ok(())
    }
}

/// Allocates a vector with capacity for the edges of `sides` sides, limited by the free memory. Unused capacity is
/// never touched, so it takes no memory. A vector that grows would exist twice.
pub(super) fn room_for_edges<E>(context: &Context, sides: usize) -> Vec<E> {
    Vec::with_capacity(sides.min(context.budget().free() as usize / size_of::<E>()))
}

/// Groups consecutive cells. A group has at most `most` sides, unless a single cell has more. Returns the cells and
/// the number of sides of each group.
fn groups(cells: &[u32], of: Range<usize>, most: usize) -> Vec<(Range<usize>, usize)> {
    let mut groups: Vec<(Range<usize>, usize)> = Vec::new();
    for cell in of {
        let count = cells[cell] as usize;
        match groups.last_mut().filter(|(_, held)| *held + count <= most) {
            Some((group, held)) => (group.end, *held) = (cell + 1, *held + count),
            None => groups.push((cell..cell + 1, count)),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use crate::plan::LeastMargin;

    /// If memory is short, many cells share a partition, which is processed in parts.
    #[test]
    fn edge_sides_are_grouped_within_memory() {
        let (buckets, context) = (3_000, Context::default());
        let mut random = Random::new(1, "sides");
        let memory = 1 << 20;
        let sides = EdgeSides::new(&context, buckets, memory);
        let mut wanted = Vec::new();
        for _ in 0..100_000 {
            let (i, j) = (random.below(buckets.into()) as u32, random.below(buckets.into()) as u32);
            if i != j {
                let both = [(i, j), (j, i)].map(|(from, towards)| LeastMargin { from, towards, margin: 1.0 });
                sides.take(both.into_iter()).unwrap();
                wanted.extend(both.map(|side| side.direction()));
            }
        }
        let (mut found, mut most) = (Vec::new(), 0);
        let take = |sides: &[LeastMargin]| {
            assert!(sides.chunk_by(|a, b| a.edge() == b.edge()).all(|of_edge| of_edge.len() % 2 == 0));
            most = most.max(size_of_val(sides));
            found.extend(sides.iter().map(|side| side.direction()));
            Ok(())
        };
        let gathered = sides.gather().unwrap();
        assert_eq!(gathered.count(), wanted.len());
        gathered.each(take).unwrap();
        assert!(most <= memory as usize / 4, "{most}");
        wanted.sort_unstable();
        found.sort_unstable();
        assert!(found == wanted);
    }
}
