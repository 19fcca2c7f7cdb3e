//! Distances of bytes from products: `|x - y|^2 = |x|^2 + |y|^2 - 2 x.y`. `vpdpbusd` multiplies and adds 64 pairs of
//! bytes at once. One of its operands is signed, so a column is stored as `y - 128`, and `x.y = x.(y - 128) + 128
//! sum(x)`.
//!
//! Columns are interleaved as in int8 matrix libraries (the VNNI layout of oneDNN and FBGEMM). A line of 64 bytes
//! holds four consecutive elements of each of 16 columns. Four elements of a row are broadcast and multiplied with
//! all 16 columns at once. This leaves one distance in each lane, and nothing to add across lanes. The arithmetic is
//! exact modulo 2^32 (`vpdpbusd` does not saturate), and the squared distance fits in 32 bits.

use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

use crate::block_levels::bytes::quads;
use crate::columns::{HEADS, PackedColumns, TILE_COLUMNS, head_ends};
use crate::panel::Panel;
use crate::tile::{Group, HitMask, LEAST_RANKS, LeastOfColumn, LeastRows, NearestColumns, TILE_ROWS};

use super::super::rows::{self, GroupRows, RowSums, VNNI_CENTER, add_head_norms};
use super::integers;

/// Heads are compared first only if vectors have at least this many dimensions. Shorter ones are compared so quickly as
/// a whole that this saves nothing (128 dimensions: 3 % slower).
const HEADED_DIMENSIONS: usize = 256;

/// Number of blocks of 16 columns in the widest tile.
const BLOCKS: usize = 4;

/// A block of sixteen columns. Every line has four elements of each column.
type Lines<'a> = &'a [[u8; 64]];

/// Returns the lines of the block that starts at `column`.
fn block(columns: &PackedColumns<u8>, column: usize) -> Lines<'_> {
    let quads = quads(columns.dimensions);
    &columns.storage.as_slice().as_chunks().0[column / TILE_COLUMNS * quads..][..quads]
}

/// Writes the rows of `panel` named by `order`, and their norms, into `columns`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn interleave(panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
    let zeros = vec![0; panel.stride()];
    let quads = quads(panel.dimensions());
    let blocks = columns.storage.as_mut_slice().as_chunks_mut().0.chunks_exact_mut(quads.max(1));
    for (block, members) in blocks.zip(order.chunks(TILE_COLUMNS)) {
        let mut vectors = [&zeros[..]; TILE_COLUMNS];
        for (vector, &member) in vectors.iter_mut().zip(members) {
            *vector = panel.row(member as usize);
        }
        for (chunk, lines) in block.chunks_mut(16).enumerate() {
            interleave_lines(&vectors, chunk, lines);
        }
    }
    for (norm, &member) in columns.norms.iter_mut().zip(order) {
        *norm = norm_and_sum(panel.row(member as usize), 0) as u32;
    }
    if panel.dimensions() >= HEADED_DIMENSIONS {
        add_head_norms(panel, order, columns, |head| norm_and_sum(head, 0).cast_unsigned());
    }
}

/// Writes chunk number `chunk` (64 elements) of 16 vectors into up to 16 lines. This transposes a matrix of 16 by 16
/// words.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn interleave_lines(vectors: &[&[u8]; 16], chunk: usize, lines: &mut [[u8; 64]]) {
    let mut words = [_mm512_setzero_si512(); 16];
    for (word, vector) in words.iter_mut().zip(vectors) {
        // Flipping the highest bit subtracts 128 and makes the byte signed.
        *word = _mm512_xor_si512(bytes(&vector.as_chunks().0[chunk]), _mm512_set1_epi8(-128));
    }
    let mut turned = [_mm512_setzero_si512(); 16];
    for four in 0..4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|row| words[four * 4 + row]);
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        // `turned[four + 4 * j]` is word j of each 128-bit part, for vectors `4 * four ..+ 4`.
        turned[four] = _mm512_unpacklo_epi64(ab, cd);
        turned[four + 4] = _mm512_unpackhi_epi64(ab, cd);
        turned[four + 8] = _mm512_unpacklo_epi64(ab_high, cd_high);
        turned[four + 12] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    for word in 0..4 {
        let parts = transposed_parts([0, 1, 2, 3].map(|four| turned[word * 4 + four]));
        for (part, value) in parts.into_iter().enumerate() {
            if let Some(line) = lines.get_mut(part * 4 + word) {
                // SAFETY: as in `bytes`.
                *line = unsafe { transmute::<__m512i, [u8; 64]>(value) };
            }
        }
    }
}

