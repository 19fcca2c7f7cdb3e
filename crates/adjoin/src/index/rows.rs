//! Stores the further rows of vertices, and the ids of all rows.
//!
//! Rows with equal vectors share a vertex. The number of the first row of a vertex is on its page; the other rows are
//! its *further rows*. Each row has a number in the index, its *entry*. The entry of a first row is the number of its
//! vertex. The entries of further rows follow, sorted by vertex.
//!
//! The file of duplicates has three parts. The first is the number of vertices with further rows (u64). The second has
//! each of these vertices with the end of its rows in the third part (u32, u32). The third part has the row numbers of
//! all further rows (u64). Ids are stored by entry, as i64, or as the ends of all texts (u64) followed by the texts.

use std::collections::BinaryHeap;
use std::path::Path;

use adjoin_device::{ReadFile, Reservation};

use super::blocks::{BlockReader, BlockWriter, Unreadable, file_bytes};
use super::drafting::{Draft, Drafted};
use super::layout::Places;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::execute::Hit;
use crate::source::{IdKind, Ids};
use crate::store::{Drafts, PartitionSizes, Partitions, Role};

const NUMBER_BYTES: usize = size_of::<u64>();

/// Further rows of all vertices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Duplicates {
    /// Vertices with further rows, ascending, each with the end of its rows in `rows`.
    ends: Vec<(u32, u32)>,
    rows: Vec<u64>,
}

/// A new order of the entries of an index.
#[derive(Clone, Copy)]
pub(super) struct EntryOrder<'a> {
    /// New place of each vertex.
    pub(super) places: &'a Places,
    /// Further rows of vertices, by new place.
    pub(super) duplicates: &'a Duplicates,
}

impl Duplicates {
    /// Appends the further rows of a vertex. Both the rows and the vertices must be appended in ascending order.
    pub(super) fn push(&mut self, vertex: u32, rows: impl Iterator<Item = u64>) {
        let before = self.rows.len();
        self.rows.extend(rows);
        if self.rows.len() > before {
            self.ends.push((vertex, self.rows.len() as u32));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns all further rows, by vertex.
    pub(super) fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Returns the vertex of a further row, given its position among all further rows.
    pub(super) fn vertex_of(&self, further: usize) -> u32 {
        self.ends[self.ends.partition_point(|&(_, end)| end as usize <= further)].0
    }

    /// Returns the further rows of a vertex, and the position of the first of them among all further rows.
    pub(super) fn of(&self, vertex: u32) -> (usize, &[u64]) {
        match self.ends.binary_search_by_key(&vertex, |&(vertex, _)| vertex) {
            Ok(place) => {
                let start = if place == 0 { 0 } else { self.ends[place - 1].1 as usize };
                (start, &self.rows[start..self.ends[place].1 as usize])
            }
            Err(_) => (0, &[]),
        }
    }

    /// Returns the number of further rows of some vertices.
    pub(super) fn further(&self, vertices: impl Iterator<Item = u32>) -> u64 {
        if self.rows.is_empty() { 0 } else { vertices.map(|vertex| self.of(vertex).1.len() as u64).sum() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (self.ends.len() as u64).to_le_bytes().to_vec();
        bytes.extend(self.ends.iter().flat_map(|&(vertex, end)| [vertex.to_le_bytes(), end.to_le_bytes()].concat()));
        bytes.extend(self.rows.iter().flat_map(|row| row.to_le_bytes()));
        bytes
    }

    /// Decodes the bytes that [`Self::to_bytes`] encoded, for an index of `vertices` vertices. Returns `None` if the
    /// bytes are invalid.
    pub(super) fn from_bytes(bytes: &[u8], vertices: u32) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<NUMBER_BYTES>();
        let (&count, numbers) = numbers.split_first()?;
        let (ends, rows) = numbers.split_at_checked(usize::try_from(u64::from_le_bytes(count)).ok()?)?;
        let half = |number: &[u8; 8], at: usize| {
            u32::from_le_bytes([number[at], number[at + 1], number[at + 2], number[at + 3]])
        };
        let ends: Vec<(u32, u32)> = ends.iter().map(|number| (half(number, 0), half(number, 4))).collect();
        let rows: Vec<u64> = rows.iter().map(|&row| u64::from_le_bytes(row)).collect();
        let ascends = ends.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
        let last = ends.last().map_or((0, 0), |&(vertex, end)| (vertex, end as usize));
        (rest.is_empty() && ascends && last.0 < vertices && last.1 == rows.len()).then_some(Self { ends, rows })
    }

    /// Returns the `k` nearest rows of some vertices, as hits whose places are entries. `hits` has a hit for each
    /// vertex, nearest first, with the vertex as its place. Only entries for which `counts` returns `true` are
    /// returned. At most `k` hits are held in memory, no matter how many rows a vertex has.
    pub(super) fn expand(&self, vertices: u32, hits: Vec<Hit>, k: usize, counts: impl Fn(u32) -> bool) -> Vec<Hit> {
        let mut nearest: BinaryHeap<Hit> = BinaryHeap::with_capacity(hits.len().min(k));
        for hit in hits {
            // Hits are sorted by distance. If a hit is farther than all `k` held ones, so are all hits after it.
            let is_beyond = |farthest: &Hit| farthest.nearness < hit.nearness;
            if nearest.len() == k && nearest.peek().is_none_or(is_beyond) {
                break;
            }
            let (first, rows) = self.of(hit.place.0);
            let entries = vertices + first as u32..;
            let further = entries.zip(rows).map(|(entry, &row)| Hit { row, place: (entry, 0), ..hit });
            for hit in std::iter::once(hit).chain(further).filter(|hit| counts(hit.place.0)) {
                if nearest.len() < k {
                    nearest.push(hit);
                } else if let Some(mut farthest) = nearest.peek_mut()
                    && hit < *farthest
                {
                    *farthest = hit;
                } else {
                    break; // further rows have larger numbers
                }
            }
        }
        nearest.into_sorted_vec()
    }
}

/// Writer of the file of ids. Ids are written in the order of entries.
pub(super) struct IdDraft {
    blocks: BlockWriter,
    /// Texts so far, and the end of the last one. They are written after the ends of all texts.
    texts: Option<(Partitions, u64)>,
    _memory: Reservation,
}

impl IdDraft {
    /// Creates the file. Most texts are held in a temporary file rather than in memory.
    ///
    /// # Errors
    /// If the file cannot be created, or if memory does not suffice.
    pub(super) fn new(
        context: &Context,
        drafts: &Drafts<'_>,
        temporary: &Path,
        kind: IdKind,
        purpose: &str,
    ) -> Result<Self> {
        // There is a single partition, which keeps the texts in their order.
        let sizes = PartitionSizes::within(0, 1);
        let memory = context.reserve(if kind == IdKind::Utf8 { sizes.memory_bytes() } else { 0 }, purpose)?;
        let texts = (kind == IdKind::Utf8).then(|| (Partitions::new(context, temporary, "adjoin-ids", sizes), 0));
        Ok(Self { blocks: BlockWriter::new(Draft::new(context, drafts, Role::Ids)?), texts, _memory: memory })
    }

    /// Appends the bytes of the next entry's id, which are empty if there are no ids.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn push(&mut self, id: &[u8]) -> Result<()> {
        match &mut self.texts {
            None => self.blocks.append(id),
            Some((texts, end)) => {
                *end += id.len() as u64;
                // In the file, the ends of all texts precede the texts, so texts are held back until `finish`.
                texts.push(0, &[id])?;
                self.blocks.append(&end.to_le_bytes())
            }
        }
    }

    /// Appends the texts, if there are any, and completes the file.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn finish(mut self) -> Result<Drafted> {
        if let Some((texts, _)) = self.texts {
            texts.finish()?.read(0, |block| self.blocks.append(block))?;
        }
        self.blocks.finish()
    }
}

