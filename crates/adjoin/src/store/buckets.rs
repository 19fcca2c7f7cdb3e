//! Writes the file of buckets from records in partitions. The records of a partition are read and arranged by bucket.
//! Then the extents are written one after the other.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use adjoin_device::BLOCK_BYTES;
use crossbeam_channel::bounded;
use xxhash_rust::xxh3::Xxh3;

use super::blocks::BlockWriter;
use super::bucket_file::{ExtentFile, Leg, Writing, Written, pad};
use super::checkpoint::{BuildCheckpoint, WrittenExtents};
use super::format::{self, EXTENT_ALIGNMENT, Extent, HEADER_BYTES};
use super::held::{AssignedRows, GroupedRows};
use super::intake::UsableRows;
use super::ordinals::Ordinals;
use super::records::{Record, Tally, push_id};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::options::VectorType;
use crate::base::report::Stopwatch;
use crate::base::workers::spawn_scoped;
use crate::source::{IdKind, Ids};

/// Maximum size of the vectors of a bucket, in bytes, unless the average bucket is about as large. A larger bucket is
/// split, because a join holds two buckets at a time.
const PART_BYTES_MAX: u64 = 1 << 20;
/// Buckets with fewer rows are not split.
const PART_ROWS_MIN: u64 = 16;
/// Buckets with fewer rows than this multiple of the mean are not split.
const PART_TIMES_MEAN: u64 = 4;
/// Bytes per row that record the order of arrival while rows and their ids are sorted by a column.
pub(crate) const ARRIVAL_BYTES: u64 = 2 * size_of::<u32>() as u64;

/// Bytes of an encoded row and extent in addition to those of an arranged one.
pub(crate) const ENCODED_BYTES_A_ROW: u64 = size_of::<u64>() as u64;
pub(crate) const ENCODED_BYTES_AN_EXTENT: u64 = HEADER_BYTES as u64 + 2 * EXTENT_ALIGNMENT;
/// Threads that encode rows in memory, at most: more of them are faster than any disk.
const ENCODERS_MAX: usize = 4;

/// Returns the number of threads that encode rows in memory.
pub(crate) fn encoders(threads: usize) -> usize {
    threads.clamp(1, ENCODERS_MAX)
}

/// Returns the maximum number of rows of an extent. If a center has more rows, they are split over several extents.
pub(crate) fn extent_rows_max(rows: u64, buckets: u64, vectors: VectorType) -> u64 {
    let mean = rows.div_ceil(buckets);
    // If the average bucket is large, the multiple of the mean is the limit. Otherwise all buckets of such a store
    // would be split.
    (PART_BYTES_MAX / vectors.bytes() as u64).max(PART_TIMES_MEAN * mean).clamp(PART_ROWS_MIN, u64::from(u32::MAX))
}

/// Returns the bytes that a row takes in memory, without its id.
pub(crate) fn row_bytes(vectors: VectorType) -> u64 {
    vectors.bytes() as u64 + size_of::<u64>() as u64
}

/// Rows of centers that are written before the records, ascending by row number: the old rows of a store during an
/// append.
pub(crate) trait RowsBefore: Sync {
    /// Passes the rows of a center to `take`.
    ///
    /// # Errors
    /// Fails if the rows cannot be read.
    fn each(&self, center: u32, take: &mut dyn FnMut(&Record<'_>)) -> Result<()>;
}

/// An extent to be written. It has `rows` consecutive rows of a center, from row `first` of the center on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BucketPart {
    center: u32,
    first: u64,
    rows: u32,
    /// Bytes that its rows take in memory, including the ids of the whole center.
    bytes: u64,
}

impl BucketPart {
    /// Returns a bound on the bytes of the extent in the file, and of its row numbers next to it.
    fn encoded_bytes(&self) -> u64 {
        self.bytes + ENCODED_BYTES_A_ROW * u64::from(self.rows) + ENCODED_BYTES_AN_EXTENT
    }
}

/// Writer of the file of buckets.
pub(crate) struct BucketWriter<'a> {
    pub(crate) context: &'a Context,
    pub(crate) rows: &'a AssignedRows,
    /// Rows that are written before the records, if any.
    pub(crate) before: Option<&'a dyn RowsBefore>,
    pub(crate) vectors: VectorType,
    pub(crate) ids: IdKind,
    /// Numbers of the centers, in tree order.
    pub(crate) order: &'a [u32],
    /// Partition of each center in `order`, ascending.
    pub(crate) partition_of: &'a [u32],
    /// Tallies by center.
    pub(crate) tallies: &'a [Tally],
    pub(crate) extent_rows_max: u64,
    /// Maximum number of bytes of rows that are arranged at a time. Two such loads are in memory: one is written while
    /// the next is read.
    pub(crate) load_bytes: u64,
    /// Checkpoints of written extents, if requested.
    pub(crate) kept: Option<&'a Mutex<BuildCheckpoint>>,
    /// Present if rows are sorted by a column.
    pub(crate) sorted: Option<SortedRows<'a>>,
}

