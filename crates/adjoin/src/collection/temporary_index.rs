//! The temporary index: rows that were written since the last merge. They are in memory, in write order.
//!
//! Rows are stored in blocks. A full block never changes, so searches share it with writers. The last block may change,
//! so a search copies it. A search compares its queries with all rows, which takes less time than the page reads of one
//! walk for some ten thousand vectors, and misses no row. If there are more, a background thread groups the rows of
//! full blocks into buckets (`bucketed.rs`), of which a query probes a few (`find.rs`).

mod bucketed;
mod find;
mod for_index;
mod view;

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use adjoin_device::Reservation;
use adjoin_kernels::Kernel;

use self::bucketed::{BucketedBlocks, Replaced};
pub(super) use self::view::{BlockPart, TemporaryView};
use super::change::Change;
use super::ids::Numbers;
use super::packed::PackedRows;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, longest, with_coordinates};
use crate::base::options::Metric;
use crate::base::shared_rows::SharedRows;
use crate::execute::PackedBucket;
use crate::load::{LoadedBucket, Members};
use crate::source::Ids;

/// Approximate bytes of the vectors in a block. The bound also applies to the columns, and to the texts of ids.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes that an empty index reserves.
const LEAST_BYTES: u64 = 4 * BLOCK_BYTES as u64;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "rows that are not merged yet";
const PURPOSE_SEARCH: &str = "this search";
/// Maximum bytes of packed columns that are unpacked at once.
const COLUMNS_BYTES: usize = 256 << 10;
/// Number of full blocks that are grouped into buckets together. Comparing a query with 8 blocks takes about 0.2 ms.
const BUCKETED_TOGETHER: usize = 8;
/// Number of copies of a block's columns that a filter needs, for Arrow columns and intermediate results.
const COPIES_OF_ATTRIBUTES: u64 = 4;

/// Block of consecutive rows.
#[derive(Clone)]
struct Block {
    /// Number of the first row.
    first: u32,
    stored: Vec<u8>,
    ids: Ids,
    attributes: PackedRows,
}

/// A full block, and its packed form, with which queries are compared. The first query builds the packed form.
struct Full {
    block: Arc<Block>,
    /// A `PackedBucket` of the coordinates of the space.
    packed: OnceLock<Box<dyn Any + Send + Sync>>,
    replaced: Replaced,
}

impl Deref for Full {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.block
    }
}

/// The rows in memory, with a set of the deleted ones.
pub(super) struct TemporaryIndex {
    space: Space<'static>,
    block_rows: usize,
    full: Vec<Arc<Full>>,
    /// The first full blocks, grouped into buckets.
    bucketed: Vec<Arc<BucketedBlocks>>,
    /// Number of full blocks from which on more of them are grouped.
    bucket_at: usize,
    last: Block,
    /// Numbers of the rows that were deleted or replaced.
    deleted: SharedRows,
    rows: u32,
    numbers: Numbers,
    /// Bytes of the largest change.
    change_bytes_max: u64,
    memory: Reservation,
}

/// Undo record of a change: the numbers of the rows that it inserted, and of those that it deleted or replaced.
pub(super) struct Undo {
    inserted: std::ops::Range<u32>,
    deleted: Vec<u32>,
}

/// Total bytes of the id texts and of the columns of some rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TextBytes {
    pub(super) rows: u64,
    pub(super) ids: u64,
    pub(super) columns: u64,
}

impl TextBytes {
    fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Self {
        blocks.fold(Self::default(), |sum, block| sum.and(&block.ids, &block.attributes))
    }

    /// Returns the sum of these sizes and the sizes of more rows.
    pub(super) fn and(self, ids: &Ids, columns: &PackedRows) -> Self {
        Self {
            rows: self.rows + ids.len() as u64,
            ids: self.ids + ids.bytes_of_texts(),
            columns: self.columns + columns.bytes.len() as u64,
        }
    }
}

/// Full blocks whose rows are being grouped into buckets.
pub(super) struct Bucketing {
    space: Space<'static>,
    /// Index of the first block.
    start: usize,
    blocks: Vec<Arc<Full>>,
    /// The buckets of some of these blocks, which are replaced. Held here, so that they are freed without a lock.
    replaced: Vec<Arc<BucketedBlocks>>,
}

/// Buckets that were made of full blocks, and the memory of the form that they replace.
pub(super) struct NewBuckets(BucketedBlocks, Reservation);