/// Transposes a matrix of four by four parts of 128 bits.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed_parts([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d));
    let (ab_odd, cd_odd) = (_mm512_shuffle_i32x4::<0b11_01_11_01>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d));
    [
        _mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(ab_odd, cd_odd),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(ab_odd, cd_odd),
    ]
}

/// Loads a register of bytes.
#[target_feature(enable = "avx512f")]
#[inline]
fn bytes(line: &[u8; 64]) -> __m512i {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u8; 64], __m512i>(*line) }
}

/// Returns `|x|^2 + factor * sum(x)` over a padded vector, or over a multiple of 32 elements, modulo 2^32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn norm_and_sum(vector: &[u8], factor: i32) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 2];
    let (lines, rest) = vector.as_chunks::<64>();
    for line in lines {
        sums = with_norm_and_sum(sums, bytes(line));
    }
    if let Some(half_line) = rest.as_chunks().0.first() {
        sums = with_norm_and_sum(sums, _mm512_zextsi256_si512(rows::bytes(half_line)));
    }
    let [centered, sum] = sums;
    // `centered` is the sum of x (x - 128).
    let scaled = _mm512_mullo_epi32(sum, _mm512_set1_epi32(128 + factor));
    _mm512_reduce_add_epi32(_mm512_add_epi32(centered, scaled))
}

/// Adds the products `x (x - 128)` and the elements of a line to sums.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn with_norm_and_sum([centered, sum]: [__m512i; 2], x: __m512i) -> [__m512i; 2] {
    // The second operand of the instruction is signed, so it is x - 128.
    let centered = _mm512_dpbusd_epi32(centered, x, _mm512_xor_si512(x, _mm512_set1_epi8(-128)));
    [centered, _mm512_dpbusd_epi32(sum, x, _mm512_set1_epi8(1))]
}

/// Returns the squared distance of two padded vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
pub(super) fn distance(x: &[u8], y: &[u8]) -> u32 {
    _mm512_reduce_add_epi32(partial_sums(x, y)) as u32
}

/// Returns the squared distance of two padded vectors as partial sums in the lanes, from differences.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn partial_sums(x: &[u8], y: &[u8]) -> __m512i {
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 2];
    for (x, y) in x.as_chunks::<64>().0.iter().zip(y.as_chunks::<64>().0) {
        let (x, y) = (bytes(x), bytes(y));
        // One of the two saturating differences is 0, so `or` yields |x - y|.
        let difference = _mm512_or_si512(_mm512_subs_epu8(x, y), _mm512_subs_epu8(y, x));
        let (low, high) = (_mm512_unpacklo_epi8(difference, zero), _mm512_unpackhi_epi8(difference, zero));
        sums = [_mm512_dpwssd_epi32(sums[0], low, low), _mm512_dpwssd_epi32(sums[1], high, high)];
    }
    _mm512_add_epi32(sums[0], sums[1])
}

/// Computes the squared distances of `x` to the rows `row(k)`, sixteen at a time. Sixteen distances share the
/// additions across lanes, since adding the lanes of a single distance costs more than computing it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn one_to_rows<'a>(x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
    for (chunk, out) in out.chunks_mut(16).enumerate() {
        let last = out.len() - 1;
        // If rows are missing at the end, the last row is repeated. The distances to repeated rows are not copied.
        let row = |k: usize| partial_sums(x, row(chunk * 16 + k.min(last)));
        let mut parts = [_mm512_setzero_si512(); 4];
        for k in 0..4 {
            // `parts[k]` has one part of 128 bits for each of the rows k, k + 4, k + 8 and k + 12.
            let low = halves_u32(row(k), row(k + 4));
            let high = halves_u32(row(k + 8), row(k + 12));
            parts[k] = _mm512_add_epi32(
                _mm512_shuffle_i32x4::<0b10_00_10_00>(low, high),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(low, high),
            );
        }
        let two = |a: __m512i, b: __m512i| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (low, high) = (two(parts[0], parts[1]), two(parts[2], parts[3]));
        let total = _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
        // SAFETY: as in `bytes`.
        let distances = unsafe { transmute::<__m512i, [u32; 16]>(total) };
        out.copy_from_slice(&distances[..=last]);
    }
}

