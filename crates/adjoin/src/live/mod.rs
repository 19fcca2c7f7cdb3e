//! A live index: *vectors come and go, and a search finds what is there now.*
//!
//! A live index is a folder with a redo log (`log.rs`), in which every write is before it is acknowledged, and rows in memory
//! (`fresh.rs`), which are what the log says: opening it reads the log again. The parts are those of FreshDiskANN (Singh et al.,
//! 2021, section 5), with one difference: rows in memory are compared with queries one by one, rather than by a graph over them
//! (`docs/decisions/0016-rows-in-memory.md`).
//!
//! ```
//! use std::path::Path;
//! use adjoin::context::Context;
//! use adjoin::index::{IndexEffort, IndexOptions, IndexSearchOptions};
//! use adjoin::live::{Collection, Durability, LiveOptions, Put};
//! use adjoin::options::{Element, Metric, VectorType};
//! use adjoin::search::Wanted;
//! use adjoin::sink::CollectHits;
//! use adjoin::source::{self, IdKind, Ids};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let (context, live) = (Context::default(), folder.path().join("live"));
//! let vectors = VectorType { element: Element::F32, dimensions: 8 };
//! let (attributes, index) = (Vec::new(), IndexOptions::default());
//! let options = LiveOptions { vectors, metric: Metric::L2, ids: IdKind::Int64, attributes, index };
//! Collection::create(&context, &live, &options)?;
//!
//! // Some vectors in a file; any source will do. Rows without ids go by their numbers.
//! let file = folder.path().join("vectors.fbin");
//! let what = source::Generated { rows: 1_000, vectors, hardness: 1.0, seed: 1 };
//! let target = adjoin::output::Target::File { path: file.clone(), force: false };
//! source::generate(&context, &what, &target)?;
//! let some = source::open(&context, &[file.display().to_string()], &Default::default())?;
//!
//! let collection = Collection::open(&context, &live)?;
//! let written = collection.load(&*some, Put::Insert, Durability::Group)?;
//! assert_eq!((written.rows, collection.facts().rows), (1_000, 1_000));
//!
//! let (hits, options) = (CollectHits::default(), IndexSearchOptions::new(Wanted::Nearest(1), IndexEffort::default(), 1));
//! collection.search(&context, (&*some, None), &options, Box::new(hits.clone()))?;
//! assert_eq!(hits.hits()[7], [(7, 0.0)]);
//! assert!(collection.get(&Ids::Int64(vec![1_000]))?[0].is_none());
//! collection.close()?;
//! # Ok::<(), adjoin::error::Error>(())
//! ```

mod arriving;
mod attributes;
mod background;
mod backup;
mod base;
mod change;
mod collection;
mod delete_where;
mod frame;
mod fresh;
mod get;
mod ids;
mod log;
mod manifest;
mod memory;
mod merge;
mod method;
mod packed;
mod places;
mod search;
mod segment;
mod snapshot;
mod state;
mod statistics;
mod steps;
mod sync;
mod verify;
mod write;

pub use self::attributes::{Attribute, AttributeKind};
pub use self::background::{Merger, MergerOptions};
pub use self::backup::{BackedUp, backup};
pub use self::collection::{Collection, LiveFacts, Merged, Written};
pub use self::get::LiveRow;
pub use self::log::Durability;
pub use self::manifest::{LiveManifest, LiveOptions};
pub use self::memory::{LiveWork, with_advice};
pub use self::method::MergeMethod;
pub use self::packed::AttributeValue;
pub use self::snapshot::open_rows;
pub use self::statistics::LiveStatistics;
pub use self::verify::{LiveVerifyReport, verify};
pub use self::write::{Put, Write};
