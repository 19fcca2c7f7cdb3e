//! Sums of table entries that the bytes of a code select. With suitable tables, the sum is the asymmetric distance of
//! a query to a vector that is known only by its code (Jégou, Douze, Schmid, "Product quantization for nearest
//! neighbor search", section III).
//!
//! A table fits in the first-level cache. Its entries are loaded one by one, because gather instructions are no
//! faster on today's processors. Levels differ only in how they encode these loads and sums. The order of the sums is
//! fixed.

use crate::prefetch::prefetch;
use crate::reference::{Reference, sum_in_halves};

/// Number of entries of a table: one for each value of a byte.
pub const TABLE_ENTRIES: usize = 256;

/// Number of partial sums. With this number, no addition waits for the previous one.
const LANES: usize = 8;
/// Number of codes that are prefetched ahead of their use. Codes are scattered in memory, and a processor can have
/// about ten cache misses in flight.
const CODES_AHEAD: usize = 16;

/// Codes that are stored one after the other. The first bytes of each are looked up, one per table.
#[derive(Debug, Clone, Copy)]
pub struct CodeRows<'a> {
    /// All codes.
    pub bytes: &'a [u8],
    /// Number of bytes from the start of one code to the start of the next.
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

/// Sums the entries that a code selects. Lane `l` sums the entries of bytes `l`, `l + 8`, ... of the code. Then the
/// lanes are added in halves.
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
