//! What of an index goes, and what comes: one pass over its pages.

use std::collections::HashMap;

use adjoin_device::Reservation;
use xxhash_rust::xxh3::xxh3_128;

use super::numbering::Numbering;
use super::{Newcomers, PURPOSE};
use crate::context::Context;
use crate::error::Result;
use crate::index::Index;
use crate::index::scan::Pieces;
use crate::row_numbers::RowSet;

/// Bytes of a newcomer in a table by its vector.
const ENTRY_BYTES: u64 = 48;

/// Whose vertex a newcomer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// It stands for a vertex of its own.
    Alone,
    /// Its vector is that of an old vertex that stays.
    WithOld(u32),
    /// Its vector is that of an earlier newcomer, which stands for their vertex.
    WithNewcomer(u32),
}

/// What a pass over the pages has found.
pub(super) struct Survey {
    /// Old vertices of which a row is left.
    pub(super) kept: RowSet,
    /// Of each newcomer.
    pub(super) stands: Vec<Stands>,
    /// Neighbors of the old vertices that go, nearest first: those of each end where the number beside it says.
    gone: Vec<(u32, u32)>,
    neighbors: Vec<u32>,
    _memory: Reservation,
}

impl Survey {
    /// Reads all pages of an index of whose entries some were deleted. Vectors count as equal where 128 bits of a hash are, as
    /// they do where an index is built.
    ///
    /// # Errors
    /// Where pages cannot be read, memory does not suffice, or the work is cancelled.
    pub(super) fn of(context: &Context, index: &Index, deleted: &RowSet, newcomers: &dyn Newcomers) -> Result<Self> {
        let facts = index.facts();
        let rows = u64::from(newcomers.rows());
        let kept = kept(index, deleted);
        let goes = u64::from(facts.vertices) - kept.len();
        let lists = goes * (facts.degree as u64 + 2) * size_of::<u32>() as u64;
        let memory =
            context.reserve(RowSet::memory_bytes(facts.vertices.into()) + rows * ENTRY_BYTES + lists, PURPOSE)?;
        let mut first_of: HashMap<u128, u32> = HashMap::with_capacity(newcomers.rows() as usize);
        let stands = |newcomer: u32| match *first_of.entry(xxh3_128(newcomers.vector(newcomer))).or_insert(newcomer) {
            first if first == newcomer => Stands::Alone,
            first => Stands::WithNewcomer(first),
        };
        let stands = (0..newcomers.rows()).map(stands).collect();
        let (gone, neighbors) = (Vec::with_capacity(goes as usize), Vec::new());
        let mut survey = Self { kept, stands, gone, neighbors, _memory: memory };
        context.progress.begin("load", "vertices", facts.vertices.into());
        let mut pieces = Pieces::new(index);
        for vertex in 0..facts.vertices {
            if vertex % 4_096 == 0 {
                context.cancel.check()?;
                context.progress.advance(vertex.into());
            }
            let kept = survey.kept.contains(vertex.into());
            if kept && first_of.is_empty() {
                continue;
            }
            if !kept {
                pieces.neighbors(vertex, &mut survey.neighbors)?;
                survey.gone.push((vertex, survey.neighbors.len() as u32));
            } else if let Some(first) = first_of.remove(&xxh3_128(pieces.vector(vertex)?)) {
                survey.stands[first as usize] = Stands::WithOld(vertex);
            }
        }
        Ok(survey)
    }

    /// The neighbors of an old vertex that goes, nearest first.
    pub(super) fn neighbors_of(&self, gone: u32) -> &[u32] {
        let at = self.gone.binary_search_by_key(&gone, |&(vertex, _)| vertex).expect("a vertex that goes");
        let start = if at == 0 { 0 } else { self.gone[at - 1].1 };
        &self.neighbors[start as usize..self.gone[at].1 as usize]
    }

    /// Newcomers that stand for vertices of their own.
    pub(super) fn alone(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.stands).filter(|&(_, &stands)| stands == Stands::Alone).map(|(newcomer, _)| newcomer)
    }

    /// The others, and the numbers of the vertices that they share; `standing` is the newcomer of each new vertex.
    pub(super) fn sharing(&self, numbering: &Numbering, standing: &[u32]) -> impl Iterator<Item = (u32, u32)> {
        let new_of: HashMap<u32, u32> = standing.iter().copied().zip(0..).collect();
        (0..).zip(&self.stands).filter_map(move |(newcomer, &stands)| {
            let first = match stands {
                Stands::Alone => return None,
                Stands::WithOld(old) => return Some((newcomer, numbering.of_old(old))),
                Stands::WithNewcomer(first) => first,
            };
            match self.stands[first as usize] {
                Stands::WithOld(old) => Some((newcomer, numbering.of_old(old))),
                _ => Some((newcomer, numbering.of_new(new_of[&first]))),
            }
        })
    }
}

/// The vertices of an index of which an entry was not deleted.
fn kept(index: &Index, deleted: &RowSet) -> RowSet {
    let vertices = index.facts().vertices;
    let mut kept = deleted.others(vertices.into());
    for vertex in deleted.iter().map(|entry| entry as u32).take_while(|&entry| entry < vertices) {
        if index.further_entries(vertex).any(|entry| !deleted.contains(entry.into())) {
            kept.insert(vertex.into());
        }
    }
    kept
}
