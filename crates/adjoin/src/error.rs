//! What can go wrong, as the public edge of the engine says it.

use std::io;

use adjoin_device::DeviceError;

use crate::message::{Mention, Message, message};

/// The kind of an [`Error`]: what a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The vectors, ids or files given are not what they must be.
    Input,
    /// An option has no meaning, or not together with another.
    Option,
    /// The memory budget is too small; the message says the least that would do.
    Budget,
    /// The system refused: no such file, no permission, a full disk, a failing device.
    Device,
    /// Bytes that this engine wrote have changed since.
    Corrupt,
    /// The caller cancelled.
    Cancelled,
    /// The reader of standard output left before the end of the result.
    ReaderGone,
    /// More is asked than can be answered now; it may be asked again.
    Overloaded,
    /// The answer would come after its deadline.
    Late,
}

/// An error with a message that stands alone: file, row, value and remedy. Options that the message names are data, which
/// the command line and Python spell in their own way.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: Message,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What the error of work that was stopped says where nothing is left of it.
const CANCELLED: &str = "cancelled";

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: ErrorKind, message: impl Into<Message>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error of kind [`ErrorKind::Input`].
    pub fn input(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// An error of kind [`ErrorKind::Option`].
    pub fn option(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Option, message)
    }

    /// An error of kind [`ErrorKind::Budget`].
    pub fn budget(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Budget, message)
    }

    /// An error of kind [`ErrorKind::Device`] that is not one of a single operation.
    pub fn device(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Device, message)
    }

    /// An error of kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// The error of work that the caller stopped.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, CANCELLED)
    }

    /// The same, with what that means for who asks again.
    pub(crate) fn stopped(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// The error of a result that nobody reads any more.
    pub fn reader_gone() -> Self {
        Self::new(ErrorKind::ReaderGone, "standard output was closed before the result ended")
    }

    /// An error of kind [`ErrorKind::Overloaded`].
    pub fn overloaded(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Overloaded, message)
    }

    /// An error of kind [`ErrorKind::Late`].
    pub fn late(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Late, message)
    }

    /// Keeps what caused this error, for those who log the whole chain.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same, told after some words.
    #[must_use]
    pub(crate) fn after(self, words: &str) -> Self {
        Self { message: message![words, self.message], ..self }
    }

    /// What it says, with each option that it names as `spell` has it.
    pub fn spelled(&self, spell: impl Fn(&Mention) -> String) -> String {
        self.message.spelled(spell)
    }

    /// Whether it is that of work that was stopped, of which something is kept.
    pub fn says_what_is_kept(&self) -> bool {
        self.kind == ErrorKind::Cancelled && self.message.to_string() != CANCELLED
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::device(with_remedy(&error)).caused_by(error)
    }
}

/// Returns what a failed operation says, with what can be done about it, if that is known.
fn with_remedy(error: &DeviceError) -> String {
    let remedy = match error.source.kind() {
        io::ErrorKind::StorageFull => "; free some space there, or name a folder on another disk",
        io::ErrorKind::QuotaExceeded => "; ask for a larger quota, or name a folder on another disk",
        io::ErrorKind::FileTooLarge => "; raise the limit on the size of files (ulimit -f)",
        io::ErrorKind::ReadOnlyFilesystem => "; name a folder on a disk that can be written",
        io::ErrorKind::PermissionDenied => "; run as a user who may do that, or name another place",
        _ => "",
    };
    format!("{error}{remedy}")
}

/// Returns the error of an operation of the device that failed under a library. `None` if something else went wrong:
/// libraries repeat the text of the error that they pass on, so that theirs is not quoted.
pub(crate) fn device_failure(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<DeviceError>() {
            return Some(Error::device(with_remedy(failure)));
        }
        // The source of an `io::Error` is that of the error within it, not this one.
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = within.map(|within| within as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_failure_under_a_library_is_named_once_and_with_a_remedy() {
        let full = || DeviceError {
            operation: adjoin_device::Operation::Write,
            path: Path::new("out.parquet").to_owned(),
            offset: None,
            source: io::Error::from(io::ErrorKind::StorageFull),
        };
        let said = Error::from(full()).to_string();
        assert!(
            said.starts_with("cannot write out.parquet: ") && said.ends_with("name a folder on another disk"),
            "{said}"
        );
        let under = parquet::errors::ParquetError::External(Box::new(io::Error::other(full())));
        assert_eq!(device_failure(&under).unwrap().to_string(), said);
        assert!(device_failure(&io::Error::other("something else")).is_none());
    }
}
