//! The records of one part of a join, and the pairs of all parts in order.
//!
//! The records of a part do not depend on threads or memory. Pairs are sorted by their rows. A cluster is stored as
//! pairs of its first row with every other row of the cluster. Counts are in the order of rows.

use std::path::Path;

use adjoin_device::Reservation;
use serde::{Deserialize, Serialize};

use super::components::Components;
use super::kept_pairs::{decoded, encoded};
use super::row_ids::{Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use super::tally::Tally;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};
use crate::base::sorter::{SORTER_BYTES_MIN, Sorted, Sorter};
use crate::load::Sets;
use crate::source::IdKind;

/// Maximum number of records in a frame, and maximum bytes of its ids.
const FRAME_RECORDS: usize = 8 << 10;
const FRAME_ID_BYTES: u64 = 256 << 10;
/// Memory of a frame and of the batch that is decoded from it.
const FRAMES_BYTES: u64 = 2 << 20;
/// Maximum memory of a sorter of pairs. It gets at most the free memory divided by `SORTER_SHARE`.
const SORTER_BYTES_MAX: u64 = 256 << 20;
const SORTER_SHARE: u64 = 8;
/// Bytes of an edge of a forest: two rows.
const EDGE_BYTES: usize = 2 * ROW_BYTES;
/// Bytes of a count: the row and the number.
const COUNT_BYTES: usize = ROW_BYTES + 8;

/// Records of the parts of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PartContent {
    /// Pairs with the ids of their rows.
    Pairs,
    /// Pairs of row numbers.
    Rows,
    /// A spanning forest of the pairs.
    Forest,
    /// The number of pairs of each row.
    Counts,
}

impl PartContent {
    /// Returns the minimum memory of the sink of a part, for a set with row numbers below `rows`.
    pub(crate) fn least_bytes(self, rows: u64) -> u64 {
        FRAMES_BYTES
            + match self {
                Self::Pairs | Self::Rows => SORTER_BYTES_MIN,
                Self::Forest => Components::memory_bytes(rows),
                Self::Counts => rows + SORTER_BYTES_MIN,
            }
    }
}

/// Sorts pairs by their rows, within any memory.
pub(crate) struct PairSorter {
    sorter: Sorter,
    ids: [IdKind; 2],
    payload: Vec<u8>,
    memory: Reservation,
}

impl PairSorter {
    /// Creates a sorter with a fraction of the free memory, and with temporary files in the folder `at`.
    ///
    /// # Errors
    /// If less than the minimum memory is free.
    pub(crate) fn new(context: &Context, at: &Path, ids: [IdKind; 2]) -> Result<Self> {
        let bytes = (context.budget().free() / SORTER_SHARE).clamp(SORTER_BYTES_MIN, SORTER_BYTES_MAX);
        let memory = context.reserve(bytes + FRAMES_BYTES, "sorting pairs")?;
        Ok(Self { sorter: Sorter::new(context, at, bytes), ids, payload: Vec::new(), memory })
    }

    /// Adds pairs.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn push(&mut self, batch: &PairBatch) -> Result<()> {
        for k in 0..batch.len() {
            self.payload.clear();
            self.payload.extend_from_slice(&batch.values[k].to_le_bytes());
            let at = self.payload.len();
            self.payload.extend_from_slice(&[0; 4]); // the length of the left id, which is known only once it is appended
            batch.left_ids.append_bytes_of(k, &mut self.payload);
            let left_bytes = (self.payload.len() - at - 4) as u32;
            self.payload[at..][..4].copy_from_slice(&left_bytes.to_le_bytes());
            batch.right_ids.append_bytes_of(k, &mut self.payload);
            self.sorter.push((batch.left_rows[k], batch.right_rows[k]), &self.payload)?;
        }
        Ok(())
    }

    /// Completes the input.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn finish(self) -> Result<SortedPairs> {
        let Self { sorter, ids, payload, memory } = self;
        Ok(SortedPairs { sorted: sorter.finish()?, ids, payload, _memory: memory })
    }
}

/// Pairs in the order of their left rows, then of their right rows.
pub(crate) struct SortedPairs {
    sorted: Sorted,
    ids: [IdKind; 2],
    payload: Vec<u8>,
    _memory: Reservation,
}

