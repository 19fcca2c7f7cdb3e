//! Delivers hits from stores, indexes and collections to a sink.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Mutex;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use crossbeam_channel::bounded;

use super::naming::{IdMemory, NameHits, NamedHits, SENT_COPIES};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::mutex::lock;
use crate::base::options::Metric;
use crate::base::predicate::Predicate;
use crate::base::report::SharedSeconds;
use crate::base::workers::spawn_scoped;
use crate::execute::Hit;
use crate::sink::{HitBatch, HitSink};
use crate::source::{Ids, slice_bytes};
use crate::store::ColumnNeeds;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "delivering the hits";
/// Largest number of hits in a batch.
const BATCH_HITS: usize = 4 << 10;
/// Largest number of queries in a batch.
const BATCH_QUERIES: usize = 1 << 10;
/// Approximate limit on the bytes of text ids and columns in a batch.
const BATCH_ID_BYTES: u64 = 96 << 10;
/// Bytes of all batches in flight: one is being filled, one waits, and the sink consumes one.
const BATCHES_BYTES: u64 = 1 << 20;

/// Number of queries up to which the searching thread itself passes hits to the sink. Starting a thread would take longer
/// than it saves.
const FEW_QUERIES: u64 = 64;

/// Number of queries and hits delivered so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    pub(crate) queries: u64,
    pub(crate) hits: u64,
}

/// Delivery of hits to a sink, with the memory reserved for both.
pub(crate) struct HitDelivery<'a> {
    context: &'a Context,
    /// Bytes per row of columns that are part of the reservation.
    row_bytes: u64,
    /// Reservation for rows that are longer.
    long_rows: Mutex<Reservation>,
    _memory: Reservation,
}

/// Callback that delivers a batch of hits.
pub(crate) type DeliverHits<'a> = dyn Fn(HitBatch) -> Result<()> + 'a;

impl<'a> HitDelivery<'a> {
    /// Reserves the memory of a sink that needs `sink_bytes` bytes, and of the batches in flight, whose hits have
    /// `columns`.
    ///
    /// # Errors
    /// If the budget is too small.
    pub(crate) fn new(context: &'a Context, sink_bytes: u64, columns: Option<&ColumnNeeds>) -> Result<Self> {
        let memory = context.reserve(Self::bytes_with(sink_bytes, columns), PURPOSE)?;
        let long_rows = Mutex::new(context.reserve(0, PURPOSE)?);
        Ok(Self { context, row_bytes: columns.map_or(0, |columns| columns.row_bytes), long_rows, _memory: memory })
    }

    /// Returns the bytes that [`HitDelivery::new`] reserves.
    pub(crate) fn bytes_with(sink_bytes: u64, columns: Option<&ColumnNeeds>) -> u64 {
        sink_bytes + BATCHES_BYTES + columns.map_or(0, |columns| SENT_COPIES * columns.row_bytes)
    }

