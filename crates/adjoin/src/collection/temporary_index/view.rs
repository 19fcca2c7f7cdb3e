//! The temporary index at one moment, for searches and merges.

use std::sync::Arc;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;

use super::bucketed::BucketedBlocks;
use super::{BLOCK_BYTES, Block, COLUMNS_BYTES, COPIES_OF_ATTRIBUTES, Full, PURPOSE, PURPOSE_SEARCH, TextBytes};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Space;
use crate::base::row_numbers::RowSet;
use crate::base::shared_rows::SharedRows;
use crate::collection::attributes::{Attribute, schema};
use crate::collection::packed::table_of;
use crate::source::{IdKind, Ids};
use crate::sql::Condition;

/// Live rows of a view, with their columns, as the source of a merge.
pub(in crate::collection) struct ViewRows<'a> {
    pub(super) view: &'a TemporaryView,
    pub(super) attributes: &'a [Attribute],
    pub(super) numbers: Vec<u32>,
}

/// The live rows of a part of a block.
pub(in crate::collection) struct BlockPart {
    /// Vectors of these rows, end to end.
    pub(in crate::collection) stored: Vec<u8>,
    pub(in crate::collection) ids: Ids,
    /// Index in the block of the first row after the part.
    pub(in crate::collection) end: usize,
}

/// The temporary index at one moment, for searches.
#[derive(Clone)]
pub(in crate::collection) struct TemporaryView {
    pub(super) space: Space<'static>,
    pub(super) blocks: Vec<Arc<Full>>,
    /// The first blocks, grouped into buckets.
    pub(super) bucketed: Vec<Arc<BucketedBlocks>>,
    pub(super) deleted: SharedRows,
    /// Rows that match a filter; `None` if there is none.
    pub(super) passing: Option<Arc<PassingRows>>,
    /// Number of live rows that match the filter.
    pub(super) live: u64,
    /// Recall of searches for the nearest rows. `None` if queries are compared with all rows.
    pub(super) recall: Option<f64>,
}

/// Rows in memory that match a filter.
pub(super) struct PassingRows {
    rows: RowSet,
    _memory: Reservation,
}

impl TemporaryView {
    /// Returns the live rows, for a merge.
    pub(in crate::collection) fn came<'a>(&'a self, attributes: &'a [Attribute]) -> ViewRows<'a> {
        let numbers = self.blocks.iter().flat_map(|block| block.rows()).filter(|&number| self.is_live(number));
        ViewRows { view: self, attributes, numbers: numbers.collect() }
    }

    /// Returns a view whose searches for the nearest rows reach `recall`. They are not compared with rows in buckets
    /// that they do not probe.
    pub(in crate::collection) fn with_recall(self, recall: f64) -> Self {
        Self { recall: Some(recall), ..self }
    }

    /// Returns a view without the packed forms of the rows, which can then be freed before the view is dropped.
    pub(in crate::collection) fn without_packed(self) -> Self {
        let blocks = self.blocks.iter().map(|full| Arc::new(Full::new(full.block.clone()))).collect();
        Self { blocks, bucketed: Vec::new(), ..self }
    }

    /// Returns the block that holds a row.
    pub(super) fn block_of(&self, number: u32) -> &Block {
        &self.blocks[self.blocks.partition_point(|block| block.first <= number) - 1]
    }

    /// Returns the vector and the packed columns of a row.
    pub(in crate::collection) fn row(&self, number: u32) -> (&[u8], &[u8]) {
        let (block, bytes) = (self.block_of(number), self.space.vectors.bytes());
        (&block.stored[(number - block.first) as usize * bytes..][..bytes], block.attributes_of(number))
    }

    /// Returns a table of the first rows in `numbers`, with the columns whose indexes are `places`. The number of rows
    /// is such that their packed columns take at most [`COLUMNS_BYTES`], but at least 1.
    pub(in crate::collection) fn columns(
        &self,
        attributes: &[Attribute],
        places: &[usize],
        numbers: &[u32],
    ) -> RecordBatch {
        let mut bytes = 0;
        let fits = |&&number: &&u32| {
            bytes += self.row(number).1.len();
            bytes <= COLUMNS_BYTES
        };
        let count = numbers.iter().take_while(fits).count().max(1).min(numbers.len());
        table_of(attributes, places, numbers[..count].iter().map(|&number| self.row(number).1))
    }

    /// Returns the largest size of the packed columns of a row, in bytes.
    pub(in crate::collection) fn columns_bytes_max(&self) -> u64 {
        let rows = self.blocks.iter().flat_map(|block| block.rows().map(|number| block.attributes_of(number).len()));
        rows.max().unwrap_or(0) as u64
    }

