//! Finds the true nearest rows of queries in a base, or all rows within a threshold, by comparing every query with
//! every row. The base is streamed; only the queries and their hits are in memory.
//!
//! Kernels exclude rows that are certainly too far from a query. The other rows are decided by f64 sums over the
//! stored elements ([`crate::base::predicate`]), so that the result equals the result of plain loops.

use std::collections::BinaryHeap;
use std::mem::size_of;
use std::sync::Mutex;

use adjoin_device::Reservation;
use adjoin_kernels::{HitMask, PackedColumns, Panel};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, Threshold, longest};
use crate::base::mutex::lock;
use crate::base::options::{Metric, VectorType};
use crate::base::predicate::{cosine, dot, squared_distance};
use crate::base::workers::map_items;
use crate::source::VectorSource;
use crate::store::{Intake, OnBad, UsableRows, fix, read_all, read_all_bytes, scan_bytes};

/// Maximum bytes, and maximum number, of vectors of the base that are compared at once.
const BATCH_BYTES_MAX: usize = 512 << 10;
const BATCH_ROWS_MAX: usize = 4_096;
/// Number of queries that are compared at once. It bounds the number of hits that a kernel returns.
const BLOCK_QUERIES: usize = 64;
/// Purpose of the memory, used in error messages.
const PURPOSE: &str = "the ground truth";

/// Search target of the queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TruthTarget {
    /// The K nearest rows.
    Nearest(usize),
    /// All rows up to a nearness ([`TrueNeighbor::nearness`]).
    Within(f64),
}

/// A hit of a query, ordered by nearness, then by id.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrueNeighbor {
    /// The squared distance, the negated cosine, or the negated inner product. A smaller value is nearer.
    pub(super) nearness: f64,
    pub(super) id: u32,
}

impl Ord for TrueNeighbor {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nearness.total_cmp(&other.nearness).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for TrueNeighbor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TrueNeighbor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TrueNeighbor {}

/// Hits of a block of queries that were found so far.
struct Block {
    /// Hits of each query, as a heap with the farthest hit first.
    found: Vec<BinaryHeap<TrueNeighbor>>,
    /// Memory of hits within a threshold. The memory of the K nearest is reserved in advance.
    memory: Reservation,
    held: u64,
}

/// A comparison of queries with a base.
pub(super) struct Comparison<'a> {
    pub(super) context: &'a Context,
    pub(super) base: &'a dyn VectorSource,
    pub(super) queries: &'a dyn VectorSource,
    pub(super) metric: Metric,
    pub(super) wanted: TruthTarget,
    /// Ids of the rows of the base; `None` if their numbers are the ids.
    pub(super) tags: Option<&'a [u32]>,
}

/// The base's space, and the queries.
struct Prepared<'a, T> {
    space: Space<'a>,
    queries: UsableRows,
    panel: Panel<T>,
    /// For inner products, the length of each query.
    lengths: Vec<f64>,
    _of_ids: Reservation,
}

