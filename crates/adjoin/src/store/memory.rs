//! Memory plan of a build, phase by phase. It is computed before any work, so that a budget that is too small is
//! refused at once.

use adjoin_device::WRITE_BUFFER_BYTES;
use adjoin_kernels::Panel;

use super::attributes::RowPlaces;
use super::buckets::{
    ARRIVAL_BYTES, ENCODED_BYTES_A_ROW, ENCODED_BYTES_AN_EXTENT, encoders, extent_rows_max, row_bytes,
};
use super::centers::{coding_bytes, default_buckets, sample_rows, training_bytes};
use super::format::ENTRY_BYTES;
use super::held::HeldRows;
use super::ordinals::Ordinals;
use super::partitions::PartitionSizes;
use super::records::{RECORD_BYTES, Tally};
use super::{BuildOptions, assign, attributes, ids, intake};
use crate::base::context::Context;
use crate::base::error::{ErrorKind, Result};
use crate::base::geometry::{Coordinate, Space};
use crate::base::message::Argument;
use crate::base::options::VectorType;
use crate::base::report::Interval;
use crate::source::{Attributes, IdKind, VectorSource};

/// Bytes of each phase of a build.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BuildMemory {
    /// Number of buckets.
    buckets: usize,
    /// The vectors of a batch of the scan.
    pub(crate) batch: u64,
    /// All batches of a scan, and the memory that the source itself holds.
    scan: u64,
    /// The row numbers of the sample. Needed only while the sample is drawn.
    picks: u64,
    /// The check for duplicate ids.
    pub(crate) id_check: u64,
    /// The training sample.
    pub(crate) sample: u64,
    /// Training the centers, in addition to the sample.
    pub(crate) training: u64,
    /// Centers, their order and their tallies. Held from the training until the end.
    centers: u64,
    /// Comparing vectors with centers.
    comparing: u64,
    /// Records of rows between the second scan and the writing of buckets.
    records: u64,
    /// All rows in memory, from the first scan until the buckets are written; 0 if the source is scanned twice.
    pub(super) held: u64,
    /// The most bytes of texts of ids that may be held in addition.
    pub(super) held_texts_max: u64,
    /// Loads in memory while buckets are written, and extents next to them.
    loads: u64,
    extents: u64,
    /// Rows that are arranged at a time. Two such loads are in memory.
    pub(crate) load: u64,
    /// Upper bound on the largest extent in memory. For a build, it does not include ids.
    extent: u64,
    /// Reading a bucket of the store that rows are appended to.
    reading: u64,
    /// The map from rows to positions. Held from the writing of buckets on.
    places: u64,
    /// Reading columns.
    pub(super) columns: u64,
    /// Reading and writing columns, in addition to `places`.
    attributes: u64,
    /// Sorting rows by a column.
    pub(super) order: OrderMemory,
}

/// Memory for sorting rows by a column; zero if not requested.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OrderMemory {
    /// Rank of each row within its center. Held until all buckets are written.
    ordinals: u64,
    /// Computing the ranks, without the ranks themselves, the records and the sorter.
    finding: u64,
    /// The sorter of rows.
    pub(super) sorter: u64,
    /// Additional bytes per row while rows are put in order.
    of_row: u64,
    /// The write buffer of the block checksums.
    blocks: u64,
}

impl OrderMemory {
    /// Returns the minimum memory for sorting `rows` rows. `column` is the number of bytes for reading the sort
    /// column.
    fn of(options: &BuildOptions, column: u64, rows: u64, buckets: usize) -> Self {
        if options.sort_by.is_none() {
            return Self::default();
        }
        let finding = Ordinals::finding_bytes(buckets) + column;
        let (ordinals, sorter) = (Ordinals::memory_bytes(rows), Ordinals::sorter_bytes(0));
        Self { ordinals, finding, sorter, of_row: ARRIVAL_BYTES, blocks: WRITE_BUFFER_BYTES as u64 }
    }

    /// Returns the memory if the sorter may use up to `free` bytes.
    fn within(self, free: u64) -> Self {
        Self { sorter: if self.sorter > 0 { Ordinals::sorter_bytes(free) } else { 0 }, ..self }
    }
}

/// Input of a build.
#[derive(Clone, Copy)]
pub(crate) struct BuildInput<'a> {
    pub(crate) source: &'a dyn VectorSource,
    pub(crate) options: &'a BuildOptions,
    /// Bytes held while the kept columns are read. `None` if a scan of the source holds as much.
    pub(crate) columns_bytes: Option<u64>,
}

