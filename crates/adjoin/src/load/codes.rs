//! Floats rounded to bytes, for a first look at pairs that costs a fraction of a distance of floats and leaves out none
//! that may be within the threshold.
//!
//! With an origin o and a step s shared by all vectors, x is rounded to `x^ = o + s q_x` with q_x in 0..=255, and what
//! that takes away, `r_x >= |x - x^|`, is known. Then `s |q_x - q_y| = |x^ - y^| <= |x - y| + r_x + r_y`: an integer bound,
//! computed exactly. The idea of a quantised first pass is that of scalar-quantised indexes (faiss, Starling's PQ
//! navigation); knowing the residuals makes it a proof.

use adjoin_kernels::Panel;
use serde::{Deserialize, Serialize};

use crate::geometry::{Coordinate, Threshold};

/// Steps that are tried, each half of the one before but for a factor of sqrt(2).
const STEPS_TRIED: i32 = 8;
/// Vectors on which they are tried.
const VECTORS_TRIED: usize = 200;
/// Covers the roundings of sums of f64.
const SLACK: f64 = 1e-12;

/// How coordinates are rounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Coding {
    origin: Vec<f32>,
    step: f64,
    /// What the roundings of f64 may add to a residual.
    slack: f64,
}

/// Rounded vectors.
pub(crate) struct Codes {
    pub(crate) panel: Panel<u8>,
    /// No vector is farther from what it was rounded to.
    residual: f64,
}

impl Coding {
    /// Whether it rounds vectors of so many dimensions: one that was read may be anything.
    pub(crate) fn fits(&self, dimensions: usize) -> bool {
        let numbers = [self.step, self.slack];
        self.origin.len() == dimensions
            && self.origin.iter().all(|x| x.is_finite())
            && numbers.iter().all(|x| x.is_finite() && *x >= 0.0)
            && self.step > 0.0
    }

    /// A coding for vectors like those drawn: their mean as the origin, and the step with which the largest residual is
    /// least. A finer one would clip more coordinates.
    pub(crate) fn fit<T: Coordinate>(drawn: &Panel<T>) -> Self {
        let dimensions = drawn.dimensions();
        let mean = |k: usize| {
            let sum: f64 = (0..drawn.rows()).map(|row| drawn.row(row)[k].value()).sum();
            (sum / drawn.rows().max(1) as f64) as f32
        };
        let origin: Vec<f32> = (0..dimensions).map(mean).collect();
        let away = |row: usize| drawn.row(row).iter().zip(&origin).map(|(x, &o)| (x.value() - f64::from(o)).abs());
        let farthest = (0..drawn.rows()).flat_map(away).fold(f64::from(f32::MIN_POSITIVE), f64::max);
        let tried =
            (0..STEPS_TRIED).map(|k| Self::new(origin.clone(), farthest / 127.0 * (-0.5 * f64::from(k)).exp2()));
        let worst = |coding: &Self| {
            let mut code = vec![0; dimensions];
            let rows = 0..drawn.rows().min(VECTORS_TRIED);
            rows.map(|row| coding.encode(&drawn.row(row)[..dimensions], &mut code)).fold(0.0, f64::max)
        };
        let tried = tried.map(|coding| (worst(&coding), coding));
        tried.min_by(|a, b| a.0.total_cmp(&b.0)).expect("several steps are tried").1
    }

    fn new(origin: Vec<f32>, step: f64) -> Self {
        let largest = origin.iter().map(|o| f64::from(o.abs())).fold(0.0, f64::max) + 255.0 * step;
        let slack = 8.0 * f64::EPSILON * (origin.len() as f64).sqrt() * largest;
        Self { origin, step, slack }
    }

