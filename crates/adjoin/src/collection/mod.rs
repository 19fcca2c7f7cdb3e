//! A collection: vectors that can be inserted, updated and deleted, while searches see the current rows.
//!
//! A collection is a folder with a redo log (`log.rs`) and, after the first merge, a graph index on disk. A write is in
//! the log before it is acknowledged. The rows since the last merge are also in memory (`temporary_index.rs`); opening
//! a collection reads them from the log again. The parts are those of FreshDiskANN (Singh et al., 2021, section 5),
//! with one difference: queries are compared with each row in memory, rather than by a graph over them
//! (`docs/decisions/0016-rows-in-memory.md`).
//!
//! ```
//! use adjoin::collection::{Collection, CollectionOptions, Durability, Put};
//! use adjoin::context::Context;
//! use adjoin::index::IndexOptions;
//! use adjoin::options::{Element, Metric, VectorType};
//! use adjoin::query::{QuerySources, QueryTarget, SearchEffort, SearchOptions};
//! use adjoin::sink::CollectHits;
//! use adjoin::source::{self, IdKind, Ids};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let (context, place) = (Context::default(), folder.path().join("vectors.collection"));
//! let vectors = VectorType { element: Element::F32, dimensions: 8 };
//! let (attributes, index) = (Vec::new(), IndexOptions::default());
//! let options = CollectionOptions { vectors, metric: Metric::L2, ids: IdKind::Int64, attributes, index };
//! Collection::create(&context, &place, &options)?;
//!
//! // Some vectors in a file; any source will do. Rows without ids go by their numbers.
//! let file = folder.path().join("vectors.fbin");
//! let what = source::Generated { rows: 1_000, vectors, hardness: 1.0, seed: 1 };
//! let target = adjoin::output::Target::File { path: file.clone(), force: false };
//! source::generate(&context, &what, &target)?;
//! let some = source::open(&context, &[file.display().to_string()], &Default::default())?;
//!
//! let collection = Collection::open(&context, &place)?;
//! let written = collection.load(&*some, Put::Insert, Durability::Group)?;
//! assert_eq!((written.rows, collection.facts().rows), (1_000, 1_000));
//!
//! let options = SearchOptions::new(QueryTarget::Nearest(1), SearchEffort::default(), 1);
//! let hits = CollectHits::default();
//! collection.search(&context, QuerySources::new(&*some), &options, Box::new(hits.clone()))?;
//! assert_eq!(hits.hits()[7], [(7, 0.0)]);
//! assert!(collection.get(&Ids::Int64(vec![1_000]))?[0].is_none());
//! collection.close()?;
//! # Ok::<(), adjoin::error::Error>(())
//! ```

mod arriving;
mod attributes;
mod background;
mod backup;
mod change;
mod delete_where;
mod frame;
mod get;
mod ids;
mod log;
mod long_term_index;
mod manifest;
mod memory;
mod merge;
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
pub use self::background::{Merger, MergerOptions};
pub use self::backup::{BackupReport, backup};
pub(crate) use self::get::LocatedRows;
pub use self::log::Durability;
pub use self::manifest::{CollectionManifest, CollectionOptions};
pub use self::memory::{CollectionWork, collection_context};
pub use self::method::MergeMethod;
pub use self::operations::{Collection, CollectionFacts, Merged, Written};
pub use self::snapshot::open_rows;
pub use self::statistics::CollectionStatistics;
pub use self::verify::{CollectionVerifyReport, verify};
pub use self::write::{Put, Write};
