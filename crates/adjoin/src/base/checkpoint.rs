//! Checkpoints of a run, from which another run of the same command continues. They are in a folder next to the result,
//! which is removed with the last step of the work.
//!
//! The file `state` in the folder is authoritative, and is replaced atomically by a rename. Of every other file, only
//! the length recorded in the state counts, so partial writes of a killed run are never used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Device, FileKind, HeldLock, Lock, ReadFile, WRITE_BUFFER_BYTES, WriteFile};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::base::context::Context;
use crate::base::error::{self, Error, Result};
use crate::base::frames::{FRAME_HEAD_BYTES, Frames, frame_head};
use crate::base::locks::OWNER_FILE;
use crate::base::message::{Argument, Message, message};
use crate::base::output::Target;

/// Prefix and suffix of the names of such folders. They differ from names of own folders, which the next run removes.
const START: &str = ".adjoin-";
const END: &str = ".resume";
const STATE_FILE: &str = "state";
const NEW_STATE_FILE: &str = "state.new";
/// Version of the checkpoint. It includes the program's version, since other versions may store other data.
const VERSION: &str = concat!("1 of ", env!("CARGO_PKG_VERSION"));
/// Bytes of the hexadecimal checksum at the start of a state, and its line end.
const SEAL_BYTES: usize = 17;
/// Upper limit for the size of a state, far above real sizes.
const STATE_BYTES_MAX: u64 = 256 << 20;
/// Most characters of a value in a message.
const VALUE_CHARACTERS_MAX: usize = 80;
/// Bytes needed to write or read checkpoint files, including frames of up to one mebibyte.
pub(crate) const KEPT_BYTES: u64 = 2 * WRITE_BUFFER_BYTES as u64;

/// A parameter that determines the work, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    what: String,
    is: String,
}

impl Fact {
    pub(crate) fn new(what: impl Into<String>, is: impl ToString) -> Self {
        Self { what: what.into(), is: is.to_string() }
    }
}

/// Contents of the state file.
#[derive(Serialize, Deserialize)]
struct Envelope<S> {
    version: String,
    facts: Vec<Fact>,
    /// Number of runs that have begun.
    runs: u64,
    /// Whether a run found damaged bytes.
    is_damaged: bool,
    state: S,
}

/// The checkpoint folder of a run, which owns it exclusively, and the state in it.
pub(crate) struct Checkpoint<S> {
    device: Arc<dyn Device>,
    folder: PathBuf,
    _owned: Option<HeldLock>,
    envelope: Envelope<S>,
    /// Whether another run could continue from it.
    is_of_use: bool,
}

impl<S: Serialize + DeserializeOwned + Default> Checkpoint<S> {
    /// Opens the checkpoint that an earlier run with the same `facts` left for `result`, or creates an empty one.
    ///
    /// # Errors
    /// If the facts differ or the state is damaged, unless `force` is given, which discards the checkpoint. If another
    /// run is working there, or a file cannot be written.
    pub(crate) fn open(context: &Context, result: &Path, facts: Vec<Fact>, force: bool) -> Result<Self> {
        let device = context.device.clone();
        let folder = folder_beside(result)?;
        // The folder of an earlier run is the normal case of a run that continues.
        match device.create_folder(&folder) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // Before anything is read: another run may be replacing the state right now.
        let owned = match device.lock(&folder.join(OWNER_FILE))? {
            Lock::Ours(lock) => Some(lock),
            Lock::Unsupported => None,
            Lock::Others(holder) => {
                let at = result.display();
                return Err(Error::input(format!("{at} is being made by {holder}; wait until that is done")));
            }
        };
        let begun = Envelope { version: VERSION.into(), facts, runs: 0, is_damaged: false, state: S::default() };
        let (envelope, is_of_use) = match read_envelope(&*device, &folder) {
            Ok(None) => (begun, false),
            Ok(Some(kept)) if kept.is_damaged && !force => return Err(damaged(&folder, "as that run has found")),
            Ok(Some(kept)) if kept.is_damaged => (begun, false),
            Ok(Some(kept)) => match kept.differing(&begun) {
                None => (kept, true),
                Some(_) if force => (begun, false),
                Some(words) => {
                    let words =
                        format!("{} keeps what a run has done {words}; give the same again, or ", folder.display());
                    return Err(Error::input(message![words, Argument::Force, " to start again"]));
                }
            },
            Err(error) if force && error.kind() == error::ErrorKind::Corrupt => (begun, false),
            Err(error) => return Err(error),
        };
        let mut kept = Self { device, folder, _owned: owned, envelope, is_of_use };
        // Leftovers without a valid state are unknown, so they must not mix with new files.
        if !kept.is_of_use {
            kept.clear()?;
        }
        // Counted before any work, so that the work of a run that is killed counts as possibly repeated.
        kept.envelope.runs += 1;
        kept.write_state()?;
        // The folder itself must survive a loss of power, not only the files in it.
        kept.device.sync_folder(Target::parent_of(&kept.folder))?;
        Ok(kept)
    }

