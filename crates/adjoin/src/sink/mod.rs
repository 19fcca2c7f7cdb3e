//! Results of joins: consumers of pairs, which implement [`PairSink`].
//!
//! [`PairWriter`] writes pairs as they arrive. The others derive results about rows: the number of neighbors
//! ([`Counts`]), clusters of rows connected by chains of pairs ([`Clusters`]), and rows to remove ([`Keep`]). They hold
//! at most a few bytes per row, sort the rest on disk, and look up ids at the end.

mod clusters;
mod components;
mod counts;
mod hits;
mod keep;
mod kept_pairs;
mod pairs;
mod removals;
mod removed_table;
mod row_ids;
#[allow(clippy::module_inception)] // the trait's file, as in `device::device`
mod sink;
mod table;
mod tally;
mod vector_table;

pub use clusters::Clusters;
pub use components::Components;
pub use counts::Counts;
pub use hits::{CollectHits, HitBatch, HitSchema, HitSink, HitWriter};
pub use keep::{Keep, KeepRule};
pub(crate) use kept_pairs::{keep_pairs, kept_bytes_of_a_pair, kept_pairs};
pub use pairs::{PAIR_ID_COLUMNS, PairWriter, TWO_SETS};
pub use removals::{Removals, RemovedRows};
pub(crate) use removed_table::{NamedRow, RemovedTable};
pub use sink::{Collect, Discard, PairBatch, PairSchema, PairSink, Written};
pub(crate) use table::{Ended, TableWriter};
pub use table::{TableFormat, id_column, id_field, value_field};
pub use tally::Tally;
pub use vector_table::write_vectors;
pub(crate) use vector_table::{vector_column, vector_field, writing_bytes as vectors_bytes};
