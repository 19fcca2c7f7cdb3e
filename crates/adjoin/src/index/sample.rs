//! Samples calibration queries from the rows of the index or from a source. Finds their true hits by comparing them
//! with all vectors on all pages.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, Reservation};

use super::Index;
use super::cache::PageCache;
use super::calibration::{Inserted, NOTED, noted};
use super::filtered_vertices::FilteredVertices;
use super::page::Page;
use super::page_scan::{self, PageScan};
use super::walk::WalkAim;
use super::walk_strategy::WalkStrategy;
use super::walks::{WalkQueries, Walks};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::VectorType;
use crate::base::predicate::Predicate;
use crate::base::random::Random;
use crate::buckets::CALIBRATION_VECTORS;
use crate::execute::{Hit, Nearest};
use crate::load::{Members, ReadCounts};
use crate::quantize::Table;
use crate::query::{QueryTarget, SourceQueries, bytes_for_all_hits, in_halves};
use crate::source::VectorSource;
use crate::store::Role;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "calibrating the index";
/// Largest number of queries compared at once.
const QUERIES_MAX: u64 = 4_096;

/// List length that stands for a hit which a walk does not find.
pub(super) const MISSED: u32 = u32::MAX;

/// Sample of calibration queries.
pub(super) struct Sample<'a> {
    context: &'a Context,
    index: &'a Index,
    /// Vertices that can be hits; `None` if all can.
    admitted: Option<&'a FilteredVertices<'a>>,
    vectors: VectorType,
    /// Vectors of the queries, concatenated.
    stored: Vec<u8>,
    /// Entry and vertex of each query. Empty if the queries are not rows of the index.
    own: Vec<RowQuery>,
    _memory: Reservation,
}

/// A row of the index as a query.
#[derive(Debug, Clone, Copy)]
struct RowQuery {
    entry: u32,
    vertex: u32,
    /// Whether no other row has an equal vector.
    alone: bool,
}

/// Number of rows that are sampled from an index. Walks are run for each of them with a dozen lists, which takes a few
/// seconds when a large index is built. The upper end suffices to promise a recall of 0.99. From a small index only a
/// part is sampled. A small sample may support a promise only with long lists, but long lists cost little if the index
/// is small.
const ROWS: std::ops::RangeInclusive<u64> = 250..=1_000;
/// Divisor of the number of rows. At most this part of a small index is sampled, unless the index has very few rows.
const ROWS_SHARE: u64 = 5;

/// Least number of inserted rows for which the recall is measured separately. Fewer rows hardly form a new region.
const INSERTED_MIN: usize = 50;

/// Returns the number of rows to sample from `rows` rows.
fn rows_drawn(rows: u64) -> u64 {
    (rows / ROWS_SHARE).clamp(*ROWS.start(), *ROWS.end()).min(rows)
}

/// Returns the entries of the rows of an index that are its calibration queries, ascending.
pub(super) fn drawn_entries(facts: &super::IndexManifest) -> Vec<u32> {
    let drawn = Random::new(facts.seed, "calibration").ascending_sample(rows_drawn(facts.rows), facts.rows);
    drawn.into_iter().map(|entry| entry as u32).collect()
}

/// Samples the entries of rows to search for before the recall is measured, from all rows and from the rows that a
/// merge inserted. They are independent of the calibration queries.
pub(super) fn tried_entries(facts: &super::IndexManifest, inserted: &[u32]) -> Vec<u32> {
    let mut lot = Random::new(facts.seed, "tried");
    let of_all = lot.ascending_sample(rows_drawn(facts.rows), facts.rows);
    let of_inserted = lot.ascending_sample((*ROWS.end()).min(inserted.len() as u64), inserted.len() as u64);
    let of_inserted = of_inserted.into_iter().map(|number| inserted[number as usize]);
    of_all.into_iter().map(|entry| entry as u32).chain(of_inserted).collect()
}

