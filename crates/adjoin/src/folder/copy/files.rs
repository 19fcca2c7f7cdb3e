//! Opens the files of a folder that is copied, and chooses how each file is verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::ReadFile;

use super::check::{PartsCheck, PassingCheck};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::{WRITER_FILE, WriterLock};
use crate::collection::{CollectionFiles, CollectionManifest, PLACES_BLOCK_BYTES};
use crate::index::IndexManifest;
use crate::store::format::{MANIFEST_FILE, checksum, hexadecimal};
use crate::store::{
    BucketsCheck, FileFacts, FolderKind, Role, StoreManifest, find_manifest, is_other_manifest, read_manifest_bytes,
};

/// Method of verifying the bytes of a file.
pub(super) enum FileCheck {
    /// Checksum of all bytes, in hexadecimal digits.
    Whole(String),
    /// Checksums of parts of this length.
    Parts(usize),
    /// Checksums of the buckets of this store.
    Buckets(Box<StoreManifest>),
    /// No checksum. The bytes were verified before, or only a later version can verify them.
    Length,
}

/// A file of the folder.
pub(super) struct CopiedFile {
    /// Path within the folder.
    pub(super) name: PathBuf,
    pub(super) file: Arc<dyn ReadFile>,
    check: FileCheck,
}

/// All files of one generation of a folder, except its manifest.
pub(super) struct CopiedFiles {
    pub(super) kind: FolderKind,
    /// Bytes of the manifest.
    pub(super) manifest: Vec<u8>,
    pub(super) files: Vec<CopiedFile>,
    /// Files of a collection. `None` after their log was verified.
    log: Option<CollectionFiles>,
    /// Lock of a collection on this machine, if it has a lock file. It is held while the collection is read.
    _lock: Option<WriterLock>,
}

impl CopiedFiles {
    /// Opens the files of a folder.
    ///
    /// # Errors
    /// If there is no folder with a manifest, if it is damaged, or if it is a collection that is open for writing.
    pub(super) fn open(context: &Context, folder: &Path) -> Result<Self> {
        loop {
            let (kind, manifest) = find_manifest(context, folder)?.ok_or_else(|| {
                let at = folder.display();
                Error::input(format!("{at} is not a store, an index or a collection; name one to copy"))
            })?;
            let lock = if kind == FolderKind::Collection { lock(context, folder)? } else { None };
            let opened = Opening { context, folder }.files(kind, &manifest);
            // If another generation was published in the meantime, files of this one may have been removed.
            if opened.is_err() && is_other_manifest(context, folder, &manifest) {
                context.cancel.check()?;
                continue;
            }
            let (files, log) = opened?;
            return Ok(Self { kind, manifest, files, log, _lock: lock });
        }
    }

    /// Verifies the log of a collection, whose files have no checksums of all bytes. Returns a context for the copy: if
    /// the budget is too small, the error names a budget that suffices for this check and for `bytes` bytes after it.
    ///
    /// # Errors
    /// If the log is damaged, or if memory does not suffice.
    pub(super) fn check_log(&mut self, context: &Context, bytes: u64) -> Result<Context> {
        let Some(log) = self.log.take() else { return Ok(context.clone()) };
        let context = context.naming_at_least(bytes.max(log.log_bytes()?));
        log.check_log(&context)?;
        Ok(context)
    }

    /// Returns the total length of all files except the manifest.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.len()).sum()
    }

    /// Returns the length of the longest file, including the manifest.
    pub(super) fn len_max(&self) -> u64 {
        self.files.iter().map(|file| file.file.len()).max().unwrap_or(0).max(self.manifest.len() as u64)
    }

    /// Returns the bytes of memory that the check of any file needs.
    pub(super) fn checking_bytes(&self) -> u64 {
        let of_file = |file: &CopiedFile| match &file.check {
            FileCheck::Whole(_) | FileCheck::Length => 0,
            FileCheck::Parts(part_bytes) => *part_bytes as u64,
            FileCheck::Buckets(manifest) => BucketsCheck::memory_bytes(manifest),
        };
        self.files.iter().map(of_file).max().unwrap_or(0)
    }

    /// Starts the check of one of the files.
    ///
    /// # Errors
    /// If the bucket table is damaged.
    pub(super) fn check_of(&self, file: &CopiedFile) -> Result<PassingCheck> {
        Ok(match &file.check {
            FileCheck::Whole(digits) => PassingCheck::Whole(digits.clone()),
            FileCheck::Parts(part_bytes) => PassingCheck::Parts(PartsCheck::new(*part_bytes)),
            FileCheck::Length => PassingCheck::Length,
            FileCheck::Buckets(manifest) => {
                let table = Path::new(&manifest.files[Role::Table].name);
                let table = self.files.iter().find(|file| file.name == table);
                let table = table.expect("a store has a bucket table");
                PassingCheck::Buckets(Box::new(BucketsCheck::new(manifest, &*table.file)?))
            }
        })
    }
}

