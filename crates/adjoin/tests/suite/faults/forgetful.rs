//! A device that leaves out a step, for canaries: what is left out here must be missed by the checker.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin::device::{Device, DeviceError, FileKind, Lock, ReadFile, ReadQueue, SimulatedDevice, WriteFile};

/// What is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forgets {
    /// The sync of the file of this name.
    FileSync(String),
    /// The sync of folders of this number, from 0 on.
    FolderSync(usize),
    /// Removing folders.
    Removal,
}

/// Does as a device does, but for one thing.
pub(crate) struct Forgetful {
    pub(crate) device: SimulatedDevice,
    pub(crate) forgets: Forgets,
    folder_syncs: AtomicUsize,
}

impl Forgetful {
    pub(crate) fn new(device: SimulatedDevice, forgets: Forgets) -> Self {
        Self { device, forgets, folder_syncs: AtomicUsize::new(0) }
    }

    fn removal(&self, path: &Path, remove: impl Fn(&Path) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        if self.forgets == Forgets::Removal { Ok(()) } else { remove(path) }
    }
}

/// A file whose sync makes nothing durable.
struct NeverSynced(Box<dyn WriteFile>);

impl WriteFile for NeverSynced {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.append(bytes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.0.flush()
    }
}

impl Device for Forgetful {
    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        self.device.open(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = self.device.create(path)?;
        match &self.forgets {
            Forgets::FileSync(name) if path.ends_with(name) => Ok(Box::new(NeverSynced(file))),
            _ => Ok(file),
        }
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.create_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        self.device.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.removal(path, |path| self.device.remove_folder(path))
    }

    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.removal(path, |path| self.device.remove_empty_folder(path))
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        let number = self.folder_syncs.fetch_add(1, Ordering::Relaxed);
        if self.forgets == Forgets::FolderSync(number) { Ok(()) } else { self.device.sync_folder(path) }
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        self.device.free_bytes(path)
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        self.device.kind(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.device.list(folder)
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        self.device.lock(path)
    }

    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.device.read_queue(depth)
    }
}
