//! Queue that reads through an io_uring ring. One system call can start many reads, and one waits until any of them
//! ends.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, types};

use crate::aligned::AlignedBuffer;
use crate::creator::Creator;
use crate::device::{Cause, Completion, ReadFile, ReadQueue};
use crate::error::DeviceError;
use crate::read_file::OpenFile;

/// Maximum bytes per request. The kernel reads at most 2 GiB, and reports the length in 31 bits.
const REQUEST_BYTES_MAX: usize = 1 << 30;
/// Maximum number of entries of a ring that its thread keeps. Such a ring takes up to 28 KiB.
const KEPT_ENTRIES_MAX: u32 = 256;
/// Maximum number of attempts for a read that the kernel keeps postponing. After that, the read fails.
const ATTEMPTS_MAX: u32 = 1000;

/// A read submitted to the kernel.
struct Slot {
    token: u64,
    file: Arc<dyn ReadFile>,
    offset: u64,
    buffer: AlignedBuffer,
    filled: usize,
    attempts: u32,
}

/// A ring for a number of reads.
struct Ring {
    ring: IoUring,
    entries: u32,
    creator: Creator,
}

thread_local! {
    /// The ring of the last queue of this thread. The next queue takes it, since creating and removing a ring would take
    /// a considerable part of the search of one query.
    static KEPT: Cell<Option<Ring>> = const { Cell::new(None) };
}

impl Ring {
    /// Takes the ring that this thread keeps, if it has this number of entries. Otherwise creates one.
    fn take(entries: u32) -> io::Result<Self> {
        let creator = Creator::this_process();
        // A forked child drops its copy of the ring of its parent.
        let kept = KEPT.try_with(Cell::take).ok().flatten();
        if let Some(kept) = kept.filter(|kept| kept.entries == entries && kept.creator == creator) {
            return Ok(kept);
        }
        // Threads need not be interrupted for events, because only `reap` checks for them, and it does so by a system
        // call. Old kernels do not support this flag.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))?;
        Ok(Self { ring, entries, creator })
    }

    /// Lets this thread keep the ring. No read may be in flight.
    fn keep(self) {
        if self.entries <= KEPT_ENTRIES_MAX {
            // A thread that ends keeps nothing.
            let _ = KEPT.try_with(|kept| kept.set(Some(self)));
        }
    }
}

pub(crate) struct UringQueue {
    /// `None` once the ring has failed. Then `submit` performs reads itself.
    ring: Option<Ring>,
    /// One slot per read that may be in flight. The kernel may write to the buffer of an occupied slot.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    ready: VecDeque<Completion>,
}

/// What a completion event means for its read.
enum Progress {
    Ended(io::Result<()>),
    Rest,
}

impl UringQueue {
    /// Checks whether the kernel permits io_uring.
    pub(crate) fn probe() -> io::Result<()> {
        // Creating a ring is not enough: seccomp filters and old kernels may refuse reads on it.
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        match probe.is_supported(opcode::Read::CODE) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    pub(crate) fn new(depth: usize) -> io::Result<Self> {
        let ring = Ring::take(depth.next_power_of_two() as u32)?;
        let slots = std::iter::repeat_with(|| None).take(depth).collect();
        Ok(Self { ring: Some(ring), slots, free: (0..depth).collect(), ready: VecDeque::new() })
    }

    /// Adds a request for the missing bytes of a slot to the ring. The read starts with the next system call.
    fn push(&mut self, place: usize) {
        let Some(Ring { ring, .. }) = &mut self.ring else {
            unreachable!("reads are pushed only to a ring that works")
        };
        let slot = self.slots[place].as_mut().expect("a place that is pushed is taken");
        let file = own_file(&slot.file).expect("only our files have slots");
        let descriptor = types::Fd(file.file.as_raw_fd());
        let rest = &mut slot.buffer[slot.filled..];
        // A shorter request is allowed: `progress` then asks for the rest.
        let bytes = rest.len().min(REQUEST_BYTES_MAX) as u32;
        let entry = opcode::Read::new(descriptor, rest.as_mut_ptr(), bytes)
            .offset(slot.offset + slot.filled as u64)
            .build()
            .user_data(place as u64);
        // SAFETY: the slot owns the memory and the descriptor. It is kept until the kernel has reported the end of
        // this read (`complete`). If the kernel may never report it, the memory is leaked (`abandon`). Nothing else
        // accesses the buffer in the meantime: the heap memory does not move when the slot moves, `Drop` waits, and
        // forgetting the queue forgets its slots too.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for each place");
    }

    /// Waits for at least one completion event, and processes all events that have arrived.
    fn reap(&mut self) {
        let Some(Ring { ring, .. }) = &mut self.ring else { return };
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            // The kernel is short of resources, or a signal arrived. Events of earlier reads may have arrived
            // nevertheless.
            Err(error) if is_passing(&error) => std::thread::yield_now(),
            Err(error) => return self.abandon(&error),
        }
        while let Some(event) = self.next_event() {
            self.complete(event.user_data() as usize, event.result());
        }
    }

