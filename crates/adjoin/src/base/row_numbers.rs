//! Row numbers in five bytes each, since sets have up to 2^40 rows. Sets of rows.

/// Size of a packed row number, in bytes.
pub(crate) const ROW_BYTES: usize = 5;

/// Packs a row number into bytes.
pub(crate) fn packed(row: u64) -> [u8; ROW_BYTES] {
    debug_assert!(row < 1 << (8 * ROW_BYTES), "row {row}");
    let [a, b, c, d, e, ..] = row.to_le_bytes();
    [a, b, c, d, e]
}

/// Unpacks a row number.
pub(crate) fn unpacked(bytes: &[u8]) -> u64 {
    let mut row = [0; 8];
    row[..ROW_BYTES].copy_from_slice(bytes);
    u64::from_le_bytes(row)
}

/// A number below 2^40 for each row of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowNumbers(Vec<[u8; ROW_BYTES]>);

impl RowNumbers {
    /// Creates the numbers of `rows` rows by calling `number` for each of them.
    pub(crate) fn new(rows: u64, number: impl Fn(u64) -> u64) -> Self {
        Self((0..rows).map(|row| packed(number(row))).collect())
    }

    /// Returns the memory for the numbers of `rows` rows, in bytes.
    pub(crate) fn memory_bytes(rows: u64) -> u64 {
        rows * ROW_BYTES as u64
    }

    pub(crate) fn get(&self, row: u64) -> u64 {
        unpacked(&self.0[row as usize])
    }

    pub(crate) fn set(&mut self, row: u64, number: u64) {
        self.0[row as usize] = packed(number);
    }
}

/// A set of rows. It has one bit per row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSet(Vec<u64>);

impl RowSet {
    /// Creates an empty set that can hold the rows below `rows`.
    pub fn new(rows: u64) -> Self {
        Self(vec![0; rows.div_ceil(64) as usize])
    }

    /// Creates a set of all rows below `rows`.
    pub(crate) fn all(rows: u64) -> Self {
        let mut words = vec![u64::MAX; rows.div_ceil(64) as usize];
        // The last word may have bits for rows that do not exist.
        if let Some(last) = words.last_mut() {
            *last >>= rows.next_multiple_of(64) - rows;
        }
        Self(words)
    }

    /// Returns the memory for a set of rows below `rows`, in bytes.
    pub(crate) fn memory_bytes(rows: u64) -> u64 {
        rows.div_ceil(64) * 8
    }

    pub(crate) fn contains(&self, row: u64) -> bool {
        self.0[(row / 64) as usize] >> (row % 64) & 1 == 1
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the row is beyond the end of the set.
    pub fn insert(&mut self, row: u64) {
        self.0[(row / 64) as usize] |= 1 << (row % 64);
    }

    pub(crate) fn remove(&mut self, row: u64) {
        self.0[(row / 64) as usize] &= !(1 << (row % 64));
    }

    /// Adds all rows of another set with the same length.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(rows, more)| *rows |= more);
    }

    /// Iterates over the rows in the set, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.0).filter(|&(_, &word)| word != 0).flat_map(|(number, &word)| {
            (0..u64::from(u64::BITS)).filter(move |bit| word >> bit & 1 == 1).map(move |bit| number * 64 + bit)
        })
    }

    /// Returns the number of rows in the set.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|rows| u64::from(rows.count_ones())).sum()
    }
}

/// A set of row numbers below 2^32 that supports rank and select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankedSet {
    rows: RowSet,
    /// For each word, the number of rows in the set that precede it. The last entry is the total.
    before: Vec<u32>,
}

impl RankedSet {
    /// Creates a ranked set from a set with fewer than 2^32 rows.
    pub(crate) fn new(rows: RowSet) -> Self {
        let mut before = Vec::with_capacity(rows.0.len() + 1);
        let mut sum = 0;
        before.push(sum);
        before.extend(rows.0.iter().map(|word| {
            sum += word.count_ones();
            sum
        }));
        Self { rows, before }
    }

    /// Returns the memory for a ranked set of rows below `rows`, in bytes.
    pub(crate) fn memory_bytes(rows: u64) -> u64 {
        RowSet::memory_bytes(rows) * 3 / 2 + size_of::<u32>() as u64
    }

    pub(crate) fn contains(&self, row: u32) -> bool {
        self.rows.contains(row.into())
    }

    /// Returns the number of rows in the set that precede `row`.
    pub(crate) fn rank(&self, row: u32) -> u32 {
        let (word, bit) = ((row / 64) as usize, row % 64);
        match self.rows.0.get(word) {
            Some(rows) => self.before[word] + (rows & ((1 << bit) - 1)).count_ones(),
            None => self.before[word],
        }
    }

    /// Returns the row with the rank `rank`: exactly `rank` rows in the set precede it.
    ///
    /// # Panics
    /// Panics if the set has at most `rank` rows.
    pub(crate) fn at_rank(&self, rank: u32) -> u32 {
        // An empty word has the same count as the next word. So the row is in the last word with a count of at most
        // `rank`. If few rows are missing, that is soon after the word in which it would be if none were.
        let (mut start, mut step) = ((rank / u64::BITS) as usize, 1);
        while self.before.get(start + step).is_some_and(|&before| before <= rank) {
            start += step;
            step *= 2;
        }
        let end = self.before.len().min(start + step);
        let word = start + self.before[start..end].partition_point(|&before| before <= rank) - 1;
        let mut rows = self.rows.0[word];
        // Each step clears the lowest set bit.
        (self.before[word]..rank).for_each(|_| rows &= rows - 1);
        word as u32 * u64::BITS + rows.trailing_zeros()
    }

    /// Iterates over the rows in the set, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.rows.iter().map(|row| row as u32)
    }

    /// Returns the number of rows in the set.
    pub(crate) fn len(&self) -> u32 {
        *self.before.last().expect("a set has a count for each block and for its end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn ranks_count_the_rows_before() {
        let mut random = Random::new(1, "ranks");
        for (rows, inserts) in [(1, 0), (63, 31), (64, 32), (65, 32), (1_000, 500), (5_000, 20), (5_000, 20_000)] {
            let mut set = RowSet::new(rows);
            (0..inserts).for_each(|_| set.insert(random.below(rows)));
            let ranked = RankedSet::new(set.clone());
            assert!(RowSet::all(rows).iter().eq(0..rows), "{rows}");
            assert_eq!(u64::from(ranked.len()), set.len());
            assert!(ranked.iter().eq((0..rows as u32).filter(|&row| set.contains(row.into()))));
            assert!(ranked.iter().enumerate().all(|(rank, row)| ranked.at_rank(rank as u32) == row));
            for row in 0..=rows {
                let before = (0..row).filter(|&other| set.contains(other)).count();
                assert_eq!(ranked.rank(row as u32) as usize, before, "row {row} of {rows}");
            }
        }
    }
}
