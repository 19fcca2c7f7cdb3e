//! Runs a search: reads queries in batches, answers them, and delivers their hits to a sink.
//!
//! All folders share this loop. A store, an index and a collection each implement [`BatchSearch`], which finds the hits
//! of a batch and looks up their ids and columns.

use std::ops::Range;

use super::delivery::{AnsweredQueries, DeliverHits, Delivered, HitDelivery, deliver_hits};
use super::halves::in_halves;
use super::id_room::IdRoom;
use super::naming::{HitLookup, IdMemory, NamedHits};
use super::options::{QueryTarget, bytes_for_all_hits};
use super::source_queries::QueryBatch;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::{Metric, VectorType};
use crate::base::report::{LatencyStatistics, SearchCounts, SecondsStatistics, SharedSeconds, Stopwatch, Written};
use crate::execute::Hit;
use crate::sink::HitSink;
use crate::source::IdKind;
use crate::store::GatheredColumns;

/// Purpose of memory in error messages.
const PURPOSE: &str = "this search";

/// Stored vectors of the queries of a batch, concatenated, with their type.
pub(crate) struct StoredQueries {
    pub(crate) vectors: VectorType,
    pub(crate) stored: Vec<u8>,
    /// Bucket and position of each query, if the queries are rows of the searched store.
    pub(crate) places: Option<Vec<(u32, u32)>>,
}

/// Stored vectors of some queries, concatenated, with their type.
#[derive(Clone, Copy)]
pub(crate) struct QueryVectors<'a> {
    pub(crate) vectors: VectorType,
    pub(crate) stored: &'a [u8],
}

/// A planned search that answers batches of queries. Its memory is reserved.
pub(crate) trait BatchSearch {
    /// Queries of a batch, converted for comparison.
    type Batch;

    /// Returns the metric of the searched vectors.
    fn metric(&self) -> Metric;

    /// Returns the number of searched rows, which is the largest number of hits of a query.
    fn rows(&self) -> u64;

    /// Returns the bytes that a query needs, in addition to the memory in use, if all rows are hits.
    fn bytes_for_all_hits(&self) -> u64 {
        bytes_for_all_hits(self.rows())
    }

    /// Converts queries for comparison.
    fn prepare(&self, queries: StoredQueries) -> Self::Batch;

    /// Returns the hits of each query in a range of the batch, nearest first. Returns `None` if the hits do not fit in
    /// memory.
    ///
    /// # Errors
    /// If the searched folder cannot be read, or if the work is cancelled.
    fn find(&mut self, batch: &Self::Batch, range: Range<u32>) -> Result<Option<Vec<Vec<Hit>>>>;

