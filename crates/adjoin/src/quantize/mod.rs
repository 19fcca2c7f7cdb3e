//! *Which vectors are near, as far as a few bytes of each can tell?* A [`Quantizer`] learns from a sample how to make a code
//! of each vector, small enough to hold the codes of all in memory, and estimates the squared distance of a query to a
//! vector from its code alone.
//!
//! `product.rs` and `rabitq.rs` are two kinds of codes; both estimate by a sum over the bytes of a code, each of which picks
//! an entry of a [`Table`] that is filled once for a query. The product finds more at equal bytes, RaBitQ learns and encodes
//! faster (decision 0012). `rotation.rs` finds axes that suit a set, by way of `eigen.rs`;
//! `saved.rs` has bytes of quantisers.

mod chunks;
mod eigen;
mod product;
mod rabitq;
mod rotation;
mod saved;
#[cfg(test)]
mod tests;

use std::fmt;

use adjoin_kernels::{Centroids, CodeRows, Kernel, Panel, TABLE_ENTRIES};

use self::product::ProductQuantizer;
use self::rabitq::{FACTOR_BYTES, RabitQuantizer};
use self::rotation::PRINCIPAL_DIMENSIONS_MAX;
use self::saved::{Fields, put_count};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::Coordinate;
use crate::workers::map_items;

/// Vectors by which the error of codes is measured, at most.
const ERROR_ROWS: usize = 2_048;
/// Vectors that a thread encodes together.
const BLOCK_ROWS: usize = 1_024;

/// How codes are made of vectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CodeKind {
    /// Product quantisation, of the dimensions as they are or of principal axes: whichever leaves less error of the sample.
    /// Finds more of what is near than the other (decision 0012).
    #[default]
    Product,
    /// Some bits for each of the leading principal axes, turned at random, and two factors: RaBitQ.
    Rabitq,
}

/// Makes codes of vectors of one number of dimensions, and estimates distances to these.
pub struct Quantizer(Method);

enum Method {
    Product(ProductQuantizer),
    Rabitq(RabitQuantizer),
}

/// What a query adds to the estimate of its distance to a code, for each byte of the code and each of its values.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<[f32; TABLE_ENTRIES]>,
    base: f32,
}

impl Quantizer {
    /// Learns from the rows of `sample`, finite vectors of which some ten thousand suffice, how to make codes of at most
    /// `code_bytes` bytes: exactly so many of a product. The same sample, kind and seed give the same on any threads and
    /// kernel.
    ///
    /// # Errors
    /// Where there is no sample, the dimensions have no room for so many bytes or RaBitQ's factors leave none, memory is
    /// short, or the work is cancelled.
    pub fn train(context: &Context, sample: &Panel<f32>, kind: CodeKind, code_bytes: usize, seed: u64) -> Result<Self> {
        let dimensions = sample.dimensions();
        if sample.rows() == 0 || dimensions == 0 {
            return Err(Error::input("no vectors to learn codes from; give at least one"));
        }
        match kind {
            CodeKind::Product if !(1..=dimensions).contains(&code_bytes) => Err(Error::option(format!(
                "product codes of {code_bytes} bytes for vectors of {dimensions} dimensions; give 1 to {dimensions} bytes"
            ))),
            CodeKind::Rabitq if code_bytes <= FACTOR_BYTES => {
                Err(Error::option(format!("RaBitQ codes of {code_bytes} bytes; give {} or more", FACTOR_BYTES + 1)))
            }
            CodeKind::Rabitq if dimensions > PRINCIPAL_DIMENSIONS_MAX => Err(Error::option(format!(
                "RaBitQ codes of vectors of {dimensions} dimensions, of which they take at most \
                 {PRINCIPAL_DIMENSIONS_MAX}; choose product codes"
            ))),
            CodeKind::Product => Ok(Self(Method::Product(ProductQuantizer::train(context, sample, code_bytes, seed)?))),
            CodeKind::Rabitq => Ok(Self(Method::Rabitq(RabitQuantizer::train(context, sample, code_bytes, seed)?))),
        }
    }

    /// Dimensions of the vectors.
    pub fn dimensions(&self) -> usize {
        match &self.0 {
            Method::Product(product) => product.dimensions(),
            Method::Rabitq(rabitq) => rabitq.dimensions(),
        }
    }

