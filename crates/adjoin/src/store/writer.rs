//! Builds a store from a source, within any budget.
//!
//! The first scan checks the rows and draws the training sample. Then centers are trained and ordered. The second scan
//! assigns rows to centers and keeps the assigned rows in memory or in a temporary file. Finally the buckets are
//! written from them. The bytes of the store do not depend on the budget.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use adjoin_kernels::Panel;

use super::assign::{TwoLevel, distances_to_chosen};
use super::attributes::RowPlaces;
use super::bucket_file::Written;
use super::buckets::{BucketWriter, SortedRows, extent_rows_max};
use super::checkpoint::{BuildCheckpoint, BuildRepeated, Learned};
use super::files::{FileFacts, Files, Role};
use super::format;
use super::held::{AssignedRows, HeldRows};
use super::intake::{self, Intake};
use super::learning::Learning;
use super::manifest::{Assignment, FolderKind, NO_CHECKSUM, StoreManifest};
use super::memory::{BuildInput, BuildMemory};
use super::options::BuildOptions;
use super::ordinals::{Ordinals, RowsToRank, sort_column};
use super::partitions::Partitions;
use super::publish::{Drafts, check_target};
use super::reader::Store;
use super::records::{RECORD_BYTES, Tally};
use super::sorting::Sorting;
use super::tree::tree_order;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::mutex::lock;
use crate::base::report::Stopwatch;
use crate::source::{Attributes, SourceInfo, VectorSource};

/// Manifest and statistics of a build.
#[derive(Debug, Clone)]
pub struct BuildReport {
    /// The manifest that was published.
    pub manifest: StoreManifest,
    /// Number of distances to centers that were computed.
    pub center_distances: u64,
    /// Bytes written to the store.
    pub bytes_written: u64,
    /// Bytes written to temporary files because they did not fit in memory.
    pub spill_bytes: u64,
    /// Time by phase.
    pub seconds: BuildSeconds,
    /// Number of runs and amount of repeated work, for a build with checkpoints.
    pub resume: Option<BuildRepeated>,
}

/// Time of a build by phase, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BuildSeconds {
    /// Total.
    pub total: f64,
    /// The scan that checks the rows and draws the sample.
    pub survey: f64,
    /// Training centers and ordering them.
    pub train: f64,
    /// The scan that assigns rows to centers.
    pub assign: f64,
    /// Part of `assign` spent waiting for the source.
    pub assign_waited: f64,
    /// Writing buckets.
    pub write: f64,
    /// Part of `write` spent waiting for rows to be read back and arranged.
    pub write_waited: f64,
}

/// A store in a temporary folder, removed when dropped.
pub struct TemporaryStore {
    store: PathBuf,
    /// The folder that contains the store.
    _folder: OwnFolder,
}

impl TemporaryStore {
    /// Builds a store in the folder for temporary files.
    ///
    /// # Errors
    /// Fails as [`Store::build`](crate::Store::build) does.
    pub fn build(context: &Context, source: &dyn VectorSource, options: &BuildOptions) -> Result<(Self, BuildReport)> {
        let folder = OwnFolder::create(&context.device, &context.temporary(None), "store")?;
        let store = folder.path().join("store");
        let report = Store::build(context, source, &store, options)?;
        Ok((Self { store, _folder: folder }, report))
    }

    /// Returns the store's folder.
    pub fn folder(&self) -> &Path {
        &self.store
    }
}

