//! What a run keeps, so that another of the same command goes on where it was ended: in a folder beside its result,
//! removed with the last step of the work.
//!
//! The folder's file `state` is the truth, replaced as a whole by one rename; of every other file so much counts as the
//! state says, so nothing that a killed run had begun to write is ever taken for done.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Device, FileKind, HeldLock, Lock, ReadFile, WRITE_BUFFER_BYTES, WriteFile};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::context::Context;
use crate::error::{self, Error, Result};
use crate::locks::OWNER_FILE;
use crate::message::{Argument, message, one_line};
use crate::output::parent;

/// How names of such folders begin and end: not as those of folders that go with the next run.
const START: &str = ".adjoin-";
const END: &str = ".resume";
const STATE_FILE: &str = "state";
const NEW_STATE_FILE: &str = "state.new";
/// Version of what is kept. Another program keeps other things: its version counts too.
const VERSION: &str = concat!("1 of ", env!("CARGO_PKG_VERSION"));
/// The digits of the checksum with which a state begins, and the line end behind them.
const SEAL_BYTES: usize = 17;
/// No state comes near this.
const STATE_BYTES_MAX: u64 = 256 << 20;
/// What a value takes of a message at most, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;
/// The head of a frame: the bytes behind it, and their checksum.
const HEAD_BYTES: usize = 4 + 8;
/// Bytes that writing or reading kept files takes, frames of a mebibyte included.
pub(crate) const KEPT_BYTES: u64 = 2 * WRITE_BUFFER_BYTES as u64;

/// Something that decides what is done, and what it is.
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

/// What lies in the file of the state.
#[derive(Serialize, Deserialize)]
struct Envelope<S> {
    version: String,
    facts: Vec<Fact>,
    /// Runs that have begun.
    runs: u64,
    /// Whether one of them found bytes that were not as written.
    is_damaged: bool,
    state: S,
}

/// The folder that a run keeps, which nobody else has, and the state in it.
pub(crate) struct Kept<S> {
    device: Arc<dyn Device>,
    folder: PathBuf,
    _owned: Option<HeldLock>,
    envelope: Envelope<S>,
    /// Whether another run would have something of it.
    is_of_use: bool,
}

impl<S: Serialize + DeserializeOwned + Default> Kept<S> {
    /// What an earlier run that makes `result` has kept, of which the same `facts` hold; or nothing yet.
    ///
    /// # Errors
    /// Where the facts were others or the state is damaged, unless `force` is given: then nothing is kept. Where another run
    /// is at work there, or the device refuses.
    pub(crate) fn open(context: &Context, result: &Path, facts: Vec<Fact>, force: bool) -> Result<Self> {
        let device = context.device.clone();
        let folder = folder_beside(result)?;
        match device.create_folder(&folder) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
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
                    return Err(Error::input(message![words, Argument::Force, " to begin anew"]));
                }
            },
            Err(error) if force && error.kind() == error::ErrorKind::Corrupt => (begun, false),
            Err(error) => return Err(error),
        };
        let mut kept = Self { device, folder, _owned: owned, envelope, is_of_use };
        if !kept.is_of_use {
            kept.clear()?;
        }
        kept.envelope.runs += 1;
        kept.write_state()?;
        kept.device.sync_folder(parent(&kept.folder))?;
        Ok(kept)
    }

    /// What was kept last.
    pub(crate) fn state(&self) -> &S {
        &self.envelope.state
    }

    /// Runs that have begun, this one included.
    pub(crate) fn runs(&self) -> u64 {
        self.envelope.runs
    }

    /// Changes the state; it is durable when this returns, as is what was written to files that were finished before.
    ///
    /// # Errors
    /// Where the device refuses; the state before is then in force.
    pub(crate) fn keep(&mut self, change: impl FnOnce(&mut S)) -> Result<()> {
        change(&mut self.envelope.state);
        self.write_state()?;
        self.is_of_use = true;
        Ok(())
    }

    /// What an error means for who gives the same command again. After one of damaged bytes nobody goes on from here.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        match error.kind() {
            error::ErrorKind::Cancelled if self.is_of_use => {
                let at = self.folder.display();
                Error::stopped(format!("{at} keeps what was done; give the same command again to go on"))
            }
            error::ErrorKind::Corrupt => {
                self.envelope.is_damaged = true;
                let _ = self.write_state(); // the error that led here is the one to report
                error
            }
            _ => error,
        }
    }

    fn write_state(&self) -> Result<()> {
        let text = serde_json::to_string(&self.envelope).expect("a state has no map with other keys than text");
        let mut file = self.device.create(&self.path(NEW_STATE_FILE))?;
        file.append(format!("{:016x}\n{text}", xxh3_64(text.as_bytes())).as_bytes())?;
        file.sync()?;
        drop(file);
        self.device.rename(&self.path(NEW_STATE_FILE), &self.path(STATE_FILE))?;
        Ok(self.device.sync_folder(&self.folder)?)
    }
}

impl<S> Kept<S> {
    /// A file or folder of this name in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Begins a file; one of this name is replaced.
    ///
    /// # Errors
    /// Where the device refuses.
    pub(crate) fn create(&self, name: &str) -> Result<FrameWriter> {
        Ok(FrameWriter { file: self.device.create(&self.path(name))?, bytes: 0 })
    }

