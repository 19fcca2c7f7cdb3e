//! Sums of the table entries that the bytes of a code pick: asymmetric distances of a query to vectors known only by
//! their codes (Jégou, Douze, Schmid, "Product quantization for nearest neighbor search", section III).
//!
//! A table fits the first-level cache, and its entries are loaded one by one because gather instructions are no faster
//! on today's processors. Levels differ only in how they encode these loads and sums; the order is fixed.

use crate::prefetch::prefetch;
use crate::reference::{Reference, sum_in_halves};

/// Values of a byte of a code, which is the number of entries of its table.
pub const TABLE_ENTRIES: usize = 256;

/// Partial sums; enough that no addition waits for the previous one.
const LANES: usize = 8;
/// Codes prefetched ahead of use. They are scattered in memory, and a processor has about ten cache misses in flight at
/// once.
const CODES_AHEAD: usize = 16;

/// Codes stored one after the other; only their first bytes are looked up.
#[derive(Debug, Clone, Copy)]
pub struct CodeRows<'a> {
    /// All codes.
    pub bytes: &'a [u8],
    /// Bytes from one code to the next.
    pub stride: usize,
}

/// Lookups, implemented by each level.
pub(crate) trait Lookup {
    fn sum_lookups(&self, tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]);
}

impl Lookup for Reference {
    fn sum_lookups(&self, tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) {
        sum_lookups(tables, codes, rows, out);
    }
}

/// Implements [`crate::Kernel::sum_lookups`].
#[inline(always)]
pub(crate) fn sum_lookups(tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) {
    let code = |row: u32| &codes.bytes[row as usize * codes.stride..][..tables.len()];
    rows.iter().take(CODES_AHEAD).for_each(|&row| prefetch(code(row)));
    for (k, (&row, sum)) in rows.iter().zip(out).enumerate() {
        if let Some(&later) = rows.get(k + CODES_AHEAD) {
            prefetch(code(later));
        }
        *sum = sum_of(tables, code(row));
    }
}

/// Sums the entries of one code: lane `l` sums the entries of bytes `l`, `l + 8`, ..., then the lanes are added in
/// halves.
#[inline(always)]
fn sum_of(tables: &[[f32; TABLE_ENTRIES]], code: &[u8]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let ((codes, code_rest), (tables, table_rest)) = (code.as_chunks::<LANES>(), tables.as_chunks::<LANES>());
    for (code, tables) in codes.iter().zip(tables) {
        for lane in 0..LANES {
            lanes[lane] += tables[lane][usize::from(code[lane])];
        }
    }
    for (lane, (&byte, table)) in lanes.iter_mut().zip(code_rest.iter().zip(table_rest)) {
        *lane += table[usize::from(byte)];
    }
    sum_in_halves(lanes)
}
