//! The least memory of a report.
//!
//! The ids of a result and their names are known only once its files are read. If the budget is too small for them,
//! they are counted within the budget, so that the refusal names a figure that suffices. If it is also too small for
//! counting, the refusal names a bound that follows from the number of pairs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use adjoin::{Components, Context, Error, Result, TableFile, TableFormat};

use super::page::CLUSTERED_ROWS_SHOWN;
use super::pairs::{IDS_BYTES_AT_ONCE, PURPOSE, PairFile, SHOWN, SHOWN_BYTES, bytes_of_id};
use super::table::{self, NAME_CHARACTERS_MAX, NAMES_BYTES_AT_ONCE, bytes_of_name};
use super::{Names, PageNames};

/// Most ids that are counted one by one. Of more ids, every second, fourth and so on is counted.
const COUNTED: usize = 28_000;
/// Bytes of these: a table with a slot for every second id at most, each with a hash and a control byte.
const COUNTED_BYTES: u64 = (COUNTED * 8 / 7).next_power_of_two() as u64 * (size_of::<(u64, Sizes)>() as u64 + 1);
/// Standard deviations that are added to an estimate.
const DEVIATIONS: f64 = 5.0;
/// Least bytes of a pair in a text: two ids, a value and what separates them.
const PAIR_BYTES_MIN: u64 = 6;
/// Bytes of a text that are read at once to count its lines.
const LINES_BYTES: u64 = 64 << 10;
/// Columns of a table whose header does not fit in memory.
const COLUMNS: usize = 16;
/// Most ids on a page.
const IDS_SHOWN: u64 = 2 * SHOWN as u64 + CLUSTERED_ROWS_SHOWN as u64;

/// Bytes of the text of an id and of its name.
#[derive(Clone, Copy, Default)]
struct Sizes {
    id: u32,
    name: Option<u32>,
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
        // Its keys are fixed, so ids and names get equal hashes.
        let mut hasher = DefaultHasher::new();
        (side, id).hash(&mut hasher);
        hasher.finish()
    }

    fn add(&mut self, side: usize, id: &str) {
        let hash = Self::hash(side, id);
        if hash.trailing_zeros() < self.level {
            return;
        }
        self.counted.insert(hash, Sizes { id: id.len() as u32, name: None });
        // Half of the ids are dropped before the table would grow beyond the reserved memory.
        while self.counted.len() == COUNTED {
            self.level += 1;
            self.counted.retain(|hash, _| hash.trailing_zeros() >= self.level);
        }
    }

    /// Returns an upper bound on a sum over all distinct ids; if only a sample was counted, it holds almost certainly.
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

/// Returns the error of a report that does not fit into the budget, and was `refused` at some step.
pub(super) fn refusal(
    context: &Context,
    pairs: &Path,
    names: Option<PageNames<'_>>,
    are_two_sets: bool,
    refused: Error,
) -> Error {
    let least = least_bytes(context, pairs, names, are_two_sets);
    // The budget is known to be too small, so this reservation fails with a message that names the sufficient figure.
    least.ok().and_then(|least| context.reserve(least, PURPOSE).err()).unwrap_or(refused)
}

/// Returns the least bytes of a report.
fn least_bytes(context: &Context, pairs: &Path, names: Option<PageNames<'_>>, are_two_sets: bool) -> Result<u64> {
    let (of_pairs, of_names) = (pairs_bytes(context, pairs)?, names_bytes(context, names)?);
    let needs = counted(context, pairs, names, are_two_sets).or_else(|_| bounded(context, pairs, names))?;
    // Phases follow one another, so the largest of them counts.
    let reading = of_pairs.max(of_names) + Components::memory_bytes(needs.ids);
    let naming = of_names + needs.name_bytes;
    Ok(SHOWN_BYTES + needs.id_bytes + reading.max(naming))
}

/// Returns the bytes that reading pairs takes.
fn pairs_bytes(context: &Context, pairs: &Path) -> Result<u64> {
    let opened = PairFile::open(context, pairs).and_then(|file| file.reading_bytes());
    opened.or_else(|error| TableFile::csv_bytes(pairs, COLUMNS).ok_or(error))
}