/// Returns the number of rows of a full block.
fn block_rows(space: Space<'_>) -> usize {
    (BLOCK_BYTES / space.vectors.bytes()).max(1)
}

/// Returns the bytes of the packed form of a row, averaged over many rows.
fn packed_row_bytes(space: Space<'static>) -> u64 {
    with_coordinates!(space, T => PackedBucket::<T>::memory_bytes(1 << 10, space) >> 10)
}

impl Bucketing {
    /// Groups the rows into buckets.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled.
    pub(super) fn run(&self, context: &Context, seed: u64) -> Result<NewBuckets> {
        let rows: usize = self.blocks.iter().map(|block| block.rows().len()).sum();
        let packed = rows as u64 * packed_row_bytes(self.space);
        let (buckets, replaced) = BucketedBlocks::new(context, self.space, &self.blocks, packed, seed)?;
        Ok(NewBuckets(buckets, replaced))
    }
}

impl TemporaryIndex {
    /// Creates an empty index over `space`. `no_ids` is an empty list of ids of the collection's kind.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn new(context: &Context, space: Space<'static>, no_ids: Ids) -> Result<Self> {
        let memory = context.reserve_between_runs(LEAST_BYTES, PURPOSE)?;
        Ok(Self {
            space,
            block_rows: block_rows(space),
            full: Vec::new(),
            bucketed: Vec::new(),
            bucket_at: if BucketedBlocks::are_possible(space) { BUCKETED_TOGETHER } else { usize::MAX },
            numbers: Numbers::new(no_ids.kind()),
            last: Block::new(0, no_ids),
            deleted: SharedRows::new(0),
            rows: 0,
            change_bytes_max: 0,
            memory,
        })
    }

    /// Returns the memory in bytes that the rows of a change take.
    pub(super) fn bytes_of(&self, change: &Change) -> u64 {
        let space = self.space;
        let Change { ids, stored, attributes, .. } = change;
        let of_attributes = attributes.bytes.len() + size_of::<u64>() * attributes.len();
        let of_vectors = stored.len() as u64 + 3 * ids.bytes();
        of_vectors + of_attributes as u64 + ids.len() as u64 * Self::row_bytes(space, 0)
    }

    /// Returns the memory in bytes of a row, in addition to its vector, its columns, and the `text` bytes of its id.
    pub(super) fn row_bytes(space: Space<'static>, text: u64) -> u64 {
        Numbers::memory_bytes(text) + packed_row_bytes(space)
    }

    /// Returns the memory in bytes for reading the columns of a block, if the columns of a row take `row_bytes`.
    pub(super) fn block_columns_bytes(row_bytes: u64) -> u64 {
        COPIES_OF_ATTRIBUTES * (2 * BLOCK_BYTES as u64 + row_bytes)
    }

    /// Returns the bytes that an empty index reserves.
    pub(super) fn least_bytes() -> u64 {
        LEAST_BYTES
    }

    /// Reserves `bytes` for changes.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn room_for(context: &Context, bytes: u64) -> Result<Reservation> {
        context.reserve_between_runs(bytes, PURPOSE)
    }

    /// Returns the memory in bytes for marking the rows that a change deletes, or those that undoing it deletes.
    pub(super) fn deleting_bytes(&self, change: &Change) -> u64 {
        let Change { deleted, ids, .. } = change;
        // A deleted id deletes a row. An id of an inserted row deletes a row too, and undoing the change another one.
        let count = (deleted.len() + 2 * ids.len()) as u64;
        Self::marking_bytes(count, u64::from(self.rows) + ids.len() as u64)
    }

    /// Returns the memory in bytes for marking `count` of `rows` rows as deleted.
    pub(super) fn marking_bytes(count: u64, rows: u64) -> u64 {
        SharedRows::change_bytes(count, rows)
    }

    /// Applies a change for which `room` was reserved. Marks deleted rows with memory from `deletes`, of which it takes
    /// at most [`Self::deleting_bytes`]. Returns the undo record.
    pub(super) fn apply(&mut self, change: &Change, room: Reservation, deletes: &mut Reservation) -> Undo {
        self.memory.join(room);
        self.change_bytes_max = self.change_bytes_max.max(change.held_bytes());
        let (first, mut deleted) = (self.rows, Vec::new());
        // Deletes are applied first, since a write may delete an id and insert it again.
        for k in 0..change.deleted.len() {
            deleted.extend(self.numbers.remove(&change.deleted, k));
        }
        for (k, vector) in change.stored.chunks_exact(self.space.vectors.bytes()).enumerate() {
            deleted.extend(self.numbers.set(&change.ids, k, self.rows));
            self.push(vector, change, k);
        }
        self.deleted.grow(self.rows.into());
        deleted.iter().for_each(|&number| _ = self.deleted.insert(number.into(), deletes));
        Undo { inserted: first..self.rows, deleted }
    }

    /// Undoes the last change that is not undone yet. The rows that the change inserted count as deleted, but take up
    /// memory until the next merge. Takes at most [`Self::deleting_bytes`] of `room`.
    pub(super) fn undo(&mut self, Undo { inserted, deleted }: Undo, room: &mut Reservation) {
        for number in inserted.clone().rev() {
            let block = Self::block(&self.full, &self.last, number);
            self.numbers.remove(&block.ids, (number - block.first) as usize);
            // If a later row of the change has the same id, this row was already deleted.
            self.deleted.insert(number.into(), room);
        }
        // Rows that the change both inserted and deleted stay deleted.
        for number in deleted.into_iter().filter(|number| !inserted.contains(number)) {
            let block = Self::block(&self.full, &self.last, number);
            self.numbers.set(&block.ids, (number - block.first) as usize, number);
            self.deleted.remove(number.into(), room);
        }
    }

    /// Returns the block that holds a row.
    fn block<'a>(full: &'a [Arc<Full>], last: &'a Block, number: u32) -> &'a Block {
        match full.partition_point(|block| block.first <= number) {
            at if at > 0 && number < last.first => &full[at - 1],
            _ => last,
        }
    }

    fn push(&mut self, vector: &[u8], Change { ids, attributes, .. }: &Change, k: usize) {
        self.last.stored.extend_from_slice(vector);
        self.last.ids.push_from(ids, k);
        if !attributes.is_empty() {
            self.last.attributes.push(attributes.get(k));
        }
        self.rows += 1;
        // A block also ends when its columns are large, since a filter decodes a whole block at a time, or when its id
        // texts are large, since a search copies the last block.
        let texts_bytes = self.last.ids.bytes_of_texts().max(self.last.attributes.bytes.len() as u64);
        if self.last.ids.len() == self.block_rows || texts_bytes >= BLOCK_BYTES as u64 {
            // The block is copied, since a copy has no spare capacity. A vector that grew may have twice the capacity
            // that it needs.
            self.full.push(Arc::new(Full::new(Arc::new(self.last.clone()))));
            self.last = Block::new(self.rows, Ids::empty(ids.kind()));
        }
    }

    /// Returns the memory in bytes that the rows and their buckets take.
    pub(super) fn held_bytes(&self) -> u64 {
        self.rows_bytes() + self.bucketed.iter().map(|buckets| buckets.extra_bytes()).sum::<u64>()
    }

    /// Returns the memory in bytes that the rows take, without their buckets.
    pub(super) fn rows_bytes(&self) -> u64 {
        self.memory.bytes() - LEAST_BYTES
    }

    /// Returns the bytes of texts and columns of all rows, including deleted ones.
    pub(super) fn text_bytes(&self) -> TextBytes {
        TextBytes::of(self.full.iter().map(|full| &*full.block).chain([&self.last]))
    }

    /// Returns the bytes of the largest change that was applied.
    pub(super) fn change_bytes_max(&self) -> u64 {
        self.change_bytes_max
    }

    /// Returns the number of live rows.
    pub(super) fn live(&self) -> u64 {
        u64::from(self.rows) - self.deleted.len()
    }

    /// Returns the number of deleted rows that are still in memory.
    pub(super) fn deleted_rows(&self) -> u64 {
        self.deleted.len()
    }

    /// Returns whether a live row has id `k`.
    pub(super) fn has(&self, ids: &Ids, k: usize) -> bool {
        self.number(ids, k).is_some()
    }

    /// Returns the number of the live row with id `k`.
    pub(super) fn number(&self, ids: &Ids, k: usize) -> Option<u32> {
        self.numbers.get(ids, k)
    }

    /// Returns a view of the current rows, whose searches compare queries with all rows.
    pub(super) fn view(&self) -> TemporaryView {
        let mut blocks = self.full.clone();
        if !self.last.stored.is_empty() {
            blocks.push(Arc::new(Full::new(Arc::new(self.last.clone()))));
        }
        let (bucketed, deleted) = (self.bucketed.clone(), self.deleted.clone());
        TemporaryView { space: self.space, blocks, bucketed, deleted, passing: None, live: self.live(), recall: None }
    }

    /// Returns the number of rows in buckets, including deleted ones.
    pub(super) fn bucketed_rows(&self) -> u64 {
        self.bucketed.last().map_or(0, |buckets| buckets.end().into())
    }

    /// Returns whether there are enough full blocks to group into buckets.
    pub(super) fn needs_buckets(&self) -> bool {
        self.full.len() >= self.bucket_at
    }

    /// Returns the full blocks to group into buckets, if there are enough. More are returned only after
    /// [`Self::end_bucketing`]. Earlier groups are grouped again if they have no more blocks than the new one, so each
    /// row is grouped a few times, and there are few groups.
    pub(super) fn begin_bucketing(&mut self) -> Option<Bucketing> {
        if !self.needs_buckets() {
            return None;
        }
        self.bucket_at = usize::MAX;
        let mut start = self.bucketed.iter().map(|earlier| earlier.blocks).sum::<usize>();
        let mut kept = self.bucketed.len();
        while kept > 0 && self.bucketed[kept - 1].blocks <= self.full.len() - start {
            kept -= 1;
            start -= self.bucketed[kept].blocks;
        }
        let (blocks, replaced) = (self.full[start..].to_vec(), self.bucketed[kept..].to_vec());
        Some(Bucketing { space: self.space, start, blocks, replaced })
    }

    /// Replaces the packed forms of full blocks by buckets; `made` is `None` if they could not be made. Does nothing if
    /// a merge has removed the blocks in the meantime.
    pub(super) fn end_bucketing(&mut self, bucketing: &Bucketing, made: Option<NewBuckets>) {
        let Bucketing { start, ref blocks, replaced: ref earlier, .. } = *bucketing;
        if self.full.get(start).is_none_or(|block| !Arc::ptr_eq(block, &blocks[0])) {
            return;
        }
        let Some(NewBuckets(buckets, replaced)) = made else {
            self.bucket_at = self.full.len() + BUCKETED_TOGETHER;
            return;
        };
        self.bucket_at = start + blocks.len() + BUCKETED_TOGETHER;
        // Views may still use the old forms, so their memory is released with the last of them.
        let replaced = Arc::new(replaced);
        earlier.iter().for_each(|earlier| _ = earlier.replaced.set(replaced.clone()));
        self.bucketed.truncate(self.bucketed.len() - earlier.len());
        for block in &mut self.full[start..start + blocks.len()] {
            let _ = block.replaced.set(replaced.clone());
            *block = Arc::new(Full::new(block.block.clone()));
        }
        self.bucketed.push(Arc::new(buckets));
    }
}

