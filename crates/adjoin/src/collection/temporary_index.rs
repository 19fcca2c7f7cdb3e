//! The temporary index: rows that were written since the last merge. They are in memory, in write order.
//!
//! A search compares its queries with all of these rows. For some ten thousand vectors, this takes less time than the
//! page reads of one walk, and it misses no row. Rows are stored in blocks. A full block never changes, so searches
//! share it with writers. The last block may change, so a search copies it.

mod for_index;

use std::any::Any;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use adjoin_device::Reservation;
use adjoin_kernels::Kernel;
use arrow_array::RecordBatch;

use super::attributes::{Attribute, schema};
use super::change::Change;
use super::ids::Numbers;
use super::packed::{PackedRows, table_of};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, longest, with_coordinates};
use crate::base::options::Metric;
use crate::base::row_numbers::RowSet;
use crate::base::shared_rows::SharedRows;
use crate::base::workers::map_items;
use crate::execute::{AllNearest, Hit, NearestSearch, NumberedQueries, PackedBucket};
use crate::load::{LoadedBucket, Members};
use crate::query::QueryTarget;
use crate::source::{IdKind, Ids};
use crate::sql::Condition;

/// Approximate bytes of the vectors in a block. The bound also applies to the columns, and to the texts of ids.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes that an empty index reserves.
const LEAST_BYTES: u64 = 4 * BLOCK_BYTES as u64;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "rows that are not merged yet";
const PURPOSE_SEARCH: &str = "this search";
/// Maximum bytes of packed columns that are unpacked at once.
const COLUMNS_BYTES: usize = 256 << 10;
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
    block: Block,
    /// A `PackedBucket` of the coordinates of the space.
    packed: OnceLock<Box<dyn Any + Send + Sync>>,
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

/// Live rows of a view, with their columns, as the source of a merge.
pub(super) struct ViewRows<'a> {
    view: &'a TemporaryView,
    attributes: &'a [Attribute],
    numbers: Vec<u32>,
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

/// The live rows of a part of a block.
pub(super) struct BlockPart {
    /// Vectors of these rows, end to end.
    pub(super) stored: Vec<u8>,
    pub(super) ids: Ids,
    /// Index in the block of the first row after the part.
    pub(super) end: usize,
}

/// The temporary index at one moment, for searches.
#[derive(Clone)]
pub(super) struct TemporaryView {
    space: Space<'static>,
    blocks: Vec<Arc<Full>>,
    deleted: SharedRows,
    /// Rows that match a filter; `None` if there is none.
    passing: Option<Arc<PassingRows>>,
    /// Number of live rows that match the filter.
    live: u64,
}

/// Rows in memory that match a filter.
struct PassingRows {
    rows: RowSet,
    _memory: Reservation,
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
            block_rows: (BLOCK_BYTES / space.vectors.bytes()).max(1),
            full: Vec::new(),
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
        // This is an average over many rows, so that rounding up does not matter.
        let packed = with_coordinates!(space, T => PackedBucket::<T>::memory_bytes(1 << 10, space) >> 10);
        Numbers::memory_bytes(text) + packed
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
            at if at > 0 && number < last.first => &full[at - 1].block,
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
            self.full.push(Arc::new(Full::new(self.last.clone())));
            self.last = Block::new(self.rows, Ids::empty(ids.kind()));
        }
    }

    /// Returns the memory in bytes that the rows take.
    pub(super) fn held_bytes(&self) -> u64 {
        self.memory.bytes() - LEAST_BYTES
    }

    /// Returns the bytes of texts and columns of all rows, including deleted ones.
    pub(super) fn text_bytes(&self) -> TextBytes {
        TextBytes::of(self.full.iter().map(|full| &full.block).chain([&self.last]))
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

    /// Returns a view of the current rows.
    pub(super) fn view(&self) -> TemporaryView {
        let mut blocks = self.full.clone();
        if !self.last.stored.is_empty() {
            blocks.push(Arc::new(Full::new(self.last.clone())));
        }
        TemporaryView { space: self.space, blocks, deleted: self.deleted.clone(), passing: None, live: self.live() }
    }
}

impl Undo {
    /// Returns the number of rows that were deleted or replaced.
    pub(super) fn deleted(&self) -> u64 {
        self.deleted.len() as u64
    }
}

