//! Finds the true hits of queries by comparing them with all vectors on all pages.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adjoin_device::AlignedBuffer;

use super::filtered_vertices::FilteredVertices;
use super::page::Page;
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;
use crate::execute::{AllNearest, Hit, NearestSearch, NumberedQueries};
use crate::load::{LoadedBucket, Members, ReadCounts};
use crate::query::QueryTarget;

/// Approximate bytes of pages compared at once.
const PIECE_BYTES: usize = 512 << 10;

/// Comparison of queries with all pages of an index.
pub(super) struct PageScan<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) index: &'a Index,
    pub(super) queries: &'a Members<T>,
    pub(super) wanted: QueryTarget,
    /// Vertices that can be hits; `None` if all can.
    pub(super) admitted: Option<&'a FilteredVertices<'a>>,
    /// Purpose of the memory in error messages.
    pub(super) purpose: &'static str,
    /// Name of the phase in progress reports.
    pub(super) phase: &'static str,
}

/// Returns the number of pages compared at once.
fn piece_pages(page_bytes: usize) -> usize {
    (PIECE_BYTES / page_bytes).max(1)
}

/// Returns the approximate bytes that all threads need for a scan, in addition to the hits.
pub(super) fn working_bytes<T: Coordinate>(context: &Context, index: &IndexManifest) -> u64 {
    let (shape, space) = (index.shape(), index.space());
    let rows = piece_pages(shape.bytes()) * shape.records();
    let a_worker = 2 * PIECE_BYTES.max(shape.bytes()) as u64
        + Members::<T>::memory_bytes(rows as u64, space)
        + 8 * rows as u64
        + NearestSearch::<T>::memory_bytes(rows, space.dimensions());
    context.threads.max(1) as u64 * a_worker
}

impl<T: Coordinate> PageScan<'_, T> {
    /// Finds the hits of the queries in `range`. Returns the hits of each query, nearest first, and the reads. `hidden`
    /// returns a vertex that must not be a hit of a query, if any. Returns `None` if memory does not hold the hits,
    /// which can happen only if the number of hits has no limit.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn search(
        &self,
        range: Range<u32>,
        hidden: impl Fn(u32) -> Option<u32>,
    ) -> Result<Option<(Vec<Vec<Hit>>, ReadCounts)>> {
        let Self { context, index, queries, wanted, admitted, .. } = *self;
        let facts = index.facts();
        let (shape, space) = (facts.shape(), facts.space());
        let together = piece_pages(shape.bytes());
        let (pages, of_piece) = (shape.pages(facts.vertices) as usize, (together * shape.records()) as u32);
        // A piece of consecutive pages is treated like a bucket, so the place of a vertex is a piece and a number
        // within it.
        let place = |vertex: u32| (vertex / of_piece, vertex % of_piece);
        let found = range.clone().map(|query| wanted.nearest(space.metric, hidden(query).map(place)));
        let nearest = AllNearest::new(found);
        let _memory = context.reserve(working_bytes::<T>(context, facts).min(context.budget().free()), self.purpose)?;
        let room = wanted.room(context);
        let (held, full) = (AtomicU64::new(0), AtomicBool::new(false));
        let order: Vec<u32> = range.clone().collect();
        let pieces = pages.div_ceil(together);
        let numbered = NumberedQueries { members: queries, first: range.start };
        let state = || {
            let search = NearestSearch::new(context.kernel, space, numbered, &nearest);
            (search, AlignedBuffer::zeroed(together * shape.bytes()))
        };
        context.progress.begin(self.phase, "pages", pages as u64);
        let read = map_items(context.threads, pieces, &context.cancel, state, |(search, buffer), piece| {
            let first = piece as u32 * of_piece;
            let vertices = first..facts.vertices.min(first + of_piece);
            let is_left_out = admitted.is_some_and(|admitted| !admitted.admits_any(vertices));
            // Once memory is full, the remaining pieces are skipped, and the caller searches for fewer queries at once.
            if is_left_out || full.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let start = (piece * together) as u32;
            let some = together.min(pages - piece * together);
            let bytes = index.read_pages(start, &mut buffer[..some * shape.bytes()])?;
            let counts = |member: u32| admitted.is_none_or(|admitted| admitted.admits_vertex(first + member));
            let (_, more) = search.compare(piece as u32, &self.piece(start, bytes), &counts, &order);
            if held.fetch_add(more, Ordering::Relaxed) + more > room {
                full.store(true, Ordering::Relaxed);
            }
            context.progress.advance((start as usize + some) as u64);
            Ok(bytes.len() as u64)
        })?;
        if full.into_inner() {
            return Ok(None);
        }
        let bytes = read.iter().sum();
        let reads = read.iter().filter(|&&bytes| bytes > 0).count() as u64;
        let counts = ReadCounts { reads, bytes_requested: bytes, bytes_read: bytes };
        let vertex = |hit: Hit| Hit { place: (hit.place.0 * of_piece + hit.place.1, 0), ..hit };
        let (mut left, mut found) = (room, Vec::with_capacity(range.len()));
        for hits in nearest.into_sorted(context)? {
            let hits: Vec<Hit> = hits.into_iter().map(vertex).collect();
            // A vertex may have many rows, and each of them takes memory as a hit.
            let further = index.duplicates.further(hits.iter().map(|hit| hit.place.0));
            let Some(rest) = left.checked_sub(further) else { return Ok(None) };
            left = rest;
            found.push(match admitted {
                None => index.duplicates.expand(facts.vertices, hits, wanted.hits_max(), |_| true),
                Some(admitted) => {
                    let counts = |entry| admitted.admits(entry);
                    index.duplicates.expand(facts.vertices, hits, wanted.hits_max(), counts)
                }
            });
        }
        Ok(Some((found, counts)))
    }

    /// Returns the vectors of verified pages as a bucket.
    fn piece(&self, start: u32, bytes: &[u8]) -> LoadedBucket<T> {
        let facts = self.index.facts();
        let shape = facts.shape();
        let (mut stored, mut rows) = (Vec::with_capacity(bytes.len()), Vec::new());
        for (number, page) in (start..).zip(bytes.chunks_exact(shape.bytes())) {
            let count = shape.vertices(number, facts.vertices).len();
            let page = Page::of_checked(shape, page);
            stored.extend_from_slice(page.vectors(count));
            rows.extend(shape.vertices(number, facts.vertices).zip(0..count).map(|(vertex, slot)| {
                let first = page.row(slot);
                self.admitted.map_or(first, |admitted| admitted.row_of(vertex, first))
            }));
        }
        LoadedBucket::of_rows(Members::new(self.context.kernel, facts.space(), &stored), rows)
    }
}
