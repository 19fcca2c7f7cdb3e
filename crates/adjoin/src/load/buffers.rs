//! A pool of read buffers. The reader passes a filled buffer to the thread that processes it, and that thread returns
//! it to the pool.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use adjoin_device::{AlignedBuffer, BLOCK_BYTES};

use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::report::Cancel;

/// Interval at which a thread that waits for memory checks whether the run was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum capacity of a reused buffer, as a multiple of the bytes that it is needed for.
const CAPACITY_MAX: u64 = 2;

/// A pool of buffers with a limit on their total size. Each buffer is either lent to a thread or spare.
pub(super) struct Buffers {
    memory: u64,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes of lent buffers.
    lent: u64,
    /// Bytes of spare buffers.
    spare_bytes: u64,
    spare: Vec<AlignedBuffer>,
}

/// A filled buffer, returned to the pool when dropped.
pub(super) struct BorrowedBuffer {
    buffer: AlignedBuffer,
    of: Arc<Buffers>,
}

impl Deref for BorrowedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for BorrowedBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::replace(&mut self.buffer, AlignedBuffer::zeroed(0));
        let mut state = lock(&self.of.state);
        let bytes = buffer.capacity() as u64;
        assert!(state.lent >= bytes, "no more bytes are returned than were lent");
        state.lent -= bytes;
        state.spare_bytes += bytes;
        state.spare.push(buffer);
        // The lock is released before other threads are woken, so that they need not wait for it.
        drop(state);
        self.of.returned.notify_all();
    }
}

impl Buffers {
    /// Creates an empty pool. Its buffers take at most `memory` bytes in total, except that one larger buffer may be
    /// taken alone.
    pub(super) fn within(memory: u64) -> Arc<Self> {
        Arc::new(Self { memory, state: Mutex::default(), returned: Condvar::new() })
    }

    /// Returns how many bytes can be taken now.
    pub(super) fn room(&self) -> u64 {
        self.room_beside(lock(&self.state).lent)
    }

    /// Returns how many bytes can be taken if `lent` bytes are lent. If no buffer is lent, a buffer larger than the
    /// limit can be taken.
    fn room_beside(&self, lent: u64) -> u64 {
        // Otherwise a bucket larger than the limit could never be read.
        if lent == 0 { u64::MAX } else { self.memory.saturating_sub(lent) }
    }

