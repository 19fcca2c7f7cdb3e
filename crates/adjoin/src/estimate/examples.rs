//! Example pairs near each threshold, with columns of both rows. They help a user to choose a threshold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use serde::Serialize;

use super::AtThreshold;
use super::near_pairs::{FarthestPairs, NearPair};
use super::notes::Notes;
use super::survey::Scans;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, shortened};
use crate::source::{Attributes, VectorSource};

/// Maximum number of characters of a value.
const SHOWN: usize = 100;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "reading the columns of examples";

/// A pair of rows within a threshold, as far from each other as the threshold allows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairExample {
    /// Number of the first row in the source.
    pub left_row: u64,
    /// Number of the second row in the source.
    pub right_row: u64,
    /// Distance or similarity of the two rows.
    pub value: f32,
    /// Requested columns of the first row, as texts of limited length. `None` if the value is null.
    pub left: BTreeMap<String, Option<String>>,
    /// Requested columns of the second row.
    pub right: BTreeMap<String, Option<String>>,
}

/// Returns examples within a rung, without their columns. Rows have their positions among the usable rows.
pub(super) fn within(notes: &[Notes], rung: usize) -> Vec<PairExample> {
    let mut farthest = FarthestPairs::default();
    notes
        .iter()
        .flat_map(|notes| &notes.farthest[..=rung])
        .flat_map(FarthestPairs::pairs)
        .for_each(|pair| farthest.add(pair));
    let example = |NearPair { places: [left_row, right_row], value, .. }| PairExample {
        left_row,
        right_row,
        value,
        left: BTreeMap::new(),
        right: BTreeMap::new(),
    };
    farthest.pairs().map(example).collect()
}

/// Replaces the positions of rows among the usable rows by row numbers. Scans the source if they differ.
///
/// # Errors
/// If the source cannot be read.
pub(super) fn number_rows(scans: &Scans<'_>, skipped_rows: u64, thresholds: &mut [AtThreshold]) -> Result<()> {
    if skipped_rows == 0 {
        return Ok(());
    }
    let wanted = rows_of(thresholds);
    let (mut numbers, mut place) = (BTreeMap::new(), 0);
    scans.scan("number", |usable| {
        let here = wanted.range(place..place + usable.rows.len() as u64);
        numbers.extend(here.map(|&at| (at, usable.rows[(at - place) as usize])));
        place += usable.rows.len() as u64;
        Ok(())
    })?;
    for example in thresholds.iter_mut().flat_map(|at| &mut at.examples) {
        example.left_row = numbers[&example.left_row];
        example.right_row = numbers[&example.right_row];
    }
    Ok(())
}

fn rows_of(thresholds: &[AtThreshold]) -> BTreeSet<u64> {
    thresholds.iter().flat_map(|at| &at.examples).flat_map(|pair| [pair.left_row, pair.right_row]).collect()
}

/// Columns of a source that examples show.
pub(super) struct ExampleColumns<'a>(Attributes<'a>);

impl<'a> ExampleColumns<'a> {
    /// Opens the named columns. Returns `None` if no column is named.
    ///
    /// # Errors
    /// If the source does not have these columns, or memory does not suffice for them.
    pub(super) fn open(context: &Context, source: &'a dyn VectorSource, names: &[String]) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let columns = Attributes::of(context, source, names, &Argument::Columns.into())?;
        // Refused before any work.
        drop(context.reserve(columns.reading_bytes().unwrap_or(0), PURPOSE)?);
        Ok(Some(Self(columns)))
    }

    /// Reads the columns of all examples.
    ///
    /// # Errors
    /// If the source has changed, cannot be read, or memory does not suffice.
    pub(super) fn read(&self, context: &Context, thresholds: &mut [AtThreshold]) -> Result<()> {
        let rows: Vec<u64> = rows_of(thresholds).into_iter().collect();
        let (mut left, mut values) = (&rows[..], BTreeMap::new());
        self.0.each_of(context, &rows, &mut |table| {
            let (here, after) = left.split_at(table.num_rows());
            left = after;
            for (k, &row) in here.iter().enumerate() {
                values.insert(row, values_of(&table, k)?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for example in thresholds.iter_mut().flat_map(|at| &mut at.examples) {
            example.left.clone_from(&values[&example.left_row]);
            example.right.clone_from(&values[&example.right_row]);
        }
        Ok(())
    }
}

/// Returns the values of a row as texts.
fn values_of(table: &RecordBatch, row: usize) -> Result<BTreeMap<String, Option<String>>> {
    let value = |(field, column): (&arrow_schema::FieldRef, &arrow_array::ArrayRef)| {
        let text = cast(&column.slice(row, 1), &DataType::Utf8).map_err(|error| Error::input(error.to_string()))?;
        let text = text.as_string::<i32>();
        Ok((field.name().clone(), (!text.is_null(0)).then(|| shortened(text.value(0), SHOWN))))
    };
    table.schema_ref().fields().iter().zip(table.columns()).map(value).collect()
}
