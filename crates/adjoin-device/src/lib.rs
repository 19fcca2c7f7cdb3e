//! File access. All files are opened, read, written, renamed and removed through one trait.
//!
//! The engine names a file, an offset and a length. A [`Device`] determines how the file is accessed.
//!
//! - [`FileSystem`] is the machine's file system. It bypasses the page cache (DiskJoin, section 6.1: `O_DIRECT`) and
//!   keeps many reads in flight with io_uring. If io_uring is refused, it uses a few threads.
//! - [`SimulatedDevice`] keeps files in memory. On demand, operations fail, writes are torn, or the power is lost.
//! - [`Recorder`] records the operations on another device. [`Trace`] parses such a record.
//!
//! Every buffer of the engine is reserved from a [`MemoryBudget`]. Buffers for direct reads are [`AlignedBuffer`]s.
//!
//! ```
//! use std::path::Path;
//! use adjoin_device::{AlignedBuffer, Cause, Device, FaultPlan, Keep, SimulatedDevice};
//!
//! let device = SimulatedDevice::new(FaultPlan::None);
//! let mut file = device.create(Path::new("log"))?;
//! file.append(b"first")?;
//! file.sync()?;
//! device.sync_folder(Path::new("."))?;
//! file.append(b" second")?;
//! // The power is lost: bytes that were not synced may be missing.
//! assert_eq!(device.after_crash(Keep::Nothing).bytes("log").as_deref(), Some(&b"first"[..]));
//!
//! let file = device.open(Path::new("log"))?;
//! let mut queue = device.read_queue(8)?;
//! queue.submit(7, Cause::UNKNOWN, &file, 0, AlignedBuffer::zeroed(5))?;
//! let done = queue.wait().expect("one read is in flight");
//! assert_eq!((done.token, &done.buffer[..], done.result?), (7, &b"first"[..], 5));
//! # Ok::<(), adjoin_device::DeviceError>(())
//! ```

#![deny(unsafe_code)] // except in the modules below, each for the reason given there

#[cfg(windows)]
compile_error!("adjoin does not run on Windows; use it as a Linux program in WSL2");

#[allow(unsafe_code)] // views blocks as bytes
mod aligned;
mod budget;
mod bytes_file;
mod creator;
mod device;
mod error;
mod file_system;
mod location;
mod lock_file;
#[allow(unsafe_code)] // implements a global allocator
mod mapped_blocks;
#[allow(unsafe_code)] // asks the system for the size of its memory
mod memory_limit;
mod page_cache;
mod priority;
mod read_file;
#[allow(unsafe_code)] // calls functions of the system about memory
mod resident;
mod simulated;
mod threads;
mod trace;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // lends memory to the kernel
mod uring;
mod write_file;

pub use aligned::{AlignedBuffer, BLOCK_BYTES};
pub use budget::{BudgetExceeded, MemoryBudget, Reclaimable, Reservation};
pub use bytes_file::BytesFile;
pub use creator::Creator;
pub use device::{
    Cause, Completion, Device, FileKind, FileStamp, HeldLock, Lock, NewObject, READ_AHEAD_PIECE_BYTES, ReadFile,
    ReadQueue, WriteFile,
};
pub use error::{DeviceError, Operation};
pub use file_system::FileSystem;
pub use location::{Location, RemoteName};
pub use mapped_blocks::MappedBlocks;
pub use memory_limit::{LimitedBy, MemoryLimit, memory_limit};
pub use priority::give_way;
pub use resident::{
    current_resident_bytes, forget_code, forget_peak_resident_bytes, peak_resident_bytes, prefer_large_pages,
    release_freed_memory, spare_memory,
};
pub use simulated::{FaultPlan, Keep, LoggedOperation, Pieces, SimulatedDevice};
pub use trace::{Recorder, ReplayReport, Trace, TraceError, TraceReader, TracedOperation, replay};
pub use write_file::WRITE_BUFFER_BYTES;
