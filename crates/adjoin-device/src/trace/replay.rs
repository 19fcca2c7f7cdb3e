//! Replays the reads of a trace.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::parse::{Trace, TracedOperation};
use crate::aligned::AlignedBuffer;
use crate::device::{Cause, Completion, Device, ReadFile, ReadQueue};
use crate::error::{DeviceError, Operation};

/// Maximum length of a read of a replay, in bytes. Longer reads of the trace are issued in pieces of this size.
const PIECE_BYTES: u64 = 16 << 20;

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplayReport {
    /// Number of reads of the trace that were replayed, including failed ones.
    pub reads: u64,
    /// Number of bytes transferred, including those read only for alignment.
    pub bytes: u64,
    /// Number of failures. Each piece of a long read counts separately.
    pub errors: u64,
    /// Message of the first failure.
    pub first_error: Option<String>,
    /// Seconds from the start of the first read to the end of the last.
    pub seconds: f64,
}

/// Repeats the reads of `trace`, in their order and as fast as `device` accepts them, with up to `depth` in flight.
/// Reads that failed when they were recorded are left out. `place` maps a file name of the trace to its current path.
/// Holds `depth` buffers in memory, each at most 16 MiB long.
///
/// # Errors
/// If the device cannot create a queue. A missing file or a failed read is counted and does not end the replay.
pub fn replay(
    trace: &Trace,
    device: &dyn Device,
    depth: usize,
    place: impl Fn(&Path) -> PathBuf,
) -> Result<ReplayReport, DeviceError> {
    let queue = device.read_queue(depth)?;
    let mut replay = Replay { queue, depth: depth.max(1), files: HashMap::new(), report: ReplayReport::default() };
    let begun = Instant::now();
    for read in trace.operations().iter().filter(|asked| asked.operation == Operation::Read && asked.ok) {
        if let Err(error) = replay.read(read, device, &place(trace.name(read.file))) {
            replay.fail(&error);
        }
    }
    while let Some(done) = replay.queue.wait() {
        replay.count(done);
    }
    replay.report.seconds = begun.elapsed().as_secs_f64();
    Ok(replay.report)
}

struct Replay {
    queue: Box<dyn ReadQueue>,
    depth: usize,
    files: HashMap<usize, Arc<dyn ReadFile>>,
    report: ReplayReport,
}

impl Replay {
    fn read(&mut self, read: &TracedOperation, device: &dyn Device, path: &Path) -> Result<(), DeviceError> {
        self.report.reads += 1;
        let file = match self.files.get(&read.file) {
            Some(file) => file.clone(),
            None => self.files.entry(read.file).or_insert(device.open(path)?).clone(),
        };
        // Checked before memory is allocated, because a trace may contain any length.
        if read.offset.checked_add(read.bytes).is_none_or(|end| end > file.len()) {
            return Err(DeviceError::read(path, read.offset, ErrorKind::UnexpectedEof.into()));
        }
        for at in (0..read.bytes).step_by(PIECE_BYTES as usize) {
            while self.queue.in_flight() >= self.depth
                && let Some(done) = self.queue.wait()
            {
                self.count(done);
            }
            let buffer = AlignedBuffer::zeroed((read.bytes - at).min(PIECE_BYTES) as usize);
            self.queue.submit(0, Cause::UNKNOWN, &file, read.offset + at, buffer)?;
        }
        Ok(())
    }

    fn count(&mut self, done: Completion) {
        match done.result {
            Ok(bytes) => self.report.bytes += bytes,
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &DeviceError) {
        self.report.errors += 1;
        self.report.first_error.get_or_insert_with(|| error.to_string());
    }
}
