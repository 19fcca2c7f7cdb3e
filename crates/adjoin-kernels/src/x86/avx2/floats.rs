//! Floats by differences, as the reference defines them.
//!
//! The reference sums elements `l`, `l + 16`, ... in lane `l` and then adds the lanes in halves. Here each lane of a
//! register is a column, so the sums of the sixteen lanes of the reference are computed one after the other, each in its
//! order of elements, and added as soon as both operands of an addition exist. Columns are packed in that order of
//! elements, so that a block is read from its first line to its last.

use std::arch::x86_64::*;
use std::mem::transmute;

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::reference::LANES;
use crate::tile::{Block, Group, TILE_ROWS};

use super::bytes::{array, columns_from, cut, integers};

/// Lanes of the reference in the order in which its tree needs them: the bits of the position, reversed. The sums at
/// positions `2 k` and `2 k + 1` are added first, then those of two pairs, and so on. It is its own inverse.
const TREE_ORDER: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

/// Levels of the tree.
const TREE_LEVELS: usize = LANES.ilog2() as usize;

/// Sums of each row and the columns of a block, as two registers.
type Sums = [[__m256; 2]; TILE_ROWS];

/// Returns the elements of each lane of the reference, padding included.
fn steps_of(dimensions: usize) -> usize {
    dimensions.div_ceil(LANES)
}

/// Packs columns. Line `position * steps + step` of a block holds element `16 step + TREE_ORDER[position]` of sixteen
/// columns.
#[target_feature(enable = "avx2")]
pub(super) fn interleave(panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
    let (zeros, steps) = (vec![0.0; panel.stride()], steps_of(panel.dimensions()));
    let blocks = order.len().div_ceil(TILE_COLUMNS);
    (columns.len, columns.dimensions) = (order.len(), panel.dimensions());
    columns.storage.resize(blocks * LANES * steps);
    let blocks = columns.storage.as_mut_slice().as_chunks_mut::<8>().0.chunks_exact_mut((2 * LANES * steps).max(1));
    for (block, members) in blocks.zip(order.chunks(TILE_COLUMNS)) {
        let mut vectors = [&zeros[..]; TILE_COLUMNS];
        for (vector, &member) in vectors.iter_mut().zip(members) {
            *vector = panel.row(member as usize);
        }
        for (half, vectors) in vectors.as_chunks::<8>().0.iter().enumerate() {
            for eight in 0..2 * steps {
                let elements = transposed(vectors.map(|vector| vector.as_chunks().0[eight]));
                for (element, values) in elements.into_iter().enumerate() {
                    let position = TREE_ORDER[eight % 2 * 8 + element];
                    block[(position * steps + eight / 2) * 2 + half] = values;
                }
            }
        }
    }
}

