//! What two buckets know of each other, brought together: each says it of many others, and an edge needs both.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::context::Context;
use crate::error::Result;
use crate::plan::EdgeSide;
use crate::report::Cancel;
use crate::store::{PartitionSizes, Partitions, Records};
use crate::workers::{lock, map_items};

/// Sides of edges on their way to each other: buckets lie in stripes, and a cell holds the sides between two stripes, in
/// both directions. Cells that follow each other share a partition. What does not fit into memory goes to a temporary file.
pub(super) struct EdgeSides<'a, S> {
    context: &'a Context,
    grid: Grid,
    partitions: usize,
    /// Bytes of sides that are looked at at once.
    looked_at: u64,
    taken: Mutex<Taken>,
    of: PhantomData<S>,
}

/// Which stripe a bucket lies in, and which cell an edge.
#[derive(Clone, Copy)]
struct Grid {
    buckets: u64,
    stripes: u64,
}

impl Grid {
    /// Pairs of stripes, numbered row by row.
    fn cell(self, (i, j): (u32, u32)) -> usize {
        let stripe = |bucket: u32| u64::from(bucket) * self.stripes / self.buckets;
        let (low, high) = (stripe(i), stripe(j));
        (low * self.stripes - low * low.saturating_sub(1) / 2 + (high - low)) as usize
    }
}

struct Taken {
    sides: Partitions,
    /// Sides in each cell.
    cells: Vec<u32>,
}

impl<'a, S: EdgeSide> EdgeSides<'a, S> {
    /// None yet; `memory` bytes are for them.
    pub(super) fn new(context: &'a Context, buckets: u32, memory: u64) -> Self {
        let buckets = u64::from(buckets);
        // An eighth for the numbers of cells, a quarter for cells that are looked at: one is as large as that if every
        // bucket is near every other.
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

    /// Takes what a bucket says.
    pub(super) fn take(&self, sides: impl Iterator<Item = S>) -> Result<()> {
        let Taken { sides: partitions, cells } = &mut *lock(&self.taken);
        for side in sides {
            let cell = self.grid.cell(side.edge());
            cells[cell] += 1;
            partitions.push(cell * self.partitions / cells.len(), &[side.as_bytes()])?;
        }
        Ok(())
    }

    /// Ends the taking.
    pub(super) fn gather(self) -> Result<Gathered<S>> {
        let Self { context, grid, partitions, looked_at, taken, .. } = self;
        let Taken { sides, cells } = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (records, most) = (sides.finish()?, looked_at as usize / size_of::<S>());
        Ok(Gathered { cancel: context.cancel.clone(), grid, partitions, most, records, cells, of: PhantomData })
    }
}

/// All sides.
pub(super) struct Gathered<S> {
    cancel: Cancel,
    grid: Grid,
    partitions: usize,
    /// Sides that are looked at at once.
    most: usize,
    records: Records,
    cells: Vec<u32>,
    of: PhantomData<S>,
}

/// Cells whose sides are looked at at once.
struct Group {
    partition: usize,
    cells: Range<usize>,
    /// How many there are.
    sides: usize,
}

impl<S: EdgeSide> Gathered<S> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.cells.iter().map(|&count| count as usize).sum()
    }

    /// Bytes that they hold in memory, also while they are handed over.
    pub(super) fn bytes(&self) -> u64 {
        self.records.held_bytes() + (self.most * size_of::<S>() + size_of_val(&*self.cells)) as u64
    }

    /// Hands over all sides, both of an edge at once and one behind the other.
    pub(super) fn each(&self, mut take: impl FnMut(&[S]) -> Result<()>) -> Result<()> {
        let mut sides = Vec::new();
        self.groups().iter().try_for_each(|group| {
            self.cancel.check()?;
            self.read(group, &mut sides)?;
            take(&sides)
        })
    }

    /// The same on several threads, each of which holds as many sides at once as [`Gathered::each`] does; returns what
    /// `work` makes of them, in the order of their edges.
    pub(super) fn map<R: Send>(&self, threads: usize, work: impl Fn(&[S]) -> R + Sync) -> Result<Vec<R>> {
        let groups = self.groups();
        map_items(threads, groups.len(), &self.cancel, Vec::new, |sides, group| {
            self.read(&groups[group], sides)?;
            Ok(work(sides))
        })
    }

    /// Bytes that [`Gathered::map`] holds beside what [`Gathered::bytes`] says.
    pub(super) fn bytes_of_map(&self, threads: usize) -> u64 {
        ((threads.max(1) - 1) * self.most * size_of::<S>()) as u64
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

    /// Reads the sides of a group and puts them in order.
    fn read(&self, Group { partition, cells, sides: count }: &Group, sides: &mut Vec<S>) -> Result<()> {
        sides.clear();
        sides.reserve_exact(*count);
        self.records.read(*partition, |bytes| {
            let side = |bytes| S::read_from_bytes(bytes).expect("chunks are as long as a side");
            let all = bytes.chunks_exact(size_of::<S>()).map(side);
            sides.extend(all.filter(|side| cells.contains(&self.grid.cell(side.edge()))));
            Ok(())
        })?;
        assert_eq!(sides.len(), *count, "what was counted is there");
        sides.sort_unstable_by_key(|side| (side.edge(), side.direction().0));
        Ok(())
    }
}

/// Room for the edges of so many sides, as far as memory reaches: what is not used is not touched, and a vector that grew
/// would be held twice while it does.
pub(super) fn room_for_edges<E>(context: &Context, sides: usize) -> Vec<E> {
    Vec::with_capacity(sides.min(context.budget().free() as usize / size_of::<E>()))
}

/// Cells that follow each other, in groups of at most `most` sides where they allow it, with the number of these.
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
    use crate::plan::LeastMargin;
    use crate::random::Random;

    /// With little memory many cells share a partition, which is looked at in parts.
    #[test]
    fn both_sides_of_an_edge_come_together_and_no_more_at_once_than_there_is_memory_for() {
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