/// Returns the most bytes that reading a table of names takes.
pub(super) fn names_bytes(context: &Context, names: Option<PageNames<'_>>) -> Result<u64> {
    sides_of(names)
        .map(|names| table::reading_bytes(context, names, COLUMNS))
        .try_fold(0, |most, bytes| Ok(bytes?.max(most)))
}

/// Returns the names of each side that has some.
fn sides_of(names: Option<PageNames<'_>>) -> impl Iterator<Item = Names<'_>> {
    names.into_iter().flat_map(|names| [Some(names.first), names.second]).flatten()
}

/// Counts all ids and names, within the budget.
fn counted(context: &Context, pairs: &Path, names: Option<PageNames<'_>>, are_two_sets: bool) -> Result<Needs> {
    let _counted = context.reserve(COUNTED_BYTES, PURPOSE)?;
    let mut distinct = Distinct::new();
    let file = PairFile::open(context, pairs)?;
    let right = usize::from(are_two_sets || file.is_marked_of_two_sets());
    // One column after the other takes less memory than both at once.
    for (column, side) in [(0, 0), (1, right)] {
        file.each_id(context, column, |id| distinct.add(side, id))?;
    }
    let mut longest = 0;
    for (side, names) in sides_of(names).enumerate() {
        table::each_name(context, names, |id, name| {
            // The names of all other ids need not be read: the page does not show them, or the sample does not
            // contain them.
            if let Some(sizes) = distinct.counted.get_mut(&Distinct::hash(side, id)) {
                let bytes = name()?.len();
                longest = longest.max(bytes_of_name(id.len(), bytes));
                sizes.name = Some(sizes.name.unwrap_or(0).max(bytes as u32));
            }
            Ok(())
        })?;
    }
    let named = |sizes: &Sizes| sizes.name.map_or(0, |name| bytes_of_name(sizes.id as usize, name as usize));
    // Of many ids, the page shows some, whose names may be the longest.
    let name_bytes = distinct.sum(named).min(IDS_SHOWN * longest);
    Ok(Needs {
        ids: distinct.sum(|_| 1),
        id_bytes: distinct.sum(|sizes| bytes_of_id(sizes.id as usize)) + IDS_BYTES_AT_ONCE,
        name_bytes: name_bytes + if names.is_some() { NAMES_BYTES_AT_ONCE } else { 0 },
    })
}

/// Bounds the ids and names by the number of pairs, or by the bytes of their file.
fn bounded(context: &Context, pairs: &Path, names: Option<PageNames<'_>>) -> Result<Needs> {
    let named_rows = sides_of(names).map(|names| table::rows_max(context, names)).fold(0, u64::saturating_add);
    let bytes = context.device.open(pairs)?.len();
    let opened = PairFile::open(context, pairs).and_then(|file| file.size());
    let (most, text_bytes) = opened.unwrap_or((bytes / PAIR_BYTES_MIN, bytes));
    let pairs = match TableFormat::of(pairs) {
        Ok(TableFormat::Parquet) => most,
        _ => most.min(lines_max(context, pairs)?),
    };
    // In the worst case, no id occurs in two pairs.
    let ids = 2 * pairs;
    // A name is shown only if its id is on the page and has a row in a table of names.
    let shown = ids.min(IDS_SHOWN).min(named_rows);
    let name_bytes = bytes_of_name(0, NAME_CHARACTERS_MAX * char::MAX.len_utf8()) * shown + 2 * text_bytes;
    Ok(Needs {
        ids,
        id_bytes: ids * bytes_of_id(0) + 2 * text_bytes + IDS_BYTES_AT_ONCE,
        name_bytes: if named_rows > 0 { name_bytes + NAMES_BYTES_AT_ONCE } else { 0 },
    })
}

/// Returns a bound on the number of records of a text: a line break or a carriage return ends each but the last.
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