    fn next_event(&mut self) -> Option<cqueue::Entry> {
        self.ring.as_mut()?.ring.completion().next()
    }

    fn complete(&mut self, place: usize, result: i32) {
        let slot = self.slots[place].as_mut().expect("events arrive for taken places only");
        match slot.progress(result) {
            Progress::Rest => self.push(place),
            Progress::Ended(ended) => {
                let slot = self.slots[place].take().expect("the place is taken, as checked above");
                self.free.push(place);
                let file = own_file(&slot.file).expect("only our files have slots");
                let bytes = slot.buffer.len() as u64;
                let result = ended.map(|()| bytes).map_err(|source| file.failed(slot.offset, source));
                self.ready.push_back(Completion { token: slot.token, buffer: slot.buffer, result });
            }
        }
    }

    /// Gives up the ring. All reads in flight fail. Their buffers are leaked, because the kernel may still write to
    /// them.
    fn abandon(&mut self, error: &io::Error) {
        self.ring = None;
        for place in 0..self.slots.len() {
            let Some(slot) = self.slots[place].take() else { continue };
            self.free.push(place);
            std::mem::forget(slot.buffer);
            let source = io::Error::new(error.kind(), format!("io_uring failed: {error}"));
            let result = Err(own_file(&slot.file).expect("only our files have slots").failed(slot.offset, source));
            self.ready.push_back(Completion { token: slot.token, buffer: AlignedBuffer::zeroed(0), result });
        }
    }

    /// Gives up the ring if this is a forked child: the entries and events of the ring belong to the parent.
    fn abandon_if_forked(&mut self) {
        if let Some(ring) = &self.ring
            && let Err(forked) = ring.creator.check()
        {
            self.abandon(&forked);
        }
    }

    fn with_kernel(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Slot {
    /// Processes the result of a completion event, which is a number of bytes or a negative error number.
    fn progress(&mut self, result: i32) -> Progress {
        let file = own_file(&self.file).expect("only our files have slots");
        let Ok(bytes) = usize::try_from(result) else {
            let error = io::Error::from_raw_os_error(-result);
            self.attempts += 1;
            // The number of attempts is bounded, so that a device that stays busy causes an error and not an endless
            // loop.
            let again = is_passing(&error) && self.attempts < ATTEMPTS_MAX;
            return if again { Progress::Rest } else { Progress::Ended(Err(error)) };
        };
        self.filled += bytes;
        assert!(self.filled <= self.buffer.len(), "more bytes were read than requested");
        if self.filled == self.buffer.len() {
            Progress::Ended(Ok(()))
        } else if bytes == 0 || file.ends_after(self.filled) {
            Progress::Ended(Err(io::Error::from(io::ErrorKind::UnexpectedEof)))
        } else {
            Progress::Rest
        }
    }
}

impl ReadQueue for UringQueue {
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.submit_later(token, cause, file, offset, buffer)?;
        if let Some(Ring { ring, .. }) = &self.ring {
            // If this fails, the entries remain in the ring. The next call submits them or reports the error.
            let _ = ring.submit();
        }
        Ok(())
    }

    fn submit_later(
        &mut self,
        token: u64,
        _cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        mut buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.abandon_if_forked();
        let within = offset.checked_add(buffer.len() as u64).is_some_and(|end| i64::try_from(end).is_ok());
        // A read is performed at once if it needs a copy because it is unaligned, or if the file has no descriptor
        // because it belongs to another device.
        let for_ring = within && !buffer.is_empty() && own_file(file).is_some_and(|own| own.takes(offset, &buffer));
        while for_ring && self.ring.is_some() && self.free.is_empty() {
            self.reap();
        }
        if !for_ring || self.ring.is_none() {
            let result = file.read_at(offset, &mut buffer);
            self.ready.push_back(Completion { token, buffer, result });
            return Ok(());
        }
        let place = self.free.pop().expect("the loop above waited for a free place");
        self.slots[place] = Some(Slot { token, file: file.clone(), offset, buffer, filled: 0, attempts: 0 });
        self.push(place);
        Ok(())
    }

    fn wait(&mut self) -> Option<Completion> {
        self.abandon_if_forked();
        while self.ready.is_empty() && self.with_kernel() > 0 {
            self.reap();
        }
        self.ready.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.with_kernel() + self.ready.len()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        self.abandon_if_forked();
        while self.with_kernel() > 0 {
            self.reap();
        }
        self.ring.take().into_iter().for_each(Ring::keep);
    }
}

/// Returns the file as this device's own type; `None` if it belongs to another device and so has no descriptor.
fn own_file(file: &Arc<dyn ReadFile>) -> Option<&OpenFile> {
    let any: &dyn Any = &**file;
    any.downcast_ref()
}

/// Returns whether the error is transient: the call was interrupted, or the kernel was busy.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock | ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EINTR: i32 = 4;
    const EIO: i32 = 5;
    const EAGAIN: i32 = 11;