    /// Runs `work`, which searches for `queries` queries, on a separate thread. Meanwhile, this thread passes the batches
    /// that `work` delivers to `sink`. If there are few queries, this thread does both.
    ///
    /// # Errors
    /// The first error of `work` or the sink.
    pub(crate) fn run(
        &self,
        sink: &mut (dyn HitSink + '_),
        queries: u64,
        writing: &SharedSeconds,
        work: impl FnOnce(&DeliverHits<'_>) -> Result<()> + Send,
    ) -> Result<Delivered> {
        let mut delivered = Delivered::default();
        let mut accept = |batch: &HitBatch| {
            let HitBatch { query_rows, hits_before, rows, .. } = batch;
            // A query that continues from the previous batch was counted there.
            delivered.queries += query_rows.len() as u64 - u64::from(*hits_before > 0);
            delivered.hits += rows.len() as u64;
            writing.measure(|| sink.accept(batch))
        };
        if queries <= FEW_QUERIES {
            let accept = RefCell::new(accept);
            work(&|batch| {
                let _memory = memory_beyond(self.context, &batch)?;
                self.reserve_long_row(&batch)?;
                (accept.borrow_mut())(&batch)
            })?;
            return Ok(delivered);
        }
        let context = self.context;
        std::thread::scope(|scope| {
            // Only this thread owns the receiver. If this thread stops, sending fails and the search thread ends.
            let (sender, batches) = bounded(1);
            let searching = spawn_scoped(scope, "adjoin search", move || {
                work(&|batch| {
                    let memory = memory_beyond(context, &batch)?;
                    self.reserve_long_row(&batch)?;
                    // The receiver is dropped only if the sink has failed. The error of the sink is reported then, not
                    // this one.
                    sender.send((batch, memory)).map_err(|_| Error::cancelled())
                })
            })?;
            for (batch, memory) in batches {
                accept(&batch)?;
                drop(memory);
            }
            searching.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        Ok(delivered)
    }
}

impl HitDelivery<'_> {
    /// Reserves memory for the longest row of columns so far. It is held until the end, since the sink may hold texts
    /// of the row.
    fn reserve_long_row(&self, HitBatch { columns, .. }: &HitBatch) -> Result<()> {
        // A batch is full once it has `BATCH_ID_BYTES` bytes, so only its last row can exceed them.
        let row_bytes = columns.as_ref().map_or(0, slice_bytes).saturating_sub(BATCH_ID_BYTES);
        let bytes = SENT_COPIES * row_bytes.saturating_sub(self.row_bytes);
        let mut long_rows = lock(&self.long_rows);
        if bytes > long_rows.bytes() { self.context.grow(&mut long_rows, bytes, PURPOSE) } else { Ok(()) }
    }
}

/// Reserves memory for the ids of a batch if they are longer than the reservation of batches allows for.
fn memory_beyond(context: &Context, HitBatch { query_ids, ids, .. }: &HitBatch) -> Result<Option<Reservation>> {
    let beyond = (query_ids.bytes_of_texts() + ids.bytes_of_texts()).saturating_sub(2 * BATCH_ID_BYTES);
    (beyond > 0).then(|| context.reserve(2 * beyond, PURPOSE)).transpose()
}

/// Consecutive queries of a batch, and their hits.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredQueries<'a> {
    /// Row of each query in its source.
    pub(crate) rows: &'a [u64],
    /// Ids of all queries of the batch.
    pub(crate) ids: &'a Ids,
    /// Position of the id of the first of these queries in `ids`.
    pub(crate) first_id: usize,
    /// Hits of each query, nearest first.
    pub(crate) hits: &'a [Vec<Hit>],
}

/// Delivers the hits of some queries with the ids that `name` looks up.
///
/// Batches have limits, so the hits of a query with many hits or long ids are split over several batches.
///
/// # Errors
/// If an id does not fit in memory, or if `name` or `give` fails.
pub(crate) fn deliver_hits(
    metric: Metric,
    queries: AnsweredQueries<'_>,
    memory: &IdMemory<'_>,
    name: &mut NameHits<'_>,
    give: &DeliverHits<'_>,
) -> Result<()> {
    let batch = HitBatch::empty(queries.ids.kind(), memory.kind());
    let (query, hit, begun, bytes) = Default::default();
    let schema = memory.columns().map(|columns| &columns.needs.schema);
    let mut filling = Filling { metric, queries, give, schema, query, hit, begun, batch, bytes };
    memory.each(queries.hits, name, &mut |named, count| filling.add(named, count))?;
    filling.finish()
}

/// A batch under construction, and the position in the hits up to which it has been filled.
struct Filling<'a> {
    metric: Metric,
    queries: AnsweredQueries<'a>,
    give: &'a DeliverHits<'a>,
    /// Columns that hits carry, if any.
    schema: Option<&'a SchemaRef>,
    /// Query of the next hit.
    query: usize,
    /// Rank of the next hit among the hits of its query.
    hit: usize,
    /// Whether the batch already has the query of the next hit.
    begun: bool,
    batch: HitBatch,
    /// Bytes of the text ids and the columns in the batch.
    bytes: u64,
}

impl Filling<'_> {
    /// Adds the next `count` hits with their ids and columns.
    fn add(&mut self, named: &NamedHits, count: usize) -> Result<()> {
        let mut first = 0;
        for k in 0..count {
            // Queries without further hits end before the next hit is added.
            while self.hit == self.queries.hits[self.query].len() {
                self.give_full(named, &mut first, k)?;
                self.end_query()?;
            }
            self.give_full(named, &mut first, k)?;
            self.begin_query()?;
            let Hit { row, nearness, .. } = self.queries.hits[self.query][self.hit];
            self.batch.rows.push(row);
            self.batch.values.push(Predicate::value_of(self.metric, nearness));
            if let Some(&position) = named.positions.get(k) {
                self.batch.ids.push_from(&named.ids, position as usize);
                self.bytes += named.ids.bytes_of(position as usize);
            }
            self.bytes += named.columns.as_ref().map_or(0, |columns| columns.bytes_of(k));
            self.hit += 1;
        }
        // The batch must be delivered now, since the columns of its hits are in memory only during this call.
        if named.columns.is_some() { self.give_batch_with(named, first..count) } else { Ok(()) }
    }