impl Full {
    fn new(block: Block) -> Self {
        Self { block, packed: OnceLock::new() }
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

impl TemporaryView {
    /// Returns the live rows, for a merge.
    pub(super) fn came<'a>(&'a self, attributes: &'a [Attribute]) -> ViewRows<'a> {
        let numbers = self.blocks.iter().flat_map(|block| block.rows()).filter(|&number| self.is_live(number));
        ViewRows { view: self, attributes, numbers: numbers.collect() }
    }

    /// Returns the block that holds a row.
    fn block_of(&self, number: u32) -> &Block {
        &self.blocks[self.blocks.partition_point(|block| block.first <= number) - 1]
    }

    /// Returns the vector and the packed columns of a row.
    pub(super) fn row(&self, number: u32) -> (&[u8], &[u8]) {
        let (block, bytes) = (self.block_of(number), self.space.vectors.bytes());
        (&block.stored[(number - block.first) as usize * bytes..][..bytes], block.attributes_of(number))
    }

    /// Returns a table of the first rows in `numbers`, with the columns whose indexes are `places`. The number of rows
    /// is such that their packed columns take at most [`COLUMNS_BYTES`], but at least 1.
    pub(super) fn columns(&self, attributes: &[Attribute], places: &[usize], numbers: &[u32]) -> RecordBatch {
        let mut bytes = 0;
        let fits = |&&number: &&u32| {
            bytes += self.row(number).1.len();
            bytes <= COLUMNS_BYTES
        };
        let count = numbers.iter().take_while(fits).count().max(1).min(numbers.len());
        table_of(attributes, places, numbers[..count].iter().map(|&number| self.row(number).1))
    }

    /// Returns the largest size of the packed columns of a row, in bytes.
    pub(super) fn columns_bytes_max(&self) -> u64 {
        let rows = self.blocks.iter().flat_map(|block| block.rows().map(|number| block.attributes_of(number).len()));
        rows.max().unwrap_or(0) as u64
    }

    /// Returns whether the view has no rows, not even deleted ones.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the number of rows, including deleted ones.
    pub(super) fn rows_ever(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.rows().end.into())
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the approximate bytes of a block.
    pub(super) fn block_bytes() -> u64 {
        2 * BLOCK_BYTES as u64
    }

    /// Returns the vectors and ids of live rows of a block. Starts at row `start` of the block, and ends once the
    /// vectors or the ids take `batch_bytes` bytes.
    pub(super) fn part_of(&self, block: usize, start: usize, batch_bytes: usize) -> BlockPart {
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
    pub(super) fn block_rows(&self, block: usize) -> usize {
        self.blocks[block].ids.len()
    }

    /// Returns the mean bytes of a text id, in the block with the longest mean; `None` if ids are not texts.
    pub(super) fn id_bytes(&self) -> Option<u64> {
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
    pub(super) fn passing(&self, context: &Context, attributes: &[Attribute], condition: &Condition) -> Result<Self> {
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
    pub(super) fn tables<'a>(
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
    pub(super) fn columns_reading_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| Self::columns_bytes(block)).max().unwrap_or(0)
    }

    /// Returns the bytes of texts and columns of all rows, including deleted ones.
    pub(super) fn text_bytes(&self) -> TextBytes {
        TextBytes::of(self.blocks.iter().map(|full| &full.block))
    }

    /// Returns the memory in bytes of a block's columns as Arrow tables.
    fn columns_bytes(block: &Block) -> u64 {
        COPIES_OF_ATTRIBUTES * (block.attributes.bytes.len() + size_of::<u64>() * block.ids.len()) as u64
    }

    /// Appends the ids of all live rows to `ids`, which must be of the same kind.
    pub(super) fn push_ids(&self, ids: &mut Ids) {
        for block in &self.blocks {
            self.here(block).for_each(|number| ids.push_from(&block.ids, (number - block.first) as usize));
        }
    }

    /// Returns whether a row is not deleted, and matches the filter.
    fn is_live(&self, number: u32) -> bool {
        match &self.passing {
            Some(passing) => passing.rows.contains(number.into()),
            None => !self.deleted.contains(number.into()),
        }
    }

    fn find_members<T: Coordinate>(
        &self,
        context: &Context,
        queries: &Members<T>,
        target: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let _memory = context.reserve(Self::working_bytes::<T>(context, self.space), PURPOSE_SEARCH)?;
        let count = queries.len() as u32;
        let nearest = AllNearest::new((0..count).map(|_| target.nearest(self.space.metric, None)));
        let (order, room): (Vec<u32>, u64) = ((0..count).collect(), target.room(context));
        let (held, full) = (AtomicU64::new(0), AtomicBool::new(false));
        let numbered = NumberedQueries { members: queries, first: 0 };
        let state = || NearestSearch::new(context.kernel, self.space, numbered, &nearest);
        map_items(context.threads, self.blocks.len(), &context.cancel, state, |search, number| {
            // The hits of the batch do not fit into memory. The remaining blocks are skipped, and the caller divides
            // the batch.
            if full.load(Ordering::Relaxed) {
                return Ok(());
            }
            let block = &self.blocks[number];
            let is_there = |member: u32| self.is_live(block.first + member);
            let packed = block.packed::<T>(context.kernel, self.space);
            let (_, more) = search.compare_packed(number as u32, packed, &is_there, &order);
            if held.fetch_add(more, Ordering::Relaxed) + more > room {
                full.store(true, Ordering::Relaxed);
            }
            Ok(())
        })?;
        if full.into_inner() {
            return Ok(None);
        }
        // The row numbers of these rows follow those of the long-term index. The place holds the number in memory,
        // with which the id is looked up.
        let numbered = |hit: Hit| Hit { row: first_row + hit.row, place: (hit.row as u32, 0), ..hit };
        let found = nearest.into_sorted(context)?;
        Ok(Some(found.into_iter().map(|hits| hits.into_iter().map(numbered).collect()).collect()))
    }

    /// Returns the memory in bytes for a search of a temporary index over `space`.
    pub(super) fn finding_bytes_of(context: &Context, space: Space<'static>) -> u64 {
        with_coordinates!(space, T => Self::working_bytes::<T>(context, space))
    }

    fn working_bytes<T: Coordinate>(context: &Context, space: Space<'static>) -> u64 {
        let rows = (BLOCK_BYTES / space.vectors.bytes()).max(1);
        let of_thread = NearestSearch::<T>::memory_bytes(rows, space.dimensions());
        // The copy of the last block is counted separately.
        let last = PackedBucket::<T>::memory_bytes(rows, space) + 3 * BLOCK_BYTES as u64;
        context.threads.max(1) as u64 * of_thread + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::allocated::{allocated, assert_states_bytes};
    use crate::base::options::{Element, VectorType};
    use crate::index::UnmergedRows;
    use crate::source::TextIds;

    fn change(ids: &[i64], stored: &[u8]) -> Change {
        let none = Ids::empty(IdKind::Int64);
        Change { deleted: none, ids: Ids::Int64(ids.to_vec()), stored: stored.to_vec(), attributes: Default::default() }
    }

    /// Inserts `rows` rows in changes of 700, and packs all full blocks as searches do.
    fn grown(context: &Context, space: Space<'static>, kind: IdKind, rows: i64) -> TemporaryIndex {
        let mut index = TemporaryIndex::new(context, space, Ids::empty(kind)).unwrap();
        for first in (0..rows).step_by(700) {
            let mut texts = TextIds::default();
            (first..first + 700).for_each(|k| texts.push(format!("document {k}").as_bytes()));
            let ids = match kind {
                IdKind::Utf8 => Ids::Utf8(texts),
                _ => Ids::Int64((first..first + 700).collect()),
            };
            let (deleted, stored) = (Ids::empty(kind), vec![1; 700 * space.vectors.bytes()]);
            let change = Change { deleted, ids, stored, attributes: Default::default() };
            let room = TemporaryIndex::room_for(context, index.bytes_of(&change)).unwrap();
            let mut deletes = TemporaryIndex::room_for(context, index.deleting_bytes(&change)).unwrap();
            index.apply(&change, room, &mut deletes);
        }
        for full in &index.full {
            with_coordinates!(space, T => _ = full.packed::<T>(context.kernel, space));
        }
        index
    }

    #[test]
    fn rows_hold_at_most_the_bytes_that_are_reserved_for_them() {
        for (element, dimensions) in [(Element::U8, 128), (Element::F32, 48), (Element::I8, 384)] {
            for kind in [IdKind::Int64, IdKind::Utf8] {
                let space = Space::plain(VectorType { element, dimensions }, Metric::L2);
                let (index, held) = allocated(|| grown(&Context::default(), space, kind, 20_000));
                assert_states_bytes(held, index.memory.bytes());
            }
        }
    }

    #[test]
    fn an_undone_change_with_an_id_twice_leaves_the_earlier_row() {
        let context = &Context::default();
        let space = Space::plain(VectorType { element: Element::U8, dimensions: 1 }, Metric::L2);
        let mut index = TemporaryIndex::new(context, space, Ids::empty(IdKind::Int64)).unwrap();
        let room = || TemporaryIndex::room_for(context, 1 << 10).unwrap();
        let (earlier, refused) = (change(&[7], &[1]), change(&[7, 7, 8, 8], &[2, 3, 4, 5]));
        let deletes = &mut TemporaryIndex::room_for(context, 1 << 20).unwrap();
        let _ = index.apply(&earlier, room(), deletes);
        let undo = index.apply(&refused, room(), deletes);
        assert_eq!((index.live(), index.number(&refused.ids, 0), index.number(&refused.ids, 2)), (2, Some(2), Some(4)));
        index.undo(undo, deletes);
        assert_eq!((index.live(), index.deleted_rows()), (1, 4));
        assert_eq!((index.number(&refused.ids, 0), index.number(&refused.ids, 2)), (Some(0), None));
        assert_eq!(index.view().rows(), 1);
    }
}
