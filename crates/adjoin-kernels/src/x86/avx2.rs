//! AVX2 with fused multiply-add. Bytes and floats are both compared by differences on padded rows.

use std::arch::x86_64::*;
use std::mem::transmute;

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::reference::LANES;
use crate::tile::{self, Block, Group, HitMask, LeastOfColumn, LeastRows, NearestColumns, TILE_ROWS, Tiles};

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let here = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        here.then_some(Self(()))
    }

    /// Computes the distances of bytes `x` to the rows `row(k)`.
    fn one_to_rows_u8<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
        for (chunk, out) in out.chunks_mut(TILE_ROWS).enumerate() {
            let last = out.len() - 1;
            // Rows past the end repeat the last one; their distances are not copied.
            let rows = std::array::from_fn(|k| row(chunk * TILE_ROWS + k.min(last)));
            // SAFETY: `self` proves AVX2.
            let distances = unsafe { distances_u8(&rows, &[x, x]) };
            out.copy_from_slice(&distances[..=last]);
        }
    }

    /// Computes the distances of floats `x` to the rows `row(k)`.
    fn one_to_rows_f32<'a>(&self, x: &[f32], row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
        for (chunk, out) in out.chunks_mut(TILE_ROWS).enumerate() {
            let last = out.len() - 1;
            let rows = std::array::from_fn(|k| row(chunk * TILE_ROWS + k.min(last)));
            // SAFETY: `self` proves AVX2 and FMA.
            let distances = unsafe { distances_f32x4(x, rows) };
            out.copy_from_slice(&distances[..=last]);
        }
    }

    fn block_u8(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
        let mut block = Block::<u8>::default();
        for first in (0..TILE_COLUMNS).step_by(2) {
            let pair = [columns.row(from + first), columns.row(from + first + 1)];
            // SAFETY: `self` proves AVX2.
            let distances = unsafe { distances_u8(&group.rows, &pair) };
            for (row, line) in block.iter_mut().enumerate() {
                (line[first], line[first + 1]) = (distances[row], distances[TILE_ROWS + row]);
            }
        }
        block
    }

    fn block_f32(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, from: usize) -> Block<f32> {
        let mut block = Block::<f32>::default();
        for first in (0..TILE_COLUMNS).step_by(2) {
            let pair = [columns.row(from + first), columns.row(from + first + 1)];
            for row in (0..TILE_ROWS).step_by(2) {
                // SAFETY: `self` proves AVX2 and FMA.
                let distances = unsafe { distances_f32([group.rows[row], group.rows[row + 1]], pair) };
                block[row][first..first + 2].copy_from_slice(&distances[..2]);
                block[row + 1][first..first + 2].copy_from_slice(&distances[2..]);
            }
        }
        block
    }
}

impl Tiles<u8> for Avx2 {
    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        columns.copy_rows(panel, order);
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        // SAFETY: `self` proves AVX2.
        unsafe { distances_u8(&[x; TILE_ROWS], &[y, y])[0] }
    }

    fn one_to_many(&self, x: &[u8], panel: &Panel<u8>, out: &mut [u32]) {
        self.one_to_rows_u8(x, |k| panel.row(k), out);
    }

    fn one_to_some(&self, x: &[u8], panel: &Panel<u8>, rows: &[u32], out: &mut [u32]) {
        self.one_to_rows_u8(x, |k| panel.row(rows[k] as usize), out);
    }

    fn matrix(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, out: &mut [u32]) {
        tile::matrix_by_blocks(group, columns, out, |from| self.block_u8(group, columns, from));
    }

    fn within(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, limit: u32, hits: &mut Vec<HitMask>) {
        tile::within_by_blocks(group, limit, hits, |from| self.block_u8(group, columns, from));
    }

    fn nearest(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, nearest: &mut NearestColumns<u8>) {
        tile::nearest_by_blocks(group, nearest, |from| self.block_u8(group, columns, from));
    }

    fn least_of_columns(
        &self,
        rows: LeastRows<'_, u8>,
        columns: &PackedColumns<u8>,
        from: usize,
        out: &mut [LeastOfColumn<u8>],
    ) {
        tile::least_by_blocks(rows, from, out, |group, from| self.block_u8(group, columns, from));
    }
}

impl Tiles<f32> for Avx2 {
    fn pack(&self, panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
        columns.copy_rows(panel, order);
    }

    fn distance(&self, x: &[f32], y: &[f32]) -> f32 {
        // SAFETY: `self` proves AVX2 and FMA.
        unsafe { distances_f32x4(x, [y; TILE_ROWS])[0] }
    }

    fn one_to_many(&self, x: &[f32], panel: &Panel<f32>, out: &mut [f32]) {
        self.one_to_rows_f32(x, |k| panel.row(k), out);
    }

    fn one_to_some(&self, x: &[f32], panel: &Panel<f32>, rows: &[u32], out: &mut [f32]) {
        self.one_to_rows_f32(x, |k| panel.row(rows[k] as usize), out);
    }

    fn matrix(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, out: &mut [f32]) {
        tile::matrix_by_blocks(group, columns, out, |from| self.block_f32(group, columns, from));
    }

    fn within(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, limit: f32, hits: &mut Vec<HitMask>) {
        tile::within_by_blocks(group, limit, hits, |from| self.block_f32(group, columns, from));
    }

    fn nearest(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, nearest: &mut NearestColumns<f32>) {
        tile::nearest_by_blocks(group, nearest, |from| self.block_f32(group, columns, from));
    }

