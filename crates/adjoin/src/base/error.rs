//! Errors of the engine's public interface.

use std::io;

use adjoin_device::DeviceError;

use crate::base::message::{Mention, Message, message};

/// Kind of an [`Error`], for callers that handle kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The given vectors, ids or files are invalid.
    Input,
    /// An option is invalid, either by itself or in combination with another option.
    Option,
    /// The memory budget is too small. The message states the minimum.
    Budget,
    /// The system reported a failure: a missing file, a missing permission, a full disk, or a failing device.
    Device,
    /// Bytes that this engine wrote were changed afterwards.
    Corrupt,
    /// The caller cancelled the work.
    Cancelled,
    /// The reader of standard output closed it before the end of the result.
    ReaderGone,
    /// There are too many requests at this time. The caller may retry.
    Overloaded,
    /// The deadline passed before the answer was ready.
    Late,
}

/// An error with a message that needs no context: it names the file, the row, the value and the remedy. Options in the
/// message are data, so that the command line and Python can each spell them in their own way.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: Message,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Message for cancelled work that left no checkpoint.
const CANCELLED: &str = "cancelled";

/// A result whose error is an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: ErrorKind, message: impl Into<Message>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Creates an error of kind [`ErrorKind::Input`].
    pub fn input(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// Creates an error of kind [`ErrorKind::Option`].
    pub fn option(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Option, message)
    }

    /// Creates an error of kind [`ErrorKind::Budget`].
    pub fn budget(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Budget, message)
    }

    /// Creates an error of kind [`ErrorKind::Device`] that is not caused by a single operation.
    pub fn device(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Device, message)
    }

    /// Creates an error of kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates the error for work that the caller cancelled.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, CANCELLED)
    }

    /// Creates the error for cancelled work that left a checkpoint. The message states how to continue.
    pub(crate) fn stopped(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// Creates the error for a result whose reader closed standard output.
    pub fn reader_gone() -> Self {
        Self::new(ErrorKind::ReaderGone, "standard output was closed before the result ended")
    }

    /// Creates an error of kind [`ErrorKind::Overloaded`].
    pub fn overloaded(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Overloaded, message)
    }

    /// Creates an error of kind [`ErrorKind::Late`].
    pub fn late(message: impl Into<Message>) -> Self {
        Self::new(ErrorKind::Late, message)
    }

    /// Adds the cause of the error, so that a log can show the whole chain.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Prepends words to the message.
    #[must_use]
    pub(crate) fn after(self, words: &str) -> Self {
        Self { message: message![words, self.message], ..self }
    }

    /// Returns the message. `spell` formats each option in it.
    pub fn spelled(&self, spell: impl Fn(&Mention) -> String) -> String {
        self.message.spelled(spell)
    }

    /// Returns whether the error is about cancelled work that left a checkpoint.
    pub fn says_what_is_kept(&self) -> bool {
        self.kind == ErrorKind::Cancelled && self.message.to_string() != CANCELLED
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::device(with_remedy(&error)).caused_by(error)
    }
}

/// Returns the message of a failed operation, with a remedy if one is known.
fn with_remedy(error: &DeviceError) -> String {
    let remedy = match error.source.kind() {
        _ if error.source.get_ref().is_some() => "", // a device that words its errors itself adds the remedy
        io::ErrorKind::StorageFull => "; free some space there, or name a folder on another disk",
        io::ErrorKind::QuotaExceeded => "; ask for a larger quota, or name a folder on another disk",
        io::ErrorKind::FileTooLarge => "; raise the limit on the size of files (ulimit -f)",
        io::ErrorKind::ReadOnlyFilesystem => "; name a folder on a disk that can be written",
        io::ErrorKind::PermissionDenied => "; run as a user with that permission, or name another path",
        _ => "",
    };
    format!("{error}{remedy}")
}

/// Finds the error of the device among the causes of a library's error. Returns `None` if the device did not fail.
/// Libraries repeat the text of their cause, so their own text is not quoted.
pub(crate) fn device_failure(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<DeviceError>() {
            return Some(Error::device(with_remedy(failure)));
        }
        // `source` of an `io::Error` skips the inner error and returns the source of that error. So the inner error is
        // checked separately.
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
    fn device_errors_within_libraries_are_reported_with_a_remedy() {
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
