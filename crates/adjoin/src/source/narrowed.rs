//! Reads floats as bytes if all of them are small integers. Descriptors and quantized embeddings are often stored as
//! such floats. Distances between bytes are the same. Bytes take a quarter of the memory, and of the time to compare. The
//! scan that checks the floats also copies them as bytes, so that later scans read a quarter as much.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::vec::IntoIter;

use adjoin_device::Reservation;
use adjoin_kernels::Kernel;

use super::file::SourceFile;
use super::narrowed_file::{NarrowedFile, NarrowedWriter};
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
    /// The rows on disk, if they are not held.
    file: Option<NarrowedFile>,
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

    /// Reserves memory for a batch whose vectors are bytes. Returns whether it suffices.
    fn has_room(&mut self, context: &Context, batch: &VectorBatch) -> bool {
        let VectorBatch { bytes, faults, ids, .. } = batch;
        let of_faults = size_of_val(&faults[..]) as u64;
        let held = (bytes.len() + size_of::<VectorBatch>()) as u64 + of_faults + ids.held_bytes();
        let all = self.memory.bytes() + held;
        all <= self.most && context.grow(&mut self.memory, all, "vectors as bytes").is_ok()
    }
}

/// A copy of the rows of a source as bytes, which the first scan makes: in memory, or in a file if they are not held. Later
/// scans then read a fraction of the bytes.
enum NarrowedCopy {
    Held(HeldBatches),
    Written(NarrowedWriter),
    None,
}

impl NarrowedCopy {
    /// Creates a copy that holds rows in memory, or no copy. Rows of one of several sources are not held, since they would
    /// be held while a store is built of another one.
    fn held(context: &Context, is_sole: bool) -> Self {
        is_sole.then(|| HeldBatches::new(context)).flatten().map_or(Self::None, Self::Held)
    }

