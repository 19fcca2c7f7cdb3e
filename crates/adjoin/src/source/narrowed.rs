//! Floats that are all small integers, read as bytes. Descriptors and quantized embeddings are often stored so. Bytes
//! have the same distances, and take a quarter of the memory and of the time to compare.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin_kernels::Kernel;

use super::file::SourceFile;
use super::vector_source::{SourceAttributes, SourceInfo, VectorSource};
use super::vectors::{VectorBatch, VectorScan};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::as_floats;
use crate::base::options::{Element, VectorType};

/// Bytes of vectors to check at once.
const BATCH_BYTES: usize = 1 << 20;
/// Largest sum of squared differences of elements below which f32 adds them without rounding.
const EXACT_SUM_MAX: u64 = 1 << 24;

/// A source of floats as bytes.
struct Narrowed {
    source: Arc<dyn VectorSource>,
    kernel: Kernel,
    info: SourceInfo,
}

/// Range of the elements of integers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IntegerRange {
    least: f32,
    most: f32,
}

impl IntegerRange {
    const EMPTY: Self = Self { least: f32::INFINITY, most: f32::NEG_INFINITY };

    /// Adds values to the range. Returns `None` if some value is not an integer.
    fn with(self, values: &[f32]) -> Option<Self> {
        let Self { mut least, mut most } = self;
        let mut are_integers = true;
        for &value in values {
            are_integers &= value.trunc() == value;
            least = least.min(value);
            most = most.max(value);
        }
        // Infinity is its own integer part, and NaN is skipped by `min`, but differs from its integer part.
        (are_integers && least.is_finite() && most.is_finite()).then_some(Self { least, most })
    }

    /// Returns the type of bytes that holds the range, if there is one and the range is not empty.
    fn element(self) -> Option<Element> {
        match (self.least, self.most) {
            (least, most) if least > most => None,
            (least, most) if least >= 0.0 && most <= 255.0 => Some(Element::U8),
            (least, most) if least >= -128.0 && most <= 127.0 => Some(Element::I8),
            _ => None,
        }
    }
}

/// Reads sources as bytes of one type if all of their vectors are integers that fit, and returns them as they are
/// otherwise. This takes a scan of each source, which ends at the first vector that does not fit.
///
/// # Errors
/// If a source cannot be read.
pub(crate) fn narrowed<const N: usize>(
    context: &Context,
    sources: [Arc<dyn VectorSource>; N],
) -> Result<[Arc<dyn VectorSource>; N]> {
    let mut range = IntegerRange::EMPTY;
    for source in &sources {
        match range_of(context, &**source, range)? {
            Some(all) => range = all,
            None => return Ok(sources),
        }
    }
    let Some(element) = range.element() else { return Ok(sources) };
    let as_bytes = |source: Arc<dyn VectorSource>| -> Arc<dyn VectorSource> {
        let info = source.info().clone();
        let vectors = VectorType { element, ..info.vectors };
        Arc::new(Narrowed { source, kernel: context.kernel, info: SourceInfo { vectors, ..info } })
    };
    Ok(sources.map(as_bytes))
}

/// Extends a range by the vectors of a source. Returns `None` if bytes would not hold some vector, or memory does not
/// suffice for the scan.
fn range_of(context: &Context, source: &dyn VectorSource, mut range: IntegerRange) -> Result<Option<IntegerRange>> {
    let VectorType { element, dimensions } = source.info().vectors;
    // The distances of longer vectors are rounded as floats, so they would differ.
    if element.is_integer() || dimensions as u64 * 255 * 255 >= EXACT_SUM_MAX {
        return Ok(None);
    }
    let held = source.scan_bytes(BATCH_BYTES as u64) + source.id_bytes().unwrap_or(0) + 2 * BATCH_BYTES as u64;
    let Ok(_memory) = context.budget().reserve(held) else { return Ok(None) };
    let mut floats = vec![0.0; dimensions];
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(batch) = scan.next_batch()? {
        context.cancel.check()?;
        let mut faults = batch.faults.iter().map(|(row, _)| *row).peekable();
        for (row, vector) in batch.bytes.chunks_exact(source.info().vectors.bytes()).enumerate() {
            // A row without a vector has zeros instead.
            if faults.next_if_eq(&row).is_some() {
                continue;
            }
            as_floats(context.kernel, element, vector, &mut floats);
            match range.with(&floats) {
                Some(wider) if wider.element().is_some() => range = wider,
                _ => return Ok(None),
            }
        }
    }
    Ok(Some(range))
}

impl VectorSource for Narrowed {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(Box::new(NarrowedScan { source: self, scan: self.source.scan(batch_bytes)?, floats: Vec::new() }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        // A vector as floats, while it is converted.
        self.source.scan_bytes(batch_bytes) + (self.info.vectors.dimensions * size_of::<f32>()) as u64
    }

    fn id_bytes(&self) -> Option<u64> {
        self.source.id_bytes()
    }

    fn row_bytes(&self) -> Option<u64> {
        self.source.row_bytes()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }

    fn files(&self) -> Vec<SourceFile> {
        self.source.files()
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        self.source.attributes()
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.source.locate(row)
    }
}

/// A scan of floats that converts them to bytes.
struct NarrowedScan<'a> {
    source: &'a Narrowed,
    scan: Box<dyn VectorScan + 'a>,
    floats: Vec<f32>,
}

impl VectorScan for NarrowedScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let Some(mut batch) = self.scan.next_batch()? else { return Ok(None) };
        let Narrowed { source, kernel, info } = self.source;
        let (from, to) = (source.info().vectors, info.vectors.element);
        self.floats.resize(from.dimensions, 0.0);
        // In place: a vector of bytes ends before the one that it is made of.
        for row in 0..batch.rows {
            as_floats(*kernel, from.element, &batch.bytes[row * from.bytes()..][..from.bytes()], &mut self.floats);
            for (byte, &float) in batch.bytes[row * from.dimensions..].iter_mut().zip(&self.floats) {
                *byte = if to == Element::U8 { float as u8 } else { (float as i8).cast_unsigned() };
            }
        }
        batch.bytes.truncate(batch.rows * from.dimensions);
        Ok(Some(batch))
    }
}
