//! Estimates distances from codes of a few bytes per vector. A [`Quantizer`] is trained on a sample. It encodes each
//! vector as a code, which is so small that all codes fit in memory. It estimates the squared distance of a query to a
//! vector from the code of the vector.
//!
//! Codes are product-quantized (`product.rs`). Each byte of a code selects an entry of a [`Table`], which is filled
//! once per query, and the estimate is the sum of these entries. With codes of equal size, searches have a higher
//! recall than with RaBitQ, which trains and encodes faster (decision 0012). `rotation.rs` finds axes that suit a set,
//! with the eigenvectors that `eigen.rs` computes. `saved.rs` serializes quantizers.

mod chunks;
mod eigen;
mod product;
mod rotation;
mod saved;
#[cfg(test)]
mod tests;

use std::fmt;

use adjoin_kernels::{Centroids, CodeRows, Kernel, Panel, TABLE_ENTRIES};

use self::product::ProductQuantizer;
pub use self::rotation::{Axes, Principal};
use self::saved::{Fields, put_count};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;

/// Number of vectors that a thread encodes at once.
const BLOCK_ROWS: usize = 1_024;

/// Encodes vectors of a fixed number of dimensions, and estimates distances to them from their codes.
pub struct Quantizer(ProductQuantizer);

/// Contribution of each byte value of a code to the estimated distance of a query.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<[f32; TABLE_ENTRIES]>,
}

impl Quantizer {
    /// Trains a quantizer on the rows of `sample`, which must be finite vectors. Ten thousand rows suffice. Codes have
    /// `code_bytes` bytes. The result depends only on the sample, the size of codes and the seed, not on threads or
    /// kernel.
    ///
    /// # Errors
    /// If the sample is empty, if codes would have more bytes than vectors have dimensions, if memory does not suffice,
    /// or if the work is cancelled.
    pub fn train(context: &Context, sample: &Panel<f32>, code_bytes: usize, seed: u64) -> Result<Self> {
        let dimensions = sample.dimensions();
        if sample.rows() == 0 || dimensions == 0 {
            return Err(Error::input("no vectors to learn codes from; give at least one"));
        }
        if !(1..=dimensions).contains(&code_bytes) {
            return Err(Error::option(format!(
                "product codes of {code_bytes} bytes for vectors of {dimensions} dimensions; give 1 to {dimensions} bytes"
            )));
        }
        Ok(Self(ProductQuantizer::train(context, sample, code_bytes, seed)?))
    }

    /// Returns the number of dimensions of the vectors.
    pub fn dimensions(&self) -> usize {
        self.0.dimensions()
    }

    /// Returns the bytes of a code.
    pub fn code_bytes(&self) -> usize {
        self.0.code_bytes()
    }

    /// Returns the bytes of the quantizer in memory.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the largest number of bytes, in memory, of a quantizer for vectors of `dimensions` dimensions and codes of
    /// `code_bytes` bytes.
    pub(crate) fn bytes_max(dimensions: usize, code_bytes: usize) -> u64 {
        ProductQuantizer::bytes_max(dimensions, code_bytes)
    }

    /// Encodes the rows of a panel. Returns the codes one after another, [`Quantizer::code_bytes`] bytes each. They do
    /// not depend on threads or kernel. The caller must reserve memory for the result.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    ///
    /// # Panics
    /// If the number of dimensions of the vectors is not [`Quantizer::dimensions`].
    pub fn encode<T: Coordinate>(&self, context: &Context, vectors: &Panel<T>) -> Result<Vec<u8>> {
        let (rows, dimensions) = (vectors.rows(), self.dimensions());
        assert_eq!(vectors.dimensions(), dimensions, "dimensions of what is encoded");
        let of_thread = 3 * Panel::<f32>::bytes_for(BLOCK_ROWS, dimensions);
        let codes = 2 * (rows * self.code_bytes()) as u64; // twice, while they are concatenated
        let packed_bytes = Centroids::bytes_for(TABLE_ENTRIES, dimensions);
        let bytes = context.threads as u64 * of_thread + codes + packed_bytes;
        let _memory = context.reserve(bytes, "encoding vectors")?;
        let kernel = context.kernel;
        let packed = self.0.packed();
        let encode = |block: &mut Panel<f32>, number: usize| {
            let first = number * BLOCK_ROWS;
            block.reset(BLOCK_ROWS.min(rows - first), dimensions);
            (0..block.rows()).for_each(|row| widen(vectors.row(first + row), block.row_mut(row)));
            Ok(self.0.encode(kernel, &packed, block))
        };
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let state = || Panel::zeroed(0, dimensions);
        Ok(map_items(context.threads, blocks, &context.cancel, state, encode)?.concat())
    }