impl SortedPairs {
    /// Returns the next pairs, or `None` after the last.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn next(&mut self) -> Result<Option<PairBatch>> {
        let mut batch = PairBatch::of_kinds(self.ids);
        while batch.len() < FRAME_RECORDS && batch.left_ids.bytes() + batch.right_ids.bytes() < FRAME_ID_BYTES {
            let Some((left, right)) = self.sorted.next(&mut self.payload)? else { break };
            let (value, rest) = self.payload.split_first_chunk().expect("a record has a value");
            let (left_bytes, ids) = rest.split_first_chunk().expect("a record has the length of its left id");
            let (left_id, right_id) = ids.split_at(u32::from_le_bytes(*left_bytes) as usize);
            batch.left_rows.push(left);
            batch.right_rows.push(right);
            batch.values.push(f32::from_le_bytes(*value));
            batch.left_ids.push_bytes(left_id);
            batch.right_ids.push_bytes(right_id);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }

    /// Returns the bytes written to disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.sorted.spilled()
    }
}

/// Sink of a part of a join.
pub(crate) struct PartSink<'a> {
    records: Records,
    _rows: Option<Rows<'a>>,
}

enum Records {
    Pairs(PairSorter),
    Forest(Components, u64),
    Counts(Tally),
}

impl<'a> PartSink<'a> {
    /// Creates the sink, with temporary files in the folder `at`. Leaves `join_bytes` bytes of memory for the join.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(crate) fn create(
        context: &'a Context,
        sets: Sets<'a>,
        content: PartContent,
        at: &Path,
        join_bytes: u64,
    ) -> Result<Self> {
        let ids = match content {
            PartContent::Pairs => Some([sets.left(), sets.right()].map(|store| store.manifest().ids)),
            PartContent::Rows => Some([IdKind::None; 2]),
            PartContent::Forest | PartContent::Counts => None,
        };
        let (end, purpose) = (Rows::end(sets), "the result of a part");
        if let Some(ids) = ids {
            // If the memory does not suffice for the sink and the join together, this fails now, and the message
            // names the sum.
            drop(context.reserve(content.least_bytes(end) + join_bytes, purpose)?);
            return Ok(Self { records: Records::Pairs(PairSorter::new(context, at, ids)?), _rows: None });
        }
        let needs = SinkNeeds {
            bytes: FRAMES_BYTES + if content == PartContent::Forest { Components::memory_bytes(end) } else { end },
            sorters_during: u64::from(content == PartContent::Counts),
            sorters_after: 1,
            join_bytes,
            purpose,
        };
        let rows = Rows::reserve(context, sets, [None, None], needs)?;
        let records = match content {
            PartContent::Counts => Records::Counts(Tally::new(end, rows.sorter())),
            _ => Records::Forest(Components::new(end), end),
        };
        Ok(Self { records, _rows: Some(rows) })
    }

    /// Passes the records to `append`, in frames. Returns the bytes of temporary files.
    ///
    /// # Errors
    /// If a disk refuses, and the errors of `append`.
    pub(crate) fn write(self, append: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        match self.records {
            Records::Pairs(sorter) => {
                let mut pairs = sorter.finish()?;
                while let Some(batch) = pairs.next()? {
                    append(&encoded(&batch))?;
                }
                Ok(pairs.spilled())
            }
            Records::Forest(mut components, end) => {
                let mut frames = Frames { append, frame: Vec::new() };
                for row in 0..end {
                    let first = if components.is_paired(row) { components.first(row) } else { row };
                    if first != row {
                        frames.push(&[packed(first), packed(row)].concat())?;
                    }
                }
                frames.finish().map(|()| 0)
            }
            Records::Counts(tally) => {
                let mut counts = tally.finish()?;
                let mut frames = Frames { append, frame: Vec::new() };
                for row in 0..counts.rows() {
                    let count = counts.of(row)?;
                    if count > 0 {
                        frames.push(&[&packed(row)[..], &count.to_le_bytes()].concat())?;
                    }
                }
                frames.finish().map(|()| counts.spilled())
            }
        }
    }
}

