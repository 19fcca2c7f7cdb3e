//! The simulated device's public interface, for the engine and for tests.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::faults::{FaultPlan, Keep, LoggedOperation};
use super::files::{SimulatedLock, SimulatedReader, SimulatedWriter};
use super::queue::SimulatedQueue;
use super::state::{Fate, Locked, State};
use crate::device::{Device, FileKind, HeldLock, Lock, ReadFile, ReadQueue, WriteFile};
use crate::error::{DeviceError, Operation};

/// Files in memory, with faults on demand. Clones share the files. All paths, absolute and relative, start at the
/// root. The parent of the root is the root itself.
#[derive(Clone, Default)]
pub struct SimulatedDevice {
    state: Arc<Mutex<State>>,
}

impl SimulatedDevice {
    /// Creates an empty device of unlimited size. `plan` is the fault to simulate.
    pub fn new(plan: FaultPlan) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(plan))) }
    }

    /// Changes the fault plan. The numbering of operations continues.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.lock_state().plan = plan;
    }

    /// Limits how many more bytes can be written. Removing files frees space.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.lock_state().set_free_bytes(bytes);
    }

    /// Makes locks unsupported from now on, as they are on some file systems.
    pub fn refuse_locks(&self) {
        self.lock_state().refuses_locks = true;
    }

    /// Returns the operations before the loss of power, if any. Failed operations are included.
    pub fn operations(&self) -> Vec<LoggedOperation> {
        self.lock_state().log.clone()
    }

    /// Returns whether the power was lost.
    pub fn crashed(&self) -> bool {
        self.lock_state().crashed()
    }

    /// Returns the number of changes that are not durable: creations, renames, removals, writes.
    pub fn unsynced(&self) -> usize {
        self.lock_state().unsynced()
    }

    /// Returns the device as it would be found if the power were lost at this moment. It has everything durable, and
    /// the other changes that `keep` selects. The new device has no faults, and numbers its operations from 0.
    #[must_use]
    pub fn after_crash(&self, keep: Keep) -> Self {
        Self { state: Arc::new(Mutex::new(self.lock_state().after_crash(keep))) }
    }

    /// Stores a file durably, and creates its folders. Does not count as an operation.
    ///
    /// # Panics
    /// If `path` is a folder, or one of its folders is a file.
    pub fn put(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let path = path.as_ref();
        self.lock_state().put(path, bytes).unwrap_or_else(|error| panic!("cannot put {}: {error}", path.display()));
    }

    /// Returns the bytes of a file, including bytes that readers cannot see yet. Returns `None` if there is no such
    /// file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock_state();
        let file = state.open(path.as_ref()).ok()?;
        Some(state.written(file).to_vec())
    }

    /// Copies a folder of the machine to `at`, durably. Does not count as operations.
    pub fn import(&self, folder: &Path, at: &Path) -> io::Result<()> {
        self.lock_state().put_folder(at)?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let (path, to) = (entry.path(), at.join(entry.file_name()));
            if path.is_dir() {
                self.import(&path, &to)?;
            } else {
                self.lock_state().put(&to, &std::fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// Copies the contents of the folder `at` to `folder` on the machine, which is created if it is missing.
    ///
    /// # Errors
    /// If there is no folder `at`, or `folder` cannot be written.
    pub fn export(&self, at: &Path, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let names = self.lock_state().list(at)?;
        for name in names {
            let (path, to) = (at.join(&name), folder.join(&name));
            match self.bytes(&path) {
                Some(bytes) => std::fs::write(to, bytes)?,
                None => self.export(&path, &to)?,
            }
        }
        Ok(())
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an operation that transfers no bytes, unless a fault prevents it.
    fn attempt<R>(
        &self,
        operation: Operation,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<R>,
    ) -> Result<R, DeviceError> {
        let mut state = self.lock_state();
        let done = state.begin(operation, path, 0).and_then(|_: Fate| work(&mut state));
        done.map_err(|source| DeviceError::new(operation, path, source))
    }
}

impl Device for SimulatedDevice {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        let (file, len) = self.attempt(Operation::Open, path, |state| {
            let file = state.open(path)?;
            Ok((file, state.readable(file).len() as u64))
        })?;
        Ok(Arc::new(SimulatedReader { state: self.state.clone(), path: path.to_owned(), file, len }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = self.attempt(Operation::Create, path, |state| state.create(path))?;
        Ok(Box::new(SimulatedWriter::new(self.state.clone(), path.to_owned(), file, 0)))
    }

    fn continue_file(&self, path: &Path, len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = self.attempt(Operation::Create, path, |state| state.continue_file(path, len))?;
        Ok(Box::new(SimulatedWriter::new(self.state.clone(), path.to_owned(), file, len)))
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::CreateFolder, path, |state| state.create_folder(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::Rename, from, |state| state.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::Remove, path, |state| state.remove(path))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::RemoveFolder, path, |state| state.remove_folder(path))
    }

    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::RemoveFolder, path, |state| match state.list(path)?.is_empty() {
            true => state.remove_folder(path),
            false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        })
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.attempt(Operation::SyncFolder, path, |state| state.sync_folder(path))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        self.attempt(Operation::FreeSpace, path, |state| Ok(state.free_bytes()))
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        self.attempt(Operation::Kind, path, |state| Ok(state.kind(path)))
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.attempt(Operation::List, folder, |state| state.list(folder))
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        let locked = self.attempt(Operation::Lock, path, |state| state.lock(path))?;
        Ok(match locked {
            Locked::Ours(file) => Lock::Ours(HeldLock::new(SimulatedLock { state: self.state.clone(), file })),
            Locked::Others => Lock::Others("process 1 on a simulated host".into()),
            Locked::Unsupported => Lock::Unsupported,
        })
    }

    fn read_queue(&self, _depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.attempt(Operation::Queue, &PathBuf::new(), |_| Ok(()))?;
        Ok(Box::new(SimulatedQueue::default()))
    }
}
