//! Scalar quantization of rotated vectors, with an unbiased estimate of distances. This is RaBitQ (Gao, Long, SIGMOD
//! 2024) with several bits per dimension (Gao et al., "Practical and asymptotically optimal quantization of
//! high-dimensional vectors", SIGMOD 2025). If a code has too few bits for all dimensions, it encodes only the
//! leading principal axes (the idea of SAQ, Li et al., 2025).
//!
//! Let `c` be the mean, `r = x - c` the residual of a vector `x`, and `r'` and `q'` the coordinates of `r` and `q -
//! c` along the axes. `r'` is rounded to a point `g` of a grid of half-integers. The code represents `f g` with `f =
//! |r'|^2 / <g, r'>`. The squared distance to a query is `|q - x|^2 = |q - c|^2 + |r|^2 - 2 <q - c, r>`. It is
//! estimated with `<q - c, r> = f <q', g>`, which has no error in the direction of `r'`.

use std::fmt;

use adjoin::{
    Context, Error, Random, Result,
    kernels::{CodeRows, Kernel, Panel, TABLE_ENTRIES},
    lab::{Axes, Principal, workers::map_items},
};

/// Number of bytes of a code in addition to its grid point, for `|r|^2` and `f` with 16 bits each.
const FACTOR_BYTES: usize = 4;
/// Possible numbers of bits per dimension. For each, the fraction of the variance of a normal variable that remains
/// as error (Max, "Quantizing for minimum distortion", 1960, table I).
const BITS: [(usize, f64); 3] = [(1, 0.3634), (2, 0.1175), (4, 0.0095)];
/// Number of grid steps that are tried for a vector. The first and largest one clips no coordinate.
const STEPS_TRIED: usize = 16;

/// Number of vectors that a thread encodes at a time.
const BLOCK_ROWS: usize = 1_024;

/// Table of a query. For each byte of a code, it has the contribution of each value of that byte to the distance
/// estimate.
#[derive(Debug, Default)]
pub(crate) struct RabitTable {
    entries: Vec<[f32; TABLE_ENTRIES]>,
    base: f32,
}

/// Mean and axes of vectors, and the number of bits along each axis.
pub(crate) struct RabitQuantizer {
    mean: Panel<f32>,
    axes: Axes,
    bits: usize,
}

impl RabitQuantizer {
    /// Trains axes on a sample of at least one row.
    ///
    /// # Errors
    /// If the code has no bytes besides the factors, memory does not suffice, or the work is canceled.
    pub(crate) fn train(context: &Context, sample: &Panel<f32>, code_bytes: usize, seed: u64) -> Result<Self> {
        if code_bytes <= FACTOR_BYTES {
            return Err(Error::option(format!(
                "RaBitQ codes of {code_bytes} bytes; give {} or more",
                FACTOR_BYTES + 1
            )));
        }
        let principal = Principal::of(context, sample)?;
        let room = 8 * (code_bytes - FACTOR_BYTES);
        let left = |&(bits, left): &(usize, f64)| {
            let (head, tail) = principal.variances.split_at((room / bits).min(sample.dimensions()));
            left * head.iter().sum::<f64>() + tail.iter().sum::<f64>()
        };
        let best = BITS.iter().min_by(|a, b| left(a).total_cmp(&left(b))).expect("the list of bits is not empty").0;
        let mut mean = Panel::zeroed(1, sample.dimensions());
        mean.row_mut(0).copy_from_slice(&principal.mean);
        let count = (room / best).min(sample.dimensions());
        let axes = mixed(&principal, count, &mut Random::new(seed, "axes"));
        Ok(Self { mean, axes, bits: best })
    }

    /// Returns the size of a grid point in bytes.
    fn point_bytes(&self) -> usize {
        (self.axes.0.rows() * self.bits).div_ceil(8)
    }

    /// Returns the size of a code in bytes.
    pub(crate) fn code_bytes(&self) -> usize {
        self.point_bytes() + FACTOR_BYTES
    }

    /// Returns the stored number of the grid coordinate 0. A coordinate is its stored number minus this.
    fn middle(&self) -> f32 {
        ((1 << self.bits) - 1) as f32 / 2.0
    }

    /// Returns the residuals of vectors: their differences to the mean.
    fn residuals(&self, vectors: &Panel<f32>) -> Panel<f32> {
        let mut residuals = Panel::zeroed(vectors.rows(), vectors.dimensions());
        for row in 0..vectors.rows() {
            let from = vectors.row(row).iter().zip(self.mean.row(0));
            residuals.row_mut(row).iter_mut().zip(from).for_each(|(to, (x, mean))| *to = x - mean);
        }
        residuals
    }