    /// Adds a batch whose vectors are bytes. If that is not possible, there will be no copy.
    fn push(&mut self, context: &Context, info: &SourceInfo, batch: VectorBatch) {
        let writer = match std::mem::replace(self, Self::None) {
            Self::Held(mut held) => {
                if held.has_room(context, &batch) {
                    held.batches.push(batch);
                    *self = Self::Held(held);
                    return;
                }
                NarrowedWriter::begin(context, info, &held.batches)
            }
            Self::None if batch.first_row == 0 => NarrowedWriter::begin(context, info, &[]),
            Self::None => None,
            Self::Written(writer) => Some(writer),
        };
        let written = writer.and_then(|mut writer| writer.append(&batch).then_some(writer));
        *self = written.map_or(Self::None, Self::Written);
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
/// otherwise. This takes a scan of each source, which ends at the first vector that does not fit. The bytes are kept for
/// later scans: in memory, if they take little of it and there is one source, or in a temporary file.
///
/// # Errors
/// If a source cannot be read.
pub(crate) fn narrowed<const N: usize>(
    context: &Context,
    sources: [Arc<dyn VectorSource>; N],
) -> Result<[Arc<dyn VectorSource>; N]> {
    let mut range = IntegerRange::EMPTY;
    let mut copies = Vec::with_capacity(N);
    for source in &sources {
        let Some((all, copy)) = range_of(context, &**source, range, N == 1)? else { return Ok(sources) };
        range = all;
        copies.push(match copy {
            NarrowedCopy::Held(held) => (Some(held), None),
            NarrowedCopy::Written(writer) => (None, writer.finish(context)),
            NarrowedCopy::None => (None, None),
        });
    }
    let Some(element) = range.element() else { return Ok(sources) };
    let mut copies = copies.into_iter();
    Ok(sources.map(|source| -> Arc<dyn VectorSource> {
        let info = source.info().clone();
        let vectors = VectorType { element, ..info.vectors };
        let (held, file) = copies.next().unwrap_or_default();
        let (info, held) = (SourceInfo { vectors, ..info }, Mutex::new(held));
        Arc::new(Narrowed { source, kernel: context.kernel, info, held, file })
    }))
}

/// Extends a range by the vectors of a source. Returns `None` if bytes would not hold some vector, or memory does not
/// suffice for the scan. Also returns a copy of the rows. `is_sole` states that there is no other source.
fn range_of(
    context: &Context,
    source: &dyn VectorSource,
    mut range: IntegerRange,
    is_sole: bool,
) -> Result<Option<(IntegerRange, NarrowedCopy)>> {
    let VectorType { element, dimensions } = source.info().vectors;
    // With more dimensions, distances between floats are rounded, so distances between bytes would differ from them.
    if element.is_integer() || dimensions as u64 * 255 * 255 >= EXACT_SUM_MAX {
        return Ok(None);
    }
    let reading = source.scan_bytes(BATCH_BYTES as u64) + source.id_bytes().unwrap_or(0) + 2 * BATCH_BYTES as u64;
    let Ok(_memory) = context.budget().reserve(reading) else { return Ok(None) };
    let mut copy = NarrowedCopy::held(context, is_sole);
    let mut floats = vec![0.0; dimensions];
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(mut batch) = scan.next_batch()? {
        context.cancel.check()?;
        // A row without a vector has zeros in its place.
        let mut narrow = vec![0; batch.rows * dimensions];
        let mut faults = batch.faults.iter().map(|(row, _)| *row).peekable();
        let vectors = batch.bytes.chunks_exact(source.info().vectors.bytes());
        for (row, (vector, bytes)) in vectors.zip(narrow.chunks_exact_mut(dimensions)).enumerate() {
            if faults.next_if_eq(&row).is_some() {
                continue;
            }
            as_floats(context.kernel, element, vector, &mut floats);
            match range.with(&floats) {
                Some(wider) if wider.element().is_some() => range = wider,
                _ => return Ok(None),
            }
            as_bytes(&floats, bytes);
        }
        batch.bytes = narrow;
        copy.push(context, source.info(), batch);
    }
    Ok(Some((range, copy)))
}

impl VectorSource for Narrowed {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        self.scan_from(batch_bytes, 0)
    }

    fn scan_from(&self, batch_bytes: usize, row: u64) -> Result<Box<dyn VectorScan + '_>> {
        if let Some(HeldBatches { batches, memory, .. }) = lock(&self.held).take() {
            return Ok(Box::new(HeldScan { batches: batches.into_iter(), _memory: memory }));
        }
        if let Some(file) = &self.file {
            return Ok(Box::new(file.scan(self.info(), batch_bytes, row)));
        }
        Ok(Box::new(NarrowedScan { source: self, scan: self.source.scan_from(batch_bytes, row)?, floats: Vec::new() }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        // During the conversion, one vector is in memory as floats.
        self.source.scan_bytes(batch_bytes) + (self.info.vectors.dimensions * size_of::<f32>()) as u64
    }

    fn release(&self) {
        *lock(&self.held) = None;
    }

    fn temporary_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, NarrowedFile::bytes)
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

#[cfg(test)]
mod tests {
    use adjoin_device::{Device, FaultPlan, SimulatedDevice};

    use super::*;
    use crate::source::SourceOptions;
    use crate::source::fixtures::{Folder, fbin, on, read_all};

    const DIMENSIONS: usize = 128;

    /// Writes a file of floats that are integers, except for the last one if `fraction` is set. Returns their bytes.
    fn write_floats(folder: &Folder, fraction: bool) -> Vec<u8> {
        let bytes: Vec<u8> = (0..DIMENSIONS * 40_000).map(|k| (k * k % 251) as u8).collect();
        let mut floats: Vec<f32> = bytes.iter().map(|&byte| byte.into()).collect();
        *floats.last_mut().unwrap() += if fraction { 0.5 } else { 0.0 };
        folder.write("a.fbin", &fbin(DIMENSIONS, &floats));
        bytes
    }

    fn temporary_folders(folder: &Folder) -> usize {
        std::fs::read_dir(folder.path("")).unwrap().count() - 1 // without the source
    }

    #[test]
    fn scans_read_a_temporary_file_if_memory_does_not_hold_the_rows() {
        let folder = Folder::new();
        let bytes = write_floats(&folder, false);
        let context = Context::default().with_memory(64 << 20).with_temporary(&folder.path("")).unwrap();
        let [source] = narrowed(&context, [folder.open(&["a.fbin"]).unwrap()]).unwrap();
        assert_eq!((source.info().vectors.element, source.temporary_bytes()), (Element::U8, bytes.len() as u64));
        assert_eq!(temporary_folders(&folder), 1);
        // The file of the source is not read again.
        folder.write("a.fbin", &[]);
        for batch_bytes in [1, 1 << 20] {
            assert!(read_all(source.as_ref(), batch_bytes).bytes == bytes);
        }
        let later = source.scan_from(1 << 20, 30_000).unwrap().next_batch().unwrap().unwrap();
        assert!(later.first_row == 30_000 && bytes[30_000 * DIMENSIONS..].starts_with(&later.bytes));
        drop(source);
        assert_eq!(temporary_folders(&folder), 0);
    }

    #[test]
    fn scans_read_the_source_again_if_nothing_holds_the_rows() {
        let folder = Folder::new();
        let bytes = write_floats(&folder, false);
        std::fs::create_dir(folder.path("gone")).unwrap();
        let context = Context::default().with_memory(64 << 20).with_temporary(&folder.path("gone")).unwrap();
        std::fs::remove_dir_all(folder.path("gone")).unwrap();
        let [source] = narrowed(&context, [folder.open(&["a.fbin"]).unwrap()]).unwrap();
        assert_eq!(source.temporary_bytes(), 0);
        for _ in 0..2 {
            assert!(read_all(source.as_ref(), 1 << 20).bytes == bytes);
        }
    }

    #[test]
    fn rows_of_several_sources_are_written() {
        let folder = Folder::new();
        let bytes = write_floats(&folder, false);
        let context = Context::default().with_memory(1 << 30).with_temporary(&folder.path("")).unwrap();
        let sources = narrowed(&context, [(); 2].map(|()| folder.open(&["a.fbin"]).unwrap())).unwrap();
        for source in &sources {
            assert_eq!(source.temporary_bytes(), bytes.len() as u64);
            assert!(read_all(source.as_ref(), 1 << 20).bytes == bytes);
        }
        assert_eq!(temporary_folders(&folder), 2);
    }

    /// Returns a device that holds a file of floats, a context in whose temporary folder nothing else is, and the bytes of
    /// the floats.
    fn simulated() -> (Arc<SimulatedDevice>, Context, Vec<u8>) {
        let (folder, data) = (Folder::new(), std::path::Path::new("data"));
        let bytes = write_floats(&folder, false);
        let device = Arc::new(SimulatedDevice::new(FaultPlan::None));
        device.put("data/a.fbin", &std::fs::read(folder.path("a.fbin")).unwrap());
        let context = on(device.clone()).with_memory(64 << 20).with_temporary(data).unwrap();
        (device, context, bytes)
    }

    fn narrowed_from(context: &Context) -> Result<Arc<dyn VectorSource>> {
        let source = crate::source::open(context, &["data/a.fbin".into()], &SourceOptions::default())?;
        narrowed(context, [source]).map(|[source]| source)
    }

    #[test]
    fn no_file_is_written_to_a_disk_with_little_space() {
        for is_free in [true, false] {
            let (device, context, bytes) = simulated();
            device.set_free_bytes(4 * bytes.len() as u64 - u64::from(!is_free));
            let source = narrowed_from(&context).unwrap();
            assert_eq!(source.temporary_bytes() > 0, is_free);
            assert!(read_all(source.as_ref(), 1 << 20).bytes == bytes);
            drop(source);
            assert_eq!(device.list(std::path::Path::new("data")).unwrap(), ["a.fbin"]);
        }
    }

    #[test]
    fn a_failed_operation_leaves_a_source_or_an_error() {
        let (device, context, _) = simulated();
        let first = device.operations().len() as u64;
        let source = narrowed_from(&context).unwrap();
        let last = device.operations().len() as u64;
        drop(source);
        let (mut refused, mut without_file) = (0, 0);
        for at in first..last {
            let (device, context, bytes) = simulated();
            device.set_plan(FaultPlan::Fail { at, kind: std::io::ErrorKind::StorageFull });
            let Ok(source) = narrowed_from(&context) else {
                refused += 1;
                continue;
            };
            without_file += u32::from(source.temporary_bytes() == 0);
            device.set_plan(FaultPlan::None);
            assert!(read_all(source.as_ref(), 1 << 20).bytes == bytes, "{at}");
        }
        assert!(refused > 10 && without_file > 5, "{refused} reads of the source, {without_file} others");
    }

    #[test]
    fn memory_holds_the_rows_for_one_scan() {
        let folder = Folder::new();
        let bytes = write_floats(&folder, false);
        let context = Context::default().with_memory(1 << 30).with_temporary(&folder.path("")).unwrap();
        let [source] = narrowed(&context, [folder.open(&["a.fbin"]).unwrap()]).unwrap();
        assert_eq!((source.temporary_bytes(), temporary_folders(&folder)), (0, 0));
        for _ in 0..2 {
            assert!(read_all(source.as_ref(), 1 << 20).bytes == bytes);
        }
        assert_eq!(context.budget().reserved(), 0);
    }

    #[test]
    fn nothing_is_left_if_a_fraction_follows_many_integers() {
        let folder = Folder::new();
        write_floats(&folder, true);
        let context = Context::default().with_memory(64 << 20).with_temporary(&folder.path("")).unwrap();
        let [source] = narrowed(&context, [folder.open(&["a.fbin"]).unwrap()]).unwrap();
        assert_eq!((source.info().vectors.element, temporary_folders(&folder)), (Element::F32, 0));
    }
}
