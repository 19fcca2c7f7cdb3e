//! Attributes of a store to which rows come: the columns that it has, of the new rows too.

use super::old_rows::OldRows;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::message;
use crate::source::{Attributes, VectorSource};
use crate::sql::common;
use crate::store::buckets::Tally;
use crate::store::reader::Store;

/// The columns of new rows that a store has; none where it has none, or no rows come.
///
/// # Errors
/// Where one is missing, or its values are not of the type that the store has.
pub(super) fn coming<'a>(
    context: &Context,
    store: &Store,
    source: Option<&'a dyn VectorSource>,
) -> Result<Option<Attributes<'a>>> {
    let ((Some(file), files), Some(source)) = (store.attribute_file(), source) else { return Ok(None) };
    let (at, kept) = (store.folder().display(), file.schema(files)?);
    let names: Vec<String> = kept.fields().iter().map(|field| field.name().clone()).collect();
    let whose = message![format!("the attributes of {at}")];
    let attributes = Attributes::of(context, source, (&names, &whose))?;
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

/// Where old rows come to lie, place by place: in each bucket those that stay lie before the new ones.
pub(super) struct OldPlaces<'a> {
    old: &'a OldRows<'a>,
    /// Where each bucket begins, and the end of the last one.
    starts: Vec<u64>,
    /// The next place as it was, its bucket, and the rows of that which came before and stay.
    place: u64,
    bucket: usize,
    before: u64,
}

impl<'a> OldPlaces<'a> {
    /// Of buckets that have so many rows now.
    pub(super) fn new(old: &'a OldRows<'a>, tallies: &[Tally]) -> Self {
        let mut start = 0;
        let starts = tallies.iter().map(|tally| {
            start += tally.rows;
            start - tally.rows
        });
        Self { old, starts: starts.collect(), place: 0, bucket: 0, before: 0 }
    }

    /// Where the next row lies; nothing where it goes.
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