impl Store {
    /// Builds a store in the folder `store` from a source, which is scanned twice.
    ///
    /// # Errors
    /// Fails if the source has unusable rows or duplicate ids that the options do not permit, if the budget is too
    /// small, if `store` exists and must not be replaced, or if the disk cannot be written. After a failure, `store`
    /// is unchanged.
    pub fn build(
        context: &Context,
        source: &dyn VectorSource,
        store: &Path,
        options: &BuildOptions,
    ) -> Result<BuildReport> {
        let info = source.info();
        check_input(info, options)?;
        // Fails early if possible. Publishing checks again, since another build may finish in the meantime.
        check_target(context, store, FolderKind::Store, options.force)?;
        let sort_column = options.sort_by.as_ref().map(|name| sort_column(context, source, name)).transpose()?;
        let (columns, whose) = (options.kept_columns(), Argument::Columns.into());
        let attributes =
            (!columns.is_empty()).then(|| Attributes::of(context, source, &columns, &whose)).transpose()?;
        let _kept_memory =
            options.resume.as_ref().map(|_| BuildCheckpoint::reserve(context, info.rows, options)).transpose()?;
        let plain = Space::plain(info.vectors, options.metric);
        // This plan assumes that floats are not rounded to bytes. Rounding is decided later, from a sample. Rounded
        // vectors take less memory, so the plan is sufficient in both cases.
        let columns_bytes = attributes.as_ref().and_then(Attributes::reading_bytes);
        let input = BuildInput { source, options, columns_bytes };
        let (context, scanning_again) = with_coordinates!(plain, T => BuildMemory::plan::<T>(context, input)?);
        let context = &context;
        let holding_rows = with_coordinates!(plain, T => scanning_again.holding_rows::<T>(context, input));
        let memory = holding_rows.unwrap_or(scanning_again);
        let kept = BuildCheckpoint::open(context, source, store, options)?.map(Mutex::new);
        let drafts = Drafts::begin(context, store, FolderKind::Store)?;
        intake::tell(context, source);
        let (metric, on_bad, remedy) = (options.metric, options.on_bad, intake::fix_or_skip);
        let left_out = options.left_out.as_deref();
        let intake = Intake { context, source, metric, on_bad, left_out, remedy, batch_bytes: memory.batch };
        let (kept_build, watch) = (kept.as_ref(), Stopwatch::start());
        let build = Build {
            context,
            intake,
            info,
            drafts,
            options,
            attributes,
            sort_column,
            memory,
            scanning_again,
            kept: kept_build,
            watch,
        };
        let done = build.run();
        let Some(mut kept) = kept.map(|kept| kept.into_inner().unwrap_or_else(PoisonError::into_inner)) else {
            return done;
        };
        let report = done.map_err(|error| kept.explain(error))?;
        Ok(BuildReport { resume: Some(kept.finish()?), ..report })
    }
}

/// Refuses a source without rows, and a store without buckets.
pub(super) fn check_input(info: &SourceInfo, options: &BuildOptions) -> Result<()> {
    if info.rows == 0 {
        return Err(Error::input("the source has no rows; there is nothing to join"));
    }
    if options.assignment.as_ref().is_some_and(|centers| centers.len() as u64 != info.rows) {
        return Err(Error::option(format!("the assignment does not have {} centers; give one per row", info.rows)));
    }
    if options.buckets == Some(0) {
        return Err(Error::option(message![Argument::Buckets, " is 0; give at least 1"]));
    }
    Ok(())
}

/// A build in progress.
struct Build<'a> {
    context: &'a Context,
    intake: Intake<'a>,
    info: &'a SourceInfo,
    drafts: Drafts<'a>,
    options: &'a BuildOptions,
    attributes: Option<Attributes<'a>>,
    sort_column: Option<Attributes<'a>>,
    memory: BuildMemory,
    /// The memory if the rows turn out not to fit in memory.
    scanning_again: BuildMemory,
    /// Checkpoints from which another run can continue, if requested.
    kept: Option<&'a Mutex<BuildCheckpoint>>,
    /// Measures the time since the start of the build.
    watch: Stopwatch,
}

/// Rows after their assignment to centers.
struct Assigned {
    rows: AssignedRows,
    /// Numbers of the centers, in tree order.
    order: Vec<u32>,
    /// Partition of each center. The centers are in tree order.
    partition_of: Vec<u32>,
    /// Tally of each center, by the number of the center.
    tallies: Vec<Tally>,
    distances: u64,
    waited: f64,
}

