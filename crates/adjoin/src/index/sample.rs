//! Queries by which a recall is learned, rows of the index or vectors of another source, and what is truly nearest to each: by
//! a comparison with all vectors on all pages.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, Reservation};

use super::Index;
use super::calibration::noted;
use super::page::Page;
use crate::context::Context;
use crate::error::Result;
use crate::execute::{AllNearest, Hit, Nearest, NearestSearch};
use crate::geometry::Coordinate;
use crate::load::{LoadedBucket, Members, ReadCounts};
use crate::options::VectorType;
use crate::random::Random;
use crate::search::{CALIBRATION_VECTORS, SourceQueries};
use crate::store::Role;
use crate::workers::map_items;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "learning the recall of the index";
/// Bytes of pages that are compared at once, about.
const PIECE_BYTES: usize = 512 << 10;
/// Queries that are compared at once, at most.
const QUERIES_MAX: u64 = 4_096;

/// Drawn queries.
pub(super) struct Sample<'a> {
    context: &'a Context,
    index: &'a Index,
    vectors: VectorType,
    /// The vectors end to end.
    stored: Vec<u8>,
    /// What each is itself, where they are rows of the index.
    own: Vec<Own>,
    _memory: Reservation,
}

/// A row of the index as a query.
#[derive(Debug, Clone, Copy)]
struct Own {
    entry: u32,
    vertex: u32,
    /// Whether no other row has its vector.
    alone: bool,
}

/// How many rows of an index are drawn: each walks with a dozen of lists, which costs the build of a large index some seconds.
/// Of few rows a share is drawn, as a sample that supports the promise late costs their searches little.
const ROWS: std::ops::RangeInclusive<u64> = 250..=1_000;
const ROWS_SHARE: u64 = 8;

/// Rows that are drawn of so many.
fn rows_drawn(rows: u64) -> u64 {
    (rows / ROWS_SHARE).clamp(*ROWS.start(), *ROWS.end()).min(rows)
}

/// Bytes that are held of a query beside its vector, where it is to find `k`.
fn query_bytes<T: Coordinate>(index: &super::IndexManifest, vectors: VectorType, k: u64) -> u64 {
    // Found by the scan and sorted, by a walk and with further rows.
    Members::<T>::memory_bytes(1, index.space().of_queries(vectors)) + 3 * Nearest::memory_bytes(k.min(index.rows) + 1)
}

/// Bytes with which the queries of a sample are compared with all pages, about, beside those that are noted for each.
pub(super) fn least_bytes<T: Coordinate>(
    context: &Context,
    index: &super::IndexManifest,
    vectors: VectorType,
    k: u64,
) -> u64 {
    let (shape, space) = (index.shape(), index.space());
    let rows = piece_pages(shape.bytes()) * shape.records();
    let a_worker = 2 * PIECE_BYTES.max(shape.bytes()) as u64
        + Members::<T>::memory_bytes(rows as u64, space)
        + 8 * rows as u64
        + NearestSearch::<T>::memory_bytes(rows, space.dimensions());
    let drawn = CALIBRATION_VECTORS * (2 * vectors.bytes() as u64 + 8 * super::calibration::NOTED as u64 + 64);
    drawn + context.threads.max(1) as u64 * a_worker + 4 * query_bytes::<T>(index, vectors, k)
}

/// Pages that are compared at once.
fn piece_pages(page_bytes: usize) -> usize {
    (PIECE_BYTES / page_bytes).max(1)
}

