//! Implements the device's trait for object stores: names such as `s3://bucket/key`, next to the files of the machine.
//!
//! [`ObjectDevice`] reads and writes objects itself, and passes operations on local files to another device.
//! `stores.rs` connects to buckets. It takes credentials from the environment variables that the vendors' own tools
//! use. `object.rs` reads ranges of an object, `ahead.rs` reads them before they are needed, and `queue.rs` keeps
//! many reads in flight. `upload.rs` writes an object. `refusal.rs` creates error messages. They never quote the
//! answer of a server, since it may contain a key.
//!
//! A client is created when the first object is opened. Until then, this crate starts no thread.

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
