//! Reads buckets in a given order before they are used. Many reads are in flight. Buckets that are adjacent on disk
//! share a request. Bytes are passed on without verification; the thread that uses a bucket verifies and converts it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, Cause, ReadQueue};

use super::buckets::Buckets;
use super::buffers::{BorrowedBuffer, Buffers};
use super::part::Part;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::report::Cancel;
use crate::plan::Load;
use crate::source::{IdKind, Ids};
use crate::store::format::{Bucket, EXTENT_ALIGNMENT, Extent, MemberBytes};

/// Maximum size of a request for several adjacent buckets. At this size, a disk reaches its full rate.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of requests in flight.
const DEPTH: usize = 32;
/// Maximum memory for read-ahead, unless a single bucket needs more.
const AHEAD_BYTES_MAX: u64 = DEPTH as u64 * REQUEST_BYTES_MAX;
/// Upper bound on the bytes that a request reads outside its extents because of alignment.
const ALIGNMENT_BYTES: u64 = 2 * adjoin_device::BLOCK_BYTES as u64;

/// Reader that reads buckets before they are used.
pub struct ReadAhead<'a> {
    consumer: &'static str,
    buckets: &'a Buckets<'a>,
    with_ids: bool,
    /// Whether to read only a part of a bucket if its filtered members are in that part.
    in_parts: bool,
    /// Boxed, not generic: a virtual call takes no time compared with a bucket, and a generic reader would be compiled
    /// for each type.
    upcoming: std::iter::Peekable<Box<dyn Iterator<Item = Load> + 'a>>,
    queue: Box<dyn ReadQueue>,
    /// Requests in the order of their buckets. Includes finished ones.
    requests: VecDeque<Request>,
    /// Reads of all requests, in order. The first read has token `first_token`.
    reads: VecDeque<Read>,
    first_token: u64,
    /// The last step for which all reads have finished. Updated only when a bucket is returned.
    ended: Option<u64>,
    buffers: Arc<Buffers>,
    /// Loads of later steps are not started yet.
    until: u64,
    stop: Cancel,
}

/// Unit of reading: consecutive buckets, or a part of one bucket.
struct Request {
    buckets: Range<u32>,
    /// The first step that needs one of the buckets. Steps ascend, so it is the step of the first bucket.
    step: u64,
    part: Option<Part>,
    /// Number of reads in the queue.
    reads: usize,
}

/// A read in flight or finished.
struct Read {
    offset: u64,
    bytes: u64,
    /// Number of bytes of the read that are needed.
    requested: u64,
    /// The bytes, once the read has finished.
    buffer: Option<Arc<BorrowedBuffer>>,
}

/// Bytes of a bucket, not verified yet. Its memory returns to the reader once it and all other buckets of its request
/// are dropped.
pub struct StoredBucket {
    number: u32,
    contents: Contents,
}

/// Bytes that were read from a bucket.
enum Contents {
    /// The whole bucket.
    Whole(Range<usize>, Arc<BorrowedBuffer>),
    /// Some members: ranges of blocks of the file, each with its offset.
    Part(Part, Vec<(u64, Arc<BorrowedBuffer>)>),
}

/// Verified members of a bucket, which are consecutive.
struct Run<'a> {
    first: u32,
    vectors: &'a [u8],
    rows: Vec<u64>,
    ids: Ids,
}

impl StoredBucket {
    /// Returns the bucket's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the bytes of the bucket. They include ids only if these were requested.
    ///
    /// # Panics
    /// Panics if only a part of the bucket was read.
    pub fn bytes(&self) -> &[u8] {
        match &self.contents {
            Contents::Whole(range, buffer) => &buffer[range.clone()],
            Contents::Part(..) => panic!("only a bucket that was read as a whole has its bytes in one piece"),
        }
    }

