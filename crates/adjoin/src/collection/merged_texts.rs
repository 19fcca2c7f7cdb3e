//! Sizes of the ids and columns of the rows that a merge reads.

use super::long_term_index::LongTermIndex;
use super::manifest::CollectionManifest;
use super::temporary_index::{TemporaryIndex, TextBytes};
use crate::source::IdKind;

/// Sizes of the id texts and columns of the rows that a merge reads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MergedTexts {
    /// Mean bytes of a text id, in the part (index or memory) with the longest ids. `column_bytes` is the
    /// corresponding mean for the columns of a row.
    pub(super) id_bytes: u64,
    pub(super) column_bytes: u64,
    /// Memory in bytes for reading the columns of the long-term index.
    pub(super) reading_bytes: u64,
}

impl MergedTexts {
    /// Returns the sizes for the rows of `long_term` and the rows in memory, whose bytes are `unmerged`.
    pub(super) fn of(long_term: Option<&LongTermIndex>, unmerged: TextBytes) -> Self {
        let rows = unmerged.rows.max(1);
        let (id_bytes, column_bytes) = (unmerged.ids.div_ceil(rows), unmerged.columns.div_ceil(rows));
        let of_index = long_term.map_or_else(Self::default, |long_term| Self {
            id_bytes: long_term.index.facts().id_bytes(),
            column_bytes: 0,
            reading_bytes: long_term.columns_reading_bytes,
        });
        of_index.max(Self { id_bytes, column_bytes, reading_bytes: 0 })
    }

    /// Returns upper bounds for rows whose id and columns together take `bytes` on average.
    pub(super) fn of_row(manifest: &CollectionManifest, bytes: u64) -> Self {
        let id_bytes = if manifest.ids == IdKind::Utf8 { bytes } else { 0 };
        let column_bytes = if manifest.attributes.is_empty() { 0 } else { bytes };
        Self { id_bytes, column_bytes, reading_bytes: 0 }
    }

    /// Returns the maximum of both values for each size.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            id_bytes: self.id_bytes.max(other.id_bytes),
            column_bytes: self.column_bytes.max(other.column_bytes),
            reading_bytes: self.reading_bytes.max(other.reading_bytes),
        }
    }

    /// Returns the memory in bytes for reading the columns of all rows.
    pub(super) fn columns_reading_bytes(self, manifest: &CollectionManifest) -> u64 {
        let of_block = TemporaryIndex::block_columns_bytes(self.column_bytes);
        if manifest.attributes.is_empty() { 0 } else { self.reading_bytes + of_block }
    }
}