    fn least_of_columns(
        &self,
        rows: LeastRows<'_, f32>,
        columns: &PackedColumns<f32>,
        from: usize,
        out: &mut [LeastOfColumn<f32>],
    ) {
        tile::least_by_blocks(rows, from, out, |group, from| self.block_f32(group, columns, from));
    }
}

/// Computes the distances of four rows to two columns, column by column.
#[target_feature(enable = "avx2")]
fn distances_u8(rows: &[&[u8]; 4], columns: &[&[u8]; 2]) -> [u32; 8] {
    let steps = rows[0].len() / 16;
    let rows: [&[[u8; 16]]; 4] = [cut(rows[0], steps), cut(rows[1], steps), cut(rows[2], steps), cut(rows[3], steps)];
    let columns: [&[[u8; 16]]; 2] = [cut(columns[0], steps), cut(columns[1], steps)];
    let mut sums = [_mm256_setzero_si256(); 8];
    for step in 0..steps {
        let mut x = [_mm256_setzero_si256(); 4];
        for row in 0..4 {
            x[row] = widened(&rows[row][step]);
        }
        for column in 0..2 {
            let y = widened(&columns[column][step]);
            for row in 0..4 {
                let difference = _mm256_sub_epi16(x[row], y);
                // A difference of bytes fits 16 bits, and a sum of two squares fits 32, so nothing saturates.
                let squares = _mm256_madd_epi16(difference, difference);
                sums[column * 4 + row] = _mm256_add_epi32(sums[column * 4 + row], squares);
            }
        }
    }
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[4], sums[5]), _mm256_hadd_epi32(sums[6], sums[7]));
    let total =
        _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high));
    // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<__m256i, [u32; 8]>(total) }
}

/// Returns the first `steps` arrays of `N` elements of a vector.
#[inline(always)]
fn cut<T, const N: usize>(vector: &[T], steps: usize) -> &[[T; N]] {
    &vector.as_chunks().0[..steps]
}

/// Converts sixteen bytes to 16-bit integers.
#[target_feature(enable = "avx2")]
#[inline]
fn widened(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    _mm256_cvtepu8_epi16(unsafe { transmute::<[u8; 16], __m128i>(*bytes) })
}

/// Computes the distances `[x0 y0, x0 y1, x1 y0, x1 y1]`.
#[target_feature(enable = "avx2,fma")]
fn distances_f32(x: [&[f32]; 2], y: [&[f32]; 2]) -> [f32; 4] {
    let steps = x[0].len() / LANES;
    let (x, y) = ([cut(x[0], steps), cut(x[1], steps)], [cut(y[0], steps), cut(y[1], steps)]);
    let mut sums = [[_mm256_setzero_ps(); 2]; 4];
    for step in 0..steps {
        for half in 0..2 {
            let x = [floats(&x[0][step], half), floats(&x[1][step], half)];
            let y = [floats(&y[0][step], half), floats(&y[1][step], half)];
            for pair in 0..4 {
                let difference = _mm256_sub_ps(x[pair / 2], y[pair % 2]);
                sums[pair][half] = _mm256_fmadd_ps(difference, difference, sums[pair][half]);
            }
        }
    }
    tree(sums)
}

/// Computes the distances of one vector to four.
#[target_feature(enable = "avx2,fma")]
fn distances_f32x4(x: &[f32], rows: [&[f32]; 4]) -> [f32; 4] {
    let steps = x.len() / LANES;
    let x = cut(x, steps);
    let rows = [cut(rows[0], steps), cut(rows[1], steps), cut(rows[2], steps), cut(rows[3], steps)];
    let mut sums = [[_mm256_setzero_ps(); 2]; 4];
    for step in 0..steps {
        for half in 0..2 {
            let x = floats(&x[step], half);
            for row in 0..4 {
                let difference = _mm256_sub_ps(x, floats(&rows[row][step], half));
                sums[row][half] = _mm256_fmadd_ps(difference, difference, sums[row][half]);
            }
        }
    }
    tree(sums)
}

/// Loads one half of sixteen floats.
#[target_feature(enable = "avx2")]
#[inline]
fn floats(line: &[f32; LANES], half: usize) -> __m256 {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    let halves = unsafe { transmute::<[f32; LANES], [__m256; 2]>(*line) };
    halves[half]
}

/// Adds lanes in the order of the reference's tree, for four distances at once. Each of its additions occurs here, with
/// operands possibly swapped.
#[target_feature(enable = "avx2")]
#[inline]
fn tree(sums: [[__m256; 2]; 4]) -> [f32; 4] {
    let mut eight = [_mm256_setzero_ps(); 4];
    for pair in 0..4 {
        eight[pair] = _mm256_add_ps(sums[pair][0], sums[pair][1]);
    }
    let four = [halves(eight[0], eight[1]), halves(eight[2], eight[3])];
    // Per 128 bits: lanes 0 and 1 of an even pair, then of the odd one.
    let two = _mm256_add_ps(
        _mm256_shuffle_ps::<0b01_00_01_00>(four[0], four[1]),
        _mm256_shuffle_ps::<0b11_10_11_10>(four[0], four[1]),
    );
    let one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
    let (low, high) = (_mm256_castps256_ps128(one), _mm256_extractf128_ps::<1>(one));
    // Distances 0 and 2 are in lanes 0 and 2 of the low part, 1 and 3 in lanes 0 and 2 of the high one.
    let ordered = _mm_unpacklo_ps(_mm_shuffle_ps::<0b10_00>(low, low), _mm_shuffle_ps::<0b10_00>(high, high));
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<__m128, [f32; 4]>(ordered) }
}

/// Adds lanes `l` and `l + 4`: the sums of `a` go to the low half, the sums of `b` to the high half.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(a: __m256, b: __m256) -> __m256 {
    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
}
