//! The table of removed rows, each with the row kept for it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, StringArray};
use arrow_schema::{DataType, Field, Schema};

use super::pair_table::{CarriedColumns, PairTable};
use super::row_ids::IdColumn;
use super::table::Ended;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::source::IdKind;

/// The table while it is written: `id`, `kept_id`, their `distance` or `similarity`, the `reason` if there are several,
/// and the columns that lines carry, such as `text` and `kept_text`.
pub(crate) struct RemovedTable<'a> {
    table: PairTable<'a>,
    ids: IdColumn,
    kept_ids: IdColumn,
    values: Vec<Option<f32>>,
    has_reasons: bool,
}

/// A row and its id.
pub(crate) struct NamedRow<'a> {
    pub(crate) row: u64,
    pub(crate) id: &'a [u8],
}

impl<'a> RemovedTable<'a> {
    /// Creates the table; `kinds` are the kinds of ids of removed and kept rows. With reasons, rows without a near row
    /// may be listed too: rows with equal texts. Lines carry `columns`, if any.
    ///
    /// # Errors
    /// As [`PairTable::create`].
    pub(crate) fn create(
        context: &Context,
        target: &Target,
        kinds: [IdKind; 2],
        metric: Metric,
        has_reasons: bool,
        columns: Option<CarriedColumns<'a>>,
    ) -> Result<Self> {
        // Rows that were removed for an equal text have no value, so the column has nulls.
        let value = metric.value_field().with_nullable(has_reasons);
        let reason = has_reasons.then(|| Field::new("reason", DataType::Utf8, false));
        let fields = [kinds[0].field("id"), kinds[1].field("kept_id"), value].into_iter().chain(reason);
        let names = |column: &str| [column.to_owned(), format!("kept_{column}")];
        let table = PairTable::create(context, target, Schema::new(fields.collect::<Vec<_>>()), columns, names)?;
        let (ids, kept_ids) = (IdColumn::new(kinds[0]), IdColumn::new(kinds[1]));
        Ok(Self { table, ids, kept_ids, values: Vec::new(), has_reasons })
    }

    /// Appends a removed row and the row kept for it, with their value, which is `None` if their texts are equal.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) fn push(&mut self, removed: NamedRow<'_>, kept: NamedRow<'_>, value: Option<f32>) -> Result<()> {
        self.ids.push(removed.row, removed.id);
        self.kept_ids.push(kept.row, kept.id);
        self.values.push(value);
        if self.ids.is_full() || self.kept_ids.is_full() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let values = std::mem::take(&mut self.values);
        let reason = |value: &Option<f32>| Some(if value.is_some() { "similar" } else { "equal text" });
        let reasons = self.has_reasons.then(|| values.iter().map(reason).collect::<StringArray>());
        let values: ArrayRef = Arc::new(Float32Array::from(values));
        let reasons = reasons.map(|reasons| Arc::new(reasons) as ArrayRef);
        let [(rows, ids), (kept_rows, kept_ids)] = [&mut self.ids, &mut self.kept_ids].map(IdColumn::take_with_rows);
        self.table.write([ids, kept_ids, values].into_iter().chain(reasons).collect(), &rows, &kept_rows)
    }

    /// Completes the table, which has no name yet.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) fn end(mut self) -> Result<Ended> {
        self.write()?;
        self.table.end()
    }
}