/// Takes the lock of a collection on this machine, if it has a lock file.
fn lock(context: &Context, folder: &Path) -> Result<Option<WriterLock>> {
    if adjoin_device::Location::is_remote(folder) || context.device.kind(&folder.join(WRITER_FILE))?.is_none() {
        return Ok(None);
    }
    WriterLock::take(&context.device, folder).map(Some).map_err(|_| {
        let at = folder.display();
        Error::input(format!(
            "{at} is open for writing; close it, or copy it with: adjoin collection backup, and then copy the backup"
        ))
    })
}

struct Opening<'a> {
    context: &'a Context,
    folder: &'a Path,
}

impl Opening<'_> {
    fn files(&self, kind: FolderKind, manifest: &[u8]) -> Result<(Vec<CopiedFile>, Option<CollectionFiles>)> {
        let files = match kind {
            FolderKind::Store => self.store(&StoreManifest::decode(self.folder, manifest)?),
            FolderKind::Index => self.index(Path::new(""), &IndexManifest::decode(self.folder, manifest)?),
            FolderKind::Collection => {
                let manifest = CollectionManifest::decode(self.folder, manifest)?;
                let named = CollectionFiles::of(self.context, self.folder, &manifest)?;
                return Ok((self.collection(&named)?, Some(named)));
            }
        };
        Ok((files?, None))
    }

    fn store(&self, manifest: &StoreManifest) -> Result<Vec<CopiedFile>> {
        let check = |role: &str, facts: &FileFacts| match &facts.xxh3 {
            Some(digits) => FileCheck::Whole(digits.clone()),
            None if role == Role::Vectors.name() => FileCheck::Buckets(Box::new(manifest.clone())),
            None => FileCheck::Length,
        };
        let files = manifest.files.iter();
        files.map(|(role, facts)| self.named(Path::new(""), facts, check(role, facts))).collect()
    }

    /// Opens the files of an index in the folder `within` the copied folder.
    fn index(&self, within: &Path, facts: &IndexManifest) -> Result<Vec<CopiedFile>> {
        let check = |role: &str, of_file: &FileFacts| match (&of_file.xxh3, facts.part_bytes(role)) {
            (Some(digits), _) => FileCheck::Whole(digits.clone()),
            (None, Some(part_bytes)) => FileCheck::Parts(part_bytes),
            (None, None) => FileCheck::Length,
        };
        facts.files.iter().map(|(role, of_file)| self.named(within, of_file, check(role, of_file))).collect()
    }

    fn collection(&self, named: &CollectionFiles) -> Result<Vec<CopiedFile>> {
        let mut files = Vec::new();
        if let Some(index) = &named.index {
            let at = self.folder.join(index);
            let bytes = read_manifest_bytes(self.context, &at)?;
            files = self.index(index, &IndexManifest::decode(&at, &bytes)?)?;
            let of_manifest = FileCheck::Whole(hexadecimal(checksum(&bytes)));
            files.push(self.open(index.join(MANIFEST_FILE), of_manifest)?);
        }
        if let Some(places) = &named.places {
            files.push(self.open(places.clone(), FileCheck::Parts(PLACES_BLOCK_BYTES))?);
        }
        let log = named.log.iter().cloned().map(|(name, file)| CopiedFile { name, file, check: FileCheck::Length });
        files.extend(log);
        Ok(files)
    }

    /// Opens a file that a manifest names, and verifies its length.
    fn named(&self, within: &Path, facts: &FileFacts, check: FileCheck) -> Result<CopiedFile> {
        let opened = self.open(within.join(&facts.name), check)?;
        let len = opened.file.len();
        if len == facts.bytes {
            return Ok(opened);
        }
        let (at, written) = (self.folder.join(&opened.name), facts.bytes);
        Err(Error::corrupt(format!(
            "{} has {len} bytes instead of {written}, so no copy was made; check for other damage with: adjoin verify",
            at.display()
        )))
    }

    fn open(&self, name: PathBuf, check: FileCheck) -> Result<CopiedFile> {
        let file = self.context.device.open(&self.folder.join(&name))?;
        Ok(CopiedFile { name, file, check })
    }
}
