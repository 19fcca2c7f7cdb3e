//! Computes the positions of rows in an order by columns.

use std::path::Path;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;
use arrow_schema::DataType;

use super::{BATCH_ROWS, SORTING_SHARE, Tables};
use crate::base::error::{Error, Result};
use crate::base::row_numbers::{RowNumbers, RowSet};
use crate::source::{ColumnPlace, SourceFile, slice_bytes};
use crate::sql::{OrderBy, common};

/// Bytes of rows for which keys are computed at once, unless a single row is larger.
const KEYED_BYTES: u64 = 1 << 20;
/// Memory for computing a key, in multiples of its columns: intermediate results of functions, and the bytes of the
/// key.
const KEY_COPIES: u64 = 6;

/// Computes the positions of all rows. The rows in `first`, if given, are before all others. Both groups are in the
/// order of `order`. Rows with equal keys are in the order of the source, and so are all rows if there is no `order`.
///
/// # Errors
/// If a file has no such columns, or memory does not suffice for a number per row.
pub(super) fn places(
    tables: &Tables<'_>,
    order: Option<&OrderBy>,
    first: Option<&RowSet>,
) -> Result<(RowNumbers, Reservation)> {
    let bytes = RowNumbers::memory_bytes(tables.rows);
    let memory = tables.context.reserve(bytes, "the order of the rows")?;
    let mut places = RowNumbers::new(tables.rows, |row| row);
    let is_first = |row| first.is_some_and(|first| first.contains(row));
    let Some(order) = order else {
        let (mut of_first, mut of_others) = (0, first.map_or(0, RowSet::len));
        for row in 0..tables.rows {
            let next = if is_first(row) { &mut of_first } else { &mut of_others };
            places.set(row, *next);
            *next += 1;
        }
        return Ok((places, memory));
    };
    let (mut sorter, _sorting) = tables.sorter(SORTING_SHARE)?;
    let mut prefixed = Vec::new();
    tables.each_key("order", order, |row, key, _| {
        prefixed.clear();
        prefixed.push(u8::from(!is_first(row)));
        prefixed.extend_from_slice(key);
        sorter.push_row(&prefixed, row)
    })?;
    let (mut sorted, mut record, mut place) = (sorter.finish()?, Vec::new(), 0);
    while let Some(row) = sorted.next_row(&mut record)? {
        places.set(row, place);
        place += 1;
    }
    Ok((places, memory))
}

/// Returns the number of rows, from the start of a table, whose keys can be computed at once; at least one.
fn rows_at_once(table: &RecordBatch) -> usize {
    let mut rows = table.num_rows();
    while rows > 1 && slice_bytes(&table.slice(0, rows)) > KEYED_BYTES {
        rows = rows.div_ceil(2);
    }
    rows
}

/// Refuses a missing column that is a partition key, with a message that its values exist only in the names of
/// folders.
fn check_folders(path: &Path, column: &str) -> Result<()> {
    let is_key = |name: &&str| name.split_once('=').is_some_and(|(key, _)| key.eq_ignore_ascii_case(column));
    let names = path.iter().filter_map(|name| name.to_str());
    // The last component is the name of the file.
    match names.rev().skip(1).find(is_key) {
        None => Ok(()),
        Some(folder) => Err(Error::option(format!(
            "there is no column {column} in the files, only in names of folders such as {folder}; add it to the \
             files, or name another column"
        ))),
    }
}

impl Tables<'_> {
    /// Returns the types of the keys, which must be equal in all files.
    fn kinds_of_keys(&self, order: &OrderBy) -> Result<Vec<DataType>> {
        let mut known: Option<(&SourceFile, Vec<DataType>)> = None;
        for file in self.files.iter().filter(|file| !file.says_nothing()) {
            let schema = file.schema(self.context)?;
            order.missing(&schema).try_for_each(|name| check_folders(&file.path, name))?;
            let kinds = order.kinds(&schema)?;
            let Some((first, of_first)) = &mut known else {
                known = Some((file, kinds));
                continue;
            };
            for (of_first, kind) in of_first.iter_mut().zip(kinds) {
                *of_first = common(of_first, &kind).ok_or_else(|| {
                    let [a, b] = [&first.path, &file.path].map(|path| path.display());
                    Error::input(format!(
                        "{a} and {b} differ in the type of a sort key: {of_first} and {kind}; all files of a set must \
                         agree"
                    ))
                })?;
            }
        }
        Ok(known.map_or_else(Vec::new, |(_, kinds)| kinds))
    }

    /// Passes the key of every row to `take`, and whether the first value of the key is null.
    pub(super) fn each_key(
        &self,
        phase: &str,
        order: &OrderBy,
        mut take: impl FnMut(u64, &[u8], bool) -> Result<()>,
    ) -> Result<()> {
        self.context.progress.begin(phase, "rows", self.rows);
        let kinds = self.kinds_of_keys(order)?;
        for file in self.files.iter().filter(|file| !file.says_nothing()) {
            let bound = order.bind(&*file.schema(self.context)?, &kinds)?;
            let mut row = file.first_row;
            let places: Vec<ColumnPlace> = bound.places.iter().copied().map(ColumnPlace::top).collect();
            for table in file.tables(self.context, &places, BATCH_ROWS)? {
                let mut rest = table?;
                while rest.num_rows() > 0 {
                    self.context.cancel.check()?;
                    // Computing keys takes several times the memory of their columns, so tables are processed in
                    // parts.
                    let rows = rows_at_once(&rest);
                    let part = rest.slice(0, rows);
                    rest = rest.slice(rows, rest.num_rows() - rows);
                    let bytes = slice_bytes(&part).saturating_mul(KEY_COPIES * order.keys() as u64);
                    let _memory = self.context.reserve(bytes, "sorting rows by columns")?;
                    let keys = bound.keys(&part)?;
                    for k in 0..rows {
                        take(row, keys.of(k), keys.is_null(k))?;
                        row += 1;
                    }
                }
                self.context.progress.advance(row);
            }
            file.check_rows(row - file.first_row)?;
        }
        Ok(())
    }
}