impl Undo {
    /// Returns the number of rows that were deleted or replaced.
    pub(super) fn deleted(&self) -> u64 {
        self.deleted.len() as u64
    }
}

impl Full {
    fn new(block: Arc<Block>) -> Self {
        Self { block, packed: OnceLock::new(), replaced: OnceLock::new() }
    }

    /// Returns the packed form of all rows, including deleted ones, by row number. Queries are compared with it.
    fn packed<T: Coordinate + 'static>(&self, kernel: Kernel, space: Space<'static>) -> &PackedBucket<T> {
        // The first query computes the packed form. If a collection is only written to, this saves time and memory.
        let packed = self.packed.get_or_init(|| {
            // For inner products, rows are lifted with the length of the longest row of the block, since a later row
            // may be longer than all rows before it.
            let space = match space.metric {
                Metric::Ip => space.up_to_length(Some(longest(kernel, space.vectors, &self.stored))),
                Metric::L2 | Metric::Cosine => space,
            };
            let members = Members::<T>::new(kernel, space, &self.stored);
            let bucket = LoadedBucket::of_rows(members, self.rows().map(u64::from).collect());
            Box::new(PackedBucket::new(kernel, space, bucket))
        });
        packed.downcast_ref().expect("the coordinates of a space are of one type")
    }
}

impl Block {
    fn new(first: u32, no_ids: Ids) -> Self {
        Self { first, stored: Vec::new(), ids: no_ids, attributes: PackedRows::default() }
    }

    /// Returns the packed columns of a row; empty if the collection has no columns.
    fn attributes_of(&self, number: u32) -> &[u8] {
        if self.attributes.is_empty() { &[] } else { self.attributes.get((number - self.first) as usize) }
    }

    fn rows(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.ids.len() as u32
    }
}

#[cfg(test)]
mod tests;
