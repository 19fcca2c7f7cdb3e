//! Delivers hits from stores, indexes and collections to a sink.

use std::panic::resume_unwind;

use adjoin_device::Reservation;
use crossbeam_channel::bounded;

use super::naming::{IdMemory, NameHits, NamedHits};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::Metric;
use crate::base::predicate::Predicate;
use crate::base::report::SharedSeconds;
use crate::base::workers::spawn_scoped;
use crate::execute::Hit;
use crate::sink::{HitBatch, HitSink};
use crate::source::{IdKind, Ids};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "handing over what was found";
/// Limits of one batch: hits, queries, and approximate bytes of text ids.
const BATCH_HITS: usize = 4 << 10;
const BATCH_QUERIES: usize = 1 << 10;
const BATCH_ID_BYTES: u64 = 96 << 10;
/// Bytes of all batches in flight: one is filled, one waits, one is consumed by the sink.
const BATCHES_BYTES: u64 = 1 << 20;

/// Number of queries and hits delivered so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    pub(crate) queries: u64,
    pub(crate) hits: u64,
}

/// Delivery of hits to a sink, with the memory reserved for both.
pub(crate) struct HitDelivery<'a> {
    context: &'a Context,
    _memory: Reservation,
}

/// Callback that delivers a batch of hits.
pub(crate) type DeliverHits<'a> = dyn Fn(HitBatch) -> Result<()> + 'a;

impl<'a> HitDelivery<'a> {
    /// Reserves the memory of the sink and of the batches in flight.
    ///
    /// # Errors
    /// If the budget is too small.
    pub(crate) fn new(context: &'a Context, sink: &(dyn HitSink + '_)) -> Result<Self> {
        Ok(Self { context, _memory: context.reserve(Self::least_bytes(sink), PURPOSE)? })
    }

    /// Returns the bytes that [`HitDelivery::new`] reserves.
    pub(crate) fn least_bytes(sink: &(dyn HitSink + '_)) -> u64 {
        Self::bytes_with(sink.memory_bytes())
    }

    /// Returns the bytes reserved for a sink that holds `sink_bytes`.
    pub(crate) fn bytes_with(sink_bytes: u64) -> u64 {
        sink_bytes + BATCHES_BYTES
    }

    /// Runs `work`, which searches, on its own thread, while this thread passes the resulting batches to `sink`.
    ///
    /// # Errors
    /// The first error of `work` or the sink.
    pub(crate) fn run(
        &self,
        sink: &mut (dyn HitSink + '_),
        writing: &SharedSeconds,
        work: impl FnOnce(&DeliverHits<'_>) -> Result<()> + Send,
    ) -> Result<Delivered> {
        let mut delivered = Delivered::default();
        let context = self.context;
        std::thread::scope(|scope| {
            // Only this thread owns the receiver: when it stops, sending fails and the search thread ends.
            let (sender, batches) = bounded(1);
            let searching = spawn_scoped(scope, "adjoin search", move || {
                work(&|batch| {
                    let memory = memory_beyond(context, &batch)?;
                    // If the receiver was dropped, the sink has failed, and its error is the one to report.
                    sender.send((batch, memory)).map_err(|_| Error::cancelled())
                })
            })?;
            for (batch, memory) in batches {
                let HitBatch { query_rows, hits_before, rows, .. } = &batch;
                // A query that continues from the previous batch was counted there.
                delivered.queries += query_rows.len() as u64 - u64::from(*hits_before > 0);
                delivered.hits += rows.len() as u64;
                writing.measure(|| sink.accept(&batch))?;
                drop(memory);
            }
            searching.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(delivered)
        })
    }
}

/// Reserves memory for ids longer than the reserved batches allow for.
fn memory_beyond(context: &Context, HitBatch { query_ids, ids, .. }: &HitBatch) -> Result<Option<Reservation>> {
    let beyond = (query_ids.bytes_of_texts() + ids.bytes_of_texts()).saturating_sub(2 * BATCH_ID_BYTES);
    (beyond > 0).then(|| context.reserve(2 * beyond, PURPOSE)).transpose()
}

/// Consecutive queries of a batch, and their hits.
#[derive(Clone, Copy)]
pub(crate) struct AnsweredQueries<'a> {
    /// Row of each query in its source.
    pub(crate) rows: &'a [u64],
    /// Ids of the whole batch, and the position of the first query's id among them.
    pub(crate) ids: &'a Ids,
    pub(crate) first_id: usize,
    /// Hits of each query, nearest first.
    pub(crate) hits: &'a [Vec<Hit>],
}

/// Delivers the hits of some queries with the ids that `name` looks up.
///
/// Batches are bounded by bytes, so a query with many hits or long ids is split over several.
///
/// # Errors
/// If an id does not fit into memory, or if `name` or `give` fails.
pub(crate) fn deliver_hits(
    metric: Metric,
    queries: AnsweredQueries<'_>,
    memory: &IdMemory<'_>,
    name: &mut NameHits<'_>,
    give: &DeliverHits<'_>,
) -> Result<()> {
    let batch = empty_batch(queries.ids.kind(), memory.kind());
    let (query, hit, begun, id_bytes) = Default::default();
    let mut filling = Filling { metric, queries, give, query, hit, begun, batch, id_bytes };
    memory.each(queries.hits, name, &mut |named, count| filling.add(named, count))?;
    filling.finish()
}

fn empty_batch(query_ids: IdKind, ids: IdKind) -> HitBatch {
    HitBatch {
        query_rows: Vec::new(),
        hits_before: 0,
        query_ids: Ids::empty(query_ids),
        ends: Vec::new(),
        rows: Vec::new(),
        ids: Ids::empty(ids),
        values: Vec::new(),
    }
}

/// A batch under construction, and the position in the hits up to which it has been filled.
struct Filling<'a> {
    metric: Metric,
    queries: AnsweredQueries<'a>,
    give: &'a DeliverHits<'a>,
    /// Position of the next hit: its query and its rank there. `begun` tells whether the batch has the query already.
    query: usize,
    hit: usize,
    begun: bool,
    batch: HitBatch,
    /// Bytes of the text ids in the batch.
    id_bytes: u64,
}

