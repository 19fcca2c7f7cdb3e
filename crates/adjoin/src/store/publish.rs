//! Publishes a store or an index atomically. It appears completely or not at all, even if the power fails, an
//! operation fails, or other builds write to the same folder.
//!
//! A build writes into its own folder inside the store's folder. At the end, its files are renamed to names that
//! depend on their contents. Then its manifest is renamed over the existing manifest. At that moment the new store
//! replaces the old one. Files that the current manifest names are never changed or removed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::FileKind;

use super::files::{Files, Role};
use super::format::{MANIFEST_FILE, tag_of};
use super::kind::has_manifest;
use super::manifest::{FolderKind, named_files};
use crate::base::context::Context;
use crate::base::error::{self, Error, Result};
use crate::base::locks::{OwnFolder, WriterLock, is_own_for, is_writer_file};
use crate::base::message::{Argument, message};
use crate::base::output::{Target, check_parent};

/// Purpose of a build's draft folder, used in the name of that folder.
const DRAFTS: &str = "build";
/// Maximum number of attempts to create and lock the folder. Another build that fails may remove the folder before
/// this build has the lock.
const BEGINNINGS_MAX: usize = 10;

/// Refuses a target that exists. Leftovers of killed builds do not count.
///
/// # Errors
/// Fails if a folder of this kind exists and `force` is false, if something else exists, or if the device denies
/// access.
pub(crate) fn check_target(context: &Context, store: &Path, kind: FolderKind, force: bool) -> Result<()> {
    let at = store.display();
    match context.device.kind(store)? {
        None => check_parent(&*context.device, store),
        Some(FileKind::Folder) if has_manifest(context, store)? => check_replaceable(context, store, kind, force),
        Some(FileKind::Folder) => {
            let names = context.device.list(store)?;
            // A folder without a manifest may contain only leftovers of builds. A user's files are never mixed with a
            // store.
            if names.iter().all(|name| name.to_str().is_some_and(is_ours)) {
                return Ok(());
            }
            Err(Error::input(format!("{at} holds files that are not {kind}; choose another folder")))
        }
        Some(_) => Err(Error::input(format!("{at} is a file, but {kind} is a folder; choose another name"))),
    }
}

/// Refuses a folder with a manifest, if it is of another kind or must not be replaced.
///
/// # Errors
/// Fails if the manifest is of another kind, if `force` is false, or if the device denies access.
pub(crate) fn check_replaceable(context: &Context, store: &Path, kind: FolderKind, force: bool) -> Result<()> {
    match FolderKind::of(context, store) {
        Ok(Some(other)) if other != kind => {
            return Err(Error::input(format!("{} is {other}, not {kind}; choose another folder", store.display())));
        }
        // A damaged store may be replaced, too.
        Err(error) if error.kind() != error::ErrorKind::Corrupt => return Err(error),
        _ => {}
    }
    if force {
        return Ok(());
    }
    let at = store.display();
    Err(Error::input(message![format!("{at} is already {kind}; give "), Argument::Force, " to replace it"]))
}

/// Returns whether only a build creates files or folders with this name.
pub(crate) fn is_ours(name: &str) -> bool {
    is_file_of_ours(name) || is_own_for("", name.as_ref()) || is_writer_file(name.as_ref())
}

/// Returns whether only a build creates files with this name.
pub(crate) fn is_file_of_ours(name: &str) -> bool {
    Role::STORE.iter().chain(&Role::INDEX).any(|role| tag_of(name, role.file()).is_some())
}

/// The files of a store or an index before it is published. Dropping the drafts removes the files of a failed build.
pub(crate) struct Drafts<'a> {
    context: &'a Context,
    store: &'a Path,
    kind: FolderKind,
    made_store: bool,
    lock: Option<WriterLock>,
    folder: Option<OwnFolder>,
    /// Files of this build that have their final names, although the manifest does not name them yet.
    placed: Vec<String>,
}

impl<'a> Drafts<'a> {
    /// Creates the folder of the store, if missing, and a folder for the drafts. Called before any work, so that a
    /// build fails early if it must not write there.
    ///
    /// # Errors
    /// Fails if a folder cannot be created or another build is writing to the store.
    pub(crate) fn begin(context: &'a Context, store: &'a Path, kind: FolderKind) -> Result<Self> {
        let device = &context.device;
        let mut drafts = Self { context, store, kind, made_store: false, lock: None, folder: None, placed: Vec::new() };
        drafts.lock = Some(drafts.lock()?);
        if drafts.made_store {
            // Without this sync, a power failure could remove the folder and the store in it, even if the files are
            // durable.
            device.sync_folder(Target::parent_of(store))?;
        }
        drafts.folder = Some(OwnFolder::create(device, store, DRAFTS)?);
        Ok(drafts)
    }

