//! The table of removed rows, each with the row kept for it.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::nullif::nullif;

use super::line_table::{CarriedColumns, LineTable};
use super::row_ids::IdColumn;
use super::table::Ended;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::source::IdKind;

/// Writer of the table. Its columns are `id`, `kept_id`, the `distance` or `similarity` of the two rows, the `reason`
/// if there are several reasons, and the carried columns, such as `text` and `kept_text`.
pub(crate) struct RemovedTable<'a> {
    table: LineTable<'a>,
    ids: IdColumn,
    kept_ids: IdColumn,
    why: Vec<Reason>,
    reasons: Reasons,
}

/// Why a row was removed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reason {
    /// The row is near the kept row. The value is their distance or similarity.
    Near(f32),
    /// The text of the row equals the text of the kept row.
    EqualText,
    /// A user decided to remove the row. No row is kept for it.
    Decision,
}

/// The reasons that can occur in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reasons {
    /// All rows are near the kept row, so reasons are not listed.
    Near,
    /// Rows are near the kept row or equal to it in text.
    NearOrEqual,
    /// Some rows may have been removed by decision, without a kept row.
    WithDecisions,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Near(_) => "similar",
            Self::EqualText => "equal text",
            Self::Decision => "decision",
        }
    }

    fn value(self) -> Option<f32> {
        match self {
            Self::Near(value) => Some(value),
            Self::EqualText | Self::Decision => None,
        }
    }
}

/// A row and its id.
pub(crate) struct NamedRow<'a> {
    pub(crate) row: u64,
    pub(crate) id: &'a [u8],
}

impl<'a> RemovedTable<'a> {
    /// Creates the table. `kinds` are the kinds of the ids of removed and of kept rows, and `reasons` the reasons
    /// that can occur. Lines carry `columns`, if given.
    ///
    /// # Errors
    /// If the table cannot be created ([`LineTable::create`]).
    pub(crate) fn create(
        context: &Context,
        target: &Target,
        kinds: [IdKind; 2],
        metric: Metric,
        reasons: Reasons,
        columns: Option<CarriedColumns<'a>>,
    ) -> Result<Self> {
        let has_reasons = reasons != Reasons::Near;
        // A row that was removed because its text is equal has no value, so the column may contain nulls.
        let value = metric.value_field().with_nullable(has_reasons);
        let reason = has_reasons.then(|| Field::new("reason", DataType::Utf8, false));
        let kept_id = kinds[1].field("kept_id").with_nullable(reasons == Reasons::WithDecisions);
        let fields = [kinds[0].field("id"), kept_id, value].into_iter().chain(reason);
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let table = LineTable::create(context, target, schema, columns, &["", "kept_"])?;
        let (ids, kept_ids) = (IdColumn::new(kinds[0]), IdColumn::new(kinds[1]));
        Ok(Self { table, ids, kept_ids, why: Vec::new(), reasons })
    }

    /// Appends a removed row and the row kept for it. If it was removed by decision, `kept` is ignored.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) fn push(&mut self, removed: NamedRow<'_>, kept: NamedRow<'_>, why: Reason) -> Result<()> {
        self.ids.push(removed.row, removed.id);
        self.kept_ids.push(kept.row, kept.id);
        self.why.push(why);
        if self.ids.is_full() || self.kept_ids.is_full() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let why = std::mem::take(&mut self.why);
        let names = || why.iter().map(|why| Some(why.name())).collect::<StringArray>();
        let reasons = (self.reasons != Reasons::Near).then(|| Arc::new(names()) as ArrayRef);
        let values: ArrayRef = Arc::new(why.iter().map(|why| why.value()).collect::<Float32Array>());
        let [(rows, ids), (kept_rows, kept_ids)] = [&mut self.ids, &mut self.kept_ids].map(IdColumn::take_with_rows);
        let kept_ids = match self.reasons {
            Reasons::WithDecisions => {
                let has_none: BooleanArray = why.iter().map(|&why| Some(why == Reason::Decision)).collect();
                nullif(&kept_ids, &has_none).map_err(|error| Error::input(error.to_string()))?
            }
            Reasons::Near | Reasons::NearOrEqual => kept_ids,
        };
        self.table.write([ids, kept_ids, values].into_iter().chain(reasons).collect(), &[&rows, &kept_rows])
    }

    /// Completes the table. It appears under its name only when it is published.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) fn end(mut self) -> Result<Ended> {
        self.write()?;
        self.table.end()
    }
}
