//! An open store. The bucket table is in memory. Centers and buckets are read on request.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use adjoin_device::{Location, ReadFile, Reservation};
use adjoin_kernels::Panel;
use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::attribute_rows::AttributeRows;
use super::blocks::BlockSums;
use super::files::Role;
use super::filter_bitmap::{AttributeFile, FilterBitmap, StoredColumns, required_columns};
use super::folder::{FolderFiles, read_checked};
use super::format::{Bucket, Extent, MemberBytes, decode_bucket, decode_members, decode_table};
use super::kind::has_manifest;
use super::manifest::{FolderKind, StoreManifest, is_replaced, read_manifest};
use super::result_columns::ResultColumns;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::message::{Argument, Mention, message};
use crate::source::Ids;
use crate::sql::Condition;

/// Size of the pieces in which centers are read, in bytes (approximate).
const PIECE_BYTES: usize = 64 << 10;

/// A store, open for reading from any thread.
pub struct Store {
    folder: PathBuf,
    manifest: StoreManifest,
    extents: Vec<Extent>,
    centers: Arc<dyn ReadFile>,
    file: Arc<dyn ReadFile>,
    attributes: Option<AttributeFile>,
    /// Checksums of blocks, which verify parts of buckets. They are read when the first filter is evaluated.
    blocks: OnceLock<BlockSums>,
    /// Reservation for `extents`.
    _memory: Reservation,
}