impl<'a> BuildInput<'a> {
    /// Describes a source before its columns are opened. Reads headers to find the memory for columns. An error in
    /// them is ignored here, since the build finds and reports it again.
    pub(crate) fn of(context: &Context, source: &'a dyn VectorSource, options: &'a BuildOptions) -> Self {
        let (columns, whose) = (options.kept_columns(), Argument::Columns.into());
        let opened = (!columns.is_empty()).then(|| Attributes::of(context, source, &columns, &whose));
        let columns_bytes = opened.and_then(Result::ok).and_then(|columns| columns.reading_bytes());
        Self { source, options, columns_bytes }
    }

    fn columns_bytes(&self, batch: u64) -> u64 {
        self.columns_bytes.unwrap_or_else(|| self.source.scan_bytes(batch))
    }
}

/// Properties of a store that rows are appended to, as far as memory depends on them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growing {
    pub(super) space: Space<'static>,
    pub(super) ids: IdKind,
    pub(super) buckets: usize,
    pub(super) rows: u64,
    /// Upper bound on the bytes of a bucket while it is read and decoded.
    pub(super) largest_read: u64,
    pub(super) largest_ids: u64,
    /// Number of columns of the store.
    pub(super) columns: usize,
    /// Bytes held while the columns of the store, or those of the new rows, are read.
    pub(super) columns_bytes: u64,
}

/// Properties of a store on which the memory of a part that writes buckets depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritingPart {
    pub(super) vectors: VectorType,
    pub(super) rows: u64,
    pub(super) buckets: usize,
    /// Bytes for reading records.
    pub(super) records: u64,
}

/// Bytes per center for the tree order: the center, the parts that are still to be split, and the sides of a split.
const TREE_BYTES_A_CENTER: usize = 32;
/// Bytes per center for the old and the new position of its first row, if rows are appended.
const PLACES_BYTES_A_CENTER: usize = 16;
/// Minimum number of extents in memory: one is read, one waits, and one is written.
const EXTENTS: u64 = 3;

/// Bytes of rows in memory that are encoded together, so that they stay in the cache of the processor.
const HELD_LOAD_BYTES: u64 = 512 << 10;

/// Memory that rows take before the first of them are written to disk, as a multiple of their size. Measured: 1 to
/// 1.3, with memory for 0.4 to 1.3 times the rows of a set.
const TAKEN: Interval = Interval { estimate: 1.1, low: 1.0, high: 1.5 };
const KEPT: Interval = Interval { estimate: 0.5, low: 0.45, high: 1.0 };

/// Facts about a build that are known before it starts.
pub(crate) struct ForeseenBuild {
    /// Minimum memory for the build, in bytes.
    pub(crate) least: u64,
    /// Whether memory holds all rows from the first scan on.
    pub(crate) holds_rows: bool,
    /// Total size of the records of all rows.
    records: u64,
    room: u64,
    /// Bytes of the training sample that are written to a temporary file.
    sample_spilled: u64,
}

impl ForeseenBuild {
    /// Returns the estimated number of bytes that are written to temporary files.
    pub(crate) fn spilled(&self) -> Interval {
        let (records, room, of_sample) = (self.records as f64, self.room as f64, self.sample_spilled as f64);
        // Rows are in blocks, most of which are not full when the first blocks are written to disk.
        let spilled = |taken: f64, kept: f64| {
            of_sample + if !self.holds_rows && taken * records > room { (records - kept * room).max(0.0) } else { 0.0 }
        };
        Interval {
            estimate: spilled(TAKEN.estimate, KEPT.estimate),
            low: spilled(TAKEN.low, KEPT.high),
            high: spilled(TAKEN.high, KEPT.low),
        }
    }
}

impl BuildMemory {
    /// Reserves the memory of the whole build and divides it.
    ///
    /// # Errors
    /// Fails if the budget is too small. The error states the minimum.
    pub(crate) fn plan<T: Coordinate>(context: &Context, input: BuildInput<'_>) -> Result<(Context, Self)> {
        let plan = || {
            Self::fitting(context, "the build", |free, batch| Self::within::<T>(context.threads, input, free, batch))
        };
        match plan() {
            Err(error) if error.kind() == ErrorKind::Budget => {
                input.source.release();
                plan()
            }
            planned => planned,
        }
    }

    /// Returns the plan of a build that holds all rows from the first scan on, if the memory of `run`, which holds nothing
    /// yet, suffices. Otherwise the build follows `self`, and scans the source twice.
    pub(crate) fn holding_rows<T: Coordinate>(&self, run: &Context, input: BuildInput<'_>) -> Option<Self> {
        self.holding_rows_within::<T>(run.threads, input, run.budget().free())
    }

