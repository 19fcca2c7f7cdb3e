//! Fault plans, and the changes that survive a crash.

use std::io;
use std::path::PathBuf;

use crate::error::Operation;

/// Size of a sector. A disk writes a sector completely or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Fault to simulate. Operations are numbered from 0 in the order of their calls. Every call of a
/// [`Device`](crate::Device), its files and its queues has a number, except those that only return a property, such
/// as `len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultPlan {
    /// No fault.
    #[default]
    None,
    /// Operation `at` fails with an error of this kind and does nothing.
    Fail {
        /// Number of the operation.
        at: u64,
        /// Kind of the error; `Other` stands for an I/O error.
        kind: io::ErrorKind,
    },
    /// Operation `at`, if it is a read or a write, transfers only the first half of its bytes. A read then fails with
    /// `UnexpectedEof`, a write with `WriteZero`. Other operations are not affected.
    Short {
        /// Number of the operation.
        at: u64,
    },
    /// The power is lost during operation `at`. If it is a write, its first sectors reach the disk.
    Torn {
        /// Number of the operation.
        at: u64,
        /// Number of sectors of 512 bytes that reach the disk. If the write is shorter, all of it does.
        sectors: u64,
    },
    /// The power is lost before operation `at`.
    Crash {
        /// Number of the operation.
        at: u64,
    },
}

/// Which unsynced changes survive a crash. They are applied in order. If a change is lost, later changes of the same
/// name that rely on it are lost too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// No change.
    Nothing,
    /// All changes, as if the program had died and the machine had not.
    Everything,
    /// All changes except the one with this number, which is below
    /// [`SimulatedDevice::unsynced`](crate::SimulatedDevice::unsynced).
    AllBut(usize),
    /// Only the change with this number.
    Only(usize),
    /// Changes of names (create, rename, remove) but not of data. A file that was never synced exists but is empty.
    Names,
    /// Changes of data but not of names.
    Data,
    /// A random selection: each change survives with probability 1/2.
    Seeded {
        /// Seed of the random numbers.
        seed: u64,
        /// Unit of a write that survives or is lost.
        pieces: Pieces,
    },
}

/// Unit of a write that survives or is lost. If a later unit survives, a lost one reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pieces {
    /// The whole write.
    Whole,
    /// The bytes between two multiples of 512 in the file.
    Sectors,
    /// The bytes between two multiples of 4096 in the file.
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

/// An operation in the log of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Number of the operation, as in a [`FaultPlan`].
    pub number: u64,
    /// The operation.
    pub operation: Operation,
    /// The file or folder of the operation.
    pub path: PathBuf,
    /// Number of bytes that a read or write was asked to transfer; 0 for other operations.
    pub bytes: u64,
}

/// Pseudorandom numbers (SplitMix64) that a seed determines.
pub(super) struct Coins(pub(super) u64);

impl Coins {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
