//! Chooses a rounding of a store's floats to bytes, with the help of sampled vectors.

use super::buckets::Buckets;
use super::sample::{DrawnVectors, draw_places, read_coordinates};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coding;

/// Number of sampled vectors.
const VECTORS: u64 = 500;

/// Returns the memory of [`fit_coding`] in bytes.
pub(crate) fn coding_bytes(buckets: &Buckets<'_>) -> u64 {
    DrawnVectors::<f32>::memory_bytes(buckets, VECTORS)
}

/// Fits a coding to vectors that are sampled with `seed`. Returns `None` if coordinates are already bytes. The caller
/// decides whether the coding is precise enough.
///
/// # Errors
/// Fails if memory does not suffice or the device fails. The message about memory names `purpose`.
pub(crate) fn fit_coding(context: &Context, buckets: &Buckets<'_>, seed: u64, purpose: &str) -> Result<Option<Coding>> {
    if !buckets.space().is_of_floats() {
        return Ok(None);
    }
    let _memory = context.reserve(coding_bytes(buckets), purpose)?;
    let places = draw_places(buckets, VECTORS, seed, "coding");
    let drawn = read_coordinates(context, buckets, &places)?;
    Ok(Coding::fit(context.kernel, &drawn))
}
