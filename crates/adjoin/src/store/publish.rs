//! What makes a store or an index appear whole or not at all, though the power may go at any moment, any operation may fail, and
//! others may build into the same folder at the same time.
//!
//! A build writes into a folder of its own inside the store's. At the end its files get their names, which change with
//! their contents, and then the manifest is renamed over the one that is there: that is the moment at which the new
//! store takes the place of the old. Nothing that a manifest in force names is ever written to or removed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::FileKind;

use super::files::{Files, Role};
use super::format::{MANIFEST_FILE, tag_of};
use super::kind::{has_manifest, kind_of};
use super::manifest::{Envelope, Kind, read_manifest_bytes};
use crate::context::Context;
use crate::error::{self, Error, Result};
use crate::locks::{OwnFolder, WriterLock, is_own_for, is_writer_file};
use crate::message::{Argument, message};
use crate::output::{check_parent, parent};

/// What the folder of a build's drafts is for, which lies within that of the store.
const DRAFTS: &str = "build";
/// How often a build begins anew whose folder is removed, by another build that fails, before it has its lock.
const BEGINNINGS_MAX: usize = 10;

/// Refuses a target that is taken. What builds that were killed have left is no obstacle.
///
/// # Errors
/// Where there is one of this kind and `force` is not given, or something else, or the device does not let us look.
pub(crate) fn check_target(context: &Context, (store, kind): (&Path, Kind), force: bool) -> Result<()> {
    let at = store.display();
    match context.device.kind(store)? {
        None => check_parent(&*context.device, store),
        Some(FileKind::Folder) if has_manifest(context, store)? => check_replaceable(context, (store, kind), force),
        Some(FileKind::Folder) => {
            let names = context.device.list(store)?;
            if names.iter().all(|name| name.to_str().is_some_and(is_ours)) {
                return Ok(());
            }
            Err(Error::input(format!("{at} holds files that are not {kind}; choose another folder")))
        }
        Some(_) => Err(Error::input(format!("{at} is a file; {kind} is a folder: choose another name"))),
    }
}

/// Refuses a folder with a manifest that is not to be replaced, or is of another kind.
fn check_replaceable(context: &Context, (store, kind): (&Path, Kind), force: bool) -> Result<()> {
    match kind_of(context, store) {
        Ok(Some(other)) if other != kind => {
            return Err(Error::input(format!("{} is {other}, not {kind}; choose another folder", store.display())));
        }
        // A damaged store may be replaced too.
        Err(error) if error.kind() != error::ErrorKind::Corrupt => return Err(error),
        _ => {}
    }
    if force {
        return Ok(());
    }
    let at = store.display();
    Err(Error::input(message![format!("{at} is {kind} already; give "), Argument::Force, " to replace it"]))
}

/// Whether only a build gives such a name.
pub(crate) fn is_ours(name: &str) -> bool {
    is_file_of_ours(name) || is_own_for("", name.as_ref()) || is_writer_file(name.as_ref())
}

/// Whether only a build gives such a name to a file.
fn is_file_of_ours(name: &str) -> bool {
    Role::STORE.iter().chain(&Role::INDEX).any(|role| tag_of(name, role.file()).is_some())
}

/// The files of a store or an index before there is one; what a build that fails has left is removed.
pub(crate) struct Drafts<'a> {
    context: &'a Context,
    store: &'a Path,
    kind: Kind,
    made_store: bool,
    lock: Option<WriterLock>,
    folder: Option<OwnFolder>,
    /// Files that have their names, while no manifest of ours names them.
    placed: Vec<String>,
}

