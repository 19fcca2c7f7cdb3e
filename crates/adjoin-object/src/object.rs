//! An object that is read by ranges.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use adjoin_device::{DeviceError, FileStamp, Operation, RemoteName};
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use xxhash_rust::xxh3::xxh3_64;

use crate::refusal::refusal;
use crate::stores::{Purpose, Stores};

/// Alignment of reads: the smallest that readers support. Ranges of objects need no alignment, and rounding them
/// would transfer bytes that are not needed.
pub(crate) const ALIGNMENT: usize = 512;

/// One version of an object: the one that existed when it was opened.
pub(crate) struct Object {
    pub(crate) stores: Arc<Stores>,
    store: Arc<dyn ObjectStore>,
    key: Key,
    url: PathBuf,
    scheme: String,
    meta: ObjectMeta,
}

impl Object {
    /// Opens an object: requests its length and its version.
    pub(crate) fn open(stores: Arc<Stores>, name: RemoteName<'_>) -> Result<Self, DeviceError> {
        let store = stores.connect(name, Purpose::Reading)?;
        let (key, url) = (key_of(name, Operation::Open)?, PathBuf::from(name.url));
        let meta = stores.runtime().block_on(store.head(&key));
        let meta = meta.map_err(|error| DeviceError::new(Operation::Open, &url, refusal(name.scheme, &error)))?;
        Ok(Self { stores, store, key, url, scheme: name.scheme.to_owned(), meta })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.meta.size
    }

    /// Returns an error in a forked child, since the threads of the parent do not exist there.
    pub(crate) fn check_process(&self, offset: u64) -> Result<(), DeviceError> {
        if self.stores.is_of_this_process() {
            return Ok(());
        }
        let why = io::Error::other("a parent process opened it; open it in the child");
        Err(DeviceError::read(&self.url, offset, why))
    }

    /// Reads bytes from `offset` on, and blocks until they have arrived. Returns their number.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        self.check_process(offset)?;
        self.stores.runtime().block_on(self.fill(offset, buffer))
    }

    /// Fills `buffer` with bytes from `offset` on. The store refuses the request if the object has changed since it
    /// was opened.
    pub(crate) async fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        let filled = self.try_fill(offset, buffer).await;
        filled.map_err(|error| DeviceError::read(&self.url, offset, error))
    }

    async fn try_fill(&self, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let range = self.range(offset, buffer.len() as u64)?;
        if range.is_empty() {
            return Ok(0);
        }
        // Without a condition, reads could return bytes of two versions. A store cannot compare weak tags, so the
        // time of the last change is used if there is no strong tag.
        let tag = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let unmodified = tag.is_none().then_some(self.meta.last_modified);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: tag,
            if_unmodified_since: unmodified,
            ..GetOptions::default()
        };
        let refused = |error: object_store::Error| refusal(&self.scheme, &error);
        let mut body = self.store.get_opts(&self.key, options).await.map_err(refused)?.into_stream();
        let mut filled = 0;
        while let Some(bytes) = body.try_next().await.map_err(refused)? {
            let end = filled + bytes.len();
            let Some(place) = buffer.get_mut(filled..end) else {
                return Err(io::Error::other("the store sends more bytes than requested; check the endpoint"));
            };
            place.copy_from_slice(&bytes);
            filled = end;
        }
        if filled < buffer.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(filled as u64)
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<Range<u64>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.meta.size);
        end.map(|end| offset..end).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns the stamp of the version that was opened.
    pub(crate) fn stamp(&self) -> FileStamp {
        let written_ns = self.meta.last_modified.timestamp_nanos_opt().map_or(0, i128::from);
        let version = self.meta.e_tag.as_ref().map_or(0, |tag| xxh3_64(tag.as_bytes()).max(1));
        FileStamp { len: self.meta.size, written_ns, changed_ns: written_ns, version }
    }
}

/// Returns the key of a name.
pub(crate) fn key_of(name: RemoteName<'_>, operation: Operation) -> Result<Key, DeviceError> {
    Key::parse(name.key).map_err(|_| {
        let why = "the key has an empty part, or one that is . or ..; rename the object";
        DeviceError::new(operation, name.url.as_ref(), io::Error::new(io::ErrorKind::InvalidInput, why))
    })
}
