//! Locks that show whether a process is alive: it holds its lock until it ends. Process ids are not sufficient, since
//! they are reused, and processes in two containers may have the same id.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Creator, Device, DeviceError, FileKind, HeldLock, Lock};

use crate::base::error::{Error, Result};

/// Start and end of the names of private folders.
const START: &str = ".adjoin-";
const END: &str = ".partial";
/// End of the name of a private folder that is being removed.
const END_REMOVED: &str = ".removed";
/// Lock file in a private folder. The owner holds its lock.
pub(crate) const OWNER_FILE: &str = "owner.lock";
/// Lock file in all other folders. The writer holds its lock.
pub(crate) const WRITER_FILE: &str = "writer.lock";

/// Fails in a forked child of the process that created `what`. A child inherits neither threads nor the right to
/// write.
///
/// # Errors
/// Fails in every process except the creator.
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

/// A private folder of one run. Dropping it removes it with its contents.
///
/// The name of the folder is `.adjoin-WHAT-PROCESS-NUMBER.partial`. It contains a file whose lock the owner holds.
/// When a private folder is created, leftovers of killed runs next to it are removed. These are folders with such
/// names and with locks that no process holds. On a file system without locks, nothing is removed.
pub struct OwnFolder {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    /// `None` if the file system has no locks.
    owned: Option<HeldLock>,
}

impl OwnFolder {
    /// Creates a private folder in `parent`. Its name contains `purpose`.
    ///
    /// # Errors
    /// Fails if `parent` is missing, or if a file cannot be written.
    pub fn create(device: &Arc<dyn Device>, parent: &Path, purpose: &str) -> Result<Self> {
        // A process may have several private folders in the same place.
        for attempt in 0.. {
            let path = parent.join(format!("{START}{purpose}-{}-{attempt}{END}", std::process::id()));
            match device.create_folder(&path) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // The folder belongs to this run as soon as it holds the lock. Until then, another run may consider the
            // folder abandoned and remove it.
            let owned = match device.lock(&path.join(OWNER_FILE)) {
                Ok(Lock::Ours(lock)) => Some(lock),
                Ok(Lock::Unsupported) => None,
                // Another run considers the folder abandoned and is about to remove it.
                Ok(Lock::Others(_)) => continue,
                Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = device.remove_empty_folder(&path); // best effort: the earlier error is the one to report
                    return Err(error.into());
                }
            };
            let folder = Self { device: device.clone(), path, creator: Creator::this_process(), owned };
            // Without locks, a live run cannot be distinguished from a killed run. So nothing is removed.
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
        // In a forked child, the folder belongs to the parent process.
        if self.creator.is_this_process() {
            let _ = remove(&*self.device, &self.path); // at worst it is left over, and nothing depends on it
        }
    }
}

/// Removes a folder. The caller holds its lock. The folder is renamed first, because an interrupted removal might
/// leave files without the lock file. In that case no run could know that the folder is abandoned.
fn remove(device: &dyn Device, path: &Path) -> std::result::Result<(), DeviceError> {
    let removed = path.with_extension(&END_REMOVED[1..]);
    match device.rename(path, &removed) {
        Ok(()) => device.remove_folder(&removed),
        Err(_) => device.remove_folder(path),
    }
}

