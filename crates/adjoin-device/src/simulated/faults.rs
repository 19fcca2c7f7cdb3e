//! What goes wrong, when, and what survives it.

use std::io;
use std::path::PathBuf;

use crate::error::Operation;

/// Bytes that a disk writes wholly or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// What goes wrong. Operations are numbered from 0 in the order in which they are asked for; everything that a
/// [`Device`](crate::Device), its files and its queues do has a number, but `len` and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultPlan {
    /// Nothing.
    #[default]
    None,
    /// Operation `at` fails with an error of this kind and does nothing.
    Fail {
        /// Number of the operation.
        at: u64,
        /// Kind of the error; `Other` stands for an I/O error.
        kind: io::ErrorKind,
    },
    /// Operation `at`, a read or a write, transfers only the first half: a read then fails with `UnexpectedEof`, a write
    /// with `WriteZero`. Other operations are not affected.
    Short {
        /// Number of the operation.
        at: u64,
    },
    /// The power goes during operation `at`: where that is a write, its first sectors are on the disk.
    Torn {
        /// Number of the operation.
        at: u64,
        /// Sectors of 512 bytes that reached the disk, at most what was to be written.
        sectors: u64,
    },
    /// The power goes before operation `at`.
    Crash {
        /// Number of the operation.
        at: u64,
    },
}

/// Which of the changes that were not synced are found after a crash. They are applied in their order; one that builds
/// on a name that is lost is lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None of them.
    Nothing,
    /// All of them, as if only the program had died.
    Everything,
    /// All but the one of this number, below [`SimulatedDevice::unsynced`](crate::SimulatedDevice::unsynced).
    AllBut(usize),
    /// Only the one of this number.
    Only(usize),
    /// Names (create, rename, remove) without data: a file that was never synced is there, empty.
    Names,
    /// Data without names.
    Data,
    /// Each by the toss of a coin.
    Seeded {
        /// Seed of the coin.
        seed: u64,
        /// What is kept or lost as one.
        pieces: Pieces,
    },
}

/// What of a write is kept or lost as one. A lost piece before a kept one reads as zeros.
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

/// An operation that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedOperation {
    /// Its number, as in a [`FaultPlan`].
    pub number: u64,
    /// What was asked.
    pub operation: Operation,
    /// Of which file or folder.
    pub path: PathBuf,
    /// Bytes that were to be read or written; 0 for other operations.
    pub bytes: u64,
}

/// SplitMix64: coins that fall the same way for the same seed.
pub(super) struct Coins(pub(super) u64);

impl Coins {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
