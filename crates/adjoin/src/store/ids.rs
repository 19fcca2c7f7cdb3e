//! Finds duplicate ids by sorting hashes, in bounded memory.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;
use zerocopy::transmute;

use super::intake::UsableRows;
use super::partitions::{PartitionSizes, Partitions};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, Message, message};
use crate::base::options::format_count;
use crate::source::{IdKind, Ids, VectorSource};

/// Size of a record in bytes: a 128-bit hash and a row number.
const RECORD_BYTES: usize = 24;

/// Returns the hash of id `k`; `None` if there are no ids. Two ids with equal hashes are treated as equal. Among 10^12
/// distinct ids, the probability of any collision is about 2 in 10^15.
pub(crate) fn hash_of(ids: &Ids, k: usize) -> Option<u128> {
    match ids {
        Ids::None => None,
        Ids::Int64(ids) => Some(xxh3_128(&ids[k].to_le_bytes())),
        Ids::Utf8(texts) => Some(xxh3_128(texts.get(k))),
    }
}

/// Hashes of all ids, partitioned by their first bits.
pub(crate) struct IdCheck {
    hashes: Partitions,
    partitions: usize,
}

/// Duplicate ids: rows with the id of an earlier row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Duplicates {
    pub(crate) count: u64,
    /// Number of duplicates among the appended rows.
    pub(crate) coming: u64,
    /// First duplicate among the appended rows.
    pub(crate) first: Option<u64>,
}

/// Returns the most memory that a check of `rows` ids can use, in bytes. A check also works with much less.
pub(crate) fn wanted_bytes(rows: u64) -> u64 {
    PartitionSizes::least() + 3 * rows * RECORD_BYTES as u64
}

impl IdCheck {
    /// Returns the most memory that a check of `rows` ids can use, in bytes.
    pub(crate) fn wanted_bytes(rows: u64) -> u64 {
        wanted_bytes(rows)
    }

    /// Returns the minimum memory of a check, in bytes. A check uses this much even if its limit is lower.
    pub(crate) fn least_bytes() -> u64 {
        PartitionSizes::least()
    }

    /// Creates a check for about `rows` ids within `memory` bytes. Temporary files go to the folder `folder`.
    pub(crate) fn new(context: &Context, folder: &Path, rows: u64, memory: u64) -> Self {
        // One third is for the partition that is sorted, two thirds are for the partitions that are filled.
        let partitions = (rows * RECORD_BYTES as u64).div_ceil((memory / 3).max(1));
        let sizes = PartitionSizes::within(memory / 3 * 2, partitions);
        Self { hashes: Partitions::new(context, folder, "ids", sizes), partitions: sizes.partitions }
    }

    /// Adds the ids of some rows.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be written.
    pub(crate) fn add(&mut self, usable: &UsableRows) -> Result<()> {
        for (k, &row) in usable.rows.iter().enumerate() {
            let Some(hash) = hash_of(&usable.ids, k) else { return Ok(()) };
            self.add_hash(hash, row)?;
        }
        Ok(())
    }

    /// Adds the hash of the id of a row.
    ///
    /// # Errors
    /// Fails as [`Self::add`] does.
    pub(crate) fn add_hash(&mut self, hash: u128, row: u64) -> Result<()> {
        // Scales the upper half of the hash to the number of partitions, so equal hashes are in the same partition.
        let partition = ((hash >> 64) * self.partitions as u128) >> 64;
        self.hashes.push(partition as usize, &[&hash.to_le_bytes(), &row.to_le_bytes()])
    }

