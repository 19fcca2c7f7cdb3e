//! Exposes the rows of an index as a source, from which a store can be built.

use std::path::PathBuf;

use super::Index;
use super::delete_list::DeleteList;
use super::scan::Pieces;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::source::{AttributeTables, IdKind, Ids, SourceInfo, VectorBatch, VectorScan, VectorSource};

/// Rows of an open index in the order of their entries: first the first rows of all vertices, in the order of the
/// pages, then the further rows of vertices.
#[derive(Clone)]
pub(crate) struct IndexRows<'a> {
    index: &'a Index,
    deleted: Option<&'a DeleteList>,
    info: SourceInfo,
}

impl<'a> IndexRows<'a> {
    /// Exposes the rows of all entries that are not in `deleted`.
    pub(crate) fn new(index: &'a Index, deleted: Option<&'a DeleteList>) -> Self {
        let facts = index.facts();
        let rows = facts.rows - deleted.map_or(0, DeleteList::len);
        let info = SourceInfo { rows, vectors: facts.vectors, ids: facts.ids, rounded_from_f64: false };
        Self { index, deleted, info }
    }

    /// Returns a scan of these rows that does not borrow them.
    pub(crate) fn into_scan(self, batch_bytes: usize) -> Box<dyn VectorScan + 'a> {
        Box::new(RowScan {
            batch_rows: self.batch_rows(batch_bytes as u64) as usize,
            pages: Pieces::of_bytes(self.index, batch_bytes as u64),
            entry: 0,
            next_row: 0,
            rows: self,
        })
    }

    /// Returns the columns of these rows, in the same order.
    ///
    /// # Errors
    /// If they cannot be read or are damaged, or if memory does not suffice.
    pub(crate) fn into_attributes(self, context: &Context) -> Result<AttributeTables<'a>> {
        let Self { index, deleted, .. } = self;
        let Some(columns) = index.columns() else { return Ok(Box::new(std::iter::empty())) };
        Ok(Box::new(columns.excluding(context, deleted.map(DeleteList::entries))?))
    }

    /// Returns the number of rows in a batch. Their vectors have at most `batch_bytes` bytes, and so do their ids.
    fn batch_rows(&self, batch_bytes: u64) -> u64 {
        let of_row = (self.info.vectors.bytes() as u64).max(self.id_bytes().unwrap_or(0));
        // A batch has at least one row, since a batch without rows would end the scan.
        (batch_bytes / of_row).max(1).min(self.info.rows)
    }
}

impl VectorSource for IndexRows<'_> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(self.clone().into_scan(batch_bytes))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        let entries = self.batch_rows(batch_bytes) * size_of::<u32>() as u64;
        Pieces::memory_bytes(self.index, batch_bytes) + entries + self.index.ids_at_once().1
    }

    fn id_bytes(&self) -> Option<u64> {
        (self.info.ids == IdKind::Utf8).then(|| self.index.facts().id_bytes())
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (self.index.folder().to_owned(), row)
    }
}

/// A scan of the rows of an index.
struct RowScan<'a> {
    rows: IndexRows<'a>,
    batch_rows: usize,
    pages: Pieces<'a>,
    /// First entry that was not yet visited.
    entry: u32,
    next_row: u64,
}

impl RowScan<'_> {
    /// Returns the next entry that is not deleted.
    fn next_entry(&mut self) -> Option<u32> {
        let IndexRows { index, deleted, .. } = self.rows;
        let entries = self.entry..index.facts().rows as u32;
        let next = entries.into_iter().find(|&entry| deleted.is_none_or(|deleted| !deleted.has(entry)));
        self.entry = next.map_or(index.facts().rows as u32, |entry| entry + 1);
        next
    }

    /// Looks up the ids of entries. Reads some of them at a time to limit memory.
    fn ids_of(&self, entries: &[u32]) -> Result<Ids> {
        let index = self.rows.index;
        let kind = index.facts().ids;
        let mut all = Ids::empty(kind);
        for some in entries.chunks(index.ids_at_once().0) {
            let ids = index.ids_of(kind, some)?;
            (0..ids.len()).for_each(|k| all.push_from(&ids, k));
        }
        Ok(all)
    }
}

impl VectorScan for RowScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let (mut bytes, mut entries) = (Vec::new(), Vec::new());
        while entries.len() < self.batch_rows
            && let Some(entry) = self.next_entry()
        {
            bytes.extend_from_slice(self.pages.vector(self.rows.index.vertex_of(entry))?);
            entries.push(entry);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let (first_row, rows) = (self.next_row, entries.len());
        self.next_row += rows as u64;
        Ok(Some(VectorBatch { first_row, rows, bytes, faults: Vec::new(), ids: self.ids_of(&entries)? }))
    }
}
