//! Open files of the simulated device.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::{Fate, State};
use crate::aligned::BLOCK_BYTES;
use crate::device::{FileStamp, ReadFile, WriteFile};
use crate::error::{DeviceError, Operation};

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct SimulatedReader {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) path: PathBuf,
    pub(super) file: u64,
    pub(super) len: u64,
}

impl SimulatedReader {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let mut state = lock(&self.state);
        let fate = state.begin(Operation::Read, &self.path, buffer.len() as u64)?;
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let wanted = if fate == Fate::Half { buffer.len() / 2 } else { buffer.len() };
        let end = offset.checked_add(buffer.len() as u64).ok_or_else(ended)?;
        // As on a real machine, an empty read succeeds at any offset.
        if !buffer.is_empty() {
            let there = state.readable(self.file).get(offset as usize..end as usize).ok_or_else(ended)?;
            buffer[..wanted].copy_from_slice(&there[..wanted]);
        }
        if fate == Fate::Whole { Ok(wanted as u64) } else { Err(ended()) }
    }
}

impl ReadFile for SimulatedReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        let state = lock(&self.state);
        let (len, written_ns) = (state.readable(self.file).len() as u64, state.written_at(self.file));
        Ok(FileStamp { len, written_ns, changed_ns: written_ns, version: 0 })
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        BLOCK_BYTES
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        self.read(offset, buffer).map_err(|source| DeviceError::read(&self.path, offset, source))
    }
}

/// The lock of a file. It is released when this is dropped.
pub(super) struct SimulatedLock {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) file: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        lock(&self.state).unlock(self.file);
    }
}

pub(super) struct SimulatedWriter {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    file: u64,
    offset: u64,
    failed: bool,
}

impl SimulatedWriter {
    pub(super) fn new(state: Arc<Mutex<State>>, path: PathBuf, file: u64, offset: u64) -> Self {
        Self { state, path, file, offset, failed: false }
    }

    /// Performs an operation, unless a fault prevents it or an earlier operation on this file failed.
    fn attempt(
        &mut self,
        operation: Operation,
        bytes: u64,
        work: impl FnOnce(&mut State, Fate) -> io::Result<()>,
    ) -> Result<(), DeviceError> {
        let mut state = lock(&self.state);
        let fate = state.begin(operation, &self.path, bytes);
        let done = match fate {
            _ if self.failed => Err(io::Error::other("an earlier write to it failed")),
            Ok(fate) => work(&mut state, fate),
            Err(error) => Err(error),
        };
        self.failed |= done.is_err();
        done.map_err(|source| DeviceError::new(operation, &self.path, source))
    }
}

impl WriteFile for SimulatedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        let (file, offset) = (self.file, self.offset);
        self.attempt(Operation::Write, bytes.len() as u64, |state, fate| state.write(file, offset, bytes, fate))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let (file, offset) = (self.file, self.offset);
        self.attempt(Operation::Flush, 0, |state, _| {
            state.show(file, offset);
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        let (file, offset) = (self.file, self.offset);
        self.attempt(Operation::Sync, 0, |state, _| {
            state.show(file, offset);
            state.sync_file(file);
            Ok(())
        })
    }
}

impl Drop for SimulatedWriter {
    fn drop(&mut self) {
        lock(&self.state).show_all(self.file);
    }
}
