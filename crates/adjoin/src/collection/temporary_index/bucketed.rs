//! Rows of consecutive full blocks, grouped into buckets, so that a query is compared with the rows of a few buckets
//! instead of all rows. This is an inverted file in memory. (FreshDiskANN's temporary indexes are graphs, which take
//! some 50 times as long to build; see `docs/decisions/0016-rows-in-memory.md`.)
//!
//! How many buckets a query probes depends on the number of hits and on the recall. The rule is calibrated with a sample
//! of the rows, whose nearest rows are known. A query that is farther from its hits than each sampled row is from its
//! nearest rows is compared with the other buckets too.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use adjoin_device::Reservation;
use adjoin_kernels::{Panel, TILE_COLUMNS};

use super::{Full, block_rows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Means, Space, with_coordinates};
use crate::base::mutex::lock;
use crate::base::options::Metric;
use crate::base::random::Random;
use crate::base::workers::map_items;
use crate::buckets::{ProbeSample, Prober, SampledQuery};
use crate::execute::{AllNearest, Nearest, NearestSearch, NumberedQueries, PackedBucket};
use crate::load::{LoadedBucket, Members};
use crate::plan::{ProbeRule, Probes};
use crate::query::QueryTarget;
use crate::store::{TwoLevel, assigning_bytes};

/// Number of centers, as a multiple of the square root of the number of rows. A query compares fewer rows with more
/// centers, but each bucket has a cost too. (460,000 SIFT vectors at recall 0.99: 57,000 rows and centers with a multiple
/// of 1, 34,000 with 4.)
const CENTERS: usize = 4;
/// Rounds of Lloyd's algorithm, and rows per center with which it trains.
const ROUNDS: usize = 3;
const ROWS_PER_CENTER: usize = 32;
/// Number of rows in the calibration sample.
const SAMPLED: u64 = 500;
/// Largest number of hits for which a rule can be calibrated.
pub(super) const HITS_MAX: u64 = 50;
/// Maximum number of rules that are kept.
const RULES_MAX: usize = 64;
/// Weight of margins in a rule, relative to the logarithm of the rank.
const MARGIN_WEIGHT: f64 = 1.0;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "grouping rows that are not merged yet";

/// Consecutive full blocks whose rows are grouped into buckets.
pub(super) struct BucketedBlocks {
    /// Number of the first row after these.
    end: u32,
    /// Number of the blocks.
    pub(super) blocks: usize,
    /// `BucketedRows` of the coordinates of the space.
    bucketed: Box<dyn Any + Send + Sync>,
    /// Memory in addition to the memory that is reserved for the packed form of each row.
    memory: Reservation,
    pub(super) replaced: Replaced,
}

/// Reservation of a packed form that a newer one has replaced. It is released when the last view that uses the old form
/// is dropped.
pub(super) type Replaced = OnceLock<Arc<Reservation>>;

/// Rows by bucket, packed for comparisons with queries.
pub(super) struct BucketedRows<T: Coordinate> {
    prober: Prober<T>,
    /// The rows of the buckets, in pieces of at most as many rows as a block has.
    pieces: Vec<PackedBucket<T>>,
    /// For each bucket, its number of rows and its pieces.
    buckets: Vec<(u64, Range<usize>)>,
    sample: ProbeSample,
    /// For each K from 1 on, the largest nearness of the K-th nearest row of a sampled row.
    farthest: Vec<f64>,
    seed: u64,
    /// Rules by K and recall, which is given as bits. `None` if the sample supports no rule.
    rules: Mutex<HashMap<(u64, u64), Option<ProbeRule>>>,
}

/// Numbers of the queries that probe each bucket, ascending.
pub(super) type ProbingQueries = Vec<Vec<u32>>;

/// Sizes of bucketed rows.
struct Sizes {
    rows: usize,
    centers: usize,
    /// Largest number of rows in a piece, and of pieces.
    piece_rows: usize,
    pieces: usize,
}

impl Sizes {
    fn of(space: Space<'_>, rows: usize) -> Self {
        let (centers, piece_rows) = ((CENTERS * rows.isqrt()).clamp(1, rows.max(1)), block_rows(space));
        Self { rows, centers, piece_rows, pieces: centers + rows / piece_rows }
    }

    /// Returns the bytes of the buckets with their sample.
    fn held_bytes<T: Coordinate>(&self, context: &Context, space: Space<'static>) -> u64 {
        let Self { rows, centers, pieces, .. } = *self;
        // Each piece may take up to a tile more than its rows.
        let of_piece = PackedBucket::<T>::memory_bytes(TILE_COLUMNS, space) + size_of::<PackedBucket<T>>() as u64;
        PackedBucket::<T>::memory_bytes(rows, space)
            + pieces as u64 * of_piece
            + Prober::<T>::memory_bytes(centers, space.dimensions(), context.threads)
            + ProbeSample::memory_bytes(SAMPLED, HITS_MAX)
    }

