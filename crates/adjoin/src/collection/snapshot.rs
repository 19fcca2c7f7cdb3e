//! The rows of a collection at one moment, as a source for merges and for any command that reads a source.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::attributes::{Attribute, schema};
use super::manifest::CollectionManifest;
use super::operations::Collection;
use super::state::StateView;
use super::temporary_index::{BlockPart, TemporaryView};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::index::IndexRows;
use crate::source::{AttributeTables, SourceAttributes, SourceInfo, VectorBatch, VectorScan, VectorSource};

/// Snapshot of a collection: the rows on disk in the order of their entries, then the rows in memory in write order.
pub(super) struct Snapshot {
    moment: StateView,
    info: SourceInfo,
    attributes: Vec<Attribute>,
    folder: PathBuf,
    /// The collection that was opened for this snapshot, if any. Its reservations hold the memory of the rows.
    _opened: Option<Collection>,
}

impl Snapshot {
    pub(super) fn new(manifest: &CollectionManifest, moment: StateView, folder: PathBuf) -> Self {
        let info =
            SourceInfo { rows: moment.rows, vectors: manifest.vectors, ids: manifest.ids, rounded_from_f64: false };
        Self { moment, info, attributes: manifest.attributes.clone(), folder, _opened: None }
    }

    /// Returns the row numbers that a merge inserts into an existing index: those of the rows in memory. The range is
    /// empty if no rows are on disk.
    pub(super) fn inserted(&self) -> Range<u64> {
        let StateView { long_term, deleted, rows, .. } = &self.moment;
        let on_disk = long_term.as_ref().map_or(0, |long_term| long_term.index.facts().rows - deleted.len());
        if on_disk == 0 { 0..0 } else { on_disk..*rows }
    }

    /// Returns the live rows on disk.
    fn on_disk(&self) -> Option<IndexRows<'_>> {
        let StateView { long_term, deleted, .. } = &self.moment;
        long_term.as_ref().map(|long_term| IndexRows::new(&long_term.index, Some(deleted)))
    }
}

/// Opens a collection and returns its current rows. Other processes may write to it, but the returned rows never
/// change: files that a merge removes stay open.
///
/// # Errors
/// As [`Collection::open_read_only`].
pub fn open_rows(context: &Context, folder: &Path) -> Result<Arc<dyn VectorSource>> {
    let opened = Collection::open_read_only(context, folder)?;
    let snapshot = opened.rows_now();
    Ok(Arc::new(Snapshot { _opened: Some(opened), ..snapshot }))
}

impl Collection {
    fn rows_now(&self) -> Snapshot {
        Snapshot::new(&self.manifest(), self.state().moment(), self.folder().to_owned())
    }

    /// Returns the current rows as a source. The source never changes, no matter what is written and merged later.
    pub fn snapshot(&self) -> impl VectorSource {
        self.rows_now()
    }
}

impl VectorSource for Snapshot {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let on_disk = self.on_disk().map(|rows| rows.into_scan(batch_bytes));
        Ok(Box::new(SnapshotScan { on_disk, view: &self.moment.view, batch_bytes, block: 0, start: 0, next_row: 0 }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.on_disk().map_or(0, |rows| rows.scan_bytes(batch_bytes)) + TemporaryView::block_bytes()
    }

    fn id_bytes(&self) -> Option<u64> {
        let on_disk = self.on_disk().and_then(|rows| rows.id_bytes());
        on_disk.max(self.moment.view.id_bytes())
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        (!self.attributes.is_empty()).then_some(self)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (self.folder.clone(), row)
    }
}

impl SourceAttributes for Snapshot {
    fn schema(&self) -> Result<SchemaRef> {
        Ok(schema(&self.attributes))
    }

    fn reading_bytes(&self) -> Result<Option<u64>> {
        let on_disk = self.moment.long_term.as_ref().map_or(0, |long_term| long_term.columns_reading_bytes);
        // The reader of the rows on disk is dropped only after the rows in memory are read, so both count.
        Ok(Some(on_disk + self.moment.view.columns_reading_bytes()))
    }

    fn tables(&self, context: &Context) -> Result<AttributeTables<'_>> {
        let in_memory = self.moment.view.tables(context, &self.attributes);
        Ok(match self.on_disk() {
            Some(on_disk) => Box::new(on_disk.into_attributes(context)?.chain(in_memory)),
            None => Box::new(in_memory),
        })
    }
}

struct SnapshotScan<'a> {
    /// `None` once all rows on disk were returned.
    on_disk: Option<Box<dyn VectorScan + 'a>>,
    view: &'a TemporaryView,
    batch_bytes: usize,
    /// The next block of rows in memory, and the next row in this block.
    block: usize,
    start: usize,
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
            let BlockPart { stored: bytes, ids, end } = self.view.part_of(self.block, self.start, self.batch_bytes);
            let is_whole = end == self.view.block_rows(self.block);
            (self.block, self.start) = if is_whole { (self.block + 1, 0) } else { (self.block, end) };
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