    fn slot(bytes: usize) -> (tempfile::TempDir, Slot) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 3 * 4096]).unwrap();
        let file: Arc<dyn ReadFile> = Arc::new(OpenFile::open(&path).unwrap());
        let buffer = AlignedBuffer::zeroed(bytes);
        (folder, Slot { token: 1, file, offset: 0, buffer, filled: 0, attempts: 0 })
    }

    #[test]
    fn a_short_read_continues_and_end_of_file_is_an_error() {
        let (_folder, mut slot) = slot(3 * 4096);
        assert!(matches!(slot.progress(4096), Progress::Rest));
        assert!(matches!(slot.progress(-EINTR), Progress::Rest));
        assert!(matches!(slot.progress(-EAGAIN), Progress::Rest));
        assert_eq!(slot.filled, 4096);
        assert!(matches!(slot.progress(8192), Progress::Ended(Ok(()))));

        let (_folder, mut slot) = self::slot(2 * 4096);
        assert!(matches!(slot.progress(4096), Progress::Rest));
        let Progress::Ended(Err(error)) = slot.progress(0) else { panic!("the file has ended") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn errors_and_too_many_retries_end_a_read() {
        let (_folder, mut slot) = slot(4096);
        let Progress::Ended(Err(error)) = slot.progress(-EIO) else { panic!("an error ends it") };
        assert_eq!(error.raw_os_error(), Some(EIO));
        let delays = std::iter::repeat_with(|| slot.progress(-EAGAIN));
        assert!(delays.take(ATTEMPTS_MAX as usize).any(|progress| matches!(progress, Progress::Ended(Err(_)))));
    }

    #[test]
    fn a_failed_ring_completes_every_read() {
        let Ok(mut queue) = UringQueue::new(4) else { return eprintln!("skipped: io_uring is refused") };
        let (_folder, slot) = slot(4096);
        for token in 0..3 {
            queue.submit(token, Cause::UNKNOWN, &slot.file, 0, AlignedBuffer::zeroed(4096)).unwrap();
        }
        queue.abandon(&io::Error::other("test"));
        queue.submit(3, Cause::UNKNOWN, &slot.file, 4096, AlignedBuffer::zeroed(4096)).unwrap();
        let mut ends: Vec<_> = std::iter::from_fn(|| queue.wait()).collect();
        ends.sort_by_key(|end| end.token);
        assert_eq!(ends.iter().map(|end| end.token).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(ends.iter().map(|end| end.result.is_ok()).collect::<Vec<_>>(), [false, false, false, true]);
        assert!(queue.in_flight() == 0 && queue.wait().is_none());
    }

    #[test]
    fn a_thread_keeps_its_ring_for_the_next_queue() {
        let Ok(mut queue) = UringQueue::new(4) else { return eprintln!("skipped: io_uring is refused") };
        let (_folder, slot) = slot(4096);
        let descriptor = |queue: &UringQueue| queue.ring.as_ref().unwrap().ring.as_raw_fd();
        let first = descriptor(&queue);
        // Reads that nobody waits for end before the ring is kept.
        for token in 0..3 {
            queue.submit_later(token, Cause::UNKNOWN, &slot.file, 0, AlignedBuffer::zeroed(4096)).unwrap();
        }
        drop(queue);
        let mut queue = UringQueue::new(3).unwrap(); // both need four entries
        assert_eq!((descriptor(&queue), queue.in_flight()), (first, 0));
        queue.submit(7, Cause::UNKNOWN, &slot.file, 4096, AlignedBuffer::zeroed(4096)).unwrap();
        assert_eq!(queue.wait().map(|end| (end.token, end.result.is_ok())), Some((7, true)));
        // A ring that failed is not kept, nor is the ring of a parent.
        queue.abandon(&io::Error::other("test"));
        drop(queue);
        assert!(KEPT.take().is_none());
        let mut ring = Ring::take(4).unwrap();
        ring.creator = Creator::another_process();
        ring.keep();
        assert_eq!(Ring::take(4).unwrap().creator, Creator::this_process());
    }

    #[test]
    fn a_forked_child_reads_without_the_ring_of_its_parent() {
        let Ok(mut queue) = UringQueue::new(4) else { return eprintln!("skipped: io_uring is refused") };
        let (_folder, slot) = slot(4096);
        queue.submit(0, Cause::UNKNOWN, &slot.file, 0, AlignedBuffer::zeroed(4096)).unwrap();
        queue.ring.as_mut().unwrap().creator = Creator::another_process();
        queue.submit(1, Cause::UNKNOWN, &slot.file, 4096, AlignedBuffer::zeroed(4096)).unwrap();
        let ends: Vec<_> = std::iter::from_fn(|| queue.wait()).map(|end| (end.token, end.result.is_ok())).collect();
        assert_eq!(ends, [(0, false), (1, true)]);
        assert!(queue.ring.is_none() && queue.in_flight() == 0);
    }
}