impl Comparison<'_> {
    /// Returns the hits of each query, nearest first, and the memory that holds them.
    ///
    /// # Errors
    /// If a source cannot be read or has unusable rows, memory does not suffice, or the work is cancelled.
    pub(super) fn run<T: Coordinate>(&self) -> Result<(Vec<Vec<TrueNeighbor>>, Vec<Reservation>)> {
        let mut memory = self.context.reserve(self.least_bytes::<T>(), PURPOSE)?;
        let prepared = self.prepare::<T>()?;
        let of_block = |start: usize| -> Result<Mutex<Block>> {
            let queries = BLOCK_QUERIES.min(prepared.queries.rows.len() - start);
            let found = (0..queries).map(|_| self.empty()).collect();
            Ok(Mutex::new(Block { found, memory: self.context.reserve(0, PURPOSE)?, held: 0 }))
        };
        let starts = (0..prepared.queries.rows.len()).step_by(BLOCK_QUERIES);
        let blocks: Vec<Mutex<Block>> = starts.map(of_block).collect::<Result<_>>()?;
        let info = self.base.info();
        self.context.progress.begin("compare", "rows", info.rows);
        self.scan(|rows| self.compare(&prepared, &rows, &blocks))?;
        drop(prepared);
        let (mut found, mut held) = (Vec::new(), Vec::new());
        for block in blocks {
            let block = block.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.extend(block.found.into_iter().map(BinaryHeap::into_sorted_vec));
            held.push(block.memory);
        }
        // Now only the hits are in memory, so the rest of the reservation is released.
        memory.shrink(memory.bytes().min(self.nearest_bytes()));
        held.push(memory);
        Ok((found, held))
    }

    fn empty(&self) -> BinaryHeap<TrueNeighbor> {
        match self.wanted {
            TruthTarget::Nearest(count) => BinaryHeap::with_capacity(count),
            TruthTarget::Within(_) => BinaryHeap::new(),
        }
    }

    /// Returns the bytes of the K nearest rows of all queries.
    fn nearest_bytes(&self) -> u64 {
        let count = match self.wanted {
            TruthTarget::Nearest(count) => count as u64,
            TruthTarget::Within(_) => 0,
        };
        let a_query =
            (count * size_of::<TrueNeighbor>() as u64).saturating_add(2 * size_of::<BinaryHeap<TrueNeighbor>>() as u64);
        self.queries.info().rows.saturating_mul(a_query)
    }

    /// Returns the memory of the comparison. Hits within a threshold are not included, since their number is unknown.
    fn least_bytes<T: Coordinate>(&self) -> u64 {
        let (base, queries) = (self.base.info(), self.queries.info());
        let coordinates = self.plain(base.vectors).dimensions();
        let rows = batch_rows(base.vectors);
        // In the worst case, a kernel returns a mask for every four columns, in a list that grows by doubling.
        let hits = (2 * BLOCK_QUERIES * rows.div_ceil(4) * size_of::<HitMask>()) as u64;
        let batch_bytes = batch_bytes(base.vectors);
        let of_queries = read_all_bytes(self.queries)
            + Panel::<T>::bytes_for(queries.rows as usize, coordinates)
            + queries.rows * size_of::<f64>() as u64;
        let of_batch = Panel::<T>::bytes_for(rows, coordinates)
            + PackedColumns::<T>::bytes_for(rows, coordinates)
            + scan_bytes(self.base, batch_bytes);
        (of_queries + of_batch + self.context.threads as u64 * hits).saturating_add(self.nearest_bytes())
    }

    fn plain(&self, vectors: VectorType) -> Space<'static> {
        Space::plain(vectors, self.metric)
    }

    /// Passes the rows of the base to `take`, in batches.
    fn scan(&self, take: impl FnMut(UsableRows) -> Result<()>) -> Result<()> {
        let Self { context, base: source, metric, .. } = *self;
        let (on_bad, left_out, batch_bytes) = (OnBad::Error, None, batch_bytes(source.info().vectors));
        let intake = Intake { context, source, metric, on_bad, left_out, remedy: fix, batch_bytes };
        intake.scan(take).map(drop)
    }

    fn prepare<T: Coordinate>(&self) -> Result<Prepared<'static, T>> {
        let (kernel, vectors) = (self.context.kernel, self.base.info().vectors);
        let (queries, _of_ids) = read_all(self.context, self.queries, self.metric)?;
        let mut space = self.plain(vectors);
        // The conversion of inner products to cosines needs the length of the longest row, so the base is read once
        // in advance.
        if self.metric == Metric::Ip {
            let mut most = 0f64;
            self.context.progress.begin("measure", "rows", self.base.info().rows);
            self.scan(|rows| {
                most = most.max(longest(kernel, vectors, &rows.stored));
                Ok(())
            })?;
            space = space.up_to_length(Some(most));
        }
        let mut panel = Panel::<T>::zeroed(queries.rows.len(), space.dimensions());
        let converted = T::load(space.of_queries(vectors), kernel, &queries.stored, &mut panel);
        let lengths = converted.squared_norms.iter().map(|squared| squared.sqrt()).collect();
        Ok(Prepared { space, queries, panel, lengths, _of_ids })
    }

    /// Compares all queries with some rows of the base.
    fn compare<T: Coordinate>(
        &self,
        prepared: &Prepared<'_, T>,
        rows: &UsableRows,
        blocks: &[Mutex<Block>],
    ) -> Result<()> {
        let (kernel, bytes) = (self.context.kernel, self.base.info().vectors.bytes());
        let mut panel = Panel::<T>::zeroed(rows.rows.len(), prepared.space.dimensions());
        T::load(prepared.space, kernel, &rows.stored, &mut panel);
        let columns = kernel.pack(&panel, &(0..rows.rows.len() as u32).collect::<Vec<_>>());
        let work = |hits: &mut Vec<HitMask>, block: usize| {
            hits.clear();
            let first = block * BLOCK_QUERIES;
            let mut block = lock(&blocks[block]);
            let order: Vec<u32> = (first as u32..).take(block.found.len()).collect();
            let most = |(&query, found)| self.limit(prepared, query, found);
            let limits: Vec<T::Distance> = order.iter().zip(&block.found).map(most).collect();
            kernel.within_each(&prepared.panel, &order, &limits, &columns, hits);
            self.make_room(&mut block, hits)?;
            for mask in hits.iter() {
                let query = first + mask.row as usize;
                let found = &mut block.found[mask.row as usize];
                let query = vector_of(&prepared.queries, query, bytes);
                for row in mask.columns().map(|column| column as usize) {
                    self.take(found, query, vector_of(rows, row, bytes), rows.rows[row]);
                }
            }
            block.held = block.found.iter().map(|found| found.capacity() as u64).sum();
            Ok(())
        };
        map_items(self.context.threads, blocks.len(), &self.context.cancel, Vec::new, work).map(drop)
    }

    /// Reserves memory for the hits that may be found within a threshold. A list grows by doubling.
    fn make_room(&self, block: &mut Block, hits: &[HitMask]) -> Result<()> {
        if matches!(self.wanted, TruthTarget::Nearest(_)) {
            return Ok(());
        }
        let more: u64 = hits.iter().map(|mask| u64::from(mask.count())).sum();
        let most = if more == 0 { block.held } else { 3 * (block.held + more) };
        self.context.grow(&mut block.memory, most * size_of::<TrueNeighbor>() as u64, PURPOSE)
    }

    /// Returns a limit for the kernel: a row whose computed distance to the query is larger is certainly too far.
    fn limit<T: Coordinate>(
        &self,
        prepared: &Prepared<'_, T>,
        query: u32,
        found: &BinaryHeap<TrueNeighbor>,
    ) -> T::Distance {
        let most = match self.wanted {
            // Until a query has K hits, no row is too far.
            TruthTarget::Nearest(count) if found.len() < count => return T::FARTHEST,
            TruthTarget::Nearest(_) => found.peek().map_or(f64::NEG_INFINITY, |farthest| farthest.nearness),
            TruthTarget::Within(most) => most,
        };
        if most == f64::INFINITY {
            return T::FARTHEST;
        }
        let length = prepared.lengths.get(query as usize).copied().unwrap_or(1.0);
        T::tile_limit(&Threshold::up_to(most, prepared.space, length))
    }

    /// Adds a row, with its stored vector, to the hits of a query if it is near enough.
    fn take(&self, found: &mut BinaryHeap<TrueNeighbor>, query: &[u8], vector: &[u8], row: u64) {
        let element = self.base.info().vectors.element;
        // Values are subtracted from 0, since a negation would produce -0. `total_cmp` orders -0 before 0, so such
        // hits would not be ordered by id.
        let nearness = match self.metric {
            Metric::L2 => squared_distance(element, query, vector),
            Metric::Cosine => 0.0 - cosine(element, query, vector),
            Metric::Ip => 0.0 - dot(element, query, vector),
        };
        let id = self.tags.map_or(row as u32, |tags| tags[row as usize]);
        let hit = TrueNeighbor { nearness, id };
        match self.wanted {
            TruthTarget::Within(most) if nearness <= most => found.push(hit),
            TruthTarget::Within(_) => {}
            TruthTarget::Nearest(count) if found.len() < count => found.push(hit),
            TruthTarget::Nearest(_) => {
                if let Some(mut farthest) = found.peek_mut()
                    && hit < *farthest
                {
                    *farthest = hit;
                }
            }
        }
    }
}

/// Returns the stored vector of row `k`, which has `bytes` bytes.
fn vector_of(rows: &UsableRows, k: usize, bytes: usize) -> &[u8] {
    &rows.stored[k * bytes..][..bytes]
}

/// Returns the rows per batch of the base.
fn batch_rows(vectors: VectorType) -> usize {
    (BATCH_BYTES_MAX / vectors.bytes()).clamp(1, BATCH_ROWS_MAX)
}

fn batch_bytes(vectors: VectorType) -> u64 {
    (batch_rows(vectors) * vectors.bytes()) as u64
}