/// Removes all abandoned private folders in `parent`, except `ours`. Folders that cannot be removed are left in place.
fn remove_abandoned(device: &dyn Device, parent: &Path, ours: &Path) -> Result<()> {
    let is_another = |name: &OsStr| is_own_for("", name) && ours.file_name() != Some(name);
    let names = match device.list_only(parent, &is_another) {
        // The user may be allowed to create files in the folder but not to list it. Leftovers of other runs then
        // remain, which is harmless.
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => return Ok(()),
        listed => listed?,
    };
    for path in names.into_iter().map(|name| parent.join(name)) {
        // This folder was renamed for removal, so no run uses it.
        if path.as_os_str().as_encoded_bytes().ends_with(END_REMOVED.as_bytes()) {
            let _ = device.remove_folder(&path);
            continue;
        }
        // A folder without a lock file is removed only if it is empty, since its owner may run on a system without
        // locks. If a run has just created the folder and does not have its lock yet, it creates another folder.
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

/// Returns whether `name` is a name that only [`OwnFolder`] gives to folders, for a purpose that starts with
/// `purpose`.
pub(crate) fn is_own_for(purpose: &str, name: &OsStr) -> bool {
    let numbers = || {
        let name = name.to_str()?.strip_prefix(START)?.strip_prefix(purpose)?;
        let name = name.strip_suffix(END).or_else(|| name.strip_suffix(END_REMOVED))?;
        let (rest, attempt) = name.rsplit_once('-')?;
        let process = rest.rsplit_once('-').map_or(rest, |(_, process)| process);
        Some([process, attempt])
    };
    // The whole name is checked, since a user's folder with a similar name must never be removed.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers().is_some_and(|numbers| numbers.into_iter().all(is_number))
}

/// The exclusive right to write to a shared folder. While the lock is held, the folder contains a file with one line
/// that names the holder. The file is left in the folder if the process is killed.
pub(crate) struct WriterLock {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    held: Option<HeldLock>,
}

impl WriterLock {
    /// Takes the lock. On a file system without locks, every process gets it.
    ///
    /// # Errors
    /// Fails if another process holds the lock (the message names it), if the folder is missing, or if a file cannot
    /// be written.
    pub(crate) fn take(device: &Arc<dyn Device>, folder: &Path) -> Result<Self> {
        Self::take_for(device, folder, "written")
    }

    /// Takes the lock for a kind of work. `participle` describes the work in messages, such as "merged".
    ///
    /// # Errors
    /// Fails as [`WriterLock::take`] does.
    pub(crate) fn take_for(device: &Arc<dyn Device>, folder: &Path, participle: &str) -> Result<Self> {
        Self::take_or(device, folder, participle, "wait until it is done, or choose another folder")
    }

    /// Takes the lock of a collection, whose writer may be a server, which has no end.
    ///
    /// # Errors
    /// Fails as [`WriterLock::take`] does.
    pub(crate) fn take_of_collection(device: &Arc<dyn Device>, folder: &Path) -> Result<Self> {
        let remedy = "wait until it is done; if it is a server, write by its HTTP API, or stop it first";
        Self::take_or(device, folder, "written", remedy)
    }

    fn take_or(device: &Arc<dyn Device>, folder: &Path, participle: &str, remedy: &str) -> Result<Self> {
        let path = folder.join(WRITER_FILE);
        let held = match device.lock(&path)? {
            Lock::Ours(held) => Some(held),
            Lock::Unsupported => None,
            Lock::Others(holder) => {
                let at = folder.display();
                return Err(Error::input(format!("{at} is being {participle} by {holder}; {remedy}")));
            }
        };
        Ok(Self { device: device.clone(), path, creator: Creator::this_process(), held })
    }

    /// Returns whether this process is certainly the only one with the lock. It is not if the file system has no
    /// locks.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.held.is_some()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// Fails if the lock file cannot be removed. Other processes can take the lock even then.
    pub(crate) fn release(mut self) -> Result<()> {
        check_opened_here(self.creator, self.path.display())?;
        // The lock is released after the file is removed. Otherwise another process could take the lock of the file
        // that is then removed.
        let Some(_held) = self.held.take() else { return Ok(()) };
        match self.device.remove(&self.path) {
            Err(error) if error.source.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // In a forked child, the lock and its file belong to the parent process.
        if self.is_exclusive() && self.creator.is_this_process() {
            let _ = self.device.remove(&self.path); // at worst it is left over, and prevents nothing
        }
    }
}

/// Returns whether a file with this name is the lock of the folder's writer.
pub(crate) fn is_writer_file(name: &OsStr) -> bool {
    name == WRITER_FILE
}
