//! A device that adds objects to the files of another device.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use adjoin_device::{
    Device, DeviceError, FileKind, Location, Lock, NewObject, Operation, ReadFile, ReadQueue, RemoteName, WriteFile,
};
use futures_util::TryStreamExt;
use object_store::path::{DELIMITER, Path as Key};
use object_store::{ObjectStore, ObjectStoreExt};

use crate::file::ObjectFile;
use crate::object::{Object, key_of};
use crate::queue::{ObjectQueue, READING_BYTES};
use crate::refusal::refusal;
use crate::stores::{Purpose, StoreSettings, Stores};
use crate::upload::{Upload, memory_bytes_min};

/// Error text for operations that object stores do not support.
const READ_ONLY: &str = "object stores take whole objects only; write to a local folder, and copy it";

/// Reads and writes objects by their URLs, and passes all other names on to another device.
pub struct ObjectDevice {
    files: Arc<dyn Device>,
    settings: StoreSettings,
    /// `None` until an object is used for the first time.
    stores: Mutex<Option<Arc<Stores>>>,
}

impl ObjectDevice {
    /// Adds object stores to a device.
    pub fn over(files: Arc<dyn Device>) -> Self {
        Self::with_settings(files, StoreSettings::default())
    }

    /// Adds object stores to a device. The variables in `settings` override environment variables.
    pub fn with_settings(files: Arc<dyn Device>, settings: StoreSettings) -> Self {
        Self { files, settings, stores: Mutex::default() }
    }

    fn stores(&self, operation: Operation, path: &Path) -> Result<Arc<Stores>, DeviceError> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = stores.as_ref().filter(|stores| stores.is_of_this_process()) {
            return Ok(started.clone());
        }
        let started = Stores::start(self.settings.clone()).map_err(|error| DeviceError::new(operation, path, error))?;
        Ok(stores.insert(Arc::new(started)).clone())
    }

    fn bucket(&self, operation: Operation, name: RemoteName<'_>) -> Result<Bucket, DeviceError> {
        let stores = self.stores(operation, Path::new(name.url))?;
        let store = stores.connect(name, Purpose::Reading)?;
        Ok(Bucket { stores, store })
    }
}

/// A connected bucket.
struct Bucket {
    stores: Arc<Stores>,
    store: Arc<dyn ObjectStore>,
}

impl Bucket {
    /// Returns whether an object with this key exists. If the key is only a prefix of other keys, it does not.
    fn has_object(&self, key: &Key) -> object_store::Result<bool> {
        match self.stores.runtime().block_on(self.store.head(key)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether there are objects below a key.
    fn has_below(&self, key: &Key) -> object_store::Result<bool> {
        let first = async { self.store.list(Some(key)).try_next().await };
        Ok(self.stores.runtime().block_on(first)?.is_some())
    }

    fn keys_below(&self, key: &Key) -> object_store::Result<Vec<Key>> {
        let keys = self.store.list(Some(key)).map_ok(|meta| meta.location).try_collect();
        self.stores.runtime().block_on(keys)
    }
}

/// Returns the error for an operation that would write to an object store.
fn read_only(operation: Operation, name: RemoteName<'_>) -> DeviceError {
    DeviceError::new(operation, name.url.as_ref(), io::Error::new(io::ErrorKind::ReadOnlyFilesystem, READ_ONLY))
}

/// Returns the path of a local file. Fails if `path` is a URL of an object.
fn local(operation: Operation, path: &Path) -> Result<std::borrow::Cow<'_, Path>, DeviceError> {
    match Location::of(path) {
        Location::Local(path) => Ok(path),
        Location::Remote(name) => Err(read_only(operation, name)),
    }
}

impl Device for ObjectDevice {
    fn name(&self) -> &'static str {
        self.files.name()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        match Location::of(path) {
            Location::Local(path) => self.files.open(&path),
            Location::Remote(name) => {
                let stores = self.stores(Operation::Open, path)?;
                Ok(Arc::new(ObjectFile { object: Arc::new(Object::open(stores, name)?) }))
            }
        }
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        self.files.create(&local(Operation::Create, path)?)
    }