/// Adds lanes `l` and `l + 8` of each register. The low half of the result has the sums of `a`, the high half those
/// of `b`.
#[target_feature(enable = "avx512f")]
#[inline]
fn halves_u32(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi32(_mm512_shuffle_i32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b))
}

/// Returns the value that each row adds to its distances: `|x|^2 - 256 sum(x)`, modulo 2^32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn row_terms(group: &Group<'_, u8>) -> [__m512i; TILE_ROWS] {
    let mut terms = [_mm512_setzero_si512(); TILE_ROWS];
    for row in 0..TILE_ROWS {
        terms[row] = _mm512_set1_epi32(norm_and_sum(group.rows[row], -256));
    }
    terms
}

/// The vectors of a tile: a group of rows and `16 * B` columns.
struct Tile<'a, const B: usize> {
    rows: [&'a [[u8; 4]]; TILE_ROWS],
    blocks: [Lines<'a>; B],
}

/// Sums of products, or distances, of a tile, by block and then by row.
type TileSums<const B: usize> = [[__m512i; TILE_ROWS]; B];

impl<'a, const B: usize> Tile<'a, B> {
    /// Takes the columns that start at `column`.
    #[inline(always)]
    fn new(group: &Group<'a, u8>, columns: &'a PackedColumns<u8>, column: usize) -> Self {
        let quads = quads(columns.dimensions);
        let mut blocks: [Lines<'_>; B] = [&[]; B];
        for index in 0..B {
            blocks[index] = &block(columns, column + index * TILE_COLUMNS)[..quads];
        }
        let mut rows: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
        for row in 0..TILE_ROWS {
            rows[row] = &group.rows[row].as_chunks().0[..quads];
        }
        Self { rows, blocks }
    }

    /// Adds the products of some quads to `sums`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    #[inline]
    fn add_products(&self, sums: &mut TileSums<B>, quads: Range<usize>) {
        let count = quads.len();
        let mut blocks: [Lines<'_>; B] = [&[]; B];
        for index in 0..B {
            blocks[index] = &self.blocks[index][quads.clone()][..count];
        }
        let mut rows: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
        for row in 0..TILE_ROWS {
            rows[row] = &self.rows[row][quads.clone()][..count];
        }
        let mut local = *sums;
        for quad in 0..count {
            let mut lines = [_mm512_setzero_si512(); B];
            for index in 0..B {
                lines[index] = bytes(&blocks[index][quad]);
            }
            for row in 0..TILE_ROWS {
                let four = _mm512_set1_epi32(i32::from_ne_bytes(rows[row][quad]));
                for index in 0..B {
                    local[index][row] = _mm512_dpbusd_epi32(local[index][row], four, lines[index]);
                }
            }
        }
        *sums = local;
    }
}

/// Returns the distances `terms + norms - 2 sums`. Intermediate results may wrap around. The distance itself fits in 32
/// bits, so it is correct nevertheless.
#[target_feature(enable = "avx512f")]
#[inline]
fn finished<const B: usize>(
    mut sums: TileSums<B>,
    terms: &[__m512i; TILE_ROWS],
    columns: &PackedColumns<u8>,
    column: usize,
) -> TileSums<B> {
    for index in 0..B {
        let norms = integers(&columns.norms.as_chunks().0[column / TILE_COLUMNS + index]);
        for row in 0..TILE_ROWS {
            let doubled = _mm512_slli_epi32::<1>(sums[index][row]);
            sums[index][row] = _mm512_sub_epi32(_mm512_add_epi32(terms[row], norms), doubled);
        }
    }
    sums
}

/// Computes the squared distances of the group to the `16 * B` columns that start at `column`. Passes them to
/// `finish` while they are in registers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn tile_u8<const B: usize>(
    group: &Group<'_, u8>,
    terms: &[__m512i; TILE_ROWS],
    columns: &PackedColumns<u8>,
    column: usize,
    finish: impl FnOnce(TileSums<B>),
) {
    let mut sums = [[_mm512_setzero_si512(); TILE_ROWS]; B];
    Tile::<B>::new(group, columns, column).add_products(&mut sums, 0..quads(columns.dimensions));
    finish(finished(sums, terms, columns, column));
}

/// Computes distances as [`tile_u8`] does, in steps. Stops as soon as a head shows that all of them are above the limit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn tile_within<const B: usize>(
    group: &Group<'_, u8>,
    (terms, heads): (&[__m512i; TILE_ROWS], &[RowSums; HEADS]),
    columns: &PackedColumns<u8>,
    column: usize,
    limit: i32,
    finish: impl FnOnce(TileSums<B>),
) {
    let tile = Tile::<B>::new(group, columns, column);
    let mut sums = [[_mm512_setzero_si512(); TILE_ROWS]; B];
    let mut start = 0;
    for (head, end) in head_ends(columns.dimensions).into_iter().flatten().enumerate() {
        tile.add_products(&mut sums, start..quads(end));
        let half_terms = heads[head].half_terms(VNNI_CENTER);
        if are_above(&sums, &half_terms, &columns.head_norms[column / TILE_COLUMNS..], head, limit) {
            return;
        }
        start = quads(end);
    }
    tile.add_products(&mut sums, start..quads(columns.dimensions));
    finish(finished(sums, terms, columns, column));
}

/// Returns whether all distances of heads are above `limit`, as the function of this name in `rows.rs` does.
#[target_feature(enable = "avx512f")]
#[inline]
fn are_above<const B: usize>(
    sums: &TileSums<B>,
    half_terms: &[i32; TILE_ROWS],
    norms: &[[[u32; TILE_COLUMNS]; HEADS]],
    head: usize,
    limit: i32,
) -> bool {
    let mut not_above = 0;
    for index in 0..B {
        let mut largest = _mm512_set1_epi32(i32::MIN);
        for row in 0..TILE_ROWS {
            let sum = _mm512_sub_epi32(sums[index][row], _mm512_set1_epi32(half_terms[row]));
            largest = _mm512_max_epi32(largest, sum);
        }
        let most = _mm512_srai_epi32::<1>(_mm512_sub_epi32(integers(&norms[index][head]), _mm512_set1_epi32(limit)));
        not_above |= _mm512_cmpge_epi32_mask(largest, most);
    }
    not_above == 0
}

/// Returns a mask of the lanes of the block at `column` that stand for columns below `end`.
fn lanes_below(end: usize, column: usize) -> u16 {
    if end - column >= TILE_COLUMNS { u16::MAX } else { (1 << (end - column)) - 1 }
}

/// Evaluates `$body` with the constant `$B` set to `$blocks`, the number of blocks of 16 columns in a tile. Tiles are
/// as wide as possible, since a narrow one has too few independent sums in flight.
macro_rules! with_blocks {
    ($blocks:expr, $B:ident => $body:expr) => {
        match $blocks {
            1 => {
                const $B: usize = 1;
                $body
            }
            2 => {
                const $B: usize = 2;
                $body
            }
            3 => {
                const $B: usize = 3;
                $body
            }
            _ => {
                const $B: usize = BLOCKS;
                $body
            }
        }
    };
}

/// Returns the number of blocks of the widest tile that begins at `column`. Each of them has at least one column
/// below `end`.
fn blocks_from(column: usize, end: usize) -> usize {
    (end - column).div_ceil(TILE_COLUMNS).min(BLOCKS)
}

/// Implements `Tiles::within` for bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn within(group: &Group<'_, u8>, columns: &PackedColumns<u8>, limit: u32, hits: &mut Vec<HitMask>) {
    // Distances of heads are below 2^31, so none is above a larger limit.
    let headed = i32::try_from(limit).ok().filter(|_| columns.dimensions >= HEADED_DIMENSIONS);
    let rows = headed.map(|limit| (limit, GroupRows::with_heads(group, columns.dimensions)));
    let terms = match &rows {
        Some((_, rows)) => rows.whole.terms(VNNI_CENTER).map(|term| _mm512_set1_epi32(term.cast_signed())),
        None => row_terms(group),
    };
    let heads = rows.and_then(|(limit, rows)| Some((limit, rows.heads?)));
    let limit = _mm512_set1_epi32(limit as i32);
    let mut column = group.columns.start;
    while column < group.columns.end {
        let blocks = blocks_from(column, group.columns.end);
        with_blocks!(blocks, B => {
            let finish = |tile: TileSums<B>| hits_u8(group, tile, column, limit, hits);
            match &heads {
                Some((limit, heads)) => tile_within::<B>(group, (&terms, heads), columns, column, *limit, finish),
                None => tile_u8::<B>(group, &terms, columns, column, finish),
            }
        });
        column += blocks * TILE_COLUMNS;
    }
}

