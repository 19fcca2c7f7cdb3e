//! Reads the texts of single rows, to show them to the user.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_cast::cast;
use arrow_schema::DataType;

use super::Tables;
use crate::base::error::{Error, Result};
use crate::base::message::shortened;
use crate::source::ColumnPlace;

/// Maximum number of characters of a text that are shown.
const SHOWN: usize = 60;

impl Tables<'_> {
    /// Returns the beginning of a row's text in the first text column. Returns `None` if there is no such column, or
    /// if the row has no text.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub(super) fn text_of(&self, row: u64) -> Result<Option<String>> {
        let at = self.files.partition_point(|file| file.first_row <= row).saturating_sub(1);
        let Some(file) = self.files.get(at).filter(|file| file.is_table()) else { return Ok(None) };
        let schema = file.schema(self.context)?;
        let is_text = |kind: &DataType| match kind {
            DataType::Dictionary(_, values) => values.is_string(),
            kind => kind.is_string(),
        };
        let Some(column) = schema.fields().iter().position(|field| is_text(field.data_type())) else { return Ok(None) };
        let table = file.row(self.context, &[ColumnPlace::top(column)], row - file.first_row)?;
        let text = cast(table.column(0), &DataType::LargeUtf8).map_err(|error| Error::input(error.to_string()))?;
        let text = text.as_string::<i64>();
        Ok((!text.is_null(0)).then(|| shortened(text.value(0), SHOWN)))
    }
}
