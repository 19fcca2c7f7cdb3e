//! Reads the vectors of selected vertices from the store into memory.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::PURPOSE;
use super::origin::{GatherRoom, Gathered, Origin, Vectors, VectorsToGather};
use super::vertices::VertexMap;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, copy_row};
use crate::base::row_numbers::{RankedSet, RowSet};
use crate::load::{Buckets, ReadAhead, least_read_ahead, most_read_ahead, read_coordinates};
use crate::plan::Load;
use crate::source::IdKind;

/// Approximate cost of reading a single vector, as the number of bytes that a long read reads in that time.
const SINGLE_READ_BYTES: u64 = 16 << 10;
/// Approximate bytes of vectors that are read one by one before they are copied to the result.
const SINGLES_BYTES: usize = 256 << 10;

/// Reader of the vectors of vertices from a store. It reserves memory for the vectors of some vertices.
pub(super) struct Gathering<'a> {
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) map: &'a VertexMap,
    pub(super) room: GatherRoom,
    read_ahead: u64,
    _memory: Reservation,
}

impl<'a> Gathering<'a> {
    /// Returns the bytes for gathering vectors, and for work on them.
    pub(super) fn bytes(buckets: &Buckets<'_>, room: GatherRoom) -> u64 {
        // While some vertices are written, others are gathered.
        let sets = RowSet::memory_bytes(buckets.rows()) + 2 * RankedSet::memory_bytes(buckets.rows());
        let reading = 2 * least_read_ahead(buckets.extents(), true);
        sets + reading + room.bytes
    }

    /// Reserves memory for gathering vectors, and for work on them.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn new(
        context: &'a Context,
        buckets: &'a Buckets<'a>,
        map: &'a VertexMap,
        room: GatherRoom,
    ) -> Result<Self> {
        let memory = context.reserve(Self::bytes(buckets, room), PURPOSE)?;
        let read_ahead = least_read_ahead(buckets.extents(), true);
        Ok(Self { context, buckets, map, room, read_ahead, _memory: memory })
    }

    /// Adds memory for reading ahead: an eighth of `bytes`, but no more than is useful.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn reading_ahead(self, bytes: u64) -> Result<Self> {
        let extents = self.buckets.extents();
        let more = (bytes / 8).min(most_read_ahead(extents, true));
        let mut memory = self._memory;
        let held = memory.bytes() + more;
        self.context.grow(&mut memory, held, PURPOSE)?;
        Ok(Self { read_ahead: self.read_ahead + more, _memory: memory, ..self })
    }

    /// Returns how many vertices of a bucket are in `wanted`.
    fn count(&self, wanted: &RankedSet, bucket: u32) -> u64 {
        let vertices = self.map.of_bucket(bucket);
        u64::from(wanted.rank(vertices.end) - wanted.rank(vertices.start))
    }

    /// Passes all rows of the buckets for which `takes` returns `true` to `take`. The flag states whether a row
    /// represents its vertex.
    fn scan(
        &self,
        takes: impl Fn(u32) -> bool,
        with_ids: bool,
        mut take: impl FnMut(bool, Gathered<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { context, buckets, map, read_ahead, .. } = *self;
        let bytes = buckets.vectors().bytes();
        let loads = Load::each(buckets.count()).filter(|load| takes(load.bucket));
        let mut ahead = ReadAhead::new(context, "gather", buckets, with_ids, read_ahead, loads, &context.cancel)?;
        while let Some(stored) = ahead.next_bucket()? {
            context.cancel.check()?;
            let bucket = stored.decode(buckets)?;
            let vectors = stored.bytes()[bucket.vectors.clone()].chunks_exact(bytes);
            for ((member, stored_vector), &row) in (0..).zip(vectors).zip(&bucket.rows) {
                let (vertex, stands) = map.vertex_of(stored.number(), member);
                let (ids, id_at) = (&bucket.ids, member as usize);
                take(stands, Gathered { vertex, stored: stored_vector, row, ids, id_at })?;
            }
        }
        Ok(())
    }
}

impl Origin for Gathering<'_> {
    fn context(&self) -> &Context {
        self.context
    }

    fn vertices(&self) -> u32 {
        self.map.len()
    }

    fn space(&self) -> Space<'_> {
        self.buckets.space()
    }

    fn ids(&self) -> (IdKind, u64) {
        let bytes: u64 = self.buckets.extents().iter().map(|extent| extent.id_bytes).sum();
        (self.buckets.ids(0), bytes / self.buckets.rows())
    }

    fn room(&self) -> GatherRoom {
        self.room
    }

    fn has_others(&self) -> bool {
        self.map.has_others()
    }

    fn each(&self, wanted: &RankedSet, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()> {
        self.scan(
            |bucket| self.count(wanted, bucket) > 0,
            with_ids,
            |stands, row| match stands && wanted.contains(row.vertex) {
                true => take(row),
                false => Ok(()),
            },
        )
    }

    fn each_other(&self, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()> {
        // If a bucket has as many vertices as rows, all of its rows represent vertices.
        let has_other = |bucket| self.map.of_bucket(bucket).len() < self.buckets.extent(bucket).rows as usize;
        self.scan(has_other, with_ids, |stands, row| if stands { Ok(()) } else { take(row) })
    }

    /// Reads the vectors of a bucket one by one if few of them are wanted. This skips the checksum of the bucket, which
    /// was verified when the build read all buckets.
    fn vectors<T: Coordinate>(&self, wanted: VectorsToGather) -> Result<Vectors<T>> {
        let Self { context, buckets, map, .. } = *self;
        let dimensions = buckets.space().dimensions();
        let mut panel = Panel::zeroed(wanted.len(), dimensions);
        let mut loading = self.loading();
        let ranks = wanted.ranked();
        let count = |bucket| self.count(&ranks, bucket);
        // Reading a bucket costs all of its bytes. A single read costs as much as some KiB of a long read.
        let are_few = |bucket| count(bucket) * SINGLE_READ_BYTES < buckets.extent(bucket).body_bytes;
        self.scan(
            |bucket| count(bucket) > 0 && !are_few(bucket),
            false,
            |stands, row| {
                if stands && ranks.contains(row.vertex) {
                    loading.load(row.stored, &mut panel, ranks.rank(row.vertex) as usize);
                }
                Ok(())
            },
        )?;
        let few = (0..buckets.count()).filter(|&bucket| count(bucket) > 0 && are_few(bucket));
        let mut singles = few.flat_map(|bucket| {
            let standing = map.standing(bucket).filter(|&(_, vertex)| ranks.contains(vertex));
            standing.map(move |(member, vertex)| ((bucket, member), vertex))
        });
        let together = (SINGLES_BYTES / buckets.vectors().bytes()).max(1);
        loop {
            let (places, vertices): (Vec<(u32, u32)>, Vec<u32>) = singles.by_ref().take(together).unzip();
            if places.is_empty() {
                break;
            }
            context.cancel.check()?;
            let some = read_coordinates::<T>(context, buckets, &places)?;
            for (row, &vertex) in vertices.iter().enumerate() {
                copy_row(&some, row, &mut panel, ranks.rank(vertex) as usize);
            }
        }
        // The iterator borrows the ranks, which are returned.
        drop(singles);
        Ok(Vectors::new(panel, ranks))
    }
}
