//! The table of removed rows, each with the row kept for it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, StringArray};
use arrow_schema::{DataType, Field};

use super::row_ids::IdColumn;
use super::table::{Ended, TableWriter};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::source::IdKind;

/// The table while it is written: `id`, `kept_id`, their `distance` or `similarity`, and the `reason` if there are
/// several.
pub(crate) struct RemovedTable {
    table: TableWriter,
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

impl RemovedTable {
    /// Creates the table; `kinds` are the kinds of ids of removed and kept rows. With reasons, rows without a near row
    /// may be listed too: rows with equal texts.
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub(crate) fn create(
        context: &Context,
        target: &Target,
        kinds: [IdKind; 2],
        metric: Metric,
        has_reasons: bool,
    ) -> Result<Self> {
        // Rows that were removed for an equal text have no value, so the column has nulls.
        let value = metric.value_field().with_nullable(has_reasons);
        let reason = has_reasons.then(|| Field::new("reason", DataType::Utf8, false));
        let fields = [kinds[0].field("id"), kinds[1].field("kept_id"), value].into_iter().chain(reason).collect();
        let table = TableWriter::create(context, target, fields)?;
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
        self.table.write([self.ids.take(), self.kept_ids.take(), values].into_iter().chain(reasons).collect())
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
