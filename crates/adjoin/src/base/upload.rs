//! Uploads results to object stores.

use std::path::{Path, PathBuf};

use adjoin_device::{FileKind, Location, NewObject, Reservation};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::output::Target;

/// Number of bytes to copy at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Length of a file, in bytes. The upload of a file with another common length does not take more memory.
const COMMON_BYTES: u64 = 1 << 30;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "uploading a result";

impl Target {
    /// Checks that a result can be uploaded to a URL, and that the budget is large enough for the upload.
    ///
    /// # Errors
    /// Fails if the object exists and `force` is false, if the URL does not name an object in a bucket, if the object
    /// store denies access, or if the budget is too small.
    pub fn check_object(context: &Context, url: &Path, force: bool) -> Result<()> {
        drop(context.reserve(upload_bytes(context, COMMON_BYTES), PURPOSE)?);
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

/// A temporary file that is uploaded to an object when it is complete.
pub(crate) struct ObjectDraft {
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
    /// Fails as [`Target::check_object`] does, or if the folder cannot be created.
    pub(crate) fn create(context: &Context, url: &Path, force: bool) -> Result<Self> {
        Target::check_object(context, url, force)?;
        let memory = context.reserve(upload_bytes(context, COMMON_BYTES), PURPOSE)?;
        let folder = OwnFolder::create(&context.device, &context.temporary(None), "upload")?;
        Ok(Self { context: context.clone(), folder, url: url.to_owned(), force, memory })
    }

    /// Returns the path of the temporary file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("object")
    }

    /// Uploads the file, and removes it.
    ///
    /// # Errors
    /// Fails as [`Target::upload`] does.
    pub(crate) fn publish(self) -> Result<()> {
        let file = self.file();
        let Self { context, folder: _folder, url, force, memory } = self;
        drop(memory); // the upload reserves what it needs
        Target::upload(&context, &file, &url, force).map(drop)
    }
}

fn upload_bytes(context: &Context, len: u64) -> u64 {
    PIECE_BYTES as u64 + context.device.object_writing_bytes(len)
}
