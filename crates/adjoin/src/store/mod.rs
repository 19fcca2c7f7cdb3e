//! Here are my vectors, lay them on disk so that near ones lie together; later: give me bucket 17.
//!
//! A store is a folder that [`build`] writes once and [`Store`] reads often. It does not depend on a threshold, a
//! recall, a sink, threads or a budget. `docs/format.md` describes its bytes.

mod assign;
mod centers;
pub mod format;
mod intake;
mod manifest;
mod reader;
mod writer;

pub(crate) use intake::{Intake, intake_bytes, read_all};
pub use manifest::{Assignment, Centers, FileFacts, Files, Manifest};
pub use reader::{BucketBytes, ReadCounts, Store, bucket_bytes, is_store};
pub use writer::{BuildOptions, BuildReport, OnBad, OnDuplicateId, TemporaryStore, build};
