//! Puts the results of queries into the order of the source that has the queries.

use super::hits::{HitBatch, HitSink};
use super::sink::Written;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::sorter::{Sorted, Sorter};
use crate::source::{IdKind, Ids};
use crate::store::Store;

/// Memory for sorting, in bytes. Runs with more than [`LARGE_BYTES`] of memory use one part in [`LARGE_PART`] of it.
const SORTING_BYTES: u64 = 4 << 20;
const LARGE_BYTES: u64 = 512 << 20;
const LARGE_PART: u64 = 32;
/// Maximum memory for sorting, in bytes. More would not make it faster.
const SORTING_BYTES_MAX: u64 = 256 << 20;
/// Limits of a batch that is passed on: its hits, and the bytes of their ids. A batch ends with the record that reaches a
/// limit, and records are parts of batches of a search, which have similar limits.
const BATCH_HITS: usize = 4 << 10;
const BATCH_ID_BYTES: u64 = 96 << 10;
/// Memory for the batch that is passed on and for a record, in bytes, without [`ID_COPIES`] of the longest id.
const BATCH_BYTES: u64 = 512 << 10;
/// An id that exceeds a limit is in the record, in the batch, and in a block that is read.
const ID_COPIES: u64 = 4;

/// Sorts the hits of queries by the row numbers of the queries, and passes them to another sink at the end.
pub(crate) struct SourceOrder<'a> {
    context: &'a Context,
    sink: Box<dyn HitSink + 'a>,
    bytes: u64,
    sorter: Sorter,
    /// Kinds of the ids of the queries and of the hits.
    kinds: [IdKind; 2],
    record: Vec<u8>,
}

impl<'a> SourceOrder<'a> {
    /// Creates a sink that passes the sorted neighbors of the rows of a store to `sink`.
    pub(crate) fn new(context: &'a Context, store: &Store, sink: Box<dyn HitSink + 'a>) -> Self {
        // An id is at most as long as all ids of its bucket.
        let id_bytes = store.extents().iter().map(|extent| extent.id_bytes).max().unwrap_or(0);
        Self::of(context, id_bytes, sink)
    }

    /// Creates a sink for ids of at most `id_bytes` bytes.
    fn of(context: &'a Context, id_bytes: u64, sink: Box<dyn HitSink + 'a>) -> Self {
        let total = context.budget().total();
        let large = if total > LARGE_BYTES { total / LARGE_PART } else { 0 };
        let sorting_bytes = large.clamp(SORTING_BYTES, SORTING_BYTES_MAX);
        let sorter = Sorter::new(context, &context.temporary(None), sorting_bytes);
        let bytes = sorting_bytes + BATCH_BYTES + ID_COPIES * id_bytes;
        Self { context, sink, bytes, sorter, kinds: [IdKind::None; 2], record: Vec::new() }
    }

    /// Returns the approximate memory of this sink in a small budget, in addition to that of the sink that receives the
    /// hits. Used before a store exists.
    pub(crate) fn foreseen_bytes() -> u64 {
        SORTING_BYTES + 2 * BATCH_BYTES
    }
}

impl HitSink for SourceOrder<'_> {
    fn wants_ids(&self) -> bool {
        self.sink.wants_ids()
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes + self.sink.memory_bytes()
    }

    fn take_spare(&mut self, search: &Context) {
        self.sink.take_spare(search);
    }

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        self.kinds = [batch.query_ids.kind(), batch.ids.kind()];
        let mut start = 0;
        for (query, (&row, &end)) in batch.query_rows.iter().zip(&batch.ends).enumerate() {
            let before = if query == 0 { batch.hits_before } else { 0 };
            self.record.clear();
            batch.query_ids.append_sized(query, &mut self.record);
            for hit in start..end {
                self.record.extend_from_slice(&batch.rows[hit].to_le_bytes());
                self.record.extend_from_slice(&batch.values[hit].to_le_bytes());
                batch.ids.append_sized(hit, &mut self.record);
            }
            self.sorter.push((row, before), &self.record)?;
            start = end;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { context, mut sink, sorter, kinds, mut record, .. } = *self;
        let mut sorted = sorter.finish()?;
        while let Some(batch) = next_batch(&mut sorted, kinds, &mut record)? {
            context.cancel.check()?;
            sink.accept(&batch)?;
        }
        let spilled = sorted.spilled();
        drop(sorted);
        let written = sink.finish()?;
        Ok(Written { spill_bytes: written.spill_bytes + spilled, ..written })
    }
}

/// Reads an id that [`Ids::append_sized`] has written into `ids`. Returns the bytes after it.
fn take_id<'a>(ids: &mut Ids, bytes: &'a [u8]) -> &'a [u8] {
    if *ids == Ids::None {
        return bytes;
    }
    let (length, rest) = bytes.split_first_chunk().expect("a record has the length of each id");
    let (id, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
    ids.push_bytes(id);
    rest
}

/// Returns the hits of the next queries, with ids of the `kinds` of queries and hits. Returns `None` after the last
/// query.
fn next_batch(sorted: &mut Sorted, kinds: [IdKind; 2], record: &mut Vec<u8>) -> Result<Option<HitBatch>> {
    let mut batch = HitBatch::empty(kinds[0], kinds[1]);
    while batch.rows.len().max(batch.ends.len()) < BATCH_HITS && id_bytes(&batch) < BATCH_ID_BYTES {
        let Some((row, before)) = sorted.next(record)? else { break };
        add_record(&mut batch, row, before, record);
    }
    Ok(Some(batch).filter(|batch| !batch.query_rows.is_empty()))
}

