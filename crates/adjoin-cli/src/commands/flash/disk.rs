//! Timed reads from a real disk: random reads, and the reads of a trace.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adjoin::{
    Random, Result, TraceReads,
    device::{AlignedBuffer, Cause, Device, ReadFile},
    flash_model::{Schedule, TraceRead},
};

/// Reads of a trace keep their offset within a block of this size.
const BLOCK_BYTES: u64 = 4_096;
/// Maximum bytes of a submitted read; a longer read of a trace is cut.
const PIECE_BYTES: u64 = 16 << 20;

/// Reads of one size at one depth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kind {
    pub(super) bytes: u64,
    pub(super) depth: usize,
}

/// Executes reads in the order of their dependencies, and returns the seconds that they took. `file_of` returns the
/// file and the offset of a read.
pub(super) fn carry_out(
    device: &dyn Device,
    reads: impl Iterator<Item = TraceRead>,
    depth: usize,
    file_of: impl Fn(&TraceRead) -> Result<(Arc<dyn ReadFile>, u64)>,
) -> Result<f64> {
    let mut queue = device.read_queue(depth)?;
    let mut schedule = Schedule::new(reads, depth);
    let mut buffers: Vec<AlignedBuffer> = Vec::new();
    let watch = Instant::now();
    loop {
        while let Some((slot, read)) = schedule.next_read() {
            let (file, offset) = file_of(&read)?;
            let bytes = read.bytes as usize;
            // Buffers are reused, since zeroing new ones would add to the measured time.
            let fits = buffers.iter().position(|buffer| buffer.len() == bytes);
            let buffer = fits.map_or_else(|| AlignedBuffer::zeroed(bytes), |place| buffers.swap_remove(place));
            queue.submit(slot.into(), Cause::UNKNOWN, &file, offset, buffer)?;
        }
        let Some(done) = queue.wait() else { break };
        done.result?;
        // At most `depth` buffers are in use at once, so no more are kept. Otherwise a buffer of each size in a trace
        // would stay in memory.
        if buffers.len() < depth {
            buffers.push(done.buffer);
        }
        schedule.ended(done.token as u32);
    }
    Ok(watch.elapsed().as_secs_f64())
}

/// Returns `count` random reads of a kind in a file of `file_bytes`. They depend on the seed only, so the disk and
/// the model get the same reads.
pub(super) fn random_reads(kind: Kind, count: u64, file_bytes: u64, seed: u64) -> impl Iterator<Item = TraceRead> {
    let mut random = Random::new(seed, "reads of a calibration");
    // Offsets are multiples of the size, since direct reads must be aligned.
    let places = (file_bytes / kind.bytes).max(1);
    (0..count).map(move |_| TraceRead {
        offset: random.below(places) * kind.bytes,
        bytes: kind.bytes,
        ..TraceRead::default()
    })
}

/// Executes the reads of a trace on one file, even if the trace has several files. Reads are cut to 16 MiB and moved
/// into the file. If the file is long enough, the distance between two reads is unchanged. Returns the seconds that
/// the reads took.
pub(super) fn replay_on_disk(device: &dyn Device, trace: &Path, file: &Arc<dyn ReadFile>, depth: usize) -> Result<f64> {
    let mut failed = None;
    // The iterator ends at an error. The error is returned after the earlier reads are done.
    let reads = TraceReads::open(trace)?.map_while(|read| read.map_err(|error| failed = Some(error)).ok());
    let reads = reads.map(|read| within(read, file.len()));
    let seconds = carry_out(device, reads, depth, |read| Ok((file.clone(), read.offset)))?;
    failed.map_or(Ok(seconds), |error| Err(error.into()))
}

/// Moves a read into a file of `file_bytes`.
pub(super) fn within(read: TraceRead, file_bytes: u64) -> TraceRead {
    let bytes = read.bytes.min(PIECE_BYTES).min(file_bytes);
    let blocks = (file_bytes - bytes) / BLOCK_BYTES;
    // The offset within a block is kept, since it decides how many blocks a read touches.
    let offset = read.offset / BLOCK_BYTES % blocks.max(1) * BLOCK_BYTES + read.offset % BLOCK_BYTES;
    TraceRead { offset: offset.min(file_bytes - bytes), bytes, ..read }
}