    fn holding_rows_within<T: Coordinate>(&self, threads: usize, input: BuildInput<'_>, free: u64) -> Option<Self> {
        let BuildInput { source, options, .. } = input;
        // Another run can go on with rows only if they are on disk.
        if options.resume.is_some() {
            return None;
        }
        let held = HeldRows::bytes(source.info(), self.buckets, options.sort_by.is_some())?;
        let within = Self::within::<T>(threads, input, free.checked_sub(held)?, self.batch);
        let extent_rows = within.extent / row_bytes(source.info().vectors);
        let extent = within.extent + ENCODED_BYTES_A_ROW * extent_rows + ENCODED_BYTES_AN_EXTENT;
        // Each encoder has a load and one that waits; one more is being written.
        let (loads, extents) = (2 * encoders(threads) as u64 + 1, encoders(threads) as u64);
        let plan = Self { held, records: 0, load: HELD_LOAD_BYTES.max(extent), extent, loads, extents, ..within };
        let held_texts_max = free.checked_sub(plan.largest_phase())?;
        Some(Self { held_texts_max, ..plan })
    }

    /// Reserves and divides the memory for appending rows to a store, including the rows of the store that are kept.
    ///
    /// # Errors
    /// Fails as [`Self::plan`] does.
    pub(super) fn plan_append<T: Coordinate>(
        context: &Context,
        source: Option<&dyn VectorSource>,
        growing: &Growing,
        purpose: &str,
    ) -> Result<(Context, Self)> {
        Self::fitting(context, purpose, |free, batch| {
            Self::to_append::<T>(context.threads, source, growing, free, batch)
        })
    }

    /// Returns the minimum memory for appending rows to a store, in bytes.
    pub(super) fn least_to_append<T: Coordinate>(
        threads: usize,
        source: Option<&dyn VectorSource>,
        growing: &Growing,
    ) -> u64 {
        Self::to_append::<T>(threads, source, growing, 0, intake::batch_bytes(0)).largest_phase()
    }

    /// Fits a plan to the free memory. `within(free, batch)` returns the plan for `free` bytes and batches of `batch`
    /// bytes.
    fn fitting(context: &Context, purpose: &str, within: impl Fn(u64, u64) -> Self) -> Result<(Context, Self)> {
        let least_batch = intake::batch_bytes(0);
        // If the smallest plan fits, reserves everything that is free, so that no other run can make this one fail
        // later.
        let run = context.for_run(within(0, least_batch).largest_phase(), purpose)?;
        let free = run.budget().free();
        // The source may need memory that depends on the batch. So the batch is reduced until the plan fits.
        let mut batch = intake::batch_bytes(free);
        loop {
            let plan = within(free, batch);
            // The smallest batch always fits: the smallest plan uses it, and `for_run` has reserved that plan's
            // memory.
            if plan.largest_phase() <= free || batch == least_batch {
                return Ok((run, plan));
            }
            batch = (batch - batch / 8).max(least_batch);
        }
    }

