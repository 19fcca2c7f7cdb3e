//! Writer of every pair with its distance.

use std::sync::Arc;

use arrow_array::Float32Array;
use arrow_schema::Schema;

use super::line_table::{CarriedColumns, LineTable};
use super::sink::{PairBatch, PairSchema, PairSink, Written};
use super::table::TableWriter;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::output::Target;

/// Key and value of the metadata of a Parquet file of pairs, or of clusters, of the rows of two sets.
pub(crate) const TWO_SETS: (&str, &str) = ("adjoin.sets", "2");

/// Names of the columns of a pair's ids. The names are not reserved words of SQL, unlike `left` and `right`.
pub(crate) const PAIR_ID_COLUMNS: [&str; 2] = ["left_id", "right_id"];

/// Writes pairs: columns `left_id`, `right_id` and `distance` or `similarity`, then the columns that pairs carry, such as
/// `left_text` and `right_text`.
pub struct PairWriter<'a>(LineTable<'a>);

/// Memory of the writer of a result, in bytes; the part of it for the metadata of small results; and additional
/// memory for ids.
const WRITER_BYTES: u64 = 7 << 20;
const METADATA_BYTES: u64 = 256 << 10;
const WRITER_ID_BYTES: u64 = 2 << 20;

impl<'a> PairWriter<'a> {
    /// Returns the bytes that the writer holds.
    pub fn memory_bytes(with_ids: bool) -> u64 {
        WRITER_BYTES + if with_ids { WRITER_ID_BYTES } else { 0 }
    }

    /// Returns the memory for the metadata of a file of `pairs` pairs with ids of `id_bytes` bytes, in addition to
    /// [`PairWriter::memory_bytes`]. Since the number of pairs is predicted, 50 % more pairs are assumed.
    pub(crate) fn metadata_bytes(pairs: u64, id_bytes: u64) -> u64 {
        let row_bytes = 2 * id_bytes.max(8) + 4;
        TableWriter::metadata_bytes(pairs.saturating_add(pairs / 2), row_bytes).saturating_sub(METADATA_BYTES)
    }

    /// Creates the result.
    ///
    /// # Errors
    /// If the name is taken, its extension is unknown, or the folder cannot be written.
    pub fn create(context: &Context, target: &Target, pairs: PairSchema) -> Result<Self> {
        Self::with_columns(context, target, pairs, None)
    }

    /// Creates the result. Pairs carry columns, if given.
    ///
    /// # Errors
    /// As [`Self::create`], or if memory does not suffice for the columns.
    pub(crate) fn with_columns(
        context: &Context,
        target: &Target,
        pairs: PairSchema,
        columns: Option<CarriedColumns<'a>>,
    ) -> Result<Self> {
        let PairSchema { ids, metric, of_two_sets } = pairs;
        let [left, right] = PAIR_ID_COLUMNS;
        let fields = vec![ids[0].field(left), ids[1].field(right), metric.value_field()];
        let (key, value) = TWO_SETS;
        let metadata = of_two_sets.then(|| (key.to_owned(), value.to_owned()));
        let schema = Schema::new_with_metadata(fields, metadata.into_iter().collect());
        Ok(Self(LineTable::create(context, target, schema, columns, &["left_", "right_"])?))
    }
}

impl PairSink for PairWriter<'_> {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let PairBatch { left_rows, right_rows, left_ids, right_ids, values } = batch;
        let values = Arc::new(Float32Array::from(values.clone()));
        let columns = vec![left_ids.column(left_rows), right_ids.column(right_rows), values];
        self.0.write(columns, &[left_rows, right_rows])
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        self.0.end()?.publish()
    }
}
