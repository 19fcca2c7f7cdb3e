//! Queries of a search: in files, or in memory.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{Context, IdKind, Ids, Result, SourceInfo, VectorBatch, VectorScan, VectorSource, VectorType};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::options::StoreOptions;

/// Queries that Python passes.
#[derive(FromPyObject)]
pub(crate) enum GivenQueries {
    /// Files that hold the queries. Without files, the rows of the searched store are the queries.
    Files(Vec<String>),
    /// Vectors in memory, their element type, and the number of their dimensions.
    Array(PyBackedBytes, String, usize),
}

impl GivenQueries {
    /// Returns the bytes that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Files(_) => 0,
            Self::Array(stored, ..) => stored.len() as u64,
        }
    }

    /// Opens the source of the queries; `None` if they are the rows of the searched store.
    pub(crate) fn open(self, context: &Context, options: &StoreOptions) -> Result<Option<Arc<dyn VectorSource>>> {
        match self {
            Self::Files(files) if files.is_empty() => Ok(None),
            Self::Files(files) => options.open(context, &files).map(Some),
            Self::Array(stored, element, dimensions) => {
                let vectors = VectorType { element: element.parse()?, dimensions };
                Ok(Some(Arc::new(ArrayQueries::new(vectors, stored))))
            }
        }
    }
}

/// Vectors of a small array, as a source.
struct ArrayQueries {
    info: SourceInfo,
    stored: PyBackedBytes,
}

impl ArrayQueries {
    fn new(vectors: VectorType, stored: PyBackedBytes) -> Self {
        let rows = (stored.len() / vectors.bytes()) as u64;
        Self { info: SourceInfo { rows, vectors, ids: IdKind::None, rounded_from_f64: false }, stored }
    }
}

impl VectorSource for ArrayQueries {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let rows_at_once = (batch_bytes / self.info.vectors.bytes()).max(1);
        Ok(Box::new(Scan { queries: self, rows_at_once, row: 0 }))
    }

    fn scan_bytes(&self, _batch_bytes: u64) -> u64 {
        0 // it holds only what it delivers
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        ("the array given".into(), row)
    }
}

struct Scan<'a> {
    queries: &'a ArrayQueries,
    rows_at_once: usize,
    row: usize,
}

impl VectorScan for Scan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let ArrayQueries { info, stored } = self.queries;
        let rows = (info.rows as usize - self.row).min(self.rows_at_once);
        if rows == 0 {
            return Ok(None);
        }
        let (first_row, bytes) = (self.row, info.vectors.bytes());
        self.row += rows;
        let bytes = stored[first_row * bytes..self.row * bytes].to_vec();
        Ok(Some(VectorBatch { first_row: first_row as u64, rows, bytes, faults: Vec::new(), ids: Ids::None }))
    }
}
