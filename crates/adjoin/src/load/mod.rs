//! Loads stored buckets as vectors in memory, in the form that the kernels use.
//!
//! Only this module converts stored bytes to vectors. [`ReadAhead`] reads buckets before they are used. The worker
//! that uses a bucket verifies and converts it (`bucket.rs`). Buckets are either processed in passes over all of them
//! (`pass.rs`), between which some may stay in memory (`kept.rs`), or held in a cache that carries out the decisions of
//! [`crate::plan`] (`cache.rs`). Single vectors are sampled at random (`sample.rs`).

mod bucket;
mod buckets;
mod buffers;
mod cache;
mod coding;
mod kept;
mod members;
mod named;
mod pair_filter;
mod part;
mod pass;
mod read_ahead;
mod row_columns;
mod sample;
mod sets;
mod subset;
mod vectors;

pub(crate) use bucket::LoadedBucket;
pub use buckets::Buckets;
pub(crate) use buckets::{ReadCounts, check_comparable};
pub(crate) use cache::{Cache, CachedBucket};
pub(crate) use coding::{coding_bytes, fit_coding};
pub(crate) use kept::KeptBuckets;
pub(crate) use members::{Decider, Members, PairDetail};
pub(crate) use named::{least_pass_bytes, places_named, vectors_at};
pub(crate) use pair_filter::PairFilter;
pub(crate) use pass::BucketPass;
pub use read_ahead::{ReadAhead, least_read_ahead, most_read_ahead};
pub(crate) use read_ahead::{StoredBucket, read_ahead_bytes};
pub(crate) use row_columns::SetColumns;
pub(crate) use sample::{DrawnVectors, draw_other_places, draw_places, read_coordinates};
pub use sets::{JoinSide, RowFilter, Sets};
pub(crate) use subset::{Subset, starts};
pub(crate) use vectors::read_vectors;