/// Appends the pairs of a tile with a squared distance of at most `limit`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn hits_u8<const B: usize>(
    group: &Group<'_, u8>,
    distances: TileSums<B>,
    column: usize,
    limit: __m512i,
    hits: &mut Vec<HitMask>,
) {
    for row in 0..TILE_ROWS {
        let mut near = 0_u64;
        for index in 0..B {
            let mask = _mm512_cmple_epu32_mask(distances[index][row], limit);
            near |= u64::from(mask) << (index * TILE_COLUMNS);
        }
        // `Group::hit` clears the bits past the last column, which stand for zero vectors.
        if near != 0 && row < group.count {
            group.hit(row, column, near, hits);
        }
    }
}

/// Implements `Tiles::nearest` for bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn nearest(group: &Group<'_, u8>, columns: &PackedColumns<u8>, nearest: &mut NearestColumns<u8>) {
    let terms = row_terms(group);
    let mut best = [(_mm512_setzero_si512(), _mm512_setzero_si512()); TILE_ROWS];
    for row in 0..TILE_ROWS {
        let (column, distance) = nearest[row];
        best[row] = (_mm512_set1_epi32(distance as i32), _mm512_set1_epi32(column as i32));
    }
    let mut column = group.columns.start;
    while column < group.columns.end {
        let blocks = blocks_from(column, group.columns.end);
        with_blocks!(blocks, B => {
            tile_u8::<B>(group, &terms, columns, column, |tile| nearer_u8(group, tile, column, &mut best))
        });
        column += blocks * TILE_COLUMNS;
    }
    for (nearest, (distances, places)) in nearest.iter_mut().zip(best) {
        // Each lane has the first of the nearest columns in this lane. If several lanes have the same distance, the
        // lowest of their columns is the first of all.
        let least = _mm512_reduce_min_epu32(distances);
        let equal = _mm512_cmpeq_epi32_mask(distances, _mm512_set1_epi32(least as i32));
        *nearest = (_mm512_mask_reduce_min_epu32(equal, places), least);
    }
}

