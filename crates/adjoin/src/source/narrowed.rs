//! Reads floats as bytes if all of them are small integers. Descriptors and quantized embeddings are often stored as
//! such floats. Distances between bytes are the same. Bytes take a quarter of the memory, and of the time to compare.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::vec::IntoIter;

use adjoin_device::Reservation;
use adjoin_kernels::Kernel;

use super::file::SourceFile;
use super::vector_source::{SourceAttributes, SourceInfo, VectorSource};
use super::vectors::{VectorBatch, VectorScan};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::as_floats;
use crate::base::mutex::lock;
use crate::base::options::{Element, VectorType};

/// Size of the vectors of a batch to check, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Upper limit for a sum of squared differences. Below it, f32 adds them without rounding.
const EXACT_SUM_MAX: u64 = 1 << 24;
/// Added to a small number, it leaves no bit for a fraction, and the lowest bits are those of the integer.
const SHIFT: f32 = 1.5 * (1 << 23) as f32;
/// Memory that is left free when rows are held, and the fraction of the rest that rows may take.
const LEFT_FREE_BYTES: u64 = 64 << 20;
const HELD_SHARE: u64 = 4;
/// Values that are checked at once.
const LANES: usize = 16;

/// A source of floats that delivers bytes.
struct Narrowed {
    source: Arc<dyn VectorSource>,
    kernel: Kernel,
    info: SourceInfo,
    /// The rows, for the next scan alone.
    held: Mutex<Option<HeldBatches>>,
}

/// All rows of a source, as bytes.
struct HeldBatches {
    batches: Vec<VectorBatch>,
    memory: Reservation,
    /// The most bytes to hold.
    most: u64,
}

impl HeldBatches {
    /// Creates an empty list. It may take a quarter of the memory that is free now, since a build or a join needs most of
    /// it.
    fn new(context: &Context) -> Option<Self> {
        let most = context.budget().free().saturating_sub(LEFT_FREE_BYTES) / HELD_SHARE;
        let memory = context.budget().reserve(0).ok()?;
        (most > 0).then_some(Self { batches: Vec::new(), memory, most })
    }

    /// Adds a batch of floats that are integers. Returns whether memory suffices for it.
    fn push(&mut self, context: &Context, kernel: Kernel, vectors: VectorType, batch: &VectorBatch) -> bool {
        let VectorBatch { first_row, rows, ref bytes, ref faults, ref ids } = *batch;
        let of_faults = size_of_val(&faults[..]) as u64;
        let held = (rows * vectors.dimensions + size_of::<VectorBatch>()) as u64 + of_faults + ids.held_bytes();
        let all = self.memory.bytes() + held;
        if all > self.most || context.grow(&mut self.memory, all, "vectors as bytes").is_err() {
            return false;
        }
        let VectorType { element, dimensions } = vectors;
        let (mut narrow, mut floats) = (vec![0; rows * dimensions], vec![0.0; dimensions]);
        let both = bytes.chunks_exact(vectors.bytes()).zip(narrow.chunks_exact_mut(dimensions));
        both.for_each(|(vector, bytes)| {
            as_floats(kernel, element, vector, &mut floats);
            as_bytes(&floats, bytes);
        });
        self.batches.push(VectorBatch { first_row, rows, bytes: narrow, faults: faults.clone(), ids: ids.clone() });
        true
    }
}

/// A scan of rows that are held. Each batch is freed when it is consumed.
struct HeldScan {
    batches: IntoIter<VectorBatch>,
    /// Kept until the scan ends, since consumed batches are still in use for a while.
    _memory: Reservation,
}

impl VectorScan for HeldScan {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        Ok(self.batches.next())
    }
}

/// Converts integers that bytes hold to their lowest byte, which is the same whether the byte has a sign or not.
fn as_bytes(floats: &[f32], bytes: &mut [u8]) {
    bytes.iter_mut().zip(floats).for_each(|(byte, &float)| *byte = (float + SHIFT).to_bits() as u8);
}

/// Range of values, all of which are integers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IntegerRange {
    least: f32,
    most: f32,
}

/// Ranges by lane, and whether values have fractions. The compiler vectorizes a loop over lanes.
struct IntegerLanes {
    least: [f32; LANES],
    most: [f32; LANES],
    fractions: [u32; LANES],
}

impl IntegerLanes {
    fn add(&mut self, values: &[f32; LANES]) {
        for (lane, &value) in values.iter().enumerate() {
            self.fractions[lane] |= u32::from((value + SHIFT) - SHIFT != value);
            self.least[lane] = if value < self.least[lane] { value } else { self.least[lane] };
            self.most[lane] = if value > self.most[lane] { value } else { self.most[lane] };
        }
    }
}

