//! Writes an object, in parts if it is long.

use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adjoin_device::{DeviceError, NewObject, Operation, RemoteName, WriteFile};
use object_store::path::Path as Key;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult};
use tokio::task::JoinHandle;

use crate::ahead::{CLIENT_BYTES, REQUEST_BYTES};
use crate::object::key_of;
use crate::refusal::{changed, refusal};
use crate::stores::{Purpose, Stores};

/// Minimum length of a part, except the last one, in bytes. Stores require at least 5 MiB.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Maximum number of parts of an object that stores allow.
const PARTS_MAX: u64 = 10_000;
/// Maximum number of parts in flight.
const ON_THEIR_WAY_MAX: u64 = 4;
/// Time limit for removing the parts of an unfinished object.
const ABORT_MAX: Duration = Duration::from_secs(10);

/// Returns the length of each part of an object, except the last one. Some stores require that parts have one length.
fn part_bytes(len: u64) -> u64 {
    len.div_ceil(PARTS_MAX).next_multiple_of(1 << 20).max(PART_BYTES_MIN)
}

/// Returns the memory of an upload of `len` bytes: the client, the part that is being filled, and `on_their_way`
/// parts in flight.
fn memory_bytes(len: u64, on_their_way: u64) -> u64 {
    let part = part_bytes(len).min(len);
    CLIENT_BYTES + part + on_their_way * (part + REQUEST_BYTES)
}

/// Returns the minimum memory of an upload of `len` bytes.
pub(crate) fn memory_bytes_min(len: u64) -> u64 {
    // If the object has only one part, no other part is filled while it is sent.
    if len <= part_bytes(len) { CLIENT_BYTES + len + REQUEST_BYTES } else { memory_bytes(len, 1) }
}

/// Upload of an object, which appears when it is synced.
pub(crate) struct Upload {
    stores: Arc<Stores>,
    store: Arc<dyn ObjectStore>,
    key: Key,
    url: PathBuf,
    scheme: String,
    object: NewObject,
    /// The part that is being filled.
    part: Vec<u8>,
    /// Bytes of the parts that were sent.
    sent_bytes: u64,
    /// Present once the first of several parts has been sent.
    multipart: Option<Box<dyn MultipartUpload>>,
    on_their_way: VecDeque<JoinHandle<object_store::Result<()>>>,
    on_their_way_max: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Filling,
    /// A part was refused, so the object can never be complete.
    Failed,
    Complete,
}

impl Upload {
    /// Prepares an upload. No request is sent yet.
    pub(crate) fn new(stores: Arc<Stores>, name: RemoteName<'_>, object: NewObject) -> Result<Self, DeviceError> {
        let store = stores.connect(name, Purpose::Writing)?;
        let (key, url) = (key_of(name, Operation::Create)?, PathBuf::from(name.url));
        if name.is_web() || name.key.is_empty() {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "only objects in a bucket can be written; name one");
            return Err(DeviceError::new(Operation::Create, &url, why));
        }
        let on_their_way_max =
            (1..=ON_THEIR_WAY_MAX).rev().find(|n| memory_bytes(object.len, *n) <= object.memory_bytes);
        Ok(Self {
            stores,
            store,
            key,
            url,
            scheme: name.scheme.to_owned(),
            object,
            part: Vec::new(),
            sent_bytes: 0,
            multipart: None,
            on_their_way: VecDeque::new(),
            on_their_way_max: on_their_way_max.unwrap_or(1) as usize,
            state: State::Filling,
        })
    }

    /// Returns the length that the current part will have.
    fn part_len(&self) -> usize {
        part_bytes(self.object.len).min(self.object.len - self.sent_bytes) as usize
    }

    fn failed(&mut self, error: io::Error) -> DeviceError {
        self.state = State::Failed;
        DeviceError::new(Operation::Write, &self.url, error)
    }

    /// Returns an error after a failure, after the end, and in a forked child, where the threads do not exist.
    fn check_open(&mut self) -> Result<(), DeviceError> {
        let why = match self.state {
            State::Filling if self.stores.is_of_this_process() => return Ok(()),
            State::Filling => "a parent process began it; write it in the child",
            State::Failed => "an earlier part was refused",
            State::Complete => "it is complete",
        };
        Err(DeviceError::new(Operation::Write, &self.url, io::Error::other(why)))
    }

    /// Sends the part that was filled.
    fn send_part(&mut self) -> Result<(), DeviceError> {
        let stores = self.stores.clone();
        if self.multipart.is_none() {
            let begun = stores.runtime().block_on(self.store.put_multipart(&self.key));
            self.multipart = Some(begun.map_err(|error| self.failed(refusal(&self.scheme, &error)))?);
        }
        while self.on_their_way.len() >= self.on_their_way_max {
            self.wait_for_part()?;
        }
        let part = take(&mut self.part);
        self.sent_bytes += part.len() as u64;
        let multipart = self.multipart.as_mut().expect("it was begun above");
        let sent = multipart.put_part(PutPayload::from(part));
        self.on_their_way.push_back(stores.runtime().spawn(sent));
        Ok(())
    }

    /// Waits for the oldest part in flight.
    fn wait_for_part(&mut self) -> Result<(), DeviceError> {
        let Some(part) = self.on_their_way.pop_front() else { return Ok(()) };
        match self.stores.clone().runtime().block_on(part) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failed(refusal(&self.scheme, &error))),
            Err(stopped) => Err(self.failed(io::Error::other(stopped))),
        }
    }

    /// Makes the object appear.
    fn complete(&mut self) -> Result<PutResult, DeviceError> {
        let stores = self.stores.clone();
        let put = if self.multipart.is_some() {
            while !self.on_their_way.is_empty() {
                self.wait_for_part()?;
            }
            let multipart = self.multipart.as_mut().expect("it is there, as checked above");
            stores.runtime().block_on(async {
                // An object of several parts cannot be completed under a condition. So this check does not exclude
                // that another writer creates the object at the same time.
                if !self.object.replace && exists(&*self.store, &self.key).await? {
                    let (path, source) = (self.key.to_string(), "it exists".into());
                    return Err(Error::AlreadyExists { path, source });
                }
                multipart.complete().await
            })
        } else {
            let payload = PutPayload::from(take(&mut self.part));
            let (store, key) = (&self.store, &self.key);
            stores.runtime().block_on(async {
                let mode = if self.object.replace { PutMode::Overwrite } else { PutMode::Create };
                match store.put_opts(key, payload.clone(), mode.clone().into()).await {
                    // Some servers do not support conditions. The caller has checked that the object does not exist.
                    Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) if mode == PutMode::Create => {
                        store.put(key, payload).await
                    }
                    put => put,
                }
            })
        };
        put.map_err(|error| self.failed(refusal(&self.scheme, &error)))
    }

    /// Compares the object in the store with the object that was sent.
    fn check(&mut self, put: &PutResult) -> Result<(), DeviceError> {
        let meta = self.stores.clone().runtime().block_on(self.store.head(&self.key));
        let meta = meta.map_err(|error| self.failed(refusal(&self.scheme, &error)))?;
        if put.e_tag.is_some() && meta.e_tag != put.e_tag {
            return Err(self.failed(changed()));
        }
        if meta.size != self.object.len {
            let why = format!("the store has {} bytes of {}; run again", meta.size, self.object.len);
            return Err(self.failed(io::Error::other(why)));
        }
        Ok(())
    }
}

