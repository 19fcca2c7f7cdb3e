//! Buckets in an order that is known beforehand: many reads in flight, neighbours on disk in one request. What was read
//! is handed on as it is; whoever works on a bucket checks and converts it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, Cause, ReadQueue};

use super::buckets::Buckets;
use super::buffers::{Buffers, Lent};
use super::part::Part;
use crate::context::Context;
use crate::error::Result;
use crate::plan::Load;
use crate::report::Cancel;
use crate::source::{IdKind, Ids};
use crate::store::format::{Bucket, EXTENT_ALIGNMENT, Extent};

/// Neighbouring buckets are read in one request up to this size, at which a disk reaches its full rate.
const REQUEST_BYTES_MAX: u64 = 256 << 10;
/// Requests in flight.
const DEPTH: usize = 32;
/// Memory in which requests are read ahead, where the budget allows it.
const AHEAD_BYTES_MAX: u64 = DEPTH as u64 * REQUEST_BYTES_MAX;
/// A request begins and ends at most so far outside of its extents.
const ALIGNMENT_BYTES: u64 = 2 * adjoin_device::BLOCK_BYTES as u64;

/// Reads buckets ahead of their use.
pub struct ReadAhead<'a, I: Iterator<Item = Load>> {
    consumer: &'static str,
    buckets: &'a Buckets<'a>,
    with_ids: bool,
    /// Whether a part of a bucket is read where that is enough.
    in_parts: bool,
    upcoming: std::iter::Peekable<I>,
    queue: Box<dyn ReadQueue>,
    /// In order, finished or not.
    requests: VecDeque<Request>,
    /// Their reads, in order; the first has the token `first_token`.
    reads: VecDeque<Read>,
    first_token: u64,
    /// The last step whose requests have all ended, as far as buckets were handed out.
    ended: Option<u64>,
    buffers: Arc<Buffers>,
    /// Loads of later steps are not begun yet.
    until: u64,
    stop: Cancel,
}

/// What is read at a time: buckets that follow each other, or a part of one.
struct Request {
    buckets: Range<u32>,
    /// The first step that needs one of them: that of the first bucket, as steps ascend.
    step: u64,
    part: Option<Part>,
    /// How many reads of the queue that takes.
    reads: usize,
}

/// A read under way, or done.
struct Read {
    offset: u64,
    bytes: u64,
    /// Bytes in it that were asked for.
    requested: u64,
    /// The bytes, once they are there.
    buffer: Option<Arc<Lent>>,
}

/// A bucket as it was read: nobody has looked at its bytes yet. Its memory goes back to those who read ahead when it and
/// its neighbours of the same request are dropped.
pub struct StoredBucket {
    number: u32,
    contents: Contents,
}

/// What was read of a bucket.
enum Contents {
    /// All of it.
    Whole(Range<usize>, Arc<Lent>),
    /// Some members: blocks of the file, each time with where the first lies.
    Part(Part, Vec<(u64, Arc<Lent>)>),
}

/// Members of a bucket that follow each other, checked.
struct Run<'a> {
    first: u32,
    vectors: &'a [u8],
    rows: Vec<u64>,
    ids: Ids,
}

impl StoredBucket {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its extent, without ids where they were not asked for.
    ///
    /// # Panics
    /// If only some of its members take part.
    pub fn bytes(&self) -> &[u8] {
        match &self.contents {
            Contents::Whole(range, buffer) => &buffer[range.clone()],
            Contents::Part(..) => panic!("a bucket is asked for as a whole where all of its members take part"),
        }
    }

    /// Checks it and takes it apart; its vectors lie in [`Self::bytes`].
    ///
    /// # Errors
    /// Where the bytes are not as written.
    pub fn decode(&self, buckets: &Buckets<'_>) -> Result<Bucket> {
        let (store, number) = buckets.at(self.number);
        store.decode(number, self.bytes())
    }

