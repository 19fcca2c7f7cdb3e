//! Writes a copy to its target, which is on a disk or in an object store.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::{FileKind, Location, NewObject, WRITE_BUFFER_BYTES, WriteFile};

use super::files::CopiedFiles;
use crate::base::context::Context;
use crate::base::error::{self, Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::options::format_bytes;
use crate::base::output::Target;
use crate::collection::is_of_collection;
use crate::store::format::MANIFEST_FILE;
use crate::store::{
    FolderKind, ReplacedFolder, check_replaceable, check_target, has_manifest, is_file_of_ours, named_files,
    read_manifest_bytes,
};

/// Name of the copy in its draft folder.
const COPY: &str = "copy";
/// Name of this operation in draft folders and messages.
const BY: &str = "copy";
/// Bytes of memory beyond the least. More of them do not make an upload faster.
const SPARE_BYTES: u64 = 64 << 20;

/// Target of a copy.
pub(super) struct CopyTarget<'a> {
    context: &'a Context,
    path: &'a Path,
    kind: FolderKind,
    force: bool,
    is_remote: bool,
}

/// A copy that is being written.
pub(super) enum CopyDraft<'a> {
    /// In a draft folder next to the target.
    Local(&'a CopyTarget<'a>, OwnFolder),
    /// At the target, but without a manifest, or next to the files of the folder that it replaces.
    Remote {
        target: &'a CopyTarget<'a>,
        /// Files of the folder that is replaced.
        replaced: Vec<String>,
        /// Names of files and folders at the top level of the copy.
        names: BTreeSet<String>,
    },
}

impl<'a> CopyTarget<'a> {
    pub(super) fn new(context: &'a Context, path: &'a Path, kind: FolderKind, force: bool) -> Result<Self> {
        let target = Self { context, path, kind, force, is_remote: Location::is_remote(path) };
        if !target.is_remote {
            // If a copy was killed, the folder that it would have replaced may exist only under a temporary name.
            target.replaced().settle(context)?;
        }
        Ok(target)
    }

