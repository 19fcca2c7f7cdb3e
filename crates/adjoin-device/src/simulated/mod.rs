//! A device in memory that fails on demand, the same way every time.
//!
//! Files and folders exist twice: *live*, as the running program sees them, and *durable*, as they are found after a
//! loss of power. What changes the live image is remembered as a change that is not yet durable; syncing a file makes
//! its data so, syncing a folder its names. After a crash any subset of the other changes may have come through, so a
//! rename may be durable while the data of the renamed file, never synced, is not.
//!
//! Every operation has a number, so a test can run a workload once, count, and then run it again with a fault at each
//! number in turn (as SQLite's tests of I/O errors do). The two images follow RocksDB's `FaultInjectionTestFS`, which
//! drops what was not synced; faults drawn from a seed and torn sectors follow TigerBeetle's `src/testing/storage.zig`.

mod change;
mod device;
mod faults;
mod files;
mod image;
mod queue;
mod state;

pub use device::SimulatedDevice;
pub use faults::{FaultPlan, Keep, LoggedOperation, Pieces};
