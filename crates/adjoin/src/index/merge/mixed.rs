//! Combines the kept vertices of an index and the new vertices of a merge under one numbering.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::Newcomers;
use super::numbering::{Numbering, Vertex};
use super::survey::Survey;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, copy_row};
use crate::base::row_numbers::RankedSet;
use crate::base::workers::map_items;
use crate::index::Index;
use crate::index::build::origin::{GatherRoom, Gathered, Origin, Vectors, VectorsToGather};
use crate::index::scan::Pieces;
use crate::source::{IdKind, Ids};

/// Number of vectors that a thread loads at once, and the least number if little memory is free.
const LOADED_TOGETHER: usize = 4_096;
const LOADED_TOGETHER_MIN: usize = 64;

/// The vertices of a merged index.
pub(super) struct Mixed<'a> {
    pub(super) context: &'a Context,
    pub(super) index: &'a Index,
    pub(super) newcomers: &'a dyn Newcomers,
    pub(super) survey: &'a Survey,
    pub(super) numbering: &'a Numbering,
    /// Inserted row that represents each new vertex.
    pub(super) standing: &'a [u32],
    /// Entries of the index that are not deleted.
    pub(super) left: &'a RankedSet,
    /// Whether old vertices keep their codes in the merged index.
    pub(super) keeps_codes: bool,
    pub(super) room: GatherRoom,
    pub(super) _memory: Reservation,
}

impl Mixed<'_> {
    /// Returns the new row number of a remaining entry. Remaining entries are numbered first, in their order, and
    /// inserted rows follow.
    fn row_of(&self, entry: u32) -> u64 {
        self.left.rank(entry).into()
    }

    fn row_of_newcomer(&self, newcomer: u32) -> u64 {
        u64::from(self.left.len()) + u64::from(newcomer)
    }

    /// Returns the remaining entries of an old vertex, in the order of their rows.
    fn entries(&self, old: u32) -> impl Iterator<Item = u32> {
        std::iter::once(old).chain(self.index.further_entries(old)).filter(|&entry| self.left.contains(entry))
    }

    /// Returns the entry that represents a kept old vertex.
    fn standing_entry(&self, old: u32) -> u32 {
        self.entries(old).next().expect("a kept vertex has a row")
    }

    /// Returns the ids of the rows that represent some vertices.
    fn ids_of(&self, vertices: &[Vertex]) -> Result<Ids> {
        let entries: Vec<u32> = vertices.iter().filter_map(|&vertex| self.entry_of(vertex)).collect();
        let kind = self.index.facts().ids;
        let (of_old, mut ids, mut taken) = (self.index.ids_of(kind, &entries)?, Ids::empty(kind), 0);
        for &vertex in vertices {
            match vertex {
                Vertex::New(new) => self.newcomers.push_id(self.standing[new as usize], &mut ids),
                Vertex::Old(_) => {
                    ids.push_from(&of_old, taken);
                    taken += 1;
                }
            }
        }
        Ok(ids)
    }

    fn entry_of(&self, vertex: Vertex) -> Option<u32> {
        match vertex {
            Vertex::Old(old) => Some(self.standing_entry(old)),
            Vertex::New(_) => None,
        }
    }

    /// Returns the stored vector of a vertex.
    fn stored<'s>(&'s self, pieces: &'s mut Pieces<'_>, vertex: Vertex) -> Result<&'s [u8]> {
        match vertex {
            Vertex::Old(old) => pieces.vector(old),
            Vertex::New(new) => Ok(self.newcomers.vector(self.standing[new as usize])),
        }
    }
}

