//! Distances of floats from differences, for padded rows, in tiles of four rows by four columns.

use std::arch::x86_64::*;
use std::mem::transmute;

use crate::columns::PackedColumns;
use crate::reference::LANES;
use crate::tile::{Group, HitMask, LEAST_RANKS, LeastOfColumn, LeastRows, NearestColumns, TILE_ROWS, insert};

/// Returns the four columns from `from` on.
pub(super) fn four_columns(columns: &PackedColumns<f32>, from: usize) -> [&[f32]; 4] {
    [columns.row(from), columns.row(from + 1), columns.row(from + 2), columns.row(from + 3)]
}

/// Computes the squared distances of up to four rows to four columns.
#[target_feature(enable = "avx512f")]
pub(super) fn distances<const R: usize>(rows: [&[f32]; R], columns: [&[f32]; 4]) -> [[f32; 4]; TILE_ROWS] {
    // SAFETY: both are 16 floats without padding.
    unsafe { transmute::<__m512, [[f32; 4]; TILE_ROWS]>(tile_f32(rows, columns)) }
}

/// Implements `Tiles::within` for floats.
#[target_feature(enable = "avx512f")]
pub(super) fn within(group: &Group<'_, f32>, columns: &PackedColumns<f32>, limit: f32, hits: &mut Vec<HitMask>) {
    let limit = _mm512_set1_ps(limit);
    for column in group.columns.clone().step_by(4) {
        let near = near_f32(group.rows, four_columns(columns, column), limit);
        if near != 0 {
            for row in 0..group.count {
                group.hit(row, column, u64::from(near) >> (4 * row) & 0xf, hits);
            }
        }
    }
}

/// Implements `Tiles::nearest` for floats.
#[target_feature(enable = "avx512f")]
pub(super) fn nearest(group: &Group<'_, f32>, columns: &PackedColumns<f32>, nearest: &mut NearestColumns<f32>) {
    let (mut distances, mut places) = ([[0.0; 4]; TILE_ROWS], [[0_u32; 4]; TILE_ROWS]);
    for row in 0..TILE_ROWS {
        (places[row], distances[row]) = ([nearest[row].0; 4], [nearest[row].1; 4]);
    }
    // SAFETY: all are 64 bytes without padding, for which every bit pattern is a value.
    let (mut best, mut best_places) =
        unsafe { (transmute::<[[f32; 4]; 4], __m512>(distances), transmute::<[[u32; 4]; 4], __m512i>(places)) };
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    for column in group.columns.clone().step_by(4) {
        let computed = tile_f32(group.rows, four_columns(columns, column));
        let places = _mm512_add_epi32(lanes, _mm512_set1_epi32(column as i32));
        // Columns past the end are zero vectors, which may be nearer than any column.
        let real = _mm512_cmplt_epi32_mask(places, _mm512_set1_epi32(group.columns.end as i32));
        let nearer = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(real, computed, best);
        best = _mm512_mask_mov_ps(best, nearer, computed);
        best_places = _mm512_mask_mov_epi32(best_places, nearer, places);
    }
    // SAFETY: as above.
    (distances, places) =
        unsafe { (transmute::<__m512, [[f32; 4]; 4]>(best), transmute::<__m512i, [[u32; 4]; 4]>(best_places)) };
    for row in 0..TILE_ROWS {
        for lane in 0..4 {
            let found = (places[row][lane], distances[row][lane]);
            if found.1 < nearest[row].1 || (found.1 == nearest[row].1 && found.0 < nearest[row].0) {
                nearest[row] = found;
            }
        }
    }
}

/// Implements `Tiles::least_of_columns` for floats. Each column has four lanes, one per row of the tile. The lanes
/// are merged at the end.
#[target_feature(enable = "avx512f")]
pub(super) fn least(
    rows: LeastRows<'_, f32>,
    columns: &PackedColumns<f32>,
    from: usize,
    out: &mut [LeastOfColumn<f32>],
) {
    for (out, from) in out.chunks_mut(4).zip((from..).step_by(4)) {
        let mut distances = [_mm512_set1_ps(f32::INFINITY); LEAST_RANKS];
        let mut margins = distances;
        for (members, own) in rows.tiles() {
            let group = Group::new(rows.rows.panel, members, 0, from..from + out.len());
            let computed = tile_f32(group.rows, four_columns(columns, from));
            let mut subtracted = [[0.0; 4]; TILE_ROWS];
            subtracted.iter_mut().zip(own).for_each(|(lanes, &own)| *lanes = [own; 4]);
            // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
            let subtracted = unsafe { transmute::<[[f32; 4]; TILE_ROWS], __m512>(subtracted) };
            let margin = _mm512_sub_ps(computed, subtracted);
            // Excludes repeated rows of a short group, since a row must not count twice.
            let real = ((1_u32 << (4 * members.len())) - 1) as u16;
            merge_f32(&mut distances, computed, real);
            merge_f32(&mut margins, margin, real);
        }
        for rank in 0..LEAST_RANKS {
            // SAFETY: as above.
            let (distances, margins) = unsafe {
                (transmute::<__m512, [[f32; 4]; 4]>(distances[rank]), transmute::<__m512, [[f32; 4]; 4]>(margins[rank]))
            };
            for lane in 0..TILE_ROWS {
                for (column, least) in out.iter_mut().enumerate() {
                    insert(&mut least.distances, distances[lane][column]);
                    insert(&mut least.margins, margins[lane][column]);
                }
            }
        }
    }
}

/// Loads a register of floats.
#[target_feature(enable = "avx512f")]
#[inline]
fn floats(line: &[f32; LANES]) -> __m512 {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[f32; LANES], __m512>(*line) }
}

