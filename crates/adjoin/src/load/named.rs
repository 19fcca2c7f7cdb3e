//! Looks up rows of a store by id or row number, and reads their vectors.

use super::buckets::Buckets;
use super::read_ahead::{ReadAhead, least_read_ahead, read_ahead_bytes};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::plan::Load;
use crate::source::{IdKind, Ids, Named};
use crate::store::Store;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "fetching rows by their ids";

/// Looks up rows by id, or by row number if rows have no ids. Returns the place of each row, which is its position in
/// bucket order, or `None` if no row has the name. A store has no index of its ids, so buckets are read until all
/// names are found.
///
/// # Errors
/// Fails if the ids are of another kind, the budget is too small for a bucket, or the store cannot be read or is
/// damaged.
pub(crate) fn places_named(context: &Context, store: &Store, names: &Ids) -> Result<Vec<Option<u64>>> {
    let kind = store.manifest().ids;
    let (buckets, with_ids) = (Buckets::of(store), kind != IdKind::None);
    let mut named = Named::new(kind, names)?;
    let ahead = read_ahead_bytes(buckets.extents(), with_ids, context.budget().free());
    let _memory = context.reserve(ahead, PURPOSE)?;
    let loads = Load::each(buckets.count());
    let mut ahead = ReadAhead::new(context, "names", &buckets, with_ids, ahead, loads, &context.cancel)?;
    let (mut place, mut name) = (0, Vec::new());
    context.progress.begin("look up", "rows", store.manifest().rows);
    // The loop ends once all names are found. For a single name, that is on average after half of the store.
    while !named.is_complete()
        && let Some(stored) = ahead.next_bucket()?
    {
        context.cancel.check()?;
        let bucket = stored.decode(&buckets)?;
        for (k, &row) in bucket.rows.iter().enumerate() {
            if with_ids {
                name.clear();
                bucket.ids.append_bytes_of(k, &mut name);
                named.meet(&name, place);
            } else {
                named.meet_row(row, place);
            }
            place += 1;
        }
        context.progress.advance(place);
    }
    Ok(named.into_places())
}

/// Returns the least memory in bytes of a pass over the buckets of a store, with or without ids.
pub(crate) fn least_pass_bytes(store: &Store, with_ids: bool) -> u64 {
    least_read_ahead(store.extents(), with_ids) + size_of::<u64>() as u64 * (store.extents().len() as u64 + 1)
}

/// Returns the stored vectors at `places`, end to end. A place is a position in bucket order. Only buckets that hold
/// one of these vectors are read.
///
/// # Errors
/// Fails if the budget is too small for a bucket, or the store cannot be read or is damaged.
pub(crate) fn vectors_at(context: &Context, store: &Store, places: &[u64]) -> Result<Vec<u8>> {
    let buckets = Buckets::of(store);
    let mut ends: Vec<u64> = Vec::with_capacity(buckets.extents().len());
    buckets.extents().iter().for_each(|extent| ends.push(ends.last().unwrap_or(&0) + u64::from(extent.rows)));
    let mut order: Vec<usize> = (0..places.len()).collect();
    // Places are read in bucket order, so each bucket is read once, and the file is read front to back.
    order.sort_unstable_by_key(|&k| places[k]);
    let bucket_of = |&k: &usize| ends.partition_point(|&end| end <= places[k]) as u32;
    let mut needed: Vec<u32> = order.iter().map(bucket_of).collect();
    needed.dedup();
    let ahead = read_ahead_bytes(buckets.extents(), false, context.budget().free());
    let _memory = context.reserve(ahead, PURPOSE)?;
    let loads = needed.into_iter().map(|bucket| Load { bucket, step: bucket.into() });
    let mut ahead = ReadAhead::new(context, "rows", &buckets, false, ahead, loads, &context.cancel)?;
    let bytes = buckets.vectors().bytes();
    let (mut out, mut order) = (vec![0; places.len() * bytes], order.into_iter().peekable());
    while let Some(stored) = ahead.next_bucket()? {
        context.cancel.check()?;
        let bucket = stored.decode(&buckets)?;
        let (vectors, end) = (&stored.bytes()[bucket.vectors], ends[stored.number() as usize]);
        let first = end - bucket.rows.len() as u64;
        while let Some(k) = order.next_if(|&k| places[k] < end) {
            let member = (places[k] - first) as usize;
            out[k * bytes..][..bytes].copy_from_slice(&vectors[member * bytes..][..bytes]);
        }
    }
    Ok(out)
}