impl<'a> Sample<'a> {
    /// Rows of the index, drawn at random: those by whose calibration it was published.
    ///
    /// # Errors
    /// Where they cannot be read, or memory does not suffice.
    pub(super) fn of_rows(context: &'a Context, index: &'a Index) -> Result<Self> {
        let facts = index.facts();
        let (vectors, rows) = (facts.vectors, facts.rows);
        let drawn = Random::new(facts.seed, "calibration").ascending_sample(rows_drawn(rows), rows);
        let memory = context.reserve(drawn.len() as u64 * (vectors.bytes() as u64 + 64), PURPOSE)?;
        let own: Vec<Own> = drawn.iter().map(|&entry| Own::of(index, entry as u32)).collect();
        let mut sample = Self { context, index, vectors, stored: Vec::new(), own, _memory: memory };
        let mut buffer = AlignedBuffer::zeroed(facts.shape().bytes());
        for k in 0..sample.own.len() {
            sample.read(sample.own[k].vertex, &mut buffer)?;
        }
        Ok(sample)
    }

    /// Adds the vector of a vertex.
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

    /// Vectors of a source, drawn at random.
    ///
    /// # Errors
    /// Where they cannot be read or are none that the index can have, or memory does not suffice.
    pub(super) fn of_queries(
        context: &'a Context,
        index: &'a Index,
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
        Ok(Self { context, index, vectors, stored, own: Vec::new(), _memory: memory })
    }

    pub(super) fn len(&self) -> usize {
        self.stored.len() / self.vectors.bytes()
    }

    /// How many hits each query has where it is to find `k`: a row does not find itself.
    pub(super) fn hits_of_query(&self, k: u64) -> u32 {
        let others = self.index.facts().rows - u64::from(!self.own.is_empty());
        k.min(others) as u32
    }

    /// Queries in parts of which memory holds what each finds.
    pub(super) fn parts<T: Coordinate>(&self, k: u64) -> impl Iterator<Item = Range<usize>> + use<T> {
        let of_query = query_bytes::<T>(self.index.facts(), self.vectors, k);
        let at_once = (self.context.budget().free() / 4 / of_query).clamp(1, QUERIES_MAX) as usize;
        let all = self.len();
        (0..all).step_by(at_once).map(move |start| start..all.min(start + at_once))
    }

    /// Some of the queries, and the memory of what they find.
    pub(super) fn members<T: Coordinate>(&self, part: Range<usize>, k: u64) -> Result<(Members<T>, Reservation)> {
        let of_query = query_bytes::<T>(self.index.facts(), self.vectors, k);
        let memory = self.context.reserve(part.len() as u64 * of_query, PURPOSE)?;
        let bytes = self.vectors.bytes();
        let space = self.index.facts().space().of_queries(self.vectors);
        let stored = &self.stored[part.start * bytes..part.end * bytes];
        Ok((Members::new(self.context.kernel, space, stored), memory))
    }

    /// The vertex that a walk for a query does not know of: its own, where no other row has that vector. A query that is a row
    /// is then like one that the index has never seen.
    pub(super) fn hidden(&self, query: usize) -> Option<u32> {
        self.own.get(query).filter(|own| own.alone).map(|own| own.vertex)
    }

    /// Takes its own row out of what a query finds.
    pub(super) fn without_own(&self, query: usize, mut hits: Vec<Hit>) -> Vec<Hit> {
        if let Some(own) = self.own.get(query) {
            hits.retain(|hit| hit.place.0 != own.entry);
        }
        hits
    }

    /// The entries of what is truly nearest to each query, as many as are noted; and what was read for that.
    ///
    /// # Errors
    /// Where the pages cannot be read, memory does not suffice, or the work is cancelled.
    pub(super) fn true_hits<T: Coordinate>(&self, k: u64, seed: u64) -> Result<(Vec<Vec<u32>>, ReadCounts)> {
        let (mut all, mut counts) = (Vec::with_capacity(self.len()), ReadCounts::default());
        let wanted = self.hits_of_query(k) as usize;
        for part in self.parts::<T>(k) {
            let (members, _memory) = self.members::<T>(part.clone(), k)?;
            for (query, hits) in part.zip(self.scan(&members, all.len(), wanted, &mut counts)?) {
                let hits = self.without_own(query, hits);
                if hits.len() < wanted {
                    let why = "some vectors are not as near to anything as numbers can be";
                    return Err(self.index.files().damaged(Role::Pages, why));
                }
                let entries = hits[..wanted].iter().map(|hit| hit.place.0).collect();
                all.push(noted(entries, seed ^ query as u64));
            }
        }
        Ok((all, counts))
    }