/// Returns the least length of a file with the ids of `entries` entries.
pub(super) fn least_id_bytes(kind: IdKind, entries: u64) -> u64 {
    match kind {
        IdKind::None => 0,
        IdKind::Int64 | IdKind::Utf8 => file_bytes(NUMBER_BYTES as u64 * entries),
    }
}

/// Reader of the ids of entries.
pub(super) struct IdReader<'a> {
    kind: IdKind,
    entries: u64,
    blocks: BlockReader<'a>,
    /// Second reader, for the ends of texts. They are far from the texts in the file, so each reader caches its own
    /// block.
    ends: BlockReader<'a>,
}

impl<'a> IdReader<'a> {
    /// Creates a reader for a file with the ids of `entries` entries.
    pub(super) fn new(kind: IdKind, entries: u64, file: &'a dyn ReadFile) -> Self {
        Self { kind, entries, blocks: BlockReader::new(file), ends: BlockReader::new(file) }
    }

    /// Returns the ids of entries, in their order. Reads each block once.
    pub(super) fn of(&mut self, entries: &[u32]) -> std::result::Result<Ids, Unreadable> {
        let mut ids = Ids::empty(self.kind);
        if self.kind == IdKind::None {
            return Ok(ids);
        }
        // Read the ids by ascending entry, so that each block is read once. Then restore the order in which the caller
        // lists them.
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_unstable_by_key(|&hit| entries[hit as usize]);
        let mut found = Ids::empty(self.kind);
        for &hit in &order {
            self.append(entries[hit as usize], &mut found, &mut |_| true)?;
        }
        let mut found_at = vec![0u32; entries.len()];
        (0..).zip(&order).for_each(|(at, &hit)| found_at[hit as usize] = at);
        found_at.iter().for_each(|&at| ids.push_from(&found, at as usize));
        Ok(ids)
    }