impl IntegerRange {
    const EMPTY: Self = Self { least: f32::INFINITY, most: f32::NEG_INFINITY };

    /// Adds values to the range. Returns `None` if some value is not an integer, or far too large for a byte.
    fn with(self, values: &[f32]) -> Option<Self> {
        let mut lanes = IntegerLanes { least: [self.least; LANES], most: [self.most; LANES], fractions: [0; LANES] };
        let (chunks, rest) = values.as_chunks::<LANES>();
        chunks.iter().for_each(|chunk| lanes.add(chunk));
        if let Some(&first) = rest.first() {
            let mut last = [first; LANES];
            last[..rest.len()].copy_from_slice(rest);
            lanes.add(&last);
        }
        let IntegerLanes { least, most, fractions } = lanes;
        let least = least.into_iter().fold(f32::INFINITY, f32::min);
        let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
        // Infinity is its own integer part, and NaN is in no range, but differs from its integer part.
        let are_integers = fractions == [0; LANES];
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

/// Reads sources as bytes of one type if all of their vectors are integers that fit, and returns them as they are
/// otherwise. This takes a scan of each source, which ends at the first vector that does not fit. The bytes of a single
/// source are held for its next scan if they take little of the memory.
///
/// # Errors
/// If a source cannot be read.
pub(crate) fn narrowed<const N: usize>(
    context: &Context,
    sources: [Arc<dyn VectorSource>; N],
) -> Result<[Arc<dyn VectorSource>; N]> {
    let mut range = IntegerRange::EMPTY;
    // Of several sources, one would be held while a store is built of another.
    let mut held = if N == 1 { HeldBatches::new(context) } else { None };
    for source in &sources {
        match range_of(context, &**source, range, &mut held)? {
            Some(all) => range = all,
            None => return Ok(sources),
        }
    }
    let Some(element) = range.element() else { return Ok(sources) };
    let mut narrowed = |source: Arc<dyn VectorSource>| -> Arc<dyn VectorSource> {
        let info = source.info().clone();
        let vectors = VectorType { element, ..info.vectors };
        let (info, held) = (SourceInfo { vectors, ..info }, Mutex::new(held.take()));
        Arc::new(Narrowed { source, kernel: context.kernel, info, held })
    };
    Ok(sources.map(&mut narrowed))
}

/// Extends a range by the vectors of a source. Returns `None` if bytes would not hold some vector, or memory does not
/// suffice for the scan. Holds the rows in `held` as long as memory suffices.
fn range_of(
    context: &Context,
    source: &dyn VectorSource,
    mut range: IntegerRange,
    held: &mut Option<HeldBatches>,
) -> Result<Option<IntegerRange>> {
    let VectorType { element, dimensions } = source.info().vectors;
    // With more dimensions, distances between floats are rounded, so distances between bytes would differ from them.
    if element.is_integer() || dimensions as u64 * 255 * 255 >= EXACT_SUM_MAX {
        return Ok(None);
    }
    let reading = source.scan_bytes(BATCH_BYTES as u64) + source.id_bytes().unwrap_or(0) + 2 * BATCH_BYTES as u64;
    let Ok(_memory) = context.budget().reserve(reading) else { return Ok(None) };
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
        let vectors = source.info().vectors;
        if held.as_mut().is_some_and(|held| !held.push(context, context.kernel, vectors, &batch)) {
            *held = None;
        }
    }
    Ok(Some(range))
}

impl VectorSource for Narrowed {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        if let Some(HeldBatches { batches, memory, .. }) = lock(&self.held).take() {
            return Ok(Box::new(HeldScan { batches: batches.into_iter(), _memory: memory }));
        }
        Ok(Box::new(NarrowedScan { source: self, scan: self.source.scan(batch_bytes)?, floats: Vec::new() }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        // During the conversion, one vector is in memory as floats.
        self.source.scan_bytes(batch_bytes) + (self.info.vectors.dimensions * size_of::<f32>()) as u64
    }

    fn release(&self) {
        *lock(&self.held) = None;
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
        let Narrowed { source, kernel, .. } = self.source;
        let from = source.info().vectors;
        self.floats.resize(from.dimensions, 0.0);
        // Converts in place. The bytes of a vector are written at or before the position of its floats, which are
        // already read.
        for row in 0..batch.rows {
            as_floats(*kernel, from.element, &batch.bytes[row * from.bytes()..][..from.bytes()], &mut self.floats);
            as_bytes(&self.floats, &mut batch.bytes[row * from.dimensions..]);
        }
        batch.bytes.truncate(batch.rows * from.dimensions);
        Ok(Some(batch))
    }
}
