//! Checkpoints of a run, from which another run of the same command can continue. They are in a folder next to the
//! result. The last step of the work removes this folder.
//!
//! The file `state` in the folder determines which other data are valid. It is replaced atomically by a rename. It
//! records the valid length of every other file, so partial writes of a killed run are never used.

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

/// Start and end of the names of checkpoint folders. They differ from the names of private folders, which the next run
/// would remove.
const START: &str = ".adjoin-";
const END: &str = ".resume";
const STATE_FILE: &str = "state";
const NEW_STATE_FILE: &str = "state.new";
/// Version of the format. It includes the version of the program, since other versions may store other data.
const VERSION: &str = concat!("1 of ", env!("CARGO_PKG_VERSION"));
/// Length of the hexadecimal checksum at the start of a state, including its line end.
const SEAL_BYTES: usize = 17;
/// Maximum length of a state, in bytes. Real states are much shorter.
const STATE_BYTES_MAX: u64 = 256 << 20;
/// Maximum length of a value in a message, in characters.
const VALUE_CHARACTERS_MAX: usize = 80;
/// Memory for writing or reading checkpoint files, in bytes. It is sufficient for frames of up to 1 MiB.
pub(crate) const KEPT_BYTES: u64 = 2 * WRITE_BUFFER_BYTES as u64;

/// A parameter of the work and its value. A checkpoint is valid only for work with the same facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    what: String,
    is: String,
}

impl Fact {
    pub(crate) fn new(what: impl Into<String>, is: impl ToString) -> Self {
        Self { what: what.into(), is: is.to_string() }
    }

    /// Returns the name of the parameter.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }
}

/// Contents of the state file.
#[derive(Serialize, Deserialize)]
struct Envelope<S> {
    version: String,
    facts: Vec<Fact>,
    /// Number of runs that have started.
    runs: u64,
    /// Whether a run found damage in the files of the checkpoint.
    is_damaged: bool,
    state: S,
}

/// The checkpoint folder of a run and the state in it. The run has exclusive access to the folder.
pub(crate) struct Checkpoint<S> {
    device: Arc<dyn Device>,
    folder: PathBuf,
    _owned: Option<HeldLock>,
    envelope: Envelope<S>,
    /// Whether another run could continue from this checkpoint.
    is_of_use: bool,
}