    /// Returns the codes of the rows of a panel, one after another. They depend neither on threads nor on the kernel.
    ///
    /// # Errors
    /// If the work is canceled.
    pub(crate) fn encode(&self, context: &Context, vectors: &Panel<f32>) -> Result<Vec<u8>> {
        let (rows, dimensions) = (vectors.rows(), vectors.dimensions());
        let encode = |block: &mut Panel<f32>, number: usize| {
            let first = number * BLOCK_ROWS;
            block.reset(BLOCK_ROWS.min(rows - first), dimensions);
            for row in 0..block.rows() {
                block.row_mut(row)[..dimensions].copy_from_slice(&vectors.row(first + row)[..dimensions]);
            }
            Ok(self.encode_block(context.kernel, block))
        };
        let state = || Panel::zeroed(0, dimensions);
        Ok(map_items(context.threads, rows.div_ceil(BLOCK_ROWS), &context.cancel, state, encode)?.concat())
    }

    /// Returns the codes of a block of vectors.
    fn encode_block(&self, kernel: Kernel, vectors: &Panel<f32>) -> Vec<u8> {
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

    /// Tries several grid steps, and finds the grid point whose direction is nearest to that of `along`. Returns the
    /// factor `f`.
    fn grid_point(&self, along: &[f32], point: &mut [u8]) -> f32 {
        let largest = along.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let (middle, top) = (self.middle(), ((1 << self.bits) - 1) as f32);
        let tried = if self.bits == 1 { 1 } else { STEPS_TRIED };
        let number = |x: f32, per_step: f32| (x * per_step + middle + 0.5).clamp(0.0, top) as u8;
        let mut best = (-1.0, 0.0, 0.0);
        for step in 0..tried {
            // With the last step, coordinates are clipped if they exceed about a quarter of the largest one.
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

    /// Fills the table of a query. An entry is the contribution of a byte of a grid point to the product of point and
    /// query.
    pub(crate) fn fill_table(&self, kernel: Kernel, query: &[f32], table: &mut RabitTable) {
        let dimensions = self.mean.dimensions();
        let mut panel = Panel::zeroed(1, dimensions);
        panel.row_mut(0)[..dimensions].copy_from_slice(&query[..dimensions]);
        let residual = self.residuals(&panel);
        let mut turned = Panel::zeroed(0, 0);
        self.axes.turn(kernel, &residual, &mut turned);
        table.base = kernel.dot_near(residual.row(0), residual.row(0));
        table.entries.clear();
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

    /// Estimates the squared distances of the table's query to the vectors of some rows, from their codes.
    pub(crate) fn distances(&self, kernel: Kernel, table: &RabitTable, codes: &[u8], rows: &[u32], out: &mut [f32]) {
        let codes = CodeRows { bytes: codes, stride: self.code_bytes() };
        kernel.sum_lookups(&table.entries, codes, rows, out);
        for (&row, out) in rows.iter().zip(out) {
            let factors = &codes.bytes[row as usize * codes.stride + self.point_bytes()..][..FACTOR_BYTES];
            let half = |at: usize| float_of(u16::from_le_bytes([factors[at], factors[at + 1]]));
            *out = table.base + half(0) - 2.0 * half(2) * *out;
        }
    }
}

impl fmt::Display for RabitQuantizer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rabitq, {} x {}", self.bits, self.axes.0.rows())
    }
}

/// Returns the first `count` principal axes after a random rotation among themselves. Thus vectors vary about equally
/// along each of them.
fn mixed(principal: &Principal, count: usize, random: &mut Random) -> Axes {
    let dimensions = principal.mean.len();
    let mix = |weights: &Vec<f64>| {
        let mut row = vec![0.0; dimensions];
        for (axis, weight) in weights.iter().enumerate() {
            row.iter_mut().zip(principal.axis(axis)).for_each(|(to, x)| *to += weight * x);
        }
        row.into_iter()
    };
    Axes::of(random_axes(count, random).iter().map(mix), dimensions)
}

/// Returns random orthogonal axes of a space. Each has normally distributed numbers and is orthogonalized to the
/// previous ones, twice because of rounding.
fn random_axes(side: usize, random: &mut Random) -> Vec<Vec<f64>> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let mut axes: Vec<Vec<f64>> = Vec::with_capacity(side);
    while axes.len() < side {
        let mut axis: Vec<f64> = (0..side).map(|_| random.normal()).collect();
        for other in axes.iter().chain(&axes) {
            let along = dot(&axis, other);
            axis.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
        }
        let length = dot(&axis, &axis).sqrt();
        if length > 1e-6 {
            axis.iter_mut().for_each(|x| *x /= length);
            axes.push(axis);
        }
    }
    axes
}

/// Returns the upper 16 bits of a nonnegative float without its sign: 8 bits of exponent and 8 bits of mantissa.
fn half_of(x: f32) -> u16 {
    let size = if x > 0.0 { x.min(f32::MAX / 2.0) } else { 0.0 }; // also 0 if `x` is NaN
    ((size.to_bits() + (1 << 14)) >> 15) as u16
}

fn float_of(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_sets::vectors;

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    /// Checks, for each number of bits, that estimates follow the formula and that the grid point has about the
    /// direction of the vector.
    #[test]
    fn rabitq_estimates_by_the_formula() {
        let context = Context::default();
        for (dimensions, hidden, bytes, shape) in
            [(40, 40, 9, (1, 40)), (40, 6, 9, (4, 10)), (30, 30, 12, (2, 30)), (17, 17, 13, (4, 17))]
        {
            let (sample, others) = (vectors(3_000, dimensions, hidden, 1), vectors(200, dimensions, hidden, 2));
            let quantizer = RabitQuantizer::train(&context, &sample, bytes, 7).unwrap();
            assert_eq!(quantizer.to_string(), format!("rabitq, {} x {}", shape.0, shape.1));
            let floats = |row: &[f32]| row[..dimensions].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
            let (mean, axes) = (floats(quantizer.mean.row(0)), &quantizer.axes.0);
            let axes: Vec<Vec<f64>> = (0..axes.rows()).map(|axis| floats(axes.row(axis))).collect();
            let residual =
                |row| floats(others.row(row)).iter().zip(&mean).map(|(x, mean)| x - mean).collect::<Vec<_>>();
            let along = |residual: &[f64]| axes.iter().map(|axis| dot(axis, residual)).collect::<Vec<_>>();
            let codes = quantizer.encode(&context, &others).unwrap();
            let mut table = RabitTable::default();
            for (row, code) in codes.chunks(quantizer.code_bytes()).enumerate() {
                let (point, factors) = code.split_at(code.len() - FACTOR_BYTES);
                let bits = shape.0;
                let number = |k: usize| f64::from(point[k * bits / 8] >> (k * bits % 8) & ((1 << bits) - 1) as u8);
                let point: Vec<f64> = (0..axes.len()).map(|k| number(k) - ((1 << bits) - 1) as f64 / 2.0).collect();
                let (own, turned) = (residual(row), along(&residual(row)));
                let cosine = dot(&point, &turned) / (dot(&point, &point) * dot(&turned, &turned)).sqrt();
                assert!(cosine > [0.0, 0.6, 0.85, 0.0, 0.98][bits], "{bits} {cosine}");
                let factor = dot(&turned, &turned) / dot(&point, &turned);
                let kept =
                    factors.as_chunks().0.iter().map(|&half| f32::from_bits(u32::from(u16::from_le_bytes(half)) << 15));
                for (kept, true_one) in kept.zip([dot(&own, &own), factor]) {
                    assert!((f64::from(kept) - true_one).abs() <= 2e-3 * true_one, "{kept} {true_one}");
                }
                for query in 0..10 {
                    let of_query = residual(query);
                    let terms =
                        [dot(&of_query, &of_query), dot(&own, &own), 2.0 * factor * dot(&along(&of_query), &point)];
                    let estimate = terms[0] + terms[1] - terms[2];
                    quantizer.fill_table(context.kernel, others.row(query), &mut table);
                    let mut distance = [0.0];
                    quantizer.distances(context.kernel, &table, code, &[0], &mut distance);
                    let distance = f64::from(distance[0]);
                    let size: f64 = terms.iter().map(|term| term.abs()).sum();
                    assert!((distance - estimate).abs() <= 2e-3 * size, "{distance} {estimate}");
                }
            }
        }
    }

    #[test]
    fn mixed_axes_are_orthonormal_and_span_the_leading_axes() {
        let mut sample = Panel::zeroed(2_000, 9);
        let mut random = Random::new(1, "rotation");
        for row in 0..2_000 {
            let along = sample.row_mut(row).iter_mut().enumerate();
            along.for_each(|(k, x)| *x = (if k < 2 { 10.0 } else { 1.0 } * random.normal()) as f32);
        }
        let principal = Principal::of(&Context::default(), &sample).unwrap();
        for count in [2, 9] {
            let axes = mixed(&principal, count, &mut Random::new(2, "axes"));
            for (i, j) in (0..count).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let dot: f64 = axes.0.row(i).iter().zip(axes.0.row(j)).map(|(x, y)| f64::from(x * y)).sum();
                assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-6, "{i} {j}: {dot}");
            }
        }
        let axes = mixed(&principal, 2, &mut Random::new(2, "axes"));
        let leading = |axis: usize| axes.0.row(axis)[..2].iter().map(|x| x * x).sum::<f32>();
        assert!((0..2).all(|axis| leading(axis) > 0.99));
    }

    #[test]
    fn results_do_not_depend_on_threads_or_kernels() {
        let (sample, others) = (vectors(3_000, 21, 6, 1), vectors(2_500, 21, 6, 2));
        let contexts = Kernel::available().into_iter().flat_map(|kernel| [1, 3].map(|threads| (kernel, threads)));
        let results: Vec<_> = contexts
            .map(|(kernel, threads)| {
                let mut context = Context::default();
                (context.kernel, context.threads) = (kernel, threads);
                let quantizer = RabitQuantizer::train(&context, &sample, 7, 5).unwrap();
                quantizer.encode(&context, &others).unwrap()
            })
            .collect();
        assert!(results.iter().all(|codes| codes == &results[0]));
        let refused = RabitQuantizer::train(&Context::default(), &sample, 4, 1).err().unwrap();
        assert!(refused.to_string().contains("give 5 or more"));
    }
}
