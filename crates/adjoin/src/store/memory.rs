//! What a build may hold in memory, phase by phase: decided at the start, so that a budget that is too small is refused
//! before any work.

use adjoin_device::WRITE_BUFFER_BYTES;
use adjoin_kernels::Panel;

use super::attributes::RowPlaces;
use super::buckets::{ARRIVAL_BYTES, RECORD_BYTES, Tally, extent_rows_max, row_bytes};
use super::centers::{coding_bytes, default_buckets, sample_rows, training_bytes};
use super::format::ENTRY_BYTES;
use super::ordinals::Ordinals;
use super::partitions::PartitionSizes;
use super::passing::READING_BYTES;
use super::{BuildOptions, assign, attributes, ids, intake};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coordinate, Space};
use crate::options::VectorType;
use crate::source::{IdKind, VectorSource};

/// Bytes of each phase of a build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildMemory {
    /// A batch of the scan.
    pub(crate) batch: u64,
    /// All batches of a scan, and what the source itself holds.
    scan: u64,
    /// The rows of the sample, while it is drawn.
    picks: u64,
    /// The check of ids.
    pub(crate) id_check: u64,
    /// The training sample.
    pub(crate) sample: u64,
    /// Training beside the sample.
    pub(crate) training: u64,
    /// Centers, their order and their tallies, from training to the end.
    centers: u64,
    /// Comparing with centers.
    comparing: u64,
    /// Records on their way from the second scan to the buckets.
    records: u64,
    /// Rows that are arranged at a time, twice.
    pub(crate) load: u64,
    /// The largest extent, where buckets are not split by the bytes of ids.
    extent: u64,
    /// A bucket of the store to which rows come.
    reading: u64,
    /// Where rows come to lie, from the writing of buckets on.
    places: u64,
    /// Writing attributes, beside that.
    attributes: u64,
    /// Sorting rows by a column.
    pub(super) order: OrderMemory,
}

/// What sorting rows by a column takes of a build; nothing where that is not asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OrderMemory {
    /// Where rows lie among those of their center, from before the writing of buckets to its end.
    ordinals: u64,
    /// Finding that, beside it, the records and the sorter.
    finding: u64,
    /// What sorts the rows.
    pub(super) sorter: u64,
    /// A row while it is put in order.
    of_row: u64,
    /// What is being written of the checksums of blocks.
    blocks: u64,
}

impl OrderMemory {
    /// The least.
    fn of(options: &BuildOptions, source: &dyn VectorSource, (rows, buckets): (u64, usize), batch: u64) -> Self {
        if options.sort_by.is_none() {
            return Self::default();
        }
        let finding = Ordinals::finding_bytes(buckets) + source.scan_bytes(batch);
        let (ordinals, sorter) = (Ordinals::memory_bytes(rows), Ordinals::sorter_bytes(0));
        Self { ordinals, finding, sorter, of_row: ARRIVAL_BYTES, blocks: WRITE_BUFFER_BYTES as u64 }
    }

    /// The same where so many bytes are free beside it, but for the sorter.
    fn within(self, free: u64) -> Self {
        Self { sorter: if self.sorter > 0 { Ordinals::sorter_bytes(free) } else { 0 }, ..self }
    }
}

/// A store to which rows come, as far as memory depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growing {
    pub(super) space: Space<'static>,
    pub(super) ids: IdKind,
    pub(super) buckets: usize,
    pub(super) rows: u64,
    /// Bytes of a bucket as it is read and taken apart, at most, and of its ids.
    pub(super) largest_read: u64,
    pub(super) largest_ids: u64,
    /// Columns of its attributes.
    pub(super) columns: usize,
}

/// What the order of the tree holds for each center: itself, the parts that wait, the sides of a split.
const TREE_BYTES_A_CENTER: usize = 32;
/// The same for where its rows lay and come to lie, where rows come to a store.
const PLACES_BYTES_A_CENTER: usize = 16;
/// Three extents are in memory at least: one that is read, one that waits, one that is written.
const EXTENTS: u64 = 3;

impl BuildMemory {
    /// Takes the memory of the build, from its first scan to the end, and divides it.
    ///
    /// # Errors
    /// Where it is too small: says the least that would do.
    pub(crate) fn plan<T: Coordinate>(
        context: &Context,
        source: &dyn VectorSource,
        options: &BuildOptions,
    ) -> Result<(Context, Self)> {
        Self::fitting(context, "the build", |free, batch| {
            Self::within::<T>(context.threads, source, options, free, batch)
        })
    }

