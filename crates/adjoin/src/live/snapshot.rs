//! The rows of a moment as a source, of which an index can be built.

use std::path::PathBuf;

use super::fresh::View;
use super::manifest::LiveManifest;
use super::state::Moment;
use crate::error::Result;
use crate::index::IndexRows;
use crate::source::{SourceInfo, VectorBatch, VectorScan, VectorSource};

/// The rows on disk in the order of their pages, then those in memory in the order in which they came.
pub(super) struct Snapshot<'a> {
    on_disk: Option<IndexRows<'a>>,
    view: &'a View,
    info: SourceInfo,
    folder: PathBuf,
}

impl<'a> Snapshot<'a> {
    pub(super) fn new(manifest: &LiveManifest, moment: &'a Moment, folder: PathBuf) -> Self {
        let on_disk = moment.base.as_ref().map(|base| IndexRows::new(&base.index, Some(&moment.gone.entries)));
        let info =
            SourceInfo { rows: moment.rows, vectors: manifest.vectors, ids: manifest.ids, rounded_from_f64: false };
        Self { on_disk, view: &moment.view, info, folder }
    }
}

impl VectorSource for Snapshot<'_> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let on_disk = self.on_disk.as_ref().map(|rows| rows.scan(batch_bytes)).transpose()?;
        Ok(Box::new(SnapshotScan { on_disk, view: self.view, block: 0, next_row: 0 }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.on_disk.as_ref().map_or(0, |rows| rows.scan_bytes(batch_bytes)) + View::block_bytes()
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (self.folder.clone(), row)
    }
}

struct SnapshotScan<'a> {
    /// None once all of it was handed over.
    on_disk: Option<Box<dyn VectorScan + 'a>>,
    view: &'a View,
    /// The next block of rows in memory.
    block: usize,
    next_row: u64,
}

impl VectorScan for SnapshotScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        if let Some(on_disk) = &mut self.on_disk {
            if let Some(batch) = on_disk.next_batch()? {
                self.next_row += batch.rows as u64;
                return Ok(Some(batch));
            }
            self.on_disk = None;
        }
        while self.block < self.view.blocks() {
            let (bytes, ids) = self.view.rows_of(self.block);
            self.block += 1;
            let rows = ids.len();
            if rows > 0 {
                let first_row = self.next_row;
                self.next_row += rows as u64;
                return Ok(Some(VectorBatch { first_row, rows, bytes, faults: Vec::new(), ids }));
            }
        }
        Ok(None)
    }
}
