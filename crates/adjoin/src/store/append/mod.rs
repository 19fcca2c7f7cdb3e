//! Appends rows to a store and removes rows from it, by writing its next generation. New rows are assigned to the
//! existing centers. One pass writes every bucket again, first its kept rows, then its new rows (decision 0025). The
//! bytes of the store do not depend on the budget.

mod attributes;
mod new_ids;
mod old_rows;

use std::path::Path;

use adjoin_kernels::Panel;

use self::attributes::OldPlaces;
pub(crate) use self::new_ids::check_new_ids;
use self::old_rows::{DeletedRows, OldRows};
use super::assign::TwoLevel;
use super::attributes::{Reordering, RowPlaces};
use super::bucket_file::Written;
use super::buckets::{BucketWriter, extent_rows_max, row_bytes};
use super::files::{FileFacts, Role};
use super::filter_bitmap::StoredColumns;
use super::folder::FolderFiles;
use super::held::AssignedRows;
use super::ids::{self, IdCheck, check_same_kind};
use super::intake::{self, Intake, Scanned, UsableRows};
use super::kind::has_manifest;
use super::manifest::{FolderKind, StoreManifest, read_manifest};
use super::memory::{BuildMemory, Growing};
use super::options::{OnBad, OnDuplicateId};
use super::partitions::Partitions;
use super::publish::Drafts;
use super::reader::Store;
use super::records::{RECORD_BYTES, Tally};
use super::sorting::Sorting;
use super::writer::{files_of, stored_centers};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{self, Coordinate, Space, with_coordinates};
use crate::base::message::{Argument, message};
use crate::base::options::{ROWS_MAX, VectorType, format_count};
use crate::base::report::Stopwatch;
use crate::source::{Attributes, IdKind, Ids, VectorSource};

/// Purpose of the memory, for messages.
const PURPOSE: &str = "the append";

/// Changes to make to a store.
#[derive(Clone, Copy)]
pub struct Append<'a> {
    /// Rows to append. They are numbered after the existing rows.
    pub new: Option<&'a dyn VectorSource>,
    /// Ids of the rows to remove. If rows have no ids, their numbers. Ids that no row has are counted and otherwise
    /// ignored.
    pub delete: Option<&'a Ids>,
    /// Handling of new rows without a usable vector.
    pub on_bad: OnBad,
    /// Handling of new rows with the id of an earlier row that is not removed.
    pub on_duplicate_id: OnDuplicateId,
}

/// Result and statistics of an append.
#[derive(Debug, Clone)]
pub struct AppendReport {
    /// The manifest that was published.
    pub manifest: StoreManifest,
    /// Rows appended.
    pub new_rows: u64,
    /// New rows left out because they had no usable vector.
    pub skipped_rows: u64,
    /// Rows removed.
    pub removed_rows: u64,
    /// Number of ids to remove that no row had.
    pub missing_ids: u64,
    /// Distances to centers that were computed.
    pub center_distances: u64,
    /// Bytes of the store that were read.
    pub bytes_read: u64,
    /// Bytes written to the store.
    pub bytes_written: u64,
    /// Bytes written to temporary files because they did not fit in memory.
    pub spill_bytes: u64,
    /// Total time, in seconds.
    pub seconds: f64,
}

impl Store {
    /// Publishes the next generation of the store in a folder. Open readers keep the old one.
    ///
    /// # Errors
    /// Fails and leaves the store unchanged if
    /// - the folder holds no store,
    /// - the new rows differ from its rows in the type of vectors, ids or columns,
    /// - more rows would have been appended since the build than the build had,
    /// - no row would be left, or
    /// - the budget is too small or a file cannot be written.
    pub fn append(context: &Context, folder: &Path, changes: &Append<'_>) -> Result<AppendReport> {
        let watch = Stopwatch::start();
        let context = &naming_all(context, folder, changes.new)?;
        let store = Store::open(context, folder)?;
        if let Some(source) = changes.new {
            check(&store, source)?;
            intake::tell(context, source);
        }
        if let Some(column) = &store.manifest().sorted_by {
            let at = folder.display();
            return Err(Error::input(message![
                format!(
                    "{at} is sorted by {column}, so rows cannot be appended or deleted; build it again from all rows, \
                     with "
                ),
                Argument::Force
            ]));
        }
        let deleted = changes.delete.map(|ids| DeletedRows::new(context, &store, ids)).transpose()?;
        let attributes = attributes::coming(context, &store, changes.new)?;
        let growing = growing(&store, attributes.as_ref(), changes.new)?;
        let space = growing.space;
        let (context, memory) =
            with_coordinates!(space, T => BuildMemory::plan_append::<T>(context, changes.new, &growing, PURPOSE)?);
        let context = &context;
        let drafts = Drafts::begin(context, folder, FolderKind::Store)?;
        let work = Work { context, store: &store, changes, attributes, memory, drafts };
        // Checked before the long part of the work, so that an outdated store is refused early. It is checked again
        // before the manifest is replaced.
        work.check_current()?;
        let report = with_coordinates!(space, T => work.run::<T>(space, deleted)?);
        Ok(AppendReport { seconds: watch.seconds(), ..report })
    }

