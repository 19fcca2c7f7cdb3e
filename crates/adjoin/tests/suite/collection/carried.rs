//! Vectors in memory with columns.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{Context, Result, SourceAttributes, SourceInfo, VectorScan, VectorSource, lab::source::AttributeTables};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;

use crate::harness::Set;

/// Number of rows per table batch. It differs from the number of vectors per batch.
const BATCH_ROWS: usize = 5;

/// A set, and a table with a row for each of its vectors.
pub(crate) struct Carried {
    set: Set,
    table: RecordBatch,
}

impl Carried {
    pub(crate) fn new(set: Set, columns: Vec<(&str, ArrayRef)>) -> Self {
        Self { set, table: RecordBatch::try_from_iter(columns).unwrap() }
    }

    /// Creates a set with columns that are derived from the first byte of each vector.
    pub(crate) fn of(set: Set) -> Self {
        let bytes = set.vectors().bytes();
        let all: Vec<_> = set.stored().chunks_exact(bytes).map(|vector| attributes_of(vector[0])).collect();
        let names: StringArray = all.iter().map(|(name, _)| name.clone()).collect();
        let sizes: Int64Array = all.iter().map(|(_, size)| Some(*size)).collect();
        Self::new(set, vec![("size", Arc::new(sizes)), ("name", Arc::new(names))])
    }
}

/// Returns the columns `name` and `size` of a vector that starts with byte `first`.
pub(crate) fn attributes_of(first: u8) -> (Option<String>, i64) {
    ((!first.is_multiple_of(3)).then(|| format!("n{}", first % 7)), i64::from(first))
}

impl VectorSource for Carried {
    fn info(&self) -> &SourceInfo {
        self.set.info()
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        self.set.scan(batch_bytes)
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.set.scan_bytes(batch_bytes)
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        Some(self)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.set.locate(row)
    }
}

impl SourceAttributes for Carried {
    fn schema(&self) -> Result<SchemaRef> {
        Ok(self.table.schema())
    }

    fn tables(&self, _context: &Context) -> Result<AttributeTables<'_>> {
        let rows = self.table.num_rows();
        let part = move |start: usize| Ok(self.table.slice(start, BATCH_ROWS.min(rows - start)));
        Ok(Box::new((0..rows).step_by(BATCH_ROWS).map(part)))
    }
}