/// Data needed to write rows that are sorted by a column.
#[derive(Clone, Copy)]
pub(crate) struct SortedRows<'a> {
    /// Ranks of the rows within each center.
    pub(crate) ordinals: &'a Ordinals,
    /// Path of the file of block checksums.
    pub(crate) blocks_path: &'a Path,
}

/// Extents as they are in the file, each with padding up to the alignment of extents.
struct Encoded {
    /// The row numbers of all of them.
    rows: Vec<u64>,
    bytes: Vec<u8>,
    lengths: Vec<EncodedLength>,
}

/// Bytes of an extent without its padding.
#[derive(Clone, Copy)]
struct EncodedLength {
    body: u64,
    ids: u64,
}

/// Extents that are read and arranged together.
struct Load {
    /// The partitions with their rows.
    partitions: Range<usize>,
    parts: Range<usize>,
}

impl Load {
    /// Removes the extents with numbers below `first`. Returns `None` if no extent is left.
    fn from(self, first: usize) -> Option<Self> {
        let parts = self.parts.start.max(first)..self.parts.end;
        (!parts.is_empty()).then_some(Self { parts, ..self })
    }
}

/// Rows of a load, in their order on disk.
struct Arranged {
    load: Load,
    rows: Vec<u64>,
    stored: Vec<u8>,
    /// Ids of the rows of each extent.
    ids: Vec<Ids>,
}

/// Positions of rows in a load. Each row gets its position when it arrives.
struct Places<'a> {
    parts: &'a [BucketPart],
    extent_rows_max: u64,
    /// For each center of the load: the number of rows seen so far, the center's first extent in this load, and the
    /// position of the first row of that extent.
    of_center: HashMap<u32, (u64, usize, usize)>,
    /// Number of rows in the load.
    rows: usize,
}

impl<'a> Places<'a> {
    fn of(parts: &'a [BucketPart], extent_rows_max: u64) -> Self {
        let (mut of_center, mut rows) = (HashMap::new(), 0);
        for (k, part) in parts.iter().enumerate() {
            of_center.entry(part.center).or_insert((0, k, rows));
            rows += part.rows as usize;
        }
        Self { parts, extent_rows_max, of_center, rows }
    }

    /// Returns the extent and the position within the load for the next row of a center. Returns `None` if the row
    /// belongs to another load. If rows are sorted by a column, `ordinal` returns the row's rank within its center.
    /// Otherwise it returns `None`, and rows keep the order in which they arrive.
    fn next(&mut self, center: u32, ordinal: impl FnOnce() -> Option<u64>) -> Option<(usize, usize)> {
        let (seen, first_part, start) = self.of_center.get_mut(&center)?;
        let ordinal = ordinal().unwrap_or(*seen);
        *seen += 1;
        // Earlier rows of the center belong to an extent of another load.
        let since = ordinal.checked_sub(self.parts[*first_part].first)?;
        let part = *first_part + (since / self.extent_rows_max) as usize;
        // Rows beyond the last extent of the center in this load belong to a later load.
        let is_here = self.parts.get(part).is_some_and(|part| part.center == center);
        is_here.then_some((part, *start + since as usize))
    }
}