    /// Verifies and decodes the bucket. Its vectors are a range of [`Self::bytes`].
    ///
    /// # Errors
    /// Fails if the bytes are damaged.
    pub fn decode(&self, buckets: &Buckets<'_>) -> Result<Bucket> {
        let (store, number) = buckets.at(self.number);
        store.decode(number, self.bytes())
    }

    /// Verifies and decodes the filtered members of the bucket. If there are no filters but only sought members
    /// ([`Buckets::seeking`]), the result contains these and perhaps other members.
    ///
    /// # Errors
    /// Fails if the bytes are damaged.
    pub(crate) fn members(&self, buckets: &Buckets<'_>) -> Result<StoredMembers<'_>> {
        let Run { first, vectors, mut rows, ids } = self.run(buckets)?;
        rows.iter_mut().for_each(|row| *row += buckets.first_row(self.number));
        let (bytes, count) = (buckets.vectors().bytes(), buckets.members(self.number) as usize);
        // Nothing is copied if all members pass the filter, or if only passing members were read.
        let Some(members) = buckets.members_at(self.number).filter(|_| count < rows.len()) else {
            let first = if buckets.is_part(self.number) { 0 } else { first };
            return Ok(StoredMembers { first, vectors: Cow::Borrowed(vectors), rows, ids });
        };
        let (mut some, mut some_rows) = (Vec::with_capacity(count * bytes), Vec::with_capacity(count));
        let mut some_ids = Ids::empty(ids.kind());
        for member in members.map(|member| (member - first) as usize) {
            some.extend_from_slice(&vectors[member * bytes..][..bytes]);
            some_rows.push(rows[member]);
            some_ids.push_from(&ids, member);
        }
        Ok(StoredMembers { first: 0, vectors: Cow::Owned(some), rows: some_rows, ids: some_ids })
    }

    /// Verifies and decodes the members that were read.
    fn run(&self, buckets: &Buckets<'_>) -> Result<Run<'_>> {
        let Contents::Part(part, blocks) = &self.contents else {
            let Bucket { rows, vectors, ids } = self.decode(buckets)?;
            return Ok(Run { first: 0, vectors: &self.bytes()[vectors], rows, ids });
        };
        let ((store, number), extent, members) = (buckets.at(self.number), buckets.extent(self.number), &part.members);
        blocks.iter().try_for_each(|(offset, blocks)| store.check_blocks(*offset, blocks))?;
        let at = |range: Range<u64>| {
            // Reads are in ascending order and do not overlap, so the last one that starts before the range contains
            // it.
            let (offset, bytes) = blocks
                .iter()
                .rfind(|(offset, _)| *offset <= range.start)
                .expect("the range is in a block that was read");
            &bytes[(range.start - offset) as usize..(range.end - offset) as usize]
        };
        let kind = if part.with_ids { buckets.ids(self.number) } else { IdKind::None };
        let ids = extent.ids_of(members.clone(), kind);
        let ids = if ids.is_empty() { &[] } else { at(ids) };
        let rows = at(extent.rows_of(members.clone()));
        let (rows, ids) = store.decode_members(number, MemberBytes { members: members.clone(), rows, ids })?;
        let vectors = at(extent.vectors_of(members.clone(), buckets.vectors()));
        Ok(Run { first: members.start, vectors, rows, ids })
    }
}

/// Members of a bucket as stored: vectors end to end, row numbers, and ids if they were read.
pub(crate) struct StoredMembers<'a> {
    /// Position of the first of these members among the filtered members of the bucket.
    pub(crate) first: u32,
    pub(crate) vectors: Cow<'a, [u8]>,
    pub(crate) rows: Vec<u64>,
    pub(crate) ids: Ids,
}

impl Read {
    fn new(range: Range<u64>, requested: u64) -> Self {
        Self { offset: range.start, bytes: range.end - range.start, requested, buffer: None }
    }