    /// The same for rows that come to a store, and for those of it that stay.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(super) fn plan_append<T: Coordinate>(
        context: &Context,
        source: Option<&dyn VectorSource>,
        (growing, purpose): (&Growing, &str),
    ) -> Result<(Context, Self)> {
        Self::fitting(context, purpose, |free, batch| {
            Self::to_append::<T>(context.threads, source, growing, free, batch)
        })
    }

    /// The least bytes with which rows come to a store.
    pub(super) fn least_to_append<T: Coordinate>(
        threads: usize,
        source: Option<&dyn VectorSource>,
        growing: &Growing,
    ) -> u64 {
        Self::to_append::<T>(threads, source, growing, 0, intake::batch_bytes(0)).largest_phase()
    }

    /// The plan for the memory that there is, of those for so much of it and batches of so many bytes.
    fn fitting(context: &Context, purpose: &str, within: impl Fn(u64, u64) -> Self) -> Result<(Context, Self)> {
        let least_batch = intake::batch_bytes(0);
        let run = context.for_run(within(0, least_batch).largest_phase(), purpose)?;
        let free = run.budget().free();
        // What a source holds may leave little for batches.
        let mut batch = intake::batch_bytes(free);
        loop {
            let plan = within(free, batch);
            if plan.largest_phase() <= free || batch == least_batch {
                return Ok((run, plan));
            }
            batch = (batch - batch / 8).max(least_batch);
        }
    }

    /// The plan for `free` bytes and batches of `batch`; the least one where `free` is less.
    fn within<T: Coordinate>(
        threads: usize,
        source: &dyn VectorSource,
        options: &BuildOptions,
        free: u64,
        batch: u64,
    ) -> Self {
        let info = source.info();
        let (vectors, rows) = (info.vectors, info.rows);
        let dimensions = Space::plain(vectors, options.metric).dimensions();
        let sample_rows = sample_rows(rows);
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows))).min(sample_rows) as usize;
        let scan = intake::scan_bytes(info, batch) + source.scan_bytes(batch);
        let panel = Panel::<T>::bytes_for(buckets, dimensions);
        // The tree holds the centers as floats, all and those of the part that is split.
        let tree = 2 * Panel::<f32>::bytes_for(buckets, dimensions);
        let centers = panel + (buckets * (size_of::<Tally>() + TREE_BYTES_A_CENTER + ENTRY_BYTES)) as u64;
        let comparing = assign::memory_bytes::<T>(threads, buckets, dimensions);
        let training = (training_bytes::<T>(threads, buckets, dimensions) + Panel::<T>::bytes_for(1, dimensions))
            .max(panel + tree)
            .max(if T::is_float() { coding_bytes(vectors) } else { 0 });

        let picks = 8 * sample_rows;
        let wanted = 2 * PartitionSizes::least() + sample_rows * vectors.bytes() as u64 * 11 / 10;
        let id_check_least = if info.ids == IdKind::None { 0 } else { 2 * PartitionSizes::least() };
        let beside_sample = training.max(scan + picks + id_check_least);
        let sample = wanted.min(free.saturating_sub(beside_sample)).max(PartitionSizes::least());
        let id_check = match info.ids {
            IdKind::None => 0,
            _ => ids::wanted_bytes(rows).min(free.saturating_sub(scan + picks + sample)).max(id_check_least),
        };

        let columns = options.kept_columns().len();
        let order = OrderMemory::of(options, source, (rows, buckets), batch);
        let (places, attributes) = match columns {
            0 => (0, 0),
            _ => (RowPlaces::memory_bytes(rows), attributes::least_bytes(rows, columns) + source.scan_bytes(batch)),
        };
        let free = free.saturating_sub(places + order.ordinals);
        let of_row = row_bytes(vectors) + 8 + order.of_row;
        let extent = extent_rows_max(rows, buckets as u64, vectors).min(rows) * of_row;
        let writing = EXTENTS * extent + WRITE_BUFFER_BYTES as u64 + order.blocks;
        let beside_records = (comparing + scan).max(writing).max(order.finding + order.sorter);
        let spare = free.saturating_sub(centers + beside_records + PartitionSizes::least());
        let records = PartitionSizes::least() + spare / 8 * 5;
        let order = order.within(free.saturating_sub(centers + records + order.finding));
        // Where buckets are written the source holds nothing any more.
        let beside_load = centers + records + writing;
        Self {
            batch,
            scan,
            picks,
            id_check,
            sample,
            training,
            centers,
            comparing,
            records,
            load: extent + free.saturating_sub(beside_load) / 3,
            extent,
            reading: 0,
            places,
            attributes,
            order,
        }
    }

    /// As [`Self::within`].
    fn to_append<T: Coordinate>(
        threads: usize,
        source: Option<&dyn VectorSource>,
        growing: &Growing,
        free: u64,
        batch: u64,
    ) -> Self {
        let Growing { space, ids, buckets, rows, largest_read, largest_ids, columns } = *growing;
        let (vectors, dimensions) = (space.vectors, space.dimensions());
        let coming = source.map_or(0, |source| source.info().rows);
        let rows = rows + coming;
        let source_bytes = source.map_or(0, |source| source.scan_bytes(batch));
        let scan = source.map_or(0, |source| intake::scan_bytes(source.info(), batch)) + source_bytes;
        let centers = Panel::<T>::bytes_for(buckets, dimensions)
            + (buckets * (size_of::<Tally>() + TREE_BYTES_A_CENTER + PLACES_BYTES_A_CENTER + ENTRY_BYTES)) as u64;
        let comparing = assign::memory_bytes::<T>(threads, buckets, dimensions);
        let extent = extent_rows_max(rows, buckets as u64, vectors).min(rows) * (row_bytes(vectors) + 8) + largest_ids;
        let (places, attributes) = match columns {
            0 => (0, 0),
            _ => {
                let reading = source_bytes.max(READING_BYTES);
                (RowPlaces::memory_bytes(coming), attributes::least_bytes(rows, columns) + reading)
            }
        };
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
            batch,
            scan: scan.max(largest_read),
            picks,
            id_check,
            sample,
            training,
            centers,
            comparing: comparing + id_check,
            records,
            load,
            extent,
            reading,
            places,
            attributes,
            order: OrderMemory::default(),
        }
    }

    /// The least bytes with which a source can be built, and what would go to temporary files where `free` bytes are there
    /// for it, ids of so many bytes included; known before any of it is done.
    pub(crate) fn foresee<T: Coordinate>(
        threads: usize,
        (source, options): (&dyn VectorSource, &BuildOptions),
        (id_bytes, free): (u64, u64),
    ) -> (u64, u64) {
        let least_batch = intake::batch_bytes(0);
        let least = Self::within::<T>(threads, source, options, 0, least_batch).largest_phase();
        let plan = Self::within::<T>(threads, source, options, free.max(least), least_batch);
        let info = source.info();
        let records = info.rows * (info.vectors.bytes() as u64 + RECORD_BYTES) + id_bytes;
        let sample = sample_rows(info.rows) * info.vectors.bytes() as u64;
        // Of the memory of partitions, half is in blocks that are not full yet when the first of them go to disk.
        let spilled = |bytes: u64, memory: u64| if bytes > memory { bytes - memory / 2 } else { 0 };
        (least, spilled(records, plan.records) + sample.saturating_sub(plan.sample))
    }

    /// Bytes of the largest extent of a store of so many rows, at most, ids apart.
    pub(crate) fn largest_extent(rows: u64, vectors: VectorType, options: &BuildOptions) -> u64 {
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows)));
        extent_rows_max(rows, buckets, vectors).min(rows) * (row_bytes(vectors) + 8)
    }

    fn largest_phase(&self) -> u64 {
        let beside_sample = self.survey().max(self.training);
        let OrderMemory { ordinals, finding, sorter, .. } = self.order;
        let sorting = self.beside_sorting() + ordinals + finding + sorter;
        let writing = self.records + ordinals + self.places + self.writing(self.extent);
        let laying_out = self.assigning().max(sorting).max(writing).max(self.places + self.attributes);
        laying_out.max(self.sample + beside_sample)
    }

    /// The first scan, the sample apart.
    pub(crate) fn survey(&self) -> u64 {
        self.scan + self.picks + self.id_check
    }

    /// The second scan.
    pub(crate) fn assigning(&self) -> u64 {
        self.centers + self.comparing + self.scan + self.records
    }

    /// What is held while a column decides where rows lie among those of their center.
    pub(crate) fn beside_sorting(&self) -> u64 {
        self.centers + self.records
    }

    /// Writing buckets whose largest extent has so many bytes, the records apart.
    pub(crate) fn writing(&self, largest_extent: u64) -> u64 {
        let buffers = self.reading + WRITE_BUFFER_BYTES as u64 + self.order.blocks;
        self.centers + 2 * self.load.max(largest_extent) + largest_extent + buffers
    }

    /// The sample's sizes.
    pub(crate) fn sample_sizes(&self) -> PartitionSizes {
        PartitionSizes::within(self.sample, 1)
    }

    /// Partitions for so many bytes of records: each about as large as half of what is arranged at a time.
    pub(crate) fn partitions(&self, bytes: u64, centers: usize) -> PartitionSizes {
        PartitionSizes::within(self.records, (2 * bytes).div_ceil(self.load).min(centers as u64))
    }
}