    /// Ends the remaining queries, which have no more hits, and delivers the last batch.
    fn finish(mut self) -> Result<()> {
        while self.query < self.queries.hits.len() {
            self.end_query()?;
        }
        if self.batch.ends.is_empty() { Ok(()) } else { self.give_batch() }
    }

    fn begin_query(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        if self.is_full() {
            self.give_batch()?;
        }
        // Only the first query of a batch can continue from the previous batch.
        if self.batch.query_rows.is_empty() {
            self.batch.hits_before = self.hit as u64;
        }
        let AnsweredQueries { rows, ids, first_id, .. } = self.queries;
        self.batch.query_rows.push(rows[self.query]);
        self.batch.query_ids.push_from(ids, first_id + self.query);
        self.bytes += ids.bytes_of(first_id + self.query);
        self.begun = true;
        Ok(())
    }

    fn end_query(&mut self) -> Result<()> {
        self.begin_query()?;
        self.batch.ends.push(self.batch.rows.len());
        (self.query, self.hit, self.begun) = (self.query + 1, 0, false);
        Ok(())
    }

    fn is_full(&self) -> bool {
        // If a query has begun, its hits may still fill the batch, but it adds no further query.
        let HitBatch { rows, query_rows, .. } = &self.batch;
        rows.len() >= BATCH_HITS || self.bytes >= BATCH_ID_BYTES || (!self.begun && query_rows.len() >= BATCH_QUERIES)
    }

