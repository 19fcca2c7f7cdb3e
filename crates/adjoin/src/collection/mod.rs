//! A collection: vectors that can be inserted, updated and deleted, while searches see the current rows.
//!
//! A collection is a folder with a redo log (`log.rs`) and, after the first merge, a graph index on disk. A write is in
//! the log before it is acknowledged. The rows since the last merge are also in memory (`temporary_index.rs`); opening
//! a collection reads them from the log again. The parts are those of FreshDiskANN (Singh et al., 2021, section 5),
//! with one difference: queries are compared with each row in memory, rather than by a graph over them
//! (`docs/decisions/0016-rows-in-memory.md`).
//!
//! `examples/collection.rs` writes to a collection and searches it.

mod arriving;
mod attributes;
mod background;
mod backpressure;
mod backup;
mod change;
mod delete_where;
mod frame;
mod get;
mod ids;
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

use std::path::Path;

pub use self::attributes::{Attribute, AttributeKind};
pub use self::background::Merger;
pub use self::backpressure::MergerOptions;
pub(crate) use self::get::LocatedRows;
pub use self::log::Durability;
pub use self::manifest::{CollectionManifest, CollectionOptions};
pub use self::memory::CollectionWork;
pub(crate) use self::memory::collection_context;
pub use self::method::MergeMethod;
pub use self::operations::{Collection, CollectionFacts, WriteReport};
pub use self::snapshot::open_rows;
pub use self::statistics::CollectionStatistics;
pub use self::write::{Put, Write};
use crate::base::context::Context;

impl CollectionWork {
    /// Returns a context whose refusals name a budget that suffices for work on the collection in a folder, at whichever step a
    /// smaller one fails. If the folder cannot be read, as it is damaged or another process merges, they name what a step needs:
    /// opening the collection reports the damage, or reads it again.
    pub fn context(self, context: &Context, folder: &Path) -> Context {
        collection_context(context, folder, self)
    }
}
