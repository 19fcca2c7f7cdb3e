//! What queries found, on its way to the sink: the same whatever was searched.

use std::panic::resume_unwind;

use crossbeam_channel::bounded;

use crate::error::{Error, Result};
use crate::execute::Hit;
use crate::options::Metric;
use crate::predicate::Predicate;
use crate::report::SharedSeconds;
use crate::sink::{HitBatch, HitSink};
use crate::source::Ids;
use crate::workers::spawn_scoped;

/// Hits that are handed over at once, about.
const BATCH_HITS: usize = 16 << 10;

/// Queries and hits so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answered {
    pub(crate) queries: u64,
    pub(crate) hits: u64,
}

/// Lets `work` search on a thread of its own, while this one hands what it gives to the sink.
///
/// # Errors
/// The first of `work` or the sink.
pub(crate) fn hand_over(
    sink: &mut (dyn HitSink + '_),
    writing: &SharedSeconds,
    work: impl FnOnce(&dyn Fn(HitBatch) -> Result<()>) -> Result<()> + Send,
) -> Result<Answered> {
    let mut answered = Answered::default();
    std::thread::scope(|scope| {
        // Received here alone: once this thread takes no more, the other one ends.
        let (sender, batches) = bounded(1);
        let searching = spawn_scoped(scope, "adjoin search", move || {
            work(&|batch| sender.send(batch).map_err(|_| Error::cancelled()))
        })?;
        for batch in batches {
            let HitBatch { query_rows, rows, .. } = &batch;
            (answered.queries, answered.hits) =
                (answered.queries + query_rows.len() as u64, answered.hits + rows.len() as u64);
            writing.measure(|| sink.accept(&batch))?;
        }
        searching.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(answered)
    })
}

/// Gives what queries of these rows found, whose ids are those from a place on, with the ids of all hits in their order: some
/// at a time, so that it is never all in memory twice.
///
/// # Errors
/// That of `give`.
pub(crate) fn give_hits(
    metric: Metric,
    (query_rows, query_ids, first): (&[u64], &Ids, usize),
    (found, ids): (Vec<Vec<Hit>>, &Ids),
    give: &dyn Fn(HitBatch) -> Result<()>,
) -> Result<()> {
    let mut named = 0;
    let empty = || HitBatch {
        query_rows: Vec::new(),
        query_ids: Ids::empty(query_ids.kind()),
        ends: Vec::new(),
        rows: Vec::new(),
        ids: Ids::empty(ids.kind()),
        values: Vec::new(),
    };
    let mut batch = empty();
    for (query, hits) in found.into_iter().enumerate() {
        batch.query_rows.push(query_rows[query]);
        batch.query_ids.push_from(query_ids, first + query);
        batch.rows.extend(hits.iter().map(|hit| hit.row));
        batch.values.extend(hits.iter().map(|hit| Predicate::value_of(metric, hit.nearness)));
        (named..named + hits.len()).for_each(|hit| batch.ids.push_from(ids, hit));
        named += hits.len();
        batch.ends.push(batch.rows.len());
        if batch.rows.len() >= BATCH_HITS {
            give(std::mem::replace(&mut batch, empty()))?;
        }
    }
    if batch.ends.is_empty() { Ok(()) } else { give(batch) }
}
