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
mod part_records;
mod removals;
mod removed_table;
mod row_ids;
#[allow(clippy::module_inception)] // the trait's file, as in `device::device`
mod sink;
mod table;
mod tally;
mod vector_table;

use arrow_array::ArrayRef;
use arrow_schema::Field;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::source::{IdKind, Ids, VectorSource};
pub use clusters::Clusters;
pub use components::Components;
pub use counts::Counts;
pub use hits::{CollectHits, HitBatch, HitSchema, HitSink, HitWriter};
pub use keep::{Keep, KeepRule};
pub(crate) use kept_pairs::{keep_pairs, kept_bytes_of_a_pair, kept_pairs};
pub use pairs::PairWriter;
use pairs::{PAIR_ID_COLUMNS, TWO_SETS};
pub(crate) use part_records::{PairSorter, PartContent, PartRecords, PartSink};
pub(crate) use removals::{Removals, RemovedRows};
pub(crate) use removed_table::{NamedRow, RemovedTable};
pub(crate) use sink::Written;
pub use sink::{Collect, Discard, PairBatch, PairSchema, PairSink};
pub use table::TableFormat;
pub(crate) use table::{Ended, TableWriter};
pub(crate) use table::{id_column, id_field, value_field};
pub(crate) use tally::Tally;
pub(crate) use vector_table::write_vectors;
pub(crate) use vector_table::{vector_column, vector_field, writing_bytes as vectors_bytes};

impl PairSchema {
    /// Names of the columns of a pair's ids. Words that SQL does not reserve, unlike `left` and `right`.
    pub const ID_COLUMNS: [&str; 2] = PAIR_ID_COLUMNS;
    /// Key and value of the metadata of a Parquet file of pairs whose left and right rows are of two sets.
    pub const TWO_SETS: (&str, &str) = TWO_SETS;
}

impl Ids {
    /// Returns the ids as a column of a table; if there are none, the row numbers `rows`.
    pub fn column(&self, rows: &[u64]) -> ArrayRef {
        id_column(rows, self)
    }
}

impl IdKind {
    /// Returns the field of a column of ids, or of row numbers if there are none.
    pub fn field(self, name: &str) -> Field {
        id_field(name, self)
    }
}

impl Metric {
    /// Returns the field of the column with the distances, similarities or scores.
    pub fn value_field(self) -> Field {
        value_field(self)
    }
}

impl Target {
    /// Writes the rows of a source as Parquet: a column `id` (the row number if the source has no ids), a column `vector`
    /// of fixed-size lists, and the source's other columns.
    ///
    /// # Errors
    /// If the name does not end in `.parquet` or is taken, a row has no vector, memory does not suffice, or the disk
    /// refuses. Nothing is left of the file then.
    pub fn write_vectors(&self, context: &Context, source: &dyn VectorSource) -> Result<Written> {
        write_vectors(context, source, self)
    }
}
