//! The least memory of a report, for the message of a refusal.
//!
//! A report holds the ids of a result and their names. Their size is known only after the files are read. If the
//! budget is too small for the ids, they are counted within the budget, so that the refusal can name a figure that
//! suffices. If the budget is too small even for counting, the refusal names an upper bound that follows from the
//! number of lines.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use adjoin::{Components, Context, Error, Result, TableFile, TableFormat};

use super::lines::{IDS_BYTES_AT_ONCE, PURPOSE, SHOWN, SHOWN_BYTES, bytes_of_id};
use super::page::CLUSTERED_ROWS_SHOWN;
use super::result::{Kind, ResultFile};
use super::rows;
use super::table::{self, NAME_CHARACTERS_MAX, NAMES_BYTES_AT_ONCE, bytes_of_texts, shown_part};
use super::{Names, PageNames};

/// Maximum number of ids that are counted. If there are more, a sample of every second, fourth, and so on is counted.
const COUNTED: usize = 28_000;
/// Bytes of the hash table of counted ids. The number of slots is a power of two, and at most 7 of 8 are filled. Each
/// slot has a hash, the sizes and a control byte.
const COUNTED_BYTES: u64 = (COUNTED * 8 / 7).next_power_of_two() as u64 * (size_of::<(u64, Sizes)>() as u64 + 1);
/// Number of standard deviations that are added to an estimate.
const DEVIATIONS: f64 = 5.0;
/// Minimum bytes of a line in a text file: two ids, a separator and a line break.
const LINE_BYTES_MIN: u64 = 4;
/// Bytes of a text file that are read at once to count its lines.
const LINES_BYTES: u64 = 64 << 10;
/// Number of columns that is assumed for a table whose header does not fit in memory.
const COLUMNS: usize = 16;
/// Most ids on a page.
const IDS_SHOWN: u64 = 2 * SHOWN as u64 + CLUSTERED_ROWS_SHOWN as u64;

/// Bytes of the text of an id, of its name, and of its columns.
#[derive(Clone, Copy, Default)]
struct Sizes {
    id: u32,
    name: u32,
    columns: u32,
}

/// Distinct ids of both sides, or a sample of them (adaptive sampling, Flajolet 1990).
struct Distinct {
    /// Sizes of each counted id, by the hash of the id and its side.
    counted: HashMap<u64, Sizes>,
    /// Number of low bits that are 0 in the hashes of counted ids.
    level: u32,
}

impl Distinct {
    fn new() -> Self {
        Self { counted: HashMap::with_capacity(COUNTED), level: 0 }
    }

    fn hash(side: usize, id: &str) -> u64 {
        // The keys of this hasher are fixed, so an id has the same hash in the result and in a table of names.
        let mut hasher = DefaultHasher::new();
        (side, id).hash(&mut hasher);
        hasher.finish()
    }

    fn add(&mut self, side: usize, id: &str) {
        let hash = Self::hash(side, id);
        if hash.trailing_zeros() < self.level {
            return;
        }
        self.counted.insert(hash, Sizes { id: id.len() as u32, ..Sizes::default() });
        // If the table is full, about half of the ids are dropped, so that it does not grow beyond the reserved
        // memory.
        while self.counted.len() == COUNTED {
            self.level += 1;
            self.counted.retain(|hash, _| hash.trailing_zeros() >= self.level);
        }
    }

    /// Returns an upper bound on the sum of `of` over all distinct ids. If only a sample was counted, the bound holds
    /// with a probability close to 1.
    fn sum(&self, of: impl Fn(&Sizes) -> u64) -> u64 {
        let terms = self.counted.values().map(|sizes| of(sizes) as f64);
        let (sum, squares) = terms.fold((0.0, 0.0), |(sum, squares), term| (sum + term, squares + term * term));
        // Each id was kept with a probability of 1 / `times`. The variance of such a sum is estimated without bias
        // from the kept terms (Horvitz and Thompson 1952).
        let times = f64::from(self.level).exp2();
        let deviation = (times * (times - 1.0) * squares).sqrt();
        (sum * times + DEVIATIONS * deviation).ceil() as u64
    }
}

/// Bytes that depend on the ids of a result.
struct Needs {
    ids: u64,
    id_bytes: u64,
    name_bytes: u64,
}

/// Returns the error of a report that does not fit into the budget. `refused` is the error of the step that failed.
pub(super) fn refusal(
    context: &Context,
    result: &Path,
    names: Option<PageNames<'_>>,
    are_two_sets: bool,
    refused: Error,
) -> Error {
    let least = least_bytes(context, result, names, are_two_sets);
    // The budget is known to be too small, so this reservation fails with a message that names the sufficient figure.
    least.ok().and_then(|least| context.reserve(least, PURPOSE).err()).unwrap_or(refused)
}

