//! Lists the removed rows, each with the row kept for it and the reason.

use adjoin_device::Reservation;
use serde::Serialize;

use super::equal::Equal;
use super::{BATCH_ROWS, SORTING_SHARE, Tables};
use crate::base::error::{Error, Result};
use crate::base::options::Metric;
use crate::base::row_numbers::RowSet;
use crate::base::sorter::{Records, Sorted};
use crate::sink::{Ended, NamedRow, Reason, RemovedTable};
use crate::source::{IdColumn, IdKind, Ids, SourceOptions};

/// Number of examples. `LEAST_NEAR` of them are the pairs whose rows are farthest from each other.
const EXAMPLES: usize = 5;
const LEAST_NEAR: usize = 2;

/// A removed row, and the row kept for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// Number of the removed row.
    pub row: u64,
    /// Number of the kept row.
    pub kept_row: u64,
    /// Distance or similarity of the two rows.
    pub value: f32,
    /// Texts of both rows, if there is a text column; the removed row is first.
    pub texts: [Option<String>; 2],
}

/// Payload of a row that was removed by decision. Its record has the row itself as the kept row.
const BY_DECISION: [u8; 1] = [1];

/// Removed rows in the order of their numbers, each with the kept row. The payload is the distance or similarity. It
/// is empty if the texts are equal, and `BY_DECISION` if the row was removed by decision.
pub(super) struct Removed {
    metric: Metric,
    pairs: Sorted,
    _memory: Reservation,
}

/// A complete list that has not appeared under its name yet.
pub(super) struct Listed(Ended);

impl Listed {
    pub(super) fn publish(self) -> Result<()> {
        self.0.publish().map(drop)
    }
}

impl Removed {
    /// Combines the rows that were removed because a near row is kept, because of equal texts, and by decision. If
    /// the row kept for an equal text was itself removed, it is replaced by the row kept for it.
    pub(super) fn new(
        tables: &Tables<'_>,
        metric: Metric,
        mut near: Sorted,
        equal: Option<Equal>,
        decided: Option<&RowSet>,
    ) -> Result<Self> {
        let (mut all, memory) = tables.sorter(SORTING_SHARE)?;
        let mut equal = equal.map(|equal| Records::new(equal.by_kept)).transpose()?;
        let mut value = Vec::new();
        while let Some((row, kept)) = near.next(&mut value)? {
            all.push((row, kept), &value)?;
            let Some(equal) = &mut equal else { continue };
            equal.each_before(row, |kept, row| all.push((row, kept), &[]))?;
            // This row was kept for rows with equal texts, but was itself removed. Its kept row replaces it.
            equal.each_of(row, |equal_row, _| all.push((equal_row, kept), &[]))?;
        }
        if let Some(equal) = &mut equal {
            equal.each_before(tables.rows, |kept, row| all.push((row, kept), &[]))?;
        }
        for row in decided.into_iter().flat_map(RowSet::iter) {
            all.push((row, row), &BY_DECISION)?;
        }
        Ok(Self { metric, pairs: all.finish()?, _memory: memory })
    }

    /// Writes the table, if requested, and selects examples.
    pub(super) fn list(
        mut self,
        tables: &Tables<'_>,
        options: &SourceOptions,
        table: Option<RemovedTable<'_>>,
    ) -> Result<(Option<Listed>, Vec<Example>)> {
        let mut examples = self.examples()?;
        for example in &mut examples {
            example.texts = [tables.text_of(example.row)?, tables.text_of(example.kept_row)?];
        }
        let Some(mut table) = table else { return Ok((None, examples)) };
        // Lines are sorted by kept row first, to look up the id of the kept row, and then by removed row.
        let (mut by_kept, _memory) = tables.sorter(SORTING_SHARE)?;
        let mut value = Vec::new();
        while let Some((row, kept)) = self.pairs.next(&mut value)? {
            by_kept.push((kept, row), &value)?;
        }
        let mut by_kept = Records::new(by_kept.finish()?)?;
        let (mut by_row, _memory) = tables.sorter(SORTING_SHARE)?;
        tables.each_id(options, |kept, id| {
            by_kept.each_of(kept, |row, value| {
                // The length of the value is stored first, since it depends on the reason.
                let record = [&[value.len() as u8], value, id].concat();
                by_row.push((row, kept), &record)
            })
        })?;
        drop(by_kept);
        let mut by_row = Records::new(by_row.finish()?)?;
        tables.each_id(options, |row, id| {
            by_row.each_of(row, |kept, record| {
                let (value, kept_id) = record[1..].split_at(usize::from(record[0]));
                table.push(NamedRow { row, id }, NamedRow { row: kept, id: kept_id }, reason_of(value))
            })
        })?;
        Ok((Some(Listed(table.end()?)), examples))
    }

