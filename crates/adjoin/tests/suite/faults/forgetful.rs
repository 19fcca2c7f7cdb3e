//! A device that skips a step. With it, canaries test that the checker notices each skipped step.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adjoin::device::{Device, DeviceError, FileKind, Lock, ReadFile, ReadQueue, SimulatedDevice, WriteFile};

/// Step to skip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forgets {
    Nothing,
    /// Sync of the file with this name.
    FileSync(String),
    /// Sync of a folder. Syncs of folders are numbered from 0.
    FolderSync(usize),
    /// All syncs of a kind. [`Forgetful::kinds`] returns the kinds.
    Kind(String),
    /// Removal of folders.
    Removal,
}

/// A device that behaves like the wrapped one, except for one step.
pub(crate) struct Forgetful {
    pub(crate) device: SimulatedDevice,
    pub(crate) forgets: Forgets,
    folder_syncs: AtomicUsize,
    syncs: Arc<Mutex<Syncs>>,
}

/// Kinds of syncs so far, and the name that was last created or renamed.
#[derive(Default)]
struct Syncs {
    kinds: BTreeSet<String>,
    last: String,
}

impl Forgetful {
    pub(crate) fn new(device: SimulatedDevice, forgets: Forgets) -> Self {
        Self { device, forgets, folder_syncs: AtomicUsize::new(0), syncs: Arc::default() }
    }

    /// Returns the kinds of syncs so far. For a file, the first sync and later ones are different kinds. For a
    /// folder, the kind depends on the name that was created last. Numbers in names are ignored.
    pub(crate) fn kinds(&self) -> BTreeSet<String> {
        self.syncs.lock().unwrap().kinds.clone()
    }

    /// Records a sync. Returns whether it must be skipped.
    fn leaves_out(syncs: &Mutex<Syncs>, forgets: &Forgets, kind: String) -> bool {
        let leaves_out = matches!(forgets, Forgets::Kind(left_out) if *left_out == kind);
        syncs.lock().unwrap().kinds.insert(kind);
        leaves_out
    }

    fn names(&self, path: &Path) {
        self.syncs.lock().unwrap().last = without_numbers(path);
    }

    fn removal(&self, path: &Path, remove: impl Fn(&Path) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        if self.forgets == Forgets::Removal { Ok(()) } else { remove(path) }
    }
}

/// Replaces each number in a path by a star. Long hexadecimal words count as numbers.
fn without_numbers(path: &Path) -> String {
    let text = path.display().to_string();
    let is_number = |word: &str| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        digits > 0 && (digits == word.len() || word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let words = text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric());
    let starred = words.map(|word| {
        let end = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        if is_number(end) { word.replace(end, "*") } else { word.to_owned() }
    });
    starred.collect()
}

/// A file that skips its syncs of a given kind.
struct OfKinds {
    file: Box<dyn WriteFile>,
    name: String,
    was_synced: bool,
    forgets: Forgets,
    syncs: Arc<Mutex<Syncs>>,
}

impl WriteFile for OfKinds {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.file.append(bytes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.file.flush()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        let kind = format!("{} {}", if self.was_synced { "again" } else { "file" }, self.name);
        self.was_synced = true;
        if Forgetful::leaves_out(&self.syncs, &self.forgets, kind) { self.file.flush() } else { self.file.sync() }
    }
}

/// A file with a sync that does nothing.
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

impl Forgetful {
    fn writing(&self, path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        match &self.forgets {
            Forgets::FileSync(name) if path.ends_with(name) => Box::new(NeverSynced(file)),
            forgets => {
                self.names(path);
                let (forgets, syncs) = (forgets.clone(), self.syncs.clone());
                Box::new(OfKinds { file, name: without_numbers(path), was_synced: false, forgets, syncs })
            }
        }
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
        self.device.create(path).map(|file| self.writing(path, file))
    }

    fn continue_file(&self, path: &Path, len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        self.device.continue_file(path, len).map(|file| self.writing(path, file))
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.names(path);
        self.device.create_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        self.names(to);
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
        let kind = format!("folder {} after {}", without_numbers(path), self.syncs.lock().unwrap().last);
        let leaves_out = Self::leaves_out(&self.syncs, &self.forgets, kind);
        if leaves_out || self.forgets == Forgets::FolderSync(number) { Ok(()) } else { self.device.sync_folder(path) }
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