/// Returns the smallest budget of a report, in bytes.
fn least_bytes(context: &Context, result: &Path, names: Option<PageNames<'_>>, are_two_sets: bool) -> Result<u64> {
    let opened = ResultFile::open(context, result);
    let of_lines = match &opened {
        Ok(file) => file.reading_bytes().or_else(|error| TableFile::csv_bytes(result, COLUMNS).ok_or(error))?,
        Err(_) => TableFile::csv_bytes(result, COLUMNS).map_or_else(|| Err(unknown_header(result)), Ok)?,
    };
    let counted_columns = opened.as_ref().map_or(Vec::new(), ResultFile::counted);
    let of_names = names_bytes(context, names, &counted_columns)?;
    let of_counts = match &opened {
        Ok(file) => rows::counts_bytes(file),
        Err(_) => carried_max(context, result)? as u64 * rows::COUNTS_BYTES,
    };
    let needs = counted(context, result, names, are_two_sets).or_else(|_| bounded(context, result, names))?;
    let has_clusters = opened.as_ref().map_or(true, |file| file.kind != Kind::Hits);
    let of_clusters = if has_clusters { Components::memory_bytes(needs.ids) } else { 0 };
    // Only one of these phases runs at a time, so the largest counts.
    let reading = of_lines.max(of_names).max(of_counts) + of_clusters;
    let naming = of_names.max(of_lines) + of_counts + needs.name_bytes;
    Ok(SHOWN_BYTES + needs.id_bytes + reading.max(naming))
}

/// Returns the error for a result whose header cannot be read. The user never sees it: [`refusal`] then returns the
/// refusal of the report.
fn unknown_header(result: &Path) -> Error {
    Error::input(format!("{}: its header cannot be read", result.display()))
}

/// Returns the peak memory, in bytes, for reading the tables of names and their columns `counted`.
pub(super) fn names_bytes(context: &Context, names: Option<PageNames<'_>>, counted: &[&str]) -> Result<u64> {
    sides_of(names)
        .map(|names| table::reading_bytes(context, names, counted, COLUMNS))
        .try_fold(0, |most, bytes| Ok(bytes?.max(most)))
}