impl Origin for Mixed<'_> {
    fn context(&self) -> &Context {
        self.context
    }

    fn vertices(&self) -> u32 {
        self.numbering.vertices()
    }

    fn space(&self) -> Space<'_> {
        self.index.facts().space()
    }

    fn ids(&self) -> (IdKind, u64) {
        let facts = self.index.facts();
        // This is the mean length, since the lengths of single ids are not in memory.
        (facts.ids, facts.id_bytes().max(self.newcomers.id_bytes()))
    }

    fn room(&self) -> GatherRoom {
        self.room
    }

    fn has_others(&self) -> bool {
        // There are as many vertices as rows only if no two rows share a vertex.
        u64::from(self.vertices()) < u64::from(self.left.len()) + u64::from(self.newcomers.rows())
    }

    fn each(&self, wanted: &RankedSet, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()> {
        let (mut numbers, mut pieces) = (wanted.iter(), Pieces::spread(self.index, wanted.len().into()));
        let no_ids = Ids::empty(self.index.facts().ids);
        loop {
            self.context.cancel.check()?;
            let some: Vec<u32> = numbers.by_ref().take(self.index.ids_at_once().0).collect();
            if some.is_empty() {
                return Ok(());
            }
            let vertices = self.numbering.vertices_of(&some);
            let ids = if with_ids { &self.ids_of(&vertices)? } else { &no_ids };
            for (k, (&vertex, &what)) in some.iter().zip(&vertices).enumerate() {
                let row = match what {
                    Vertex::Old(old) => self.row_of(self.standing_entry(old)),
                    Vertex::New(new) => self.row_of_newcomer(self.standing[new as usize]),
                };
                take(Gathered { vertex, stored: self.stored(&mut pieces, what)?, row, ids, id_at: k })?;
            }
        }
    }

    fn each_other(&self, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()> {
        let kind = self.index.facts().ids;
        let old_vertices = self.index.facts().vertices;
        let of_entry = |entry: u32| {
            let old = self.index.vertex_of(entry);
            // If the first row of a vertex is deleted, a further row represents the vertex. That row is passed by
            // `each`, not here.
            (self.standing_entry(old) != entry).then(|| (self.numbering.of_old(old), entry))
        };
        let further = (old_vertices..self.index.facts().rows as u32).filter(|&entry| self.left.contains(entry));
        let further: Vec<(u32, u32)> = further.filter_map(of_entry).collect();
        for some in further.chunks(self.index.ids_at_once().0) {
            self.context.cancel.check()?;
            let entries: Vec<u32> = some.iter().map(|&(_, entry)| entry).collect();
            let ids = if with_ids { self.index.ids_of(kind, &entries)? } else { Ids::empty(kind) };
            for (k, &(vertex, entry)) in some.iter().enumerate() {
                // The row has the vector of its vertex, so it is not passed again.
                take(Gathered { vertex, stored: &[], row: self.row_of(entry), ids: &ids, id_at: k })?;
            }
        }
        for (newcomer, vertex) in self.survey.sharing(self.numbering, self.standing) {
            let mut ids = Ids::empty(kind);
            self.newcomers.push_id(newcomer, &mut ids);
            take(Gathered { vertex, stored: &[], row: self.row_of_newcomer(newcomer), ids: &ids, id_at: 0 })?;
        }
        Ok(())
    }

    fn code(&self, vertex: u32) -> Option<&[u8]> {
        match self.numbering.vertex(vertex) {
            Vertex::Old(old) if self.keeps_codes => Some(self.index.code(old)),
            _ => None,
        }
    }

    fn vectors<T: Coordinate>(&self, wanted: VectorsToGather) -> Result<Vectors<T>> {
        let Context { threads, cancel, .. } = self.context;
        let (count, dimensions) = (wanted.len(), self.space().dimensions());
        // Vectors are loaded in parts, two for each thread. If their memory is not free, the parts are small.
        let of_vector = Panel::<T>::bytes_for(1, dimensions) + self.space().vectors.bytes() as u64;
        let room = self.context.budget().free() / 2 / of_vector / (2 * *threads as u64);
        let together = room.clamp(LOADED_TOGETHER_MIN as u64, LOADED_TOGETHER as u64) as usize;
        let _memory = self.context.budget().reserve((2 * threads * together) as u64 * of_vector).ok();
        let (mut panel, ranks) = (Panel::zeroed(count, dimensions), wanted.ranked());
        let (mut numbers, mut at) = (ranks.iter(), 0);
        loop {
            let some: Vec<u32> = numbers.by_ref().take(2 * threads * together).collect();
            if some.is_empty() {
                break;
            }
            let state = || (Pieces::spread(self.index, count as u64), Vec::new());
            let parts = some.len().div_ceil(together);
            let loaded = map_items(*threads, parts, cancel, state, |(pieces, stored), part| {
                let numbers = &some[part * together..some.len().min((part + 1) * together)];
                let mut panel = Panel::zeroed(numbers.len(), dimensions);
                let vertices = self.numbering.vertices_of(numbers);
                until_last(pieces, &vertices);
                stored.clear();
                for vertex in vertices {
                    stored.extend_from_slice(self.stored(pieces, vertex)?);
                }
                T::load(self.space(), self.context.kernel, stored, &mut panel);
                Ok(panel)
            })?;
            for part in loaded {
                (0..part.rows()).for_each(|row| copy_row(&part, row, &mut panel, at + row));
                at += part.rows();
            }
        }
        // The iterator borrows the ranks, which are returned.
        drop(numbers);
        Ok(Vectors::new(panel, ranks))
    }
}

/// Announces to `pieces` the last old vertex in `vertices`, so that pages after it are not read in advance.
pub(super) fn until_last(pieces: &mut Pieces<'_>, vertices: &[Vertex]) {
    let old = vertices.iter().rev().find_map(|&vertex| match vertex {
        Vertex::Old(old) => Some(old),
        Vertex::New(_) => None,
    });
    old.into_iter().for_each(|last| pieces.until(last));
}