    /// Returns the offset of the read, and its buffer.
    fn bytes(&self) -> (u64, Arc<BorrowedBuffer>) {
        (self.offset, self.buffer.as_ref().expect("the read has ended, so it has a buffer").clone())
    }
}

/// Returns the least memory in bytes for read-ahead of these extents. It suffices for the largest one alone.
pub fn least_read_ahead(extents: &[Extent], with_ids: bool) -> u64 {
    extents.iter().map(|extent| extent.bytes(with_ids)).max().unwrap_or(0) + ALIGNMENT_BYTES
}

/// Returns the largest useful memory for read-ahead, in bytes. Reading does not become faster with more.
pub fn most_read_ahead(extents: &[Extent], with_ids: bool) -> u64 {
    AHEAD_BYTES_MAX.max(least_read_ahead(extents, with_ids))
}

/// Returns the memory to use for read-ahead, if `free` bytes are available for this and other uses.
pub(crate) fn read_ahead_bytes(extents: &[Extent], with_ids: bool, free: u64) -> u64 {
    (free / 8).clamp(least_read_ahead(extents, with_ids), most_read_ahead(extents, with_ids))
}

impl<'a> ReadAhead<'a> {
    /// Creates a reader of the buckets in `upcoming`, whose steps must ascend. `memory` limits the total size of all
    /// buffers, including those of buckets that the caller still holds. If `stop` is cancelled, waits for buffers end.
    /// In traces, the reader is called `consumer`.
    ///
    /// # Errors
    /// Fails if the device provides no queue.
    pub fn new(
        context: &Context,
        consumer: &'static str,
        buckets: &'a Buckets<'a>,
        with_ids: bool,
        memory: u64,
        upcoming: impl Iterator<Item = Load> + 'a,
        stop: &Cancel,
    ) -> Result<Self> {
        let upcoming: Box<dyn Iterator<Item = Load> + 'a> = Box::new(upcoming);
        let queue = context.device.read_queue(DEPTH)?;
        Ok(Self {
            consumer,
            buckets,
            with_ids,
            in_parts: false,
            upcoming: upcoming.peekable(),
            queue,
            requests: VecDeque::new(),
            reads: VecDeque::new(),
            first_token: 0,
            ended: None,
            buffers: Buffers::within(memory),
            until: u64::MAX,
            stop: stop.clone(),
        })
    }

    /// Makes the reader read only parts of buckets if they suffice. Only for callers that use nothing but
    /// [`StoredBucket::members`].
    #[must_use]
    pub(crate) fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// Makes the reader start no further loads of steps after `step`.
    pub fn hold_after(&mut self, step: u64) {
        self.until = step;
    }

    /// Starts reads even before the first bucket is requested.
    ///
    /// # Errors
    /// Fails as [`Self::next_bucket`] does.
    pub fn begin(&mut self) -> Result<()> {
        self.submit()
    }

    /// Returns the next bucket. `None` if there is no further bucket, or its step may not start yet.
    ///
    /// # Errors
    /// Fails if the device fails, or the run is stopped while all memory is in use.
    pub fn next_bucket(&mut self) -> Result<Option<StoredBucket>> {
        self.submit()?;
        if self.requests.is_empty() {
            return Ok(None);
        }
        self.wait_for_first()?;
        let following = self.requests.get(1).map(|request| request.step);
        // A step has ended once neither a request nor a later load belongs to it. Traces show the step after which a
        // read started.
        let following = following.or_else(|| self.upcoming.peek().map(|load| load.step));
        let request = &mut self.requests[0];
        if following != Some(request.step) {
            self.ended = Some(request.step);
        }
        let number = request.buckets.start;
        request.buckets.start += 1;
        let (is_last, reads) = (request.buckets.is_empty(), request.reads);
        let contents = match request.part.take() {
            Some(part) => Contents::Part(part, self.reads.range(..reads).map(Read::bytes).collect()),
            None => self.whole(number),
        };
        // The buffer of the request becomes free once the caller drops the last of its buckets.
        if is_last {
            self.requests.pop_front();
            self.reads.drain(..reads);
            self.first_token += reads as u64;
        }
        Ok(Some(StoredBucket { number, contents }))
    }