impl Filling<'_> {
    /// Adds the next `count` hits with their ids.
    fn add(&mut self, named: &NamedHits, count: usize) -> Result<()> {
        for k in 0..count {
            // Queries without further hits end before the next hit is added.
            while self.hit == self.queries.hits[self.query].len() {
                self.end_query()?;
            }
            if self.is_full() {
                self.give_batch()?;
            }
            self.begin_query()?;
            let Hit { row, nearness, .. } = self.queries.hits[self.query][self.hit];
            self.batch.rows.push(row);
            self.batch.values.push(Predicate::value_of(self.metric, nearness));
            if let Some(&position) = named.positions.get(k) {
                self.batch.ids.push_from(&named.ids, position as usize);
                self.id_bytes += named.ids.bytes_of(position as usize);
            }
            self.hit += 1;
        }
        Ok(())
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
        // Only the first query of a batch can continue from the previous one.
        if self.batch.query_rows.is_empty() {
            self.batch.hits_before = self.hit as u64;
        }
        let AnsweredQueries { rows, ids, first_id, .. } = self.queries;
        self.batch.query_rows.push(rows[self.query]);
        self.batch.query_ids.push_from(ids, first_id + self.query);
        self.id_bytes += ids.bytes_of(first_id + self.query);
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
        // A query that has begun may fill the batch with its hits, but adds no other query.
        let HitBatch { rows, query_rows, .. } = &self.batch;
        rows.len() >= BATCH_HITS
            || self.id_bytes >= BATCH_ID_BYTES
            || (!self.begun && query_rows.len() >= BATCH_QUERIES)
    }

    /// Delivers the batch. A query that has hits left continues in the next one.
    fn give_batch(&mut self) -> Result<()> {
        if self.begun {
            self.batch.ends.push(self.batch.rows.len());
        }
        let empty = empty_batch(self.batch.query_ids.kind(), self.batch.ids.kind());
        (self.begun, self.id_bytes) = (false, 0);
        (self.give)(std::mem::replace(&mut self.batch, empty))
    }
}

#[cfg(test)]
mod tests {
    use super::super::naming::{IdRoom, Naming};
    use super::*;
    use crate::base::context::RUNTIME_BYTES;
    use crate::sink::Collect;
    use crate::source::TextIds;

    /// Returns the number of a row as text of `id_bytes` bytes.
    fn text_id(row: impl ToString, id_bytes: usize) -> String {
        let digits = row.to_string();
        "0".repeat(id_bytes - digits.len()) + &digits
    }

    /// Names rows by texts of `id_bytes` bytes while `room` lasts.
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
            let (memory, sink) = (IdMemory::new(context, IdKind::Utf8, 0).unwrap(), Collect::default());
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
        let (memory, place) = (IdMemory::new(context, IdKind::Utf8, 0).unwrap(), [found[4].clone()]);
        let named = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| name(places, room, 5 << 20);
        let queries = AnsweredQueries { rows: &[1], ids: &Ids::None, first_id: 0, hits: &place };
        let refused = deliver_hits(Metric::L2, queries, &memory, named, &|_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("the ids of what was found needs at least"), "{refused}");
    }
}
