//! Reads an Arrow table that is in memory, e.g. the body of a request, like a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{BytesFile, ReadFile};

use super::arrow;
use super::facts::Facts;
use super::options::{IdChoice, ScanOptions, SourceOptions};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::{VectorType, format_bytes};

/// The vectors of an Arrow file or stream in memory. They are in its only column of lists of numbers.
pub struct ArrowTable {
    name: PathBuf,
    file: Arc<dyn ReadFile>,
    facts: Facts,
    vectors: VectorType,
}

impl ArrowTable {
    /// Opens a table by reading its headers. `name` is the name of the table in messages.
    ///
    /// # Errors
    /// Fails if the bytes are not an Arrow table, if there is no suitable column, if it has no vectors, or if the
    /// budget is too small for a row.
    pub fn open(context: &Context, name: &str, bytes: Vec<u8>) -> Result<Self> {
        let name = Path::new(name).to_owned();
        let file: Arc<dyn ReadFile> = Arc::new(BytesFile::new(&name, bytes));
        let facts = arrow::inspect(context, &name, file.clone(), &options())?;
        // The number of dimensions is an estimate if the budget was too small to read the first vector.
        if facts.dimensions.likely().is_some() {
            let takes = format_bytes(facts.memory.held);
            return Err(Error::budget(format!(
                "{}: reading it takes {takes}; send fewer rows at once",
                name.display()
            )));
        }
        let none = || Error::input(format!("{}: it has no vectors; give a column of lists of numbers", name.display()));
        let dimensions = facts.dimensions.known().filter(|_| facts.rows > 0).ok_or_else(none)?;
        let vectors = VectorType { element: facts.element.element(), dimensions };
        Ok(Self { name, file, facts, vectors })
    }

    /// Returns the number of vectors.
    pub fn rows(&self) -> u64 {
        self.facts.rows
    }

    /// Returns the type of the vectors.
    pub fn vectors(&self) -> VectorType {
        self.vectors
    }

    /// Returns the bytes needed to read the vectors, without the vectors themselves.
    pub fn reading_bytes(&self) -> u64 {
        self.facts.memory.held
    }

    /// Reads all vectors. Returns them end to end, in little-endian order.
    ///
    /// # Errors
    /// Fails if the table is damaged, or if a row has no vector of the type of [`Self::vectors`].
    pub fn read(&self) -> Result<Vec<u8>> {
        let wanted = ScanOptions {
            vectors: self.vectors,
            batch_bytes: 1 << 20,
            piece_bytes_max: self.facts.memory.piece,
            first_row: 0,
        };
        let mut scan = arrow::scan(&self.name, self.file.clone(), &options(), wanted)?;
        let mut stored = Vec::with_capacity(self.facts.rows as usize * self.vectors.bytes());
        while let Some(batch) = scan.next_batch()? {
            if let Some(&(row, fault)) = batch.faults.first() {
                let (row, why) = (batch.first_row + row as u64, fault.in_words(self.vectors));
                return Err(Error::input(format!("{}: row {row} {why}", self.name.display())));
            }
            stored.extend(batch.bytes);
        }
        Ok(stored)
    }
}

/// Returns the options for reading. The rows are queries, so no ids are needed.
fn options() -> SourceOptions {
    SourceOptions { ids: IdChoice::RowNumbers, ..SourceOptions::default() }
}
