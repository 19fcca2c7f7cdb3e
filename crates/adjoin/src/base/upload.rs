//! Writes results to object stores: to a temporary file first, which is then uploaded.

use std::path::{Path, PathBuf};

use adjoin_device::{FileKind, Location, NewObject, Reservation};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::output::{Draft, OutputWriter, Target};

/// Number of bytes to copy at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Length of a file, in bytes. The upload of a file with another common length does not take more memory.
const COMMON_BYTES: u64 = 1 << 30;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "uploading a result";

impl Target {
    /// Checks that the budget is large enough for an upload.
    ///
    /// # Errors
    /// Fails if it is too small.
    pub fn check_upload_memory(context: &Context) -> Result<()> {
        context.reserve(upload_bytes(context, COMMON_BYTES), PURPOSE).map(drop)
    }

    /// Checks that a result can be uploaded to a URL.
    ///
    /// # Errors
    /// Fails if the object exists and `force` is false, if the URL does not name an object in a bucket, or if the
    /// object store denies access.
    pub fn check_object(context: &Context, url: &Path, force: bool) -> Result<()> {
        let Location::Remote(name) = Location::of(url) else { return Ok(()) };
        let at = name.public_url();
        if name.is_web() || name.key.is_empty() || name.may_hold_secret() {
            return Err(Error::option(format!(
                "{at} is not the name of an object in a bucket; name one for the \
                                              result"
            )));
        }
        match context.device.kind(url)? {
            Some(FileKind::Folder) => Err(Error::input(format!("{at} is a folder; name a file for the result"))),
            Some(FileKind::File | FileKind::Other) if !force => {
                Err(Error::input(message![format!("{at} exists already; give "), Argument::Force, " to replace it"]))
            }
            _ => Ok(()),
        }
    }

    /// Copies a file to an object, which appears completely or not at all. Returns its length in bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if the object exists and `force` is false, if the object store refuses it, or
    /// if the budget is too small.
    pub fn upload(context: &Context, file: &Path, url: &Path, force: bool) -> Result<u64> {
        let from = context.device.open(file)?;
        let len = from.len();
        let _memory = context.reserve(upload_bytes(context, len), PURPOSE)?;
        let memory_bytes = context.device.object_writing_bytes(len);
        let mut to = context.device.create_object(url, NewObject { len, memory_bytes, replace: force })?;
        context.progress.begin("upload", "bytes", len);
        let mut piece = vec![0; PIECE_BYTES];
        for start in (0..len).step_by(PIECE_BYTES) {
            context.cancel.check()?;
            let some = &mut piece[..(len - start).min(PIECE_BYTES as u64) as usize];
            from.read_at(start, some)?;
            to.append(some)?;
            context.progress.advance(start + some.len() as u64);
        }
        to.sync()?;
        Ok(len)
    }
}

/// A result that is being written: a file of this machine, or an object. It appears when it is published.
pub(crate) struct ResultDraft {
    file: Draft,
    /// The object, if the result is in an object store.
    object: Option<ObjectDraft>,
}

impl ResultDraft {
    /// Checks that a result can be written to `path`.
    ///
    /// # Errors
    /// Fails as [`Target::check_free`] or [`Target::check_object`] does.
    pub(crate) fn check(context: &Context, path: &Path, force: bool) -> Result<()> {
        match is_object(context, path) {
            true => Target::check_object(context, path, force),
            false => Target::check_free(&*context.device, path, force),
        }
    }

    /// Creates a result. Returns it with a writer for its contents.
    ///
    /// # Errors
    /// Fails as [`Self::check`] does, or if a file cannot be written.
    pub(crate) fn create(context: &Context, path: &Path, force: bool) -> Result<(Self, OutputWriter)> {
        let object = is_object(context, path).then(|| ObjectDraft::create(context, path, force)).transpose()?;
        let local = object.as_ref().map_or_else(|| path.to_owned(), ObjectDraft::file);
        let (file, output) = Draft::create(context, &local, force)?;
        Ok((Self { file, object }, output))
    }

    /// Publishes the result, whose writer has been synced.
    ///
    /// # Errors
    /// Fails if the name was taken in the meantime and `force` was false, or as [`Target::upload`] does.
    pub(crate) fn publish(self) -> Result<()> {
        self.file.publish()?;
        self.object.map_or(Ok(()), ObjectDraft::publish)
    }

    /// Returns the memory that a result takes while it is written and published, in addition to the buffers of its
    /// writer.
    pub(crate) fn memory_bytes(context: &Context, path: &Path) -> u64 {
        if is_object(context, path) { upload_bytes(context, COMMON_BYTES) } else { 0 }
    }
}

/// Returns whether a result at `path` is an object that the device can write.
fn is_object(context: &Context, path: &Path) -> bool {
    Location::is_remote(path) && context.device.reads_object_stores()
}

/// A temporary file that is uploaded to an object when it is complete.
struct ObjectDraft {
    context: Context,
    folder: OwnFolder,
    url: PathBuf,
    force: bool,
    /// Memory of the upload.
    memory: Reservation,
}

impl ObjectDraft {
    /// Creates a folder for the temporary file, and reserves the memory of the upload.
    ///
    /// # Errors
    /// Fails as [`Target::check_object`] does, if the budget is too small, or if the folder cannot be created.
    fn create(context: &Context, url: &Path, force: bool) -> Result<Self> {
        Target::check_object(context, url, force)?;
        let memory = context.reserve(upload_bytes(context, COMMON_BYTES), PURPOSE)?;
        let folder = OwnFolder::create(&context.device, &context.temporary(None), "upload")?;
        Ok(Self { context: context.clone(), folder, url: url.to_owned(), force, memory })
    }

    /// Returns the path of the temporary file.
    fn file(&self) -> PathBuf {
        self.folder.path().join("object")
    }

    /// Uploads the file, and removes it.
    ///
    /// # Errors
    /// Fails as [`Target::upload`] does.
    fn publish(self) -> Result<()> {
        let file = self.file();
        let Self { context, folder: _folder, url, force, memory } = self;
        drop(memory); // the upload reserves what it needs
        Target::upload(&context, &file, &url, force).map(drop)
    }
}

fn upload_bytes(context: &Context, len: u64) -> u64 {
    PIECE_BYTES as u64 + context.device.object_writing_bytes(len)
}