impl<S: Serialize + DeserializeOwned + Default> Checkpoint<S> {
    /// Opens the checkpoint for `result` that an earlier run with the same `facts` left. If there is none, creates an
    /// empty one.
    ///
    /// # Errors
    /// Fails if the facts differ or the state is damaged. With `force`, such a checkpoint is discarded instead. Also
    /// fails if another run uses the checkpoint, or if a file cannot be written.
    pub(crate) fn open(context: &Context, result: &Path, facts: Vec<Fact>, force: bool) -> Result<Self> {
        let device = context.device.clone();
        let folder = folder_beside(result)?;
        // If the run continues an earlier one, the folder exists.
        match device.create_folder(&folder) {
            Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // The lock is taken before anything is read, since another run may be replacing the state at this moment.
        let owned = match device.lock(&folder.join(OWNER_FILE))? {
            Lock::Ours(lock) => Some(lock),
            Lock::Unsupported => None,
            Lock::Others(holder) => {
                let at = result.display();
                return Err(Error::input(format!("{at} is being written by {holder}; wait until it is done")));
            }
        };
        let begun = Envelope { version: VERSION.into(), facts, runs: 0, is_damaged: false, state: S::default() };
        let (envelope, is_of_use) = match read_envelope(&*device, &folder) {
            Ok(None) => (begun, false),
            Ok(Some(kept)) if kept.is_damaged && !force => return Err(damaged(&folder, "found by that run")),
            Ok(Some(kept)) if kept.is_damaged => (begun, false),
            Ok(Some(kept)) => match kept.differing(&begun) {
                None => (kept, true),
                Some(_) if force => (begun, false),
                Some(words) => {
                    let words = format!(
                        "{} is the checkpoint of a run that differs in {words}; continue with the same inputs \
                                 and options, or give ",
                        folder.display()
                    );
                    return Err(Error::input(message![words, Argument::Force, " to start again"]));
                }
            },
            Err(error) if force && error.kind() == error::ErrorKind::Corrupt => (begun, false),
            Err(error) => return Err(error),
        };
        let mut kept = Self { device, folder, _owned: owned, envelope, is_of_use };
        // If there is no valid state, the other files in the folder are unknown. They must not mix with new files.
        if !kept.is_of_use {
            kept.clear()?;
        }
        // The run is counted before any work. If it is killed, its work counts as possibly repeated.
        kept.envelope.runs += 1;
        kept.write_state()?;
        // The sync makes the folder itself durable. The files in it are durable already.
        kept.device.sync_folder(Target::parent_of(&kept.folder))?;
        Ok(kept)
    }

    /// Returns the last saved state.
    pub(crate) fn state(&self) -> &S {
        &self.envelope.state
    }

    /// Returns the number of runs that have started, including this one.
    pub(crate) fn runs(&self) -> u64 {
        self.envelope.runs
    }

    /// Changes the state and saves it. After this call, the state is durable, as are all files that were finished
    /// before.
    ///
    /// # Errors
    /// Fails if a file cannot be written. The previous state is then still valid.
    pub(crate) fn keep(&mut self, change: impl FnOnce(&mut S)) -> Result<()> {
        change(&mut self.envelope.state);
        self.write_state()?;
        // The folder is worth keeping from now on. Without saved progress, it is removed when the run ends.
        self.is_of_use = true;
        Ok(())
    }

    /// Adds advice for a user who repeats the command to an error. After an error about damaged bytes, records that no
    /// run may continue from this checkpoint.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        match error.kind() {
            error::ErrorKind::Cancelled if self.is_of_use => {
                let at = self.folder.display();
                Error::stopped(format!("the work so far is kept in {at}; repeat the command to continue"))
            }
            error::ErrorKind::Corrupt => {
                // This is saved in the state, so that later runs fail without reading the damaged bytes again.
                self.envelope.is_damaged = true;
                let _ = self.write_state(); // the earlier error is the one to report
                error
            }
            _ => error,
        }
    }

    fn write_state(&self) -> Result<()> {
        let text = serde_json::to_string(&self.envelope).expect("a state has no map with other keys than text");
        // The state is written under another name first, so that an incomplete write cannot damage the current state.
        let mut file = self.device.create(&self.path(NEW_STATE_FILE))?;
        file.append(format!("{:016x}\n{text}", xxh3_64(text.as_bytes())).as_bytes())?;
        file.sync()?;
        drop(file);
        self.device.rename(&self.path(NEW_STATE_FILE), &self.path(STATE_FILE))?;
        // The rename becomes durable only with the sync of the folder.
        Ok(self.device.sync_folder(&self.folder)?)
    }
}