    /// Returns the last saved state.
    pub(crate) fn state(&self) -> &S {
        &self.envelope.state
    }

    /// Returns the number of runs that have begun, including this one.
    pub(crate) fn runs(&self) -> u64 {
        self.envelope.runs
    }

    /// Changes and saves the state. When this returns, the state is durable, as are files that were finished before.
    ///
    /// # Errors
    /// If a file cannot be written; the previous state then remains in force.
    pub(crate) fn keep(&mut self, change: impl FnOnce(&mut S)) -> Result<()> {
        change(&mut self.envelope.state);
        self.write_state()?;
        // Set only now: without durable progress, the folder is removed when the run ends.
        self.is_of_use = true;
        Ok(())
    }

    /// Adds advice to an error for a user who repeats the command. After an error about damaged bytes, no run continues
    /// from this checkpoint.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        match error.kind() {
            error::ErrorKind::Cancelled if self.is_of_use => {
                let at = self.folder.display();
                Error::stopped(format!("{at} keeps what was done; give the same command again to go on"))
            }
            error::ErrorKind::Corrupt => {
                // Kept in the state, so that later runs are refused without reading the damaged bytes again.
                self.envelope.is_damaged = true;
                let _ = self.write_state(); // the earlier error is the one to report
                error
            }
            _ => error,
        }
    }

    fn write_state(&self) -> Result<()> {
        let text = serde_json::to_string(&self.envelope).expect("a state has no map with other keys than text");
        // Written under another name first: a torn write must not damage the state in force.
        let mut file = self.device.create(&self.path(NEW_STATE_FILE))?;
        file.append(format!("{:016x}\n{text}", xxh3_64(text.as_bytes())).as_bytes())?;
        file.sync()?;
        drop(file);
        self.device.rename(&self.path(NEW_STATE_FILE), &self.path(STATE_FILE))?;
        // The rename itself is durable only once the folder is.
        Ok(self.device.sync_folder(&self.folder)?)
    }
}

impl<S> Checkpoint<S> {
    /// Returns the path of a file or folder in the checkpoint folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates a file; an existing one is replaced.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn create(&self, name: &str) -> Result<FrameWriter> {
        FrameWriter::create(&*self.device, &self.path(name))
    }

    /// Reads the first `bytes` of a file.
    ///
    /// # Errors
    /// If it is shorter, or a file cannot be written.
    pub(crate) fn read(&self, name: &str, bytes: u64) -> Result<FrameReader> {
        let (file, path) = (self.open_whole(name, bytes)?, self.path(name));
        Ok(FrameReader { path, frames: Frames::new(file, 0..bytes, usize::MAX) })
    }

    /// Opens a file of at least `bytes` bytes.
    ///
    /// # Errors
    /// As [`Checkpoint::read`].
    pub(crate) fn open_whole(&self, name: &str, bytes: u64) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(name);
        let file = match self.device.open(&path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Err(damaged(&path, "it is missing")),
            opened => opened?,
        };
        // A longer file is expected: a killed run may have written more than its last state names.
        if file.len() < bytes {
            return Err(damaged(&path, "it is too short"));
        }
        Ok(file)
    }

    /// Preserves the folder even if no state is saved, because it contains something useful.
    pub(crate) fn hold(&mut self) {
        self.is_of_use = true;
    }

    /// Removes the checkpoint after the work is done.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.is_of_use = false;
        self.remove()
    }

    /// Removes the folder, starting with the state: without it, the rest is ignored.
    fn remove(&self) -> Result<()> {
        self.clear()?;
        Ok(self.device.remove_folder(&self.folder)?)
    }

    /// Removes the contents of the folder except the lock.
    fn clear(&self) -> Result<()> {
        if self.device.kind(&self.path(STATE_FILE))?.is_some() {
            self.device.remove(&self.path(STATE_FILE))?;
            // Until the removal is durable, the state may return and name files that no longer exist.
            self.device.sync_folder(&self.folder)?;
        }
        for name in self.device.list_only(&self.folder, &|name| name != OWNER_FILE)? {
            let path = self.folder.join(name);
            match self.device.kind(&path)? {
                Some(FileKind::Folder) => self.device.remove_folder(&path)?,
                _ => self.device.remove(&path)?,
            }
        }
        Ok(())
    }
}