impl<'a> Build<'a> {
    fn run(mut self) -> Result<BuildReport> {
        let plain = Space::plain(self.info.vectors, self.options.metric);
        if let Some(learned) = self.kept.and_then(|kept| lock(kept).learned()) {
            let plain = plain.up_to_length(learned.longest);
            // The checkpoint is read from disk, so a coding of other dimensions is treated as damaged and not used.
            let coding = learned.coding.clone().filter(|coding| coding.fits(self.info.vectors.dimensions));
            let space = Space { coding: coding.as_ref(), ..plain };
            return with_coordinates!(space, T => {
                let kept = self.kept.expect("the checkpoint has the centers");
                let centers = lock(kept).centers::<T>(&learned, space.dimensions())?;
                self.lay_out::<T>(space, &centers, &learned, None, BuildSeconds::default())
            });
        }
        let learning = self.learning();
        let sample_memory = self.context.reserve(self.memory.sample, "the build")?;
        let mut survey = learning.survey()?;
        let mut seconds = BuildSeconds { survey: self.watch.seconds(), ..BuildSeconds::default() };
        let held = survey.held.take();
        let plain = plain.up_to_length(survey.longest);
        let coding = learning.coding(&survey, plain)?;
        let space = Space { coding: coding.as_ref(), ..plain };
        with_coordinates!(space, T => {
            let phase = Stopwatch::start();
            let (centers, learned) = learning.train::<T>(space, &survey)?;
            if let Some(kept) = self.kept {
                lock(kept).keep_learned(learned.clone(), &centers, space)?;
            }
            drop((survey, sample_memory)); // the next phase reserves its memory again
            seconds.train = phase.seconds();
            if held.is_none() {
                self.memory = self.scanning_again;
            }
            self.lay_out::<T>(space, &centers, &learned, held, seconds)
        })
    }

