//! Rows by id: requests and answers.

use adjoin::{Context, Folder, Ids, OnMissing, Result, device::MemoryBudget, device::Reservation};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use serde::Deserialize;

use crate::columns::{ColumnTexts, Columns};
use crate::ids::GivenIds;
use crate::problem::Problem;

/// Maximum bytes of an element of a vector as JSON, with a comma.
const TEXT_BYTES_OF_ELEMENT: u64 = 20;
/// Maximum bytes of an answer without its rows, and of a row in addition to its id, vector and columns.
const TEXT_BYTES: u64 = 64;

/// Members of a request for rows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RowsMembers {
    #[serde(default)]
    pub(crate) ids: GivenIds,
    on_missing: Option<String>,
    pub(crate) deadline_ms: Option<u64>,
}

impl RowsMembers {
    /// Example of a request for rows, for messages.
    pub(crate) const EXAMPLE: &'static str = r#"{"ids": [7, 8]}"#;

    /// Returns the action for ids that no row has.
    ///
    /// # Errors
    /// If there is no action of that name.
    pub(crate) fn on_missing(&self) -> std::result::Result<OnMissing, Problem> {
        self.on_missing.as_deref().map_or(Ok(OnMissing::Error), |name| name.parse().map_err(Problem::from))
    }
}

/// Rows, in the order of their ids.
pub(crate) struct FetchedRows {
    /// Ids and vectors, then the columns.
    table: RecordBatch,
    pub(crate) memory: Reservation,
}

impl FetchedRows {
    /// Fetches rows by id, in memory for clients.
    ///
    /// # Errors
    /// If an id has no row and is not skipped, the folder cannot be read, or memory does not suffice.
    pub(crate) fn read(
        folder: &Folder,
        context: &Context,
        names: &Ids,
        on_missing: OnMissing,
        clients: &MemoryBudget,
    ) -> Result<std::result::Result<Self, u64>> {
        let found = folder.find(context, names)?;
        found.check_missing(names, on_missing)?;
        let table = found.table(context)?;
        let bytes = table.get_array_memory_size() as u64;
        Ok(clients.reserve(bytes).map(|memory| Self { table, memory }).map_err(|_| bytes))
    }

    /// Creates rows from a table of ids and vectors, followed by the columns.
    pub(crate) fn new(table: RecordBatch, memory: Reservation) -> Self {
        Self { table, memory }
    }

    /// Returns the rows in two parts, each of which becomes an object in the answer: id and vector, and the columns.
    fn parts(&self) -> std::result::Result<[Columns; 2], ArrowError> {
        let places: Vec<usize> = (0..self.table.num_columns()).collect();
        let (first, others) = places.split_at(2);
        Ok([row_by_row(&self.table.project(first)?), row_by_row(&self.table.project(others)?)])
    }

    /// Returns the maximum size of the rows as text, in bytes.
    pub(crate) fn text_bytes(&self) -> u64 {
        let elements = self.table.column(1).as_fixed_size_list().values().len() as u64;
        let rows = self.table.num_rows() as u64;
        let values = self.parts().map_or(0, |parts| parts.iter().map(Columns::text_bytes).sum());
        TEXT_BYTES * (1 + rows) + elements * TEXT_BYTES_OF_ELEMENT + values
    }

    /// Writes the rows as JSON: objects with `id`, `vector` and, if rows have columns, `columns`.
    ///
    /// # Errors
    /// If Arrow cannot write a column as JSON. This does not happen for columns that folders can keep.
    pub(crate) fn to_json(&self) -> std::result::Result<Vec<u8>, ArrowError> {
        let mut text = Vec::with_capacity(self.text_bytes() as usize);
        text.extend_from_slice(b"{\"rows\":[");
        let parts = self.parts()?;
        let [mut rows, mut columns] = parts.each_ref().map(ColumnTexts::new);
        for row in 0..self.table.num_rows() {
            if row > 0 {
                text.push(b',');
            }
            rows.write_next(&mut text)?;
            if self.table.num_columns() > 2 {
                text.pop(); // removes the `}` of the object, since the columns are a member of it
                text.extend_from_slice(b",\"columns\":");
                columns.write_next(&mut text)?;
                text.push(b'}');
            }
        }
        text.extend_from_slice(b"]}");
        Ok(text)
    }

    /// Writes the rows as a table.
    ///
    /// # Errors
    /// If Arrow returns an error, which it does not for a table in memory.
    pub(crate) fn to_arrow(&self) -> std::result::Result<Vec<u8>, ArrowError> {
        let mut stream = StreamWriter::try_new(Vec::new(), &self.table.schema())?;
        stream.write(&self.table)?;
        stream.into_inner()
    }
}

/// Splits a table into parts of one row. Parts are small, since the text of a part is in memory twice.
fn row_by_row(table: &RecordBatch) -> Columns {
    let mut columns = Columns::new(table.schema());
    (0..table.num_rows()).for_each(|row| columns.push(table.slice(row, 1)));
    columns
}