impl BucketWriter<'_> {
    /// Returns the number of bytes that the largest extent takes in memory.
    pub(crate) fn largest_extent(&self) -> u64 {
        let parts = self.parts();
        let bytes = parts.iter().map(|(_, part)| match self.rows {
            AssignedRows::Records(_) | AssignedRows::Shuffled(_) => part.bytes,
            AssignedRows::Grouped(_) => part.encoded_bytes(),
        });
        bytes.max().unwrap_or(0)
    }

    /// Writes all buckets to a new file. Passes the row numbers to `lies`, in the order on disk and in several calls.
    ///
    /// # Errors
    /// Fails if the file cannot be written, the work is canceled, or `lies` fails.
    pub(crate) fn write(&self, path: &Path, lies: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<Written> {
        let (partitions, parts): (Vec<usize>, Vec<BucketPart>) = self.parts().into_iter().unzip();
        let mut writing = self.begin(path, &parts)?;
        self.write_all(&partitions, &parts, &mut writing, lies)?;
        // Makes the last extents durable before a manifest names this file.
        self.keep(&mut writing)?;
        writing.finish()
    }

    /// Appends all buckets to `file`, one per call. They are numbered from 0, and their offsets count from its first
    /// bucket.
    ///
    /// # Errors
    /// Fails as [`Self::write`] does.
    pub(super) fn write_to(&self, file: impl ExtentFile) -> Result<Written> {
        let (partitions, parts): (Vec<usize>, Vec<BucketPart>) = self.parts().into_iter().unzip();
        let mut writing = Writing::new(file, None);
        self.write_all(&partitions, &parts, &mut writing, &mut |_| Ok(()))?;
        writing.finish()
    }

    fn write_all(
        &self,
        partitions: &[usize],
        parts: &[BucketPart],
        writing: &mut Writing<'_>,
        lies: &mut dyn FnMut(&[u64]) -> Result<()>,
    ) -> Result<()> {
        self.context.progress.begin("write", "buckets", parts.len() as u64);
        match self.rows {
            AssignedRows::Grouped(rows) => self.write_grouped(rows, parts, writing, lies),
            _ => self.write_records(partitions, parts, writing, lies),
        }
    }

    /// Writes the buckets that are not written yet, from records in partitions.
    fn write_records(
        &self,
        partitions: &[usize],
        parts: &[BucketPart],
        writing: &mut Writing<'_>,
        lies: &mut dyn FnMut(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let first = writing.written.centers.len();
        let loads = self.loads(partitions, parts).into_iter().filter_map(|load| load.from(first));
        std::thread::scope(|scope| {
            // The channel holds no load. So two loads are in memory: one is written while the other is arranged.
            let (sender, arranged) = bounded(0);
            spawn_scoped(scope, "adjoin arrange", move || {
                for load in loads {
                    let arranged = self.arrange(load, parts);
                    let failed = arranged.is_err();
                    // Sending fails if the writer has stopped with an error. If arranging failed, the writer does not
                    // need any further load.
                    if sender.send(arranged).is_err() || failed {
                        return;
                    }
                }
            })?;
            let mut out = Vec::new();
            loop {
                let watch = Stopwatch::start();
                let Ok(arranged) = arranged.recv() else { break };
                writing.written.waited += watch.seconds();
                let arranged = arranged?;
                lies(&arranged.rows)?;
                self.write_load(&arranged, parts, writing, &mut out)?;
            }
            Ok(())
        })
    }

    /// Writes all buckets from rows in memory. Several threads copy and encode rows; this one writes.
    fn write_grouped(
        &self,
        rows: &GroupedRows,
        parts: &[BucketPart],
        writing: &mut Writing<'_>,
        lies: &mut dyn FnMut(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let loads = &self.grouped_loads(parts);
        std::thread::scope(|scope| {
            // Each thread encodes every n-th load, so that loads are received in order without a queue of their own.
            let encoders = encoders(self.context.threads).min(loads.len());
            let mut encoded = Vec::with_capacity(encoders);
            for encoder in 0..encoders {
                // One load waits and one is being encoded.
                let (sender, receiver) = bounded(1);
                encoded.push(receiver);
                spawn_scoped(scope, "adjoin arrange", move || {
                    for load in loads.iter().skip(encoder).step_by(encoders) {
                        let load = self.encode(load.clone(), rows, parts);
                        let failed = load.is_err();
                        // Sending fails once the writer has stopped with an error.
                        if sender.send(load).is_err() || failed {
                            return;
                        }
                    }
                })?;
            }
            for (load, receiver) in loads.iter().zip(encoded.iter().cycle()) {
                let watch = Stopwatch::start();
                // A thread that has ended early has panicked; the scope reports it.
                let Ok(encoded) = receiver.recv() else { break };
                writing.written.waited += watch.seconds();
                let Encoded { rows, mut bytes, lengths } = encoded?;
                lies(&rows)?;
                let mut start = 0;
                for (number, length) in load.clone().zip(lengths) {
                    let end = start + (length.body + length.ids).next_multiple_of(EXTENT_ALIGNMENT) as usize;
                    if number + 1 == parts.len() {
                        // Its padding depends on its place in the file.
                        pad(&mut bytes, start, writing.written.bytes, BLOCK_BYTES);
                        self.append(parts, number, length, &bytes[start..], writing)?;
                    } else {
                        self.append(parts, number, length, &bytes[start..end], writing)?;
                    }
                    start = end;
                }
            }
            Ok(())
        })
    }

    /// Encodes the extents of a load.
    fn encode(&self, load: Range<usize>, grouped: &GroupedRows, parts: &[BucketPart]) -> Result<Encoded> {
        self.context.cancel.check()?;
        let UsableRows { stored, rows, ids } = grouped.rows();
        let vector_bytes = self.vectors.bytes();
        let mut encoded = Encoded {
            rows: Vec::with_capacity(parts[load.clone()].iter().map(|part| part.rows as usize).sum()),
            bytes: Vec::with_capacity(parts[load.clone()].iter().map(BucketPart::encoded_bytes).sum::<u64>() as usize),
            lengths: Vec::with_capacity(load.len()),
        };
        for number in load {
            let BucketPart { center, first, rows: count, .. } = parts[number];
            let positions = grouped.positions(center, first, count);
            let first = encoded.rows.len();
            encoded.rows.extend(positions.iter().map(|&position| rows[position as usize]));
            let mut of_extent = Ids::empty(self.ids);
            positions.iter().for_each(|&position| of_extent.push_from(ids, position as usize));
            let vectors = positions.iter().map(|&at| &stored[at as usize * vector_bytes..][..vector_bytes]);
            let rows = &encoded.rows[first..];
            let bytes = &mut encoded.bytes;
            let (body, ids) = format::encode_bucket(number as u32, self.vectors, rows, vectors, &of_extent, bytes);
            // Each load starts at a multiple of this.
            pad(bytes, 0, 0, EXTENT_ALIGNMENT as usize);
            encoded.lengths.push(EncodedLength { body, ids });
        }
        Ok(encoded)
    }

    /// Creates the file. If there is a checkpoint, continues its file instead.
    fn begin(&self, path: &Path, parts: &[BucketPart]) -> Result<Writing<'static>> {
        let kept = self.kept.map(|kept| lock(kept).extents(self.context)).transpose()?.flatten();
        let (mut written, mut headers) = (Written::default(), Xxh3::new());
        let file = match kept {
            Some(WrittenExtents { file, bytes, listed }) => {
                // The digest covers all headers, so the headers that earlier runs wrote are hashed again, in the same
                // order.
                for (listed, part) in listed.iter().zip(parts) {
                    let (header, entry) = listed.split_at(HEADER_BYTES);
                    headers.update(header);
                    written.table.extend_from_slice(entry);
                    written.centers.push(part.center);
                }
                written.bytes = bytes;
                file
            }
            None => {
                // The checkpoint must not name extents of a file that is now replaced.
                self.kept.map_or(Ok(()), |kept| lock(kept).forget_extents())?;
                self.context.device.create(path)?
            }
        };
        // This file starts empty even if there is a checkpoint: checkpoints of sorted rows contain no extents.
        let blocks = self.sorted.map(|sorted| BlockWriter::create(self.context, sorted.blocks_path)).transpose()?;
        let mut writing = Writing::new(file, blocks);
        (writing.written, writing.headers) = (written, headers);
        Ok(writing)
    }

    /// Makes everything written so far durable, then adds it to the checkpoint, if requested.
    fn keep(&self, writing: &mut Writing<'_>) -> Result<()> {
        // The sync precedes the checkpoint, because a checkpoint may name durable bytes only.
        writing.file.sync()?;
        let Some(kept) = self.kept else { return Ok(()) };
        let Leg { listed, checksum, .. } = std::mem::take(&mut writing.leg);
        if listed.is_empty() {
            return Ok(());
        }
        lock(kept).keep_extents(&listed, writing.written.bytes, checksum.digest())
    }

    /// Returns all extents in the order on disk, each with the number of its partition.
    fn parts(&self) -> Vec<(usize, BucketPart)> {
        let mut parts = Vec::new();
        for (&center, &partition) in self.order.iter().zip(self.partition_of) {
            let tally = self.tallies[center as usize];
            for first in (0..tally.rows).step_by(self.extent_rows_max as usize) {
                let rows = (tally.rows - first).min(self.extent_rows_max);
                // If rows are sorted by a column, reordering the ids takes a copy of them.
                let of_order = if self.sorted.is_some() { rows * ARRIVAL_BYTES + tally.id_bytes } else { 0 };
                let bytes = rows * row_bytes(self.vectors) + tally.id_bytes + 8 * rows + of_order;
                parts.push((partition as usize, BucketPart { center, first, rows: rows as u32, bytes }));
            }
        }
        parts
    }

    /// Groups consecutive extents into loads of at most `load_bytes` bytes, with at least one extent each. A partition of
    /// records is read as a whole, so it shares no load with another one.
    fn loads(&self, partitions: &[usize], parts: &[BucketPart]) -> Vec<Load> {
        let mut loads: Vec<Load> = Vec::new();
        let mut bytes = 0;
        for (k, (&partition, part)) in partitions.iter().zip(parts).enumerate() {
            match loads.last_mut() {
                Some(load)
                    if (load.partitions.end == partition + 1 || matches!(self.rows, AssignedRows::Shuffled(_)))
                        && bytes + part.bytes <= self.load_bytes =>
                {
                    (load.parts.end, load.partitions.end) = (k + 1, partition + 1);
                    bytes += part.bytes;
                }
                _ => {
                    loads.push(Load { partitions: partition..partition + 1, parts: k..k + 1 });
                    bytes = part.bytes;
                }
            }
        }
        loads
    }

    /// Groups extents of rows in memory into loads that are encoded together, with at least one extent each.
    fn grouped_loads(&self, parts: &[BucketPart]) -> Vec<Range<usize>> {
        let mut loads: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (k, part) in parts.iter().enumerate() {
            bytes += part.encoded_bytes();
            match loads.last_mut() {
                Some(load) if bytes <= self.load_bytes => load.end = k + 1,
                _ => {
                    loads.push(k..k + 1);
                    bytes = part.encoded_bytes();
                }
            }
        }
        loads
    }

    /// Reads the rows of a load and arranges them by extent. Within an extent, rows are in the order of the sort
    /// column if there is one, otherwise in the order of arrival.
    fn arrange(&self, load: Load, parts: &[BucketPart]) -> Result<Arranged> {
        self.context.cancel.check()?;
        let parts = &parts[load.parts.clone()];
        let mut places = Places::of(parts, self.extent_rows_max);
        let (rows, bytes) = (places.rows, self.vectors.bytes());
        let (mut numbers, mut stored) = (vec![0; rows], vec![0; rows * bytes]);
        let mut ids = vec![Ids::empty(self.ids); parts.len()];
        let mut came = vec![Vec::new(); parts.len()];
        let mut take = |record: &Record<'_>| {
            let ordinal = || self.sorted.map(|sorted| sorted.ordinals.of(record.row));
            let Some((part, place)) = places.next(record.center, ordinal) else { return };
            if self.sorted.is_some() {
                // Texts have different lengths, so ids are collected in the order of arrival and reordered at the end.
                came[part].push(place as u32);
            }
            numbers[place] = record.row;
            stored[place * bytes..][..bytes].copy_from_slice(record.vector);
            push_id(&mut ids[part], record.id);
        };
        // Old rows are arranged first. New rows have higher numbers, so row numbers ascend within a bucket.
        if let Some(before) = self.before {
            let mut centers: Vec<u32> = parts.iter().map(|part| part.center).collect();
            // Extents of one center are consecutive, so this leaves each center once.
            centers.dedup();
            centers.into_iter().try_for_each(|center| before.each(center, &mut take))?;
        }
        self.rows.read(load.partitions.clone(), |records| {
            Record::each(records, self.vectors, &mut take);
            Ok(())
        })?;
        if self.sorted.is_some() && self.ids != IdKind::None {
            ids.iter_mut().zip(came).for_each(|(ids, came)| *ids = ordered(ids, &came));
        }
        Ok(Arranged { load, rows: numbers, stored, ids })
    }

    fn write_load(
        &self,
        arranged: &Arranged,
        parts: &[BucketPart],
        writing: &mut Writing<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut start = 0;
        for (k, number) in arranged.load.parts.clone().enumerate() {
            self.context.cancel.check()?;
            let part = parts[number];
            let rows = start..start + part.rows as usize;
            start = rows.end;
            let stored = &arranged.stored[rows.start * self.vectors.bytes()..rows.end * self.vectors.bytes()];
            out.clear();
            let (rows, stored) = (&arranged.rows[rows], std::iter::once(stored));
            let (body, ids) = format::encode_bucket(number as u32, self.vectors, rows, stored, &arranged.ids[k], out);
            // The file is padded to a whole block, since direct reads cannot end within a block.
            let alignment = if number + 1 == parts.len() { BLOCK_BYTES } else { EXTENT_ALIGNMENT as usize };
            pad(out, 0, writing.written.bytes, alignment);
            self.append(parts, number, EncodedLength { body, ids }, out, writing)?;
        }
        Ok(())
    }

    /// Appends an extent to the file, with the padding after it.
    fn append(
        &self,
        parts: &[BucketPart],
        number: usize,
        length: EncodedLength,
        bytes: &[u8],
        writing: &mut Writing<'_>,
    ) -> Result<()> {
        let part = parts[number];
        // The radius is rounded up. If it were rounded down, a search could exclude a bucket that has a hit.
        let radius = (self.tallies[part.center as usize].radius as f32).next_up();
        let EncodedLength { body: body_bytes, ids: id_bytes } = length;
        let extent = Extent { offset: writing.written.bytes, rows: part.rows, radius, body_bytes, id_bytes };
        writing.append(part.center, &extent, bytes)?;
        if self.kept.is_some() {
            writing.leg.add(&extent, bytes);
        }
        if self.kept.is_some_and(|kept| writing.leg.rows >= lock(kept).rows_a_leg()) {
            self.keep(writing)?;
        }
        self.context.progress.advance(number as u64 + 1);
        Ok(())
    }
}

/// Sorts ids by position. `came` holds the position of each id, in the order of arrival. The positions are a
/// permutation of a range.
fn ordered(ids: &Ids, came: &[u32]) -> Ids {
    let first = came.iter().min().copied().unwrap_or_default();
    let mut at = vec![0u32; came.len()];
    (0..).zip(came).for_each(|(k, &place)| at[(place - first) as usize] = k);
    let mut some = Ids::empty(ids.kind());
    at.into_iter().for_each(|k| some.push_from(ids, k as usize));
    some
}
