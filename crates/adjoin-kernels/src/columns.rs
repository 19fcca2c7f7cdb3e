//! Vectors packed for the inner loops of one level.

use std::ops::RangeInclusive;

use crate::number::Number;
use crate::panel::{Lines, Panel, lines_per_row};

/// Number of columns of a block. A reach is rounded up to a multiple of it.
pub const TILE_COLUMNS: usize = 16;

/// Number of heads of a vector.
pub(crate) const HEADS: usize = 2;
/// The length of a head is a multiple of this number of elements.
const HEAD_UNIT: usize = 32;
/// Numbers of dimensions of bytes for which heads are used. Shorter vectors are compared quickly as a whole. The sums of
/// longer heads might not fit in 31 bits.
const HEADED: RangeInclusive<usize> = 3 * HEAD_UNIT..=2048;

/// Returns the ends of the heads of a vector of bytes. The heads are about the first quarter of its elements and the
/// first half. If the heads of two vectors are farther apart than a limit, so are the vectors. Their distance is the
/// partial distance of Bei and Gray ("An improvement of the minimum distortion encoding algorithm for vector
/// quantization", 1985).
pub(crate) fn head_ends(dimensions: usize) -> Option<[usize; HEADS]> {
    let rounded = |end: usize| ((end + HEAD_UNIT / 2) / HEAD_UNIT).max(1) * HEAD_UNIT;
    HEADED.contains(&dimensions).then(|| [rounded(dimensions / 4), rounded(dimensions / 2)])
}

/// Vectors in the layout that one [`crate::Kernel`] needs for the columns of a tile, padded with zero vectors to a
/// multiple of [`TILE_COLUMNS`]. Kernels of other levels refuse them.
pub struct PackedColumns<T> {
    /// Padded rows or interleaved blocks. The level determines which.
    pub(crate) storage: Lines<T>,
    /// Squared norms if the level computes distances from products; otherwise empty.
    pub(crate) norms: Vec<u32>,
    /// For each block, the squared norms of the heads of its columns, if there are any ([`head_ends`]).
    pub(crate) head_norms: Vec<[[u32; TILE_COLUMNS]; HEADS]>,
    /// The range of the bytes of each block, if the level subtracts the middle of this range.
    pub(crate) ranges: Vec<ByteRange>,
    pub(crate) len: usize,
    pub(crate) dimensions: usize,
    pub(crate) level: &'static str,
}

/// Range of the bytes of a block.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only levels of x86-64 use it"))]
#[derive(Clone, Copy)]
pub(crate) struct ByteRange {
    /// The middle of the range. It is subtracted from each byte, so that the result fits in a signed byte.
    pub(crate) center: u8,
    /// The largest absolute value of a stored byte, at most 128. The zero vectors that fill the last block may exceed it;
    /// nothing depends on their distances.
    pub(crate) largest: u8,
}

impl<T: Number> PackedColumns<T> {
    pub(crate) fn empty(level: &'static str) -> Self {
        Self {
            storage: Lines::zeroed(0),
            norms: Vec::new(),
            head_norms: Vec::new(),
            ranges: Vec::new(),
            len: 0,
            dimensions: 0,
            level,
        }
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements of a vector, without padding.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the size of the memory that is held, in bytes.
    pub fn bytes(&self) -> u64 {
        let head_norms = self.head_norms.capacity() * size_of::<[[u32; TILE_COLUMNS]; HEADS]>();
        let ranges = self.ranges.capacity() * size_of::<ByteRange>();
        self.storage.bytes() + (self.norms.capacity() * size_of::<u32>() + head_norms + ranges) as u64
    }

    /// Returns the maximum memory that new columns of this shape take on any level, in bytes.
    pub fn bytes_for(len: usize, dimensions: usize) -> u64 {
        let filled = len.next_multiple_of(TILE_COLUMNS);
        let norms = 1 + head_ends(dimensions).map_or(0, |ends| ends.len());
        let of_block = TILE_COLUMNS * norms * size_of::<u32>() + size_of::<ByteRange>();
        Panel::<T>::bytes_for(filled, dimensions) + (filled / TILE_COLUMNS * of_block) as u64
    }

    /// Copies the vectors `panel.row(order[k])` as padded rows. This is the layout of levels that compute
    /// differences.
    pub(crate) fn copy_rows(&mut self, panel: &Panel<T>, order: &[u32]) {
        let filled = order.len().next_multiple_of(TILE_COLUMNS);
        self.storage.resize(filled * lines_per_row::<T>(panel.dimensions()));
        (self.len, self.dimensions) = (order.len(), panel.dimensions());
        let stride = panel.stride();
        let (used, fill) = self.storage.as_mut_slice().split_at_mut(order.len() * stride);
        for (place, &row) in used.chunks_exact_mut(stride.max(1)).zip(order) {
            place.copy_from_slice(panel.row(row as usize));
        }
        fill.fill(T::default());
    }

    /// Returns vector `column` with its padding. Columns from `len` to the next multiple of [`TILE_COLUMNS`] are zero
    /// vectors.
    pub(crate) fn row(&self, column: usize) -> &[T] {
        let stride = lines_per_row::<T>(self.dimensions) * Lines::<T>::PER_LINE;
        &self.storage.as_slice()[column * stride..][..stride]
    }
}