    /// Waits until `bytes` can be taken. Returns how many bytes can be taken then.
    ///
    /// # Errors
    /// Fails if the run is stopped meanwhile.
    pub(super) fn wait_for(&self, bytes: u64, stop: &Cancel) -> Result<u64> {
        let mut state = lock(&self.state);
        loop {
            let room = self.room_beside(state.lent);
            if bytes <= room {
                return Ok(room);
            }
            // A worker that failed may never return its buffers, so a waiting thread must check whether the run was
            // stopped.
            stop.check()?;
            (state, _) = self.returned.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes buffers of these sizes. The caller must have checked that they fit. For each size, takes the smallest
    /// spare buffer that suffices and is not much larger, or a new one. Frees spare buffers if a new buffer needs their
    /// memory.
    pub(super) fn take_each(&self, bytes: &[u64]) -> Vec<AlignedBuffer> {
        // Buffers consist of whole blocks, so sizes are rounded up to blocks.
        let blocks = |bytes: &u64| bytes.next_multiple_of(BLOCK_BYTES as u64);
        let mut left: u64 = bytes.iter().map(blocks).sum();
        let take = |bytes: &u64| {
            left -= blocks(bytes);
            self.take_before(*bytes, left)
        };
        bytes.iter().map(take).collect()
    }

    /// Takes a buffer of `bytes`. Leaves room for further buffers of `left` bytes in total, unless the limit is too
    /// small for them.
    fn take_before(&self, bytes: u64, left: u64) -> AlignedBuffer {
        let mut state = lock(&self.state);
        // A large spare buffer for a small read could leave too little for the other reads of the request, and for later
        // reads: a whole buffer counts as lent.
        let room = if left == 0 { u64::MAX } else { self.memory.saturating_sub(state.lent + left) };
        let room = room.min(CAPACITY_MAX * bytes.next_multiple_of(BLOCK_BYTES as u64));
        let suffices = |buffer: &&AlignedBuffer| (bytes..=room).contains(&(buffer.capacity() as u64));
        // Takes the smallest buffer that suffices, so that large buffers remain for large reads.
        let best = state.spare.iter().filter(suffices).map(AlignedBuffer::capacity).min();
        let found = best.and_then(|best| state.spare.iter().position(|buffer| buffer.capacity() == best));
        let buffer = match found {
            Some(at) => {
                let mut buffer = state.spare.swap_remove(at);
                state.spare_bytes -= buffer.capacity() as u64;
                buffer.resize(bytes as usize);
                buffer
            }
            None => {
                let wanted = bytes.next_multiple_of(BLOCK_BYTES as u64);
                while state.lent + state.spare_bytes + wanted > self.memory
                    && let Some(buffer) = state.spare.pop()
                {
                    state.spare_bytes -= buffer.capacity() as u64;
                }
                AlignedBuffer::zeroed(bytes as usize)
            }
        };
        state.lent += buffer.capacity() as u64;
        buffer
    }

    /// Wraps a filled buffer, so that it returns to the pool when it is dropped.
    pub(super) fn lend(self: &Arc<Self>, buffer: AlignedBuffer) -> BorrowedBuffer {
        BorrowedBuffer { buffer, of: self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buffers: &Buffers, bytes: u64) -> AlignedBuffer {
        buffers.take_each(&[bytes]).remove(0)
    }

    #[test]
    fn takes_several_buffers_within_the_memory_limit() {
        let buffers = Buffers::within(8 * 4096);
        drop(buffers.lend(take(&buffers, 6 * 4096)));
        let several = buffers.take_each(&[4096, 2 * 4096, 5 * 4096]);
        assert_eq!(several.iter().map(AlignedBuffer::capacity).sum::<usize>(), 8 * 4096);
        assert_eq!(buffers.room(), 0);
    }

    #[test]
    fn a_small_read_takes_no_large_buffer() {
        let buffers = Buffers::within(8 * 4096);
        drop(buffers.lend(take(&buffers, 8 * 4096)));
        let small: Vec<_> = (0..8).map(|_| take(&buffers, 4096)).collect();
        assert_eq!((buffers.room(), small.iter().map(AlignedBuffer::capacity).sum::<usize>()), (0, 8 * 4096));
    }

    #[test]
    fn buffers_are_reused_within_their_memory() {
        let buffers = Buffers::within(8 * 4096);
        assert_eq!(buffers.room(), u64::MAX, "one may be as large as it must");
        let first = take(&buffers, 3 * 4096);
        let address = first.as_ptr();
        assert_eq!(buffers.room(), 5 * 4096);
        drop(buffers.lend(first));
        let again = take(&buffers, 2 * 4096);
        assert_eq!((again.as_ptr(), again.len()), (address, 2 * 4096), "the same memory");
        let (second, third) = (take(&buffers, 4096), take(&buffers, 4 * 4096));
        assert_eq!(buffers.room(), 0);
        drop((buffers.lend(again), buffers.lend(second)));
        let large = take(&buffers, 4 * 4096);
        let state = lock(&buffers.state);
        assert_eq!((state.lent, state.spare_bytes), (8 * 4096, 0), "spare ones made room");
        drop(state);
        drop((large, third));
    }

    #[test]
    fn waiting_ends_if_a_buffer_is_returned_or_the_run_stops() {
        let buffers = Buffers::within(4096);
        let lent = buffers.lend(take(&buffers, 4096));
        let stop = Cancel::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| buffers.wait_for(4096, &stop));
            drop(lent);
            assert_eq!(waiter.join().unwrap().unwrap(), u64::MAX);
        });
        let _lent = buffers.lend(take(&buffers, 4096));
        stop.cancel();
        assert!(buffers.wait_for(1, &stop).is_err());
    }
}
