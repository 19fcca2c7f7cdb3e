//! The edge to the Parquet and Arrow crates: their errors and panics become errors that name the file.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};

/// Runs a foreign reader on bytes from outside.
///
/// The crates assert and unwrap on what they decode, so damaged bytes can make them panic: arrow-ipc in `fb_to_schema`,
/// arrow-buffer in `BooleanBuffer::new` under a batch whose rows outnumber its bits, parquet in
/// `ColumnChunkMetaData::byte_range`. What was half read is never used again: callers drop the reader after an error.
///
/// # Errors
/// Where the reader fails or panics; `place` says where in the file.
pub(super) fn guarded<T, E: Display>(
    path: &Path,
    place: impl Display,
    read: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    let fault = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_message(panic.as_ref()),
    };
    Err(damaged(path, place, &fault))
}

/// The error of a file whose bytes are not what its format asks for.
pub(super) fn damaged(path: &Path, place: impl Display, fault: &str) -> Error {
    Error::input(format!(
        "{}: cannot read {place}: {fault}; the file is damaged: write or copy it again",
        path.display()
    ))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the reader gave up").to_owned()
}
