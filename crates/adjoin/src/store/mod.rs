//! Here are my vectors, lay them on disk so that near ones lie together; later: give me bucket 17.
//!
//! A store is a folder that [`build`] writes once and [`Store`] reads often. It does not depend on a threshold, a
//! recall, a sink, threads or a budget. `docs/format.md` describes its bytes.

mod assign;
mod bad_rows;
mod buckets;
mod centers;
pub mod format;
mod ids;
mod intake;
mod manifest;
mod memory;
mod partitions;
mod publish;
mod read_ahead;
mod read_vectors;
mod reader;
mod tree;
mod verify;
mod writer;

pub(crate) use intake::{UsableRows, read_all, read_all_bytes};
pub use manifest::{Assignment, Centers, FileFacts, Files, Manifest};
pub(crate) use partitions::{PartitionSizes, Partitions};
pub use read_ahead::{BucketBytes, ReadAhead, least_read_ahead, read_ahead_bytes};
pub use read_vectors::read_vectors;
pub use reader::{ReadCounts, Store, bucket_bytes, is_store, sole_store};
pub use verify::{Damage, Part, VerifyReport, verify};
pub use writer::{BuildOptions, BuildReport, BuildSeconds, OnBad, OnDuplicateId, TemporaryStore, build};