    /// Returns the bytes of the work, without its result.
    fn working_bytes<T: Coordinate>(&self, context: &Context, space: Space<'static>) -> u64 {
        let Self { rows, centers, piece_rows, .. } = *self;
        let (threads, dimensions) = (context.threads.max(1), space.dimensions());
        let trained = rows.min(ROWS_PER_CENTER * centers);
        let training = (trained * space.vectors.bytes()) as u64
            + Panel::<T>::bytes_for(trained + centers, dimensions)
            + (centers * dimensions * size_of::<T::Sum>()) as u64;
        let of_thread = NearestSearch::<T>::memory_bytes(piece_rows, dimensions)
            + Members::<T>::memory_bytes(piece_rows as u64, space)
            + (piece_rows * space.vectors.bytes()) as u64;
        let sampling = SAMPLED * (3 * Nearest::memory_bytes(HITS_MAX + 1)) + Members::<T>::memory_bytes(SAMPLED, space);
        // The bucket of each row is held twice while the rows are sorted by bucket.
        let of_rows = (rows * 4 * size_of::<u32>()) as u64;
        training + assigning_bytes::<T>(threads, centers, dimensions) + threads as u64 * of_thread + sampling + of_rows
    }
}

/// The stored vectors of consecutive blocks.
#[derive(Clone, Copy)]
struct Vectors<'a> {
    space: Space<'static>,
    blocks: &'a [Arc<Full>],
}

impl Vectors<'_> {
    fn rows(self) -> Range<u32> {
        self.blocks[0].first..self.blocks.last().map_or(0, |block| block.rows().end)
    }

    /// Returns the vectors of some rows, end to end.
    fn gather(self, rows: impl Iterator<Item = u32>) -> Vec<u8> {
        let bytes = self.space.vectors.bytes();
        let mut gathered = Vec::with_capacity(rows.size_hint().0 * bytes);
        for row in rows {
            let block = &self.blocks[self.blocks.partition_point(|block| block.first <= row) - 1];
            gathered.extend_from_slice(&block.stored[(row - block.first) as usize * bytes..][..bytes]);
        }
        gathered
    }

    /// Returns `count` random rows, or all if there are fewer.
    fn draw(self, count: u64, seed: u64, stream: &str) -> Vec<u32> {
        let rows = self.rows();
        let len = rows.len() as u64;
        let drawn = Random::new(seed, stream).ascending_sample(count.min(len), len);
        drawn.into_iter().map(|row| rows.start + row as u32).collect()
    }
}

impl BucketedBlocks {
    /// Returns whether the rows of a collection over `space` can be bucketed. Blocks of vectors for inner products each
    /// have their own space, so their distances to centers do not compare.
    pub(super) fn are_possible(space: Space<'_>) -> bool {
        space.metric != Metric::Ip
    }

    /// Groups the rows of `blocks` into buckets. `packed_bytes` is the memory that is reserved already for the packed
    /// form of these rows. Returns the buckets, and the memory of the form that they replace.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled.
    pub(super) fn new(
        context: &Context,
        space: Space<'static>,
        blocks: &[Arc<Full>],
        packed_bytes: u64,
        seed: u64,
    ) -> Result<(Self, Reservation)> {
        let vectors = Vectors { space, blocks };
        let Range { start, end } = vectors.rows();
        with_coordinates!(space, T => {
            let sizes = Sizes::of(space, (end - start) as usize);
            let _working = context.reserve_between_runs(sizes.working_bytes::<T>(context, space), PURPOSE)?;
            let held = sizes.held_bytes::<T>(context, space).max(packed_bytes);
            let mut memory = context.reserve_between_runs(held, PURPOSE)?;
            let bucketed = BucketedRows::<T>::build(context, vectors, &sizes, seed)?;
            let replaced = memory.split(packed_bytes);
            let (blocks, bucketed) = (blocks.len(), Box::new(bucketed));
            Ok((Self { end, blocks, bucketed, memory, replaced: OnceLock::new() }, replaced))
        })
    }