    /// Reads the first `bytes` of a file.
    ///
    /// # Errors
    /// Where it has not so many, or the device refuses.
    pub(crate) fn read(&self, name: &str, bytes: u64) -> Result<FrameReader> {
        let (file, path) = (self.open_whole(name, bytes)?, self.path(name));
        Ok(FrameReader { file, path, offset: 0, end: bytes, frame: Vec::new() })
    }

    /// Opens a file that has so many bytes at least.
    ///
    /// # Errors
    /// As [`Kept::read`].
    pub(crate) fn open_whole(&self, name: &str, bytes: u64) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(name);
        let file = match self.device.open(&path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Err(damaged(&path, "it is missing")),
            opened => opened?,
        };
        if file.len() < bytes {
            return Err(damaged(&path, "it is too short"));
        }
        Ok(file)
    }

    /// Keeps the folder even where nothing more is kept: there is something in it.
    pub(crate) fn hold(&mut self) {
        self.is_of_use = true;
    }

    /// Removes it: the work is done.
    ///
    /// # Errors
    /// Where the device refuses.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.is_of_use = false;
        self.remove()
    }

    /// The state first: without it the rest is nothing.
    fn remove(&self) -> Result<()> {
        self.clear()?;
        Ok(self.device.remove_folder(&self.folder)?)
    }

    /// Removes what lies in it, the lock apart.
    fn clear(&self) -> Result<()> {
        if self.device.kind(&self.path(STATE_FILE))?.is_some() {
            self.device.remove(&self.path(STATE_FILE))?;
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

impl<S> Drop for Kept<S> {
    fn drop(&mut self) {
        if !self.is_of_use {
            let _ = self.remove(); // the error that led here is the one to report
        }
    }
}

impl<S> Envelope<S> {
    /// What is not as it was when this was written, in words.
    fn differing(&self, now: &Self) -> Option<String> {
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
                let now = now.expect("one of them is there");
                format!("without {}, which is {} now", now.what, shortened(&now.is))
            }
        })
    }
}

/// The folder of what is kept for a result.
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
    if !(SEAL_BYTES as u64..=STATE_BYTES_MAX).contains(&file.len()) {
        return Err(damaged(&path, "it has an impossible length"));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    let (seal, text) = bytes.split_at(SEAL_BYTES);
    if seal != format!("{:016x}\n", xxh3_64(text)).as_bytes() {
        return Err(damaged(&path, "its checksum is wrong"));
    }
    // Whole, but of another version: of that no more can be told.
    let versioned: Envelope<serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| damaged(&path, &error.to_string()))?;
    let state = match serde_json::from_value(versioned.state) {
        Ok(state) => state,
        Err(error) => return Err(damaged(&path, &error.to_string())),
    };
    let Envelope { version, facts, runs, is_damaged, .. } = versioned;
    Ok(Some(Envelope { version, facts, runs, is_damaged, state }))
}

/// The error of a kept file that is not as written.
pub(crate) fn damaged(path: &Path, why: &str) -> Error {
    let at = path.display();
    let words = format!("{at}, kept by an earlier run, is damaged ({}); give ", shortened(why));
    Error::corrupt(message![words, Argument::Force, " with the next run to begin anew"])
}

fn shortened(text: &str) -> String {
    let text = one_line(text.to_owned());
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A file of frames, each with its checksum.
pub(crate) struct FrameWriter {
    file: Box<dyn WriteFile>,
    bytes: u64,
}

impl FrameWriter {
    /// Appends a frame.
    ///
    /// # Errors
    /// Where the device refuses.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<()> {
        let length = u32::try_from(frame.len()).expect("frames are short");
        self.file.append(&length.to_le_bytes())?;
        self.file.append(&xxh3_64(frame).to_le_bytes())?;
        self.file.append(frame)?;
        self.bytes += (HEAD_BYTES + frame.len()) as u64;
        Ok(())
    }

    /// Makes it durable; returns its bytes.
    ///
    /// # Errors
    /// Where the device refuses.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.file.sync()?;
        Ok(self.bytes)
    }
}

/// Reads frames.
pub(crate) struct FrameReader {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    offset: u64,
    end: u64,
    frame: Vec<u8>,
}

impl FrameReader {
    /// The next frame; none after the last.
    ///
    /// # Errors
    /// Where it is not as written, or the device fails.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.offset == self.end {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        self.read(&mut head)?;
        let (length, checksum) = head.split_first_chunk().expect("it is longer");
        let length = u32::from_le_bytes(*length) as usize;
        if length as u64 > self.end - self.offset {
            return Err(self.damaged());
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(length, 0);
        self.read(&mut frame)?;
        self.frame = frame;
        if xxh3_64(&self.frame).to_le_bytes() != checksum {
            return Err(self.damaged());
        }
        Ok(Some(&self.frame))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() as u64 > self.end - self.offset {
            return Err(self.damaged());
        }
        self.file.read_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// The error of a frame that is not what it must be.
    pub(crate) fn damaged(&self) -> Error {
        damaged(&self.path, &format!("before byte {}", self.offset))
    }
}
