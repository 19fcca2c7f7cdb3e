//! Finds the deleted vertices of an index, and the inserted rows whose vector exists in the index, in one pass over the
//! pages.

use std::collections::HashMap;

use adjoin_device::Reservation;
use xxhash_rust::xxh3::xxh3_128;

use super::numbering::Numbering;
use super::{Newcomers, PURPOSE};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::RowSet;
use crate::index::Index;
use crate::index::delete_list::DeleteList;
use crate::index::scan::Pieces;

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
    /// Deleted vertices, each with the end of its neighbors in `neighbors`.
    deleted: Vec<(u32, u32)>,
    /// Neighbors of the deleted vertices, nearest first.
    neighbors: Vec<u32>,
    _memory: Reservation,
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
        let deleted_count = u64::from(deleted.vertices());
        let lists = deleted_count * (facts.degree as u64 + 2) * size_of::<u32>() as u64;
        let memory =
            context.reserve(RowSet::memory_bytes(facts.vertices.into()) + rows * ENTRY_BYTES + lists, PURPOSE)?;
        let mut first_of: HashMap<u128, u32> = HashMap::with_capacity(newcomers.rows() as usize);
        let stands = |newcomer: u32| match *first_of.entry(xxh3_128(newcomers.vector(newcomer))).or_insert(newcomer) {
            first if first == newcomer => Stands::Alone,
            first => Stands::WithNewcomer(first),
        };
        let stands = (0..newcomers.rows()).map(stands).collect();
        let (deleted, neighbors) = (Vec::with_capacity(deleted_count as usize), Vec::new());
        let mut survey = Self { kept, stands, deleted, neighbors, _memory: memory };
        context.progress.begin("load", "vertices", facts.vertices.into());
        let mut pieces = Pieces::new(index);
        for vertex in 0..facts.vertices {
            if vertex % 4_096 == 0 {
                context.cancel.check()?;
                context.progress.advance(vertex.into());
            }
            let kept = survey.kept.contains(vertex.into());
            // Once all inserted vectors were found in the index, the vectors of kept vertices need not be read.
            if kept && first_of.is_empty() {
                continue;
            }
            if !kept {
                pieces.neighbors(vertex, &mut survey.neighbors)?;
                survey.deleted.push((vertex, survey.neighbors.len() as u32));
            } else if let Some(first) = first_of.remove(&xxh3_128(pieces.vector(vertex)?)) {
                survey.stands[first as usize] = Stands::WithOld(vertex);
            }
        }
        Ok(survey)
    }

    /// Returns the neighbors of a deleted vertex, nearest first.
    pub(super) fn neighbors_of(&self, vertex: u32) -> &[u32] {
        let found = self.deleted.binary_search_by_key(&vertex, |&(deleted, _)| deleted);
        let position = found.expect("the vertex was deleted");
        let start = if position == 0 { 0 } else { self.deleted[position - 1].1 };
        &self.neighbors[start as usize..self.deleted[position].1 as usize]
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