    /// Returns the pairs whose rows are farthest from each other, and some other pairs, spread over the rows.
    fn examples(&mut self) -> Result<Vec<Example>> {
        let mut value = Vec::new();
        let (mut examples, mut others, mut seen) = (Vec::<Example>::new(), Vec::new(), 0u64);
        let nearness = |example: &Example| if self.metric == Metric::L2 { -example.value } else { example.value };
        while let Some((row, kept_row)) = self.pairs.next(&mut value)? {
            let Some(value) = value_of(&value) else { continue };
            let example = Example { row, kept_row, value, texts: [None, None] };
            examples.push(example.clone());
            examples.sort_by(|a, b| nearness(a).total_cmp(&nearness(b)));
            examples.truncate(LEAST_NEAR);
            seen += 1;
            // The number of rows is not known in advance. So pairs 1, 2, 4, 8 and so on are candidates, which are
            // spread over all rows.
            if seen.is_power_of_two() {
                others.push(example);
            }
        }
        self.pairs.restart();
        others.retain(|other| !examples.contains(other));
        examples.extend(others.into_iter().rev());
        examples.truncate(EXAMPLES);
        Ok(examples)
    }
}

fn value_of(payload: &[u8]) -> Option<f32> {
    payload.first_chunk().map(|value| f32::from_le_bytes(*value))
}

fn reason_of(payload: &[u8]) -> Reason {
    match value_of(payload) {
        Some(value) => Reason::Near(value),
        None if payload == BY_DECISION => Reason::Decision,
        None => Reason::EqualText,
    }
}

impl Tables<'_> {
    fn ids(&self, options: &SourceOptions, file: usize) -> Result<Option<IdColumn>> {
        self.files[file].ids(self.context, options)
    }

    pub(super) fn id_kind(&self, options: &SourceOptions) -> Result<IdKind> {
        let kind = |ids: Option<IdColumn>| ids.map_or(IdKind::None, |ids| ids.kind);
        let mut telling = (0..self.files.len()).filter(|file| !self.files[*file].says_nothing());
        let Some(known) = telling.next() else { return Ok(IdKind::None) };
        let first = kind(self.ids(options, known)?);
        for file in telling {
            if kind(self.ids(options, file)?) != first {
                let [a, b] = [known, file].map(|file| self.files[file].path.display());
                return Err(Error::input(format!(
                    "{a} and {b} differ in the type of their ids; all files of a set must agree"
                )));
            }
        }
        Ok(first)
    }

    /// Passes each row to `take`, with the bytes of its id. If rows have no ids, the bytes are empty.
    pub(super) fn each_id(
        &self,
        options: &SourceOptions,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for (number, file) in self.files.iter().enumerate().filter(|(_, file)| !file.says_nothing()) {
            let rows = file.first_row..file.first_row + file.rows;
            let Some(column) = self.ids(options, number)? else {
                rows.into_iter().try_for_each(|row| take(row, &[]))?;
                continue;
            };
            let (mut row, mut id) = (file.first_row, Vec::new());
            for table in file.tables(self.context, std::slice::from_ref(&column.place), BATCH_ROWS)? {
                self.context.cancel.check()?;
                let ids: Ids = column.convert(table?.column(0), row - file.first_row)?;
                for k in 0..ids.len() {
                    id.clear();
                    ids.append_bytes_of(k, &mut id);
                    take(row, &id)?;
                    row += 1;
                }
            }
            file.check_rows(row - file.first_row)?;
        }
        Ok(())
    }
}