    /// Returns whether the view has no rows, not even deleted ones.
    pub(in crate::collection) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the number of rows, including deleted ones.
    pub(in crate::collection) fn rows_ever(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.rows().end.into())
    }

    /// Returns the number of blocks.
    pub(in crate::collection) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the approximate bytes of a block.
    pub(in crate::collection) fn block_bytes() -> u64 {
        2 * BLOCK_BYTES as u64
    }

    /// Returns the vectors and ids of live rows of a block. Starts at row `start` of the block, and ends once the
    /// vectors or the ids take `batch_bytes` bytes.
    pub(in crate::collection) fn part_of(&self, block: usize, start: usize, batch_bytes: usize) -> BlockPart {
        let block = &self.blocks[block];
        let mut part = BlockPart { stored: Vec::new(), ids: Ids::empty(block.ids.kind()), end: start };
        // Returns at least one row if any is left, since an empty part would end a scan.
        let most = batch_bytes.max(1);
        while part.end < block.ids.len() && part.stored.len().max(part.ids.bytes() as usize) < most {
            let (k, bytes) = (part.end, self.space.vectors.bytes());
            if self.is_live(block.first + k as u32) {
                part.stored.extend_from_slice(&block.stored[k * bytes..][..bytes]);
                part.ids.push_from(&block.ids, k);
            }
            part.end += 1;
        }
        part
    }

    /// Returns the number of rows of a block, including deleted ones.
    pub(in crate::collection) fn block_rows(&self, block: usize) -> usize {
        self.blocks[block].ids.len()
    }

    /// Returns the mean bytes of a text id, in the block with the longest mean; `None` if ids are not texts.
    pub(in crate::collection) fn id_bytes(&self) -> Option<u64> {
        let texts = self.blocks.iter().filter(|block| block.ids.kind() == IdKind::Utf8);
        texts.map(|block| block.ids.bytes_of_texts().div_ceil(block.ids.len() as u64)).max()
    }

    /// Returns the numbers of the live rows of a block.
    fn here<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = u32> + Clone + 'a {
        block.rows().filter(|&number| self.is_live(number))
    }

    /// Returns a view of the live rows that match `condition`. Deleted rows are not evaluated.
    ///
    /// # Errors
    /// If the condition names other columns or cannot be computed, or memory does not suffice.
    pub(in crate::collection) fn passing(
        &self,
        context: &Context,
        attributes: &[Attribute],
        condition: &Condition,
    ) -> Result<Self> {
        let places = condition.bind(&schema(attributes))?;
        let rows = self.rows_ever();
        let memory = context.reserve_between_runs(RowSet::memory_bytes(rows), PURPOSE_SEARCH)?;
        let mut passing = PassingRows { rows: RowSet::new(rows), _memory: memory };
        for block in &self.blocks {
            context.cancel.check()?;
            let _columns = context.reserve_between_runs(Self::columns_bytes(block), PURPOSE_SEARCH)?;
            // Only the columns that the condition names are decoded.
            let table = table_of(attributes, &places, self.here(block).map(|number| block.attributes_of(number)));
            let truth = condition.is_true(&table)?;
            let met = self.here(block).zip(truth.values()).filter(|&(_, is_met)| is_met);
            met.for_each(|(number, _)| passing.rows.insert(number.into()));
        }
        // Deleted rows were not evaluated, so they do not pass.
        let live = passing.rows.len();
        Ok(Self { passing: Some(Arc::new(passing)), live, ..self.clone() })
    }

    /// Returns the columns of the live rows, one table per block, in row order. An item is an error if memory is too
    /// small for its table.
    pub(in crate::collection) fn tables<'a>(
        &'a self,
        context: &Context,
        attributes: &'a [Attribute],
    ) -> impl Iterator<Item = Result<RecordBatch>> + use<'a> {
        let context = context.clone();
        self.blocks.iter().map(move |block| {
            let _columns = context.reserve(Self::columns_bytes(block), PURPOSE)?;
            let all: Vec<usize> = (0..attributes.len()).collect();
            Ok(table_of(attributes, &all, self.here(block).map(|number| block.attributes_of(number))))
        })
    }

    /// Returns the bytes of the largest table of [`Self::tables`].
    pub(in crate::collection) fn columns_reading_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| Self::columns_bytes(block)).max().unwrap_or(0)
    }

    /// Returns the bytes of texts and columns of all rows, including deleted ones.
    pub(in crate::collection) fn text_bytes(&self) -> TextBytes {
        TextBytes::of(self.blocks.iter().map(|full| &*full.block))
    }

    /// Returns the memory in bytes of a block's columns as Arrow tables.
    fn columns_bytes(block: &Block) -> u64 {
        COPIES_OF_ATTRIBUTES * (block.attributes.bytes.len() + size_of::<u64>() * block.ids.len()) as u64
    }

    /// Appends the ids of all live rows to `ids`, which must be of the same kind.
    pub(in crate::collection) fn push_ids(&self, ids: &mut Ids) {
        for block in &self.blocks {
            self.here(block).for_each(|number| ids.push_from(&block.ids, (number - block.first) as usize));
        }
    }

    /// Returns whether a row is not deleted, and matches the filter.
    pub(super) fn is_live(&self, number: u32) -> bool {
        match &self.passing {
            Some(passing) => passing.rows.contains(number.into()),
            None => !self.deleted.contains(number.into()),
        }
    }
}
