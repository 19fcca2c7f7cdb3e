//! RaBitQ: scalar quantization of a rotated vector with an unbiased estimate of its distances (Gao, Long, SIGMOD 2024),
//! with several bits per dimension (Gao et al., "Practical and asymptotically optimal quantization of high-dimensional
//! vectors", SIGMOD 2025). If a code has fewer bits than the vector has dimensions, it encodes the leading principal
//! axes (the idea of SAQ, Li et al., 2025).
//!
//! A residual `r = x - c`, c the mean, becomes a point g of the grid of half-integers, which stands for `f g` with `f =
//! |r'|^2 / <g, r'>`, r' being r along the axes. So `|q - x|^2 = |q - c|^2 + |r|^2 - 2 <q - c, r>` is estimated with
//! `<q - c, r> = f <q', g>`, which has no error in the direction of r'.

use adjoin_kernels::{CodeRows, Kernel, Panel, TABLE_ENTRIES};

use super::Table;
use super::rotation::{Axes, Principal};
use super::saved::{Fields, put_count, put_rows};
use crate::context::Context;
use crate::error::Result;
use crate::random::Random;

/// Bytes stored per vector in addition to its grid point: `|r|^2` and f, 16 bits each.
pub(super) const FACTOR_BYTES: usize = 4;
/// Bits per dimension, and the fraction of a normal variable's variance that they leave (Max, "Quantizing for minimum
/// distortion", 1960, table I).
const BITS: [(usize, f64); 3] = [(1, 0.3634), (2, 0.1175), (4, 0.0095)];
/// Grid steps tried per vector, from the one that clips nothing downward.
const STEPS_TRIED: usize = 16;

/// Axes, and the number of bits along each.
pub(super) struct RabitQuantizer {
    mean: Panel<f32>,
    axes: Axes,
    bits: usize,
}

impl RabitQuantizer {
    /// Trains axes on the rows of a sample, which has at least one.
    ///
    /// # Errors
    /// If memory does not suffice or the work is cancelled.
    pub(super) fn train(context: &Context, sample: &Panel<f32>, code_bytes: usize, seed: u64) -> Result<Self> {
        let principal = Principal::of(context, sample)?;
        let room = 8 * (code_bytes - FACTOR_BYTES);
        let left = |&(bits, left): &(usize, f64)| {
            let (head, tail) = principal.variances.split_at((room / bits).min(sample.dimensions()));
            left * head.iter().sum::<f64>() + tail.iter().sum::<f64>()
        };
        let best = BITS.iter().min_by(|a, b| left(a).total_cmp(&left(b))).expect("there are some").0;
        let mut mean = Panel::zeroed(1, sample.dimensions());
        mean.row_mut(0).copy_from_slice(&principal.mean);
        let count = (room / best).min(sample.dimensions());
        let axes = principal.mixed(count, &mut Random::new(seed, "axes"));
        Ok(Self { mean, axes, bits: best })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.mean.dimensions()
    }

    /// Returns the bytes of memory held.
    pub(super) fn bytes(&self) -> u64 {
        self.mean.bytes() + self.axes.0.bytes()
    }

