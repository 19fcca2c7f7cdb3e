//! Old rows of a store during an append. Finds the rows to remove, and reads the rows to keep.

use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;

use super::PURPOSE;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::row_numbers::RowSet;
use crate::source::{IdKind, Ids};
use crate::store::buckets::RowsBefore;
use crate::store::format::Extent;
use crate::store::ids::{IdCheck, hash_of};
use crate::store::reader::Store;
use crate::store::records::{Record, Tally, id_bytes};

/// Ids of rows to remove, or their numbers if rows have no ids.
pub(super) struct DeletedRows {
    /// Hashes of ids, or row numbers, in ascending order.
    keys: Vec<u128>,
    /// Keys that at least one row has.
    met: RowSet,
    /// Positions of the rows to remove.
    gone: RowSet,
    _memory: Reservation,
}

impl DeletedRows {
    /// Prepares to remove rows from a store.
    ///
    /// # Errors
    /// Fails if the ids are not of the store's kind, or if memory does not suffice.
    pub(super) fn new(context: &Context, store: &Store, ids: &Ids) -> Result<Self> {
        let manifest = store.manifest();
        let wanted = if manifest.ids == IdKind::None { IdKind::Int64 } else { manifest.ids };
        if ids.kind() != wanted {
            let whose = if manifest.ids == IdKind::None { "numbers of rows" } else { "ids of the kind that rows have" };
            return Err(Error::option(message![Argument::Delete, format!(" takes {whose}; give these")]));
        }
        let count = ids.len() as u64;
        let bytes =
            count * size_of::<u128>() as u64 + RowSet::memory_bytes(count) + RowSet::memory_bytes(manifest.rows);
        let memory = context.reserve(bytes, PURPOSE)?;
        let mut keys: Vec<u128> = match (manifest.ids, ids) {
            // No row has a negative number.
            (IdKind::None, Ids::Int64(rows)) => rows.iter().map(|&row| key_of_row(row.cast_unsigned())).collect(),
            _ => (0..ids.len()).filter_map(|k| hash_of(ids, k)).collect(),
        };
        // Without this, an id that is given twice would count as missing, since only one of both copies is found.
        keys.sort_unstable();
        keys.dedup();
        let (met, gone) = (RowSet::new(keys.len() as u64), RowSet::new(manifest.rows));
        Ok(Self { keys, met, gone, _memory: memory })
    }

    /// Returns whether the row with the key `key` is to be removed. If so, records its position `place`.
    fn goes(&mut self, key: u128, place: u64) -> bool {
        let Ok(k) = self.keys.binary_search(&key) else { return false };
        self.met.insert(k as u64);
        self.gone.insert(place);
        true
    }
}

/// Returns the key of a row without an id.
fn key_of_row(row: u64) -> u128 {
    row.into()
}

/// The rows of a store, some of which may be removed.
pub(super) struct OldRows<'a> {
    context: &'a Context,
    store: &'a Store,
    deleted: Option<DeletedRows>,
    /// Position of the first row of each bucket.
    firsts: Vec<u64>,
    bytes: AtomicU64,
}

impl<'a> OldRows<'a> {
    pub(super) fn new(context: &'a Context, store: &'a Store, deleted: Option<DeletedRows>) -> Self {
        let mut place = 0;
        let firsts = store.extents().iter().map(|extent| {
            place += u64::from(extent.rows);
            place - u64::from(extent.rows)
        });
        Self { context, store, deleted, firsts: firsts.collect(), bytes: AtomicU64::new(0) }
    }

    /// Returns the bytes that a bucket takes while it is read and decoded.
    pub(super) fn bytes_read(extent: &Extent) -> u64 {
        extent.bytes(true) + extent.id_bytes + u64::from(extent.rows) * size_of::<u64>() as u64
    }

