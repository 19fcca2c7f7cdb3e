//! Operations on a device, and their errors.

use std::io;
use std::path::{Path, PathBuf};

/// An operation on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are clear
pub enum Operation {
    Open,
    Read,
    Create,
    Write,
    Sync,
    Rename,
    Remove,
    CreateFolder,
    FreeSpace,
    Flush,
    SyncFolder,
    RemoveFolder,
    Kind,
    List,
    Queue,
    Lock,
}

/// The name of each operation in traces.
const NAMES: [(Operation, &str); 16] = [
    (Operation::Open, "open"),
    (Operation::Read, "read"),
    (Operation::Create, "create"),
    (Operation::Write, "write"),
    (Operation::Sync, "sync"),
    (Operation::Rename, "rename"),
    (Operation::Remove, "remove"),
    (Operation::CreateFolder, "create-folder"),
    (Operation::FreeSpace, "free-space"),
    (Operation::Flush, "flush"),
    (Operation::SyncFolder, "sync-folder"),
    (Operation::RemoveFolder, "remove-folder"),
    (Operation::Kind, "kind"),
    (Operation::List, "list"),
    (Operation::Queue, "queue"),
    (Operation::Lock, "lock"),
];

impl Operation {
    /// Returns the name of the operation in traces, which is one word.
    pub fn word(self) -> &'static str {
        let named = NAMES.iter().find(|(operation, _)| *operation == self);
        named.expect("the table has every operation").1
    }

    /// Returns the operation with the name `word` in traces, if there is one.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        NAMES.iter().find(|(_, name)| *name == word).map(|(operation, _)| *operation)
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::CreateFolder => "create the folder",
            Self::FreeSpace => "get the free space of",
            Self::Flush => "write",
            Self::SyncFolder => "sync the folder",
            Self::RemoveFolder => "remove the folder",
            Self::Kind => "look up",
            Self::List => "list",
            Self::Queue => "set up reads by",
            Self::Lock => "lock",
        })
    }
}

/// Error of an operation, with its file and the system's error.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}{}: {source}", path.display(), at(*offset))]
pub struct DeviceError {
    /// The operation that failed.
    pub operation: Operation,
    /// The file or folder of the operation.
    pub path: PathBuf,
    /// Byte offset of a read; `None` for other operations.
    pub offset: Option<u64>,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

fn at(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

impl DeviceError {
    /// Creates the error of an operation on a file or folder.
    pub fn new(operation: Operation, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), offset: None, source }
    }

    /// Creates the error of a read at `offset`.
    pub fn read(path: &Path, offset: u64, source: io::Error) -> Self {
        Self { offset: Some(offset), ..Self::new(Operation::Read, path, source) }
    }
}