    /// The same of the members that take part alone. Where all do and some are looked for, there may be no others than these and what
    /// lies between them.
    ///
    /// # Errors
    /// Where the bytes are not as written.
    pub(crate) fn members(&self, buckets: &Buckets<'_>) -> Result<StoredMembers<'_>> {
        let Run { first, vectors, mut rows, ids } = self.run(buckets)?;
        rows.iter_mut().for_each(|row| *row += buckets.first_row(self.number));
        let (bytes, count) = (buckets.vectors().bytes(), buckets.members(self.number) as usize);
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

    /// Checks the members that were read.
    fn run(&self, buckets: &Buckets<'_>) -> Result<Run<'_>> {
        let Contents::Part(part, blocks) = &self.contents else {
            let Bucket { rows, vectors, ids } = self.decode(buckets)?;
            return Ok(Run { first: 0, vectors: &self.bytes()[vectors], rows, ids });
        };
        let ((store, number), extent, members) = (buckets.at(self.number), buckets.extent(self.number), &part.members);
        blocks.iter().try_for_each(|(offset, blocks)| store.check_blocks(*offset, blocks))?;
        let at = |range: Range<u64>| {
            let (offset, bytes) = blocks.iter().rfind(|(offset, _)| *offset <= range.start).expect("it was read");
            &bytes[(range.start - offset) as usize..(range.end - offset) as usize]
        };
        let kind = if part.with_ids { buckets.ids(self.number) } else { IdKind::None };
        let ids = extent.ids_of(members.clone(), kind);
        let ids = if ids.is_empty() { &[] } else { at(ids) };
        let (rows, ids) =
            store.decode_members((number, members.clone()), (at(extent.rows_of(members.clone())), ids))?;
        let vectors = at(extent.vectors_of(members.clone(), buckets.vectors()));
        Ok(Run { first: members.start, vectors, rows, ids })
    }
}

/// Members of a bucket as they are stored: vectors end to end, row numbers, and ids where they were read.
pub(crate) struct StoredMembers<'a> {
    /// Which of those that take part is the first.
    pub(crate) first: u32,
    pub(crate) vectors: Cow<'a, [u8]>,
    pub(crate) rows: Vec<u64>,
    pub(crate) ids: Ids,
}

impl Read {
    fn new(range: Range<u64>, requested: u64) -> Self {
        Self { offset: range.start, bytes: range.end - range.start, requested, buffer: None }
    }

    /// Where it begins, and its bytes.
    fn bytes(&self) -> (u64, Arc<Lent>) {
        (self.offset, self.buffer.as_ref().expect("it was waited for").clone())
    }
}

/// The least memory for reading ahead of these extents: the largest of them alone.
pub fn least_read_ahead(extents: &[Extent], with_ids: bool) -> u64 {
    extents.iter().map(|extent| extent.bytes(with_ids)).max().unwrap_or(0) + ALIGNMENT_BYTES
}

/// More memory for reading ahead would not make it faster.
pub fn most_read_ahead(extents: &[Extent], with_ids: bool) -> u64 {
    AHEAD_BYTES_MAX.max(least_read_ahead(extents, with_ids))
}

/// Memory for reading ahead where `free` bytes may be shared with others.
pub fn read_ahead_bytes(extents: &[Extent], with_ids: bool, free: u64) -> u64 {
    (free / 8).clamp(least_read_ahead(extents, with_ids), most_read_ahead(extents, with_ids))
}

impl<'a, I: Iterator<Item = Load>> ReadAhead<'a, I> {
    /// Reads the buckets of `upcoming`, in this order, in which steps ascend, within `memory` bytes, those that others still
    /// hold included. `stop` ends the waiting for these. A trace calls the reader `consumer`.
    ///
    /// # Errors
    /// Where the device gives no queue.
    pub fn new(
        context: &Context,
        consumer: &'static str,
        buckets: &'a Buckets<'a>,
        with_ids: bool,
        memory: u64,
        upcoming: I,
        stop: &Cancel,
    ) -> Result<Self> {
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

    /// The same for who asks for [`StoredBucket::members`] alone: a part of a bucket is read where that is enough.
    #[must_use]
    pub(crate) fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// Begins no loads of later steps than this one from now on.
    pub fn hold_after(&mut self, step: u64) {
        self.until = step;
    }

    /// Begins reads before anybody waits for one.
    ///
    /// # Errors
    /// As [`Self::next_bucket`].
    pub fn begin(&mut self) -> Result<()> {
        self.submit()
    }

    /// The next bucket; `None` after the last, or the last of the steps that it may begin.
    ///
    /// # Errors
    /// Where the device fails, or the run was stopped while all memory was in use.
    pub fn next_bucket(&mut self) -> Result<Option<StoredBucket>> {
        self.submit()?;
        if self.requests.is_empty() {
            return Ok(None);
        }
        self.wait_for_first()?;
        let following = self.requests.get(1).map(|request| request.step);
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
        if is_last {
            self.requests.pop_front();
            self.reads.drain(..reads);
            self.first_token += reads as u64;
        }
        Ok(Some(StoredBucket { number, contents }))
    }

    /// A bucket of the first read.
    fn whole(&self, number: u32) -> Contents {
        let (extent, (offset, buffer)) = (self.buckets.extent(number), self.reads[0].bytes());
        let start = (extent.offset - offset) as usize;
        let range = start..start + extent.bytes(self.with_ids) as usize;
        assert!(range.end <= buffer.len(), "a request holds its buckets whole");
        Contents::Whole(range, buffer)
    }

    /// Starts as many requests as memory and queue allow; one at least, where none is under way.
    fn submit(&mut self) -> Result<()> {
        loop {
            let until = self.until;
            let Some(&Load { bucket: first, .. }) = self.upcoming.peek().filter(|load| load.step <= until) else {
                return Ok(());
            };
            let part = self.part_of(first);
            if self.queue.in_flight() + part.as_ref().map_or(1, |part| part.reads.len()) > DEPTH {
                return Ok(());
            }
            let alone = part.as_ref().map_or_else(|| self.bytes_of(first..first + 1), Part::bytes);
            let mut room = self.buffers.room();
            if alone > room {
                if !self.requests.is_empty() {
                    return Ok(());
                }
                room = self.buffers.wait_for(alone, &self.stop)?;
            }
            let (request, reads) = match part {
                Some(part) => self.part(part),
                None => self.gather(room.min(REQUEST_BYTES_MAX)),
            };
            // A request waits for a place in memory and queue, which comes as earlier buckets are handed out. It does not
            // wait for the task after which a cache has room for its bucket: until then the bytes lie here.
            let cause = Cause { consumer: self.consumer, step: Some(request.step), after: self.ended };
            let bytes: Vec<u64> = reads.iter().map(|read| read.bytes).collect();
            for (read, buffer) in reads.into_iter().zip(self.buffers.take_each(&bytes)) {
                let token = self.first_token + self.reads.len() as u64;
                self.queue.submit(token, cause, self.buckets.file(first), read.offset, buffer)?;
                self.reads.push_back(read);
            }
            self.requests.push_back(request);
        }
    }

    /// What is read of a bucket where that is less than all of it.
    fn part_of(&self, bucket: u32) -> Option<Part> {
        if self.in_parts { self.buckets.part(bucket, self.with_ids) } else { None }
    }

    /// Begins a part of the next bucket.
    fn part(&mut self, part: Part) -> (Request, Vec<Read>) {
        let Load { bucket, step } = self.upcoming.next().expect("the caller has seen it");
        let reads = part.reads.iter().map(|read| Read::new(read.blocks.clone(), read.wanted)).collect();
        (Request { buckets: bucket..bucket + 1, step, reads: part.reads.len(), part: Some(part) }, reads)
    }

    /// The next buckets that lie one behind the other, up to `bytes`; one at least.
    fn gather(&mut self, bytes: u64) -> (Request, Vec<Read>) {
        let Load { bucket: first, step } = self.upcoming.next().expect("the caller has seen it");
        let mut buckets = first..first + 1;
        let until = self.until;
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

    /// Whether nothing but padding lies between a bucket and the one before it, of what is read.
    fn is_adjacent(&self, bucket: u32) -> bool {
        if self.buckets.at(bucket).1 == 0 {
            return false; // the first of another file
        }
        let before = self.buckets.extent(bucket - 1);
        let gap = self.buckets.extent(bucket).offset - (before.offset + before.bytes(self.with_ids));
        gap < EXTENT_ALIGNMENT
    }

    fn bytes_of(&self, buckets: Range<u32>) -> u64 {
        let span = self.span(buckets);
        span.end - span.start
    }

    /// The bytes of the file that hold some neighbouring buckets, as its alignment wants them.
    fn span(&self, buckets: Range<u32>) -> Range<u64> {
        let alignment = self.buckets.file(buckets.start).alignment() as u64;
        let last = self.buckets.extent(buckets.end - 1);
        let start = self.buckets.extent(buckets.start).offset / alignment * alignment;
        start..(last.offset + last.bytes(self.with_ids)).next_multiple_of(alignment)
    }

    fn wait_for_first(&mut self) -> Result<()> {
        let first = self.requests[0].reads;
        while self.reads.range(..first).any(|read| read.buffer.is_none()) {
            let done = self.queue.wait().expect("the first request is in flight");
            let transferred = done.result?;
            let read = &mut self.reads[(done.token - self.first_token) as usize];
            self.buckets.count_read(read.requested, transferred);
            read.buffer = Some(Arc::new(self.buffers.lend(done.buffer)));
        }
        Ok(())
    }
}

/// A queue of single reads in which buffers go round.
pub(super) struct SmallReads {
    consumer: &'static str,
    queue: Box<dyn ReadQueue>,
    spare: Vec<AlignedBuffer>,
}

impl SmallReads {
    /// Keeps up to [`DEPTH`] reads in flight. A trace calls the reader `consumer`.
    pub(super) fn new(context: &Context, consumer: &'static str) -> Result<Self> {
        Ok(Self { consumer, queue: context.device.read_queue(DEPTH)?, spare: Vec::new() })
    }

    /// Whether a read must end before another begins.
    pub(super) fn is_full(&self) -> bool {
        self.queue.in_flight() == DEPTH
    }

    /// Whether no read is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.in_flight() == 0
    }

    /// Begins to read a range of the file of a bucket, for the step of the consumer that is called `token`.
    pub(super) fn submit(&mut self, token: u64, buckets: &Buckets<'_>, bucket: u32, range: Range<u64>) -> Result<()> {
        let bytes = (range.end - range.start) as usize;
        let mut buffer = self.spare.pop().unwrap_or_else(|| AlignedBuffer::zeroed(bytes));
        buffer.resize(bytes);
        let cause = Cause { consumer: self.consumer, step: Some(token), after: None };
        Ok(self.queue.submit(token, cause, buckets.file(bucket), range.start, buffer)?)
    }

    /// Waits for a read; hands its token, its bytes and how many were transferred to `take`.
    pub(super) fn wait<R>(&mut self, take: impl FnOnce(u64, &[u8], u64) -> R) -> Result<R> {
        let done = self.queue.wait().expect("some are in flight");
        let taken = take(done.token, &done.buffer, done.result?);
        self.spare.push(done.buffer);
        Ok(taken)
    }
}
