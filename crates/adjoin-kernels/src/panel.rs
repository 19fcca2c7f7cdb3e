//! Vectors as rows of a matrix. Rows are padded, so that vector registers can read them without special code for the
//! end.

use std::marker::PhantomData;

use crate::number::Number;

/// Maximum number of dimensions of a vector. Up to this limit, squared distances of bytes fit in 32 bits, and
/// [`crate::relative_error`] holds.
pub const DIMENSIONS_MAX: usize = 1 << 16;

/// One cache line. All storage in this crate is aligned to cache lines and consists of whole ones.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

const LINE_BYTES: usize = 64;

/// Elements in aligned cache lines.
pub(crate) struct Lines<T> {
    lines: Vec<Line>,
    element: PhantomData<T>,
}

impl<T: Number> Lines<T> {
    pub(crate) const PER_LINE: usize = LINE_BYTES / size_of::<T>();

    pub(crate) fn zeroed(lines: usize) -> Self {
        Self { lines: vec![Line([0; LINE_BYTES]); lines], element: PhantomData }
    }

    /// Changes the number of lines. Existing lines keep their contents, and new ones are zero. The memory is reused
    /// if it is large enough.
    pub(crate) fn resize(&mut self, lines: usize) {
        self.lines.resize(lines, Line([0; LINE_BYTES]));
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `Number` is sealed to u8 and f32. Every bit pattern is a value of them, and their size divides a
        // line. `Line` is plain bytes without padding, and its alignment suffices for both.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * Self::PER_LINE) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; the borrow is exclusive, and every value of an element is valid as bytes.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.lines.len() * Self::PER_LINE) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.lines.capacity() * LINE_BYTES) as u64
    }
}

/// Returns the number of cache lines of one padded row.
#[inline]
pub(crate) fn lines_per_row<T>(dimensions: usize) -> usize {
    (dimensions * size_of::<T>()).div_ceil(LINE_BYTES)
}

/// A row-major matrix of vectors. Each row starts at a cache line and is padded with zeros to whole cache lines. A
/// kernel reads all [`Panel::stride`] elements of a row, since the padding adds nothing to a distance.
pub struct Panel<T> {
    storage: Lines<T>,
    rows: usize,
    dimensions: usize,
}

impl<T: Number> Panel<T> {
    /// Creates a panel of `rows` zero vectors of `dimensions` elements.
    ///
    /// # Panics
    /// If `dimensions` is above [`DIMENSIONS_MAX`].
    pub fn zeroed(rows: usize, dimensions: usize) -> Self {
        assert!(dimensions <= DIMENSIONS_MAX, "{dimensions} dimensions, at most {DIMENSIONS_MAX}");
        Self { storage: Lines::zeroed(rows * lines_per_row::<T>(dimensions)), rows, dimensions }
    }

    /// Resets the panel to `rows` zero vectors of `dimensions` elements. The memory is reused if it is large enough.
    ///
    /// # Panics
    /// If `dimensions` is above [`DIMENSIONS_MAX`].
    pub fn reset(&mut self, rows: usize, dimensions: usize) {
        assert!(dimensions <= DIMENSIONS_MAX, "{dimensions} dimensions, at most {DIMENSIONS_MAX}");
        // Emptied first, because `resize` clears only new lines.
        self.storage.resize(0);
        self.storage.resize(rows * lines_per_row::<T>(dimensions));
        (self.rows, self.dimensions) = (rows, dimensions);
    }

    /// Returns the number of vectors.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of elements of a vector, without padding.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of elements from the start of one row to the start of the next. It is [`Panel::dimensions`]
    /// rounded up to whole cache lines of 64 bytes.
    #[inline]
    pub fn stride(&self) -> usize {
        lines_per_row::<T>(self.dimensions) * Lines::<T>::PER_LINE
    }

    /// Returns vector `row` with its zero padding: [`Panel::stride`] elements.
    #[inline] // in every codegen unit, since a call takes about as long as comparing short vectors
    pub fn row(&self, row: usize) -> &[T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let stride = self.stride();
        &self.storage.as_slice()[row * stride..][..stride]
    }

    /// Returns the elements of vector `row` for writing, without its padding.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let (stride, dimensions) = (self.stride(), self.dimensions);
        &mut self.storage.as_mut_slice()[row * stride..][..dimensions]
    }

    /// Returns the size of the memory that is held, in bytes.
    pub fn bytes(&self) -> u64 {
        self.storage.bytes()
    }

    /// Returns how much memory a new panel of this shape takes, in bytes.
    pub fn bytes_for(rows: usize, dimensions: usize) -> u64 {
        rows as u64 * (lines_per_row::<T>(dimensions) * LINE_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_holds_the_bytes_that_it_states() {
        for (rows, dimensions) in [(0, 5), (1, 1), (3, 16), (7, 17), (1_000, 96)] {
            let mut bytes = 0;
            let held = allocation_counter::measure(|| {
                let panel = Panel::<f32>::zeroed(rows, dimensions);
                bytes = panel.bytes();
                std::mem::forget(panel);
            });
            assert_eq!((held.bytes_current, bytes), (bytes as i64, Panel::<f32>::bytes_for(rows, dimensions)));
        }
    }

    #[test]
    fn rows_are_aligned_and_padded_with_zeros() {
        for dimensions in [0, 1, 15, 16, 17, 64, 65] {
            let mut panel = Panel::<f32>::zeroed(3, dimensions);
            (0..3).for_each(|row| panel.row_mut(row).fill(1.0));
            assert_eq!(panel.stride() % 16, 0);
            assert_eq!(panel.bytes(), Panel::<f32>::bytes_for(3, dimensions));
            for row in 0..3 {
                assert_eq!(panel.row(row).as_ptr() as usize % LINE_BYTES, 0);
                assert_eq!(panel.row(row).iter().sum::<f32>(), dimensions as f32);
            }
        }
    }

    #[test]
    fn reset_reuses_memory_and_clears_it() {
        let mut panel = Panel::<u8>::zeroed(4, 100);
        (0..4).for_each(|row| panel.row_mut(row).fill(9));
        let bytes = panel.bytes();
        panel.reset(7, 60);
        assert_eq!((panel.rows(), panel.dimensions(), panel.bytes()), (7, 60, bytes));
        assert!((0..7).all(|row| panel.row(row).iter().all(|&x| x == 0)));
    }
}
