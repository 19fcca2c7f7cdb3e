//! Plans partial reads of a bucket. If only a range of members is needed, only the blocks of the file that hold them
//! are read.

use std::ops::Range;

use crate::base::options::VectorType;
use crate::source::IdKind;
use crate::store::format::{BLOCK_BYTES, Extent};

/// Number of unneeded bytes that may be read if that saves a request.
const REQUEST_COST_BYTES: u64 = 8 << 10;

/// Consecutive members of a bucket, and the reads that fetch them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) members: Range<u32>,
    pub(super) with_ids: bool,
    /// Ranges of whole blocks, in ascending order and not adjacent.
    pub(super) reads: Vec<PartRead>,
}

/// Consecutive blocks of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartRead {
    pub(super) blocks: Range<u64>,
    /// Number of bytes in these blocks that are needed.
    pub(super) wanted: u64,
}

impl Part {
    /// Returns the part of a bucket that holds `members`. `None` if reading the whole bucket takes no longer.
    pub(super) fn of(
        extent: &Extent,
        vectors: VectorType,
        ids: IdKind,
        members: Range<u32>,
        with_ids: bool,
    ) -> Option<Self> {
        let of_ids = if with_ids { ids } else { IdKind::None };
        let wanted = [
            extent.vectors_of(members.clone(), vectors),
            extent.rows_of(members.clone()),
            extent.ids_of(members.clone(), of_ids),
        ];
        let reads = reads_of(wanted.into_iter().filter(|range| !range.is_empty()));
        let whole = blocks_of(&(extent.offset..extent.offset + extent.bytes(with_ids)));
        let cost = |blocks: &Range<u64>| blocks.end - blocks.start + REQUEST_COST_BYTES;
        // The cost of a request is the number of bytes that a disk could transfer in its time (decision 0027).
        let is_less = reads.iter().map(|read| cost(&read.blocks)).sum::<u64>() < cost(&whole);
        is_less.then_some(Self { members, with_ids, reads })
    }

    /// Returns the number of needed bytes.
    pub(super) fn wanted(&self) -> u64 {
        self.reads.iter().map(|read| read.wanted).sum()
    }

    /// Returns the number of bytes to read, which are those of all blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.blocks.end - read.blocks.start).sum()
    }
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES * BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES)
}

/// Returns the reads of the blocks that hold `ranges`, which must ascend. Ranges that are close to each other share a
/// read.
fn reads_of(ranges: impl Iterator<Item = Range<u64>>) -> Vec<PartRead> {
    let mut reads: Vec<PartRead> = Vec::new();
    for range in ranges {
        let (blocks, wanted) = (blocks_of(&range), range.end - range.start);
        match reads.last_mut() {
            // Reading the gap is cheaper than a second request.
            Some(last) if blocks.start <= last.blocks.end + REQUEST_COST_BYTES => {
                last.blocks.end = blocks.end;
                last.wanted += wanted;
            }
            _ => reads.push(PartRead { blocks, wanted }),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Element;

    const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 128 };

    /// A bucket of 4,000 vectors. Its vectors are at bytes 64 to 512,064, its row numbers from there to 544,064.
    fn extent(ids: IdKind, id_bytes: u64) -> Extent {
        let body_bytes = Extent::body_bytes_of(4_000, VECTORS);
        assert!(body_bytes == 544_064 && (ids == IdKind::None) == (id_bytes == 0));
        Extent { offset: 512, rows: 4_000, radius: 1.0, body_bytes, id_bytes }
    }

    fn reads(members: Range<u32>, ids: IdKind, id_bytes: u64) -> Option<Vec<(Range<u64>, u64)>> {
        let part = Part::of(&extent(ids, id_bytes), VECTORS, ids, members, true)?;
        assert_eq!(part.bytes(), part.reads.iter().map(|read| read.blocks.end - read.blocks.start).sum::<u64>());
        Some(part.reads.into_iter().map(|read| (read.blocks, read.wanted)).collect())
    }

    #[test]
    fn only_the_blocks_of_the_wanted_rows_are_read() {
        assert_eq!(reads(0..1, IdKind::None, 0).unwrap(), [(0..4_096, 128), (512_000 / 4_096 * 4_096..516_096, 8)]);
        let run = reads(1_000..2_000, IdKind::None, 0).unwrap();
        // Bytes 512 + 64 + 128,000 to 256,576, and 512 + 512,064 + 8,000 to 528,576.
        assert_eq!(run, [(126_976..258_048, 128_000), (520_192..532_480, 8_000)]);
        let with_ids = reads(1_000..2_000, IdKind::Int64, 32_000).unwrap();
        assert_eq!(with_ids[..2], run[..]);
        assert_eq!(with_ids[2], (552_576 / 4_096 * 4_096..561_152, 8_000));
        let texts = reads(1_000..2_000, IdKind::Utf8, 100_000).unwrap();
        assert_eq!(texts, [(126_976..258_048, 128_000), (520_192..647_168, 108_000)], "texts are read whole");
    }

    #[test]
    fn buckets_are_read_completely_if_a_part_saves_little() {
        assert_eq!(reads(0..4_000, IdKind::None, 0), None);
        assert_eq!(reads(0..3_950, IdKind::None, 0), None);
        assert!(reads(0..3_700, IdKind::None, 0).is_some());
        let few = Extent { rows: 100, body_bytes: Extent::body_bytes_of(100, VECTORS), ..extent(IdKind::None, 0) };
        assert_eq!(Part::of(&few, VECTORS, IdKind::None, 3..4, false), None);
    }
}