    /// Returns the bytes of a bucket in the first read.
    fn whole(&self, number: u32) -> Contents {
        let (extent, (offset, buffer)) = (self.buckets.extent(number), self.reads[0].bytes());
        // The request may begin before the bucket, because of another bucket or the alignment.
        let start = (extent.offset - offset) as usize;
        let range = start..start + extent.bytes(self.with_ids) as usize;
        assert!(range.end <= buffer.len(), "a request holds its buckets whole");
        Contents::Whole(range, buffer)
    }

    /// Starts as many requests as the memory and the queue allow, and at least one if none is in flight.
    fn submit(&mut self) -> Result<()> {
        loop {
            let until = self.until;
            let Some(&Load { bucket: first, .. }) = self.upcoming.peek().filter(|load| load.step <= until) else {
                return Ok(());
            };
            let part = self.part_of(first);
            // A part takes several reads at once, and the queue must have room for all of them.
            if self.queue.in_flight() + part.as_ref().map_or(1, |part| part.reads.len()) > DEPTH {
                return Ok(());
            }
            let alone = part.as_ref().map_or_else(|| self.bytes_of(first..first + 1), Part::bytes);
            let mut room = self.buffers.room();
            if alone > room {
                // The buckets of earlier requests are returned first, which frees memory without waiting here.
                if !self.requests.is_empty() {
                    return Ok(());
                }
                room = self.buffers.wait_for(alone, &self.stop)?;
            }
            let (request, reads) = match part {
                Some(part) => self.part(part),
                None => self.gather(room.min(REQUEST_BYTES_MAX)),
            };
            // A request waits for memory and for a free slot of the queue, which earlier buckets release as they are
            // returned. It does not wait until a task makes room for its bucket in a cache; until then, the bytes stay
            // in the buffer.
            let cause = Cause { consumer: self.consumer, step: Some(request.step), after: self.ended };
            let bytes: Vec<u64> = reads.iter().map(|read| read.bytes).collect();
            for (read, buffer) in reads.into_iter().zip(self.buffers.take_each(&bytes)) {
                // Reads may finish in any order. Tokens are consecutive, so a token identifies an index of `reads`.
                let token = self.first_token + self.reads.len() as u64;
                self.queue.submit(token, cause, self.buckets.file(first), read.offset, buffer)?;
                self.reads.push_back(read);
            }
            self.requests.push_back(request);
        }
    }

    /// Returns the part of a bucket to read; `None` to read all of it.
    fn part_of(&self, bucket: u32) -> Option<Part> {
        if self.in_parts { self.buckets.part(bucket, self.with_ids) } else { None }
    }

    /// Takes the next load, and returns the request that reads only a part of its bucket.
    fn part(&mut self, part: Part) -> (Request, Vec<Read>) {
        let Load { bucket, step } = self.upcoming.next().expect("the caller has seen it");
        let reads = part.reads.iter().map(|read| Read::new(read.blocks.clone(), read.wanted)).collect();
        (Request { buckets: bucket..bucket + 1, step, reads: part.reads.len(), part: Some(part) }, reads)
    }

    /// Takes the next loads of buckets that are adjacent on disk, and returns the request for them. The request has at
    /// most `bytes` bytes, unless a single bucket has more.
    fn gather(&mut self, bytes: u64) -> (Request, Vec<Read>) {
        let Load { bucket: first, step } = self.upcoming.next().expect("the caller has seen it");
        let mut buckets = first..first + 1;
        let until = self.until;
        // Buckets share a request if they are consecutive both on disk and in the schedule.
        while self.upcoming.peek().is_some_and(|next| next.bucket == buckets.end && next.step <= until)
            && self.is_adjacent(buckets.end)
            && self.bytes_of(first..buckets.end + 1) <= bytes
            && self.part_of(buckets.end).is_none()
        {
            self.upcoming.next();
            buckets.end += 1;
        }
        let extents = &self.buckets.extents()[buckets.start as usize..buckets.end as usize];
        let requested = extents.iter().map(|extent| extent.bytes(self.with_ids)).sum();
        let read = Read::new(self.span(buckets.clone()), requested);
        (Request { buckets, step, part: None, reads: 1 }, vec![read])
    }

