//! Reads floats as bytes if all of them are small integers. Descriptors and quantized embeddings are often stored as
//! such floats. Distances between bytes are the same. Bytes take a quarter of the memory, and of the time to compare.

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

/// Size of the vectors of a batch to check, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Upper limit for a sum of squared differences. Below it, f32 adds them without rounding.
const EXACT_SUM_MAX: u64 = 1 << 24;

/// A source of floats that delivers bytes.
struct Narrowed {
    source: Arc<dyn VectorSource>,
    kernel: Kernel,
    info: SourceInfo,
}

/// Range of values, all of which are integers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IntegerRange {
    least: f32,
    most: f32,
}

impl IntegerRange {
    const EMPTY: Self = Self { least: f32::INFINITY, most: f32::NEG_INFINITY };

    /// Extends the range to `values`. Returns `None` if a value is not a finite integer.
    fn with(self, values: &[f32]) -> Option<Self> {
        let Self { mut least, mut most } = self;
        let mut are_integers = true;
        for &value in values {
            are_integers &= value.trunc() == value;
            least = least.min(value);
            most = most.max(value);
        }
        // Infinity equals its integer part, so the range is checked. NaN does not equal its integer part, and `min`
        // ignores it.
        (are_integers && least.is_finite() && most.is_finite()).then_some(Self { least, most })
    }

    /// Returns the byte type that can represent the range. Returns `None` if there is none or the range is empty.
    fn element(self) -> Option<Element> {
        match (self.least, self.most) {
            (least, most) if least > most => None,
            (least, most) if least >= 0.0 && most <= 255.0 => Some(Element::U8),
            (least, most) if least >= -128.0 && most <= 127.0 => Some(Element::I8),
            _ => None,
        }
    }
}

/// Returns sources that deliver bytes if all vectors of all sources consist of integers that fit in one byte type.
/// Otherwise returns the sources as they are. This takes a scan of each source, which ends at the first vector that
/// does not fit.
///
/// # Errors
/// Fails if a source cannot be read.
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

/// Extends a range to the vectors of a source. Returns `None` if a vector cannot be represented by bytes, or if memory
/// does not suffice for the scan.
fn range_of(context: &Context, source: &dyn VectorSource, mut range: IntegerRange) -> Result<Option<IntegerRange>> {
    let VectorType { element, dimensions } = source.info().vectors;
    // With more dimensions, distances between floats are rounded, so distances between bytes would differ from them.
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
            // A row without a vector has zeros in its place.
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
        // During the conversion, one vector is in memory as floats.
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
        // Converts in place. The bytes of a vector are written at or before the position of its floats, which are
        // already read.
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
