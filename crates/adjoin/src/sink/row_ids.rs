//! Reads the ids of the rows of one or two stores after a join, in the order of row numbers.

use std::path::PathBuf;

use adjoin_device::Reservation;
use arrow_array::ArrayRef;
use arrow_schema::Field;

use super::table::{TableBytes, TableWriter};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::output::Target;
use crate::base::sorter::{SORTER_BYTES_MIN, Sorted, Sorter};
use crate::load::{JoinSide, ReadAhead, Sets, least_read_ahead};
use crate::plan::Load;
use crate::source::{IdKind, Ids};
use crate::store::Store;

/// Maximum number of rows that are written at once, and maximum bytes of their ids.
const BATCH_ROWS: usize = 8 << 10;
const BATCH_BYTES: u64 = 256 << 10;
/// Maximum memory of a sorter. With more memory, it would not be faster.
const SORTER_BYTES_MAX: u64 = 256 << 20;
/// Memory that is left for a join in addition to its minimum, for the edges of a small set. Without it, the plan of
/// the join might refuse the budget later.
const EDGE_BYTES: u64 = 256 << 10;
/// Sinks may use the free memory divided by this number for sorting. A join needs the rest.
const SHARE: u64 = 8;

/// Memory needs of a sink, reserved before a join is planned.
pub(super) struct SinkNeeds {
    /// Bytes that are held during the whole join.
    pub(super) bytes: u64,
    /// Number of sorters that receive pairs during the join.
    pub(super) sorters_during: u64,
    /// Number of sorters that are in use at the same time after the join.
    pub(super) sorters_after: u64,
    /// Minimum memory of the join, which is planned with the memory that remains.
    pub(super) join_bytes: u64,
    /// Purpose of the memory, used in error messages.
    pub(super) purpose: &'static str,
}

impl SinkNeeds {
    /// Returns the bytes to reserve before the join, if each sorter has `sorter` bytes. The phase that needs the most
    /// memory determines them.
    fn held(&self, sorter: u64, read_ahead: u64, tables: &[TableBytes]) -> u64 {
        let joining = self.sorters_during * sorter;
        let reading = self.sorters_after * sorter + read_ahead;
        // When the table is written, all records are sorted already.
        let writing = self.sorters_after * Sorter::bytes_when_sorted(sorter);
        let begun: u64 = tables.iter().map(|table| table.begun).sum();
        let written: u64 = tables.iter().map(|table| table.written).sum();
        // Only one of joining, reading and writing happens at a time, so the largest of them counts.
        self.bytes + (joining.max(reading) + begun).max(writing + written)
    }
}

/// Working state of a sink for results about rows. If there are two sets, or a set that has grown, the row numbers of
/// the second set (or of the new rows) begin after the largest possible row number of the first.
pub(super) struct Rows<'a> {
    pub(super) context: &'a Context,
    /// Store of the first set.
    pub(super) store: &'a Store,
    sets: Sets<'a>,
    /// Folder of temporary files.
    at: PathBuf,
    sorter_bytes: u64,
    memory: Reservation,
}

impl<'a> Rows<'a> {
    /// Reserves memory before a join is planned. Fails if too little would be left for the join.
    pub(super) fn reserve(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        targets: [Option<&Target>; 2],
        needs: SinkNeeds,
    ) -> Result<Self> {
        let sets = sets.into();
        let store = sets.left();
        let SinkNeeds { join_bytes, purpose, .. } = needs;
        let ids = sets.results_of().store().manifest().ids;
        let bytes_of = |target| TableWriter::memory_bytes(target, ids);
        let tables = targets.into_iter().flatten().map(bytes_of).collect::<Result<Vec<_>>>()?;
        let read_ahead = least_read_ahead(sets.buckets()?.extents(), true);
        let held = |sorter| needs.held(sorter, read_ahead, &tables);
        // The sorters get a fraction of the memory that the join and the other buffers of the sink do not need.
        let share = context.budget().free().saturating_sub(held(0) + join_bytes) / SHARE / needs.sorters_after;
        let sorter_bytes = share.clamp(SORTER_BYTES_MIN, SORTER_BYTES_MAX);
        let needed = held(sorter_bytes);
        // If the memory does not suffice for the sink and the join together, this fails now, and the message names
        // the sum.
        drop(context.reserve(needed + join_bytes + EDGE_BYTES, purpose)?);
        let memory = context.reserve(needed, purpose)?;
        let path = targets.into_iter().flatten().find_map(Target::path);
        let at = context.temporary(path.map(Target::parent_of));
        Ok(Self { context, store, sets, at, sorter_bytes, memory })
    }