/// Samples the rows with which the recall of inserted rows is measured. `entries` has the entries of all inserted rows,
/// ascending. Returns no rows if few rows were inserted.
pub(super) fn draw_inserted(seed: u64, entries: &[u32]) -> Inserted {
    if entries.len() < INSERTED_MIN {
        return Inserted::default();
    }
    let count = entries.len().min(*ROWS.end() as usize);
    let drawn = Random::new(seed, "inserted").ascending_sample(count as u64, entries.len() as u64);
    let whole = count == entries.len();
    Inserted { entries: drawn.into_iter().map(|number| entries[number as usize]).collect(), whole }
}

/// Returns the number of queries in a calibration sample: vectors of `calibrate_with` or, if it is not set, rows.
pub(super) fn drawn(index: &Index, calibrate_with: Option<&dyn VectorSource>) -> u64 {
    calibrate_with.map_or_else(|| rows_drawn(index.facts().rows), |source| CALIBRATION_VECTORS.min(source.info().rows))
}

/// Returns the bytes of a query for `k` hits, in addition to its stored vector.
fn query_bytes<T: Coordinate>(index: &super::IndexManifest, vectors: VectorType, k: u64) -> u64 {
    // The factor 3 covers the hits of the scan, the sorted hits, and the hits of a walk with further rows of their
    // vertices.
    Members::<T>::memory_bytes(1, index.space().of_queries(vectors)) + 3 * Nearest::memory_bytes(k.min(index.rows) + 1)
}

/// Returns the approximate bytes for comparing the queries of a sample with all pages, in addition to the recorded
/// hits.
pub(super) fn least_bytes<T: Coordinate>(
    context: &Context,
    index: &super::IndexManifest,
    vectors: VectorType,
    k: u64,
) -> u64 {
    let drawn = CALIBRATION_VECTORS * (2 * vectors.bytes() as u64 + 8 * NOTED as u64 + 64);
    drawn + page_scan::working_bytes::<T>(context, index) + 4 * query_bytes::<T>(index, vectors, k)
}

impl<'a> Sample<'a> {
    /// Samples rows of the index. These are the rows of its published calibration, followed by the rows in `inserted`.
    /// Deleted rows are left out.
    ///
    /// # Errors
    /// If they cannot be read, or if memory does not suffice.
    pub(super) fn of_rows(
        context: &'a Context,
        index: &'a Index,
        admitted: Option<&'a FilteredVertices<'a>>,
        inserted: &[u32],
    ) -> Result<Self> {
        let facts = index.facts();
        let vectors = facts.vectors;
        let mut drawn = drawn_entries(facts);
        drawn.extend_from_slice(inserted);
        if let Some(admitted) = admitted.filter(|admitted| admitted.is_by_deletes()) {
            drawn.retain(|&entry| admitted.admits(entry));
        }
        let memory = context.reserve(drawn.len() as u64 * (vectors.bytes() as u64 + 64), PURPOSE)?;
        let own: Vec<RowQuery> = drawn.iter().map(|&entry| RowQuery::of(index, entry)).collect();
        let mut sample = Self { context, index, admitted, vectors, stored: Vec::new(), own, _memory: memory };
        let mut buffer = AlignedBuffer::zeroed(facts.shape().bytes());
        for k in 0..sample.own.len() {
            sample.read(sample.own[k].vertex, &mut buffer)?;
        }
        Ok(sample)
    }

    /// Appends the vector of a vertex to the queries.
    fn read(&mut self, vertex: u32, buffer: &mut AlignedBuffer) -> Result<()> {
        let (shape, vertices) = (self.index.facts().shape(), self.index.facts().vertices);
        let number = shape.page_of(vertex);
        let page = self.index.read_pages(number, buffer)?;
        let all = shape.vertices(number, vertices);
        let slot = (vertex - all.start) as usize;
        let bytes = self.vectors.bytes();
        self.stored.extend_from_slice(&Page::of_checked(shape, page).vectors(all.len())[slot * bytes..][..bytes]);
        Ok(())
    }