impl<'a> Drafts<'a> {
    /// Makes the folder of the store, unless it is there, and one for the drafts: before any work, as the disk may
    /// refuse.
    ///
    /// # Errors
    /// Where it does, or another build writes there.
    pub(crate) fn begin(context: &'a Context, (store, kind): (&'a Path, Kind)) -> Result<Self> {
        let device = &context.device;
        let mut drafts = Self { context, store, kind, made_store: false, lock: None, folder: None, placed: Vec::new() };
        drafts.lock = Some(drafts.lock()?);
        if drafts.made_store {
            // Else the folder could be gone after a loss of power, and the store in it, however durable.
            device.sync_folder(parent(store))?;
        }
        drafts.folder = Some(OwnFolder::create(device, store, DRAFTS)?);
        Ok(drafts)
    }

    /// Takes the lock of who writes into the folder of the store, which is made where it is missing.
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
                Err(_) if beginnings < BEGINNINGS_MAX && device.kind(self.store)?.is_none() => {}
                taken => return taken,
            }
        }
    }

    /// The folder of the drafts.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("it is there until the drafts are dropped").path()
    }

    /// Where a draft is to be written.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a draft and makes it durable.
    ///
    /// # Errors
    /// Where the device refuses it.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<()> {
        let mut file = self.context.device.create(&self.path(name))?;
        file.append(contents)?;
        Ok(file.sync()?)
    }

    /// Makes the drafts appear under the names that the manifest gives them: those of these contents, and of the other
    /// roles, which are there and durable. The files of what this replaces are removed.
    ///
    /// # Errors
    /// Where there is a store by now and `force` is not given, or the disk refuses. The old store is then in force, or,
    /// where only the removal of its files fails, the new one.
    pub(crate) fn publish(
        mut self,
        (files, manifest): (&Files, &[u8]),
        contents: &[(Role, &[u8])],
        force: bool,
    ) -> Result<()> {
        let device = &self.context.device;
        for (role, contents) in contents {
            self.write(role.file(), contents)?;
        }
        self.write(MANIFEST_FILE, manifest)?;
        for (role, facts) in self.kind.roles().iter().filter_map(|&role| Some((role, files.get(role)?))) {
            // A file of that name may be there, of the old store or of another build: with the same contents, unless it
            // was damaged, so taking its place does no harm.
            self.placed.push(facts.name.clone());
            device.rename(&self.path(role.file()), &facts.path(self.store))?;
        }
        device.sync_folder(self.store)?;
        // Another build may have published here since the first look.
        let old = match has_manifest(self.context, self.store)? {
            true => {
                check_replaceable(self.context, (self.store, self.kind), force)?;
                self.named().or_else(|error| match error.kind() {
                    // A damaged store may be replaced too; its files are then left where they are.
                    error::ErrorKind::Corrupt | error::ErrorKind::Input => Ok(Vec::new()),
                    _ => Err(error),
                })?
            }
            false => Vec::new(),
        };
        device.rename(&self.path(MANIFEST_FILE), &self.store.join(MANIFEST_FILE))?;
        self.made_store = false;
        let placed = std::mem::take(&mut self.placed);
        drop(self.folder.take());
        // Before anything of the old store goes: until here, a loss of power may bring it back.
        device.sync_folder(self.store)?;
        self.remove_unnamed(self.removable(old.into_iter().chain(placed).collect())?)?;
        self.lock.take().map_or(Ok(()), WriterLock::release)
    }

    /// Names of the files of the manifest in force, those of roles that only a later version knows as well.
    fn named(&self) -> Result<Vec<String>> {
        let bytes = read_manifest_bytes(self.context, self.store)?;
        let files = Envelope::parse(&bytes).and_then(|envelope| envelope.files());
        let files = files.map_err(|unreadable| unreadable.in_folder(self.store, self.kind))?;
        Ok(files.iter().map(|(_, facts)| facts.name.clone()).collect())
    }

    /// Removes those files that the manifest in force, ours or meanwhile another's, does not name.
    fn remove_unnamed(&self, files: Vec<String>) -> Result<()> {
        let named = if has_manifest(self.context, self.store)? { self.named()? } else { Vec::new() };
        for name in files.into_iter().filter(|name| !named.contains(name)) {
            let path = self.store.join(name);
            if self.context.device.kind(&path)? == Some(FileKind::File) {
                self.context.device.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Whether another build is under way here, or was killed.
    fn is_shared(&self) -> Result<bool> {
        Ok(!self.context.device.list_only(self.store, &|name| is_own_for(DRAFTS, name))?.is_empty())
    }

    /// Files that can go unless the manifest in force names them: those of the old store and of this build, and, where
    /// surely no other build is under way that is going to name them, also what killed ones left.
    fn removable(&self, mut known: Vec<String>) -> Result<Vec<String>> {
        if !self.lock.as_ref().is_some_and(WriterLock::is_exclusive) || self.is_shared()? {
            return Ok(known);
        }
        let names = self.context.device.list_only(self.store, &|name| name.to_str().is_some_and(is_file_of_ours))?;
        known.extend(names.into_iter().filter_map(|name| name.into_string().ok()));
        Ok(known)
    }

    /// Removes what got its name though no manifest came to name it. Another build of the same vectors may be about to
    /// publish files of the same names, and may count on them: then they stay, harmless.
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
        // Best effort: the error that led here is the one to report.
        drop(self.folder.take());
        let _ = self.remove_placed();
        drop(self.lock.take());
        if self.made_store {
            let _ = self.context.device.remove_empty_folder(self.store); // another build may be at work in it
        }
    }
}
