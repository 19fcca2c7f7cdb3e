//! An open store: centers and bucket table in memory, buckets read when asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use adjoin_kernels::Panel;

use super::files::{FileFacts, Role, read_whole};
use super::format::{Bucket, Extent, decode_bucket, decode_table};
use super::kind::has_manifest;
use super::manifest::{Manifest, is_replaced, read_manifest};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::Coordinate;

/// A store, open for reading from any thread.
pub struct Store {
    folder: PathBuf,
    manifest: Manifest,
    extents: Vec<Extent>,
    centers: Vec<u8>,
    file: Arc<dyn ReadFile>,
    /// Of centers and extents.
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
            if opened.is_ok() || !is_replaced(context, folder, &manifest) {
                return opened;
            }
            context.cancel.check()?;
        }
    }

    fn of_manifest(context: &Context, folder: &Path, manifest: &Manifest) -> Result<Self> {
        // The manifest's lengths agree with one another. Extents are decoded from a table that is there as well, and
        // whoever uses centers makes coordinates of them: what would not bear that is refused now.
        let [centers, table] = [Role::Centers, Role::Table].map(|role| manifest.files[role].bytes);
        let panel = Panel::<f32>::bytes_for(manifest.buckets as usize, manifest.vectors.dimensions);
        drop(context.reserve(centers + table + table.max(panel), "opening the store")?);
        let memory = context.reserve(centers + table, "opening the store")?;
        let open = |role| open_file(context, folder, &manifest.files[role]);
        let table = checked(&*open(Role::Table)?, folder, &manifest.files[Role::Table])?;
        let centers = checked(&*open(Role::Centers)?, folder, &manifest.files[Role::Centers])?;
        let file = open(Role::Vectors)?;
        if !file.is_direct() {
            context.progress.note("this file system refuses direct reads: data passes through the page cache");
        }
        let extents = decode_table(&table, &manifest.bucket_facts(), manifest.rows, file.len())
            .map_err(|error| damaged(folder, &manifest.files[Role::Table], &error.to_string()))?;
        let (folder, manifest) = (folder.to_owned(), manifest.clone());
        Ok(Self { folder, manifest, extents, centers, file, _memory: memory })
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
    /// Where `T` is not the coordinate of such elements under such a metric.
    pub(crate) fn read_centers<T: Coordinate>(&self, panel: &mut Panel<T>, first: usize) -> Result<()> {
        let vectors = self.manifest.vectors;
        let bytes = vectors.dimensions * size_of::<T>();
        if self.centers.len() != bytes * self.extents.len() {
            return Err(Error::input(format!("{}: its centers have other coordinates", self.folder.display())));
        }
        for (k, center) in self.centers.chunks_exact(bytes).enumerate() {
            T::read_center(vectors.element, center, panel.row_mut(first + k));
        }
        Ok(())
    }

    /// The file of the buckets.
    pub(crate) fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Checks and takes apart what was read of a bucket.
    ///
    /// # Errors
    /// Where the bytes are not as written.
    pub(crate) fn decode(&self, number: u32, bytes: &[u8]) -> Result<Bucket> {
        let extent = &self.extents[number as usize];
        decode_bucket(number, &self.manifest.bucket_facts(), extent, bytes)
            .map_err(|error| damaged(&self.folder, &self.manifest.files[Role::Vectors], &error.to_string()))
    }
}

/// Opens a file of a store and compares its length.
fn open_file(context: &Context, folder: &Path, facts: &FileFacts) -> Result<Arc<dyn ReadFile>> {
    let file = context.device.open(&facts.path(folder))?;
    if file.len() != facts.bytes {
        return Err(damaged(folder, facts, &format!("has {} bytes instead of {}", file.len(), facts.bytes)));
    }
    Ok(file)
}

/// The bytes of a file that is checked as a whole, and for which there is memory.
fn checked(file: &dyn ReadFile, folder: &Path, facts: &FileFacts) -> Result<Vec<u8>> {
    let contents = read_whole(file)?;
    if facts.matches(&contents) { Ok(contents) } else { Err(damaged(folder, facts, "checksum mismatch")) }
}

fn damaged(folder: &Path, facts: &FileFacts, why: &str) -> Error {
    Error::corrupt(format!("{}: {why}; build the store again", facts.path(folder).display()))
}
