//! The machine's file system.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::device::{Device, FileKind, Lock, ReadFile, ReadQueue, WriteFile};
use crate::error::{DeviceError, Operation};
use crate::lock_file;
use crate::read_file::OpenFile;
use crate::threads::ThreadQueue;
#[cfg(target_os = "linux")]
use crate::uring::UringQueue;
use crate::write_file::AppendFile;

/// Maximum number of reads in flight per queue.
const DEPTH_MAX: usize = 4096;

/// The machine's files. The constructor chooses how queues read. This does not affect other operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    engine: Engine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Pread,
    #[cfg(target_os = "linux")]
    Uring,
}

impl FileSystem {
    /// Creates a device with queues that use a few threads. Each thread performs one blocking read at a time.
    pub fn pread() -> Self {
        Self { engine: Engine::Pread }
    }

    /// Creates a device with io_uring rings as queues.
    #[cfg(target_os = "linux")]
    pub fn io_uring() -> io::Result<Self> {
        UringQueue::probe()?;
        Ok(Self { engine: Engine::Uring })
    }

    /// Fails: this system has no io_uring.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub fn io_uring() -> io::Result<Self> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Returns the device with io_uring if the system allows it. Otherwise returns the device with threads, and a
    /// line for the log.
    pub fn detect() -> (Self, Option<String>) {
        match Self::io_uring() {
            Ok(files) => (files, None),
            Err(error) => (Self::pread(), Some(format!("this system refuses io_uring ({error}); reads use pread"))),
        }
    }
}

impl Device for FileSystem {
    fn name(&self) -> &'static str {
        match self.engine {
            Engine::Pread => "pread",
            #[cfg(target_os = "linux")]
            Engine::Uring => "io_uring",
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        let file = OpenFile::open(path).map_err(|source| DeviceError::new(Operation::Open, path, source))?;
        Ok(Arc::new(file))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = AppendFile::create(path).map_err(|source| DeviceError::new(Operation::Create, path, source))?;
        Ok(Box::new(file))
    }

    fn continue_file(&self, path: &Path, len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = AppendFile::go_on(path, len).map_err(|source| DeviceError::new(Operation::Create, path, source))?;
        Ok(Box::new(file))
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        fs::create_dir(path).map_err(|source| DeviceError::new(Operation::CreateFolder, path, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        fs::rename(from, to).map_err(|source| DeviceError::new(Operation::Rename, from, source))
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        fs::remove_file(path).map_err(|source| DeviceError::new(Operation::Remove, path, source))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        fs::remove_dir_all(path).map_err(|source| DeviceError::new(Operation::RemoveFolder, path, source))
    }

    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        fs::remove_dir(path).map_err(|source| DeviceError::new(Operation::RemoveFolder, path, source))
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        let only_folders = OFlags::DIRECTORY.bits().cast_signed();
        let sync = || OpenOptions::new().read(true).custom_flags(only_folders).open(path)?.sync_all();
        sync().map_err(|source| DeviceError::new(Operation::SyncFolder, path, source))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        let facts = rustix::fs::statvfs(path)
            .map_err(|errno| DeviceError::new(Operation::FreeSpace, path, io::Error::from(errno)))?;
        Ok(facts.f_bavail * facts.f_frsize)
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        match fs::metadata(path) {
            Ok(facts) if facts.is_file() => Ok(Some(FileKind::File)),
            Ok(facts) if facts.is_dir() => Ok(Some(FileKind::Folder)),
            Ok(_) => Ok(Some(FileKind::Other)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(DeviceError::new(Operation::Kind, path, error)),
        }
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.list_only(folder, &|_| true)
    }

    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        let names = || {
            let all = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
            all.filter(|name| name.as_ref().map_or(true, |name| wanted(name))).collect::<io::Result<Vec<_>>>()
        };
        let mut names = names().map_err(|source| DeviceError::new(Operation::List, folder, source))?;
        names.sort_unstable();
        Ok(names)
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        lock_file::lock(path).map_err(|source| DeviceError::new(Operation::Lock, path, source))
    }

    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        let depth = depth.clamp(1, DEPTH_MAX);
        // The system may refuse a ring now although it granted one before, for example because too little memory may
        // be locked. Threads can do the work of the ring.
        #[cfg(target_os = "linux")]
        if self.engine == Engine::Uring
            && let Ok(queue) = UringQueue::new(depth)
        {
            return Ok(Box::new(queue));
        }
        match ThreadQueue::new(depth) {
            Ok(queue) => Ok(Box::new(queue)),
            Err(error) => {
                let why = format!("no thread can be started: {error}; allow more processes");
                Err(DeviceError::new(Operation::Queue, Path::new("threads"), io::Error::new(error.kind(), why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file() {
        let missing = FileSystem::pread().open(Path::new("no/such/file")).err().unwrap();
        assert_eq!(missing.to_string(), "cannot open no/such/file: No such file or directory (os error 2)");
        let folder = FileSystem::pread().open(Path::new("/")).err().unwrap();
        assert_eq!(folder.source.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn special_files_are_reported_and_not_opened() {
        let device = FileSystem::pread();
        assert_eq!(device.kind(Path::new("/dev/null")).unwrap(), Some(FileKind::Other));
        assert_eq!(device.open(Path::new("/dev/null")).err().unwrap().source.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_refused_io_uring_is_reported() {
        match (FileSystem::detect(), FileSystem::io_uring()) {
            ((files, None), Ok(_)) => assert_eq!(files.name(), "io_uring"),
            ((files, Some(note)), Err(_)) => assert!(files.name() == "pread" && note.contains("refuses io_uring")),
            _ => panic!("detection and choice disagree"),
        }
    }
}