    /// Reserves memory. If there is a target, creates a table with a column of ids and one other column.
    pub(super) fn with_table(
        context: &'a Context,
        sets: Sets<'a>,
        target: Option<&Target>,
        needs: SinkNeeds,
        column: Field,
    ) -> Result<(Self, Option<TableWriter>)> {
        let rows = Self::reserve(context, sets, [target, None], needs)?;
        let fields = vec![rows.ids().field("id"), column];
        let table = target.map(|target| TableWriter::create(context, target, fields)).transpose()?;
        Ok((rows, table))
    }

    /// Returns the reservation, for data that outlives the sink.
    pub(super) fn into_memory(self) -> Reservation {
        self.memory
    }

    /// Returns the largest possible row number plus 1.
    pub(super) fn end<'s>(sets: impl Into<Sets<'s>>) -> u64 {
        sets.into().stores().map(|store| store.manifest().source_rows).sum()
    }

    /// Returns whether the result covers a row.
    pub(super) fn covers(&self, row: u64) -> bool {
        self.is_of_second(row) == self.sets.have_grown()
    }

    /// Returns whether a row is of the second set, or is a new row.
    pub(super) fn is_of_second(&self, row: u64) -> bool {
        row >= Self::end(self.store)
    }

    /// Returns the number of a row within its own set. The old and new rows of a set that has grown are one set.
    pub(super) fn own_number(&self, row: u64) -> u64 {
        let before = if self.sets.have_grown() { 0 } else { Self::end(self.store) };
        row.checked_sub(before).unwrap_or(row)
    }

    /// Returns the number of rows that the result covers.
    pub(super) fn covered_rows(&self) -> u64 {
        self.sets.results_of().rows()
    }

    /// Returns the number of rows of all sets.
    pub(super) fn all_rows(&self) -> u64 {
        self.sets.sides().map(JoinSide::rows).sum()
    }

    /// Returns the number of possible row numbers.
    pub(super) fn count(&self) -> u64 {
        Self::end(self.sets)
    }

    /// Returns the two rows of a pair: first the row that may be removed, then the row that may be kept for it. In
    /// one set, these are the later and the earlier row. If there are two sets, they are the row of the first set and
    /// the row of the second.
    pub(super) fn later_first(&self, left: u64, right: u64) -> (u64, u64) {
        match self.sets.other_side().filter(|_| !self.sets.have_grown()) {
            None => (right, left),
            Some(_) => (left, Self::end(self.store) + right),
        }
    }

    /// Returns the kind of the ids of the rows that the result covers.
    pub(super) fn ids(&self) -> IdKind {
        self.sets.results_of().store().manifest().ids
    }

    pub(super) fn sorter(&self) -> Sorter {
        Sorter::new(self.context, &self.at, self.sorter_bytes)
    }

    /// Passes every row that passes the filter to `take`, with its id and its stored vector, bucket by bucket.
    pub(super) fn each(
        &self,
        phase: &'static str,
        mut take: impl FnMut(u64, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Self { context, store, sets, .. } = *self;
        let (buckets, bytes) = (&sets.buckets()?, store.manifest().vectors.bytes());
        context.progress.begin(phase, "buckets", buckets.count().into());
        let memory = least_read_ahead(buckets.extents(), true);
        let loads = Load::each(buckets.count()).filter(|load| buckets.members(load.bucket) > 0);
        let mut ahead = ReadAhead::new(context, phase, buckets, true, memory, loads, &context.cancel)?.in_parts();
        let mut id = Vec::new();
        while let Some(stored) = ahead.next_bucket()? {
            context.cancel.check()?;
            context.progress.advance(stored.number().into());
            // In a set that has grown, new rows are numbered in this way already.
            let of_second = buckets.are_of_two_sets() && buckets.part_of(stored.number()) > 0;
            let first = if of_second { Self::end(store) } else { 0 };
            let members = stored.members(buckets)?;
            let vectors = members.vectors.chunks_exact(bytes);
            for (k, (&row, vector)) in members.rows.iter().zip(vectors).enumerate() {
                id.clear();
                members.ids.append_bytes_of(k, &mut id);
                take(first + row, &id, vector)?;
            }
        }
        Ok(())
    }

    /// Returns whether rows have no ids and no row is missing, so that the rows need not be read to list them.
    pub(super) fn are_numbers<'s>(sets: impl Into<Sets<'s>>) -> bool {
        sets.into().sides().all(|side| {
            let manifest = side.store().manifest();
            // If rows are missing, for example rows without a vector, they must not be listed, so the rows are read.
            manifest.ids == IdKind::None && side.rows() == manifest.source_rows
        })
    }

    /// Returns the ids in the order of rows.
    pub(super) fn sorted(&self) -> Result<RowIds> {
        if Self::are_numbers(self.sets) {
            return Ok(RowIds::numbers(Self::end(self.sets)));
        }
        let mut sorter = self.sorter();
        // Rows are stored in the order of centers, but results list them by number, so they are sorted.
        self.each("ids", |row, id, _| sorter.push((row, 0), id))?;
        Ok(RowIds::Sorted(Box::new(sorter.finish()?)))
    }
}

