//! Results of joins: consumers of pairs, which implement [`PairSink`].
//!
//! [`PairWriter`] writes pairs as they arrive. The other sinks compute results about rows: the number of neighbors
//! ([`Counts`]), clusters of rows connected by chains of pairs ([`Clusters`]), and rows to remove ([`Keep`]). They
//! hold at most a few bytes per row, sort the rest on disk, and look up ids at the end.

mod clusters;
mod collect;
mod components;
mod counts;
mod hits;
mod keep;
mod kept_pairs;
mod line_table;
mod pairs;
mod part_records;
mod removals;
mod removed_table;
mod row_groups;
mod row_ids;
#[allow(clippy::module_inception)] // the trait's file, as in `device::device`
mod sink;
mod source_order;
mod spilled_pairs;
mod table;
mod tally;
mod vector_table;

pub use clusters::Clusters;
pub use collect::Collect;
pub use components::Components;
pub use counts::Counts;
pub use hits::{HitBatch, HitSchema, HitSink, HitWriter};
pub use keep::{Keep, KeepRule};
pub(crate) use kept_pairs::{keep_pairs, kept_bytes_of_a_pair, kept_pairs};
pub(crate) use line_table::CarriedColumns;
pub use pairs::PairWriter;
use pairs::{PAIR_ID_COLUMNS, TWO_SETS};
pub(crate) use part_records::{PairSorter, PartContent, PartRecords, PartSink};
pub(crate) use removals::{Removals, RemovedRows};
pub(crate) use removed_table::{NamedRow, Reason, Reasons, RemovedTable};
pub(crate) use sink::Written;
pub use sink::{Discard, PairBatch, PairSchema, PairSink};
pub(crate) use source_order::SourceOrder;
pub(crate) use spilled_pairs::{SpilledPairReader, SpilledPairs};
pub use table::TableFormat;
pub(crate) use table::{Ended, TableWriter, add_columns};
pub(crate) use tally::Tally;
pub(crate) use vector_table::{vector_column, vector_field, writing_bytes as vectors_bytes};

impl PairSchema {
    /// Names of the columns of a pair's ids. The names are not reserved words of SQL, unlike `left` and `right`.
    pub const ID_COLUMNS: [&str; 2] = PAIR_ID_COLUMNS;
    /// Key and value of the metadata of a Parquet file of pairs whose left and right rows are of two sets.
    pub const TWO_SETS: (&str, &str) = TWO_SETS;
}