    /// Samples vectors of a source.
    ///
    /// # Errors
    /// If vectors cannot be read or do not match the type of the index, or if memory does not suffice.
    fn of_queries(
        context: &'a Context,
        index: &'a Index,
        admitted: Option<&'a FilteredVertices<'a>>,
        queries: SourceQueries<'_>,
        seed: u64,
    ) -> Result<Self> {
        let (vectors, rows) = (queries.vectors(), queries.source.info().rows);
        let _reading = context.reserve(queries.reading_bytes(), PURPOSE)?;
        let drawn = Random::new(seed, "calibration").ascending_sample(CALIBRATION_VECTORS.min(rows), rows);
        let memory = context.reserve(2 * drawn.len() as u64 * vectors.bytes() as u64, PURPOSE)?;
        let mut stored = Vec::new();
        queries.each(context, QUERIES_MAX as usize, &mut |mut batch| {
            batch.retain(|row| drawn.binary_search(&row).is_ok());
            stored.extend_from_slice(&batch.stored);
            Ok(())
        })?;
        Ok(Self { context, index, admitted, vectors, stored, own: Vec::new(), _memory: memory })
    }

    /// Samples some of the calibration queries or, if there are none, rows of the index.
    ///
    /// # Errors
    /// The errors of [`Self::of_rows`] and [`Self::of_queries`].
    pub(super) fn draw(
        context: &'a Context,
        index: &'a Index,
        admitted: Option<&'a FilteredVertices<'a>>,
        calibration_queries: Option<SourceQueries<'_>>,
        seed: u64,
        inserted: &[u32],
    ) -> Result<Self> {
        match calibration_queries {
            None => Self::of_rows(context, index, admitted, inserted),
            Some(queries) => Self::of_queries(context, index, admitted, queries, seed),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.stored.len() / self.vectors.bytes()
    }

    /// Returns the number of true hits of each query for `k` hits. A row is not a hit of itself.
    pub(super) fn hits_of_query(&self, k: u64) -> u32 {
        let all = self.admitted.map_or(self.index.facts().rows, FilteredVertices::rows);
        k.min(all.saturating_sub((!self.own.is_empty()).into())) as u32
    }

    /// Returns the bytes of the hits of all queries at once.
    pub(super) fn finding_bytes<T: Coordinate>(&self, k: u64) -> u64 {
        self.len() as u64 * query_bytes::<T>(self.index.facts(), self.vectors, k)
    }

    /// Divides the queries into parts such that the hits of a part fit in memory.
    pub(super) fn parts<T: Coordinate>(&self, k: u64) -> impl Iterator<Item = Range<usize>> + use<T> {
        let of_query = query_bytes::<T>(self.index.facts(), self.vectors, k);
        let at_once = (self.context.budget().free() / 4 / of_query).clamp(1, QUERIES_MAX) as usize;
        let all = self.len();
        (0..all).step_by(at_once).map(move |start| start..all.min(start + at_once))
    }

    /// Returns some of the queries, with the reservation for their hits.
    pub(super) fn members<T: Coordinate>(&self, part: Range<usize>, k: u64) -> Result<(Members<T>, Reservation)> {
        let of_query = query_bytes::<T>(self.index.facts(), self.vectors, k);
        let memory = self.context.reserve(part.len() as u64 * of_query, PURPOSE)?;
        let bytes = self.vectors.bytes();
        let space = self.index.facts().space().of_queries(self.vectors);
        let stored = &self.stored[part.start * bytes..part.end * bytes];
        Ok((Members::new(self.context.kernel, space, stored), memory))
    }

    /// Returns the vertex that the walk of a query ignores. If the query is a row and no other row has an equal vector,
    /// that is its own vertex. The query then behaves like one that is not in the index.
    pub(super) fn hidden(&self, query: usize) -> Option<u32> {
        self.own.get(query).filter(|own| own.alone).map(|own| own.vertex)
    }

    /// Runs the walks of all queries. Returns a number for each recorded hit, query by query: the length of the shortest
    /// list with which a walk finds the hit, or [`MISSED`] if even the list of `aim` does not suffice. Memory for `k`
    /// hits is reserved per query. Adds the reads to `reads`.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn find_noted<'n, T: Coordinate>(
        &self,
        aim: WalkAim,
        k: u64,
        strategy: WalkStrategy,
        cache: &PageCache,
        noted: impl Fn(usize) -> &'n [u32],
        reads: &mut ReadCounts,
    ) -> Result<Vec<u32>> {
        let Self { context, index, admitted, .. } = *self;
        let (mut all, aim) = (Vec::new(), WalkAim { measures: true, ..aim });
        context.progress.begin("calibrate", "queries", self.len() as u64);
        for part in self.parts::<T>(k) {
            let (members, _memory) = self.members::<T>(part.clone(), k)?;
            let hidden: Vec<Option<u32>> = part.clone().map(|query| self.hidden(query)).collect();
            let walks = Walks::<T>::new(context, index, aim, admitted, strategy, cache);
            let find = |range| walks.search(WalkQueries::inside(&members, &hidden), range);
            in_halves(context, bytes_for_all_hits(index.facts().rows), part.len() as u32, find, |_, found| {
                for found in found {
                    let entries = found.hits.iter().map(|hit| hit.place.0);
                    let mut lists: Vec<(u32, u32)> = entries.zip(found.least_lists).collect();
                    lists.sort_unstable();
                    let of = |entry: &u32| lists.binary_search_by_key(entry, |&(entry, _)| entry);
                    let noted = noted(part.start + found.query as usize).iter();
                    all.extend(noted.map(|entry| of(entry).map_or(MISSED, |place| lists[place].1)));
                    let bytes = found.pages_read * index.facts().shape().bytes() as u64;
                    *reads += ReadCounts { reads: found.pages_read, bytes_requested: bytes, bytes_read: bytes };
                }
                Ok(())
            })?;
            context.progress.advance(part.end as u64);
        }
        Ok(all)
    }

