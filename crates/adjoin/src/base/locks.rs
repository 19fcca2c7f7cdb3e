//! Locks that distinguish a running process from a killed one: a process holds its lock as long as it lives. Process
//! ids do not suffice, since they are reused, and processes of two containers may have equal ids.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Creator, Device, DeviceError, FileKind, HeldLock, Lock};

use crate::base::error::{Error, Result};

/// Prefix and suffix of the names of own folders.
const START: &str = ".adjoin-";
const END: &str = ".partial";
/// Suffix while the folder is being removed.
const END_REMOVED: &str = ".removed";
/// Lock file in an own folder, held by its owner.
pub(crate) const OWNER_FILE: &str = "owner.lock";
/// Lock file in any other folder, held by its writer.
pub(crate) const WRITER_FILE: &str = "writer.lock";

/// Refuses the use of `what` in a forked child of the process that created it, since threads and the right to write are
/// not inherited.
///
/// # Errors
/// In any process other than the creator.
pub(crate) fn check_opened_here(creator: Creator, what: impl Display) -> Result<()> {
    if creator.is_this_process() {
        return Ok(());
    }
    let (creator, child) = (creator.id(), std::process::id());
    Err(Error::option(format!(
        "{what} was opened by process {creator}, and cannot be used in its forked child {child}; open it in the child, or \
         start the child with the method spawn"
    )))
}

/// A folder owned exclusively by one run; removed with its contents when dropped.
///
/// Its name is `.adjoin-WHAT-PROCESS-NUMBER.partial`, and it contains a file whose lock the owner holds. Creating one
/// removes the leftovers of killed runs next to it: folders with such names whose locks are free. On a file system
/// without locks, nothing is removed.
pub struct OwnFolder {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    /// `None` if the file system has no locks.
    owned: Option<HeldLock>,
}

impl OwnFolder {
    /// Creates a folder in `parent`, for a purpose that becomes part of its name.
    ///
    /// # Errors
    /// If `parent` is missing, or a file cannot be written.
    pub fn create(device: &Arc<dyn Device>, parent: &Path, purpose: &str) -> Result<Self> {
        // Several own folders of one process may exist in one place.
        for attempt in 0.. {
            let path = parent.join(format!("{START}{purpose}-{}-{attempt}{END}", std::process::id()));
            match device.create_folder(&path) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // The folder is ours once we hold its lock. Until then, another run may consider it abandoned, and remove
            // it.
            let owned = match device.lock(&path.join(OWNER_FILE)) {
                Ok(Lock::Ours(lock)) => Some(lock),
                Ok(Lock::Unsupported) => None,
                // Another run took the folder for an abandoned one, and is about to remove it.
                Ok(Lock::Others(_)) => continue,
                Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = device.remove_empty_folder(&path); // best effort: the earlier error is the one to report
                    return Err(error.into());
                }
            };
            let folder = Self { device: device.clone(), path, creator: Creator::this_process(), owned };
            // Without locks, a living run cannot be distinguished from a killed one, so nothing is removed.
            if folder.owned.is_some() {
                remove_abandoned(&**device, parent, &folder.path)?;
            }
            return Ok(folder);
        }
        unreachable!("one of all numbers is free")
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // In a forked child, the folder still belongs to the parent.
        if self.creator.is_this_process() {
            let _ = remove(&*self.device, &self.path); // at worst it is left over, and nothing depends on it
        }
    }
}

/// Removes a folder whose lock we hold. It is renamed first: an interrupted removal may leave files without the lock,
/// and then no run could know that the folder is abandoned.
fn remove(device: &dyn Device, path: &Path) -> std::result::Result<(), DeviceError> {
    let removed = path.with_extension(&END_REMOVED[1..]);
    match device.rename(path, &removed) {
        Ok(()) => device.remove_folder(&removed),
        Err(_) => device.remove_folder(path),
    }
}

