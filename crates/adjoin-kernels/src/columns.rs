//! Vectors packed for the inner loops of one level.

use crate::number::Number;
use crate::panel::{Lines, Panel, lines_per_row};

/// Number of columns of a block. A reach is rounded up to a multiple of it.
pub const TILE_COLUMNS: usize = 16;

/// Vectors in the layout that one [`crate::Kernel`] needs for the columns of a tile, padded with zero vectors to a
/// multiple of [`TILE_COLUMNS`]. Kernels of other levels refuse them.
pub struct PackedColumns<T> {
    /// Padded rows or interleaved blocks. The level determines which.
    pub(crate) storage: Lines<T>,
    /// Squared norms if the level computes distances from products; otherwise empty.
    pub(crate) norms: Vec<u32>,
    /// How the bytes are stored, if they are narrow and the level stores narrow bytes differently.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) len: usize,
    pub(crate) dimensions: usize,
    pub(crate) level: &'static str,
}

/// Parameters of columns with bytes that all lie in a narrow range.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only levels of x86-64 use it"))]
#[derive(Clone, Copy)]
pub(crate) struct Narrow {
    /// Value that is subtracted from each byte, so that the result fits in a signed byte.
    pub(crate) center: u8,
    /// The largest absolute value of a stored byte.
    pub(crate) largest: u32,
}

impl<T: Number> PackedColumns<T> {
    pub(crate) fn empty(level: &'static str) -> Self {
        Self { storage: Lines::zeroed(0), norms: Vec::new(), narrow: None, len: 0, dimensions: 0, level }
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
        self.storage.bytes() + (self.norms.capacity() * size_of::<u32>()) as u64
    }

    /// Returns the maximum memory that new columns of this shape take on any level, in bytes.
    pub fn bytes_for(len: usize, dimensions: usize) -> u64 {
        let filled = len.next_multiple_of(TILE_COLUMNS);
        Panel::<T>::bytes_for(filled, dimensions) + (filled * size_of::<u32>()) as u64
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
