//! A collection: vectors that can be inserted, updated and deleted, while searches see the current rows.
//!
//! A collection is a folder with a redo log (`log.rs`) and, after the first merge, a graph index on disk. A write is
//! in the log before it is acknowledged. Rows that were written since the last merge are also in memory
//! (`temporary_index.rs`); opening a collection restores them from the log. The parts are those of FreshDiskANN (Singh
//! et al., 2021, section 5), with one difference: rows in memory have no graph. Queries are compared with each of them,
//! or with the rows of some buckets (`docs/decisions/0016-rows-in-memory.md`).
//!
//! `examples/collection.rs` writes to a collection and searches it.

mod arriving;
mod attributes;
mod background;
mod backpressure;
mod backup;
mod change;
mod copied_files;
mod delete_where;
mod frame;
mod get;
mod ids;
mod latencies;
mod leftovers;
mod log;
mod log_files;
mod long_term_index;
mod manifest;
mod memory;
mod merge;
mod merged_texts;
mod method;
mod operations;
mod packed;
mod places;
mod search;
mod segment;
mod snapshot;
mod state;
mod statistics;
mod steps;
mod sync;
mod temporary_index;
mod verify;
mod write;

pub use self::attributes::{Attribute, AttributeKind};
pub use self::background::{Merger, start_merger};
pub use self::backpressure::MergerOptions;
pub(crate) use self::copied_files::{CollectionFiles, is_of_collection};
pub(crate) use self::get::LocatedRows;
pub use self::log::Durability;
pub(crate) use self::manifest::CollectionManifest;
pub use self::manifest::CollectionOptions;
pub(crate) use self::memory::context_of_rows;
pub use self::method::MergeMethod;
pub(crate) use self::operations::CollectionFacts;
pub use self::operations::{Collection, WriteReport};
pub(crate) use self::places::BLOCK_BYTES as PLACES_BLOCK_BYTES;
pub use self::snapshot::open_rows;
pub use self::write::{Put, Write};
