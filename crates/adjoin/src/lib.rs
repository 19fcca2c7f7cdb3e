//! Finds every pair of similar vectors in a set that need not fit in memory.
//!
//! In the order of data flow: [`source`] reads vectors from files, [`store`] writes them to disk with similar vectors
//! next to each other, [`plan`] decides which parts to compare and in which order, [`join`] executes that plan, and
//! [`sink`] consumes the pairs. A [`job::Job`] runs all of this.
//!
//! [`buckets`] searches a store for the nearest vectors of queries, [`index`] searches a graph on disk, and
//! [`collection`] adds inserts and deletes to an index. [`graph`] is a graph over vectors in memory, and [`truth`] finds
//! pairs by brute force. All modules share two types: a [`context::Context`] holds the resources of a run, and a
//! [`predicate::Predicate`] decides which pairs belong to the result.
//!
//! ```
//! use adjoin::{context::Context, join, options::*, output::Target, predicate::Predicate, sink, source, store};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let context = Context::default().with_memory(256 << 20);
//!
//! // Some vectors in a file; any source that `source::open` reads will do.
//! let file = folder.path().join("vectors.fbin");
//! let vectors = VectorType { element: Element::F32, dimensions: 8 };
//! let what = source::Generated { rows: 1_000, vectors, hardness: 1.0, seed: 1 };
//! source::generate(&context, &what, &Target::File { path: file.clone(), force: false })?;
//!
//! // A store is built once, and then joined at any number of thresholds.
//! let opened = source::open(&context, &[file.display().to_string()], &Default::default())?;
//! let place = folder.path().join("vectors.store");
//! store::build(&context, &*opened, &place, &store::BuildOptions::default())?;
//! let store = store::Store::open(&context, &place)?;
//!
//! let options = join::JoinOptions::exact(Predicate::l2(1.0)?);
//! let plan = join::prepare(&context, &store, &options, false)?;
//! println!("{}", plan.explain(&store));
//! let pairs = sink::Collect::default();
//! let statistics = join::join(&context, &store, &plan, Box::new(pairs.clone()))?;
//! assert_eq!(statistics.join.pairs, pairs.pairs().len() as u64);
//! # Ok::<(), adjoin::error::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod buckets;
mod checkpoint;
pub mod choice;
pub mod collection;
pub mod context;
pub mod dedupe;
pub mod error;
pub mod estimate;
mod execute;
pub mod flash;
pub mod folder;
pub mod geometry;
pub mod graph;
pub mod index;
pub mod job;
pub mod join;
#[doc(hidden)]
pub mod lab;
pub mod load;
pub mod locks;
pub mod message;
pub mod options;
pub mod output;
pub mod plan;
pub mod predicate;
pub mod quantize;
pub mod query;
pub mod random;
pub mod report;
mod row_numbers;
pub mod serve;
pub mod sink;
mod sorter;
pub mod source;
pub mod sql;
pub mod store;
#[cfg(test)]
#[path = "../tests/shared/sets.rs"]
mod test_sets;
pub mod truth;
pub mod workers;

pub use adjoin_device as device;
pub use adjoin_kernels as kernels;