async fn exists(store: &dyn ObjectStore, key: &Key) -> object_store::Result<bool> {
    match store.head(key).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

impl WriteFile for Upload {
    fn append(&mut self, mut bytes: &[u8]) -> Result<(), DeviceError> {
        self.check_open()?;
        while !bytes.is_empty() {
            let len = self.part_len();
            assert!(self.part.len() < len, "an object has the length that was announced");
            // The whole part is allocated at once, since a growing vector would hold its bytes twice.
            self.part.reserve_exact(len - self.part.len());
            let (some, rest) = bytes.split_at(bytes.len().min(len - self.part.len()));
            self.part.extend_from_slice(some);
            bytes = rest;
            let is_only_part = self.sent_bytes == 0 && len as u64 == self.object.len;
            if self.part.len() == len && !is_only_part {
                self.send_part()?;
            }
        }
        Ok(())
    }

    /// Does nothing: the bytes of a part are sent together.
    fn flush(&mut self) -> Result<(), DeviceError> {
        self.check_open()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.check_open()?;
        let appended_bytes = self.sent_bytes + self.part.len() as u64;
        assert_eq!(appended_bytes, self.object.len, "an object has the length that was announced");
        let put = self.complete()?;
        self.check(&put)?;
        self.state = State::Complete;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut multipart) = self.multipart.take().filter(|_| self.state != State::Complete) else { return };
        if !self.stores.is_of_this_process() {
            return;
        }
        // Tries to remove the parts that were sent. Parts that remain cost money, although they are invisible.
        let on_their_way = take(&mut self.on_their_way);
        self.stores.runtime().block_on(async {
            on_their_way.iter().for_each(JoinHandle::abort);
            let aborted = async {
                for part in on_their_way {
                    let _ = part.await; // aborted, or sent
                }
                multipart.abort().await
            };
            let _ = tokio::time::timeout(ABORT_MAX, aborted).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_suffice_for_the_longest_object_and_memory_for_the_parts() {
        for (len, part) in [(1, 8 << 20), (80 << 30, 9 << 20), (5 << 40, 525 << 20)] {
            assert_eq!(part_bytes(len), part, "{len}");
            assert!(len.div_ceil(part_bytes(len)) <= PARTS_MAX);
            assert!(memory_bytes_min(len) <= memory_bytes(len, 1));
        }
        assert_eq!(memory_bytes_min(100), CLIENT_BYTES + REQUEST_BYTES + 100);
    }
}