impl PairSink for PartSink<'_> {
    fn wants_ids(&self) -> bool {
        matches!(&self.records, Records::Pairs(sorter) if sorter.ids != [IdKind::None; 2])
    }

    fn tally(&self) -> Option<&Tally> {
        match &self.records {
            Records::Counts(tally) => Some(tally),
            Records::Pairs(_) | Records::Forest(..) => None,
        }
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let rows = batch.left_rows.iter().zip(&batch.right_rows);
        match &mut self.records {
            Records::Pairs(sorter) => sorter.push(batch),
            Records::Forest(components, _) => {
                rows.for_each(|(&left, &right)| components.join(left, right));
                Ok(())
            }
            Records::Counts(tally) => {
                rows.flat_map(|(&left, &right)| [left, right]).try_for_each(|row| tally.add(row, 1))
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default()) // `write` writes the records into the file of the part
    }
}

/// Collects records in frames.
struct Frames<'a> {
    append: &'a mut dyn FnMut(&[u8]) -> Result<()>,
    frame: Vec<u8>,
}

impl Frames<'_> {
    fn push(&mut self, record: &[u8]) -> Result<()> {
        self.frame.extend_from_slice(record);
        if self.frame.len() >= FRAME_RECORDS * record.len() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        (self.append)(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        if self.frame.is_empty() { Ok(()) } else { self.write() }
    }
}

/// Records of a frame.
pub(crate) enum PartRecords {
    /// Pairs; the pairs of a forest have no values.
    Pairs(PairBatch),
    /// Rows and their numbers of pairs.
    Counts(Vec<RowCount>),
}

/// A row and its number of pairs.
pub(crate) struct RowCount {
    row: u64,
    pairs: u64,
}

impl PartContent {
    /// Decodes a frame of a part, for a set with row numbers below `rows`. Returns `None` if the frame is invalid.
    pub(crate) fn decode(self, frame: &[u8], ids: [IdKind; 2], rows: u64) -> Option<PartRecords> {
        let row = |bytes: &[u8]| Some(unpacked(bytes)).filter(|&row| row < rows);
        match self {
            Self::Pairs | Self::Rows => {
                let kinds = if self == Self::Pairs { ids } else { [IdKind::None; 2] };
                let batch = decoded(frame, kinds)?;
                let all = batch.left_rows.iter().chain(&batch.right_rows);
                all.copied().all(|row| row < rows).then_some(PartRecords::Pairs(batch))
            }
            Self::Forest => {
                let mut batch = PairBatch::new(IdKind::None);
                for edge in whole_chunks(frame, EDGE_BYTES)? {
                    batch.left_rows.push(row(&edge[..ROW_BYTES])?);
                    batch.right_rows.push(row(&edge[ROW_BYTES..])?);
                    batch.values.push(0.0);
                }
                Some(PartRecords::Pairs(batch))
            }
            Self::Counts => {
                let count = |record: &[u8]| {
                    let pairs = u64::from_le_bytes(record[ROW_BYTES..].try_into().ok()?);
                    // The number of neighbors of a row is less than the number of rows.
                    Some(RowCount { row: row(&record[..ROW_BYTES])?, pairs }).filter(|count| count.pairs < rows)
                };
                whole_chunks(frame, COUNT_BYTES)?.map(count).collect::<Option<_>>().map(PartRecords::Counts)
            }
        }
    }
}

fn whole_chunks(frame: &[u8], bytes: usize) -> Option<std::slice::ChunksExact<'_, u8>> {
    let chunks = frame.chunks_exact(bytes);
    chunks.remainder().is_empty().then_some(chunks)
}

impl PartRecords {
    /// Passes the records to a sink.
    ///
    /// # Errors
    /// If the sink fails.
    ///
    /// # Panics
    /// If the records are counts and the sink takes pairs.
    pub(crate) fn pass_to(&self, sink: &mut dyn PairSink) -> Result<()> {
        match self {
            Self::Pairs(batch) => sink.accept(batch),
            Self::Counts(counts) => {
                let tally = sink.tally().expect("counts are passed to a sink of counts");
                counts.iter().try_for_each(|&RowCount { row, mut pairs }| {
                    while pairs > 0 {
                        let some = u32::try_from(pairs).unwrap_or(u32::MAX);
                        tally.add(row, some)?;
                        pairs -= u64::from(some);
                    }
                    Ok(())
                })
            }
        }
    }
}
