//! A device in memory that fails on demand, reproducibly.
//!
//! Files and folders exist twice. The *live* image is what the running program sees. The *durable* image is what is
//! found after a loss of power. An operation changes the live image, and its change is recorded as not durable yet.
//! Syncing a file makes the changes of its data durable. Syncing a folder makes the changes of its names durable.
//! After a crash, any subset of the other changes may have reached the disk. For example, the rename of a file that
//! was never synced may be durable while its data is not.
//!
//! Every operation has a number. A test can run a workload once, count its operations, and then repeat it with a
//! fault at each number in turn, as SQLite's tests of I/O errors do. The two images follow RocksDB's
//! `FaultInjectionTestFS`, which drops unsynced data. Seeded faults and torn sectors follow TigerBeetle's
//! `src/testing/storage.zig`.

mod change;
mod device;
mod faults;
mod files;
mod image;
mod queue;
mod state;

pub use device::SimulatedDevice;
pub use faults::{FaultPlan, Keep, LoggedOperation, Pieces};