    /// Returns a context for an append to the store in a folder. Its error messages name the memory that the whole
    /// append needs, as far as the manifest determines it.
    ///
    /// # Errors
    /// Fails if the manifest cannot be read.
    pub fn append_context(context: &Context, folder: &Path) -> Result<Context> {
        naming_all(context, folder, None)
    }
}

/// Returns a context with error messages that name about the memory of the whole append, so that a run with that
/// budget is not refused again. All new rows may belong to one bucket, and a bucket is written from memory. In a large
/// set, some buckets do get many new rows.
fn naming_all(context: &Context, folder: &Path, new: Option<&dyn VectorSource>) -> Result<Context> {
    if !has_manifest(context, folder)? {
        return Ok(context.clone()); // opening it reports the error
    }
    let manifest = read_manifest(context, folder)?;
    let space = manifest.space();
    let files = FolderFiles { folder, kind: FolderKind::Store, files: &manifest.files };
    // Damage is ignored here, because it is reported when the store is opened.
    let (columns, columns_bytes) = attributes::foreseen(context, files, manifest.rows, new).unwrap_or_default();
    let rows = extent_rows_max(manifest.rows, manifest.buckets.into(), manifest.vectors).min(manifest.rows);
    // The average size of a row in the file includes headers and padding, so this slightly overestimates the length of
    // ids.
    let id_bytes =
        (manifest.files[Role::Vectors].bytes / manifest.rows.max(1)).saturating_sub(row_bytes(space.vectors));
    let (stored, ids) = (rows * row_bytes(space.vectors), rows * id_bytes);
    let growing = Growing {
        space,
        ids: manifest.ids,
        buckets: manifest.buckets as usize,
        rows: manifest.rows,
        largest_read: 2 * (stored + 2 * ids),
        largest_ids: ids,
        columns,
        columns_bytes,
    };
    let all = with_coordinates!(space, T => BuildMemory::least_to_append::<T>(context.threads, new, &growing));
    let coming = new.map_or(0, |source| source.info().rows) * (row_bytes(space.vectors) + id_bytes);
    Ok(context.naming_at_least(all + (EXTENTS_AT_ONCE * coming).min(DRIFT_BYTES_MAX)))
}

/// Number of extents in memory while buckets are written.
const EXTENTS_AT_ONCE: u64 = 3;
/// Maximum number of bytes of new rows in one bucket that error messages assume.
const DRIFT_BYTES_MAX: u64 = 32 << 20;

/// Checks that new rows can be appended to a store.
fn check(store: &Store, source: &dyn VectorSource) -> Result<()> {
    let (manifest, info) = (store.manifest(), source.info());
    let at = store.folder().display();
    if manifest.vectors != info.vectors {
        let words = |of: VectorType| format!("{} x {}", of.dimensions, of.element);
        let [there, coming] = [manifest.vectors, info.vectors].map(words);
        return Err(Error::input(format!(
            "the vectors of {at} are {there}, but the new ones are {coming}; create both with the same model and \
             element type"
        )));
    }
    check_same_kind(manifest.ids, info.ids)?;
    let rows = manifest.source_rows + info.rows;
    // Row numbers are never reused, so removed rows count, too.
    if rows > ROWS_MAX {
        return Err(Error::input(format!(
            "{rows} rows are more than the {ROWS_MAX} that a store can hold; split the \
                                         set"
        )));
    }
    let built = manifest.built_rows.unwrap_or(manifest.source_rows);
    // The limit depends on the data alone, so equal inputs always give equal results (decision 0025).
    if rows - built > built {
        let (came, built) = (format_count(rows - built, "row"), format_count(built, "row"));
        return Err(Error::input(message![
            format!(
                "{at} was built from {built}, so its buckets do not suit the {came} appended since, including these; \
                 build it "
            ),
            "again from all rows, with ",
            Argument::Force
        ]));
    }
    Ok(())
}