/// Returns the names of each side for which names are given.
fn sides_of(names: Option<PageNames<'_>>) -> impl Iterator<Item = Names<'_>> {
    names.into_iter().flat_map(|names| [Some(names.first), names.second]).flatten()
}

/// Returns whether the page has the ids of a line. If the result is hits, the page has only the first lines.
fn has_ids(file: &ResultFile, line: u64) -> bool {
    file.kind != Kind::Hits || line < SHOWN as u64
}

/// Counts all ids, names and columns, within the budget.
fn counted(context: &Context, result: &Path, names: Option<PageNames<'_>>, are_two_sets: bool) -> Result<Needs> {
    let _counted = context.reserve(COUNTED_BYTES, PURPOSE)?;
    let mut distinct = Distinct::new();
    let file = ResultFile::open(context, result)?;
    let are_apart = are_two_sets || file.is_marked_of_two_sets() || matches!(file.kind, Kind::Removed | Kind::Hits);
    let place = |set| if are_apart { set } else { 0 };
    // Reading one column after the other takes less memory than reading both at once.
    for column in [0, 1] {
        file.each_id(context, column, |line, set, id| {
            if has_ids(&file, line) {
                distinct.add(place(set), id);
            }
        })?;
    }
    let mut longest = [0; 2];
    file.each_rows(context, |line, both, value| {
        let shown = both.into_iter().enumerate().filter(|&(side, _)| has_ids(&file, line) && file.carries(side));
        for (side, (set, id)) in shown {
            if let Some(sizes) = distinct.counted.get_mut(&Distinct::hash(place(set), id)) {
                let text = |column| Ok(shown_part(&value(column, side)?.unwrap_or_default()).len());
                let bytes: usize = (0..file.carried.len()).map(text).sum::<Result<usize>>()?;
                let bytes = bytes_of_texts(id.len(), bytes, file.carried.len());
                longest[0] = bytes.max(longest[0]);
                sizes.columns = sizes.columns.max(bytes as u32);
            }
        }
        Ok(())
    })?;
    let is_of_one = !are_two_sets && file.kind == Kind::Removed;
    for (side, names) in sides_of(names).enumerate() {
        table::each_name(context, names, |id, name| {
            // A name is read only if the page shows its id and the sample contains it. All other names are skipped.
            for side in if is_of_one { 0..2 } else { side..side + 1 } {
                if let Some(sizes) = distinct.counted.get_mut(&Distinct::hash(side, id)) {
                    let bytes = bytes_of_texts(id.len(), name()?.len(), 1);
                    longest[1] = bytes.max(longest[1]);
                    sizes.name = sizes.name.max(bytes as u32);
                }
            }
            Ok(())
        })?;
    }
    // The page shows at most `IDS_SHOWN` ids. In the worst case, their texts are the longest ones.
    let shown = |of: fn(&Sizes) -> u32, longest: u64| distinct.sum(|sizes| of(sizes).into()).min(IDS_SHOWN * longest);
    let name_bytes = shown(|sizes| sizes.name, longest[1]) + shown(|sizes| sizes.columns, longest[0]);
    let sources = sides_of(names).count() as u64 + if file.carried.is_empty() { 0 } else { 2 };
    Ok(Needs {
        ids: distinct.sum(|_| 1),
        id_bytes: distinct.sum(|sizes| bytes_of_id(sizes.id as usize)) + IDS_BYTES_AT_ONCE,
        name_bytes: name_bytes + sources * NAMES_BYTES_AT_ONCE,
    })
}

/// Returns an upper bound on the ids and names that follows from the number of lines, or from the bytes of their
/// file.
fn bounded(context: &Context, result: &Path, names: Option<PageNames<'_>>) -> Result<Needs> {
    let named_rows = sides_of(names).map(|names| table::rows_max(context, names)).fold(0, u64::saturating_add);
    let bytes = context.device.open(result)?.len();
    let opened = ResultFile::open(context, result);
    let is_text = !matches!(TableFormat::of(result), Ok(TableFormat::Parquet));
    let columns = match &opened {
        Ok(file) => file.carried.len(),
        Err(_) => carried_max(context, result)?,
    };
    let of_hits = opened.as_ref().is_ok_and(|file| file.kind == Kind::Hits);
    let (most, text_bytes) = opened.and_then(|file| file.size()).unwrap_or((bytes / LINE_BYTES_MIN, bytes));
    let lines = if is_text { most.min(lines_max(context, result)?) } else { most };
    let lines = if of_hits { lines.min(SHOWN as u64) } else { lines };
    // In the worst case, no id occurs in two lines.
    let ids = 2 * lines;
    let text = NAME_CHARACTERS_MAX * char::MAX.len_utf8();
    // A name is shown only if its id is on the page and has a row in a table of names.
    let shown = ids.min(IDS_SHOWN);
    let names = bytes_of_texts(0, text, 1) * shown.min(named_rows) + 2 * text_bytes;
    // In a text file, every value is written in its line, so the size of the file bounds the sum of all values.
    let texts = if is_text { 2 * bytes } else { 2 * shown * (columns * text) as u64 };
    let columns = if columns == 0 { 0 } else { bytes_of_texts(0, 0, columns) * shown + texts + 2 * text_bytes };
    Ok(Needs {
        ids,
        id_bytes: ids * bytes_of_id(0) + 2 * text_bytes + IDS_BYTES_AT_ONCE,
        name_bytes: columns + if named_rows > 0 { names } else { 0 } + 4 * NAMES_BYTES_AT_ONCE,
    })
}

/// Returns an upper bound on the number of carried columns in a text file. It follows from the separators in the
/// first line.
fn carried_max(context: &Context, result: &Path) -> Result<usize> {
    let _memory = context.reserve(LINES_BYTES, PURPOSE)?;
    let file = context.device.open(result)?;
    let mut piece = vec![0; LINES_BYTES.min(file.len()) as usize];
    file.read_at(0, &mut piece)?;
    let separator = if matches!(TableFormat::of(result), Ok(TableFormat::Csv)) { b',' } else { b':' };
    let line = piece.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
    if line.len() as u64 == LINES_BYTES {
        return Ok(COLUMNS); // the first line is longer than the buffer
    }
    let columns = line.iter().filter(|&&byte| byte == separator).count() + 1;
    // Two ids and the value are not carried columns.
    Ok(columns.saturating_sub(3).min(COLUMNS))
}

/// Returns an upper bound on the number of records in a text file. Each record except the last ends with a line break
/// or a carriage return.
fn lines_max(context: &Context, path: &Path) -> Result<u64> {
    let _memory = context.reserve(LINES_BYTES, PURPOSE)?;
    let (file, mut piece) = (context.device.open(path)?, vec![0; LINES_BYTES as usize]);
    let (mut lines, mut position) = (1, 0);
    while position < file.len() {
        context.cancel.check()?;
        let bytes = LINES_BYTES.min(file.len() - position);
        let read = &mut piece[..bytes as usize];
        file.read_at(position, read)?;
        lines += read.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() as u64;
        position += bytes;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_over_distinct_ids_is_exact_if_they_are_few_and_a_close_bound_otherwise() {
        for (ids, most) in [(1_000, 1.0), (27_999, 1.0), (28_000, 1.06), (1_000_000, 1.06)] {
            let mut distinct = Distinct::new();
            (0..2 * ids).for_each(|k| distinct.add(0, &(k % ids).to_string()));
            let count = distinct.sum(|_| 1) as f64 / f64::from(ids);
            assert!((1.0..=most).contains(&count), "{ids}: {count}");
            let exact: usize = (0..ids).map(|id| id.to_string().len()).sum();
            let bytes = distinct.sum(|sizes| sizes.id.into()) as f64 / exact as f64;
            assert!((1.0..=most).contains(&bytes), "{ids}: {bytes}");
        }
    }
}
