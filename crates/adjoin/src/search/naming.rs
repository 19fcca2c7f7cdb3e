//! What the rows are called that queries found.

use crate::context::Context;
use crate::error::Result;
use crate::execute::Hit;
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::source::{IdKind, Ids};

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "the ids of what was found";

/// The ids of hits, in their order; reads the buckets that they lie in.
///
/// # Errors
/// Where a bucket is not as written, or the ids do not fit into memory.
pub(super) fn ids_of(context: &Context, buckets: &Buckets<'_>, kind: IdKind, hits: &[Hit]) -> Result<Ids> {
    let mut ids = Ids::empty(kind);
    if kind == IdKind::None {
        return Ok(ids);
    }
    let read_ahead = least_read_ahead(buckets.extents(), true);
    let of_order = (hits.len() * 3 * size_of::<u32>()) as u64;
    let mut memory = context.reserve(read_ahead + of_order, PURPOSE)?;
    let mut order: Vec<u32> = (0..hits.len() as u32).collect();
    order.sort_unstable_by_key(|&hit| hits[hit as usize].place);
    let mut wanted = order.iter().map(|&hit| hits[hit as usize].place).peekable();
    let mut numbers: Vec<u32> = order.iter().map(|&hit| hits[hit as usize].place.0).collect();
    numbers.dedup();
    let loads = numbers.iter().map(|&bucket| Load { bucket, step: bucket.into() });
    let mut ahead = ReadAhead::new(context, "ids", buckets, true, read_ahead, loads, &context.cancel)?;
    let mut found = Ids::empty(kind);
    while let Some(stored) = ahead.next_bucket()? {
        context.cancel.check()?;
        let bucket = stored.decode(buckets)?;
        while let Some((_, place)) = wanted.next_if(|&(number, _)| number == stored.number()) {
            found.push_from(&bucket.ids, place as usize);
        }
        // Twice as they are put into order, and what grows may be twice as large.
        context.grow(&mut memory, read_ahead + of_order + 4 * found.held_bytes(), PURPOSE)?;
    }
    let mut places = vec![0u32; hits.len()];
    (0..).zip(&order).for_each(|(place, &hit)| places[hit as usize] = place);
    places.iter().for_each(|&place| ids.push_from(&found, place as usize));
    Ok(ids)
}
