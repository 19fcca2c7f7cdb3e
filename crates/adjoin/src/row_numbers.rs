//! A row number for each row: in five bytes, as there are up to 2^40 rows.

/// Bytes of a row number.
pub(crate) const ROW_BYTES: usize = 5;

/// A row number as bytes.
pub(crate) fn packed(row: u64) -> [u8; ROW_BYTES] {
    debug_assert!(row < 1 << (8 * ROW_BYTES), "row {row}");
    let [a, b, c, d, e, ..] = row.to_le_bytes();
    [a, b, c, d, e]
}

/// The row number that such bytes stand for.
pub(crate) fn unpacked(bytes: &[u8]) -> u64 {
    let mut row = [0; 8];
    row[..ROW_BYTES].copy_from_slice(bytes);
    u64::from_le_bytes(row)
}

/// Numbers below 2^40, one for each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowNumbers(Vec<[u8; ROW_BYTES]>);

impl RowNumbers {
    /// One for each of `rows` rows.
    pub(crate) fn new(rows: u64, number: impl Fn(u64) -> u64) -> Self {
        Self((0..rows).map(|row| packed(number(row))).collect())
    }

    /// Bytes that they take in memory.
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

/// A yes or no for each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSet(Vec<u64>);

impl RowSet {
    /// None of `rows` rows.
    pub(crate) fn new(rows: u64) -> Self {
        Self(vec![0; rows.div_ceil(64) as usize])
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(rows: u64) -> u64 {
        rows.div_ceil(64) * 8
    }

    pub(crate) fn contains(&self, row: u64) -> bool {
        self.0[(row / 64) as usize] >> (row % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, row: u64) {
        self.0[(row / 64) as usize] |= 1 << (row % 64);
    }

    pub(crate) fn remove(&mut self, row: u64) {
        self.0[(row / 64) as usize] &= !(1 << (row % 64));
    }

    /// Takes all of another set of as many rows.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(rows, more)| *rows |= more);
    }

    /// How many it has.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|rows| u64::from(rows.count_ones())).sum()
    }
}
