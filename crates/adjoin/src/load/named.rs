//! Looks up vectors of a store by id or row number.

use super::buckets::Buckets;
use super::read_ahead::{ReadAhead, read_ahead_bytes};
use crate::context::Context;
use crate::error::Result;
use crate::plan::Load;
use crate::source::{IdKind, Ids, Named};
use crate::store::Store;

/// Returns the stored vectors of the rows with these ids, or with these row numbers if rows have no ids; `None` for
/// names that no row has. A store has no index of its ids, so buckets are read until all names are found.
///
/// # Errors
/// Fails if the ids are of another kind, the budget does not hold a bucket, or the store cannot be read or is damaged.
pub fn vectors_named(context: &Context, store: &Store, names: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
    let kind = store.manifest().ids;
    let (buckets, with_ids) = (Buckets::of(store), kind != IdKind::None);
    let mut named = Named::new(kind, names)?;
    let ahead = read_ahead_bytes(buckets.extents(), with_ids, context.budget().free());
    let _memory = context.reserve(ahead, "looking for rows by their names")?;
    let loads = Load::each(buckets.count());
    let mut ahead = ReadAhead::new(context, "names", &buckets, with_ids, ahead, loads, &context.cancel)?;
    let bytes = buckets.vectors().bytes();
    while !named.is_complete()
        && let Some(stored) = ahead.next_bucket()?
    {
        context.cancel.check()?;
        let bucket = stored.decode(&buckets)?;
        let vectors = &stored.bytes()[bucket.vectors];
        let mut name = Vec::new();
        for (k, (&row, vector)) in bucket.rows.iter().zip(vectors.chunks_exact(bytes)).enumerate() {
            let vector = || Ok(vector.to_vec());
            if with_ids {
                name.clear();
                bucket.ids.append_bytes_of(k, &mut name);
                named.meet(&name, vector)?;
            } else {
                named.meet_row(row, vector)?;
            }
        }
    }
    Ok(named.into_found())
}