/// Compares, in each lane, the distances of a tile with the best ones. Replaces the best distance and its column if a
/// distance is less.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn nearer_u8<const B: usize>(
    group: &Group<'_, u8>,
    distances: TileSums<B>,
    column: usize,
    best: &mut [(__m512i, __m512i); TILE_ROWS],
) {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for index in 0..B {
        let from = column + index * TILE_COLUMNS;
        let real = lanes_below(group.columns.end, from);
        let places = _mm512_add_epi32(lanes, _mm512_set1_epi32(from as i32));
        for row in 0..TILE_ROWS {
            let nearer = _mm512_mask_cmplt_epu32_mask(real, distances[index][row], best[row].0);
            best[row].0 = _mm512_mask_mov_epi32(best[row].0, nearer, distances[index][row]);
            best[row].1 = _mm512_mask_mov_epi32(best[row].1, nearer, places);
        }
    }
}

/// Implements `Tiles::least_of_columns` for bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn least(rows: LeastRows<'_, u8>, columns: &PackedColumns<u8>, from: usize, out: &mut [LeastOfColumn<u8>]) {
    // There are at most `LEAST_COLUMNS` columns, so they fit in one of the widest tiles.
    with_blocks!(blocks_from(0, out.len()), B => least_of_blocks_u8::<B>(rows, columns, from, out));
}