/// Rows in order, with their ids.
pub(super) enum RowIds {
    /// Rows without ids, identified by their numbers.
    Numbers {
        next: u64,
        end: u64,
    },
    Sorted(Box<Sorted>),
}

impl RowIds {
    /// Creates the rows before `end`, identified by their numbers.
    pub(super) fn numbers(end: u64) -> Self {
        Self::Numbers { next: 0, end }
    }

    /// Returns the next row, and writes its id to `id`.
    pub(super) fn next(&mut self, id: &mut Vec<u8>) -> Result<Option<u64>> {
        match self {
            Self::Numbers { next, end } => {
                let row = *next;
                *next += 1;
                Ok((row < *end).then_some(row))
            }
            Self::Sorted(sorted) => Ok(sorted.next(id)?.map(|(row, _)| row)),
        }
    }

    pub(super) fn restart(&mut self) {
        match self {
            Self::Numbers { next, .. } => *next = 0,
            Self::Sorted(sorted) => sorted.restart(),
        }
    }

    /// Returns the bytes written to disk.
    pub(super) fn spilled(&self) -> u64 {
        match self {
            Self::Numbers { .. } => 0,
            Self::Sorted(sorted) => sorted.spilled(),
        }
    }
}

/// A column of ids that is being filled.
pub(crate) struct IdColumn {
    rows: Vec<u64>,
    ids: Ids,
}

impl IdColumn {
    pub(crate) fn new(kind: IdKind) -> Self {
        Self { rows: Vec::new(), ids: Ids::empty(kind) }
    }

    pub(crate) fn push(&mut self, row: u64, id: &[u8]) {
        self.rows.push(row);
        self.ids.push_bytes(id);
    }

    /// Returns whether the column has enough data to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_ROWS || self.ids.bytes() >= BATCH_BYTES
    }

    /// Returns the column, and begins a new one.
    pub(crate) fn take(&mut self) -> ArrayRef {
        self.take_with_rows().1
    }

    /// Returns the row numbers and the column, and begins a new one.
    pub(crate) fn take_with_rows(&mut self) -> (Vec<u64>, ArrayRef) {
        let column = self.ids.column(&self.rows);
        let Self { rows, .. } = std::mem::replace(self, Self::new(self.ids.kind()));
        (rows, column)
    }
}