    fn learning(&self) -> Learning<'a> {
        let Self { context, intake, options, memory, .. } = *self;
        Learning { context, intake, options, memory, temporary: self.drafts.temporary() }
    }

    /// Runs all phases after the survey and the training.
    fn lay_out<T: Coordinate>(
        self,
        space: Space<'_>,
        centers: &Panel<T>,
        learned: &Learned,
        held: Option<HeldRows>,
        mut seconds: BuildSeconds,
    ) -> Result<BuildReport> {
        let mut phase = Stopwatch::start();
        let order = tree_order(self.context.kernel, centers);
        seconds.train += phase.lap();
        let mut assigned = match held {
            Some(held) => self.group(space, centers, order, held)?,
            None if self.options.assignment.is_some() => {
                return Err(Error::option("rows with given centers do not fit in memory; give more memory"));
            }
            None => self.assign(space, centers, order, learned)?,
        };
        seconds.assign = phase.lap();
        let rows_max = extent_rows_max(learned.usable_rows, centers.rows() as u64, self.info.vectors);
        let ordinals = self.ordinals(&assigned)?;
        if let (AssignedRows::Grouped(rows), Some(ordinals)) = (&mut assigned.rows, &ordinals) {
            rows.sort(|row| ordinals.of(row));
        }
        let mut places = self.row_places()?;
        let written = self.write_buckets(&assigned, ordinals.as_ref(), rows_max, places.as_mut())?;
        let Assigned { rows, distances, waited, .. } = assigned;
        let spilled = learned.spilled + rows.spilled() + ordinals.as_ref().map_or(0, |ordinals| ordinals.spilled);
        // Columns are written in the memory of the rows, which are on disk in their final order by now.
        drop((rows, ordinals));
        let attributes = self.write_attributes(places)?;
        seconds.write = phase.lap();
        (seconds.assign_waited, seconds.write_waited) = (waited, written.waited);
        let centers = stored_centers(space, centers, &written.centers);
        let (attributes, of_columns) = attributes.unzip();
        let (info, options) = (self.info, self.options);
        let finished = FinishedBuild { info, options, learned, written, centers, attributes };
        let (manifest, bytes_written) = finished.publish(self.drafts)?;
        let spill_bytes = spilled + of_columns.unwrap_or(0) + self.intake.source.temporary_bytes();
        let center_distances = learned.distances + distances;
        seconds.total = self.watch.seconds();
        Ok(BuildReport { manifest, center_distances, bytes_written, spill_bytes, seconds, resume: None })
    }

    /// Assigns the rows in memory to their centers.
    fn group<T: Coordinate>(
        &self,
        space: Space<'_>,
        centers: &Panel<T>,
        order: Vec<u32>,
        held: HeldRows,
    ) -> Result<Assigned> {
        let _memory = self.context.reserve(self.memory.assigning(), "the build")?;
        let mut tallies = vec![Tally::default(); centers.rows()];
        let usable_rows = held.rows().rows.len() as u64;
        self.context.progress.begin("assign", "rows", self.info.rows);
        let (rows, distances_a_row) = match &self.options.assignment {
            Some(centers_of) => {
                let assign = |rows: &[u64], stored: &[u8]| {
                    let chosen: Vec<u32> = rows.iter().map(|&row| centers_of[row as usize]).collect();
                    distances_to_chosen(self.context, space, centers, &chosen, stored)
                };
                (held.group::<T>(self.context, &assign, space, &mut tallies)?, 1)
            }
            None => {
                let levels = TwoLevel::new(self.context.kernel, centers);
                let assign = |_: &[u64], stored: &[u8]| levels.nearest(self.context, space, stored);
                (held.group::<T>(self.context, &assign, space, &mut tallies)?, levels.distances_a_vector() as u64)
            }
        };
        let (rows, distances) = (AssignedRows::Grouped(rows), usable_rows * distances_a_row);
        let partition_of = vec![0; order.len()];
        Ok(Assigned { rows, order, partition_of, tallies, distances, waited: 0.0 })
    }

    /// Scans the source again and puts each row into the partition of its center.
    fn assign<T: Coordinate>(
        &self,
        space: Space<'_>,
        centers: &Panel<T>,
        order: Vec<u32>,
        learned: &Learned,
    ) -> Result<Assigned> {
        let _memory = self.context.reserve(self.memory.assigning(), "the build")?;
        let levels = TwoLevel::new(self.context.kernel, centers);
        let bytes = learned.usable_rows * (self.info.vectors.bytes() as u64 + RECORD_BYTES) + learned.id_bytes;
        let sizes = self.memory.partitions(bytes, order.len());
        let mut tallies = vec![Tally::default(); centers.rows()];
        let records = match self.kept {
            Some(kept) => lock(kept).partitions(self.context, sizes, &mut tallies)?,
            None => Partitions::new(self.context, &self.drafts.temporary(), "rows", sizes),
        };
        let partitions = records.count();
        let partition_of_center = partitions_of_centers(&order, partitions);
        let distances_a_row = levels.distances_a_vector() as u64;
        let sorting = Sorting { records, tallies, partition_of_center, kept: self.kept, distances_a_row };
        let (mut sorting, waited) = self.sort(space, &levels, sorting, learned.usable_rows)?;
        sorting.measure(space);
        let Sorting { records, tallies, .. } = sorting;
        let rows = AssignedRows::Records(records.finish()?);
        let partition_of = (0..order.len()).map(|place| partition_of(place, partitions, order.len()) as u32).collect();
        let distances = learned.usable_rows * distances_a_row;
        Ok(Assigned { rows, order, partition_of, tallies, distances, waited })
    }

    /// Puts all rows that no checkpoint covers into partitions. `usable_rows` is the number of rows that the first
    /// scan found. Returns the seconds spent waiting for the source, too.
    fn sort<'s, T: Coordinate>(
        &self,
        space: Space<'_>,
        levels: &TwoLevel<T>,
        mut sorting: Sorting<'s>,
        usable_rows: u64,
    ) -> Result<(Sorting<'s>, f64)> {
        let (_, are_all) = sorting.done_before();
        if are_all {
            return Ok((sorting, 0.0));
        }
        self.context.progress.begin("assign", "rows", self.info.rows);
        let scanned = sorting.scan(&self.intake, levels, space, |_, _| Ok(()))?;
        // Tallies and sizes were planned for the rows of the first scan.
        if scanned.usable_rows != usable_rows {
            return Err(Error::input("the source changed while it was read; build again when nothing writes to it"));
        }
        // This is the last checkpoint of this phase. With it, a later run skips the scan of the source.
        sorting.keep(self.info.rows, true)?;
        Ok((sorting, scanned.waited))
    }

    /// Ranks the rows of each center by the sort column. Returns `None` if there is no sort column.
    fn ordinals(&self, assigned: &Assigned) -> Result<Option<Ordinals>> {
        let Some(column) = &self.sort_column else { return Ok(None) };
        let Self { context, info, memory, .. } = self;
        let _beside = context.reserve(memory.beside_sorting(), "the build")?;
        let rows = RowsToRank {
            column,
            source_rows: info.rows,
            rows: &assigned.rows,
            vectors: info.vectors,
            tallies: &assigned.tallies,
        };
        Ordinals::by(context, &self.drafts.temporary(), &rows, memory.order.sorter).map(Some)
    }

    /// Creates the map from rows to positions in the store. Returns `None` if no columns are kept.
    fn row_places(&self) -> Result<Option<RowPlaces>> {
        let places = || RowPlaces::new(self.context, &self.drafts.temporary(), 0..self.info.rows);
        self.attributes.is_some().then(places).transpose()
    }

    /// Writes the columns, if any. Returns their manifest entry and the number of bytes that were written to temporary
    /// files because they did not fit in memory.
    fn write_attributes(&self, places: Option<RowPlaces>) -> Result<Option<(FileFacts, u64)>> {
        let (Some(attributes), Some(places)) = (&self.attributes, places) else { return Ok(None) };
        places.write(self.context, attributes, self.memory.columns, &self.drafts).map(Some)
    }

    fn write_buckets(
        &self,
        assigned: &Assigned,
        ordinals: Option<&Ordinals>,
        extent_rows_max: u64,
        mut places: Option<&mut RowPlaces>,
    ) -> Result<Written> {
        // If there are columns, written buckets cannot be part of a checkpoint: the positions of their rows are
        // recorded while buckets are written, and a checkpoint does not contain positions.
        let kept = self.kept.filter(|_| self.attributes.is_none());
        let blocks_path = self.drafts.path(Role::Blocks.file());
        let writer = BucketWriter {
            context: self.context,
            rows: &assigned.rows,
            before: None,
            vectors: self.info.vectors,
            ids: self.info.ids,
            order: &assigned.order,
            partition_of: &assigned.partition_of,
            tallies: &assigned.tallies,
            extent_rows_max,
            load_bytes: self.memory.load,
            kept,
            sorted: ordinals.map(|ordinals| SortedRows { ordinals, blocks_path: &blocks_path }),
        };
        let largest = writer.largest_extent();
        let _memory = self.context.reserve(self.memory.writing(largest), "the build")?;
        let mut lies = |rows: &[u64]| places.as_mut().map_or(Ok(()), |places| places.add(rows));
        let path = self.drafts.path(Role::Vectors.file());
        let Some(kept) = kept else { return writer.write(&path, &mut lies) };
        let kept_path = lock(kept).extents_path();
        let written = writer.write(&kept_path, &mut lies)?;
        // The buckets were written next to the checkpoint, but are published from the folder of drafts.
        self.context.device.rename(&kept_path, &path)?;
        Ok(written)
    }
}

