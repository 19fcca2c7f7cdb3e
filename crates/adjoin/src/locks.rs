//! What tells a run that works from one that was killed: a lock, which its process holds as long as it lives. Process
//! numbers do not tell: they come again, and processes of two containers may have the same.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Creator, Device, DeviceError, FileKind, HeldLock, Lock};

use crate::error::{Error, Result};

/// How names of own folders begin and end.
const START: &str = ".adjoin-";
const END: &str = ".partial";
/// How they end once the folder is being removed.
const END_REMOVED: &str = ".removed";
/// The file in an own folder whose lock its owner holds.
pub(crate) const OWNER_FILE: &str = "owner.lock";
/// The file in another folder whose lock is held by who writes there.
const WRITER_FILE: &str = "writer.lock";

/// Refuses to use `what` in a forked child of the process that created it: neither the threads nor the right to write are
/// inherited.
///
/// # Errors
/// In any other process than the creator.
pub fn check_creator(creator: Creator, what: impl std::fmt::Display) -> Result<()> {
    if creator.is_this_process() {
        return Ok(());
    }
    let (creator, child) = (creator.id(), std::process::id());
    Err(Error::option(format!(
        "{what} was opened by process {creator}, and cannot be used in its forked child {child}; open it in the child, or \
         start the child with the method spawn"
    )))
}

/// A folder that nobody else has, neither another run at the same time nor one that was killed; removed, with what is in
/// it, when dropped.
///
/// Its name is `.adjoin-WHAT-PROCESS-NUMBER.partial`, and it holds a file whose lock its owner holds. Folders of such
/// names beside it whose owners are gone are removed when it is made. Where there are no locks, all are left alone.
pub struct OwnFolder {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    /// None where there are no locks.
    owned: Option<HeldLock>,
}

impl OwnFolder {
    /// Makes it in the folder `at`, for `what`.
    ///
    /// # Errors
    /// Where `at` is missing, or the device refuses.
    pub fn create(device: &Arc<dyn Device>, at: &Path, what: &str) -> Result<Self> {
        for attempt in 0.. {
            let path = at.join(format!("{START}{what}-{}-{attempt}{END}", std::process::id()));
            match device.create_folder(&path) {
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // It is ours once we hold its lock. Until then it may be taken for one whose owner is gone, and be removed.
            let owned = match device.lock(&path.join(OWNER_FILE)) {
                Ok(Lock::Ours(lock)) => Some(lock),
                Ok(Lock::Unsupported) => None,
                Ok(Lock::Others(_)) => continue,
                Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = device.remove_empty_folder(&path); // best effort: the error that led here is reported
                    return Err(error.into());
                }
            };
            let folder = Self { device: device.clone(), path, creator: Creator::this_process(), owned };
            if folder.owned.is_some() {
                remove_abandoned(&**device, at, &folder.path)?;
            }
            return Ok(folder);
        }
        unreachable!("some name is free")
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // In a forked child it is still the folder of the parent.
        if self.creator.is_this_process() {
            let _ = remove(&*self.device, &self.path); // left over at worst: nothing in it was promised
        }
    }
}

/// Removes a folder whose lock we hold. It has another name first: a removal that breaks off halfway may leave files
/// without the lock, and of such a folder it could not be told that its owner is gone.
fn remove(device: &dyn Device, path: &Path) -> std::result::Result<(), DeviceError> {
    let removed = path.with_extension(&END_REMOVED[1..]);
    match device.rename(path, &removed) {
        Ok(()) => device.remove_folder(&removed),
        Err(_) => device.remove_folder(path),
    }
}

/// Removes the own folders in `at` beside `ours` whose owners are gone. That one cannot be removed is no obstacle to
/// anybody.
fn remove_abandoned(device: &dyn Device, at: &Path, ours: &Path) -> Result<()> {
    let is_another = |name: &OsStr| is_own_for("", name) && ours.file_name() != Some(name);
    let names = match device.list_only(at, &is_another) {
        Err(error) if error.source.kind() == ErrorKind::PermissionDenied => return Ok(()),
        listed => listed?,
    };
    for path in names.into_iter().map(|name| at.join(name)) {
        if path.as_os_str().as_encoded_bytes().ends_with(END_REMOVED.as_bytes()) {
            let _ = device.remove_folder(&path);
            continue;
        }
        // Without a lock it is removed only where it is empty: its owner may work where there are no locks. One who has
        // just made it, and has no lock yet, makes another.
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

/// Whether only [`OwnFolder`] gives such a name, to a folder for `what` or for something that begins so.
pub(crate) fn is_own_for(what: &str, name: &OsStr) -> bool {
    let numbers = || {
        let name = name.to_str()?.strip_prefix(START)?.strip_prefix(what)?;
        let name = name.strip_suffix(END).or_else(|| name.strip_suffix(END_REMOVED))?;
        let (rest, attempt) = name.rsplit_once('-')?;
        let process = rest.rsplit_once('-').map_or(rest, |(_, process)| process);
        Some([process, attempt])
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers().is_some_and(|numbers| numbers.into_iter().all(is_number))
}

/// The right to write into a folder that others may write to as well. What it leaves in the folder while it is held, and
/// after the process was killed, is a file of one line, which says who has or had it.
pub(crate) struct WriterLock {
    device: Arc<dyn Device>,
    path: PathBuf,
    creator: Creator,
    held: Option<HeldLock>,
}

impl WriterLock {
    /// Takes it. Where there are no locks everybody gets it.
    ///
    /// # Errors
    /// Where somebody has it: says who. Where the folder is missing, or the device refuses.
    pub(crate) fn take(device: &Arc<dyn Device>, folder: &Path) -> Result<Self> {
        let path = folder.join(WRITER_FILE);
        let held = match device.lock(&path)? {
            Lock::Ours(held) => Some(held),
            Lock::Unsupported => None,
            Lock::Others(holder) => {
                let at = folder.display();
                return Err(Error::input(format!(
                    "{at} is being written by {holder}; wait until that is done, or choose another folder"
                )));
            }
        };
        Ok(Self { device: device.clone(), path, creator: Creator::this_process(), held })
    }

    /// Whether nobody else can have it.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.held.is_some()
    }

    /// Gives it back.
    ///
    /// # Errors
    /// Where its file cannot be removed, which is no obstacle to who takes it next.
    pub(crate) fn release(mut self) -> Result<()> {
        check_creator(self.creator, self.path.display())?;
        let Some(_held) = self.held.take() else { return Ok(()) };
        match self.device.remove(&self.path) {
            Err(error) if error.source.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // In a forked child the parent has the lock, by the name of its file.
        if self.is_exclusive() && self.creator.is_this_process() {
            let _ = self.device.remove(&self.path); // left over at worst, and no obstacle
        }
    }
}

/// Whether a file of that name is the lock of who writes into its folder.
pub(crate) fn is_writer_file(name: &OsStr) -> bool {
    name == WRITER_FILE
}