    /// Appends the id of an entry if `has_room` returns `true` for the bytes of the id. Returns whether it does.
    /// Reading is fastest if entries ascend.
    pub(super) fn append(
        &mut self,
        entry: u32,
        ids: &mut Ids,
        has_room: &mut dyn FnMut(u64) -> bool,
    ) -> std::result::Result<bool, Unreadable> {
        let (start, end) = self.span(entry.into())?;
        let fits = has_room(end - start);
        if fits {
            self.push(start, end, ids)?;
        }
        Ok(fits)
    }

    /// Returns the range of the contents in which the id of an entry is stored.
    fn span(&mut self, entry: u64) -> std::result::Result<(u64, u64), Unreadable> {
        let width = NUMBER_BYTES as u64;
        if self.kind == IdKind::Int64 {
            return Ok((width * entry, width * (entry + 1)));
        }
        let texts = width * self.entries;
        let end = self.number(width * entry)?;
        let start = if entry == 0 { 0 } else { self.number(width * (entry - 1))? };
        let (from, to) = (texts.saturating_add(start), texts.saturating_add(end));
        // A text cannot be longer than its file. This check keeps a damaged end of a text from allocating much memory.
        if start > end || to > self.blocks.held_bytes() {
            return Err(Unreadable::Impossible(entry));
        }
        Ok((from, to))
    }

    fn number(&mut self, at: u64) -> std::result::Result<u64, Unreadable> {
        let mut bytes = Vec::with_capacity(NUMBER_BYTES);
        self.ends.read(at..at + NUMBER_BYTES as u64, &mut bytes)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn push(&mut self, start: u64, end: u64, ids: &mut Ids) -> std::result::Result<(), Unreadable> {
        let mut bytes = Vec::new();
        self.blocks.read(start..end, &mut bytes)?;
        match ids {
            Ids::None => {}
            Ids::Int64(ids) => {
                ids.extend(bytes.as_chunks::<NUMBER_BYTES>().0.iter().map(|&id| i64::from_le_bytes(id)));
            }
            Ids::Utf8(texts) => texts.push(&bytes),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Duplicates {
        let mut duplicates = Duplicates::default();
        for (vertex, rows) in [(0, vec![]), (2, vec![9, 12]), (3, vec![]), (7, vec![30])] {
            duplicates.push(vertex, rows.into_iter());
        }
        duplicates
    }

    #[test]
    fn duplicates_round_trip_and_invalid_bytes_are_refused() {
        let bytes = sample().to_bytes();
        assert_eq!(Duplicates::from_bytes(&bytes, 8), Some(sample()));
        assert_eq!((sample().of(2), sample().of(7), sample().of(3)), ((0, &[9, 12][..]), (2, &[30][..]), (0, &[][..])));
        assert_eq!(Duplicates::from_bytes(&bytes, 7), None, "there is no vertex 7");
        assert_eq!([0, 1, 2].map(|further| sample().vertex_of(further)), [2, 2, 7]);
        (0..bytes.len()).for_each(|len| assert_eq!(Duplicates::from_bytes(&bytes[..len], 8), None, "{len} bytes"));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x81;
            if let Some(other) = Duplicates::from_bytes(&other, 8) {
                (0..8).for_each(|vertex| assert!(other.of(vertex).1.len() <= 3));
            }
        }
    }

    #[test]
    fn hits_of_a_vertex_expand_to_its_rows() {
        let hit = |nearness, row, place| Hit { nearness, row, place: (place, 0) };
        let found = sample().expand(8, vec![hit(1.0, 5, 2), hit(1.0, 10, 3), hit(2.0, 1, 7)], 4, |_| true);
        let rows: Vec<(u64, u32)> = found.iter().map(|hit| (hit.row, hit.place.0)).collect();
        assert_eq!(rows, [(5, 2), (9, 8), (10, 3), (12, 9)]);
    }

    #[test]
    fn expanding_vertices_of_many_rows_keeps_only_the_nearest_hits() {
        let mut duplicates = Duplicates::default();
        for vertex in 0..4_u32 {
            duplicates.push(vertex, (1..10_000).map(|copy| u64::from(vertex) + 4 * copy));
        }
        let of = |vertex: u32| Hit { nearness: f64::from(vertex / 2), row: vertex.into(), place: (vertex, 0) };
        let vertices = || (0..4).map(of).collect::<Vec<_>>();
        let found = duplicates.expand(4, vertices(), 5, |_| true);
        assert!(found.capacity() <= 8, "room for {}", found.capacity());
        assert_eq!(found.iter().map(|hit| hit.row).collect::<Vec<_>>(), [0, 1, 4, 5, 8]);
        let odd = duplicates.expand(4, vertices(), 3, |entry| entry % 2 == 1);
        assert_eq!(odd.iter().map(|hit| hit.row).collect::<Vec<_>>(), [1, 5, 8]);
        assert_eq!(duplicates.expand(4, vertices(), usize::MAX, |_| true).len(), 40_000);
        assert!(duplicates.expand(4, vertices(), 0, |_| true).is_empty());
    }
}