/// Returns the partition of the center at a place of the tree order. Partitions are ranges of that order, so buckets
/// that are adjacent on disk are read back together.
pub(super) fn partition_of(place: usize, partitions: usize, centers: usize) -> usize {
    place * partitions / centers
}

/// Returns the partition of each center, by the number of the center.
pub(super) fn partitions_of_centers(order: &[u32], partitions: usize) -> Vec<usize> {
    let mut of_center = vec![0; order.len()];
    for (place, &center) in order.iter().enumerate() {
        of_center[center as usize] = partition_of(place, partitions, order.len());
    }
    of_center
}

/// All parts of a store before it is published.
pub(super) struct FinishedBuild<'a> {
    pub(super) info: &'a SourceInfo,
    pub(super) options: &'a BuildOptions,
    pub(super) learned: &'a Learned,
    pub(super) written: Written,
    /// Encoded centers.
    pub(super) centers: Vec<u8>,
    /// The file of columns, if any are kept.
    pub(super) attributes: Option<FileFacts>,
}

impl FinishedBuild<'_> {
    /// Publishes the store, whose files of buckets and columns are drafts. Returns its manifest, and the bytes of all its
    /// files.
    ///
    /// # Errors
    /// Fails as [`Drafts::publish`] does.
    pub(super) fn publish(mut self, drafts: Drafts<'_>) -> Result<(StoreManifest, u64)> {
        let mut manifest = self.manifest();
        let mut bytes = self.written.bytes;
        let more = [(Role::Attributes, self.attributes.take()), (Role::Blocks, self.written.blocks.take())];
        for (role, facts) in more.into_iter().filter_map(|(role, facts)| Some((role, facts?))) {
            bytes += facts.bytes;
            manifest.files.add(role, facts);
        }
        let encoded = manifest.encode();
        let contents = [(Role::Centers, &*self.centers), (Role::Table, &*self.written.table)];
        drafts.publish(&manifest.files, &encoded, &contents, self.options.force)?;
        bytes += (self.centers.len() + self.written.table.len() + encoded.len()) as u64;
        Ok((manifest, bytes))
    }

    fn manifest(&self) -> StoreManifest {
        let Self { learned, written, centers, .. } = self;
        let sorted_by = self.options.sort_by.clone();
        StoreManifest {
            format_version: if sorted_by.is_some() { format::SORTED_VERSION } else { format::FORMAT_VERSION },
            vectors: self.info.vectors,
            rows: learned.usable_rows,
            source_rows: self.info.rows,
            skipped_rows: learned.skipped_rows,
            duplicate_ids: learned.duplicate_ids,
            metric: self.options.metric,
            longest: learned.longest,
            built_rows: None,
            removed_rows: 0,
            sorted_by,
            ids: self.info.ids,
            rounded_from_f64: self.info.rounded_from_f64,
            seed: self.options.seed,
            centers: self.options.centers(),
            assignment: Assignment::TwoLevel,
            buckets: written.centers.len() as u32,
            files: files_of(written, centers),
            manifest_xxh3: NO_CHECKSUM.into(),
        }
    }
}

/// Returns the manifest entries of the centers, the bucket table and the buckets. `centers` holds the encoded centers.
pub(super) fn files_of(written: &Written, centers: &[u8]) -> Files {
    // The names depend on all bytes of the generation, so two generations never share a file name.
    let contents = format::checksum(&[&written.digest.to_le_bytes()[..], centers, &written.table].concat());
    let facts = |role: Role| match role {
        Role::Centers => FileFacts::of(&role.file_of(contents), centers),
        Role::Table => FileFacts::of(&role.file_of(contents), &written.table),
        _ => FileFacts { name: role.file_of(contents), bytes: written.bytes, xxh3: None },
    };
    Files::new(&[Role::Centers, Role::Table, Role::Vectors], facts)
}

/// Encodes the center of each extent, in the order of extents. `of_extents` holds the number of each extent's center.
pub(super) fn stored_centers<T: Coordinate>(space: Space<'_>, centers: &Panel<T>, of_extents: &[u32]) -> Vec<u8> {
    let mut stored = Vec::new();
    for &center in of_extents {
        let coordinates = &centers.row(center as usize)[..space.dimensions()];
        T::write_center(space, coordinates, &mut stored);
    }
    stored
}
