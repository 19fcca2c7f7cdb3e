//! A source that consists of a single query.

use std::path::PathBuf;

use adjoin::{IdKind, Ids, Result, SourceInfo, VectorBatch, VectorScan, VectorSource};

/// A source with one query.
pub(crate) struct OneQuery {
    info: SourceInfo,
    stored: Vec<u8>,
}

impl OneQuery {
    /// Creates a source with one vector, given in the stored form of the source `like`.
    pub(crate) fn new(like: &SourceInfo, stored: Vec<u8>) -> Self {
        Self { info: SourceInfo { rows: 1, ids: IdKind::None, ..like.clone() }, stored }
    }
}

impl VectorSource for OneQuery {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(Box::new(OneScan(Some(&self.stored))))
    }

    fn scan_bytes(&self, _batch_bytes: u64) -> u64 {
        self.stored.len() as u64
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (PathBuf::new(), row)
    }
}

struct OneScan<'a>(Option<&'a [u8]>);

impl VectorScan for OneScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let batch = |stored: &[u8]| VectorBatch {
            first_row: 0,
            rows: 1,
            bytes: stored.to_vec(),
            faults: Vec::new(),
            ids: Ids::None,
        };
        Ok(self.0.take().map(batch))
    }
}
