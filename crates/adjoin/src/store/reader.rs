//! An open store: its bucket table in memory, centers and buckets read when asked for.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use adjoin_device::{ReadFile, Reservation};
use adjoin_kernels::Panel;
use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::blocks::BlockSums;
use super::files::Role;
use super::folder::{FolderFiles, read_checked};
use super::format::{Bucket, Extent, decode_bucket, decode_members, decode_table};
use super::kind::has_manifest;
use super::manifest::{Kind, Manifest, is_replaced, read_manifest};
use super::passing::{AttributeFile, Passing, asked_for, each_table, passing};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Space, with_coordinates};
use crate::message::Argument;
use crate::source::Ids;
use crate::sql::Condition;

/// Centers are read in pieces of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// A store, open for reading from any thread.
pub struct Store {
    folder: PathBuf,
    manifest: Manifest,
    extents: Vec<Extent>,
    centers: Arc<dyn ReadFile>,
    file: Arc<dyn ReadFile>,
    attributes: Option<AttributeFile>,
    /// Checksums of blocks, by which parts of buckets are verified: read once a condition asks for some of the rows.
    blocks: OnceLock<BlockSums>,
    /// Of the extents.
    _memory: Reservation,
}

impl Store {
    /// Opens the store in a folder and checks everything but the buckets. It stays the one that was opened, whatever takes
    /// its place in the folder.
    ///
    /// # Errors
    /// Where there is none, it is damaged or of a newer version, or the budget does not hold its centers and its table.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        if !has_manifest(context, folder)? {
            return Err(Error::input(format!("{} is not a store; make one with: adjoin build", folder.display())));
        }
        loop {
            let manifest = read_manifest(context, folder)?;
            let opened = Self::of_manifest(context, folder, &manifest);
            // Where a build has replaced it between two files, some are gone; then it is the new one that is opened.
            if opened.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                return opened;
            }
            context.cancel.check()?;
        }
    }

    fn of_manifest(context: &Context, folder: &Path, manifest: &Manifest) -> Result<Self> {
        // The manifest's lengths agree with one another. Extents are decoded from a table that is there as well, and
        // whoever uses centers makes coordinates of them: what would not bear that is refused now.
        let table = manifest.files[Role::Table].bytes;
        let (count, space) = (manifest.buckets as usize, manifest.space());
        let panel = with_coordinates!(space, T => Panel::<T>::bytes_for(count, space.dimensions()));
        drop(context.reserve(table + table.max(panel) + PIECE_BYTES as u64, "opening the store")?);
        let memory = context.reserve(table, "opening the store")?;
        let files = FolderFiles { folder, kind: Kind::Store, files: &manifest.files };
        let table = files.read(context, Role::Table)?;
        let centers = files.open(context, Role::Centers)?;
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

    /// What the store says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where each bucket lies.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Reads the centers, in bucket order, into the rows of a panel from `first` on.
    ///
    /// # Errors
    /// Where the device fails, the centers are not as written any more, or `T` is not the coordinate of such elements
    /// under such a metric.
    pub(crate) fn read_centers<T: Coordinate>(
        &self,
        space: Space<'_>,
        panel: &mut Panel<T>,
        first: usize,
    ) -> Result<()> {
        let bytes = space.dimensions() * space.center_bytes() as usize;
        if self.centers.len() != (bytes * self.extents.len()) as u64 {
            return Err(Error::input(format!("{}: its centers have other coordinates", self.folder.display())));
        }
        let mut rows = first..;
        read_checked(&*self.centers, self.files(), Role::Centers, PIECE_BYTES.next_multiple_of(bytes), |piece| {
            for (center, row) in piece.chunks_exact(bytes).zip(&mut rows) {
                T::read_center(space, center, panel.row_mut(row));
            }
        })
    }

    /// Names and types of its attributes, in the order in which they were named.
    ///
    /// # Errors
    /// Where their file cannot be read.
    pub fn attributes(&self) -> Result<Vec<(String, String)>> {
        self.attributes.as_ref().map_or(Ok(Vec::new()), |attributes| attributes.names(self.files()))
    }

    /// Refuses conditions on rows that have no attributes, before anything is read for them.
    ///
    /// # Errors
    /// Where there are no attributes.
    pub fn check_filtered(&self) -> Result<()> {
        asked_for(self.attribute_file(), self.manifest.rows, Argument::Where).map(drop)
    }

    /// The rows that meet a condition on their attributes, by their places in the order of buckets.
    ///
    /// # Errors
    /// Where it has no attributes or not those that are asked for, types do not go together, their file is damaged, or memory
    /// does not suffice.
    pub fn passing(&self, context: &Context, condition: &Condition) -> Result<Passing> {
        if self.manifest.sorted_by.is_some() && self.blocks.get().is_none() {
            let _ = self.blocks.set(BlockSums::read(context, self.files())?); // or another thread has meanwhile
        }
        passing(context, (self.attributes.as_ref(), self.files()), (condition, None), self.manifest.rows)
    }

    /// The columns of its attributes, which an option asks for; their file is as it was written.
    ///
    /// # Errors
    /// Where there are none, or their file is damaged or cannot be read.
    pub(crate) fn attribute_schema(&self, context: &Context, asking: Argument) -> Result<Arc<Schema>> {
        let attributes = asked_for(self.attribute_file(), self.manifest.rows, asking)?;
        attributes.check(context, self.files())?;
        attributes.schema(self.files())
    }

    /// Hands over its attributes at some places, ascending, of all rows in the order of buckets: tables, each with the place of
    /// its first row. [`Self::attribute_schema`] has checked their file.
    ///
    /// # Errors
    /// Where there are none, their file cannot be read, memory does not suffice, or `take` fails.
    pub(crate) fn each_attributes(
        &self,
        context: &Context,
        (places, asking): (&[usize], Argument),
        take: impl FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let rows = self.manifest.rows;
        let attributes = asked_for(self.attribute_file(), rows, asking)?;
        each_table(context, (attributes, self.files()), (places, rows), take)
    }

    /// The file of its attributes, where it has them, and its files.
    pub(crate) fn attribute_file(&self) -> (Option<&AttributeFile>, FolderFiles<'_>) {
        (self.attributes.as_ref(), self.files())
    }

    fn files(&self) -> FolderFiles<'_> {
        FolderFiles { folder: &self.folder, kind: Kind::Store, files: &self.manifest.files }
    }

    /// The file of the buckets.
    pub(crate) fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Bytes that a condition takes so that parts of its buckets can be read.
    pub(crate) fn parts_bytes(&self) -> u64 {
        let blocks = self.manifest.files.get(Role::Blocks).filter(|_| self.manifest.sorted_by.is_some());
        blocks.map_or(0, |blocks| blocks.bytes)
    }

    /// Whether parts of its buckets can be read: rows are sorted, and a condition has asked for some of them.
    pub(crate) fn has_parts(&self) -> bool {
        self.blocks.get().is_some()
    }

    /// That some whole blocks of the file of the buckets are as written, the first of them at `offset`.
    ///
    /// # Errors
    /// Where one is not.
    ///
    /// # Panics
    /// If it has no parts.
    pub(crate) fn check_blocks(&self, offset: u64, blocks: &[u8]) -> Result<()> {
        match self.blocks.get().expect("parts are asked for where there are some").damaged(offset, blocks) {
            None => Ok(()),
            Some(at) => Err(self.files().damaged(Role::Vectors, &format!("the block at byte {at}: checksum mismatch"))),
        }
    }

    /// The row numbers and the ids of some members of a bucket, as [`decode_members`] says.
    ///
    /// # Errors
    /// Where they say what cannot be.
    pub(crate) fn decode_members(
        &self,
        (number, members): (u32, Range<u32>),
        of_members: (&[u8], &[u8]),
    ) -> Result<(Vec<u64>, Ids)> {
        let (facts, extent) = (self.manifest.bucket_facts(), &self.extents[number as usize]);
        decode_members((number, members), (&facts, extent), of_members)
            .map_err(|error| self.files().damaged(Role::Vectors, &error.to_string()))
    }

    /// Checks and takes apart what was read of a bucket.
    ///
    /// # Errors
    /// Where the bytes are not as written.
    pub(crate) fn decode(&self, number: u32, bytes: &[u8]) -> Result<Bucket> {
        let extent = &self.extents[number as usize];
        decode_bucket(number, &self.manifest.bucket_facts(), extent, bytes)
            .map_err(|error| self.files().damaged(Role::Vectors, &error.to_string()))
    }
}