    /// Removes a query's own row from its hits.
    pub(super) fn without_own(&self, query: usize, mut hits: Vec<Hit>) -> Vec<Hit> {
        if let Some(own) = self.own.get(query) {
            hits.retain(|hit| hit.place.0 != own.entry);
        }
        hits
    }

    /// Finds the rows within a threshold of each query. Returns them with the reads.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn within<T: Coordinate>(&self, predicate: Predicate, seed: u64) -> Result<(Truth, ReadCounts)> {
        let Self { context, index, .. } = *self;
        let mut truth = Truth { counts: Vec::new(), ends: Vec::new(), entries: Vec::new(), codes: Vec::new() };
        let (mut counts, mut table, mut vertices) = (ReadCounts::default(), Table::default(), Vec::new());
        for part in self.parts::<T>(NOTED as u64) {
            let (members, _memory) = self.members::<T>(part.clone(), NOTED as u64)?;
            let whole = self.whole(&members, QueryTarget::Within(predicate));
            let find = |range| whole.search(range, |query| self.hidden(part.start + query as usize));
            in_halves(
                context,
                bytes_for_all_hits(index.facts().rows),
                part.len() as u32,
                find,
                |range, (found, reads)| {
                    counts += reads;
                    for (member, hits) in range.zip(found) {
                        let query = part.start + member as usize;
                        let hits = self.without_own(query, hits);
                        truth.counts.push(hits.len() as u64);
                        // Each query selects its recorded hits by a seed of its own.
                        let entries = noted(hits.iter().map(|hit| hit.place.0).collect(), seed ^ query as u64);
                        vertices.clear();
                        vertices.extend(entries.iter().map(|&entry| index.vertex_of(entry)));
                        let start = truth.codes.len();
                        truth.codes.resize(start + vertices.len(), 0.0);
                        index.quantizer.fill_table(context.kernel, members.panel.row(member as usize), &mut table);
                        let codes = &mut truth.codes[start..];
                        index.quantizer.distances(context.kernel, &table, &index.codes, &vertices, codes);
                        truth.entries.extend(entries);
                        truth.ends.push(truth.entries.len());
                    }
                    Ok(())
                },
            )?;
        }
        Ok((truth, counts))
    }

    fn whole<'q, T: Coordinate>(&'q self, queries: &'q Members<T>, wanted: QueryTarget) -> PageScan<'q, T> {
        let Self { context, index, admitted, .. } = *self;
        PageScan { context, index, queries, wanted, admitted, purpose: PURPOSE, phase: "calibrate" }
    }

    /// Finds the `k` true hits of each query. Returns the entries of the recorded hits, and the reads.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn true_hits<T: Coordinate>(&self, k: u64, seed: u64) -> Result<(Vec<Vec<u32>>, ReadCounts)> {
        let (mut all, mut counts) = (Vec::with_capacity(self.len()), ReadCounts::default());
        let wanted = self.hits_of_query(k) as usize;
        for part in self.parts::<T>(k) {
            let (members, _memory) = self.members::<T>(part.clone(), k)?;
            // One hit more is found, since a query may find its own row.
            let whole = self.whole(&members, QueryTarget::Nearest(wanted as u64 + 1));
            let found = whole.search(0..part.len() as u32, |query| self.hidden(part.start + query as usize))?;
            let (found, reads) = found.expect("the buffer has room for all hits");
            counts += reads;
            for (query, hits) in part.zip(found) {
                let hits = self.without_own(query, hits);
                if hits.len() < wanted {
                    let why = "some vectors have no finite distances";
                    return Err(self.index.files().damaged(Role::Pages, why));
                }
                let entries = hits[..wanted].iter().map(|hit| hit.place.0).collect();
                all.push(noted(entries, seed ^ query as u64));
            }
        }
        Ok((all, counts))
    }
}

