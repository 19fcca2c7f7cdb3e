//! Sets of rows whose snapshots share memory, for rows that are deleted while searches run.
//!
//! A set is a bitmap in chunks, which a directory of two levels finds. A snapshot is a clone and takes constant time. A
//! change copies the chunk, the group and the directory on its path if a snapshot shares them. Chunks without rows take
//! no memory. Each chunk, group and directory knows the number of rows in it.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::Reservation;

use super::row_numbers::RowSet;

/// Number of rows of a chunk. A chunk takes 1 KiB, so that copying it is fast and a single row takes little memory.
const CHUNK_ROWS: u64 = 1 << 13;
/// Number of rows of a group, which has 256 chunks.
const GROUP_ROWS: u64 = CHUNK_ROWS << 8;
const CHUNKS: usize = (GROUP_ROWS / CHUNK_ROWS) as usize;
const WORDS: usize = CHUNK_ROWS as usize / u64::BITS as usize;
/// Approximate bytes of the head of an allocation that is shared.
const HEAD_BYTES: usize = 32;

/// A set of rows below a limit. A clone is a snapshot, which later changes of the set do not affect.
#[derive(Clone)]
pub(crate) struct SharedRows {
    /// `None` if the set never had a row.
    directory: Slot<Directory>,
    /// Limit of the rows.
    end: u64,
}

/// A part of a set, if it has any rows.
type Slot<C> = Option<Arc<Part<C>>>;

/// A part of a set that snapshots share. It holds the reservation of its own memory, so that a copy that only a
/// snapshot uses is counted until the snapshot is dropped.
struct Part<C> {
    content: C,
    _memory: Reservation,
}

/// The groups of all rows.
#[derive(Clone, Default)]
struct Directory {
    groups: Vec<Slot<Group>>,
    count: u64,
}

#[derive(Clone)]
struct Group {
    chunks: [Slot<Chunk>; CHUNKS],
    count: u64,
}

#[derive(Clone)]
struct Chunk {
    words: [u64; WORDS],
    count: u64,
}

impl Default for Group {
    fn default() -> Self {
        Self { chunks: std::array::from_fn(|_| None), count: 0 }
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self { words: [0; WORDS], count: 0 }
    }
}

/// Returns the bytes of a part with content of type `C`.
const fn part_bytes<C>() -> u64 {
    (size_of::<Part<C>>() + HEAD_BYTES) as u64
}

/// Returns the bytes of the directory of a set of rows below `end`.
fn directory_bytes(end: u64) -> u64 {
    part_bytes::<Directory>() + end.div_ceil(GROUP_ROWS) * size_of::<Slot<Group>>() as u64
}

/// Returns the content of a slot for a change. Builds it if there is none, and copies it if a snapshot shares it. A new
/// part takes `bytes` bytes of `memory`.
fn changed<'a, C: Clone + Default>(slot: &'a mut Slot<C>, bytes: u64, memory: &mut Reservation) -> &'a mut C {
    if slot.as_mut().and_then(Arc::get_mut).is_none() {
        let content = slot.as_ref().map_or_else(C::default, |part| part.content.clone());
        *slot = Some(Arc::new(Part { content, _memory: memory.split(bytes) }));
    }
    let part = slot.as_mut().and_then(Arc::get_mut);
    &mut part.expect("a part that was just built is not shared").content
}

impl SharedRows {
    /// Creates an empty set of rows below `end`.
    pub(crate) fn new(end: u64) -> Self {
        Self { directory: None, end }
    }

    /// Returns an upper bound in bytes on the memory for changing the membership of `count` rows below `end`. The set
    /// is not cloned meanwhile.
    pub(crate) fn change_bytes(count: u64, end: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let (groups, chunks) = (end.div_ceil(GROUP_ROWS).min(count), end.div_ceil(CHUNK_ROWS).min(count));
        directory_bytes(end) + groups * part_bytes::<Group>() + chunks * part_bytes::<Chunk>()
    }