    /// Returns the bits per axis, and the number of axes.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.bits, self.axes.0.rows())
    }

    /// Returns the bytes of the grid point.
    fn point_bytes(&self) -> usize {
        (self.axes.0.rows() * self.bits).div_ceil(8)
    }

    pub(super) fn code_bytes(&self) -> usize {
        self.point_bytes() + FACTOR_BYTES
    }

    /// Returns the difference between a coordinate's number and its value on the grid.
    fn middle(&self) -> f32 {
        ((1 << self.bits) - 1) as f32 / 2.0
    }

    /// Computes the residuals of vectors.
    fn residuals(&self, vectors: &Panel<f32>) -> Panel<f32> {
        let mut residuals = Panel::zeroed(vectors.rows(), vectors.dimensions());
        for row in 0..vectors.rows() {
            let from = vectors.row(row).iter().zip(self.mean.row(0));
            residuals.row_mut(row).iter_mut().zip(from).for_each(|(to, (x, mean))| *to = x - mean);
        }
        residuals
    }

    /// Encodes the vectors of a block.
    pub(super) fn encode(&self, kernel: Kernel, vectors: &Panel<f32>) -> Vec<u8> {
        let residuals = self.residuals(vectors);
        let mut turned = Panel::zeroed(0, 0);
        self.axes.turn(kernel, &residuals, &mut turned);
        let mut codes = Vec::with_capacity(vectors.rows() * self.code_bytes());
        let mut point = vec![0; self.axes.0.rows()];
        for row in 0..vectors.rows() {
            let along = &turned.row(row)[..point.len()];
            let factor = self.grid_point(along, &mut point);
            for numbers in point.chunks(8 / self.bits) {
                codes.push(numbers.iter().rev().fold(0, |byte, number| byte << self.bits | number));
            }
            let residual = residuals.row(row);
            codes.extend(half_of(kernel.dot_near(residual, residual)).to_le_bytes());
            codes.extend(half_of(factor).to_le_bytes());
        }
        codes
    }

    /// Finds the grid point with the direction nearest to `along`, trying a few steps; returns f.
    fn grid_point(&self, along: &[f32], point: &mut [u8]) -> f32 {
        let largest = along.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let (middle, top) = (self.middle(), ((1 << self.bits) - 1) as f32);
        let tried = if self.bits == 1 { 1 } else { STEPS_TRIED };
        let number = |x: f32, per_step: f32| (x * per_step + middle + 0.5).clamp(0.0, top) as u8;
        let mut best = (-1.0, 0.0, 0.0);
        for step in 0..tried {
            // Down to a step that clips the largest coordinate at a quarter.
            let per_step = (middle + 0.5) / largest * (1.0 + 3.0 * step as f32 / STEPS_TRIED as f32);
            let (mut dot, mut squared, mut length) = (0.0_f32, 0.0_f32, 0.0_f32);
            for &x in along {
                let g = f32::from(number(x, per_step)) - middle;
                (dot, squared, length) = (dot + x * g, squared + g * g, length + x * x);
            }
            let alike = dot * dot / squared;
            if alike > best.0 {
                best = (alike, per_step, length / dot);
            }
        }
        let (_, per_step, factor) = best;
        point.iter_mut().zip(along).for_each(|(to, &x)| *to = number(x, per_step));
        if factor.is_finite() { factor } else { 0.0 }
    }

    /// Fills a table with the contribution of each byte of a grid point to its inner product with a query.
    pub(super) fn fill(&self, kernel: Kernel, query: &Panel<f32>, table: &mut Table) {
        let residual = self.residuals(query);
        let mut turned = Panel::zeroed(0, 0);
        self.axes.turn(kernel, &residual, &mut turned);
        table.base = kernel.dot_near(residual.row(0), residual.row(0));
        table.entries.resize(self.point_bytes(), [0.0; TABLE_ENTRIES]);
        let along = turned.row(0)[..self.axes.0.rows()].chunks(8 / self.bits);
        let mask = (1 << self.bits) - 1;
        for (entries, along) in table.entries.iter_mut().zip(along) {
            for (byte, entry) in entries.iter_mut().enumerate() {
                let of = |(at, &x): (usize, &f32)| ((byte >> (at * self.bits) & mask) as f32 - self.middle()) * x;
                *entry = along.iter().enumerate().map(of).sum();
            }
        }
    }

    /// Converts inner products to estimated distances.
    pub(super) fn finish(&self, base: f32, codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) {
        for (&row, out) in rows.iter().zip(out) {
            let factors = &codes.bytes[row as usize * codes.stride + self.point_bytes()..][..FACTOR_BYTES];
            let half = |at: usize| float_of(u16::from_le_bytes([factors[at], factors[at + 1]]));
            *out = base + half(0) - 2.0 * half(2) * *out;
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        put_count(bytes, self.dimensions());
        put_count(bytes, self.axes.0.rows());
        put_count(bytes, self.bits.trailing_zeros() as usize);
        put_rows(bytes, &self.mean);
        put_rows(bytes, &self.axes.0);
    }

    /// Reads a quantizer.
    ///
    /// # Errors
    /// If the bytes were not written by [`RabitQuantizer::write`].
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let dimensions = fields.dimensions()?;
        let axes = fields.count(1..=dimensions, "axes")?;
        let bits = 1 << fields.count(0..=2, "doublings of a bit")?;
        let mean = fields.rows(1, dimensions)?;
        Ok(Self { mean, axes: Axes(fields.rows(axes, dimensions)?), bits })
    }
}

/// Returns the upper 16 bits of a non-negative float after its sign: 8 of the exponent, 8 of the mantissa.
fn half_of(x: f32) -> u16 {
    let size = if x > 0.0 { x.min(f32::MAX / 2.0) } else { 0.0 }; // NaN becomes 0 too
    ((size.to_bits() + (1 << 14)) >> 15) as u16
}

fn float_of(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 15)
}
