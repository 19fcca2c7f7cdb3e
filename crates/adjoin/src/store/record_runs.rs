//! Reads runs of blocks of files of records. Several are in flight, so that the disk reads while earlier ones are used.

use std::collections::VecDeque;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, Cause, Device, ReadFile, ReadQueue, WRITE_BUFFER_BYTES};

use crate::base::error::Result;

/// Maximum number of reads in flight, and their maximum bytes, unless a single one is larger. The file is complete, so the
/// memory of the buffer with which it was written is free.
const DEPTH: usize = 4;
pub(super) const AHEAD_BYTES_MAX: u64 = WRITE_BUFFER_BYTES as u64;
/// Least bytes for which creating a queue is worthwhile.
const QUEUED_BYTES_MIN: u64 = 1 << 20;

/// Bytes of a file that are read at once.
#[derive(Clone, Copy)]
pub(super) struct BlockRun<'a> {
    pub(super) file: &'a Arc<dyn ReadFile>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl BlockRun<'_> {
    /// Returns the run, extended to the alignment of the file: such a read needs no copy.
    fn aligned(&self) -> (u64, usize) {
        let alignment = if self.file.is_direct() { self.file.alignment() as u64 } else { 1 };
        let (first, end) = (self.offset / alignment * alignment, self.offset + self.bytes);
        (first, (end.next_multiple_of(alignment).min(self.file.len().max(end)) - first) as usize)
    }
}

/// Passes the bytes of each run to `take`, with its index, in order.
///
/// # Errors
/// If a file cannot be read, or `take` fails.
pub(super) fn read_runs(
    device: &dyn Device,
    runs: &[BlockRun<'_>],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    if runs.len() < 2 || runs.iter().map(|run| run.bytes).sum::<u64>() < QUEUED_BYTES_MIN {
        let mut buffer = AlignedBuffer::zeroed(0);
        return runs.iter().enumerate().try_for_each(|(number, run)| {
            let (first, bytes) = run.aligned();
            buffer.resize(bytes);
            run.file.read_at(first, &mut buffer)?;
            take(number, within(run, &buffer))
        });
    }
    let mut ahead = RunsAhead { runs, queue: device.read_queue(DEPTH)?, next: 0, read: VecDeque::new(), bytes: 0 };
    let mut spare = None;
    for (number, run) in runs.iter().enumerate() {
        let buffer = ahead.next(number, spare)?;
        take(number, within(run, &buffer))?;
        spare = Some(buffer);
    }
    Ok(())
}

/// Returns the bytes of a run within those that were read.
fn within<'b>(run: &BlockRun<'_>, read: &'b AlignedBuffer) -> &'b [u8] {
    &read[(run.offset - run.aligned().0) as usize..][..run.bytes as usize]
}

/// Runs that are read ahead.
struct RunsAhead<'a> {
    runs: &'a [BlockRun<'a>],
    queue: Box<dyn ReadQueue>,
    /// The first run that is not submitted.
    next: usize,
    /// The submitted runs, and their bytes once they are read.
    read: VecDeque<Option<AlignedBuffer>>,
    /// Bytes of the submitted runs.
    bytes: u64,
}

impl RunsAhead<'_> {
    /// Returns the bytes of run `number`, which is the next one. `spare` is used for a later run.
    fn next(&mut self, number: usize, mut spare: Option<AlignedBuffer>) -> Result<AlignedBuffer> {
        while let Some(run) = self.runs.get(self.next)
            && (self.read.is_empty() || (self.read.len() < DEPTH && self.bytes + run.bytes <= AHEAD_BYTES_MAX))
        {
            let (first, bytes) = run.aligned();
            let mut buffer = spare.take().unwrap_or_else(|| AlignedBuffer::zeroed(0));
            buffer.resize(bytes);
            self.queue.submit(self.next as u64, Cause::UNKNOWN, run.file, first, buffer)?;
            self.read.push_back(None);
            self.bytes += run.bytes;
            self.next += 1;
        }
        while self.read[0].is_none() {
            let done = self.queue.wait().expect("the run is in flight");
            done.result?;
            self.read[done.token as usize - number] = Some(done.buffer);
        }
        self.bytes -= self.runs[number].bytes;
        Ok(self.read.pop_front().flatten().expect("the run was read"))
    }
}
