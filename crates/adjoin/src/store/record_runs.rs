//! Reads runs of blocks of files of records. Several are in flight, so that the disk reads while earlier ones are used.

use std::collections::VecDeque;
use std::ops::Range;
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
pub(super) struct BlockRun<'a> {
    pub(super) file: &'a Arc<dyn ReadFile>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl BlockRun<'_> {
    /// Returns the bytes of the file to read.
    fn blocks(&self) -> Range<u64> {
        self.file.blocks_of(self.offset..self.offset + self.bytes)
    }

    /// Returns the run within the bytes that were read.
    fn within<'b>(&self, read: &'b AlignedBuffer) -> &'b [u8] {
        &read[(self.offset - self.blocks().start) as usize..][..self.bytes as usize]
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
            let blocks = run.blocks();
            buffer.resize((blocks.end - blocks.start) as usize);
            run.file.read_at(blocks.start, &mut buffer)?;
            take(number, run.within(&buffer))
        });
    }
    let mut ahead = RunsAhead { runs, queue: device.read_queue(DEPTH)?, read: VecDeque::new() };
    let mut spare = None;
    for (number, run) in runs.iter().enumerate() {
        let buffer = ahead.next(number, spare)?;
        take(number, run.within(&buffer))?;
        spare = Some(buffer);
    }
    Ok(())
}

/// Runs that are read ahead.
struct RunsAhead<'a> {
    runs: &'a [BlockRun<'a>],
    queue: Box<dyn ReadQueue>,
    /// The bytes of the runs that are submitted and not yet returned, once they are read.
    read: VecDeque<Option<AlignedBuffer>>,
}

impl RunsAhead<'_> {
    /// Returns the bytes of run `number`, which is the next one. `spare` is used for a later run.
    fn next(&mut self, number: usize, mut spare: Option<AlignedBuffer>) -> Result<AlignedBuffer> {
        while self.read.len() < DEPTH
            && let Some(run) = self.runs.get(number + self.read.len())
        {
            let last = number + self.read.len();
            let ahead: u64 = self.runs[number..=last].iter().map(|run| run.bytes).sum();
            if last > number && ahead > AHEAD_BYTES_MAX {
                break;
            }
            let blocks = run.blocks();
            let mut buffer = spare.take().unwrap_or_else(|| AlignedBuffer::zeroed(0));
            buffer.resize((blocks.end - blocks.start) as usize);
            self.queue.submit(last as u64, Cause::UNKNOWN, run.file, blocks.start, buffer)?;
            self.read.push_back(None);
        }
        while self.read[0].is_none() {
            let done = self.queue.wait().expect("the run is in flight");
            done.result?;
            self.read[done.token as usize - number] = Some(done.buffer);
        }
        Ok(self.read.pop_front().flatten().expect("the run was read"))
    }
}
