//! Single vectors of a store, many reads in flight.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, ReadQueue};

use super::format::HEADER_BYTES;
use super::reader::Store;
use crate::context::Context;
use crate::error::Result;

/// Reads in flight.
const DEPTH: usize = 32;

/// Reads the vectors at these places, (bucket, place in it), end to end as stored.
///
/// Nothing here says whether a byte was damaged: checksums are of whole buckets. Whoever needs to know reads those too.
///
/// # Errors
/// Where the device fails.
pub fn read_vectors(context: &Context, store: &Store, places: &[(u32, u32)]) -> Result<Vec<u8>> {
    let mut reader = Reader { store, places, stored: vec![0; places.len() * store.manifest().vectors.bytes()] };
    let mut queue = context.device.read_queue(DEPTH)?;
    for k in 0..places.len() {
        if queue.in_flight() == DEPTH {
            reader.take(&mut *queue)?;
        }
        let span = reader.span(k);
        let buffer = AlignedBuffer::zeroed((span.end - span.start) as usize);
        queue.submit(k as u64, store.file(), span.start, buffer)?;
    }
    while queue.in_flight() > 0 {
        reader.take(&mut *queue)?;
    }
    Ok(reader.stored)
}

struct Reader<'a> {
    store: &'a Store,
    places: &'a [(u32, u32)],
    stored: Vec<u8>,
}

impl Reader<'_> {
    /// Where vector `k` lies in the file.
    fn offset(&self, k: usize) -> u64 {
        let (bucket, place) = self.places[k];
        let bytes = self.store.manifest().vectors.bytes() as u64;
        self.store.extents()[bucket as usize].offset + HEADER_BYTES as u64 + u64::from(place) * bytes
    }

    /// What is read for it: as the file's alignment wants it.
    fn span(&self, k: usize) -> Range<u64> {
        let alignment = self.store.file().alignment() as u64;
        let end = self.offset(k) + self.store.manifest().vectors.bytes() as u64;
        self.offset(k) / alignment * alignment..end.next_multiple_of(alignment)
    }

    /// Waits for one of them.
    fn take(&mut self, queue: &mut dyn ReadQueue) -> Result<()> {
        let done = queue.wait().expect("some are in flight");
        let (k, bytes) = (done.token as usize, self.store.manifest().vectors.bytes());
        self.store.count(bytes as u64, done.result?);
        let start = (self.offset(k) - self.span(k).start) as usize;
        self.stored[k * bytes..][..bytes].copy_from_slice(&done.buffer[start..][..bytes]);
        Ok(())
    }
}