fn id_bytes(batch: &HitBatch) -> u64 {
    batch.query_ids.bytes_of_texts() + batch.ids.bytes_of_texts()
}

/// Adds a record of `row` to a batch: hits of the row after the first `before`.
fn add_record(batch: &mut HitBatch, row: u64, before: u64, record: &[u8]) {
    let continues = before > 0 && batch.query_rows.last() == Some(&row);
    let mut rest = if continues {
        take_id(&mut Ids::empty(batch.query_ids.kind()), record)
    } else {
        if batch.query_rows.is_empty() {
            batch.hits_before = before;
        }
        batch.query_rows.push(row);
        batch.ends.push(batch.rows.len());
        take_id(&mut batch.query_ids, record)
    };
    while let Some((hit, after)) = rest.split_first_chunk() {
        let (value, after) = after.split_first_chunk().expect("a record has the value of each hit");
        batch.rows.push(u64::from_le_bytes(*hit));
        batch.values.push(f32::from_le_bytes(*value));
        rest = take_id(&mut batch.ids, after);
    }
    *batch.ends.last_mut().expect("the batch has the query of the record") = batch.rows.len();
}

#[cfg(test)]
mod tests {
    use super::super::collect::Collect;
    use super::*;
    use crate::base::random::Random;

    /// Hits of a query: row, value and id of each.
    type Found = Vec<(u64, f32, String)>;

    fn id_of(row: u64) -> String {
        // Some ids are longer than a batch.
        if row.is_multiple_of(9_973) { format!("{row}{}", "x".repeat(150_000)) } else { format!("row {row}") }
    }

    fn hits_of(row: u64, seed: u64) -> Found {
        let mut random = Random::new(row + (seed << 32), "hits");
        // Some queries have no hits, and some have more than fit into a batch.
        let count = if row == 77 { 9_000 } else { random.below(12) };
        (0..count)
            .map(|rank| {
                let hit = random.below(30_000);
                (hit, rank as f32, id_of(hit))
            })
            .collect()
    }

    /// Creates a batch of hits `range` of a query.
    fn batch(kind: IdKind, row: u64, hits: &Found, range: std::ops::Range<usize>) -> HitBatch {
        let with_ids = |names: Vec<String>| {
            let mut ids = Ids::empty(kind);
            names.iter().for_each(|name| match kind {
                IdKind::None => {}
                IdKind::Int64 => ids.push_bytes(&(name.len() as i64).to_le_bytes()),
                IdKind::Utf8 => ids.push_bytes(name.as_bytes()),
            });
            ids
        };
        let some = &hits[range.clone()];
        HitBatch {
            query_rows: vec![row],
            hits_before: range.start as u64,
            query_ids: with_ids(vec![id_of(row)]),
            ends: vec![some.len()],
            rows: some.iter().map(|hit| hit.0).collect(),
            ids: with_ids(some.iter().map(|hit| hit.2.clone()).collect()),
            values: some.iter().map(|hit| hit.1).collect(),
            columns: None,
        }
    }

    fn check(kind: IdKind, queries: u64) {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::default().with_memory(200_000_000).with_temporary(folder.path()).unwrap();
        let collected = Collect::default();
        let mut sink = SourceOrder::of(&context, 0, Box::new(collected.clone()));
        let mut order: Vec<u64> = (0..queries).collect();
        Random::new(5, "order").shuffle(&mut order);
        for &row in &order {
            let hits = hits_of(row, 1);
            let pieces = hits.len().div_ceil(BATCH_HITS).max(1);
            for piece in 0..pieces {
                let range = piece * BATCH_HITS..hits.len().min((piece + 1) * BATCH_HITS);
                sink.accept(&batch(kind, row, &hits, range)).unwrap();
            }
        }
        let written = Box::new(sink).finish().unwrap();
        assert!(written.spill_bytes > SORTING_BYTES, "{} bytes: more than memory holds", written.spill_bytes);
        let (mut next, mut found) = (0, Vec::new());
        for HitBatch { query_rows, hits_before, query_ids, ends, rows, ids, values, .. } in collected.batches() {
            assert!(rows.len() <= 2 * BATCH_HITS, "batches are small");
            let starts = std::iter::once(0).chain(ends.iter().copied());
            for (query, (start, &end)) in starts.zip(&ends).enumerate() {
                if query > 0 || hits_before == 0 {
                    assert_eq!(query_rows[query], next, "each query once, in order");
                    next += 1;
                    found = Vec::new();
                }
                (start..end).for_each(|hit| found.push((rows[hit], values[hit])));
                let wanted = hits_of(query_rows[query], 1);
                let wanted_batch = batch(kind, query_rows[query], &wanted, found.len() - (end - start)..found.len());
                let mut own = Ids::empty(kind);
                if kind != IdKind::None {
                    own.push_from(&query_ids, query);
                    let mut part = Ids::empty(kind);
                    (start..end).for_each(|hit| part.push_from(&ids, hit));
                    assert!(part == wanted_batch.ids, "ids of query {query}");
                }
                assert!(own == wanted_batch.query_ids);
                assert!(found.iter().zip(&wanted).all(|(found, wanted)| *found == (wanted.0, wanted.1)));
            }
        }
        assert_eq!(next, queries);
    }

    #[test]
    fn queries_are_sorted_with_all_their_hits() {
        check(IdKind::None, 80_000);
        check(IdKind::Int64, 50_000);
        check(IdKind::Utf8, 30_000);
    }
}
