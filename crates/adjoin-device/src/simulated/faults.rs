//! Fault plans, and the changes that survive a crash.

use std::io;
use std::path::PathBuf;

use crate::error::Operation;

/// Bytes that a disk writes entirely or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The fault to simulate. Operations are numbered from 0 in the order of their calls. Everything that a
/// [`Device`](crate::Device), its files and its queues do has a number, except `len` and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultPlan {
    /// No fault.
    #[default]
    None,
    /// Operation `at` fails with an error of this kind and does nothing.
    Fail {
        /// Number of the operation.
        at: u64,
        /// Kind of the error; `Other` means an I/O error.
        kind: io::ErrorKind,
    },
    /// Operation `at`, a read or a write, transfers only the first half: a read then fails with `UnexpectedEof`, a
    /// write with `WriteZero`. Other operations are not affected.
    Short {
        /// Number of the operation.
        at: u64,
    },
    /// The power is lost during operation `at`; if it is a write, its first sectors reach the disk.
    Torn {
        /// Number of the operation.
        at: u64,
        /// Sectors of 512 bytes that reach the disk, at most the length of the write.
        sectors: u64,
    },
    /// The power is lost before operation `at`.
    Crash {
        /// Number of the operation.
        at: u64,
    },
}

/// Which unsynced changes are found after a crash. They are applied in order; a change that builds on a lost name is
/// lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None of them.
    Nothing,
    /// All changes, as if only the program had died.
    Everything,
    /// All but the change with this number, below [`SimulatedDevice::unsynced`](crate::SimulatedDevice::unsynced).
    AllBut(usize),
    /// Only the change with this number.
    Only(usize),
    /// Names (create, rename, remove) without data: a file that was never synced exists but is empty.
    Names,
    /// Data without names.
    Data,
    /// Each change at random, with equal probability.
    Seeded {
        /// Seed of the random numbers.
        seed: u64,
        /// Unit in which a write is kept or lost.
        pieces: Pieces,
    },
}

/// Unit in which a write is kept or lost. A lost piece before a kept one reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pieces {
    /// The whole write.
    Whole,
    /// Each part between multiples of 512 bytes of the file.
    Sectors,
    /// Each part between multiples of 4096 bytes of the file.
    Blocks,
}

impl Pieces {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Whole => u64::MAX,
            Self::Sectors => SECTOR_BYTES,
            Self::Blocks => 4096,
        }
    }
}

/// A logged operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Number of the operation, as in a [`FaultPlan`].
    pub number: u64,
    /// The operation.
    pub operation: Operation,
    /// Its file or folder.
    pub path: PathBuf,
    /// Bytes requested to be read or written; 0 for other operations.
    pub bytes: u64,
}

/// Pseudorandom coins (SplitMix64), reproducible from a seed.
pub(super) struct Coins(pub(super) u64);

impl Coins {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