fn growing(store: &Store, attributes: Option<&Attributes<'_>>, new: Option<&dyn VectorSource>) -> Result<Growing> {
    let (manifest, extents) = (store.manifest(), store.extents());
    let old = store.columns().map_or(Ok(0), StoredColumns::reading_bytes)?;
    Ok(Growing {
        space: manifest.space(),
        ids: manifest.ids,
        buckets: extents.len(),
        rows: manifest.rows,
        largest_read: extents.iter().map(OldRows::bytes_read).max().unwrap_or(0),
        largest_ids: extents.iter().map(|extent| extent.id_bytes).max().unwrap_or(0),
        columns: store.attributes()?.len(),
        columns_bytes: old.max(attributes::reading_bytes(attributes, new)),
    })
}

/// An append in progress.
struct Work<'a> {
    context: &'a Context,
    store: &'a Store,
    changes: &'a Append<'a>,
    /// Columns of the new rows, if the store has columns.
    attributes: Option<Attributes<'a>>,
    memory: BuildMemory,
    drafts: Drafts<'a>,
}

/// New rows, assigned to buckets.
struct Assigned {
    records: AssignedRows,
    partition_of: Vec<u32>,
    /// Tallies by bucket, including the old rows that are kept.
    tallies: Vec<Tally>,
    scanned: Scanned,
    duplicate_ids: u64,
    distances: u64,
}

