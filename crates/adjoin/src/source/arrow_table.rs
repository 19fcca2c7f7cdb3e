//! An Arrow table in memory, such as the body of a request, read as a file of it would be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{BytesFile, ReadFile};

use super::arrow;
use super::facts::Facts;
use super::open::{IdChoice, ScanOptions, SourceOptions};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::{VectorType, format_bytes};

/// The vectors of an Arrow file or stream in memory: of its column of lists, or that called `embedding` or `vector` of several.
pub struct ArrowTable {
    name: PathBuf,
    file: Arc<dyn ReadFile>,
    facts: Facts,
    vectors: VectorType,
}

impl ArrowTable {
    /// Looks at the headers of a table, which messages call by a name.
    ///
    /// # Errors
    /// Where they are not those of Arrow, there is no such column, it has no vectors, or the budget does not hold what a row takes.
    pub fn open(context: &Context, name: &str, bytes: Vec<u8>) -> Result<Self> {
        let name = Path::new(name).to_owned();
        let file: Arc<dyn ReadFile> = Arc::new(BytesFile::new(&name, bytes));
        let facts = arrow::inspect(context, &name, file.clone(), &options())?;
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

    /// How many vectors.
    pub fn rows(&self) -> u64 {
        self.facts.rows
    }

    /// Their type.
    pub fn vectors(&self) -> VectorType {
        self.vectors
    }

    /// Bytes that reading them takes, themselves apart.
    pub fn reading_bytes(&self) -> u64 {
        self.facts.memory.held
    }

    /// The vectors, end to end, little-endian.
    ///
    /// # Errors
    /// Where the table is damaged, or a row has no vector of that type.
    pub fn read(&self) -> Result<Vec<u8>> {
        let wanted =
            ScanOptions { vectors: self.vectors, batch_bytes: 1 << 20, piece_bytes_max: self.facts.memory.piece };
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

/// Ids are of no use where rows are queries.
fn options() -> SourceOptions {
    SourceOptions { ids: IdChoice::RowNumbers, ..SourceOptions::default() }
}
