//! Finds the deleted vertices of an index, and the inserted rows whose vector exists in the index, in one pass over the
//! pages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use xxhash_rust::xxh3::xxh3_128;

use super::numbering::Numbering;
use super::pages::{PIECE_BYTES_MIN, Piece, over_pages, pages_of};
use super::{Newcomers, PURPOSE};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::RowSet;
use crate::index::Index;
use crate::index::delete_list::DeleteList;

/// Bytes of an inserted row in a hash table by vector.
const ENTRY_BYTES: u64 = 48;

/// Vertex of an inserted row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// The row represents a new vertex.
    Alone,
    /// The row belongs to a kept old vertex with an equal vector.
    WithOld(u32),
    /// The row belongs to the vertex of an earlier inserted row with an equal vector.
    WithNewcomer(u32),
}

/// Result of a pass over the pages.
pub(super) struct Survey {
    /// Old vertices with at least one remaining row.
    pub(super) kept: RowSet,
    /// Vertex of each inserted row.
    pub(super) stands: Vec<Stands>,
    /// Deleted vertices of each piece of the pages.
    pieces: Vec<PieceFindings>,
    /// Number of vertices in a piece.
    of_piece: u32,
    _memory: Reservation,
}

/// Deleted vertices and equal vectors of a piece of the pages.
#[derive(Default)]
struct PieceFindings {
    /// Deleted vertices, each with the end of its neighbors in `neighbors`.
    deleted: Vec<(u32, u32)>,
    /// Neighbors of the deleted vertices, nearest first.
    neighbors: Vec<u32>,
    /// Inserted rows with the kept vertices that have their vectors.
    with_old: Vec<(u32, u32)>,
}

/// Returns the bytes of the lists of deleted vertices.
pub(super) fn lists_bytes(deleted: &DeleteList, degree: usize) -> u64 {
    u64::from(deleted.vertices()) * (degree as u64 + 2) * size_of::<u32>() as u64
}

impl Survey {
    /// Reads all pages of an index. `deleted` has its deleted entries. As in a build, vectors count as equal if their
    /// 128-bit hashes are equal.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn of(
        context: &Context,
        index: &Index,
        deleted: &DeleteList,
        newcomers: &dyn Newcomers,
    ) -> Result<Self> {
        let facts = index.facts();
        let rows = u64::from(newcomers.rows());
        let kept = deleted.kept_vertices(index);
        let held = RowSet::memory_bytes(facts.vertices.into()) + rows * ENTRY_BYTES;
        let memory = context.reserve(held + lists_bytes(deleted, facts.degree), PURPOSE)?;
        let mut first_of: HashMap<u128, u32> = HashMap::with_capacity(newcomers.rows() as usize);
        let stands = |newcomer: u32| match *first_of.entry(xxh3_128(newcomers.vector(newcomer))).or_insert(newcomer) {
            first if first == newcomer => Stands::Alone,
            first => Stands::WithNewcomer(first),
        };
        let mut stands: Vec<Stands> = (0..newcomers.rows()).map(stands).collect();
        let working = context.threads as u64 * PIECE_BYTES_MIN.max(facts.shape().bytes() as u64);
        let _working = context.reserve(working, PURPOSE)?;
        context.progress.begin("load", "vertices", facts.vertices.into());
        let done = AtomicU64::new(0);
        let work = |(): &mut (), piece: Piece<'_>| {
            let mut found = PieceFindings::default();
            for on_page in piece.vertices() {
                let vertex = on_page.vertex;
                if !kept.contains(vertex.into()) {
                    piece.neighbors(on_page, &mut found.neighbors)?;
                    found.deleted.push((vertex, found.neighbors.len() as u32));
                } else if !first_of.is_empty()
                    && let Some(&first) = first_of.get(&xxh3_128(on_page.vector))
                {
                    found.with_old.push((first, vertex));
                }
            }
            found.deleted.shrink_to_fit();
            found.neighbors.shrink_to_fit();
            let vertices = piece.vertices().count() as u64;
            context.progress.advance(done.fetch_add(vertices, Ordering::Relaxed) + vertices);
            Ok(found)
        };
        let mut pieces = over_pages(context, index, PIECE_BYTES_MIN, || (), work)?;
        for (first, vertex) in pieces.iter_mut().flat_map(|piece| std::mem::take(&mut piece.with_old)) {
            stands[first as usize] = Stands::WithOld(vertex);
        }
        let of_piece = (pages_of(facts, PIECE_BYTES_MIN) * facts.shape().records()) as u32;
        Ok(Self { kept, stands, pieces, of_piece, _memory: memory })
    }

    /// Returns the neighbors of a deleted vertex, nearest first.
    pub(super) fn neighbors_of(&self, vertex: u32) -> &[u32] {
        let PieceFindings { deleted, neighbors, .. } = &self.pieces[(vertex / self.of_piece) as usize];
        let found = deleted.binary_search_by_key(&vertex, |&(deleted, _)| deleted);
        let position = found.expect("the vertex was deleted");
        let start = if position == 0 { 0 } else { deleted[position - 1].1 };
        &neighbors[start as usize..deleted[position].1 as usize]
    }

    /// Returns the inserted rows that represent new vertices.
    pub(super) fn alone(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.stands).filter(|&(_, &stands)| stands == Stands::Alone).map(|(newcomer, _)| newcomer)
    }

    /// Returns the inserted rows that do not represent new vertices, each with the number of its vertex. `standing` has
    /// the inserted row that represents each new vertex.
    pub(super) fn sharing(&self, numbering: &Numbering, standing: &[u32]) -> impl Iterator<Item = (u32, u32)> {
        let new_of: HashMap<u32, u32> = standing.iter().copied().zip(0..).collect();
        (0..).zip(&self.stands).filter_map(move |(newcomer, &stands)| {
            let first = match stands {
                Stands::Alone => return None,
                Stands::WithOld(old) => return Some((newcomer, numbering.of_old(old))),
                Stands::WithNewcomer(first) => first,
            };
            // The earlier row may belong to a vertex of the old index.
            match self.stands[first as usize] {
                Stands::WithOld(old) => Some((newcomer, numbering.of_old(old))),
                _ => Some((newcomer, numbering.of_new(new_of[&first]))),
            }
        })
    }
}