/// Inserts the values of the lanes in the mask `lanes` into the ascending lists `least`. NaN is not less than
/// anything, so it is never inserted.
#[target_feature(enable = "avx512f")]
#[inline]
fn merge_f32(least: &mut [__m512; LEAST_RANKS], mut value: __m512, lanes: u16) {
    for place in least {
        let less = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(lanes, value, *place);
        let larger = _mm512_mask_mov_ps(value, less, *place);
        *place = _mm512_mask_mov_ps(*place, less, value);
        value = larger;
    }
}

/// Returns a mask of the lanes that are not above the limit. The comparison is "not greater", since "less or equal"
/// would be false for NaN. A NaN is a hit, as in `blocks::is_within`.
#[target_feature(enable = "avx512f")]
#[inline]
fn not_above(distances: __m512, limit: __m512) -> u16 {
    _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(distances, limit)
}

/// Vectors have heads if they have at least this many lines of [`LANES`] elements. With fewer, the additions across
/// lanes for a head take as long as the rest of the vector.
const HEADED_STEPS: usize = 8;

/// Computes the squared distances of `R` rows to four columns. Lane `4 r + c` has the distance of row `r` and column
/// `c`.
#[target_feature(enable = "avx512f")]
#[inline]
fn tile_f32<const R: usize>(rows: [&[f32]; R], columns: [&[f32]; 4]) -> __m512 {
    let mut sums = [[_mm512_setzero_ps(); 4]; TILE_ROWS];
    add_squares(&mut sums, lines_of(rows), lines_of(columns));
    tree(sums)
}

/// Returns a mask of the distances of [`tile_f32`] that are not above the limit. If the first half of the vectors shows
/// that there is none, it stops: rounded sums of squares do not decrease if more squares are added.
#[target_feature(enable = "avx512f")]
#[inline]
fn near_f32(rows: [&[f32]; TILE_ROWS], columns: [&[f32]; 4], limit: __m512) -> u16 {
    let (rows, columns) = (lines_of(rows), lines_of(columns));
    let steps = columns[0].len();
    let head = if steps >= HEADED_STEPS { steps / 2 } else { 0 };
    let mut sums = [[_mm512_setzero_ps(); 4]; TILE_ROWS];
    if head > 0 {
        add_squares(&mut sums, rows.map(|row| &row[..head]), columns.map(|column| &column[..head]));
        if not_above(tree(sums), limit) == 0 {
            return 0;
        }
    }
    add_squares(&mut sums, rows.map(|row| &row[head..]), columns.map(|column| &column[head..]));
    not_above(tree(sums), limit)
}

/// Lines of a padded vector.
type FloatLines<'a> = &'a [[f32; LANES]];

/// Returns the lines of padded vectors.
#[inline(always)]
fn lines_of<const N: usize>(vectors: [&[f32]; N]) -> [FloatLines<'_>; N] {
    let mut lines: [FloatLines<'_>; N] = [&[]; N];
    for vector in 0..N {
        lines[vector] = vectors[vector].as_chunks().0;
    }
    lines
}

/// Adds the squared differences of `R` rows and four columns to sums in lanes. There are sixteen independent sums, so
/// that no addition waits for the previous one.
#[target_feature(enable = "avx512f")]
#[inline]
fn add_squares<const R: usize>(
    sums: &mut [[__m512; 4]; TILE_ROWS],
    rows: [FloatLines<'_>; R],
    columns: [FloatLines<'_>; 4],
) {
    let steps = columns[0].len();
    let mut x: [FloatLines<'_>; R] = [&[]; R];
    for row in 0..R {
        x[row] = &rows[row][..steps];
    }
    let mut y: [FloatLines<'_>; 4] = [&[]; 4];
    for column in 0..4 {
        y[column] = &columns[column][..steps];
    }
    let mut local = *sums;
    for step in 0..steps {
        let mut four = [_mm512_setzero_ps(); 4];
        for column in 0..4 {
            four[column] = floats(&y[column][step]);
        }
        for row in 0..R {
            let one = floats(&x[row][step]);
            for column in 0..4 {
                let difference = _mm512_sub_ps(one, four[column]);
                local[row][column] = _mm512_fmadd_ps(difference, difference, local[row][column]);
            }
        }
    }
    *sums = local;
}

/// Adds the lanes of sixteen distances in the order of the reference's tree. The additions are the same as there,
/// except that operands may be swapped. Every step halves the number of registers. Lane `4 r + c` of the result is
/// the sum of `sums[r][c]`.
#[target_feature(enable = "avx512f")]
#[inline]
fn tree(sums: [[__m512; 4]; 4]) -> __m512 {
    let mut four = [_mm512_setzero_ps(); 4];
    for column in 0..4 {
        // Adds lanes l and l + 8, then l and l + 4. The result has one part of 128 bits for each row.
        let low = halves(sums[0][column], sums[1][column]);
        let high = halves(sums[2][column], sums[3][column]);
        four[column] = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(low, high),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(low, high),
        );
    }
    let mut two = [_mm512_setzero_ps(); 2];
    for pair in 0..2 {
        let (a, b) = (four[2 * pair], four[2 * pair + 1]);
        two[pair] = _mm512_add_ps(_mm512_shuffle_ps::<0b01_00_01_00>(a, b), _mm512_shuffle_ps::<0b11_10_11_10>(a, b));
    }
    _mm512_add_ps(
        _mm512_shuffle_ps::<0b10_00_10_00>(two[0], two[1]),
        _mm512_shuffle_ps::<0b11_01_11_01>(two[0], two[1]),
    )
}

/// Adds lanes `l` and `l + 8` of each register. The low half of the result has the sums of `a`, the high half those
/// of `b`.
#[target_feature(enable = "avx512f")]
#[inline]
fn halves(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b))
}
