//! A device in memory that fails on demand, reproducibly.
//!
//! Files and folders exist twice: *live*, as the running program sees them, and *durable*, as they are found after a
//! loss of power. Each operation on the live image is recorded as a change that is not durable yet. Syncing a file
//! makes its data durable, syncing a folder its names. After a crash, any subset of the other changes may have reached
//! the disk. A rename may be durable while the data of the renamed file, which was never synced, is not.
//!
//! Every operation has a number. A test can run a workload once, count its operations, and then repeat it with a fault
//! at each number in turn, as SQLite's tests of I/O errors do. The two images follow RocksDB's `FaultInjectionTestFS`,
//! which drops unsynced data. Seeded faults and torn sectors follow TigerBeetle's `src/testing/storage.zig`.

mod change;
mod device;
mod faults;
mod files;
mod image;
mod queue;
mod state;

pub use device::SimulatedDevice;
pub use faults::{FaultPlan, Keep, LoggedOperation, Pieces};