impl<S> Drop for Checkpoint<S> {
    fn drop(&mut self) {
        if !self.is_of_use {
            let _ = self.remove(); // the earlier error is the one to report
        }
    }
}

impl<S> Envelope<S> {
    /// Describes the first difference from `now`.
    fn differing(&self, now: &Self) -> Option<String> {
        // First, since only the first difference is named and another version may explain all others.
        let version = |of: &Self| Fact::new("the version", &of.version);
        let then = [&[version(self)], &self.facts[..]].concat();
        let now = [&[version(now)], &now.facts[..]].concat();
        let (then, now) = (0..then.len().max(now.len())).map(|at| (then.get(at), now.get(at))).find(|(a, b)| a != b)?;
        Some(match (then, now) {
            (Some(then), Some(now)) if then.what == now.what => {
                let [was, is] = [then, now].map(|fact| shortened(&fact.is));
                format!("where {} was {was}, and it is {is} now", then.what)
            }
            (Some(then), _) => format!("where {} was {}, which it is not now", then.what, shortened(&then.is)),
            (None, now) => {
                let now = now.expect("the facts differ, so one list has this fact");
                format!("without {}, which is {} now", now.what, shortened(&now.is))
            }
        })
    }
}

/// Returns the checkpoint folder of a result.
fn folder_beside(result: &Path) -> Result<PathBuf> {
    let Some(name) = result.file_name() else {
        let at = result.display();
        return Err(Error::option(format!("{at} is not a file name; name a file for the result")));
    };
    let mut of_folder = std::ffi::OsString::from(START);
    of_folder.push(name);
    of_folder.push(END);
    Ok(result.with_file_name(of_folder))
}

fn read_envelope<S: DeserializeOwned>(device: &dyn Device, folder: &Path) -> Result<Option<Envelope<S>>> {
    let path = folder.join(STATE_FILE);
    if device.kind(&path)?.is_none() {
        return Ok(None);
    }
    let file = device.open(&path)?;
    // Checked before the buffer is allocated, since a damaged file may have any length.
    if !(SEAL_BYTES as u64..=STATE_BYTES_MAX).contains(&file.len()) {
        return Err(damaged(&path, "it has an impossible length"));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    let (seal, text) = bytes.split_at(SEAL_BYTES);
    if seal != format!("{:016x}\n", xxh3_64(text)).as_bytes() {
        return Err(damaged(&path, "its checksum is wrong"));
    }
    // The bytes are as written, but possibly by another version, which `differing` detects.
    let versioned: Envelope<serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| damaged(&path, &error.to_string()))?;
    let state = match serde_json::from_value(versioned.state) {
        Ok(state) => state,
        Err(error) => return Err(damaged(&path, &error.to_string())),
    };
    let Envelope { version, facts, runs, is_damaged, .. } = versioned;
    Ok(Some(Envelope { version, facts, runs, is_damaged, state }))
}

/// Returns the error of a checkpoint file that differs from what was written.
pub(crate) fn damaged(path: &Path, why: &str) -> Error {
    let at = path.display();
    let words = format!("{at}, kept by an earlier run, is damaged ({}); give ", shortened(why));
    Error::corrupt(message![words, Argument::Force, " with the next run to start again"])
}

fn shortened(text: &str) -> String {
    let text = Message::one_line(text.to_owned());
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Writes a file of frames, each with a checksum.
pub(crate) struct FrameWriter {
    file: Box<dyn WriteFile>,
    bytes: u64,
}

impl FrameWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn create(device: &dyn Device, path: &Path) -> Result<Self> {
        Ok(Self { file: device.create(path)?, bytes: 0 })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<()> {
        let length = u32::try_from(frame.len()).expect("frames are short");
        self.file.append(&frame_head(length, xxh3_64(frame)))?;
        self.file.append(frame)?;
        self.bytes += (FRAME_HEAD_BYTES + frame.len()) as u64;
        Ok(())
    }

    /// Makes the file durable; returns its length in bytes.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.file.sync()?;
        Ok(self.bytes)
    }
}

/// Reads a file of frames.
pub(crate) struct FrameReader {
    path: PathBuf,
    frames: Frames,
}

impl FrameReader {
    /// Returns the next frame; `None` after the last.
    ///
    /// # Errors
    /// If the frame differs from what was written, or a file cannot be written.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.frames.is_at_end() {
            return Ok(None);
        }
        match self.frames.read_next()? {
            Some(_) => Ok(Some(self.frames.last())),
            None => Err(self.damaged()),
        }
    }

    /// Returns the error of an invalid frame.
    pub(crate) fn damaged(&self) -> Error {
        damaged(&self.path, &format!("before byte {}", self.frames.offset()))
    }
}