    /// Takes the writer lock of the store's folder, and creates the folder if it is missing.
    fn lock(&mut self) -> Result<WriterLock> {
        let Context { device, .. } = self.context;
        let mut beginnings = 0;
        loop {
            self.made_store = match device.create_folder(self.store) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => false,
                made => made.map(|()| true)?,
            };
            beginnings += 1;
            match WriterLock::take(device, self.store) {
                // Another build created the folder, failed, and removed the folder before this build had the lock.
                Err(_) if beginnings < BEGINNINGS_MAX && device.kind(self.store)?.is_none() => {}
                taken => return taken,
            }
        }
    }

    /// Returns the folder of the drafts.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("the folder exists until the drafts are dropped").path()
    }

    /// Returns the folder for temporary files of the build.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.context.temporary(Some(self.folder()))
    }

    /// Returns the path of the draft with this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a draft and makes it durable.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<()> {
        let mut file = self.context.device.create(&self.path(name))?;
        file.append(contents)?;
        Ok(file.sync()?)
    }

    /// Publishes the drafts under the names that `files` gives them, then removes the files of the old generation.
    /// Writes the drafts in `contents` first. The drafts of all other roles are already written and durable.
    ///
    /// # Errors
    /// Fails if a store exists by now and `force` is false, or if a file cannot be written. The old store is then
    /// still valid. If only the removal of old files fails, the new store is valid.
    pub(crate) fn publish(
        mut self,
        files: &Files,
        manifest: &[u8],
        contents: &[(Role, &[u8])],
        force: bool,
    ) -> Result<()> {
        let device = &self.context.device;
        for (role, contents) in contents {
            self.write(role.file(), contents)?;
        }
        // The manifest is written as a draft first, because only the atomic rename may change the current manifest.
        self.write(MANIFEST_FILE, manifest)?;
        for (role, facts) in self.kind.roles().iter().filter_map(|&role| Some((role, files.get(role)?))) {
            // A file with this name may exist already, from the old store or another build. It has the same contents
            // unless it is damaged, so replacing it is harmless.
            self.placed.push(facts.name.clone());
            device.rename(&self.path(role.file()), &facts.path(self.store))?;
        }
        device.sync_folder(self.store)?;
        // Another build may have published here since the first check.
        let old = match has_manifest(self.context, self.store)? {
            true => {
                check_replaceable(self.context, self.store, self.kind, force)?;
                named_files(self.context, self.store).or_else(|error| match error.kind() {
                    // A damaged store may be replaced, too. Its files are left in place.
                    error::ErrorKind::Corrupt | error::ErrorKind::Input => Ok(Vec::new()),
                    _ => Err(error),
                })?
            }
            false => Vec::new(),
        };
        device.rename(&self.path(MANIFEST_FILE), &self.store.join(MANIFEST_FILE))?;
        // The store is published now, so dropping the drafts must not remove its folder.
        self.made_store = false;
        let placed = std::mem::take(&mut self.placed);
        drop(self.folder.take());
        // Sync before files of the old store are removed. Until this sync, a power failure may restore the old
        // manifest.
        device.sync_folder(self.store)?;
        self.remove_unnamed(self.removable(old.into_iter().chain(placed).collect())?)?;
        self.lock.take().map_or(Ok(()), WriterLock::release)
    }

    /// Removes those of `files` that the current manifest does not name. It may be the manifest of another build.
    fn remove_unnamed(&self, files: Vec<String>) -> Result<()> {
        let named =
            if has_manifest(self.context, self.store)? { named_files(self.context, self.store)? } else { Vec::new() };
        for name in files.into_iter().filter(|name| !named.contains(name)) {
            let path = self.store.join(name);
            if self.context.device.kind(&path)? == Some(FileKind::File) {
                self.context.device.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Returns whether the folder has drafts of another build, which is in progress or was killed.
    fn is_shared(&self) -> Result<bool> {
        Ok(!self.context.device.list_only(self.store, &|name| is_own_for(DRAFTS, name))?.is_empty())
    }

    /// Returns the files to remove unless the current manifest names them: the `known` files of the old store and of
    /// this build. If no other build can be in progress, leftovers of killed builds are included.
    fn removable(&self, mut known: Vec<String>) -> Result<Vec<String>> {
        // Another build may already have renamed a file to its final name, but not its manifest.
        if !self.lock.as_ref().is_some_and(WriterLock::is_exclusive) || self.is_shared()? {
            return Ok(known);
        }
        let names = self.context.device.list_only(self.store, &|name| name.to_str().is_some_and(is_file_of_ours))?;
        known.extend(names.into_iter().filter_map(|name| name.into_string().ok()));
        Ok(known)
    }

    /// Removes files that have their final names although no manifest names them. If another build may be in progress,
    /// it may depend on files with the same names. Then they are left in place, which is harmless.
    fn remove_placed(&mut self) -> Result<()> {
        let placed = std::mem::take(&mut self.placed);
        if placed.is_empty() || self.is_shared()? {
            return Ok(());
        }
        self.remove_unnamed(placed)
    }
}

impl Drop for Drafts<'_> {
    fn drop(&mut self) {
        // Errors are ignored here, since the error that led here is reported.
        drop(self.folder.take());
        let _ = self.remove_placed();
        drop(self.lock.take());
        if self.made_store {
            let _ = self.context.device.remove_empty_folder(self.store); // fails if another build works in it
        }
    }
}