    /// Returns the mean squared distance between vectors and the points that their codes represent, divided by the mean
    /// squared distance of the vectors to their mean. Returns 0 if all vectors are equal.
    ///
    /// # Errors
    /// In the cases of [`Quantizer::encode`].
    ///
    /// # Panics
    /// In the cases of [`Quantizer::encode`].
    pub(crate) fn relative_error(&self, context: &Context, vectors: &Panel<f32>) -> Result<f64> {
        let (codes, mut table) = (self.encode(context, vectors)?, Table::default());
        let squared = (0..vectors.rows()).map(|row| {
            self.fill_table(context.kernel, vectors.row(row), &mut table);
            f64::from(self.distance(context.kernel, &table, &codes[row * self.code_bytes()..]))
        });
        let (error, spread) = (squared.sum::<f64>(), spread(vectors));
        Ok(if spread > 0.0 { error / spread } else { 0.0 })
    }

    /// Fills a table for a query. Reuses the memory of the table.
    ///
    /// # Panics
    /// If the query has fewer coordinates than the quantizer has dimensions.
    pub fn fill_table<T: Coordinate>(&self, kernel: Kernel, query: &[T], table: &mut Table) {
        let mut floats = Panel::zeroed(1, self.dimensions());
        widen(&query[..self.dimensions()], floats.row_mut(0));
        table.entries.clear();
        self.0.fill(kernel, &floats, table);
    }

    /// Estimates the squared distance of a query to a vector from the code of the vector. `table` must have been filled
    /// for the query by this quantizer. The estimate may be negative.
    ///
    /// # Panics
    /// If the code is too short.
    pub fn distance(&self, kernel: Kernel, table: &Table, code: &[u8]) -> f32 {
        let mut out = [0.0];
        self.distances(kernel, table, code, &[0], &mut out);
        out[0]
    }

    /// Estimates the squared distances of a query to several vectors. Sets `out[k]` to the distance to the vector whose
    /// code has the number `vertices[k]` in `codes`.
    ///
    /// # Panics
    /// If `out` and `vertices` differ in length, or if `codes` has no code for one of the vertices.
    pub fn distances(&self, kernel: Kernel, table: &Table, codes: &[u8], vertices: &[u32], out: &mut [f32]) {
        let codes = CodeRows { bytes: codes, stride: self.code_bytes() };
        kernel.sum_lookups(&table.entries, codes, vertices, out);
    }

    /// Serializes the quantizer for [`Quantizer::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_count(&mut bytes, 0); // kind of the codes; there is only one
        self.0.write(&mut bytes);
        bytes
    }

    /// Parses the bytes that [`Quantizer::to_bytes`] returned.
    ///
    /// # Errors
    /// If the bytes are not a valid quantizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(bytes);
        fields.count(0..=0, "as their kind")?;
        let product = ProductQuantizer::read(&mut fields)?;
        fields.end()?;
        Ok(Self(product))
    }
}

/// Prints the kind of code.
impl fmt::Display for Quantizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_rotated() { "product, rotated" } else { "product" })
    }
}

/// Returns the sum of the squared distances of vectors to their mean.
fn spread(vectors: &Panel<f32>) -> f64 {
    let rows = || (0..vectors.rows()).map(|row| vectors.row(row));
    let mut mean = vec![0.0; vectors.dimensions()];
    rows().for_each(|row| mean.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value)));
    mean.iter_mut().for_each(|sum| *sum /= vectors.rows() as f64);
    rows().flat_map(|row| row.iter().zip(&mean)).map(|(&value, mean)| (f64::from(value) - mean).powi(2)).sum()
}

/// Converts coordinates to floats, exactly.
pub(crate) fn widen<T: Coordinate>(from: &[T], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.value() as f32);
}
