//! Records: rows that have a center but are not in its bucket yet.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::assign::Nearest;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space};
use crate::base::options::VectorType;
use crate::source::Ids;

/// Size of a record in bytes, without its vector and id.
pub(crate) const RECORD_BYTES: u64 = size_of::<RecordHead>() as u64;

/// Head of a record. The vector and the id follow it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RecordHead {
    center: U32,
    row: U64,
    id_bytes: U32,
}

impl RecordHead {
    pub(crate) fn new(center: u32, row: u64, id: &[u8]) -> Self {
        Self { center: center.into(), row: row.into(), id_bytes: (id.len() as u32).into() }
    }
}

/// A row to be written: its center, number, vector and id.
pub(crate) struct Record<'a> {
    pub(crate) center: u32,
    pub(crate) row: u64,
    pub(crate) vector: &'a [u8],
    pub(crate) id: &'a [u8],
}

impl<'a> Record<'a> {
    /// Splits the first record off `records`. Returns it with the remaining records.
    fn split(records: &'a [u8], vectors: VectorType) -> (Self, &'a [u8]) {
        let (head, rest) = RecordHead::ref_from_prefix(records).expect("records are whole");
        let (vector, rest) = rest.split_at(vectors.bytes());
        let (id, rest) = rest.split_at(head.id_bytes.get() as usize);
        (Self { center: head.center.get(), row: head.row.get(), vector, id }, rest)
    }

    /// Calls `take` with each record.
    pub(crate) fn each(mut records: &'a [u8], vectors: VectorType, mut take: impl FnMut(&Self)) {
        while !records.is_empty() {
            let (record, rest) = Self::split(records, vectors);
            take(&record);
            records = rest;
        }
    }
}

impl Record<'_> {
    /// Calls `take` with the bytes of each record.
    ///
    /// # Errors
    /// Fails if `take` fails.
    pub(crate) fn each_encoded(
        mut records: &[u8],
        vectors: VectorType,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        while !records.is_empty() {
            let (_, rest) = Record::split(records, vectors);
            take(&records[..records.len() - rest.len()])?;
            records = rest;
        }
        Ok(())
    }
}

/// Totals of the rows assigned to a center.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    pub(crate) id_bytes: u64,
    /// Upper bound on the distance of any of these rows from the center.
    pub(crate) radius: f64,
}

impl Tally {
    /// Adds the totals of other rows of the center.
    pub(super) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.id_bytes += other.id_bytes;
        self.radius = self.radius.max(other.radius);
    }

    /// Counts a row with an id of `id_bytes` bytes. The radius is in coordinates.
    pub(super) fn count<T: Coordinate>(&mut self, nearest: Nearest<T::Distance>, id_bytes: u64, space: Space<'_>) {
        self.rows += 1;
        self.id_bytes += id_bytes;
        // An upper bound: rounding of the distance up, plus the distance between the vector and its rounded form.
        let away = T::at_most(nearest.squared, space.dimensions()).sqrt() + f64::from(nearest.residual);
        self.radius = self.radius.max(away);
    }
}

/// Writes id `k` to `buffer`, in the form that records contain.
pub(crate) fn id_bytes(ids: &Ids, k: usize, buffer: &mut Vec<u8>) {
    buffer.clear();
    match ids {
        Ids::None => {}
        Ids::Int64(ids) => buffer.extend_from_slice(&ids[k].to_le_bytes()),
        Ids::Utf8(texts) => buffer.extend_from_slice(texts.get(k)),
    }
}

/// Appends an id to `ids`. `id` has the form that records contain.
pub(super) fn push_id(ids: &mut Ids, id: &[u8]) {
    match ids {
        Ids::None => {}
        Ids::Int64(ids) => ids.push(i64::from_le_bytes(*id.first_chunk().expect("an integer id has eight bytes"))),
        Ids::Utf8(texts) => texts.push(id),
    }
}
