//! Many reads in flight, of objects and of files.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use adjoin_device::{AlignedBuffer, Cause, Completion, DeviceError, ReadFile, ReadQueue};

use crate::ahead::CLIENT_BYTES;
use crate::file::ObjectFile;

/// Maximum number of requests in flight per queue. A store answers a request within tens of milliseconds, so more
/// requests would only use more memory for connections.
const REQUESTS_MAX: usize = 32;

/// Memory of a full queue in addition to its buffers: the client, and the bytes of each request that have arrived but
/// are not copied yet. With 32 requests, 15 MB were measured.
pub(crate) const READING_BYTES: u64 = CLIENT_BYTES + REQUESTS_MAX as u64 * ARRIVING_BYTES;
/// Memory of a request for bytes that are not copied yet, and for the buffers of its connection.
const ARRIVING_BYTES: u64 = 256 << 10;

/// Reads objects itself, and passes reads of files on.
pub(crate) struct ObjectQueue {
    files: Box<dyn ReadQueue>,
    requests_max: usize,
    requests: usize,
    sender: Sender<Completion>,
    done: Receiver<Completion>,
    ready: VecDeque<Completion>,
}

impl ObjectQueue {
    pub(crate) fn new(files: Box<dyn ReadQueue>, depth: usize) -> Self {
        let (sender, done) = channel();
        let requests_max = depth.clamp(1, REQUESTS_MAX);
        Self { files, requests_max, requests: 0, sender, done, ready: VecDeque::new() }
    }

    fn next_answer(&mut self) -> Completion {
        let done = self.done.recv().expect("this queue holds a sender itself");
        self.requests -= 1;
        done
    }
}

impl ReadQueue for ObjectQueue {
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        mut buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        let Some(file) = (&**file as &dyn Any).downcast_ref::<ObjectFile>() else {
            return self.files.submit(token, cause, file, offset, buffer);
        };
        file.object.check_process(offset)?;
        while self.requests >= self.requests_max {
            let done = self.next_answer();
            self.ready.push_back(done);
        }
        let (object, sender) = (file.object.clone(), self.sender.clone());
        file.object.stores.runtime().spawn(async move {
            let result = object.fill(offset, &mut buffer).await;
            let _ = sender.send(Completion { token, buffer, result }); // fails if the queue was dropped
        });
        self.requests += 1;
        Ok(())
    }

    fn wait(&mut self) -> Option<Completion> {
        if let Some(done) = self.ready.pop_front() {
            return Some(done);
        }
        if self.requests > 0 && self.files.in_flight() > 0 {
            // Reads of files complete sooner than reads of objects. So this waits for a file, unless an object has
            // arrived already.
            if let Ok(done) = self.done.try_recv() {
                self.requests -= 1;
                return Some(done);
            }
            return self.files.wait();
        }
        if self.requests > 0 { Some(self.next_answer()) } else { self.files.wait() }
    }

    fn in_flight(&self) -> usize {
        self.files.in_flight() + self.requests + self.ready.len()
    }
}
