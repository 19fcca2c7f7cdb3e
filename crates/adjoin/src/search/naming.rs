//! What the rows are called that queries found.

use crate::context::Context;
use crate::error::Result;
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::source::{IdKind, Ids};

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "the ids of what was found";

/// The ids of what lies at these places, (bucket, place there), in their order; reads the buckets.
///
/// # Errors
/// Where a bucket is not as written, or the ids do not fit into memory.
pub(crate) fn ids_of(context: &Context, buckets: &Buckets<'_>, kind: IdKind, places: &[(u32, u32)]) -> Result<Ids> {
    let mut ids = Ids::empty(kind);
    if kind == IdKind::None {
        return Ok(ids);
    }
    let read_ahead = least_read_ahead(buckets.extents(), true);
    let of_order = (places.len() * 3 * size_of::<u32>()) as u64;
    let mut memory = context.reserve(read_ahead + of_order, PURPOSE)?;
    let mut order: Vec<u32> = (0..places.len() as u32).collect();
    order.sort_unstable_by_key(|&hit| places[hit as usize]);
    let mut wanted = order.iter().map(|&hit| places[hit as usize]).peekable();
    let mut numbers: Vec<u32> = order.iter().map(|&hit| places[hit as usize].0).collect();
    numbers.dedup();
    let loads = numbers.iter().map(|&bucket| Load { bucket, step: bucket.into() });
    let mut ahead = ReadAhead::new(context, "ids", buckets, true, read_ahead, loads, &context.cancel)?.in_parts();
    let mut found = Ids::empty(kind);
    while let Some(stored) = ahead.next_bucket()? {
        context.cancel.check()?;
        let members = stored.members(buckets)?;
        while let Some((_, place)) = wanted.next_if(|&(number, _)| number == stored.number()) {
            found.push_from(&members.ids, (place - members.first) as usize);
        }
        // Twice as they are put into order, and what grows may be twice as large.
        context.grow(&mut memory, read_ahead + of_order + 4 * found.held_bytes(), PURPOSE)?;
    }
    let mut found_at = vec![0u32; places.len()];
    (0..).zip(&order).for_each(|(at, &hit)| found_at[hit as usize] = at);
    found_at.iter().for_each(|&at| ids.push_from(&found, at as usize));
    Ok(ids)
}