impl<S> Checkpoint<S> {
    /// Returns the path of a file or folder in the checkpoint folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates a file. If it exists, replaces it.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub(crate) fn create(&self, name: &str) -> Result<FrameWriter> {
        FrameWriter::create(&*self.device, &self.path(name))
    }

    /// Opens a reader of the frames in the first `bytes` bytes of a file.
    ///
    /// # Errors
    /// Fails if the file is shorter, or if it cannot be opened.
    pub(crate) fn read(&self, name: &str, bytes: u64) -> Result<FrameReader> {
        let (file, path) = (self.open_whole(name, bytes)?, self.path(name));
        Ok(FrameReader { path, frames: Frames::new(file, 0..bytes, usize::MAX) })
    }

    /// Opens a file that must have at least `bytes` bytes.
    ///
    /// # Errors
    /// Fails as [`Checkpoint::read`] does.
    pub(crate) fn open_whole(&self, name: &str, bytes: u64) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(name);
        let file = match self.device.open(&path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Err(damaged(&path, "it is missing")),
            opened => opened?,
        };
        // The file may be longer, since a killed run may have written more than its last state names.
        if file.len() < bytes {
            return Err(damaged(&path, "it is too short"));
        }
        Ok(file)
    }

    /// Keeps the folder when the run ends even if no state was saved, because it contains something useful.
    pub(crate) fn hold(&mut self) {
        self.is_of_use = true;
    }

    /// Removes the checkpoint. Called when the work is complete.
    ///
    /// # Errors
    /// Fails if a file cannot be removed.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.is_of_use = false;
        self.remove()
    }

    /// Removes the folder. The state is removed first, since without it the other files are ignored.
    fn remove(&self) -> Result<()> {
        self.clear()?;
        Ok(self.device.remove_folder(&self.folder)?)
    }

    /// Removes the contents of the folder, except for the lock file.
    fn clear(&self) -> Result<()> {
        if self.device.kind(&self.path(STATE_FILE))?.is_some() {
            self.device.remove(&self.path(STATE_FILE))?;
            // Until its removal is durable, the state could reappear after a power failure and name files that no
            // longer exist.
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
    /// Describes the first difference between this envelope and `now`. Returns `None` if there is none.
    fn differing(&self, now: &Self) -> Option<String> {
        // The version is compared first, since another version may be the reason for all other differences.
        let version = |of: &Self| Fact::new("the version", &of.version);
        let then = [&[version(self)], &self.facts[..]].concat();
        let now = [&[version(now)], &now.facts[..]].concat();
        let (then, now) = (0..then.len().max(now.len())).map(|at| (then.get(at), now.get(at))).find(|(a, b)| a != b)?;
        Some(match (then, now) {
            (Some(then), Some(now)) if then.what == now.what => {
                let [was, is] = [then, now].map(|fact| shortened(&fact.is));
                format!("{} ({was} then, {is} now)", then.what)
            }
            (Some(then), _) => format!("{} ({} then, none now)", then.what, shortened(&then.is)),
            (None, now) => {
                let now = now.expect("the facts differ, so one list has this fact");
                format!("{} (none then, {} now)", now.what, shortened(&now.is))
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
    // The length is checked before the buffer is allocated, since a damaged file may have any length.
    if !(SEAL_BYTES as u64..=STATE_BYTES_MAX).contains(&file.len()) {
        return Err(damaged(&path, "it has an impossible length"));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    let (seal, text) = bytes.split_at(SEAL_BYTES);
    if seal != format!("{:016x}\n", xxh3_64(text)).as_bytes() {
        return Err(damaged(&path, "its checksum is wrong"));
    }
    // The bytes are intact, but another version may have written them. `differing` detects that.
    let versioned: Envelope<serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| damaged(&path, &error.to_string()))?;
    let state = match serde_json::from_value(versioned.state) {
        Ok(state) => state,
        Err(error) => return Err(damaged(&path, &error.to_string())),
    };
    let Envelope { version, facts, runs, is_damaged, .. } = versioned;
    Ok(Some(Envelope { version, facts, runs, is_damaged, state }))
}

/// Returns the error for a damaged file of a checkpoint.
pub(crate) fn damaged(path: &Path, why: &str) -> Error {
    let at = path.display();
    let words = format!("{at}, from the checkpoint of an earlier run, is damaged ({}); give ", shortened(why));
    Error::corrupt(message![words, Argument::Force, " to start again"])
}

fn shortened(text: &str) -> String {
    let text = Message::one_line(text.to_owned());
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Writer of a file of frames. Each frame has a checksum.
pub(crate) struct FrameWriter {
    file: Box<dyn WriteFile>,
    bytes: u64,
}

impl FrameWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub(crate) fn create(device: &dyn Device, path: &Path) -> Result<Self> {
        Ok(Self { file: device.create(path)?, bytes: 0 })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<()> {
        let length = u32::try_from(frame.len()).expect("frames are short");
        self.file.append(&frame_head(length, xxh3_64(frame)))?;
        self.file.append(frame)?;
        self.bytes += (FRAME_HEAD_BYTES + frame.len()) as u64;
        Ok(())
    }

    /// Makes the file durable. Returns its length in bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.file.sync()?;
        Ok(self.bytes)
    }
}

/// Reader of a file of frames.
pub(crate) struct FrameReader {
    path: PathBuf,
    frames: Frames,
}

impl FrameReader {
    /// Returns the next frame. Returns `None` after the last frame.
    ///
    /// # Errors
    /// Fails if the frame is damaged or the file cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.frames.is_at_end() {
            return Ok(None);
        }
        match self.frames.read_next()? {
            Some(_) => Ok(Some(self.frames.last())),
            None => Err(self.damaged()),
        }
    }

    /// Returns the error for a damaged frame.
    pub(crate) fn damaged(&self) -> Error {
        damaged(&self.path, &format!("before byte {}", self.frames.offset()))
    }
}