/// Transposes eight by eight floats.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(rows: [[f32; 8]; 8]) -> [[f32; 8]; 8] {
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    let rows = unsafe { transmute::<[[f32; 8]; 8], [__m256; 8]>(rows) };
    let mut pairs = [_mm256_setzero_ps(); 8];
    for pair in 0..4 {
        pairs[2 * pair] = _mm256_unpacklo_ps(rows[2 * pair], rows[2 * pair + 1]);
        pairs[2 * pair + 1] = _mm256_unpackhi_ps(rows[2 * pair], rows[2 * pair + 1]);
    }
    // `fours[4 * half + k]` has elements k and k + 4 of rows `4 * half ..+ 4`.
    let mut fours = [_mm256_setzero_ps(); 8];
    for half in 0..2 {
        let [a, b, c, d] = [pairs[4 * half], pairs[4 * half + 1], pairs[4 * half + 2], pairs[4 * half + 3]];
        fours[4 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(a, c);
        fours[4 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, c);
        fours[4 * half + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(b, d);
        fours[4 * half + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(b, d);
    }
    let mut out = [_mm256_setzero_ps(); 8];
    for element in 0..4 {
        out[element] = _mm256_permute2f128_ps::<0x20>(fours[element], fours[4 + element]);
        out[4 + element] = _mm256_permute2f128_ps::<0x31>(fours[element], fours[4 + element]);
    }
    // SAFETY: as above.
    unsafe { transmute::<[__m256; 8], [[f32; 8]; 8]>(out) }
}

/// Computes the distances of a group to a block of columns.
#[target_feature(enable = "avx2,fma")]
pub(super) fn block(group: &Group<'_, f32>, columns: &PackedColumns<f32>, from: usize) -> Block<f32> {
    let steps = steps_of(columns.dimensions);
    let lines: &[[f32; LANES]] = &columns.storage.as_slice().as_chunks().0[from * steps..][..LANES * steps];
    let mut rows: [&[[f32; LANES]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = cut(group.rows[row], steps);
    }
    // Sums that wait for their neighbor in the tree, by level.
    let mut waiting = [[[_mm256_setzero_ps(); 2]; TILE_ROWS]; TREE_LEVELS];
    for (position, lane) in TREE_ORDER.into_iter().enumerate() {
        // The padding of the last step adds nothing.
        let filled = columns.dimensions.saturating_sub(lane).div_ceil(LANES);
        let mut sums = lane_sums(&rows, &lines[position * steps..][..filled], lane);
        let mut level = 0;
        while position >> level & 1 == 1 {
            sums = added(waiting[level], sums);
            level += 1;
        }
        if level == TREE_LEVELS {
            // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
            return unsafe { transmute::<Sums, Block<f32>>(sums) };
        }
        waiting[level] = sums;
    }
    unreachable!("the last position ends at the root of the tree")
}

/// Computes the sums of one lane of the reference.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn lane_sums(rows: &[&[[f32; LANES]]; TILE_ROWS], lines: &[[f32; LANES]], lane: usize) -> Sums {
    let steps = lines.len();
    let rows = [&rows[0][..steps], &rows[1][..steps], &rows[2][..steps], &rows[3][..steps]];
    // The compiler does not see that every lane of the table is below the length of a line.
    let lane = lane % LANES;
    let mut sums = [[_mm256_setzero_ps(); 2]; TILE_ROWS];
    for step in 0..steps {
        let columns = registers(&lines[step]);
        for row in 0..TILE_ROWS {
            let element = _mm256_set1_ps(rows[row][step][lane]);
            for half in 0..2 {
                let difference = _mm256_sub_ps(element, columns[half]);
                sums[row][half] = _mm256_fmadd_ps(difference, difference, sums[row][half]);
            }
        }
    }
    sums
}

/// Adds sums.
#[target_feature(enable = "avx2")]
#[inline]
fn added(a: Sums, mut b: Sums) -> Sums {
    for row in 0..TILE_ROWS {
        for half in 0..2 {
            b[row][half] = _mm256_add_ps(a[row][half], b[row][half]);
        }
    }
    b
}

/// Implements `Blocks::near`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn near(distances: &[f32; TILE_COLUMNS], limit: f32) -> u64 {
    let halves = registers(distances);
    let limit = _mm256_set1_ps(limit);
    // Not greater, instead of less or equal: a NaN is a hit.
    let bits = |half| u64::from(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NGT_UQ>(half, limit)).cast_unsigned());
    bits(halves[0]) | bits(halves[1]) << 8
}

/// Implements `Blocks::nearer`. NaN is not nearer than anything.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn nearer(
    distances: &[f32; TILE_COLUMNS],
    first: u32,
    best: &mut [f32; TILE_COLUMNS],
    places: &mut [u32; TILE_COLUMNS],
) {
    let (mut nearest, mut columns) = (registers(best), integers(places));
    let (distances, candidates) = (registers(distances), columns_from(first));
    for half in 0..2 {
        let is_nearer = _mm256_cmp_ps::<_CMP_LT_OQ>(distances[half], nearest[half]);
        nearest[half] = _mm256_blendv_ps(nearest[half], distances[half], is_nearer);
        columns[half] = _mm256_blendv_epi8(columns[half], candidates[half], _mm256_castps_si256(is_nearer));
    }
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    *best = unsafe { transmute::<[__m256; 2], [f32; TILE_COLUMNS]>(nearest) };
    *places = array(columns);
}

/// Loads sixteen floats.
#[target_feature(enable = "avx2")]
#[inline]
fn registers(values: &[f32; LANES]) -> [__m256; 2] {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[f32; LANES], [__m256; 2]>(*values) }
}

/// Computes the distances of one vector to up to four.
#[target_feature(enable = "avx2,fma")]
pub(super) fn one_to_rows<const R: usize>(x: &[f32], rows: [&[f32]; R]) -> [f32; 4] {
    let steps = x.len() / LANES;
    let x = cut(x, steps);
    let mut y: [&[[f32; LANES]]; R] = [&[]; R];
    for row in 0..R {
        y[row] = cut(rows[row], steps);
    }
    let mut sums = [[_mm256_setzero_ps(); 2]; 4];
    for step in 0..steps {
        for half in 0..2 {
            let x = floats(&x[step], half);
            for row in 0..R {
                let difference = _mm256_sub_ps(x, floats(&y[row][step], half));
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