    /// What some queries, from one on, find on all pages: one more than `wanted`, which may be themselves.
    fn scan<T: Coordinate>(
        &self,
        queries: &Members<T>,
        first: usize,
        wanted: usize,
        counts: &mut ReadCounts,
    ) -> Result<Vec<Vec<Hit>>> {
        let Self { context, index, .. } = *self;
        let facts = index.facts();
        let (shape, space, vertices) = (facts.shape(), facts.space(), facts.vertices);
        let together = piece_pages(shape.bytes());
        let (pages, of_piece) = (shape.pages(vertices) as usize, together * shape.records());
        let but = |query| self.hidden(query).map(|own| (own / of_piece as u32, own % of_piece as u32));
        let count = queries.len();
        let nearest = AllNearest::new((0..count).map(|k| Nearest::of(wanted + 1, space.metric, but(first + k))));
        let least = least_bytes::<T>(context, facts, self.vectors, 0);
        let _memory = context.reserve(least.min(context.budget().free()), PURPOSE)?;
        let order: Vec<u32> = (0..count as u32).collect();
        let state = || {
            let search = NearestSearch::new(context.kernel, space, (queries, 0), (&nearest, None));
            (search, AlignedBuffer::zeroed(together * shape.bytes()))
        };
        let pieces = pages.div_ceil(together);
        context.progress.begin("calibrate", "pages", pages as u64);
        let read = map_items(context.threads, pieces, &context.cancel, state, |(search, buffer), piece| {
            let start = (piece * together) as u32;
            let some = together.min(pages - piece * together);
            let bytes = index.read_pages(start, &mut buffer[..some * shape.bytes()])?;
            let bucket = self.piece::<T>(start, bytes);
            search.compare(piece as u32, &bucket, &order);
            context.progress.advance((start as usize + some) as u64);
            Ok(bytes.len() as u64)
        })?;
        let bytes = read.iter().sum();
        *counts += ReadCounts { reads: pieces as u64, bytes_requested: bytes, bytes_read: bytes };
        let sorted = nearest.into_sorted(context)?;
        let vertex = |hit: Hit| Hit { place: (hit.place.0 * of_piece as u32 + hit.place.1, 0), ..hit };
        let expand =
            |hits: Vec<Hit>| index.duplicates.expand(vertices, hits.into_iter().map(vertex).collect(), wanted + 1);
        Ok(sorted.into_iter().map(expand).collect())
    }

    /// The vectors of some pages that were checked.
    fn piece<T: Coordinate>(&self, start: u32, bytes: &[u8]) -> LoadedBucket<T> {
        let facts = self.index.facts();
        let shape = facts.shape();
        let (mut stored, mut rows) = (Vec::with_capacity(bytes.len()), Vec::new());
        for (number, page) in (start..).zip(bytes.chunks_exact(shape.bytes())) {
            let count = shape.vertices(number, facts.vertices).len();
            let page = Page::of_checked(shape, page);
            stored.extend_from_slice(page.vectors(count));
            rows.extend((0..count).map(|slot| page.row(slot)));
        }
        LoadedBucket::of_rows(Members::new(self.context.kernel, facts.space(), &stored), rows)
    }
}

impl Own {
    fn of(index: &Index, entry: u32) -> Self {
        let vertices = index.facts().vertices;
        let further = entry.checked_sub(vertices).map(|further| index.duplicates.vertex_of(further as usize));
        let vertex = further.unwrap_or(entry);
        Self { entry, vertex, alone: index.duplicates.of(vertex).1.is_empty() }
    }
}