    /// Extends the set, so that it can hold the rows below `end`.
    pub(crate) fn grow(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Adds a row. Takes the memory of new and copied parts from `memory`. Returns `false` if the set has the row.
    ///
    /// # Panics
    /// Panics if the row is beyond the end of the set, or if `memory` is too small.
    pub(crate) fn insert(&mut self, row: u64, memory: &mut Reservation) -> bool {
        let is_new = !self.contains(row);
        if is_new {
            self.change(row, memory, |word, bit| *word |= bit, |count| *count += 1);
        }
        is_new
    }

    /// Removes a row. Takes the memory of copied parts from `memory`. Returns `false` if the set does not have the row.
    ///
    /// # Panics
    /// Panics if `memory` is too small.
    pub(crate) fn remove(&mut self, row: u64, memory: &mut Reservation) -> bool {
        let is_there = self.contains(row);
        if is_there {
            self.change(row, memory, |word, bit| *word &= !bit, |count| *count -= 1);
        }
        is_there
    }

    /// Changes the bit of a row, and the counts of all parts with this row.
    fn change(
        &mut self,
        row: u64,
        memory: &mut Reservation,
        turn: impl FnOnce(&mut u64, u64),
        recount: impl Fn(&mut u64),
    ) {
        assert!(row < self.end, "row {row} of {}", self.end);
        let (group, chunk, word) = place(row);
        self.extend_directory(memory);
        let directory = changed(&mut self.directory, directory_bytes(self.end), memory);
        recount(&mut directory.count);
        let group = changed(&mut directory.groups[group], part_bytes::<Group>(), memory);
        recount(&mut group.count);
        let chunk = changed(&mut group.chunks[chunk], part_bytes::<Chunk>(), memory);
        recount(&mut chunk.count);
        turn(&mut chunk.words[word], 1 << (row % u64::from(u64::BITS)));
    }

    /// Replaces a directory that does not reach to the end of the set.
    fn extend_directory(&mut self, memory: &mut Reservation) {
        let count = self.end.div_ceil(GROUP_ROWS) as usize;
        if self.groups().len() < count {
            let mut groups = Vec::with_capacity(count);
            groups.extend_from_slice(self.groups());
            groups.resize_with(count, || None);
            let content = Directory { groups, count: self.len() };
            self.directory = Some(Arc::new(Part { content, _memory: memory.split(directory_bytes(self.end)) }));
        }
    }

    /// Returns whether the set has a row. Rows beyond its end are not in the set.
    pub(crate) fn contains(&self, row: u64) -> bool {
        let (group, chunk, word) = place(row);
        let group = self.groups().get(group).and_then(Option::as_ref);
        let chunk = group.and_then(|group| group.content.chunks[chunk].as_ref());
        chunk.is_some_and(|chunk| chunk.content.words[word] >> (row % u64::from(u64::BITS)) & 1 == 1)
    }

    fn groups(&self) -> &[Slot<Group>] {
        self.directory.as_ref().map_or(&[], |directory| &directory.content.groups)
    }

    /// Returns the number of rows in the set.
    pub(crate) fn len(&self) -> u64 {
        self.directory.as_ref().map_or(0, |directory| directory.content.count)
    }

    /// Returns the number of rows in the set that precede `row`. The counts of the parts bound the work.
    pub(crate) fn rank(&self, row: u64) -> u64 {
        let row = row.min(self.end);
        let (group, chunk, word) = place(row);
        let groups = self.groups();
        let before = groups[..group.min(groups.len())].iter().flatten().map(|group| group.content.count);
        let mut rank = before.sum();
        let Some(group) = groups.get(group).and_then(Option::as_ref) else { return rank };
        rank += group.content.chunks[..chunk].iter().flatten().map(|chunk| chunk.content.count).sum::<u64>();
        let Some(chunk) = &group.content.chunks[chunk] else { return rank };
        let words = &chunk.content.words;
        let last = words[word] & ((1 << (row % u64::from(u64::BITS))) - 1);
        rank + words[..word].iter().chain([&last]).map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// Returns the number of rows in `range` that are in the set.
    pub(crate) fn count_in(&self, range: Range<u64>) -> u64 {
        self.rank(range.end) - self.rank(range.start)
    }

    /// Iterates over the rows in the set, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let groups = (0..).step_by(GROUP_ROWS as usize).zip(self.groups());
        groups.filter_map(|(first, group)| Some((first, group.as_ref()?))).flat_map(|(first, group)| {
            let chunks = (first..).step_by(CHUNK_ROWS as usize).zip(&group.content.chunks);
            chunks.filter_map(|(first, chunk)| Some((first, chunk.as_ref()?))).flat_map(|(first, chunk)| {
                let words = (first..).step_by(u64::BITS as usize).zip(&chunk.content.words);
                words.filter(|&(_, &word)| word != 0).flat_map(|(first, &word)| {
                    (0..u64::from(u64::BITS)).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
                })
            })
        })
    }

    /// Returns the rows below `rows` that are not in the set.
    pub(crate) fn complement(&self, rows: u64) -> RowSet {
        let mut others = RowSet::all(rows);
        self.iter().take_while(|&row| row < rows).for_each(|row| others.remove(row));
        others
    }
}

/// Returns the position of a row: the group, the chunk in its group, and the word in its chunk.
fn place(row: u64) -> (usize, usize, usize) {
    let word = row % CHUNK_ROWS / u64::from(u64::BITS);
    ((row / GROUP_ROWS) as usize, (row % GROUP_ROWS / CHUNK_ROWS) as usize, word as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use adjoin_device::MemoryBudget;

    use super::*;
    use crate::base::allocated::{allocated, assert_states_bytes};
    use crate::base::random::Random;

    /// Sets at the ends of chunks and groups, and across them.
    const ENDS: [u64; 6] = [1, 64, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * GROUP_ROWS, 3 * GROUP_ROWS + 65];

    fn assert_equal(rows: &SharedRows, wanted: &BTreeSet<u64>, random: &mut Random) {
        assert_eq!(rows.len(), wanted.len() as u64);
        assert!(rows.iter().eq(wanted.iter().copied()));
        for _ in 0..20 {
            let (row, other) = (random.below(rows.end + 2), random.below(rows.end + 2));
            let range = row.min(other)..row.max(other);
            assert_eq!(rows.contains(row), wanted.contains(&row), "row {row}");
            assert_eq!(rows.rank(row), wanted.range(..row).count() as u64, "rank of {row}");
            assert_eq!(rows.count_in(range.clone()), wanted.range(range.clone()).count() as u64, "{range:?}");
        }
    }

    /// Changes sets at random, and takes snapshots between the changes. Each set and each snapshot must equal an
    /// ordered set with the same changes, no matter what was changed after the snapshot.
    #[test]
    fn sets_and_snapshots_equal_ordered_sets() {
        for (seed, end) in (0..).zip(ENDS) {
            let (mut random, budget) = (Random::new(seed, "shared rows"), MemoryBudget::new(64 << 20));
            let (mut rows, mut wanted, mut snapshots) = (SharedRows::new(end), BTreeSet::new(), Vec::new());
            for _ in 0..40 {
                let mut memory = budget.reserve(SharedRows::change_bytes(30, end)).unwrap();
                for _ in 0..30 {
                    // Half of the rows are near each other, so that rows are also removed and added again.
                    let below = if random.below(2) == 0 { end } else { end.min(100) };
                    let row = random.below(below);
                    match random.below(3) {
                        0 => assert_eq!(rows.remove(row, &mut memory), wanted.remove(&row)),
                        _ => assert_eq!(rows.insert(row, &mut memory), wanted.insert(row)),
                    }
                }
                assert_equal(&rows, &wanted, &mut random);
                snapshots.push((rows.clone(), wanted.clone()));
            }
            for (snapshot, wanted) in &snapshots {
                assert_equal(snapshot, wanted, &mut random);
            }
            let below = end.min(2 * CHUNK_ROWS);
            assert!(rows.complement(below).iter().eq((0..below).filter(|row| !wanted.contains(row))));
            drop((rows, snapshots));
            assert_eq!(budget.reserved(), 0, "parts return their memory");
        }
    }

    #[test]
    fn a_set_that_grows_keeps_its_rows() {
        let budget = MemoryBudget::new(1 << 20);
        let mut rows = SharedRows::new(10);
        let mut memory = budget.reserve(SharedRows::change_bytes(3, 3 * GROUP_ROWS) * 3).unwrap();
        assert!(rows.insert(9, &mut memory));
        let before = rows.clone();
        rows.grow(3 * GROUP_ROWS);
        assert!(rows.insert(3 * GROUP_ROWS - 1, &mut memory));
        assert!(rows.iter().eq([9, 3 * GROUP_ROWS - 1]));
        assert!(before.iter().eq([9]));
        assert!(!before.contains(3 * GROUP_ROWS - 1));
    }

    /// Returns the allocations and the bytes of one delete while a snapshot shares a set of `end` rows, of which every
    /// hundredth is deleted.
    fn cost_of_delete(end: u64) -> (u64, u64) {
        let budget = MemoryBudget::new(1 << 30);
        let mut rows = SharedRows::new(end);
        let mut memory = budget.reserve(SharedRows::change_bytes(end, end)).unwrap();
        (0..end).step_by(100).for_each(|row| assert!(rows.insert(row, &mut memory)));
        let mut memory = budget.reserve(SharedRows::change_bytes(1, end)).unwrap();
        let snapshots = allocation_counter::measure(|| drop(rows.clone()));
        assert_eq!(snapshots.count_total, 0, "a snapshot allocates nothing");
        let snapshot = rows.clone();
        let delete = allocation_counter::measure(|| assert!(rows.insert(end / 2 + 1, &mut memory)));
        assert_eq!(rows.len(), snapshot.len() + 1);
        let again = allocation_counter::measure(|| assert!(rows.insert(end / 2 + 2, &mut memory)));
        assert_eq!(again.count_total, 0, "parts that no snapshot shares are not copied");
        (delete.count_total, delete.bytes_total)
    }

    #[test]
    fn a_delete_copies_as_much_in_a_set_of_any_size() {
        let costs = [1, 10, 100].map(|millions| cost_of_delete(millions * 1_000_000));
        // The directory, its groups, a group and a chunk. Only the directory grows, by 8 bytes for two million rows.
        costs.iter().for_each(|&(count, bytes)| assert!(count == 4 && bytes < 4 << 10, "{costs:?}"));
    }

    #[test]
    fn parts_hold_at_most_the_bytes_that_are_reserved_for_them() {
        let end = 2 * GROUP_ROWS;
        for step in [CHUNK_ROWS, 10] {
            let (budget, count) = (MemoryBudget::new(1 << 30), end.div_ceil(step));
            let (rows, held) = allocated(|| {
                let mut rows = SharedRows::new(end);
                let mut memory = budget.reserve(SharedRows::change_bytes(count, end)).unwrap();
                (0..end).step_by(step as usize).for_each(|row| assert!(rows.insert(row, &mut memory)));
                assert_eq!(memory.bytes(), 0, "the bound is exact if each part gets a row");
                rows
            });
            assert_eq!(rows.len(), count);
            assert_states_bytes(held, budget.reserved());
        }
    }
}
