//! An open store: centers and bucket table in memory, buckets read when asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{FileKind, ReadFile};
use adjoin_kernels::Panel;

use super::format::{Bucket, Extent, MANIFEST_FILE, decode_bucket, decode_table};
use super::manifest::{FileFacts, Manifest};
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
}

/// Whether a folder is a store.
///
/// # Errors
/// Where the device does not let us look.
pub fn is_store(context: &Context, folder: &Path) -> Result<bool> {
    Ok(context.device.kind(&folder.join(MANIFEST_FILE))? == Some(FileKind::File))
}

/// The store among the inputs of a join: none where all are sources. It comes alone, and without the options, each given
/// or not, that have a meaning only while one is built.
///
/// # Errors
/// Where it does not, or the device does not let us look.
pub fn sole_store<'a>(
    context: &Context,
    inputs: &'a [String],
    for_builds: &[(&str, bool)],
) -> Result<Option<&'a Path>> {
    for input in inputs {
        if !is_store(context, Path::new(input))? {
            continue;
        }
        if inputs.len() > 1 {
            return Err(Error::option(format!("{input} is a store and joins alone; give one store, or sources only")));
        }
        if let Some((option, _)) = for_builds.iter().find(|(_, given)| *given) {
            return Err(Error::option(format!(
                "{input} is a store, and {option} has a meaning only while one is built; leave it out, or build again \
                 with it"
            )));
        }
        return Ok(Some(Path::new(input)));
    }
    Ok(None)
}

/// The manifest of a store.
pub(super) fn read_manifest(context: &Context, folder: &Path) -> Result<Manifest> {
    let file = context.device.open(&folder.join(MANIFEST_FILE))?;
    if file.len() > Manifest::bytes_max() {
        return Err(Error::corrupt(format!("{}: the manifest is too long to be one", folder.display())));
    }
    Manifest::decode(folder, &read_whole(&*file)?)
}

impl Store {
    /// Opens the store in a folder and checks everything but the buckets.
    ///
    /// # Errors
    /// Where there is none, it is damaged or of a newer version.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        if !is_store(context, folder)? {
            return Err(Error::input(format!("{} is no store; make one with: adjoin build", folder.display())));
        }
        let manifest = read_manifest(context, folder)?;
        let damaged = |facts: &FileFacts, why: &str| {
            Error::corrupt(format!("{}: {why}; build the store again", folder.join(&facts.name).display()))
        };
        let checked = |facts: &FileFacts| -> Result<Vec<u8>> {
            let file = context.device.open(&file_path(folder, facts)?)?;
            if file.len() != facts.bytes {
                return Err(damaged(facts, &format!("has {} bytes, written were {}", file.len(), facts.bytes)));
            }
            let contents = read_whole(&*file)?;
            if facts.matches(&contents) { Ok(contents) } else { Err(damaged(facts, "is not as written (checksum)")) }
        };
        let table = checked(&manifest.files.table)?;
        let centers = checked(&manifest.files.centers)?;
        let facts = &manifest.files.vectors;
        let file = context.device.open(&file_path(folder, facts)?)?;
        if file.len() != facts.bytes {
            return Err(damaged(facts, &format!("has {} bytes, written were {}", file.len(), facts.bytes)));
        }
        if !file.is_direct() {
            context.progress.note("this file system refuses direct reads: data passes through the page cache");
        }
        let extents = decode_table(&table, manifest.vectors, manifest.rows, facts.bytes)
            .map_err(|error| damaged(&manifest.files.table, &error.to_string()))?;
        let store = Self { folder: folder.to_owned(), manifest, extents, centers, file };
        store.check_counts()?;
        Ok(store)
    }

    fn check_counts(&self) -> Result<()> {
        let buckets = self.manifest.buckets as usize;
        let centers_fit = self.centers.len().is_multiple_of(buckets * self.manifest.vectors.dimensions);
        if self.extents.len() == buckets && centers_fit && !self.centers.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("{}: manifest, table and centers disagree; build it again", self.folder.display())))
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
    /// Where their number of bytes is not that of such coordinates.
    pub(crate) fn read_centers<T: Coordinate>(&self, panel: &mut Panel<T>, first: usize) -> Result<()> {
        let vectors = self.manifest.vectors;
        let bytes = vectors.dimensions * size_of::<T>();
        if self.centers.len() != bytes * self.extents.len() {
            return Err(Error::corrupt(format!(
                "{}: centers of a wrong length; build it again",
                self.folder.display()
            )));
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
        decode_bucket(number, self.manifest.vectors, extent, self.manifest.ids, bytes).map_err(|error| {
            let file = self.folder.join(&self.manifest.files.vectors.name);
            Error::corrupt(format!("{}: {error}; build the store again", file.display()))
        })
    }
}

/// A file of the store; a name that would lead out of the folder is refused.
pub(super) fn file_path(folder: &Path, facts: &FileFacts) -> Result<PathBuf> {
    let plain = !facts.name.is_empty() && facts.name != ".." && !facts.name.contains(['/', '\0']);
    if plain {
        return Ok(folder.join(&facts.name));
    }
    Err(Error::corrupt(format!("{}: its manifest names a file outside of it: {:?}", folder.display(), facts.name)))
}

pub(super) fn read_whole(file: &dyn ReadFile) -> Result<Vec<u8>> {
    let mut contents = vec![0; file.len() as usize];
    file.read_at(0, &mut contents)?;
    Ok(contents)
}