    /// Returns the buckets.
    pub(super) fn of<T: Coordinate + 'static>(&self) -> &BucketedRows<T> {
        self.bucketed.downcast_ref().expect("the coordinates of a space are of one type")
    }

    /// Returns the number of the first row after these.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Returns the reserved bytes, in addition to those of each row.
    pub(super) fn extra_bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl<T: Coordinate> BucketedRows<T> {
    fn build(context: &Context, vectors: Vectors<'_>, sizes: &Sizes, seed: u64) -> Result<Self> {
        let Vectors { space, blocks } = vectors;
        let centers = train(context, vectors, sizes, seed)?;
        let levels = TwoLevel::new(context.kernel, &centers);
        let mut of: Vec<u32> = Vec::with_capacity(sizes.rows);
        for block in blocks {
            of.extend(levels.nearest(context, space, &block.stored)?.iter().map(|nearest| nearest.center));
        }
        let first = vectors.rows().start;
        let mut order: Vec<u32> = (0..sizes.rows as u32).collect();
        order.sort_by_key(|&row| of[row as usize]);
        let mut buckets = vec![(0, 0..0); centers.rows()];
        let mut spans = Vec::new();
        for bucket in order.chunk_by(|a, b| of[*a as usize] == of[*b as usize]) {
            let start = spans.len();
            spans.extend(bucket.chunks(sizes.piece_rows));
            buckets[of[bucket[0] as usize] as usize] = (bucket.len() as u64, start..spans.len());
        }
        let pieces = map_items(
            context.threads,
            spans.len(),
            &context.cancel,
            || (),
            |(), span| {
                let rows = spans[span].iter().map(|row| first + row);
                let members = Members::new(context.kernel, space, &vectors.gather(rows.clone()));
                Ok(PackedBucket::new(
                    context.kernel,
                    space,
                    LoadedBucket::of_rows(members, rows.map(u64::from).collect()),
                ))
            },
        )?;
        let prober = Prober::new(context.kernel, &centers);
        let bucket_of = |row| of[(row - first) as usize];
        let (sample, farthest) = sample(context, vectors, &pieces, &prober, seed, &bucket_of)?;
        Ok(Self { prober, pieces, buckets, sample, farthest, seed, rules: Mutex::default() })
    }

    /// Returns all pieces.
    pub(super) fn pieces(&self) -> &[PackedBucket<T>] {
        &self.pieces
    }

    /// Returns which queries probe each bucket to find their `k` nearest rows with `recall`. Returns `None` if no rule
    /// reaches the recall, so that queries must be compared with all rows.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(super) fn probed(
        &self,
        context: &Context,
        queries: &Members<T>,
        some: Range<u32>,
        k: u64,
        recall: f64,
    ) -> Result<Option<ProbingQueries>> {
        let Some(rule) = self.rule(k, recall) else { return Ok(None) };
        let first = some.start;
        let probed = self.prober.map(context, &queries.panel, some, |_, measured| {
            measured.probed::<T>(Probes::By(rule), k, |bucket| self.buckets[bucket as usize].0).collect::<Vec<u32>>()
        })?;
        let mut lists = vec![Vec::new(); self.buckets.len()];
        for (query, probed) in (first..).zip(probed) {
            probed.into_iter().for_each(|bucket| lists[bucket as usize].push(query));
        }
        Ok(Some(lists))
    }

    /// Returns whether the K-th nearest row of a query, which has the given nearness, is farther than the one of each
    /// sampled row. The query is then unlike the rows, and the rule says little about it.
    pub(super) fn is_beyond(&self, k: u64, nearness: f64) -> bool {
        self.farthest.get(k as usize - 1).is_none_or(|&farthest| nearness > farthest)
    }

    /// Returns for each bucket the queries in `some` that have not probed it.
    pub(super) fn not_probed(&self, probed: &ProbingQueries, some: &[u32]) -> ProbingQueries {
        let missing =
            |probed: &Vec<u32>| some.iter().copied().filter(|query| probed.binary_search(query).is_err()).collect();
        probed.iter().map(missing).collect()
    }

    /// Returns the pieces of the buckets that some queries probe, with these queries.
    pub(super) fn pieces_of<'a>(
        &'a self,
        probed: &'a ProbingQueries,
    ) -> impl Iterator<Item = (&'a PackedBucket<T>, &'a [u32])> {
        let of_buckets = probed.iter().zip(&self.buckets).filter(|(queries, _)| !queries.is_empty());
        of_buckets
            .flat_map(|(queries, (_, pieces))| self.pieces[pieces.clone()].iter().map(|piece| (piece, &queries[..])))
    }

    /// Returns the bytes of [`Self::probed`] for `queries` queries.
    pub(super) fn probing_bytes(&self, context: &Context, queries: u64) -> u64 {
        let (buckets, pieces) = (self.buckets.len() as u64, self.pieces.len() as u64);
        // A query may probe all buckets. A vector may have twice the capacity that it needs.
        let of_query = 3 * buckets * size_of::<u32>() as u64;
        Prober::<T>::memory_bytes(self.buckets.len(), 0, context.threads)
            + 2 * queries * of_query
            + (buckets + pieces) * 4 * size_of::<(&PackedBucket<T>, Vec<u32>)>() as u64
    }

    /// Returns the rule that finds the `k` nearest rows with `recall`; `None` if the sample supports none.
    fn rule(&self, k: u64, recall: f64) -> Option<ProbeRule> {
        let mut rules = lock(&self.rules);
        if rules.len() >= RULES_MAX {
            rules.clear();
        }
        *rules.entry((k, recall.to_bits())).or_insert_with(|| {
            let per_margin = self.sample.per_margin(MARGIN_WEIGHT);
            let t = self.sample.nearest(k).of_rule(per_margin, |_| true).calibrate(recall, self.seed)?;
            Some(ProbeRule { per_margin, t })
        })
    }
}

