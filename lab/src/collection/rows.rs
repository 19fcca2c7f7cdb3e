//! A source of rows in memory.

use std::ops::Range;
use std::path::PathBuf;

use adjoin::{IdKind, Ids, Result, SourceInfo, VectorBatch, VectorScan, VectorSource, VectorType};

/// Rows with consecutive ids.
pub(crate) struct Rows {
    info: SourceInfo,
    first: i64,
    bytes: Vec<u8>,
}

struct RowScan<'a>(Option<&'a Rows>);

impl Rows {
    /// Creates rows from the bytes of their vectors. The first row has the id `first`, and ids are consecutive.
    pub(crate) fn new(vectors: VectorType, first: i64, bytes: Vec<u8>) -> Self {
        let rows = (bytes.len() / vectors.bytes()) as u64;
        Self { info: SourceInfo { rows, vectors, ids: IdKind::Int64, rounded_from_f64: false }, first, bytes }
    }

    /// Returns the ids.
    pub(crate) fn ids(&self) -> Range<i64> {
        self.first..self.first + self.info.rows as i64
    }
}

impl VectorSource for Rows {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(Box::new(RowScan(Some(self))))
    }

    fn scan_bytes(&self, _batch_bytes: u64) -> u64 {
        self.bytes.len() as u64
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        ("rows in memory".into(), row)
    }
}

impl VectorScan for RowScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let batch = |rows: &Rows| {
            let ids = Ids::Int64(rows.ids().collect());
            let rows = rows.info.rows as usize;
            VectorBatch {
                first_row: 0,
                rows,
                bytes: self.0.map_or(Vec::new(), |of| of.bytes.clone()),
                faults: Vec::new(),
                ids,
            }
        };
        let batch = self.0.map(batch);
        self.0 = None;
        Ok(batch)
    }
}