    /// Bytes of a code.
    pub fn code_bytes(&self) -> usize {
        match &self.0 {
            Method::Product(product) => product.code_bytes(),
            Method::Rabitq(rabitq) => rabitq.code_bytes(),
        }
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Method::Product(product) => product.bytes(),
            Method::Rabitq(rabitq) => rabitq.bytes(),
        }
    }

    /// The codes of the rows of a panel, one after the other, [`Quantizer::code_bytes`] each: the same on any threads and
    /// kernel. Whoever keeps them, reserves memory for them.
    ///
    /// # Errors
    /// Where memory is short or the work is cancelled.
    ///
    /// # Panics
    /// If the vectors have other dimensions.
    pub fn encode<T: Coordinate>(&self, context: &Context, vectors: &Panel<T>) -> Result<Vec<u8>> {
        let (rows, dimensions) = (vectors.rows(), self.dimensions());
        assert_eq!(vectors.dimensions(), dimensions, "dimensions of what is encoded");
        let of_thread = 3 * Panel::<f32>::bytes_for(BLOCK_ROWS, dimensions);
        let codes = 2 * (rows * self.code_bytes()) as u64; // while they are put together
        let packed_bytes = Centroids::bytes_for(TABLE_ENTRIES, dimensions);
        let bytes = context.threads as u64 * of_thread + codes + packed_bytes;
        let _memory = context.reserve(bytes, "encoding vectors")?;
        let kernel = context.kernel;
        let packed = match &self.0 {
            Method::Product(product) => product.packed(),
            Method::Rabitq(_) => Vec::new(),
        };
        let encode = |block: &mut Panel<f32>, number: usize| {
            let first = number * BLOCK_ROWS;
            block.reset(BLOCK_ROWS.min(rows - first), dimensions);
            (0..block.rows()).for_each(|row| widen(vectors.row(first + row), block.row_mut(row)));
            Ok(match &self.0 {
                Method::Product(product) => product.encode(kernel, &packed, block),
                Method::Rabitq(rabitq) => rabitq.encode(kernel, block),
            })
        };
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let state = || Panel::zeroed(0, dimensions);
        Ok(map_items(context.threads, blocks, &context.cancel, state, encode)?.concat())
    }

    /// How far vectors are from what their codes stand for: the mean squared distance of some rows of a sample.
    ///
    /// # Errors
    /// As [`Quantizer::encode`].
    ///
    /// # Panics
    /// As [`Quantizer::encode`].
    pub(crate) fn error(&self, context: &Context, sample: &Panel<f32>) -> Result<f64> {
        let codes = self.encode(context, sample)?;
        let mut table = Table::default();
        let rows = (0..sample.rows()).step_by(sample.rows().div_ceil(ERROR_ROWS).max(1));
        let squared = rows.clone().map(|row| {
            self.fill_table(context.kernel, sample.row(row), &mut table);
            f64::from(self.distance(context.kernel, &table, &codes[row * self.code_bytes()..]))
        });
        Ok(squared.sum::<f64>() / rows.len().max(1) as f64)
    }

    /// Fills a table for a query, within the memory that it holds already where that suffices.
    ///
    /// # Panics
    /// If the query has fewer coordinates than the quantiser has dimensions.
    pub fn fill_table<T: Coordinate>(&self, kernel: Kernel, query: &[T], table: &mut Table) {
        let mut floats = Panel::zeroed(1, self.dimensions());
        widen(&query[..self.dimensions()], floats.row_mut(0));
        (table.base, _) = (0.0, table.entries.clear());
        match &self.0 {
            Method::Product(product) => product.fill(kernel, &floats, table),
            Method::Rabitq(rabitq) => rabitq.fill(kernel, &floats, table),
        }
    }

    /// The estimated squared distance of the query of a table of this quantiser to a vector, given its code. An estimate may
    /// be below zero.
    ///
    /// # Panics
    /// If the code is too short.
    pub fn distance(&self, kernel: Kernel, table: &Table, code: &[u8]) -> f32 {
        let mut out = [0.0];
        self.distances(kernel, table, code, &[0], &mut out);
        out[0]
    }

    /// Into `out[k]`, the same of the vector `vertices[k]`, whose code is the one of that number in `codes`.
    ///
    /// # Panics
    /// If `out` is not as long as `vertices`, or the codes end before one that is named.
    pub fn distances(&self, kernel: Kernel, table: &Table, codes: &[u8], vertices: &[u32], out: &mut [f32]) {
        let codes = CodeRows { bytes: codes, stride: self.code_bytes() };
        kernel.sum_lookups(&table.entries, codes, vertices, out);
        if let Method::Rabitq(rabitq) = &self.0 {
            rabitq.finish(table.base, codes, vertices, out);
        }
    }

    /// All that is needed to encode and to estimate, for [`Quantizer::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.0 {
            Method::Product(product) => {
                put_count(&mut bytes, 0);
                product.write(&mut bytes);
            }
            Method::Rabitq(rabitq) => {
                put_count(&mut bytes, 1);
                rabitq.write(&mut bytes);
            }
        }
        bytes
    }

    /// The quantiser that [`Quantizer::to_bytes`] wrote.
    ///
    /// # Errors
    /// Where these are not such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(bytes);
        let method = match fields.count(0..=1, "as their kind")? {
            0 => Method::Product(ProductQuantizer::read(&mut fields)?),
            _ => Method::Rabitq(RabitQuantizer::read(&mut fields)?),
        };
        fields.end()?;
        Ok(Self(method))
    }
}

/// Says how it makes codes.
impl fmt::Display for Quantizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Method::Product(product) if product.is_rotated() => formatter.write_str("product, rotated"),
            Method::Product(_) => formatter.write_str("product"),
            Method::Rabitq(rabitq) => {
                let (bits, axes) = rabitq.shape();
                write!(formatter, "rabitq, {bits} x {axes}")
            }
        }
    }
}

/// Coordinates as floats, exactly.
pub(crate) fn widen<T: Coordinate>(from: &[T], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.value() as f32);
}
