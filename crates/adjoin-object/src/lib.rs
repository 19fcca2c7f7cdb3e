//! Implements the device's trait for object stores: names such as `s3://bucket/key`, next to the files of the machine.
//!
//! [`ObjectDevice`] passes names of the file system on to another device, and reads and writes objects itself. `stores.rs` connects
//! to buckets, with credentials from the environment as the vendors' own tools take them. `object.rs` reads ranges of an
//! object, `ahead.rs` reads them before they are needed, and `queue.rs` keeps many reads in flight. `upload.rs` writes an
//! object. `refusal.rs` words errors, without the answers of servers, which may repeat a key.
//!
//! A client is created when the first object is opened. Without one, this crate starts no thread.

mod ahead;
mod device;
mod file;
mod object;
mod queue;
mod refusal;
mod stores;
mod upload;

pub use device::ObjectDevice;
pub use stores::{Retries, StoreSettings};