    /// Returns the plan for `free` bytes of memory and batches of `batch` bytes. If `free` is too small for any plan,
    /// returns the smallest plan.
    fn within<T: Coordinate>(threads: usize, input: BuildInput<'_>, free: u64, batch: u64) -> Self {
        let BuildInput { source, options, .. } = input;
        let info = source.info();
        let (vectors, rows) = (info.vectors, info.rows);
        let (dimensions, sample_rows) = (Space::plain(vectors, options.metric).dimensions(), sample_rows(rows));
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows))).min(sample_rows) as usize;
        let scan = intake::scan_bytes(source, batch);
        let panel = Panel::<T>::bytes_for(buckets, dimensions);
        // The tree holds two sets of centers as floats: all centers, and the part that is split.
        let tree = 2 * Panel::<f32>::bytes_for(buckets, dimensions);
        let centers = panel + (buckets * (size_of::<Tally>() + TREE_BYTES_A_CENTER + ENTRY_BYTES)) as u64;
        let comparing = assign::memory_bytes::<T>(threads, buckets, dimensions);
        let training = (training_bytes::<T>(threads, buckets, dimensions) + Panel::<T>::bytes_for(1, dimensions))
            .max(panel + tree)
            .max(if T::is_float() { coding_bytes(vectors) } else { 0 });

        let picks = 8 * sample_rows;
        let wanted = 2 * PartitionSizes::least() + sample_rows * vectors.bytes() as u64 * 11 / 10;
        let id_check_least = if info.ids == IdKind::None { 0 } else { 2 * PartitionSizes::least() };
        // The sample is written while the source is scanned, and read while centers are trained. These two phases do
        // not overlap.
        let beside_sample = training.max(scan + picks + id_check_least);
        let sample = wanted.min(free.saturating_sub(beside_sample)).max(PartitionSizes::least());
        let id_check = match info.ids {
            IdKind::None => 0,
            _ => ids::wanted_bytes(rows).min(free.saturating_sub(scan + picks + sample)).max(id_check_least),
        };

        let (kept, columns) = (options.kept_columns().len(), input.columns_bytes(batch));
        let order = OrderMemory::of(options, columns, rows, buckets);
        let (places, attributes) = match kept {
            0 => (0, 0),
            _ => (RowPlaces::memory_bytes(rows), attributes::least_bytes(rows, kept, columns)),
        };
        let free = free.saturating_sub(places + order.ordinals);
        let of_row = row_bytes(vectors) + 8 + order.of_row;
        // Buckets with more rows are split. This bounds the memory of every later reader.
        let extent = extent_rows_max(rows, buckets as u64, vectors).min(rows) * of_row;
        let writing = EXTENTS * extent + WRITE_BUFFER_BYTES as u64 + order.blocks;
        // The phases that hold the records do not overlap, so the largest one decides.
        let beside_records = (comparing + scan).max(writing).max(order.finding + order.sorter);
        let spare = free.saturating_sub(centers + beside_records + PartitionSizes::least());
        let records = PartitionSizes::least() + spare / 8 * 5;
        let order = order.within(free.saturating_sub(centers + records + order.finding));
        // The source holds no memory while buckets are written.
        let beside_load = centers + records + writing;
        Self {
            buckets,
            batch,
            scan,
            picks,
            id_check,
            sample,
            training,
            centers,
            comparing,
            records,
            held: 0,
            held_texts_max: 0,
            loads: 2,
            extents: 1,
            load: extent + free.saturating_sub(beside_load) / 3,
            extent,
            reading: 0,
            places,
            columns,
            attributes,
            order,
        }
    }

    /// Returns the plan for an append; see [`Self::within`].
    fn to_append<T: Coordinate>(
        threads: usize,
        source: Option<&dyn VectorSource>,
        growing: &Growing,
        free: u64,
        batch: u64,
    ) -> Self {
        let Growing { space, ids, buckets, rows, largest_read, largest_ids, columns: kept, columns_bytes: columns } =
            *growing;
        let (vectors, dimensions) = (space.vectors, space.dimensions());
        let coming = source.map_or(0, |source| source.info().rows);
        let rows = rows + coming;
        let scan = source.map_or(0, |source| intake::scan_bytes(source, batch));
        let centers = Panel::<T>::bytes_for(buckets, dimensions)
            + (buckets * (size_of::<Tally>() + TREE_BYTES_A_CENTER + PLACES_BYTES_A_CENTER + ENTRY_BYTES)) as u64;
        let comparing = assign::memory_bytes::<T>(threads, buckets, dimensions);
        let extent = extent_rows_max(rows, buckets as u64, vectors).min(rows) * (row_bytes(vectors) + 8) + largest_ids;
        let (places, attributes) = match kept {
            0 => (0, 0),
            _ => (RowPlaces::memory_bytes(coming), attributes::least_bytes(rows, kept, columns)),
        };
        // Old buckets are read before the new rows are scanned, so both are never in memory at the same time.
        let beside_check = centers + comparing + scan.max(largest_read) + PartitionSizes::least();
        let id_check = match ids {
            IdKind::None => 0,
            _ => {
                let wanted = ids::wanted_bytes(rows).min(free.saturating_sub(beside_check));
                wanted.max(2 * PartitionSizes::least())
            }
        };
        let beside_load = EXTENTS * extent + largest_read + WRITE_BUFFER_BYTES as u64 + places;
        let beside_records = centers + (comparing + id_check + scan.max(largest_read)).max(beside_load);
        let spare = free.saturating_sub(beside_records + PartitionSizes::least());
        let records = PartitionSizes::least() + spare / 8 * 5;
        let load = extent + free.saturating_sub(centers + records + beside_load) / 3;
        let (picks, sample, training, reading) = (0, 0, 0, largest_read);
        Self {
            buckets,
            batch,
            scan: scan.max(largest_read),
            picks,
            id_check,
            sample,
            training,
            centers,
            comparing: comparing + id_check,
            records,
            held: 0,
            held_texts_max: 0,
            loads: 2,
            extents: 1,
            load,
            extent,
            reading,
            places,
            columns,
            attributes,
            order: OrderMemory::default(),
        }
    }

    /// Reserves and divides the memory of a part of a build that writes buckets.
    ///
    /// # Errors
    /// Fails as [`Self::plan`] does.
    pub(super) fn plan_writing(context: &Context, writing: &WritingPart) -> Result<(Context, Self)> {
        Self::fitting(context, "writing buckets", |free, _| Self::to_write(writing, free))
    }

    /// Returns the minimum memory of a part of a build that writes buckets.
    pub(super) fn least_to_write(writing: &WritingPart) -> u64 {
        Self::to_write(writing, 0).largest_phase()
    }

    fn to_write(writing: &WritingPart, free: u64) -> Self {
        let &WritingPart { vectors, rows, buckets, records } = writing;
        let extent = extent_rows_max(rows, buckets as u64, vectors).min(rows) * (row_bytes(vectors) + 8);
        let centers = (buckets * (size_of::<Tally>() + TREE_BYTES_A_CENTER + ENTRY_BYTES)) as u64;
        let beside_load = centers + records + EXTENTS * extent + WRITE_BUFFER_BYTES as u64;
        let load = extent + free.saturating_sub(beside_load) / 3;
        Self { buckets, centers, records, loads: 2, extents: 1, load, extent, ..Self::default() }
    }

    /// Returns the minimum memory for building a source, and the bytes that would be written to temporary files if
    /// `free` bytes are free. `id_bytes` is the total size of the ids. Needs no scan of the source.
    pub(crate) fn foresee<T: Coordinate>(
        threads: usize,
        input: BuildInput<'_>,
        id_bytes: u64,
        free: u64,
    ) -> ForeseenBuild {
        let least_batch = intake::batch_bytes(0);
        let least = Self::within::<T>(threads, input, 0, least_batch).largest_phase();
        let plan = Self::within::<T>(threads, input, free.max(least), least_batch);
        let info = input.source.info();
        let sample = sample_rows(info.rows) * info.vectors.bytes() as u64;
        let records = info.rows * (info.vectors.bytes() as u64 + RECORD_BYTES) + id_bytes;
        let holding = plan.holding_rows_within::<T>(threads, input, free.max(least));
        let holding = holding.filter(|plan| plan.held_texts_max >= 2 * id_bytes);
        ForeseenBuild {
            least,
            holds_rows: holding.is_some(),
            records,
            room: plan.records,
            sample_spilled: sample.saturating_sub(holding.unwrap_or(plan).sample),
        }
    }

    /// Returns an upper bound on the bytes of the largest extent of a store of `rows` rows, without ids.
    pub(crate) fn largest_extent(rows: u64, vectors: VectorType, options: &BuildOptions) -> u64 {
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows)));
        extent_rows_max(rows, buckets, vectors).min(rows) * (row_bytes(vectors) + 8)
    }

    fn largest_phase(&self) -> u64 {
        let beside_sample = self.survey().max(self.training);
        let OrderMemory { ordinals, finding, sorter, .. } = self.order;
        let sorting = self.beside_sorting() + ordinals + finding + sorter;
        let writing = self.records + ordinals + self.places + self.writing(self.extent);
        let with_rows = self.assigning().max(sorting).max(writing).max(self.sample + beside_sample);
        (self.held + with_rows).max(self.places + self.attributes)
    }

    /// Returns the bytes of the first scan, without the sample.
    pub(crate) fn survey(&self) -> u64 {
        self.scan + self.picks + self.id_check
    }

    /// Returns the bytes of the second scan.
    pub(crate) fn assigning(&self) -> u64 {
        self.centers + self.comparing + self.scan + self.records
    }

    /// Returns the bytes held while rows are ranked by a column, in addition to the ranks and the sorter.
    pub(crate) fn beside_sorting(&self) -> u64 {
        self.centers + self.records
    }

    /// Returns the bytes for writing buckets with extents of at most `largest_extent` bytes. The records are not
    /// included.
    pub(crate) fn writing(&self, largest_extent: u64) -> u64 {
        let buffers = self.reading + WRITE_BUFFER_BYTES as u64 + self.order.blocks;
        self.centers + self.loads * self.load.max(largest_extent) + self.extents * largest_extent + buffers
    }

    /// Returns the partition sizes of the sample.
    pub(crate) fn sample_sizes(&self) -> PartitionSizes {
        PartitionSizes::within(self.sample, 1)
    }

    /// Returns sizes of partitions for `bytes` bytes of records. Each partition has about half the size of a load.
    pub(crate) fn partitions(&self, bytes: u64, centers: usize) -> PartitionSizes {
        PartitionSizes::within(self.records, (2 * bytes).div_ceil(self.load).min(centers as u64))
    }
}
