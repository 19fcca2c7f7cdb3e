//! Some consecutive rows of a source.

use std::ops::Range;
use std::path::PathBuf;

use super::vector_source::{SourceInfo, VectorSource};
use super::vectors::{Fault, Ids, VectorBatch, VectorScan};
use crate::base::error::Result;

/// Consecutive rows of a source. They keep the numbers that they have in the source.
pub(crate) struct RowRange<'a> {
    source: &'a dyn VectorSource,
    rows: Range<u64>,
    info: SourceInfo,
}

impl<'a> RowRange<'a> {
    /// Selects the rows in `rows`.
    pub(crate) fn new(source: &'a dyn VectorSource, rows: Range<u64>) -> Self {
        let info = SourceInfo { rows: rows.end - rows.start, ..source.info().clone() };
        Self { source, rows, info }
    }
}

impl VectorSource for RowRange<'_> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let scan = self.source.scan_from(batch_bytes, self.rows.start)?;
        Ok(Box::new(RangeScan { scan, rows: self.rows.clone() }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.source.scan_bytes(batch_bytes)
    }

    fn release(&self) {
        self.source.release();
    }

    fn id_bytes(&self) -> Option<u64> {
        self.source.id_bytes()
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.source.locate(row)
    }
}

struct RangeScan<'a> {
    scan: Box<dyn VectorScan + 'a>,
    /// Rows that are still to be returned.
    rows: Range<u64>,
}

impl VectorScan for RangeScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        while !self.rows.is_empty() {
            let Some(batch) = self.scan.next_batch()? else { return Ok(None) };
            let end = batch.first_row + batch.rows as u64;
            let range = self.rows.start.max(batch.first_row)..self.rows.end.min(end);
            if !range.is_empty() {
                self.rows.start = range.end;
                return Ok(Some(slice(batch, range)));
            }
        }
        Ok(None)
    }
}

/// Returns the rows of a batch in a range of row numbers.
fn slice(batch: VectorBatch, rows: Range<u64>) -> VectorBatch {
    let VectorBatch { first_row, rows: count, mut bytes, mut faults, ids } = batch;
    let vector_bytes = bytes.len() / count;
    let within = (rows.start - first_row) as usize..(rows.end - first_row) as usize;
    bytes.truncate(within.end * vector_bytes);
    bytes.drain(..within.start * vector_bytes);
    faults.retain(|(row, _)| within.contains(row));
    for (row, fault) in &mut faults {
        *row -= within.start;
        // Which length is the usual one can be judged only from all rows.
        *fault = Fault::Null;
    }
    let mut kept = Ids::empty(ids.kind());
    if ids.len() == within.len() || ids.is_empty() {
        kept = ids;
    } else {
        within.clone().for_each(|k| kept.push_from(&ids, k));
    }
    VectorBatch { first_row: rows.start, rows: within.len(), bytes, faults, ids: kept }
}
