//! Columns in an append: new rows must have the columns of the store.

use super::old_rows::OldRows;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::message;
use crate::source::{Attributes, VectorSource};
use crate::sql::common;
use crate::store::buckets::Tally;
use crate::store::reader::Store;

/// Opens those columns of the new rows that the store has. `None` if the store has no columns or there are no new rows.
///
/// # Errors
/// Fails if a column is missing or its values do not have the type of the store's column.
pub(super) fn coming<'a>(
    context: &Context,
    store: &Store,
    source: Option<&'a dyn VectorSource>,
) -> Result<Option<Attributes<'a>>> {
    let (Some(columns), Some(source)) = (store.columns(), source) else { return Ok(None) };
    let (at, kept) = (store.folder().display(), columns.schema()?);
    let names: Vec<String> = kept.fields().iter().map(|field| field.name().clone()).collect();
    let whose = message![format!("the columns of {at}")];
    let attributes = Attributes::of(context, source, &names, &whose)?;
    for (there, new) in kept.fields().iter().zip(attributes.schema().fields()) {
        let (kind, coming) = (there.data_type(), new.data_type());
        if common(kind, coming).as_ref() != Some(kind) {
            let name = there.name();
            return Err(Error::input(format!(
                "column {name} of the new rows is {coming}, and of {at} {kind}; give it that type"
            )));
        }
    }
    Ok(Some(attributes))
}

/// Iterates over the positions of old rows and returns their new positions. In each bucket, kept old rows precede the
/// new ones.
pub(super) struct OldPlaces<'a> {
    old: &'a OldRows<'a>,
    /// Position of the first row of each bucket.
    starts: Vec<u64>,
    /// The next old position, its bucket, and the number of earlier rows of that bucket that are kept.
    place: u64,
    bucket: usize,
    before: u64,
}

impl<'a> OldPlaces<'a> {
    /// Creates the iterator for buckets with these new row counts.
    pub(super) fn new(old: &'a OldRows<'a>, tallies: &[Tally]) -> Self {
        let mut start = 0;
        let starts = tallies.iter().map(|tally| {
            start += tally.rows;
            start - tally.rows
        });
        Self { old, starts: starts.collect(), place: 0, bucket: 0, before: 0 }
    }

    /// Returns the new position of the next row; `None` if it is removed.
    pub(super) fn next(&mut self) -> Option<u64> {
        let place = self.place;
        self.place += 1;
        while self.old.firsts().get(self.bucket + 1) == Some(&place) {
            (self.bucket, self.before) = (self.bucket + 1, 0);
        }
        self.old.stays(place).then(|| {
            self.before += 1;
            self.starts[self.bucket] + self.before - 1
        })
    }
}