    /// Rounds a vector; returns a bound of the distance to what it was rounded to.
    fn encode<T: Coordinate>(&self, vector: &[T], code: &mut [u8]) -> f64 {
        let per_step = self.step.recip();
        let mut squared = 0.0;
        for ((x, &o), code) in vector.iter().zip(&self.origin).zip(code) {
            let away = x.value() - f64::from(o);
            *code = (away * per_step + 128.5) as u8; // half up; at most 255, at least 0
            let left = away - (f64::from(*code) - 128.0) * self.step;
            squared += left * left;
        }
        squared.sqrt() * (1.0 + SLACK) + self.slack
    }

    /// Rounds all vectors of a panel.
    pub(crate) fn codes<T: Coordinate>(&self, vectors: &Panel<T>) -> Codes {
        let dimensions = vectors.dimensions();
        let mut panel = Panel::zeroed(vectors.rows(), dimensions);
        let encode = |row: usize| self.encode(&vectors.row(row)[..dimensions], panel.row_mut(row));
        let residual = (0..vectors.rows()).map(encode).fold(0.0, f64::max);
        Codes { panel, residual }
    }

    /// The largest squared distance of codes that a pair within the threshold can have.
    pub(crate) fn limit(&self, threshold: &Threshold, a: &Codes, b: &Codes) -> u32 {
        let steps = (threshold.distance + a.residual + b.residual) / self.step;
        (steps * steps * (1.0 + SLACK)) as u32 // at most the largest
    }
}

impl Codes {
    /// Bytes that so many rounded vectors take.
    pub(crate) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        Panel::<u8>::bytes_for(rows, dimensions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Vectors around a far point, with coordinates of very different sizes.
    fn vectors(count: usize, dimensions: usize, spread: f64, seed: u64) -> Panel<f32> {
        let mut random = Random::new(seed, "codes");
        let mut panel = Panel::zeroed(count, dimensions);
        for row in 0..count {
            for (k, x) in panel.row_mut(row).iter_mut().enumerate() {
                *x = (7.0 + random.normal() * if k == 0 { spread } else { 0.1 }) as f32;
            }
        }
        panel
    }

    fn distance(x: &[f32], y: &[f32]) -> f64 {
        x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn codes_leave_out_no_pair_within_the_threshold() {
        for (spread, scale) in [(0.1, 1.0), (100.0, 1.0), (1e30, 1.0), (0.0, 1.0), (0.1, 1e-3)] {
            let (fitted, panel) = (vectors(50, 20, spread, 1), vectors(80, 20, spread, 2));
            let mut coding = Coding::fit(&fitted);
            // A step that does not fit the data makes a bad bound and still a bound.
            coding = Coding::new(coding.origin, coding.step * scale);
            let codes = coding.codes(&panel);
            for (i, j) in (0..80).flat_map(|i| (0..i).map(move |j| (i, j))) {
                let between = distance(&panel.row(i)[..20], &panel.row(j)[..20]);
                let threshold = Threshold { distance: between, squared_integer: 0, dimensions: 20 };
                let of = |row: usize| codes.panel.row(row).iter();
                let squared: u32 = of(i).zip(of(j)).map(|(&x, &y)| u32::from(x.abs_diff(y)).pow(2)).sum();
                assert!(squared <= coding.limit(&threshold, &codes, &codes), "{spread} {scale} {i} {j}");
            }
        }
    }

    #[test]
    fn codes_of_ordinary_vectors_are_near_them() {
        let panel = vectors(500, 64, 0.1, 3);
        let coding = Coding::fit(&panel);
        let residual = coding.codes(&panel).residual;
        let nearest = distance(&panel.row(0)[..64], &panel.row(1)[..64]);
        assert!(residual < 0.02 * nearest, "{residual} {nearest}");
    }

    #[test]
    fn vectors_that_are_all_the_same_have_codes() {
        let mut panel = Panel::<f32>::zeroed(3, 4);
        (0..3).for_each(|row| panel.row_mut(row).fill(0.5));
        let coding = Coding::fit(&panel);
        let codes = coding.codes(&panel);
        assert!(codes.residual < 1e-6 && coding.step > 0.0);
    }
}