/// Finds the smallest distances and margins of the `16 * B` columns from `from` on, lane by lane.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn least_of_blocks_u8<const B: usize>(
    rows: LeastRows<'_, u8>,
    columns: &PackedColumns<u8>,
    from: usize,
    out: &mut [LeastOfColumn<u8>],
) {
    let mut distances = [[_mm512_set1_epi32(-1); LEAST_RANKS]; B];
    // Distances are unsigned, so -1 stands for the largest one. Margins are signed.
    let mut margins = [[_mm512_set1_epi32(i32::MAX); LEAST_RANKS]; B];
    for (members, own) in rows.tiles() {
        let group = Group::new(rows.rows.panel, members, 0, from..from + out.len());
        let terms = row_terms(&group);
        tile_u8::<B>(&group, &terms, columns, from, |tile| {
            for index in 0..B {
                for row in 0..TILE_ROWS {
                    // Skips repeated rows of a short group, since a row must not count twice.
                    if row < members.len() {
                        let mut distance = tile[index][row];
                        let mut margin = _mm512_sub_epi32(distance, _mm512_set1_epi32(own[row] as i32));
                        for rank in 0..LEAST_RANKS {
                            let (least, next) = (distances[index][rank], margins[index][rank]);
                            distances[index][rank] = _mm512_min_epu32(least, distance);
                            distance = _mm512_max_epu32(least, distance);
                            margins[index][rank] = _mm512_min_epi32(next, margin);
                            margin = _mm512_max_epi32(next, margin);
                        }
                    }
                }
            }
        });
    }
    for index in 0..B {
        for rank in 0..LEAST_RANKS {
            // SAFETY: as in `bytes`.
            let (distances, margins) = unsafe {
                let (distances, margins) = (distances[index][rank], margins[index][rank]);
                (transmute::<__m512i, [u32; 16]>(distances), transmute::<__m512i, [i32; 16]>(margins))
            };
            for (lane, least) in out.iter_mut().skip(index * TILE_COLUMNS).take(TILE_COLUMNS).enumerate() {
                (least.distances[rank], least.margins[rank]) = (distances[lane], margins[lane]);
            }
        }
    }
}

/// Implements `Tiles::matrix` for bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn matrix(group: &Group<'_, u8>, columns: &PackedColumns<u8>, out: &mut [u32]) {
    let terms = row_terms(group);
    let mut column = group.columns.start;
    while column < group.columns.end {
        let width = columns.len;
        let blocks = blocks_from(column, group.columns.end);
        with_blocks!(blocks, B => {
            tile_u8::<B>(group, &terms, columns, column, |tile| store_u8(group, tile, column, width, out))
        });
        column += blocks * TILE_COLUMNS;
    }
}

/// Writes the distances of a tile into the group's part of the matrix. A row of the matrix has `width` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
fn store_u8<const B: usize>(
    group: &Group<'_, u8>,
    distances: TileSums<B>,
    column: usize,
    width: usize,
    out: &mut [u32],
) {
    for index in 0..B {
        let from = column + index * TILE_COLUMNS;
        let mask = lanes_below(group.columns.end, from);
        for row in 0..TILE_ROWS {
            if row < group.count {
                let place = &mut out[row * width + from..][..mask.count_ones() as usize];
                // SAFETY: the mask has one low bit per element of `place`, so nothing else is written.
                unsafe { _mm512_mask_storeu_epi32(place.as_mut_ptr().cast(), mask, distances[index][row]) };
            }
        }
    }
}
