//! Buckets in an order that is known beforehand: many reads in flight, neighbours on disk in one request.

use std::collections::VecDeque;
use std::ops::Range;

use adjoin_device::{AlignedBuffer, ReadQueue};

use super::format::{Bucket, Extent};
use super::reader::Store;
use crate::context::Context;
use crate::error::Result;

/// Neighbouring buckets are read in one request up to this size, at which a disk reaches its full rate.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Requests in flight.
const DEPTH: usize = 32;
/// Memory in which requests are read ahead, where the budget allows it.
const AHEAD_BYTES_MAX: u64 = DEPTH as u64 * REQUEST_BYTES_MAX;
/// A request begins and ends at most so far outside of its extents.
const ALIGNMENT_BYTES: u64 = 2 * adjoin_device::BLOCK_BYTES as u64;

/// Reads buckets ahead of their use.
pub struct ReadAhead<'a, I: Iterator<Item = u32>> {
    store: &'a Store,
    with_ids: bool,
    upcoming: std::iter::Peekable<I>,
    queue: Box<dyn ReadQueue>,
    /// In order, finished or not.
    requests: VecDeque<Request>,
    first_token: u64,
    memory: u64,
    held: u64,
}

/// One read of buckets that follow each other.
struct Request {
    buckets: Range<u32>,
    offset: u64,
    bytes: u64,
    /// The bytes, once they are there.
    buffer: Option<AlignedBuffer>,
}

/// A bucket as it was read.
pub struct BucketBytes<'a> {
    /// Its number.
    pub number: u32,
    /// Its parts.
    pub bucket: Bucket,
    /// Its vectors as stored, end to end.
    pub vectors: &'a [u8],
}

/// The least memory for reading ahead of these extents: the largest of them alone.
pub fn least_read_ahead(extents: &[Extent], with_ids: bool) -> u64 {
    extents.iter().map(|extent| extent.bytes(with_ids)).max().unwrap_or(0) + ALIGNMENT_BYTES
}

/// Memory for reading ahead where `free` bytes may be shared with others.
pub fn read_ahead_bytes(extents: &[Extent], with_ids: bool, free: u64) -> u64 {
    (free / 8).min(AHEAD_BYTES_MAX).max(least_read_ahead(extents, with_ids))
}

impl<'a, I: Iterator<Item = u32>> ReadAhead<'a, I> {
    /// Reads the buckets of `upcoming`, in this order, within `memory` bytes.
    ///
    /// # Errors
    /// Where the device gives no queue.
    pub fn new(context: &Context, store: &'a Store, with_ids: bool, memory: u64, upcoming: I) -> Result<Self> {
        let queue = context.device.read_queue(DEPTH)?;
        let (upcoming, requests) = (upcoming.peekable(), VecDeque::new());
        Ok(Self { store, with_ids, upcoming, queue, requests, first_token: 0, memory, held: 0 })
    }

    /// Hands the next bucket to `take`; `None` after the last.
    ///
    /// # Errors
    /// Where the device fails or the bytes are not as written.
    pub fn next<R>(&mut self, take: impl FnOnce(BucketBytes<'_>) -> R) -> Result<Option<R>> {
        self.submit()?;
        if self.requests.is_empty() {
            return Ok(None);
        }
        self.wait_for_first()?;
        let request = &mut self.requests[0];
        let number = request.buckets.start;
        request.buckets.start += 1;
        let buffer = request.buffer.as_deref().expect("it was waited for");
        let extent = &self.store.extents()[number as usize];
        let start = (extent.offset - request.offset) as usize;
        let bytes = &buffer[start..start + extent.bytes(self.with_ids) as usize];
        let bucket = self.store.decode(number, bytes)?;
        let vectors = &bytes[bucket.vectors.clone()];
        let taken = take(BucketBytes { number, bucket, vectors });
        if self.requests[0].buckets.is_empty() {
            self.held -= self.requests.pop_front().map_or(0, |request| request.bytes);
            self.first_token += 1;
        }
        Ok(Some(taken))
    }

    /// Starts as many requests as memory and queue allow; one at least, where none is under way.
    fn submit(&mut self) -> Result<()> {
        while self.queue.in_flight() < DEPTH {
            let Some(&first) = self.upcoming.peek() else { return Ok(()) };
            let room = self.memory.saturating_sub(self.held);
            let alone = self.bytes_of(first..first + 1);
            if alone > room && !self.requests.is_empty() {
                return Ok(());
            }
            let request = self.gather(room.min(REQUEST_BYTES_MAX));
            let token = self.first_token + self.requests.len() as u64;
            let buffer = AlignedBuffer::zeroed(request.bytes as usize);
            self.queue.submit(token, self.store.file(), request.offset, buffer)?;
            self.held += request.bytes;
            self.requests.push_back(request);
        }
        Ok(())
    }

    /// The next buckets that lie one behind the other, up to `bytes`; one at least.
    fn gather(&mut self, bytes: u64) -> Request {
        let first = self.upcoming.next().expect("the caller has seen it");
        let mut buckets = first..first + 1;
        while self.upcoming.peek() == Some(&buckets.end)
            && self.bytes_of(first..buckets.end + 1) <= bytes
            && self.is_adjacent(buckets.end)
        {
            self.upcoming.next();
            buckets.end += 1;
        }
        let span = self.span(buckets.clone());
        Request { buckets, offset: span.start, bytes: span.end - span.start, buffer: None }
    }

    /// Whether nothing but padding lies between a bucket and the one before it, of what is read.
    fn is_adjacent(&self, bucket: u32) -> bool {
        let extents = self.store.extents();
        let before = &extents[bucket as usize - 1];
        let gap = extents[bucket as usize].offset - (before.offset + before.bytes(self.with_ids));
        gap < super::format::EXTENT_ALIGNMENT
    }

    fn bytes_of(&self, buckets: Range<u32>) -> u64 {
        let span = self.span(buckets);
        span.end - span.start
    }

    /// The bytes of the file that hold some neighbouring buckets, as its alignment wants them.
    fn span(&self, buckets: Range<u32>) -> Range<u64> {
        let alignment = self.store.file().alignment() as u64;
        let extents = self.store.extents();
        let last = &extents[buckets.end as usize - 1];
        let start = extents[buckets.start as usize].offset / alignment * alignment;
        start..(last.offset + last.bytes(self.with_ids)).next_multiple_of(alignment)
    }

    fn wait_for_first(&mut self) -> Result<()> {
        while self.requests[0].buffer.is_none() {
            let done = self.queue.wait().expect("the first request is in flight");
            let transferred = done.result?;
            let request = &mut self.requests[(done.token - self.first_token) as usize];
            let extents = &self.store.extents()[request.buckets.start as usize..request.buckets.end as usize];
            let requested = extents.iter().map(|extent| extent.bytes(self.with_ids)).sum();
            self.store.count(requested, transferred);
            request.buffer = Some(done.buffer);
        }
        Ok(())
    }
}