    /// Looks up the ids of hits by their places. Returns `None` if the ids do not fit in `room`.
    ///
    /// # Errors
    /// If the ids cannot be read.
    fn name(&self, kind: IdKind, places: &[(u32, u32)], room: &mut IdRoom<'_>) -> Result<Option<NamedHits>>;

    /// Reads the columns that hits carry, by the places of the hits. Returns `None` if the columns do not fit in
    /// `room`. `context` has the memory for reading them.
    ///
    /// # Errors
    /// If the columns cannot be read.
    fn columns(
        &self,
        context: &Context,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<GatheredColumns>>;
}

/// Work of all queries of a search. The calibration is not included.
#[derive(Default)]
pub(crate) struct SearchWork {
    pub(crate) distances: u64,
    pub(crate) center_distances: Option<u64>,
    /// Number of probed buckets, summed over all queries.
    pub(crate) probes: Option<u64>,
    /// Number of reads that queries needed, summed over all queries.
    pub(crate) reads: u64,
    /// Bytes of these reads.
    pub(crate) bytes: u64,
    /// Latency of each query in milliseconds. Empty if queries are answered together.
    pub(crate) latencies_ms: Vec<f32>,
}

/// A search that is ready to run. The memory for delivering hits to the sink is reserved.
pub(crate) struct SearchRun<'a> {
    context: &'a Context,
    target: QueryTarget,
    ids: IdMemory<'a>,
    delivery: HitDelivery<'a>,
}

/// Counts and times of a run.
pub(crate) struct RanSearch {
    pub(crate) delivered: Delivered,
    pub(crate) written: Written,
    /// Seconds of the run. Planning is not included.
    seconds: f64,
    execute: f64,
    write: f64,
}

impl<'a> SearchRun<'a> {
    /// Reserves the memory for delivering hits to `sink`, and lets it take some that is free.
    ///
    /// # Errors
    /// If the budget is too small.
    pub(crate) fn new(
        context: &'a Context,
        target: QueryTarget,
        lookup: HitLookup,
        sink: &mut (dyn HitSink + '_),
    ) -> Result<Self> {
        let lookup = delivered(lookup, sink);
        let delivery = HitDelivery::new(context, sink.memory_bytes(), lookup.columns.as_ref())?;
        let ids = IdMemory::new(context, lookup)?;
        sink.take_spare(context);
        Ok(Self { context, target, ids, delivery })
    }

    /// Returns the bytes that [`SearchRun::new`] reserves.
    pub(crate) fn least_bytes(lookup: &HitLookup, sink: &(dyn HitSink + '_)) -> u64 {
        Self::bytes_with(&delivered(lookup.clone(), sink), sink.memory_bytes())
    }

    /// Returns the bytes that [`SearchRun::new`] reserves for a sink that needs `sink_bytes` bytes and wants ids.
    pub(crate) fn bytes_with(lookup: &HitLookup, sink_bytes: u64) -> u64 {
        HitDelivery::bytes_with(sink_bytes, lookup.columns.as_ref()) + IdMemory::least_bytes(lookup)
    }

    /// Answers all `queries` queries that `read` passes to its argument, batch by batch. Delivers their hits to `sink`.
    /// Each query takes `query_bytes` bytes while its batch is answered.
    ///
    /// # Errors
    /// The first error of `read`, `searched` or `sink`, or if the budget is too small.
    pub(crate) fn run<S: BatchSearch + Send>(
        &self,
        searched: &mut S,
        queries: u64,
        query_bytes: u64,
        read: impl FnOnce(&mut dyn FnMut(QueryBatch) -> Result<()>) -> Result<()> + Send,
        mut sink: Box<dyn HitSink + '_>,
    ) -> Result<RanSearch> {
        let (watch, writing) = (Stopwatch::start(), SharedSeconds::default());
        let delivered = self.delivery.run(&mut *sink, queries, &writing, |deliver| {
            read(&mut |batch| self.answer(searched, query_bytes, batch, deliver))
        })?;
        let execute = watch.seconds();
        let written = writing.measure(|| sink.finish())?;
        Ok(RanSearch { delivered, written, seconds: watch.seconds(), execute, write: writing.seconds() })
    }

    fn answer<S: BatchSearch>(
        &self,
        searched: &mut S,
        query_bytes: u64,
        QueryBatch { vectors, stored, rows, ids, places }: QueryBatch,
        deliver: &DeliverHits<'_>,
    ) -> Result<()> {
        let Self { context, target, ids: id_memory, .. } = self;
        let _memory = context.reserve(rows.len() as u64 * query_bytes, PURPOSE)?;
        // The queries are converted once, even if the batch is answered in several ranges.
        let batch = searched.prepare(StoredQueries { vectors, stored, places });
        let (metric, kind, more) = (searched.metric(), id_memory.kind(), searched.bytes_for_all_hits());
        let answer_some = |range: Range<u32>| {
            let Some(hits) = searched.find(&batch, range.clone())? else { return Ok(None) };
            // Memory for hits within a threshold is reserved only now, since their number was not known before.
            let _found = context.reserve(target.found_bytes(&hits), PURPOSE)?;
            let own_rows = &rows[range.start as usize..range.end as usize];
            let queries = AnsweredQueries { rows: own_rows, ids: &ids, first_id: range.start as usize, hits: &hits };
            let name = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| {
                let unnamed = kind == IdKind::None;
                let named = if unnamed { Some(NamedHits::unnamed()) } else { searched.name(kind, places, room)? };
                let (Some(mut named), memory) = (named, id_memory.columns()) else { return Ok(None) };
                let Some(memory) = memory else { return Ok(Some(named)) };
                named.columns = searched.columns(&memory.reading, places, room)?;
                Ok(Some(named).filter(|named| named.columns.is_some()))
            };
            deliver_hits(metric, queries, id_memory, name, deliver).map(Some)
        };
        in_halves(context, more, rows.len() as u32, answer_some, |_, ()| Ok(()))
    }
}

/// Returns the lookup for a sink: without ids if the sink does not want any.
fn delivered(lookup: HitLookup, sink: &(dyn HitSink + '_)) -> HitLookup {
    if sink.wants_ids() { lookup } else { HitLookup { ids: IdKind::None, ..lookup } }
}

impl RanSearch {
    /// Returns the seconds of the search, including its planning. If `calibrated` is set, the seconds of planning are
    /// reported as the seconds of the calibration.
    pub(crate) fn seconds(&self, planning_seconds: f64, calibrated: bool) -> SecondsStatistics {
        SecondsStatistics {
            total: planning_seconds + self.seconds,
            calibrate: calibrated.then_some(planning_seconds),
            execute: Some(self.execute),
            write: Some(self.write),
            ..SecondsStatistics::default()
        }
    }

    /// Returns the counts of the search, as means per query.
    pub(crate) fn counts(&self, target: QueryTarget, work: SearchWork) -> SearchCounts {
        let Delivered { queries, hits } = self.delivered;
        // If there are no queries, all means are 0.
        let per_query = |count: u64| count as f64 / queries.max(1) as f64;
        SearchCounts {
            queries,
            k: match target {
                QueryTarget::Nearest(k) => Some(k),
                QueryTarget::Within(_) => None,
            },
            hits,
            passing_rows: None,
            buckets: None,
            probes_per_query: work.probes.map(per_query),
            distances_per_query: per_query(work.distances),
            center_distances_per_query: work.center_distances.map(per_query),
            reads_per_query: per_query(work.reads),
            bytes_per_query: per_query(work.bytes),
            vertex_utilization: None,
            queries_per_second: queries as f64 / self.execute,
            latency_ms: LatencyStatistics::of(work.latencies_ms),
        }
    }
}