    fn replaced(&self) -> ReplacedFolder<'_> {
        ReplacedFolder { target: self.path, kind: self.kind, by: BY }
    }

    /// Returns whether the target is in an object store.
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Returns the least bytes of memory for writing a file of `len` bytes.
    pub(super) fn writing_bytes(&self, len: u64) -> u64 {
        if self.is_remote { self.context.device.object_writing_bytes(len) } else { WRITE_BUFFER_BYTES as u64 }
    }

    /// Returns the bytes of memory, in addition to the least, that make writing a file of `len` bytes faster.
    pub(super) fn spare_bytes(&self, len: u64) -> u64 {
        if self.is_remote { SPARE_BYTES.min(len) } else { 0 }
    }

    /// Checks that nothing exists at the target that must not be replaced, and that a disk has enough space.
    ///
    /// # Errors
    /// If one of these checks fails.
    pub(super) fn check(&self, files: &CopiedFiles) -> Result<()> {
        let (at, device) = (self.path.display(), &self.context.device);
        if self.is_remote {
            return self.check_objects();
        }
        if self.path.file_name().is_none() {
            return Err(Error::option(format!("{at} is not the name of a folder; name one for the copy")));
        }
        check_target(self.context, self.path, self.kind, self.force)?;
        let (bytes, free) = (files.bytes(), device.free_bytes(Target::parent_of(self.path))?);
        if bytes > free {
            let [bytes, free] = [bytes, free].map(format_bytes);
            return Err(Error::device(format!(
                "{at} needs {bytes}, but its disk has {free} free; choose a folder on another disk"
            )));
        }
        Ok(())
    }

    /// Checks that nothing exists at a target in an object store that must not be replaced.
    fn check_objects(&self) -> Result<()> {
        let (at, kind) = (self.path.display(), self.kind);
        let Location::Remote(name) = Location::of(self.path) else { return Ok(()) };
        if name.is_web() || name.key.is_empty() {
            return Err(Error::option(format!("{at} is not the name of a folder in a bucket; name one for the copy")));
        }
        match self.context.device.kind(self.path)? {
            None => Ok(()),
            Some(FileKind::Folder) if has_manifest(self.context, self.path)? => {
                check_replaceable(self.context, self.path, kind, self.force)?;
                if kind == FolderKind::Collection {
                    // Both logs would be in one folder, and would be read as one log.
                    return Err(Error::input(format!(
                        "{at} is a collection, which cannot be replaced atomically in an object store; remove it, or \
                         choose another name"
                    )));
                }
                Ok(())
            }
            Some(FileKind::Folder) => {
                let names = self.context.device.list(self.path)?;
                if names.iter().all(|name| self.is_of_kind(name)) {
                    return Ok(());
                }
                Err(Error::input(format!("{at} holds files that are not {kind}; choose another folder")))
            }
            Some(_) => Err(Error::input(format!("{at} is a file, but {kind} is a folder; choose another name"))),
        }
    }

    /// Returns whether a name is one that only folders of this kind use. Without a manifest, such a file is a leftover
    /// of a copy.
    fn is_of_kind(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| match self.kind {
            FolderKind::Collection => is_of_collection(name),
            FolderKind::Store | FolderKind::Index => is_file_of_ours(name),
        })
    }

    /// Creates the draft folder of a copy on a disk, or prepares the target in an object store.
    ///
    /// # Errors
    /// If the disk or the object store fails.
    pub(super) fn begin(&'a self, files: &CopiedFiles) -> Result<CopyDraft<'a>> {
        let device = &self.context.device;
        let folders: BTreeSet<&Path> = files.files.iter().filter_map(|file| file.name.parent()).collect();
        if !self.is_remote {
            let drafts = OwnFolder::create(device, Target::parent_of(self.path), BY)?;
            let copy = drafts.path().join(COPY);
            device.create_folder(&copy)?;
            let within = folders.into_iter().filter(|folder| !folder.as_os_str().is_empty());
            within.map(|folder| copy.join(folder)).try_for_each(|folder| device.create_folder(&folder))?;
            return Ok(CopyDraft::Local(self, drafts));
        }
        let top = |name: &PathBuf| name.iter().next().and_then(OsStr::to_str).map(str::to_owned);
        let names: BTreeSet<String> = files.files.iter().filter_map(|file| top(&file.name)).collect();
        let replaced = match has_manifest(self.context, self.path)? {
            true => named_files(self.context, self.path).or_else(|error| match error.kind() {
                // A damaged folder may be replaced too. Its files are then not removed.
                error::ErrorKind::Corrupt | error::ErrorKind::Input => Ok(Vec::new()),
                _ => Err(error),
            })?,
            false => {
                self.remove_leftovers(&names)?;
                Vec::new()
            }
        };
        Ok(CopyDraft::Remote { target: self, replaced, names })
    }

    /// Removes objects of earlier copies that have no manifest. Files of another log would be read as part of this
    /// copy's log.
    fn remove_leftovers(&self, names: &BTreeSet<String>) -> Result<()> {
        let device = &self.context.device;
        if device.kind(self.path)?.is_none() {
            return Ok(());
        }
        let is_left = |name: &OsStr| self.is_of_kind(name) && !name.to_str().is_some_and(|name| names.contains(name));
        for name in device.list_only(self.path, &is_left)? {
            self.context.cancel.check()?;
            let left = self.path.join(name);
            match device.kind(&left)? {
                Some(FileKind::Folder) => {
                    device.list_below(&left)?.iter().try_for_each(|object| device.remove(object))?;
                }
                _ => device.remove(&left)?,
            }
        }
        Ok(())
    }

    /// Creates a file of the copy. Writing it may use `memory_bytes` bytes of memory.
    ///
    /// # Errors
    /// If the disk or the object store fails.
    pub(super) fn create(&self, path: &Path, len: u64, memory_bytes: u64) -> Result<Box<dyn WriteFile>> {
        let device = &self.context.device;
        Ok(match self.is_remote {
            true => device.create_object(path, NewObject { len, memory_bytes, replace: true })?,
            false => device.create(path)?,
        })
    }

    /// Reports the objects that a failed copy leaves without a manifest. They are not removed, since another copy to
    /// this target may need them.
    pub(super) fn note_leftovers(&self, bytes: u64) {
        if self.is_remote && bytes > 0 {
            let (at, bytes) = (self.path.display(), format_bytes(bytes));
            self.context.progress.note(&format!(
                "{at}: {bytes} are left without a manifest, so they are never read; the next copy replaces them"
            ));
        }
    }

    /// Writes the manifest, which publishes the copy.
    fn put_manifest(&self, manifest: &[u8]) -> Result<()> {
        let (len, path) = (manifest.len() as u64, self.path.join(MANIFEST_FILE));
        let memory_bytes = self.context.device.object_writing_bytes(len);
        let object = NewObject { len, memory_bytes, replace: self.force };
        let mut file = self.context.device.create_object(&path, object)?;
        file.append(manifest)?;
        match file.sync() {
            // Another copy of this folder was faster, or the answer to an earlier request was lost.
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {
                if read_manifest_bytes(self.context, self.path)? == manifest {
                    return Ok(());
                }
                let (at, kind) = (self.path.display(), self.kind);
                Err(Error::input(message![format!("{at} has become {kind}; give "), Argument::Force, " to replace it"]))
            }
            synced => Ok(synced?),
        }
    }
}

impl CopyDraft<'_> {
    /// Returns the folder in which the files are written.
    pub(super) fn folder(&self) -> PathBuf {
        match self {
            Self::Local(_, drafts) => drafts.path().join(COPY),
            Self::Remote { target, .. } => target.path.to_owned(),
        }
    }

    /// Publishes the copy, after all of its files are durable.
    ///
    /// # Errors
    /// If another folder was written to the target in the meantime, or if the disk or the object store fails.
    pub(super) fn publish(self, manifest: &[u8]) -> Result<()> {
        let folder = self.folder();
        match self {
            Self::Local(target, drafts) => {
                let (context, device) = (target.context, &target.context.device);
                let mut file = device.create(&folder.join(MANIFEST_FILE))?;
                file.append(manifest)?;
                file.sync()?;
                drop(file);
                for name in device.list(&folder)? {
                    let path = folder.join(name);
                    if device.kind(&path)? == Some(FileKind::Folder) {
                        device.sync_folder(&path)?;
                    }
                }
                device.sync_folder(&folder)?;
                target.replaced().publish(context, drafts, COPY, target.force)
            }
            Self::Remote { target, replaced, names } => {
                target.put_manifest(manifest)?;
                let old = replaced.into_iter().filter(|name| !names.contains(name));
                old.map(|name| target.path.join(name)).try_for_each(|old| Ok(target.context.device.remove(&old)?))
            }
        }
    }
}