    /// Returns whether a bucket and the one before it are adjacent: only padding separates their bytes.
    fn is_adjacent(&self, bucket: u32) -> bool {
        if self.buckets.at(bucket).1 == 0 {
            return false; // it is the first bucket of another file
        }
        let before = self.buckets.extent(bucket - 1);
        let gap = self.buckets.extent(bucket).offset - (before.offset + before.bytes(self.with_ids));
        gap < EXTENT_ALIGNMENT
    }

    fn bytes_of(&self, buckets: Range<u32>) -> u64 {
        let span = self.span(buckets);
        span.end - span.start
    }

    /// Returns the byte range of adjacent buckets in the file, extended to the alignment of the file.
    fn span(&self, buckets: Range<u32>) -> Range<u64> {
        // Direct reads must start and end at multiples of the alignment.
        let alignment = self.buckets.file(buckets.start).alignment() as u64;
        let last = self.buckets.extent(buckets.end - 1);
        let start = self.buckets.extent(buckets.start).offset / alignment * alignment;
        start..(last.offset + last.bytes(self.with_ids)).next_multiple_of(alignment)
    }

    fn wait_for_first(&mut self) -> Result<()> {
        let first = self.requests[0].reads;
        while self.reads.range(..first).any(|read| read.buffer.is_none()) {
            // Later requests may finish first. Their buffers are kept until it is their turn.
            let done = self.queue.wait().expect("the first request is in flight");
            let transferred = done.result?;
            let read = &mut self.reads[(done.token - self.first_token) as usize];
            self.buckets.count_read(read.requested, transferred);
            read.buffer = Some(Arc::new(self.buffers.lend(done.buffer)));
        }
        Ok(())
    }
}

/// A queue of single reads that reuses its buffers.
pub(super) struct SmallReads {
    consumer: &'static str,
    queue: Box<dyn ReadQueue>,
    spare: Vec<AlignedBuffer>,
}

impl SmallReads {
    /// Creates a queue of up to [`DEPTH`] reads in flight. Traces call the reader `consumer`.
    pub(super) fn new(context: &Context, consumer: &'static str) -> Result<Self> {
        Ok(Self { consumer, queue: context.device.read_queue(DEPTH)?, spare: Vec::new() })
    }

    /// Returns whether the queue is full, so that a read must finish before another one can start.
    pub(super) fn is_full(&self) -> bool {
        self.queue.in_flight() == DEPTH
    }

    /// Returns whether no read is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.in_flight() == 0
    }

    /// Starts reading a range of the file that contains a bucket, at the latest when [`Self::wait`] finds no finished
    /// read. In traces, `token` is the step of the consumer.
    pub(super) fn submit(&mut self, token: u64, buckets: &Buckets<'_>, bucket: u32, range: Range<u64>) -> Result<()> {
        let bytes = (range.end - range.start) as usize;
        let mut buffer = self.spare.pop().unwrap_or_else(|| AlignedBuffer::zeroed(bytes));
        buffer.resize(bytes);
        let cause = Cause { consumer: self.consumer, step: Some(token), after: None };
        Ok(self.queue.submit_later(token, cause, buckets.file(bucket), range.start, buffer)?)
    }

    /// Waits for a read, and passes its token, its bytes and the number of transferred bytes to `take`.
    pub(super) fn wait<R>(&mut self, take: impl FnOnce(u64, &[u8], u64) -> R) -> Result<R> {
        let done = self.queue.wait().expect("a read is in flight");
        let taken = take(done.token, &done.buffer, done.result?);
        self.spare.push(done.buffer);
        Ok(taken)
    }
}
