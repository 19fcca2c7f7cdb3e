//! Layout of bytes, and their distances from products: `|x - y|^2 = |x|^2 + |y|^2 - 2 x.y`. The sums are exact modulo
//! 2^32, and the squared distance fits in 32 bits.
//!
//! Columns are interleaved as in int8 matrix libraries (the VNNI layout of oneDNN and FBGEMM): a line of 64 bytes
//! holds four consecutive elements of each of 16 columns.

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::registers::{Integers, transposed_words};
use crate::tile::{Block, TILE_ROWS};

/// Four elements of each of sixteen columns.
pub(crate) type Line = [u8; 64];

/// For each row, its products with the columns of a block.
pub(crate) type Sums = [Integers; TILE_ROWS];

/// Returns the number of lines of a block of 16 columns: one per four dimensions.
pub(crate) fn quads(dimensions: usize) -> usize {
    dimensions.div_ceil(4)
}

/// Returns the lines of the block that starts at `column`.
pub(crate) fn lines(columns: &PackedColumns<u8>, column: usize) -> &[Line] {
    let quads = quads(columns.dimensions);
    &columns.storage.as_slice().as_chunks().0[column / TILE_COLUMNS * quads..][..quads]
}

/// Returns the first `steps` chunks of `N` elements of a vector.
#[inline(always)]
pub(crate) fn cut<T, const N: usize>(vector: &[T], steps: usize) -> &[[T; N]] {
    &vector.as_chunks().0[..steps]
}

/// Writes the rows of `panel` named by `order` into `columns`: the center of its block is subtracted from each element,
/// and `norm` computes the norm of each.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(crate) fn interleave(
    panel: &Panel<u8>,
    order: &[u32],
    columns: &mut PackedColumns<u8>,
    center: impl Fn(usize) -> u8,
    norm: impl Fn(&[u8]) -> u32,
) {
    let (zeros, quads) = (vec![0; panel.stride()], quads(panel.dimensions()));
    let filled = order.len().next_multiple_of(TILE_COLUMNS);
    (columns.len, columns.dimensions) = (order.len(), panel.dimensions());
    columns.storage.resize(filled / TILE_COLUMNS * quads);
    let blocks = columns.storage.as_mut_slice().as_chunks_mut::<32>().0.chunks_exact_mut((2 * quads).max(1));
    for (number, (block, members)) in blocks.zip(order.chunks(TILE_COLUMNS)).enumerate() {
        let mut vectors = [&zeros[..]; TILE_COLUMNS];
        for (vector, &member) in vectors.iter_mut().zip(members) {
            *vector = panel.row(member as usize);
        }
        for (half, vectors) in vectors.as_chunks::<8>().0.iter().enumerate() {
            for (chunk, lines) in block.chunks_mut(16).enumerate() {
                interleave_lines(vectors, chunk, center(number), half, lines);
            }
        }
    }
    columns.norms.resize(filled, 0);
    for (norm_of, &member) in columns.norms.iter_mut().zip(order) {
        *norm_of = norm(panel.row(member as usize));
    }
}

/// Writes chunk number `chunk` (32 elements) of eight vectors into the left half (`half` 0) or right half (1) of up
/// to eight lines.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn interleave_lines(vectors: &[&[u8]; 8], chunk: usize, center: u8, half: usize, lines: &mut [[u8; 32]]) {
    let words = transposed_words(vectors.map(|vector| &vector.as_chunks().0[chunk]), center);
    for (quad, word) in words.into_iter().enumerate() {
        if let Some(place) = lines.get_mut(2 * quad + half) {
            *place = word;
        }
    }
}

/// Returns the distances `terms + norms - 2 sums`. Intermediate results may wrap around. The distance itself fits in
/// 32 bits, so it is correct nevertheless.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn finished(sums: Sums, terms: [u32; TILE_ROWS], columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
    let norms = Integers::load(&columns.norms.as_chunks().0[from / TILE_COLUMNS]);
    let mut block = [[0; TILE_COLUMNS]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        block[row] = Integers::splat(terms[row]).plus_minus_twice(norms, sums[row]).to_array();
    }
    block
}

/// Implements `Blocks::near`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn near(distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
    Integers::load(distances).not_above(limit)
}

/// Implements `Blocks::nearer`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn nearer(
    distances: &[u32; TILE_COLUMNS],
    first: u32,
    best: &mut [u32; TILE_COLUMNS],
    places: &mut [u32; TILE_COLUMNS],
) {
    let (mut nearest, mut columns) = (Integers::load(best), Integers::load(places));
    nearest.take_less(&mut columns, Integers::load(distances), Integers::from(first));
    (*best, *places) = (nearest.to_array(), columns.to_array());
}