impl Work<'_> {
    fn run<T: Coordinate>(self, space: Space<'static>, deleted: Option<DeletedRows>) -> Result<AppendReport> {
        let (context, store) = (self.context, self.store);
        let mut old = OldRows::new(context, store, deleted);
        let phase = context.reserve(self.memory.assigning(), PURPOSE)?;
        let mut centers = Panel::<T>::zeroed(store.extents().len(), space.dimensions());
        store.read_centers(space, &mut centers, 0)?;
        let mut check = (store.manifest().ids != IdKind::None).then(|| self.id_check());
        let kept = old.survey(check.as_mut())?;
        let assigned = self.assign(space, &centers, kept, check)?;
        // The centers stay in memory. The grouped centers and the id check are released, so that the buckets can use
        // their memory.
        drop(phase);
        if assigned.tallies.iter().all(|tally| tally.rows == 0) {
            return Err(Error::input("no row would be left, but a store needs at least one; delete fewer rows"));
        }
        let mut places = self.row_places()?;
        let written = self.write_buckets(&assigned, &old, places.as_mut())?;
        let Assigned { records, tallies, scanned, duplicate_ids, distances, .. } = assigned;
        let mut spill_bytes = records.spilled();
        drop(records);
        let stored = stored_centers(space, &centers, &written.centers);
        drop(centers);
        let mut manifest = self.manifest(scanned, duplicate_ids, &old, &written, &stored);
        let mut bytes_written = written.bytes;
        if let Some(places) = places {
            let lie = OldPlaces::new(&old, &tallies);
            let (facts, spilled) = self.write_attributes(places, lie, manifest.rows)?;
            bytes_written += facts.bytes;
            spill_bytes += spilled;
            manifest.files.add(Role::Attributes, facts);
        }
        let encoded = manifest.encode();
        let contents = [(Role::Centers, &*stored), (Role::Table, &*written.table)];
        // This is the last chance to notice that another writer published a generation, which would be lost otherwise.
        self.check_current()?;
        self.drafts.publish(&manifest.files, &encoded, &contents, true)?;
        bytes_written += (stored.len() + written.table.len() + encoded.len()) as u64;
        Ok(AppendReport {
            manifest,
            new_rows: scanned.usable_rows,
            skipped_rows: scanned.skipped_rows,
            removed_rows: old.removed(),
            missing_ids: old.missing(),
            center_distances: distances,
            bytes_read: old.bytes(),
            bytes_written,
            spill_bytes,
            seconds: 0.0,
        })
    }

    /// Checks that the store is still the one that was opened. On file systems without working locks, another process
    /// may have published a generation in the meantime.
    fn check_current(&self) -> Result<()> {
        let folder = self.store.folder();
        if read_manifest(self.context, folder)?.manifest_xxh3 == self.store.manifest().manifest_xxh3 {
            return Ok(());
        }
        let at = folder.display();
        Err(Error::input(format!("{at} was replaced during the append; append to the new store again")))
    }

    /// Returns the number of new rows, including bad ones.
    fn coming(&self) -> u64 {
        self.changes.new.map_or(0, |source| source.info().rows)
    }

    fn id_check(&self) -> IdCheck {
        let rows = self.store.manifest().rows + self.coming();
        IdCheck::new(self.context, &self.drafts.temporary(), rows, self.memory.id_check)
    }

    /// Scans the new rows and puts each row into the partition of its bucket. Duplicate ids are refused. If they are
    /// allowed, they are counted.
    fn assign<T: Coordinate>(
        &self,
        space: Space<'_>,
        centers: &Panel<T>,
        tallies: Vec<Tally>,
        mut check: Option<IdCheck>,
    ) -> Result<Assigned> {
        let (context, buckets) = (self.context, centers.rows());
        let sizes = self.memory.partitions(self.bytes_to_write(), buckets);
        let partition_of_center: Vec<usize> = (0..buckets).map(|place| place * sizes.partitions / buckets).collect();
        let partition_of = partition_of_center.iter().map(|&partition| partition as u32).collect();
        let records = Partitions::new(context, &self.drafts.temporary(), "rows", sizes);
        let mut sorting = Sorting { records, tallies, partition_of_center, kept: None, distances_a_row: 0 };
        let (mut scanned, mut distances) = (Scanned::default(), 0);
        if let Some(source) = self.changes.new {
            // The extents of a split bucket have equal centers. New rows belong to the last extent, since the others
            // are full.
            let last_of_equal = last_of_equal(centers);
            let levels = TwoLevel::new(context.kernel, centers);
            context.progress.begin("assign", "rows", source.info().rows);
            scanned = sorting.scan(&self.intake(source), &levels, space, |usable, nearest| {
                self.check_longest(source, usable)?;
                // New rows are numbered after all rows that the store ever had, so the numbers of removed rows are not
                // reused.
                usable.rows.iter_mut().for_each(|row| *row += self.store.manifest().source_rows);
                nearest.iter_mut().for_each(|nearest| nearest.center = last_of_equal[nearest.center as usize]);
                check.as_mut().map_or(Ok(()), |check| check.add(usable))
            })?;
            sorting.measure(space);
            distances = scanned.usable_rows * levels.distances_a_vector() as u64;
        }
        let duplicate_ids = check.map_or(Ok(0), |check| self.duplicates(check))?;
        let Sorting { records, tallies, .. } = sorting;
        let records = AssignedRows::Records(records.finish()?);
        Ok(Assigned { records, partition_of, tallies, scanned, duplicate_ids, distances })
    }

    fn intake<'s>(&'s self, source: &'s dyn VectorSource) -> Intake<'s> {
        let (context, metric, on_bad) = (self.context, self.store.manifest().metric, self.changes.on_bad);
        let (remedy, batch_bytes) = (intake::fix_or_skip, self.memory.batch);
        Intake { context, source, metric, on_bad, left_out: None, remedy, batch_bytes }
    }

    /// Estimates the bytes of all rows to write. Assumes that new ids are as long as old ids on average.
    fn bytes_to_write(&self) -> u64 {
        let (manifest, extents) = (self.store.manifest(), self.store.extents());
        let rows = manifest.rows + self.coming();
        let ids: u64 = extents.iter().map(|extent| extent.id_bytes).sum();
        rows * (manifest.vectors.bytes() as u64 + RECORD_BYTES + ids / manifest.rows)
    }

    /// Refuses vectors that are longer than the longest vector of the build. The layout for inner products depends on
    /// that length.
    fn check_longest(&self, source: &dyn VectorSource, usable: &UsableRows) -> Result<()> {
        let StoreManifest { longest: Some(longest), vectors, .. } = *self.store.manifest() else { return Ok(()) };
        let length = |stored: &[u8]| geometry::longest(self.context.kernel, vectors, stored);
        let Some(k) = usable.stored.chunks_exact(vectors.bytes()).position(|vector| length(vector) > longest) else {
            return Ok(());
        };
        let (file, row) = source.locate(usable.rows[k]);
        let at = file.display();
        Err(Error::input(message![
            format!("{at}: the vector of row {row} is longer than {longest}, the longest when the store was built, "),
            "which the layout for inner products depends on; build it again from all rows, with ",
            Argument::Force
        ]))
    }

    /// Returns the number of rows with the id of an earlier row. Fails if a new row is among them and duplicates are
    /// not allowed.
    fn duplicates(&self, check: IdCheck) -> Result<u64> {
        let first_new = self.store.manifest().source_rows;
        let found = check.finish(first_new)?;
        match (found.first, self.changes.new, self.changes.on_duplicate_id) {
            (Some(first), Some(source), OnDuplicateId::Error) => {
                let remedy = message![Argument::Delete, " to remove the earlier rows"];
                Err(ids::refusal(source, first - first_new, found.coming, remedy)?)
            }
            _ => Ok(found.count),
        }
    }

    /// Creates the map from new rows to positions. Returns `None` if the store has no columns.
    fn row_places(&self) -> Result<Option<RowPlaces>> {
        let first = self.store.manifest().source_rows;
        let rows = first..first + self.coming();
        let places = || RowPlaces::new(self.context, &self.drafts.temporary(), rows);
        self.store.columns().map(|_| places()).transpose()
    }

    fn write_buckets(
        &self,
        assigned: &Assigned,
        old: &OldRows<'_>,
        mut places: Option<&mut RowPlaces>,
    ) -> Result<Written> {
        let Assigned { records, partition_of, tallies, .. } = assigned;
        let (manifest, rows) = (self.store.manifest(), tallies.iter().map(|tally| tally.rows).sum());
        let order: Vec<u32> = (0..tallies.len() as u32).collect();
        let writer = BucketWriter {
            context: self.context,
            rows: records,
            before: Some(old),
            kept: None,
            vectors: manifest.vectors,
            ids: manifest.ids,
            order: &order,
            partition_of,
            tallies,
            extent_rows_max: extent_rows_max(rows, tallies.len() as u64, manifest.vectors),
            load_bytes: self.memory.load,
            sorted: None,
        };
        let _memory = self.context.reserve(self.memory.writing(writer.largest_extent()), PURPOSE)?;
        let mut lies = |rows: &[u64]| places.as_mut().map_or(Ok(()), |places| places.add(rows));
        writer.write(&self.drafts.path(Role::Vectors.file()), &mut lies)
    }

    /// Writes the columns of `rows` rows. `places` maps new rows to positions, `lie` maps old rows. Returns the
    /// manifest entry of the file, and the number of bytes that did not fit in memory.
    fn write_attributes(&self, places: RowPlaces, mut lie: OldPlaces<'_>, rows: u64) -> Result<(FileFacts, u64)> {
        let columns = self.store.columns().expect("the store has columns");
        let (schema, reading) = (columns.schema()?, self.memory.columns);
        let mut reordering = Reordering::new(self.context, &self.drafts.temporary(), &schema, rows, reading)?;
        columns.add_to(self.context, &mut reordering, |_| lie.next())?;
        let mut spilled = 0;
        if let Some(attributes) = &self.attributes {
            spilled = places.add_to(self.context, attributes, &mut reordering)?;
        }
        let (facts, more) = reordering.write(&self.drafts)?;
        Ok((facts, spilled + more))
    }

    fn manifest(
        &self,
        scanned: Scanned,
        duplicate_ids: u64,
        old: &OldRows<'_>,
        written: &Written,
        centers: &[u8],
    ) -> StoreManifest {
        let before = self.store.manifest();
        let rounded = self.changes.new.is_some_and(|source| source.info().rounded_from_f64);
        StoreManifest {
            rows: before.rows - old.removed() + scanned.usable_rows,
            source_rows: before.source_rows + self.coming(),
            skipped_rows: before.skipped_rows + old.removed() + scanned.skipped_rows,
            removed_rows: before.removed_rows + old.removed(),
            // A store without `built_rows` was never appended to, so all of its source rows are from the build.
            built_rows: before.built_rows.or(Some(before.source_rows)),
            duplicate_ids,
            rounded_from_f64: before.rounded_from_f64 || rounded,
            buckets: written.centers.len() as u32,
            files: files_of(written, centers),
            ..before.clone()
        }
    }
}

/// Maps each center to the last one of its group of equal, consecutive centers. The extents of a split bucket have
/// equal centers, and only the last extent is not full.
fn last_of_equal<T: Coordinate>(centers: &Panel<T>) -> Vec<u32> {
    let mut last: Vec<u32> = (0..centers.rows() as u32).collect();
    for k in (1..centers.rows()).rev() {
        if centers.row(k - 1) == centers.row(k) {
            last[k - 1] = last[k];
        }
    }
    last
}
