//! Single vectors of stores, many reads in flight.

use std::ops::Range;

use super::buckets::Buckets;
use super::read_ahead::SmallReads;
use crate::context::Context;
use crate::error::Result;
use crate::store::format::HEADER_BYTES;

/// Reads the vectors at these places, (bucket, place in it), end to end as stored.
///
/// Nothing here says whether a byte was damaged: checksums are of whole buckets. Whoever needs to know reads those too.
///
/// # Errors
/// Where the device fails.
pub(crate) fn read_vectors(context: &Context, buckets: &Buckets<'_>, places: &[(u32, u32)]) -> Result<Vec<u8>> {
    let mut stored = vec![0; places.len() * buckets.vectors().bytes()];
    let mut reads = SmallReads::new(context, "sample")?;
    for (k, &place) in places.iter().enumerate() {
        if reads.is_full() {
            take(&mut reads, buckets, places, &mut stored)?;
        }
        reads.submit(k as u64, buckets, place.0, span(buckets, place))?;
    }
    while !reads.is_empty() {
        take(&mut reads, buckets, places, &mut stored)?;
    }
    Ok(stored)
}

/// Where a vector lies in its file.
fn offset(buckets: &Buckets<'_>, (bucket, place): (u32, u32)) -> u64 {
    let bytes = buckets.vectors().bytes() as u64;
    buckets.extent(bucket).offset + HEADER_BYTES as u64 + u64::from(place) * bytes
}

/// What is read for it: as the file's alignment wants it.
fn span(buckets: &Buckets<'_>, place: (u32, u32)) -> Range<u64> {
    let alignment = buckets.file(place.0).alignment() as u64;
    let start = offset(buckets, place);
    start / alignment * alignment..(start + buckets.vectors().bytes() as u64).next_multiple_of(alignment)
}

/// Waits for one of the vectors and puts it in its place.
fn take(reads: &mut SmallReads, buckets: &Buckets<'_>, places: &[(u32, u32)], stored: &mut [u8]) -> Result<()> {
    let bytes = buckets.vectors().bytes();
    reads.wait(|token, read, transferred| {
        let k = token as usize;
        buckets.count_read(bytes as u64, transferred);
        let start = (offset(buckets, places[k]) - span(buckets, places[k]).start) as usize;
        stored[k * bytes..][..bytes].copy_from_slice(&read[start..][..bytes]);
    })
}