/// Trains centers on a sample of the rows.
fn train<T: Coordinate>(context: &Context, vectors: Vectors<'_>, sizes: &Sizes, seed: u64) -> Result<Panel<T>> {
    let (kernel, space) = (context.kernel, vectors.space);
    let drawn = vectors.draw((ROWS_PER_CENTER * sizes.centers) as u64, seed, "centers of unmerged rows");
    let mut rows = Panel::zeroed(drawn.len(), space.dimensions());
    T::load(space, kernel, &vectors.gather(drawn.iter().copied()), &mut rows);
    // The first centers are equally spaced in the sample, which is random.
    let first: Vec<u32> = (0..sizes.centers).map(|center| drawn[center * drawn.len() / sizes.centers]).collect();
    let mut centers = Panel::zeroed(first.len(), space.dimensions());
    T::load(space, kernel, &vectors.gather(first.into_iter()), &mut centers);
    for _ in 0..ROUNDS {
        let nearest = TwoLevel::new(kernel, &centers).nearest_of(context, &rows)?;
        let mut means = Means::new(centers.rows(), centers.dimensions());
        (0..rows.rows()).for_each(|row| means.add(nearest[row].center as usize, rows.row(row)));
        means.write(&mut centers);
    }
    Ok(centers)
}

/// Draws some rows, and records the buckets of their nearest rows, which are found by comparing them with all rows. Also
/// returns the largest nearness of a K-th nearest row, for each K.
fn sample<T: Coordinate>(
    context: &Context,
    vectors: Vectors<'_>,
    pieces: &[PackedBucket<T>],
    prober: &Prober<T>,
    seed: u64,
    bucket_of: &(dyn Fn(u32) -> u32 + Sync),
) -> Result<(ProbeSample, Vec<f64>)> {
    let (kernel, space) = (context.kernel, vectors.space);
    let drawn = vectors.draw(SAMPLED, seed, "sample of unmerged rows");
    let queries = Members::<T>::new(kernel, space, &vectors.gather(drawn.iter().copied()));
    let numbers: Vec<u32> = (0..drawn.len() as u32).collect();
    // A row is its own nearest row, so one more is found.
    let target = QueryTarget::Nearest(HITS_MAX + 1);
    let nearest = AllNearest::new(drawn.iter().map(|_| target.nearest(space.metric, None)));
    let numbered = NumberedQueries { members: &queries, first: 0 };
    let state = || NearestSearch::new(kernel, space, numbered, &nearest);
    map_items(context.threads, pieces.len(), &context.cancel, state, |search, piece| {
        search.compare_packed(piece as u32, &pieces[piece], &|_| true, &numbers);
        Ok(())
    })?;
    let mut found = nearest.into_sorted(context)?;
    for (hits, &row) in found.iter_mut().zip(&drawn) {
        hits.retain(|hit| hit.row != u64::from(row));
        hits.truncate(HITS_MAX as usize);
    }
    let sampled = prober.map(context, &queries.panel, 0..drawn.len() as u32, |query, measured| {
        let hits = &found[query as usize];
        SampledQuery::new::<T>(measured, hits.len() as u64, hits.iter().map(|hit| bucket_of(hit.row as u32)))
    })?;
    // All rows have equally many others, so all have a K-th nearest one or none has.
    let nth = |k: usize| found.iter().filter_map(|hits| hits.get(k)).map(|hit| hit.nearness).reduce(f64::max);
    Ok((ProbeSample::of(sampled), (0..HITS_MAX as usize).map_while(nth).collect()))
}