/// True hits of sampled queries within a threshold.
pub(super) struct Truth {
    /// Number of hits of each query.
    pub(super) counts: Vec<u64>,
    /// End of the recorded hits of each query in `entries`. If a query has more than [`NOTED`] hits, a sample is
    /// recorded.
    ends: Vec<usize>,
    /// Entries of the recorded hits, query by query.
    pub(super) entries: Vec<u32>,
    /// Distance by codes of each recorded hit.
    codes: Vec<f32>,
}

impl Truth {
    /// Returns the recorded hits of a query.
    pub(super) fn noted_of(&self, query: usize) -> Range<usize> {
        let start = if query == 0 { 0 } else { self.ends[query - 1] };
        start..self.ends[query]
    }

    /// Returns the smallest distance by codes that covers at least the fraction `share` of the hits. It must cover this
    /// fraction of all hits together, and also the mean over queries of the fraction of their hits. Only queries that
    /// `takes` accepts are used. Returns `None` if none of them has any hits.
    pub(super) fn reach(&self, share: f64, takes: impl Fn(usize) -> bool) -> Option<f32> {
        let mut hits: Vec<(f32, [f64; 2])> = Vec::new();
        for query in (0..self.counts.len()).filter(|&query| takes(query) && self.counts[query] > 0) {
            let noted = self.noted_of(query);
            let of_query = 1.0 / noted.len() as f64;
            // With the first weight, all hits count equally. With the second, all queries count equally, no matter how
            // many hits they have.
            let weights = [self.counts[query] as f64 * of_query, of_query];
            hits.extend(self.codes[noted].iter().map(|&code| (code, weights)));
        }
        hits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let all = hits.iter().fold([0.0; 2], |sum, (_, of)| [sum[0] + of[0], sum[1] + of[1]]);
        let mut within = [0.0; 2];
        let enough = hits.iter().find(|(_, of)| {
            within = [within[0] + of[0], within[1] + of[1]];
            // The sums are rounded, so a fraction that is reached exactly may seem a little too small.
            within.iter().zip(&all).all(|(within, all)| *within >= share * all * (1.0 - 1e-9))
        });
        enough.or(hits.last()).map(|&(code, _)| code)
    }
}

impl RowQuery {
    fn of(index: &Index, entry: u32) -> Self {
        let vertex = index.vertex_of(entry);
        Self { entry, vertex, alone: index.duplicates.of(vertex).1.is_empty() }
    }
}
