//! Options for reading sources.

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;

/// Options for reading tables. For a file without columns, no column may be named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceOptions {
    /// Column of the vectors. If absent, the table must have exactly one column of number lists.
    pub vector_column: Option<String>,
    /// How rows are identified.
    pub ids: IdChoice,
    /// Split to read, if the source is a folder in Hugging Face's layout. If absent, all splits are read.
    pub split: Option<String>,
}

impl SourceOptions {
    /// Describes the columns that are read. Used in messages about an earlier run with other options.
    pub(crate) fn in_words(&self) -> String {
        let Self { vector_column, ids, split } = self;
        let vectors =
            vector_column.as_ref().map_or("the only column of vectors".to_owned(), |name| format!("column {name}"));
        let ids = match ids {
            IdChoice::IfThere => "ids of column id, if present".to_owned(),
            IdChoice::Column(name) => format!("ids of column {name}"),
            IdChoice::RowNumbers => "no ids".to_owned(),
        };
        let split = split.as_ref().map_or(String::new(), |split| format!(", split {split}"));
        format!("{vectors}, {ids}{split}")
    }
}

/// How rows of a table are identified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdChoice {
    /// The column `id`, if present, otherwise row numbers.
    #[default]
    IfThere,
    /// The column of this name.
    Column(String),
    /// Row numbers, even if there is a column `id`.
    RowNumbers,
}

impl IdChoice {
    /// Converts a user's options. `column` is the name of the id column, `none` asks for no ids.
    ///
    /// # Errors
    /// Fails if both are given.
    pub fn new(column: Option<&str>, none: bool) -> Result<Self> {
        match (column, none) {
            (Some(_), true) => Err(Error::option(message![
                Argument::IdColumn,
                " names a column of ids, but ",
                Argument::NoIds,
                " ignores ids; leave out one of them"
            ])),
            (Some(column), false) => Ok(Self::Column(column.to_owned())),
            (None, true) => Ok(Self::RowNumbers),
            (None, false) => Ok(Self::IfThere),
        }
    }
}

/// Options of a file scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanOptions {
    pub(super) vectors: VectorType,
    pub(super) batch_bytes: usize,
    /// Size of the largest page or record batch for which memory was planned, in bytes.
    pub(super) piece_bytes_max: u64,
    /// Row of the file that is needed first. The scan starts there, or at an earlier row.
    pub(super) first_row: u64,
}
