//! Finds every pair of similar vectors in a set that need not fit in memory, and searches such sets.
//!
//! # Tour
//!
//! A run takes its resources from a [`Context`]: files, the memory budget, threads, cancellation and progress.
//!
//! Vectors come from a [`VectorSource`]. [`open_source`] opens files, [`Generated`] writes random vectors, and callers
//! implement the trait for vectors of their own.
//!
//! Three kinds of folders hold vectors. A [`Store`] has buckets of similar vectors. An [`Index`] has a graph of vectors
//! on pages. A [`Collection`] is an index that accepts inserts and deletes. A [`Folder`] opens any of them and searches
//! it with [`SearchOptions`]. Their [`QueryTarget`] is the number of hits or the threshold, and their [`SearchEffort`]
//! is the recall to reach or the amount of work. A [`HitSink`] receives the hits.
//!
//! A [`Job`] runs a join. It takes the names of files or folders, finds the pairs that meet a [`Predicate`], and
//! returns [`JoinStatistics`]. A [`PairSink`] receives the pairs, or the job writes them to a [`Target`]. A
//! [`NearestJob`] finds the nearest neighbors of each row. A [`Dedupe`] copies a data set without its near-duplicates.
//! An [`Estimate`] predicts the size of the result and the cost of a join.
//!
//! ```
//! use adjoin::{
//!     BuildOptions, Collect, Context, Element, Error, Generated, JoinOptions, Predicate, SourceOptions, Store, Target,
//!     VectorType, open_source,
//! };
//!
//! let folder = tempfile::tempdir().unwrap();
//! let context = Context::default().with_memory(256 << 20);
//!
//! // Write random vectors to a file. `open_source` reads many other formats too.
//! let file = folder.path().join("vectors.fbin");
//! let vectors = VectorType { element: Element::F32, dimensions: 8 };
//! let generated = Generated { rows: 1_000, vectors, hardness: 1.0, seed: 1 };
//! generated.write(&context, &Target::File { path: file.clone(), force: false })?;
//!
//! // A store is built once, and can be joined at any number of thresholds.
//! let source = open_source(&context, &[file.display().to_string()], &SourceOptions::default())?;
//! let path = folder.path().join("vectors.store");
//! Store::build(&context, &*source, &path, &BuildOptions::default())?;
//! let store = Store::open(&context, &path)?;
//!
//! let plan = JoinOptions::exact(Predicate::l2(1.0)?).prepare(&context, &store, false)?;
//! println!("{}", plan.explain(&store));
//! let pairs = Collect::default();
//! let statistics = plan.run(&context, &store, Box::new(pairs.clone()))?;
//! assert_eq!(statistics.join.pairs, pairs.pairs().len() as u64);
//! # Ok::<(), Error>(())
//! ```
//!
//! `examples/` has programs for a join, a deduplication, a search, a collection, and for a source and a sink of the
//! caller.
//!
//! # Stability
//!
//! The names on this page are the interface. The names in `lab` serve tests and experiments, and may change at any
//! time.
#![forbid(unsafe_code)]

mod base;
mod buckets;
mod collection;
mod dedupe;
mod estimate;
mod execute;
mod flash;
mod folder;
mod graph;
mod index;
mod job;
mod join;
#[doc(hidden)]
pub mod lab;
mod load;
mod plan;
mod quantize;
mod query;
mod serve;
mod sink;
mod source;
mod sql;
mod store;
#[cfg(test)]
#[path = "../tests/shared/sets.rs"]
mod test_sets;
mod text;
mod truth;

// Crates whose types are used in signatures of this crate.
pub use adjoin_device as device;
pub use adjoin_flash as flash_model;
pub use adjoin_kernels as kernels;

// Resources, errors and statistics of a run.
pub use base::choice::Choice;
pub use base::context::Context;
pub use base::error::{Error, ErrorKind, Result};
pub use base::message::{Argument, Mention, Message};
pub use base::report::{
    Cancel, CommonStatistics, Interval, JoinStatistics, MemoryStatistics, NearestStatistics, Progress,
    RecallStatistics, SearchStatistics, Written,
};

// Vectors and thresholds.
pub use base::options::{Element, Metric, VectorType, format_bytes, format_count, format_number, parse_bytes};
pub use base::predicate::Predicate;
pub use base::random::Random;

// Sources of vectors: files, tables, and the caller's own.
pub use source::{
    ArrowTable, Generated, IdChoice, IdKind, Ids, SourceAttributes, SourceInfo, SourceOptions, TableFile, VectorBatch,
    VectorScan, VectorSource,
};
pub use sql::{Condition, OrderBy};
pub use text::ShingleUnit;

// Results, which are pairs and hits, and the sinks that receive them.
pub use base::locks::OwnFolder;
pub use base::output::{LaterFile, Target};
pub use sink::{
    Collect, Components, HitBatch, HitSchema, HitSink, HitWriter, KeepRule, PairBatch, PairSchema, PairSink,
    PairWriter, TableFormat,
};

// Folders that can be searched, and the options for building them.
pub use collection::{Attribute, AttributeKind, Collection, CollectionOptions, Durability, Merger, Write, WriteReport};
pub use folder::{ClosedFolder, Folder, FolderFacts, OnMissing};
pub use graph::GraphOptions;
pub use index::{BuiltIndex, Index, IndexOptions, RelayoutReport};
pub use store::{Append, AppendReport, BuildOptions, BuildPlan, FolderKind, OnBad, OnDuplicateId, Store};

// Searches.
pub use buckets::SearchQueries;
pub use query::{EffortOptions, QueryTarget, SearchEffort, SearchOptions};
pub use serve::{CacheStatistics, CachedSearch, ServedHits, ServedQuery};

// Joins, from the names of their inputs to their statistics.
pub use dedupe::{Dedupe, Deduped, Nearness, TextOptions};
pub use estimate::{AtThreshold, Estimate};
pub use job::{
    Conditions, Job, NearestJob, Opened, OpenedSets, Output, PartOptions, PartPlan, ResultKind, open_source,
};
pub use join::{JoinEffort, JoinOptions};
pub use truth::{GroundtruthOptions, GroundtruthTarget, RangeForm, TruthFiles};

// Graphs and traces for the model of flash devices.
pub use flash::{GraphKind, Searches, TraceReads, VectorOrder};
