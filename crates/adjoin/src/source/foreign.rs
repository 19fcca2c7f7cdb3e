//! Isolates third-party crates such as Parquet and Arrow. Their errors and panics become errors that name the file.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::base::error::{Error, Result};

/// Runs a third-party reader on bytes that may be damaged.
///
/// The crates use assertions and unwraps on decoded data, so damaged bytes can cause a panic. Examples are
/// `fb_to_schema` in arrow-ipc, `BooleanBuffer::new` in arrow-buffer for a batch with more rows than bits, and
/// `ColumnChunkMetaData::byte_range` in parquet. Partial results are never used, since callers drop the reader after
/// an error.
///
/// # Errors
/// Fails if the reader fails or panics. `place` names the part of the file that was read, for the message.
pub(crate) fn guarded<T, E: Display>(
    path: &Path,
    place: impl Display,
    read: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    // The guard is dropped before the error is built, so a panic in our own code is printed as usual.
    let caught = {
        let _guard = Guard::begin();
        catch_unwind(AssertUnwindSafe(read))
    };
    let fault = match caught {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_message(panic.as_ref()),
    };
    Err(damaged(path, place, &fault))
}

thread_local! {
    /// Number of third-party readers that are running on this thread.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
}

impl Error {
    /// Returns whether a third-party reader is running on this thread. Its panics become errors. A panic hook can call
    /// this function to avoid printing the text of such an error a second time.
    pub fn replaces_panic() -> bool {
        // If a thread panics while it ends, its thread-local storage may already be destroyed.
        GUARDS.try_with(Cell::get).is_ok_and(|guards| guards > 0)
    }
}

/// Guard that counts a running third-party reader.
struct Guard;

impl Guard {
    fn begin() -> Self {
        GUARDS.set(GUARDS.get() + 1);
        Self
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
    }
}

/// Returns the error for a file with bytes that violate its format.
pub(super) fn damaged(path: &Path, place: impl Display, fault: &str) -> Error {
    Error::input(format!(
        "{}: cannot read {place}: {fault}; the file is damaged: write or copy it again",
        path.display()
    ))
}

/// Returns the error for a column that has another type in its rows than in the header.
pub(super) fn other_type(path: &Path, column: &str) -> Error {
    damaged(path, format!("column {column}"), "its type differs from that in the schema")
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the reader failed").to_owned()
}

/// Returns the error for a file that has changed since it was opened.
pub(super) fn changed(path: &Path) -> Error {
    Error::input(format!("{}: it has changed since it was opened; run again when nothing writes to it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_readers_become_errors() {
        let read = || -> std::result::Result<(), String> {
            assert!(Error::replaces_panic());
            std::panic::resume_unwind(Box::new("index out of bounds"))
        };
        let error = guarded(Path::new("a.parquet"), "row 3", read).unwrap_err().to_string();
        assert!(error.starts_with("a.parquet: cannot read row 3: index out of bounds; "), "{error}");
        assert!(!Error::replaces_panic());
        assert!(guarded(Path::new("b"), "c", || Ok::<_, String>(Error::replaces_panic())).unwrap());
    }
}