    /// Delivers the batch if it is full. Its columns are those of the hits `first..next` of `named`. Then `next`
    /// becomes the first hit of the next batch.
    fn give_full(&mut self, named: &NamedHits, first: &mut usize, next: usize) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        self.give_batch_with(named, std::mem::replace(first, next)..next)
    }

    /// Delivers the batch, with the columns of the hits `hits` of `named`.
    fn give_batch_with(&mut self, named: &NamedHits, hits: Range<usize>) -> Result<()> {
        if let (Some(columns), Some(schema)) = (&named.columns, self.schema) {
            self.batch.columns = Some(columns.table(schema, hits)?);
        }
        self.give_batch()
    }

    /// Delivers the batch. If a query has more hits, it continues in the next batch.
    fn give_batch(&mut self) -> Result<()> {
        if self.begun {
            self.batch.ends.push(self.batch.rows.len());
        }
        if let Some(schema) = self.schema.filter(|_| self.batch.columns.is_none()) {
            self.batch.columns = Some(RecordBatch::new_empty(schema.clone()));
        }
        let empty = HitBatch::empty(self.batch.query_ids.kind(), self.batch.ids.kind());
        (self.begun, self.bytes) = (false, 0);
        (self.give)(std::mem::replace(&mut self.batch, empty))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::super::id_room::IdRoom;
    use super::super::naming::{HitLookup, Naming};
    use super::*;
    use crate::base::context::RUNTIME_BYTES;
    use crate::sink::Collect;
    use crate::source::IdKind;
    use crate::source::TextIds;
    use crate::store::{ColumnGathering, GatheredColumns};

    /// Returns the number of a row as text of `id_bytes` bytes.
    fn text_id(row: impl ToString, id_bytes: usize) -> String {
        let digits = row.to_string();
        "0".repeat(id_bytes - digits.len()) + &digits
    }

    /// Looks up ids, which are texts of `id_bytes` bytes. Returns `None` if they do not fit in `room`.
    fn name(places: &[(u32, u32)], room: &mut IdRoom<'_>, id_bytes: usize) -> Result<Option<NamedHits>> {
        let mut naming = Naming::new(IdKind::Utf8, places);
        while let Some((_, row)) = naming.place() {
            if !room.take_id(id_bytes as u64) {
                return Ok(None);
            }
            naming.ids().push_bytes(text_id(row, id_bytes).as_bytes());
            naming.advance();
        }
        Ok(Some(naming.finish()))
    }

    #[test]
    fn hit_batches_are_bounded_and_have_all_hits_with_ids() {
        let context = &Context::default().with_memory(RUNTIME_BYTES + (4 << 20));
        let counts: [usize; 7] = [0, 3, 9_000, 0, 1, 500, 0];
        let hit =
            |k: usize| Hit { nearness: k as f64, row: (k * 7 % 1_000) as u64, place: (0, (k * 7 % 1_000) as u32) };
        let found: Vec<Vec<Hit>> = counts.iter().map(|&count| (0..count).map(hit).collect()).collect();
        let query_rows: Vec<u64> = (10..17).collect();
        let mut texts = TextIds::default();
        query_rows.iter().for_each(|row| texts.push(row.to_string().as_bytes()));
        for id_bytes in [4, 6_000, 300_000] {
            let lookup = HitLookup { ids: IdKind::Utf8, naming_bytes: 0, columns: None };
            let (memory, sink) = (IdMemory::new(context, lookup).unwrap(), Collect::default());
            let some = if id_bytes == 300_000 { &found[4..5] } else { &found[..] };
            let ids = &Ids::Utf8(texts.clone());
            let queries = AnsweredQueries { rows: &query_rows, ids, first_id: 0, hits: some };
            let named = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| name(places, room, id_bytes);
            deliver_hits(Metric::L2, queries, &memory, named, &|batch| sink.clone().accept(&batch)).unwrap();
            for HitBatch { query_rows, ends, rows, ids, .. } in sink.batches() {
                assert!(
                    rows.len() <= BATCH_HITS && query_rows.len() <= BATCH_QUERIES && ends.len() == query_rows.len()
                );
                assert!(ids.bytes_of_texts() < BATCH_ID_BYTES + id_bytes as u64);
                assert!((0..).zip(&rows).all(|(k, &row)| ids.display(k, 0) == text_id(row, id_bytes)));
            }
            let rows = sink.hits().iter().map(|hits| hits.iter().map(|hit| hit.0).collect()).collect::<Vec<Vec<u64>>>();
            let expected = some.iter().map(|hits| hits.iter().map(|hit| hit.row).collect()).collect::<Vec<Vec<u64>>>();
            assert_eq!(rows, expected, "{id_bytes}");
        }
        let lookup = HitLookup { ids: IdKind::Utf8, naming_bytes: 0, columns: None };
        let (memory, place) = (IdMemory::new(context, lookup).unwrap(), [found[4].clone()]);
        let named = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| name(places, room, 5 << 20);
        let queries = AnsweredQueries { rows: &[1], ids: &Ids::None, first_id: 0, hits: &place };
        let refused = deliver_hits(Metric::L2, queries, &memory, named, &|_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("the ids of the hits needs at least"), "{refused}");
    }

    /// Returns the columns of the hits at some places, from tables of `rows_at_once` rows. Returns `None` if they do
    /// not fit in `room`.
    fn columns(
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
        rows_at_once: usize,
        pad: usize,
    ) -> Option<GatheredColumns> {
        let mut gathering = ColumnGathering::new(places.iter().map(|&(_, row)| row.into()).collect());
        for keys in gathering.distinct().chunks(rows_at_once) {
            let numbers = Int64Array::from_iter_values(keys.iter().map(|&key| key as i64));
            let texts = StringArray::from_iter(keys.iter().map(|&key| (key % 3 != 1).then(|| text_id(key, pad))));
            let table =
                RecordBatch::try_from_iter([("number", Arc::new(numbers) as _), ("text", Arc::new(texts) as _)]);
            if !gathering.add(table.unwrap().with_schema(carried()).unwrap(), room) {
                return None;
            }
        }
        Some(gathering.finish())
    }

    fn carried() -> SchemaRef {
        let fields = [("number", DataType::Int64), ("text", DataType::Utf8)];
        Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec()))
    }

    #[test]
    fn each_hit_has_the_columns_of_its_row_however_few_fit_at_once() {
        // Queries without hits fill batches too, in between hits whose columns are pending.
        let counts: Vec<usize> = [vec![0, 3, 5_000, 0], vec![0; 2_500], vec![7; 40], vec![0; 1_100], vec![1]].concat();
        let hit = |k: usize| {
            let row = k * 7 % 901;
            Hit { nearness: k as f64, row: row as u64, place: (0, row as u32) }
        };
        let hits: Vec<Vec<Hit>> = counts.iter().map(|&count| (0..count).map(hit).collect()).collect();
        let query_rows: Vec<u64> = (0..counts.len() as u64).collect();
        for (megabytes, pad, rows_at_once) in [(4, 10, 64), (4, 2_000, 1), (64, 300, 1_000)] {
            let context = &Context::default().with_memory(RUNTIME_BYTES + (megabytes << 20));
            let needs = ColumnNeeds { schema: carried(), reading_bytes: 0, row_bytes: 8, row_bytes_max: 8 };
            let lookup = HitLookup { ids: IdKind::None, naming_bytes: 0, columns: Some(needs) };
            let (memory, sink) = (IdMemory::new(context, lookup).unwrap(), Collect::default());
            let queries = AnsweredQueries { rows: &query_rows, ids: &Ids::None, first_id: 0, hits: &hits };
            let name = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| {
                let columns = columns(places, room, rows_at_once, pad);
                Ok(columns.map(|columns| NamedHits { columns: Some(columns), ..NamedHits::unnamed() }))
            };
            deliver_hits(Metric::L2, queries, &memory, name, &|batch| sink.clone().accept(&batch)).unwrap();
            let found: Vec<usize> = sink.hits().iter().map(Vec::len).collect();
            assert_eq!(found, counts, "{pad}");
            for HitBatch { rows, columns, ends, .. } in sink.batches() {
                let columns = columns.unwrap();
                assert_eq!((columns.num_rows(), ends.last()), (rows.len(), Some(&rows.len())));
                assert!(
                    slice_bytes(&columns) < BATCH_ID_BYTES + 2 * pad as u64 + (16 << 10),
                    "{}",
                    slice_bytes(&columns)
                );
                for (k, &row) in rows.iter().enumerate() {
                    assert_eq!(columns.column(0).as_primitive::<Int64Type>().value(k), row as i64);
                    let text = columns.column(1).as_string::<i32>();
                    assert_eq!(
                        text.is_valid(k).then(|| text.value(k).to_owned()),
                        (row % 3 != 1).then(|| text_id(row, pad))
                    );
                }
            }
        }
    }
}
