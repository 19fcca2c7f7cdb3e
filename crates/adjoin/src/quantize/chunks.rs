//! Divides dimensions into chunks. Each chunk has one byte of a code.

use std::ops::Range;

use adjoin_kernels::Panel;

/// Division of dimensions into ranges that are as equal as possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chunks {
    pub(super) count: usize,
    pub(super) dimensions: usize,
}

impl Chunks {
    /// Returns the dimensions of a chunk.
    pub(super) fn range(self, chunk: usize) -> Range<usize> {
        chunk * self.dimensions / self.count..(chunk + 1) * self.dimensions / self.count
    }

    /// Copies the dimensions of a chunk from the first `rows` rows of `vectors` to `part`.
    pub(super) fn cut(self, chunk: usize, vectors: &Panel<f32>, rows: usize, part: &mut Panel<f32>) {
        let range = self.range(chunk);
        part.reset(rows, range.len());
        for row in 0..rows {
            part.row_mut(row).copy_from_slice(&vectors.row(row)[range.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_dimensions_evenly() {
        for (count, dimensions) in [(1, 1), (1, 9), (3, 10), (7, 7), (5, 33), (32, 100), (48, 8192)] {
            let chunks = Chunks { count, dimensions };
            let covered: Vec<usize> = (0..count).flat_map(|chunk| chunks.range(chunk)).collect();
            assert_eq!(covered, (0..dimensions).collect::<Vec<_>>());
            let lengths = || (0..count).map(|chunk| chunks.range(chunk).len());
            assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1 && lengths().min().unwrap() > 0);
        }
    }
}