impl Store {
    /// Returns the store among the inputs of a join. Returns `None` if all inputs are sources. Collections count as
    /// sources. A store must be the only input. `only_for_builds` is an option of the user that only builds have, if
    /// any was given; it is refused for a store.
    ///
    /// # Errors
    /// Fails if a store is not the only input or such an option is given, if an input is an index, or if
    /// [`FolderKind::of`] fails.
    pub fn sole_input<'a>(
        context: &Context,
        inputs: &'a [String],
        only_for_builds: Option<Mention>,
    ) -> Result<Option<&'a Path>> {
        for input in inputs {
            let Some(kind) = FolderKind::of(context, Path::new(input))? else { continue };
            match kind {
                FolderKind::Store => {}
                // A collection is read as a source, from a snapshot of its rows.
                FolderKind::Collection => continue,
                FolderKind::Index => return Err(kind.is_not(FolderKind::Store, Path::new(input))),
            }
            if inputs.len() > 1 {
                return Err(Error::option(format!(
                    "{input} is a store, which cannot be combined with other inputs; give one store, or only sources"
                )));
            }
            if let Some(option) = only_for_builds {
                return Err(Error::option(message![
                    format!("{input} is a store, and "),
                    option,
                    " applies only when a store is built; leave it out, or build the store again with it"
                ]));
            }
            return Ok(Some(Path::new(input)));
        }
        Ok(None)
    }

    /// Opens the store in a folder and checks everything but the buckets. If the store is replaced later, this handle
    /// continues to read the old one.
    ///
    /// # Errors
    /// Fails if the folder is no store, if the store is damaged or of a newer version, or if its centers and its
    /// bucket table do not fit in the budget.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        if !has_manifest(context, folder)? {
            return Err(Error::input(format!("{} is not a store; create one with: adjoin build", folder.display())));
        }
        Self::open_read(context, folder, read_manifest(context, folder)?)
    }

    /// Opens the store in a folder like [`Self::open`]. `manifest` was just read from the folder.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does.
    pub(crate) fn open_read(context: &Context, folder: &Path, mut manifest: StoreManifest) -> Result<Self> {
        loop {
            let opened = Self::of_manifest(context, folder, &manifest);
            // If a build replaces the store while its files are opened, some of them may be missing. Then the new
            // store is opened instead.
            if opened.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                return opened;
            }
            context.cancel.check()?;
            manifest = read_manifest(context, folder)?;
        }
    }

    fn of_manifest(context: &Context, folder: &Path, manifest: &StoreManifest) -> Result<Self> {
        // The manifest's lengths are consistent. The raw table is in memory while extents are decoded, and callers
        // convert centers to coordinates. Fails now if the budget is too small for this.
        let table = manifest.files[Role::Table].bytes;
        let (count, space) = (manifest.buckets as usize, manifest.space());
        let panel = with_coordinates!(space, T => Panel::<T>::bytes_for(count, space.dimensions()));
        let client = if Location::is_remote(folder) { context.device.object_reading_bytes() } else { 0 };
        // This reservation is dropped at once. It only tests whether the memory is free. Callers reserve what they
        // hold.
        drop(context.reserve(table + table.max(panel) + PIECE_BYTES as u64 + client, "opening the store")?);
        let memory = context.reserve(table + client, "opening the store")?;
        let files = FolderFiles { folder, kind: FolderKind::Store, files: &manifest.files };
        let table = files.read(context, Role::Table)?;
        let centers = files.open(context, Role::Centers)?;
        // Verified now, so that damaged centers are reported when the store is opened and not in the middle of a run.
        read_checked(&*centers, files, Role::Centers, PIECE_BYTES, |_| ())?;
        let file = files.open(context, Role::Vectors)?;
        if !file.is_direct() {
            context.progress.note("this file system refuses direct reads: data passes through the page cache");
        }
        let extents = decode_table(&table, &manifest.bucket_facts(), manifest.rows, file.len())
            .map_err(|error| files.damaged(Role::Table, &error.to_string()))?;
        let attributes = AttributeFile::open(context, files)?;
        let (folder, manifest) = (folder.to_owned(), manifest.clone());
        let blocks = OnceLock::new();
        Ok(Self { folder, manifest, extents, centers, file, attributes, blocks, _memory: memory })
    }

    /// Returns the store's manifest.
    pub fn manifest(&self) -> &StoreManifest {
        &self.manifest
    }

    /// Returns the store's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the location of each bucket.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Reads the centers, in bucket order, into the rows of a panel, starting at row `first`.
    ///
    /// # Errors
    /// Fails if the device fails, the centers are damaged, or `T` is not the coordinate type for these elements and
    /// this metric.
    pub(crate) fn read_centers<T: Coordinate>(
        &self,
        space: Space<'_>,
        panel: &mut Panel<T>,
        first: usize,
    ) -> Result<()> {
        let bytes = space.dimensions() * space.center_bytes() as usize;
        if self.centers.len() != (bytes * self.extents.len()) as u64 {
            return Err(Error::input(format!(
                "{}: its centers do not match its vectors; build the store again",
                self.folder.display()
            )));
        }
        let mut rows = first..;
        read_checked(&*self.centers, self.files(), Role::Centers, PIECE_BYTES.next_multiple_of(bytes), |piece| {
            for (center, row) in piece.chunks_exact(bytes).zip(&mut rows) {
                T::read_center(space, center, panel.row_mut(row));
            }
        })
    }

    /// Returns the names and types of the store's columns, in the order in which they were named.
    ///
    /// # Errors
    /// Fails if the file of the columns cannot be read.
    pub fn attributes(&self) -> Result<Vec<(String, String)>> {
        self.columns().map_or(Ok(Vec::new()), StoredColumns::names)
    }

    /// Checks that the store has columns to filter by, before anything is read for the filter.
    ///
    /// # Errors
    /// Fails if the store has no columns.
    pub fn check_filtered(&self) -> Result<()> {
        self.required_columns(Argument::Where).map(drop)
    }

    /// Returns the rows that pass a filter, by their positions in bucket order.
    ///
    /// # Errors
    /// Fails if the store lacks the columns that the filter names, types do not match, the file of the columns is
    /// damaged, or memory does not suffice.
    pub fn passing(&self, context: &Context, condition: &Condition) -> Result<FilterBitmap> {
        // Block checksums are needed only if parts of buckets are read. Without a filter, whole buckets are read, and
        // the checksums in their headers suffice.
        if self.manifest.sorted_by.is_some() && self.blocks.get().is_none() {
            let _ = self.blocks.set(BlockSums::read(context, self.files())?); // another thread may have been first
        }
        self.required_columns(Argument::Where)?.passing(context, condition, None)
    }

    /// Returns the schema of the store's columns, after verifying their file. `argument` is the option that needs them.
    ///
    /// # Errors
    /// Fails if the store has no columns, or their file is damaged or cannot be read.
    pub(crate) fn attribute_schema(&self, context: &Context, argument: Argument) -> Result<Arc<Schema>> {
        let columns = self.required_columns(argument)?;
        columns.check(context)?;
        columns.schema()
    }

    /// Passes columns of all rows to `take`: tables, each with the position of its first row in bucket order. `places`
    /// are the indexes of the columns, which ascend. Call [`Self::attribute_schema`] first, which verifies the file.
    ///
    /// # Errors
    /// Fails if the store has no columns, their file cannot be read, memory does not suffice, or `take` fails.
    pub(crate) fn each_attributes(
        &self,
        context: &Context,
        places: &[usize],
        argument: Argument,
        take: impl FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        self.required_columns(argument)?.each_table(context, places, take)
    }

    /// Returns the columns of the rows at the positions `places` in bucket order. The rows are in the order of
    /// `places`.
    ///
    /// # Errors
    /// Fails if their file is damaged or cannot be read, or memory does not suffice.
    pub(crate) fn attributes_at(&self, context: &Context, places: &[u64]) -> Result<AttributeRows> {
        // Checks that positions fit in 32 bits, since the conversion below relies on it.
        if self.attributes.is_some() {
            self.required_columns(Argument::Columns)?;
        }
        let places: Vec<u32> = places.iter().map(|&place| place as u32).collect();
        AttributeRows::read(context, self.columns(), &places)
    }

    /// Returns the named columns for a result. Returns `None` if no names are given.
    ///
    /// # Errors
    /// Fails if the store does not have a named column, a name is given twice, or the file of columns cannot be read.
    pub(crate) fn result_columns(&self, names: &[String]) -> Result<Option<ResultColumns<'_>>> {
        ResultColumns::of(self.columns(), &self.folder, self.manifest.rows, names)
    }

    /// Returns the columns, if the store has any.
    pub(crate) fn columns(&self) -> Option<StoredColumns<'_>> {
        self.attributes.as_ref().map(|file| file.columns(self.files(), self.manifest.rows))
    }

    fn required_columns(&self, argument: Argument) -> Result<StoredColumns<'_>> {
        required_columns(self.columns(), &self.folder, self.manifest.rows, argument)
    }

    fn files(&self) -> FolderFiles<'_> {
        FolderFiles { folder: &self.folder, kind: FolderKind::Store, files: &self.manifest.files }
    }

    /// Returns the file of the buckets.
    pub(crate) fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Returns the bytes that a filter holds for block checksums, which are needed to read parts of buckets.
    pub(crate) fn parts_bytes(&self) -> u64 {
        let blocks = self.manifest.files.get(Role::Blocks).filter(|_| self.manifest.sorted_by.is_some());
        blocks.map_or(0, |blocks| blocks.bytes)
    }

    /// Returns whether parts of buckets can be read: rows are sorted, and a filter was evaluated.
    pub(crate) fn has_parts(&self) -> bool {
        self.blocks.get().is_some()
    }

    /// Verifies complete blocks of the file of buckets. The first block starts at byte `offset`.
    ///
    /// # Errors
    /// Fails if the checksum of a block does not match.
    ///
    /// # Panics
    /// Panics if [`Self::has_parts`] is false.
    pub(crate) fn check_blocks(&self, offset: u64, blocks: &[u8]) -> Result<()> {
        match self.blocks.get().expect("the store has parts").damaged(offset, blocks) {
            None => Ok(()),
            Some(at) => Err(self.files().damaged(Role::Vectors, &format!("the block at byte {at}: checksum mismatch"))),
        }
    }

    /// Decodes the row numbers and ids of some members of a bucket; see [`decode_members`].
    ///
    /// # Errors
    /// Fails if a value is impossible.
    pub(crate) fn decode_members(&self, number: u32, members: MemberBytes<'_>) -> Result<(Vec<u64>, Ids)> {
        let extent = &self.extents[number as usize];
        decode_members(number, members, &self.manifest.bucket_facts(), extent)
            .map_err(|error| self.files().damaged(Role::Vectors, &error.to_string()))
    }

    /// Verifies and decodes the bytes read from a bucket.
    ///
    /// # Errors
    /// Fails if the bytes are damaged.
    pub(crate) fn decode(&self, number: u32, bytes: &[u8]) -> Result<Bucket> {
        let extent = &self.extents[number as usize];
        decode_bucket(number, &self.manifest.bucket_facts(), extent, bytes)
            .map_err(|error| self.files().damaged(Role::Vectors, &error.to_string()))
    }
}
