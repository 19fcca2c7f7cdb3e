//! Reads the columns that the lines of a result carry: the texts for the page, and, for columns with few distinct
//! values, the number of lines per value.

use std::collections::{BTreeMap, HashSet};

use adjoin::{Context, Result, device::Reservation};
use serde::Serialize;

use super::Names;
use super::lines::{PURPOSE, SHOWN};
use super::result::{Kind, ResultFile};
use super::table::{self, Texts, shown_part};

/// Maximum number of distinct values of a column on each side, and maximum bytes of a value. If a column has more or
/// longer values, lines are not counted by it.
const VALUES_MAX: usize = 24;
const VALUE_BYTES_MAX: usize = 64;
/// Minimum number of lines per value, on average. If it is lower, the values name single rows, not groups of rows.
const LINES_A_VALUE: u64 = 2;
/// Bytes of the counts of a column. For each pair of values, they have two texts and an entry of the map.
pub(super) const COUNTS_BYTES: u64 = (VALUES_MAX * VALUES_MAX * (2 * VALUE_BYTES_MAX + 128)) as u64;

/// Number of lines with each value of a column.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Shares {
    column: String,
    /// For each pair of a left and a right value, the number of lines. If a side lacks the column, its value is
    /// empty.
    lines: Vec<(String, String, u64)>,
    /// For each left value, the number of rows in the whole set. Empty if the set is not known.
    rows: Vec<(String, u64)>,
}

impl Shares {
    /// Counts the rows of the whole set by value, if the tables of names have the column.
    ///
    /// # Errors
    /// If a table cannot be read, or memory does not suffice.
    pub(super) fn count_rows(&mut self, context: &Context, set: Names<'_>) -> Result<()> {
        let mut rows: BTreeMap<&str, u64> = self.lines.iter().map(|(value, ..)| (value.as_str(), 0)).collect();
        let has_column = table::each_value(context, set, &self.column, |value| {
            if let Some(rows) = rows.get_mut(value) {
                *rows += 1;
            }
        })?;
        if has_column {
            self.rows = rows.into_iter().map(|(value, rows)| (value.to_owned(), rows)).collect();
        }
        Ok(())
    }
}

/// The columns of the rows on a page.
pub(super) struct RowTexts {
    /// Texts of the rows on each side. If the two sides are not distinguished, all are on side 0.
    pub(super) by_side: [Texts; 2],
    pub(super) shares: Vec<Shares>,
    /// Index of the column that is shown as the name of a row, if a column has texts.
    pub(super) name: Option<usize>,
}

/// Returns the maximum bytes of the counts of all columns.
pub(super) fn counts_bytes(file: &ResultFile) -> u64 {
    COUNTS_BYTES * file.carried.len() as u64
}

/// Reads the columns that lines carry. `ids` are the ids on the page, by side. If `are_apart` is false, the two sides
/// are not distinguished, and all ids are on side 0.
///
/// # Errors
/// If the file cannot be read, or memory does not suffice.
pub(super) fn read(context: &Context, file: &ResultFile, ids: [HashSet<&str>; 2], are_apart: bool) -> Result<RowTexts> {
    let _memory: Reservation = context.reserve(counts_bytes(file), PURPOSE)?;
    let mut counts: Vec<Counts> = file.carried.iter().map(|_| Counts::default()).collect();
    let mut by_side = [Texts::default(), Texts::default()];
    file.each_rows(context, |number, both, value| {
        for (side, (set, id)) in both.into_iter().enumerate().filter(|&(side, _)| file.carries(side)) {
            let at = if are_apart { set } else { 0 };
            // If the result is hits, only the first lines are on the page. An id of them may occur in many later
            // lines too.
            let is_shown = file.kind != Kind::Hits || number < SHOWN as u64;
            if is_shown && ids[at].contains(id) && !by_side[at].of.contains_key(id) {
                let text = |column| Ok(shown_part(&value(column, side)?.unwrap_or_default()));
                let texts = (0..file.carried.len()).map(text).collect::<Result<Vec<_>>>()?;
                by_side[at].add(context, id.to_owned(), texts)?;
            }
        }
        for (column, counts) in counts.iter_mut().enumerate().filter(|(_, counts)| !counts.are_too_many) {
            counts.add([value(column, 0)?.unwrap_or_default(), value(column, 1)?.unwrap_or_default()]);
        }
        Ok(())
    })?;
    let is_group: Vec<bool> = counts.iter().map(Counts::are_groups).collect();
    let texts = || (0..file.carried.len()).filter(|&column| file.carried[column].is_text);
    let name = texts().find(|&column| !is_group[column]).or_else(|| texts().next());
    let columns = file.carried.iter().zip(counts).filter(|(_, counts)| counts.are_groups());
    let shares = columns.map(|(column, counts)| counts.shares(&column.name)).collect();
    Ok(RowTexts { by_side, shares, name })
}

/// Counts lines by the values of a column.
#[derive(Default)]
struct Counts {
    by_values: BTreeMap<[String; 2], u64>,
    values: [HashSet<String>; 2],
    lines: u64,
    /// Whether the column has too many values, or too long ones, to count lines by them.
    are_too_many: bool,
}

impl Counts {
    fn add(&mut self, values: [String; 2]) {
        self.lines += 1;
        for (known, value) in self.values.iter_mut().zip(&values) {
            if !known.contains(value) {
                self.are_too_many |= known.len() == VALUES_MAX || value.len() > VALUE_BYTES_MAX;
                known.insert(value.clone());
            }
        }
        if self.are_too_many {
            *self = Self { are_too_many: true, ..Self::default() };
            return;
        }
        *self.by_values.entry(values).or_default() += 1;
    }

    /// Returns whether the values name groups of rows, such as languages or sources.
    fn are_groups(&self) -> bool {
        let distinct = self.values.iter().map(HashSet::len).max().unwrap_or(0) as u64;
        !self.are_too_many && distinct > 1 && self.lines >= LINES_A_VALUE * distinct
    }

    fn shares(self, column: &str) -> Shares {
        let lines = self.by_values.into_iter().map(|([left, right], lines)| (left, right, lines));
        Shares { column: column.to_owned(), lines: lines.collect(), rows: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: impl Iterator<Item = [String; 2]>) -> Counts {
        let mut counts = Counts::default();
        lines.for_each(|line| counts.add(line));
        counts
    }

    #[test]
    fn columns_of_few_values_are_counted_by_both_sides() {
        let line = |k: u64| [k % 2, k % 3].map(|value| format!("v{value}"));
        let counts = counted((0..12).map(line));
        assert!(counts.are_groups());
        let shares = counts.shares("lang").lines;
        assert_eq!(shares.len(), 6);
        assert!(shares.iter().all(|line| line.2 == 2), "{shares:?}");
    }

    #[test]
    fn columns_of_many_long_or_single_values_are_not_counted() {
        let most = VALUES_MAX as u64;
        let same = |value: String| [value.clone(), value];
        assert!(counted((0..4 * most).map(|k| same((k % most).to_string()))).are_groups());
        assert!(!counted((0..4 * most).map(|k| same((k % (most + 1)).to_string()))).are_groups());
        assert!(!counted((0..3).map(|k| same(k.to_string()))).are_groups());
        assert!(!counted((0..9).map(|_| same("one".into()))).are_groups());
        assert!(!counted((0..9).map(|k| same(k.to_string().repeat(VALUE_BYTES_MAX + 1)))).are_groups());
    }
}