    fn continue_file(&self, path: &Path, len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        self.files.continue_file(&local(Operation::Create, path)?, len)
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.files.create_folder(&local(Operation::CreateFolder, path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        self.files.rename(&local(Operation::Rename, from)?, &local(Operation::Rename, to)?)
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        let name = match Location::of(path) {
            Location::Local(path) => return self.files.remove(&path),
            Location::Remote(name) => name,
        };
        let (bucket, key) = (self.bucket(Operation::Remove, name)?, key_of(name, Operation::Remove)?);
        let removed = bucket.stores.runtime().block_on(bucket.store.delete(&key));
        removed.map_err(|error| DeviceError::new(Operation::Remove, path, refusal(name.scheme, &error)))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.files.remove_folder(&local(Operation::RemoveFolder, path)?)
    }

    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.files.remove_empty_folder(&local(Operation::RemoveFolder, path)?)
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.files.sync_folder(&local(Operation::SyncFolder, path)?)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        self.files.free_bytes(&local(Operation::FreeSpace, path)?)
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        let name = match Location::of(path) {
            Location::Local(path) => return self.files.kind(&path),
            Location::Remote(name) => name,
        };
        let failed = |error| DeviceError::new(Operation::Kind, path, refusal(name.scheme, &error));
        let (bucket, key) = (self.bucket(Operation::Kind, name)?, key_of(name, Operation::Kind)?);
        if !name.key.is_empty() && bucket.has_object(&key).map_err(failed)? {
            return Ok(Some(FileKind::File));
        }
        // A web server cannot list prefixes, so a name that is no object does not exist.
        if name.is_web() || !bucket.has_below(&key).map_err(failed)? {
            return Ok(None);
        }
        Ok(Some(FileKind::Folder))
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.list_only(folder, &|_| true)
    }

    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        let name = match Location::of(folder) {
            Location::Local(folder) => return self.files.list_only(&folder, wanted),
            Location::Remote(name) => name,
        };
        let (bucket, key) = (self.bucket(Operation::List, name)?, key_of(name, Operation::List)?);
        let listed = bucket.stores.runtime().block_on(bucket.store.list_with_delimiter(Some(&key)));
        let listed = listed.map_err(|error| DeviceError::new(Operation::List, folder, refusal(name.scheme, &error)))?;
        let keys = listed.objects.into_iter().map(|object| object.location).chain(listed.common_prefixes);
        let names: BTreeSet<OsString> = keys.filter_map(|key| key.filename().map(OsString::from)).collect();
        Ok(names.into_iter().filter(|name| wanted(name)).collect())
    }

    fn reads_object_stores(&self) -> bool {
        true
    }

    fn list_below(&self, folder: &Path) -> Result<Vec<PathBuf>, DeviceError> {
        let Location::Remote(name) = Location::of(folder) else { return self.files.list_below(folder) };
        let (bucket, key) = (self.bucket(Operation::List, name)?, key_of(name, Operation::List)?);
        let keys = bucket.keys_below(&key);
        let keys = keys.map_err(|error| DeviceError::new(Operation::List, folder, refusal(name.scheme, &error)))?;
        let root = format!("{}://{}{DELIMITER}", name.scheme, name.bucket);
        let mut paths: Vec<PathBuf> = keys.into_iter().map(|key| PathBuf::from(format!("{root}{key}"))).collect();
        paths.sort_unstable_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
        Ok(paths)
    }

    fn object_reading_bytes(&self) -> u64 {
        READING_BYTES
    }

    fn object_writing_bytes(&self, len: u64) -> u64 {
        memory_bytes_min(len)
    }

    fn create_object(&self, path: &Path, object: NewObject) -> Result<Box<dyn WriteFile>, DeviceError> {
        match Location::of(path) {
            Location::Local(path) => self.files.create_object(&path, object),
            Location::Remote(name) => Ok(Box::new(Upload::new(self.stores(Operation::Create, path)?, name, object)?)),
        }
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        match Location::of(path) {
            Location::Local(path) => self.files.lock(&path),
            Location::Remote(_) => Ok(Lock::Unsupported),
        }
    }

    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        Ok(Box::new(ObjectQueue::new(self.files.read_queue(depth)?, depth)))
    }
}
