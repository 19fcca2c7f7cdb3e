//! Uploads files of results to object stores.

use std::path::Path;

use adjoin_device::{FileKind, Location, NewObject};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::output::Target;

/// Bytes of a file that are passed on at once.
const PIECE_BYTES: usize = 1 << 20;
/// Length of a file whose upload holds as much as any of common lengths.
const COMMON_BYTES: u64 = 1 << 30;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "uploading a result";

impl Target {
    /// Refuses a URL at which a result cannot appear, and a budget that does not hold its upload.
    ///
    /// # Errors
    /// If the URL is taken and `force` is false, names no object of a bucket, or the store or the budget refuses.
    pub fn check_object(context: &Context, url: &Path, force: bool) -> Result<()> {
        drop(context.reserve(upload_bytes(context, COMMON_BYTES), PURPOSE)?);
        let Location::Remote(name) = Location::of(url) else { return Ok(()) };
        let at = name.public_url();
        if name.is_web() || name.key.is_empty() || name.may_hold_secret() {
            return Err(Error::option(format!("{at} is no name of an object in a bucket; name one for the result")));
        }
        match context.device.kind(url)? {
            Some(FileKind::Folder) => Err(Error::input(format!("{at} is a folder; name a file for the result"))),
            Some(FileKind::File | FileKind::Other) if !force => {
                Err(Error::input(message![format!("{at} exists already; give "), Argument::Force, " to replace it"]))
            }
            _ => Ok(()),
        }
    }

    /// Copies a file to an object, which appears whole or not at all. Returns its bytes.
    ///
    /// # Errors
    /// If the file cannot be read, the object exists by now and `force` is false, or the store or the budget refuses.
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

fn upload_bytes(context: &Context, len: u64) -> u64 {
    PIECE_BYTES as u64 + context.device.object_writing_bytes(len)
}