    /// Finds the rows to remove, and passes the ids of all other rows to `check`. Returns the tallies of the rows that
    /// each bucket keeps. If there are neither ids nor rows to remove, reads nothing.
    ///
    /// # Errors
    /// Fails if the store cannot be read or is damaged, a file cannot be written, or the work is canceled.
    pub(super) fn survey(&mut self, mut check: Option<&mut IdCheck>) -> Result<Vec<Tally>> {
        let extents = self.store.extents();
        let whole = |extent: &Extent| Tally {
            rows: extent.rows.into(),
            id_bytes: 0,
            // The extent has the radius rounded up. This restores the value before rounding.
            radius: extent.radius.next_down().into(),
        };
        let mut tallies: Vec<Tally> = extents.iter().map(whole).collect();
        if check.is_none() && self.deleted.is_none() {
            return Ok(tallies);
        }
        let Self { context, store, deleted, firsts, bytes } = self;
        context.progress.begin("check", "buckets", extents.len() as u64);
        let mut id = Vec::new();
        for (number, tally) in (0..).zip(&mut tallies) {
            context.cancel.check()?;
            // Rows are counted again below, since some may be removed. The radius remains an upper bound for the
            // others.
            tally.rows = 0;
            let mut place = firsts[number as usize];
            read_bucket(store, number, bytes, |row, _, ids, k| {
                let hash = hash_of(ids, k);
                let goes = deleted.as_mut().is_some_and(|deleted| deleted.goes(hash.unwrap_or(key_of_row(row)), place));
                place += 1;
                if goes {
                    return Ok(());
                }
                id_bytes(ids, k, &mut id);
                tally.rows += 1;
                tally.id_bytes += id.len() as u64;
                check.as_mut().zip(hash).map_or(Ok(()), |(check, hash)| check.add_hash(hash, row))
            })?;
            context.progress.advance(u64::from(number) + 1);
        }
        Ok(tallies)
    }

    /// Returns whether the row at a position is kept.
    pub(super) fn stays(&self, place: u64) -> bool {
        self.deleted.as_ref().is_none_or(|deleted| !deleted.gone.contains(place))
    }

    /// Returns the position of the first row of each bucket.
    pub(super) fn firsts(&self) -> &[u64] {
        &self.firsts
    }

    /// Returns the number of rows to remove.
    pub(super) fn removed(&self) -> u64 {
        self.deleted.as_ref().map_or(0, |deleted| deleted.gone.len())
    }

    /// Returns the number of ids to remove that no row has.
    pub(super) fn missing(&self) -> u64 {
        self.deleted.as_ref().map_or(0, |deleted| deleted.keys.len() as u64 - deleted.met.len())
    }

    /// Returns the number of bytes of buckets that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl RowsBefore for OldRows<'_> {
    fn each(&self, center: u32, take: &mut dyn FnMut(&Record<'_>)) -> Result<()> {
        let (mut place, mut id) = (self.firsts[center as usize], Vec::new());
        read_bucket(self.store, center, &self.bytes, |row, vector, ids, k| {
            if self.stays(place) {
                id_bytes(ids, k, &mut id);
                take(&Record { center, row, vector, id: &id });
            }
            place += 1;
            Ok(())
        })
    }
}

/// Reads a bucket and passes each row to `take`: the row number, the stored vector, the ids of the bucket, and the
/// position of the row's id among them.
pub(super) fn read_bucket(
    store: &Store,
    number: u32,
    bytes_read: &AtomicU64,
    mut take: impl FnMut(u64, &[u8], &Ids, usize) -> Result<()>,
) -> Result<()> {
    let extent = &store.extents()[number as usize];
    let mut bytes = vec![0; extent.bytes(true) as usize];
    let read = store.file().read_at(extent.offset, &mut bytes)?;
    bytes_read.fetch_add(read, Ordering::Relaxed);
    let bucket = store.decode(number, &bytes)?;
    let vectors = bytes[bucket.vectors].chunks_exact(store.manifest().vectors.bytes());
    let mut rows = bucket.rows.iter().zip(vectors).enumerate();
    rows.try_for_each(|(k, (&row, vector))| take(row, vector, &bucket.ids, k))
}
