//! How the floats of a store are rounded to bytes, as vectors that are drawn from it say.

use super::buckets::Buckets;
use super::sample::{Drawn, draw_places, read_coordinates};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coding;

/// Vectors that are drawn.
const VECTORS: u64 = 500;

/// Bytes that [`fit_coding`] holds.
pub(crate) fn coding_bytes(buckets: &Buckets<'_>) -> u64 {
    Drawn::<f32>::memory_bytes(buckets, VECTORS)
}

/// Fits a coding to vectors that are drawn by `seed`; none where coordinates are bytes anyway. Whoever asks knows what
/// it must tell apart.
///
/// # Errors
/// Where memory does not suffice, which `purpose` is said to be for, or the device fails.
pub(crate) fn fit_coding(context: &Context, buckets: &Buckets<'_>, seed: u64, purpose: &str) -> Result<Option<Coding>> {
    if !buckets.space().is_of_floats() {
        return Ok(None);
    }
    let _memory = context.reserve(coding_bytes(buckets), purpose)?;
    let places = draw_places(buckets, VECTORS, seed, "coding");
    let drawn = read_coordinates(context, buckets, &places)?;
    Ok(Coding::fit(context.kernel, &drawn))
}
