//! Rounding of floats to bytes, and the error of this rounding. It is one loop over lanes that the compiler
//! vectorizes for each level. The order of the sums is fixed, so the results of all levels are equal, bit for bit.

use crate::reference::{Reference, sum_in_halves};

/// Number of partial sums.
const LANES: usize = 16;
/// A float plus this value is rounded to an integer, which its lowest bits then hold: 2^23 is the least float from which
/// on consecutive floats differ by 1. A cast to an integer would be one instruction per coordinate, since Rust's casts
/// check the range.
const TO_INTEGER: f32 = (1_u32 << 23) as f32;

/// Grid of the values that bytes represent: byte `q` of coordinate `k` represents `origin[k] + (q - 128) * step`.
#[derive(Debug, Clone, Copy)]
pub struct Grid<'a> {
    /// For each coordinate, the value of byte 128.
    pub origin: &'a [f32],
    /// Difference between the values of two consecutive bytes; positive.
    pub step: f32,
}

/// Rounding, implemented by each level.
pub(crate) trait Rounding {
    fn round(&self, vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32;
}

impl Rounding for Reference {
    fn round(&self, vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 {
        round(vector, scale, grid, bytes)
    }
}

/// Rounds `vector * scale` to bytes. Returns the squared distance between the scaled vector and the rounded one.
#[inline(always)]
pub(crate) fn round(vector: &[f32], scale: f32, Grid { origin, step }: Grid<'_>, bytes: &mut [u8]) -> f32 {
    let per_step = step.recip();
    let mut lanes = [0.0_f32; LANES];
    let one = |x: f32, origin: f32, byte: &mut u8, lane: &mut f32| {
        let away = x * scale - origin;
        // Half a step is added since the integer part of the sum is taken.
        #[expect(clippy::manual_clamp, reason = "`clamp` returns NaN for NaN, `max` returns 0")]
        let shifted = (away * per_step + 128.5).max(0.0).min(255.0);
        let rounded = (shifted + TO_INTEGER) - TO_INTEGER;
        let nearest = if rounded > shifted { rounded - 1.0 } else { rounded };
        *byte = (nearest + TO_INTEGER).to_bits() as u8;
        let left = away - (nearest - 128.0) * step;
        *lane += left * left;
    };
    let ((xs, x_rest), (origins, origin_rest)) = (vector.as_chunks::<LANES>(), origin.as_chunks::<LANES>());
    let (chunks, rest) = bytes.as_chunks_mut::<LANES>();
    for ((x, origin), bytes) in xs.iter().zip(origins).zip(chunks) {
        for lane in 0..LANES {
            one(x[lane], origin[lane], &mut bytes[lane], &mut lanes[lane]);
        }
    }
    for (((&x, &origin), byte), lane) in x_rest.iter().zip(origin_rest).zip(rest).zip(&mut lanes) {
        one(x, origin, byte, lane);
    }
    sum_in_halves(lanes)
}
