//! Reads single vectors of stores, with many reads in flight.

use std::ops::Range;

use super::buckets::Buckets;
use super::read_ahead::SmallReads;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::store::format::HEADER_BYTES;

/// Reads the vectors at `places`. A place is a bucket and a position among its filtered members. Returns the stored
/// vectors, end to end.
///
/// The bytes are not verified, since checksums cover whole buckets. Callers that need verification must read whole
/// buckets.
///
/// # Errors
/// Fails if the device fails.
pub(crate) fn read_vectors(context: &Context, buckets: &Buckets<'_>, places: &[(u32, u32)]) -> Result<Vec<u8>> {
    read_parts(context, buckets, places, Part::Vector)
}

/// Reads the row numbers of the vectors at these places.
///
/// # Errors
/// Fails if the device fails.
pub(crate) fn read_rows(context: &Context, buckets: &Buckets<'_>, places: &[(u32, u32)]) -> Result<Vec<u64>> {
    let stored = read_parts(context, buckets, places, Part::Row)?;
    let rows = stored.as_chunks::<8>().0.iter().zip(places);
    Ok(rows.map(|(&row, &(bucket, _))| buckets.first_row(bucket) + u64::from_le_bytes(row)).collect())
}

/// Part of a member to read.
#[derive(Clone, Copy)]
enum Part {
    Vector,
    /// The row number.
    Row,
}

impl Part {
    fn bytes(self, buckets: &Buckets<'_>) -> u64 {
        match self {
            Self::Vector => buckets.vectors().bytes() as u64,
            Self::Row => size_of::<u64>() as u64,
        }
    }

    /// Returns the offset of the part in its file.
    fn offset(self, buckets: &Buckets<'_>, bucket: u32, place: u32) -> u64 {
        let (extent, member) = (buckets.extent(bucket), buckets.member_at(bucket, place));
        let first = match self {
            Self::Vector => HEADER_BYTES as u64,
            // Row numbers are at the end of the body.
            Self::Row => extent.body_bytes - u64::from(extent.rows) * self.bytes(buckets),
        };
        extent.offset + first + u64::from(member) * self.bytes(buckets)
    }

    /// Returns the byte range to read for the part, extended to the alignment of the file.
    fn span(self, buckets: &Buckets<'_>, bucket: u32, place: u32) -> Range<u64> {
        let alignment = buckets.file(bucket).alignment() as u64;
        let start = self.offset(buckets, bucket, place);
        start / alignment * alignment..(start + self.bytes(buckets)).next_multiple_of(alignment)
    }
}

fn read_parts(context: &Context, buckets: &Buckets<'_>, places: &[(u32, u32)], part: Part) -> Result<Vec<u8>> {
    let mut stored = vec![0; places.len() * part.bytes(buckets) as usize];
    let mut reads = SmallReads::new(context, "sample")?;
    for (k, &(bucket, place)) in places.iter().enumerate() {
        if reads.is_full() {
            take(&mut reads, buckets, places, part, &mut stored)?;
        }
        // Reads may finish in any order, so the token is the index of the part in the result.
        reads.submit(k as u64, buckets, bucket, part.span(buckets, bucket, place))?;
    }
    while !reads.is_empty() {
        take(&mut reads, buckets, places, part, &mut stored)?;
    }
    Ok(stored)
}

/// Waits until a read finishes, and copies its part to the correct index of `stored`.
fn take(
    reads: &mut SmallReads,
    buckets: &Buckets<'_>,
    places: &[(u32, u32)],
    part: Part,
    stored: &mut [u8],
) -> Result<()> {
    let bytes = part.bytes(buckets) as usize;
    // Reads may finish in any order. The token is the index in `places`.
    reads.wait(|token, read, transferred| {
        let k = token as usize;
        buckets.count_read(bytes as u64, transferred);
        let (bucket, place) = places[k];
        let start = (part.offset(buckets, bucket, place) - part.span(buckets, bucket, place).start) as usize;
        stored[k * bytes..][..bytes].copy_from_slice(&read[start..][..bytes]);
    })
}
