//! Where bytes lie: files opened, read, written, renamed and removed behind one trait.
//!
//! The engine names a file, an offset and a length; a [`Device`] says how that is done. [`FileSystem`]
//! does it with `pread` past the page cache (DiskJoin, section 6.1: `O_DIRECT`). [`MemoryBudget`] is what
//! every buffer of the engine is taken from, and [`AlignedBuffer`] is such a buffer.

#![allow(unsafe_code)] // aligned.rs views blocks as bytes

mod aligned;
mod budget;
mod device;
mod pread;
mod resident;

pub use aligned::{AlignedBuffer, BLOCK_BYTES};
pub use budget::{BudgetExceeded, MemoryBudget, Reservation};
pub use device::{Device, DeviceError, Operation, ReadFile, WriteFile};
pub use pread::FileSystem;
pub use resident::{current_resident_bytes, peak_resident_bytes};