    /// Finds the rows with the id of an earlier row. Rows are appended rows if their number is at least `first_new`.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be written or read.
    pub(crate) fn finish(self, first_new: u64) -> Result<Duplicates> {
        let hashes = self.hashes.finish()?;
        let mut duplicates = Duplicates::default();
        let mut records: Vec<[u64; 3]> = Vec::new();
        for partition in 0..self.partitions {
            records.clear();
            hashes.read(partition, |block| {
                let words = |record: &[u8; RECORD_BYTES]| {
                    let [low, high, row]: [u64; 3] = transmute!(*record);
                    [high, low, row]
                };
                records.extend(block.as_chunks::<RECORD_BYTES>().0.iter().map(words));
                Ok(())
            })?;
            // Sorting makes equal hashes adjacent, with ascending rows. All but the first row of such a group are
            // duplicates.
            records.sort_unstable();
            for repeated in records.windows(2).filter(|two| two[0][..2] == two[1][..2]) {
                let row = repeated[1][2];
                duplicates.count += 1;
                if row >= first_new {
                    duplicates.coming += 1;
                    duplicates.first = Some(duplicates.first.map_or(row, |first| first.min(row)));
                }
            }
        }
        Ok(duplicates)
    }
}

/// Returns the error for `count` rows of a source that have the id of an earlier row. `row` is the first of them. The
/// message advises to keep all rows, or else `remedy`.
pub(crate) fn refusal(source: &dyn VectorSource, row: u64, count: u64, remedy: Message) -> Result<Error> {
    // The check holds hashes only, so the source is read again to show the id.
    let mut scan = source.scan(1 << 20)?;
    let mut id = String::new();
    while let Some(batch) = scan.next_batch()? {
        if row < batch.first_row + batch.rows as u64 {
            id = batch.ids.display((row - batch.first_row) as usize, row);
            break;
        }
    }
    let (file, row) = source.locate(row);
    let used =
        format!("the id {id} of row {row} was used by an earlier row ({} in all)", format_count(count, "such row"));
    Ok(Error::input(message![
        format!("{}: {used}; make ids unique, give ", file.display()),
        Argument::OnDuplicateId.with("keep"),
        ", or ",
        remedy
    ]))
}

/// Checks that new ids are of the same kind as the existing ones.
///
/// # Errors
/// Fails if the kinds differ. The error states both kinds.
pub(crate) fn check_same_kind(existing: IdKind, new: IdKind) -> Result<()> {
    check_one_kind(["the existing rows", "the new ones"], [existing, new])
}

/// Refuses two sets of rows, called `names`, with different kinds of ids.
///
/// # Errors
/// If the kinds differ.
pub(crate) fn check_one_kind(names: [&str; 2], kinds: [IdKind; 2]) -> Result<()> {
    let words = |kind| match kind {
        IdKind::None => "no ids",
        IdKind::Int64 => "integer ids",
        IdKind::Utf8 => "text ids",
    };
    if kinds[0] == kinds[1] {
        return Ok(());
    }
    let ([first, second], [a, b]) = (names, kinds.map(words));
    Err(Error::option(message![
        format!("{first} have {a}, but {second} have {b}; give both the same kind of ids with "),
        Argument::IdColumn,
        " or ",
        Argument::NoIds
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::TextIds;

    fn check(ids: Ids, rows: u64, memory: u64) -> Duplicates {
        let folder = tempfile::tempdir().unwrap();
        let mut check = IdCheck::new(&Context::default(), folder.path(), rows, memory);
        check.add(&UsableRows { stored: Vec::new(), rows: (100..100 + rows).collect(), ids }).unwrap();
        check.finish(100).unwrap()
    }

    #[test]
    fn repeated_ids_are_counted_in_any_memory() {
        let numbers: Vec<i64> = (0..200_000).map(|k| k % 150_000).collect();
        let mut texts = TextIds::default();
        numbers.iter().for_each(|k| texts.push(k.to_string().as_bytes()));
        let expected = Duplicates { count: 50_000, coming: 50_000, first: Some(150_100) };
        for memory in [0, 1 << 30] {
            assert_eq!(check(Ids::Int64(numbers.clone()), 200_000, memory), expected);
            assert_eq!(check(Ids::Utf8(texts.clone()), 200_000, memory), expected);
            assert_eq!(check(Ids::Int64((0..1000).collect()), 1000, memory), Duplicates::default());
        }
    }
}