/// Removes the abandoned own folders in `parent`, except `ours`. Folders that cannot be removed are ignored.
fn remove_abandoned(device: &dyn Device, parent: &Path, ours: &Path) -> Result<()> {
    let is_another = |name: &OsStr| is_own_for("", name) && ours.file_name() != Some(name);
    let names = match device.list_only(parent, &is_another) {
        // The folder may allow files but no listing. Leftovers of others are then kept, which is harmless.
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => return Ok(()),
        listed => listed?,
    };
    for path in names.into_iter().map(|name| parent.join(name)) {
        // Renamed for removal already, so no run uses it.
        if path.as_os_str().as_encoded_bytes().ends_with(END_REMOVED.as_bytes()) {
            let _ = device.remove_folder(&path);
            continue;
        }
        // A folder without a lock file is removed only if it is empty, since its owner may run on a system without
        // locks. A run that has just created it and has no lock yet creates another one.
        let owner = path.join(OWNER_FILE);
        if device.remove_empty_folder(&path).is_err()
            && matches!(device.kind(&owner), Ok(Some(FileKind::File)))
            && let Ok(Lock::Ours(_held)) = device.lock(&owner)
        {
            let _ = remove(device, &path);
        }
    }
    Ok(())
}

/// Returns whether only [`OwnFolder`] creates such names, for a purpose that begins with `purpose`.
pub(crate) fn is_own_for(purpose: &str, name: &OsStr) -> bool {
    let numbers = || {
        let name = name.to_str()?.strip_prefix(START)?.strip_prefix(purpose)?;
        let name = name.strip_suffix(END).or_else(|| name.strip_suffix(END_REMOVED))?;
        let (rest, attempt) = name.rsplit_once('-')?;
        let process = rest.rsplit_once('-').map_or(rest, |(_, process)| process);
        Some([process, attempt])
    };
    // The whole name is checked: a user's folder with a similar name must never be removed.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers().is_some_and(|numbers| numbers.into_iter().all(is_number))
}

/// The exclusive right to write into a shared folder. While it is held, or after its process was killed, the folder
/// contains a file of one line that names the holder.
pub(crate) struct WriterLock {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    held: Option<HeldLock>,
}

impl WriterLock {
    /// Takes the lock. On a file system without locks, everyone gets it.
    ///
    /// # Errors
    /// If another process holds it (the message names it), the folder is missing, or a file cannot be written.
    pub(crate) fn take(device: &Arc<dyn Device>, folder: &Path) -> Result<Self> {
        Self::take_for(device, folder, "written")
    }

    /// Takes the lock for work that messages call by a participle, such as "merged".
    ///
    /// # Errors
    /// As [`WriterLock::take`].
    pub(crate) fn take_for(device: &Arc<dyn Device>, folder: &Path, participle: &str) -> Result<Self> {
        let path = folder.join(WRITER_FILE);
        let held = match device.lock(&path)? {
            Lock::Ours(held) => Some(held),
            Lock::Unsupported => None,
            Lock::Others(holder) => {
                let at = folder.display();
                return Err(Error::input(format!(
                    "{at} is being {participle} by {holder}; wait until that is done, or choose another folder"
                )));
            }
        };
        Ok(Self { device: device.clone(), path, creator: Creator::this_process(), held })
    }

    /// Returns whether no other process can hold the lock.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.held.is_some()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// If its file cannot be removed, which does not prevent others from taking the lock.
    pub(crate) fn release(mut self) -> Result<()> {
        check_opened_here(self.creator, self.path.display())?;
        // The lock is held until after the file is removed; otherwise another process could lock the file that is
        // removed.
        let Some(_held) = self.held.take() else { return Ok(()) };
        match self.device.remove(&self.path) {
            Err(error) if error.source.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // In a forked child, the parent still holds the lock, under the name of its file.
        if self.is_exclusive() && self.creator.is_this_process() {
            let _ = self.device.remove(&self.path); // at worst it is left over, and prevents nothing
        }
    }
}

/// Returns whether a file with this name is the lock of the folder's writer.
pub(crate) fn is_writer_file(name: &OsStr) -> bool {
    name == WRITER_FILE
}
