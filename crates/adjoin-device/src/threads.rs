//! Queue that reads with a few threads. Each thread performs one blocking read at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::aligned::AlignedBuffer;
use crate::creator::Creator;
use crate::device::{Cause, Completion, ReadFile, ReadQueue};
use crate::error::DeviceError;

/// Maximum number of threads per queue. More threads would cost processor time, while this number keeps an SSD busy.
const THREADS_MAX: usize = 4;
/// Stack size of a thread in bytes. Small, since a thread only reads.
const STACK_BYTES: usize = 256 << 10;

struct Job {
    token: u64,
    file: Arc<dyn ReadFile>,
    offset: u64,
    buffer: AlignedBuffer,
}

pub(crate) struct ThreadQueue {
    creator: Creator,
    depth: usize,
    /// Number of reads that were sent to the threads, minus the completions that were received.
    running: usize,
    /// Sender of reads to the threads. `None` if the queue is being dropped, which ends the threads, or in a forked
    /// child.
    jobs: Option<Sender<Job>>,
    done: Receiver<Completion>,
    ready: VecDeque<Completion>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadQueue {
    pub(crate) fn new(depth: usize) -> io::Result<Self> {
        let (job_sender, jobs) = unbounded();
        let (done_sender, done) = unbounded();
        let mut queue = Self {
            creator: Creator::this_process(),
            depth,
            running: 0,
            jobs: Some(job_sender),
            done,
            ready: VecDeque::new(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..depth.min(THREADS_MAX) {
            let (jobs, done, stop) = (jobs.clone(), done_sender.clone(), queue.stop.clone());
            let builder = Builder::new().name("adjoin read".into()).stack_size(STACK_BYTES);
            queue.threads.push(builder.spawn(move || work(&jobs, &done, &stop))?);
        }
        Ok(queue)
    }

    /// Gives up the threads if this is a forked child, which has none of them. Reads that were running never end
    /// there.
    fn abandon_if_forked(&mut self) {
        if self.creator.is_this_process() || self.jobs.is_none() {
            return;
        }
        self.running = 0;
        self.threads.drain(..).for_each(std::mem::forget);
        // The channels are leaked, since a thread of the parent may have held one of their internal locks.
        std::mem::forget((self.jobs.take(), std::mem::replace(&mut self.done, unbounded().1)));
    }

    fn next_done(&mut self) -> Completion {
        let done = self.done.recv().expect("a thread ends only when the queue does");
        self.running -= 1;
        done
    }
}

/// Performs reads until the queue is dropped.
fn work(jobs: &Receiver<Job>, done: &Sender<Completion>, stop: &AtomicBool) {
    for Job { token, file, offset, mut buffer } in jobs {
        if stop.load(Ordering::Relaxed) {
            continue; // the queue is being dropped, so nothing waits for this read
        }
        let result = file.read_at(offset, &mut buffer);
        let _ = done.send(Completion { token, buffer, result });
    }
}

impl ReadQueue for ThreadQueue {
    fn submit(
        &mut self,
        token: u64,
        _cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        mut buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.abandon_if_forked();
        if self.jobs.is_none() {
            let result = file.read_at(offset, &mut buffer);
            self.ready.push_back(Completion { token, buffer, result });
            return Ok(());
        }
        // The channel is unbounded. This loop limits the number of buffers in use to the depth.
        while self.running == self.depth {
            let done = self.next_done();
            self.ready.push_back(done);
        }
        let jobs = self.jobs.as_ref().expect("the threads were not given up, as checked above");
        let sent = jobs.send(Job { token, file: file.clone(), offset, buffer });
        assert!(sent.is_ok(), "a thread ends only when the queue does");
        self.running += 1;
        Ok(())
    }

    fn wait(&mut self) -> Option<Completion> {
        self.abandon_if_forked();
        self.ready.pop_front().or_else(|| (self.running > 0).then(|| self.next_done()))
    }

    fn in_flight(&self) -> usize {
        self.running + self.ready.len()
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.abandon_if_forked();
        // Threads skip the reads that they have not begun, so that dropping waits for at most one read per thread.
        self.stop.store(true, Ordering::Relaxed);
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // if the thread panicked, it has printed the message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_file::OpenFile;

    #[test]
    fn a_forked_child_reads_without_the_threads_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 8192]).unwrap();
        let file: Arc<dyn ReadFile> = Arc::new(OpenFile::open(&path).unwrap());
        let mut queue = ThreadQueue::new(2).unwrap();
        queue.submit(0, Cause::UNKNOWN, &file, 0, AlignedBuffer::zeroed(4096)).unwrap();
        queue.creator = Creator::another_process();
        queue.submit(1, Cause::UNKNOWN, &file, 4096, AlignedBuffer::zeroed(4096)).unwrap();
        let ends: Vec<_> = std::iter::from_fn(|| queue.wait()).map(|end| (end.token, end.result.is_ok())).collect();
        assert_eq!(ends, [(1, true)]);
        assert!(queue.threads.is_empty() && queue.in_flight() == 0);
    }
}
