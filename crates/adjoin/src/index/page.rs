//! Encodes and decodes pages. A page has records, each with a vector, its neighbors, its row number and its degree.
//!
//! A page starts with a checksum of its other bytes. The number of the page is the seed of the checksum, so a page at a
//! wrong place is detected. The vectors of all records follow, then all neighbors, all row numbers and all degrees.
//! Unused records of the last page are zeros. Vertices are numbered in the order of the pages, so the number of a
//! vertex determines its page and record.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::options::VectorType;
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};

const CHECKSUM_BYTES: usize = size_of::<u64>();
const NEIGHBOR_BYTES: usize = size_of::<u32>();
const DEGREE_BYTES: usize = size_of::<u16>();

/// Layout of a page in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageShape {
    vector_bytes: usize,
    degree: usize,
    /// Bytes of a page. If a record is larger than the requested page size, this is a multiple of the requested size.
    bytes: usize,
    /// Number of records on a page.
    records: usize,
}

impl PageShape {
    pub(super) fn new(vectors: VectorType, degree: usize, page_bytes: u64) -> Self {
        // All records have room for `degree` neighbors, so that the page and the slot of a vertex follow from its
        // number.
        let record = vectors.bytes() + degree * NEIGHBOR_BYTES + ROW_BYTES + DEGREE_BYTES;
        let bytes = (CHECKSUM_BYTES + record).next_multiple_of(page_bytes as usize);
        Self { vector_bytes: vectors.bytes(), degree, bytes, records: (bytes - CHECKSUM_BYTES) / record }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of vertices of a page, except perhaps the last.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn pages(&self, vertices: u32) -> u64 {
        u64::from(vertices).div_ceil(self.records as u64)
    }

    pub(super) fn page_of(&self, vertex: u32) -> u32 {
        vertex / self.records as u32
    }

    /// Returns the vertices of a page, out of `vertices` in total.
    pub(super) fn vertices(&self, page: u32, vertices: u32) -> std::ops::Range<u32> {
        let first = page * self.records as u32;
        first..vertices.min(first + self.records as u32)
    }

    fn neighbors_at(&self, slot: usize) -> usize {
        // The vectors of a page are stored end to end, so that one call of the kernel converts all of them.
        CHECKSUM_BYTES + self.records * self.vector_bytes + slot * self.degree * NEIGHBOR_BYTES
    }

    fn row_at(&self, slot: usize) -> usize {
        self.neighbors_at(self.records) + slot * ROW_BYTES
    }

    fn degree_at(&self, slot: usize) -> usize {
        self.row_at(self.records) + slot * DEGREE_BYTES
    }

    /// Writes a record into a page under construction.
    pub(super) fn put(&self, page: &mut [u8], slot: usize, vector: &[u8], row: u64, neighbors: &[u32]) {
        page[CHECKSUM_BYTES + slot * self.vector_bytes..][..self.vector_bytes].copy_from_slice(vector);
        let to = page[self.neighbors_at(slot)..].chunks_exact_mut(NEIGHBOR_BYTES);
        to.zip(neighbors).for_each(|(to, neighbor)| to.copy_from_slice(&neighbor.to_le_bytes()));
        page[self.row_at(slot)..][..ROW_BYTES].copy_from_slice(&packed(row));
        page[self.degree_at(slot)..][..DEGREE_BYTES].copy_from_slice(&(neighbors.len() as u16).to_le_bytes());
    }

    /// Completes a page under construction with its checksum.
    pub(super) fn seal(page: &mut [u8], number: u32) {
        let checksum = xxh3_64_with_seed(&page[CHECKSUM_BYTES..], number.into());
        page[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// A page with a valid checksum.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    shape: PageShape,
    bytes: &'a [u8],
}

impl<'a> Page<'a> {
    /// Wraps the bytes of a page that was verified before.
    pub(super) fn of_checked(shape: PageShape, bytes: &'a [u8]) -> Self {
        Self { shape, bytes }
    }

    /// Verifies the bytes of a page. Returns `None` if they are damaged or belong to another page.
    pub(super) fn check(shape: PageShape, number: u32, bytes: &'a [u8]) -> Option<Self> {
        let (checksum, rest) = bytes.split_first_chunk::<CHECKSUM_BYTES>()?;
        let written = xxh3_64_with_seed(rest, number.into()) == u64::from_le_bytes(*checksum);
        (bytes.len() == shape.bytes && written).then_some(Self { shape, bytes })
    }

    /// Returns the vectors of the first `records` records, concatenated.
    pub(super) fn vectors(self, records: usize) -> &'a [u8] {
        &self.bytes[CHECKSUM_BYTES..][..records * self.shape.vector_bytes]
    }

    pub(super) fn row(self, slot: usize) -> u64 {
        unpacked(&self.bytes[self.shape.row_at(slot)..][..ROW_BYTES])
    }

    /// Returns the neighbors of a record, or `None` if its degree is larger than the degree of the index.
    pub(super) fn neighbors(self, slot: usize) -> Option<impl Iterator<Item = u32> + 'a> {
        let degree = &self.bytes[self.shape.degree_at(slot)..][..DEGREE_BYTES];
        let degree = usize::from(u16::from_le_bytes([degree[0], degree[1]]));
        let stored = &self.bytes[self.shape.neighbors_at(slot)..][..self.shape.degree * NEIGHBOR_BYTES];
        let stored = stored.as_chunks::<NEIGHBOR_BYTES>().0.get(..degree)?;
        Some(stored.iter().map(|&neighbor| u32::from_le_bytes(neighbor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::Element;

    #[test]
    fn page_records_round_trip_and_flipped_bits_are_detected() {
        for (dimensions, degree, records) in [(128, 32, 15), (3, 2, 227), (8_192, 5, 1)] {
            let shape = PageShape::new(VectorType { element: Element::U8, dimensions }, degree, 4_096);
            assert_eq!((shape.records(), shape.bytes() % 4_096), (records, 0));
            let mut bytes = vec![0; shape.bytes()];
            let vector = |slot: usize| vec![slot as u8 ^ 0x5a; dimensions];
            let neighbors = |slot: usize| (0..(slot % (degree + 1)) as u32).map(|k| u32::MAX - k).collect::<Vec<_>>();
            let row = |slot: usize| (1 << 40) - 1 - slot as u64;
            (0..records).for_each(|slot| shape.put(&mut bytes, slot, &vector(slot), row(slot), &neighbors(slot)));
            PageShape::seal(&mut bytes, 7);
            let page = Page::check(shape, 7, &bytes).unwrap();
            for slot in 0..records {
                assert_eq!(page.vectors(records)[slot * dimensions..][..dimensions], vector(slot));
                assert_eq!(page.row(slot), row(slot));
                assert_eq!(page.neighbors(slot).unwrap().collect::<Vec<_>>(), neighbors(slot));
            }
            assert!(Page::check(shape, 8, &bytes).is_none(), "a page in the place of another");
            for bit in (0..bytes.len() * 8).step_by(7) {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Page::check(shape, 7, &flipped).is_none(), "bit {bit}");
            }
        }
    }

    #[test]
    fn an_impossible_degree_does_not_panic() {
        let shape = PageShape::new(VectorType { element: Element::U8, dimensions: 1 }, 2, 4_096);
        let mut bytes = vec![0xff; shape.bytes()];
        PageShape::seal(&mut bytes, 0);
        assert!(Page::check(shape, 0, &bytes).unwrap().neighbors(0).is_none());
    }
}
