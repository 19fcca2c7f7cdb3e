//! Codings round floats to bytes. Bytes take a fraction of the memory of floats, and of the time to compare them.
//!
//! Let o be an origin and s a step, which are the same for all vectors. A vector x is rounded to
//! `x^ = o + s (q_x - 128)`, with the code q_x in 0..=255. A bound `r_x >= |x - x^|` on its residual is known. Then
//! `s |q_x - q_y| = |x^ - y^| <= |x - y| + r_x + r_y`. So everything that is proven for integers and a threshold also
//! holds for floats, if the threshold is increased by both residuals. Indexes with scalar quantization (faiss, the PQ
//! navigation of Starling) also have a first pass over quantized vectors. Here the known residuals make that pass a
//! proof.

use std::ops::RangeInclusive;

use adjoin_kernels::{Grid, Kernel, Panel};
use serde::{Deserialize, Serialize};

use super::{Converted, Space, as_floats};
use crate::base::options::Metric;

/// Number of steps to try. Each step is the previous one divided by sqrt(2).
const STEPS_TRIED: i32 = 8;
/// Range of valid steps. The square of a step outside this range would exceed the precision of f32.
const STEPS: RangeInclusive<f32> = 1e-15..=1e15;
/// Range of lengths of vectors. f32 can represent the reciprocal of such a length at full precision.
const SCALED: RangeInclusive<f64> = 1e-30..=1e30;
/// A coding distinguishes vectors at some distance if its residuals are at most this fraction of the distance.
const FINE: f64 = 0.25;
/// The largest step covers coordinates up to this multiple of the farthest coordinate of a sample. Of 10^8 coordinates
/// with a normal distribution, the farthest one is 1.3 times as far from the mean as that of 64,000.
const FARTHER: f32 = 1.3;
/// Maximum residual of the chosen step, as a multiple of the minimum over all steps. It is more than sqrt(2), so of two
/// steps that clip no coordinate of a sample, the larger one is chosen.
const WORSE: f64 = 1.5;
/// Relative error that covers the rounding of sums in f64.
const SLACK: f64 = 1e-12;
/// Unit roundoff of f32.
const F32_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;

/// A coding, which rounds floats to bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Coding {
    origin: Vec<f32>,
    step: f32,
    /// Largest residual of the vectors to which the coding was fitted.
    residual: f64,
    /// Median distance of these vectors to their nearest neighbor among them.
    nearest: f64,
}

/// Factor by which a vector is multiplied before it is rounded.
#[derive(Clone, Copy)]
struct Scale {
    factor: f32,
    /// Length of the vector after the multiplication, to which the rounding errors of the multiplication are relative.
    /// It is 0 if the factor is 1, since there are no such errors then.
    length: f64,
}

impl Scale {
    const NONE: Self = Self { factor: 1.0, length: 0.0 };
}

impl Coding {
    /// Returns whether the coding is valid for vectors with `dimensions` dimensions. A coding that was read from disk
    /// may have any values.
    pub(crate) fn fits(&self, dimensions: usize) -> bool {
        self.origin.len() == dimensions
            && self.origin.iter().all(|x| x.is_finite())
            && STEPS.contains(&self.step)
            && [self.residual, self.nearest].iter().all(|x| x.is_finite() && *x >= 0.0)
    }

    /// Fits a coding to a sample of vectors. The origin is the mean of the sample. The step is the largest one with a
    /// largest residual near the minimum over all steps, since a smaller step would clip more coordinates. Returns
    /// `None` if no step is within the precision of f32.
    pub(crate) fn fit(kernel: Kernel, drawn: &Panel<f32>) -> Option<Self> {
        let dimensions = drawn.dimensions();
        let rows = || (0..drawn.rows()).map(|row| &drawn.row(row)[..dimensions]);
        let mut sums = vec![0.0; dimensions];
        rows().for_each(|vector| sums.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += f64::from(x)));
        let origin: Vec<f32> = sums.iter().map(|sum| (sum / drawn.rows().max(1) as f64) as f32).collect();
        let away = |vector: &[f32]| vector.iter().zip(&origin).fold(0.0_f32, |most, (x, o)| most.max((x - o).abs()));
        let farthest = FARTHER * rows().map(away).fold(0.0, f32::max);
        let of_step = |k: i32| {
            // With a smaller step, some coordinates are clipped and all others are rounded less.
            let step = farthest / 127.0 * (-0.5 * k as f32).exp2();
            let mut coding = Self { origin: origin.clone(), step, residual: 0.0, nearest: 0.0 };
            let mut code = vec![0; dimensions];
            let residual = |vector| f64::from(coding.encode(kernel, vector, Scale::NONE, &mut code)) * f64::from(step);
            coding.residual = rows().map(residual).fold(0.0, f64::max);
            coding
        };
        let tried = (0..STEPS_TRIED).map(of_step).filter(|coding| coding.fits(dimensions));
        let tried: Vec<Self> = tried.collect();
        let least = tried.iter().map(|coding| coding.residual).min_by(f64::total_cmp)?;
        // Among the good steps, the largest one clips the fewest coordinates of vectors outside the sample. A clipped
        // coordinate may be wrong by many steps.
        let mut best = tried.into_iter().find(|coding| coding.residual <= WORSE * least)?;
        best.nearest = half_are_farther(kernel, drawn);
        Some(best)
    }

    /// Returns whether the coding distinguishes vectors at this distance.
    pub(crate) fn tells_apart(&self, distance: f64) -> bool {
        self.residual <= FINE * distance
    }

    /// Returns whether the coding distinguishes most vectors from their nearest neighbors.
    pub(crate) fn tells_neighbors_apart(&self) -> bool {
        self.tells_apart(self.nearest)
    }

    /// Returns the largest residual of the vectors to which the coding was fitted, in steps.
    pub(super) fn residual_seen(&self) -> f64 {
        self.residual / f64::from(self.step)
    }

    /// Converts a length from coordinates of the vectors to steps.
    pub(super) fn in_steps(&self, length: f64) -> f64 {
        length / f64::from(self.step) * (1.0 + SLACK)
    }

    /// Returns an upper bound on the distance between a stored center and the point that its code represents, in
    /// steps.
    pub(super) fn center_residual(&self) -> f64 {
        let origin = self.origin.iter().map(|&o| f64::from(o).powi(2)).sum::<f64>().sqrt();
        let farthest = 128.0 * (self.origin.len() as f64).sqrt();
        2.0 * F32_ROUNDOFF * (origin / f64::from(self.step) + farthest)
    }

    /// Converts a length from steps to coordinates of the vectors.
    pub(super) fn length(&self, steps: f64) -> f64 {
        steps * f64::from(self.step) * (1.0 + SLACK)
    }

    /// Rounds a scaled vector to a code. Returns an upper bound on the distance between the scaled vector and the
    /// point that the code represents, in steps.
    ///
    /// Let q be the code of a coordinate x, f the scale factor, o the origin, s the step and d the number of
    /// dimensions. Each rounding has a relative error of at most `u = 2^-24`. The error of a coordinate,
    /// `f x - o - (q - 128) s`, takes five roundings. The roundings of f and of `f x` are relative to `f x`. The
    /// roundings of both subtractions and of `(q - 128) s` are each relative to their own result. The sum of the
    /// squares takes at most `d + 2` further roundings. The returned bound allows for twice all these errors.
    fn encode(&self, kernel: Kernel, vector: &[f32], scale: Scale, code: &mut [u8]) -> f32 {
        let grid = Grid { origin: &self.origin, step: self.step };
        let (dimensions, step) = (vector.len() as f64, f64::from(self.step));
        let squared = f64::from(kernel.round_to_bytes(vector, scale.factor, grid, code));
        let left = squared.sqrt() * (1.0 + (dimensions + 2.0) * 2.0 * F32_ROUNDOFF);
        let lengths = scale.length + 128.0 * step * dimensions.sqrt() + left;
        let bound = (left + 8.0 * F32_ROUNDOFF * lengths) / step;
        (bound as f32).next_up()
    }

    /// Rounds stored vectors to codes. They become the rows of a panel, from row 0 on.
    pub(super) fn load(&self, space: Space<'_>, kernel: Kernel, stored: &[u8], panel: &mut Panel<u8>) -> Converted {
        let Space { vectors, metric, .. } = space;
        let mut converted = Converted::default();
        let mut floats = vec![0.0; vectors.dimensions];
        for (row, vector) in stored.chunks_exact(vectors.bytes()).enumerate() {
            as_floats(kernel, vectors.element, vector, &mut floats);
            let scale = match metric {
                Metric::Ip => unreachable!("lifted vectors are not rounded to bytes"),
                Metric::L2 => Scale::NONE,
                Metric::Cosine => {
                    let squared_norm = kernel.dot_wide(&floats, &floats);
                    converted.squared_norms.push(squared_norm);
                    Scale { factor: scale_of_unit(&mut floats, squared_norm.sqrt()), length: 1.0 }
                }
            };
            converted.residuals.push(self.encode(kernel, &floats, scale, panel.row_mut(row)));
        }
        converted
    }

    /// Returns the coordinates that a code represents.
    pub(super) fn decode<'a>(&'a self, code: &'a [u8]) -> impl Iterator<Item = f32> + 'a {
        let of = |(&q, &o): (&u8, &f32)| (f64::from(o) + (f64::from(q) - 128.0) * f64::from(self.step)) as f32;
        code.iter().zip(&self.origin).map(of)
    }

    /// Writes the code that is nearest to the coordinates to `code`.
    pub(super) fn nearest_code(&self, coordinates: &[f32], code: &mut [u8]) {
        for ((&x, &o), code) in coordinates.iter().zip(&self.origin).zip(code) {
            *code = ((x - o) / self.step + 128.5) as u8; // rounds half up; at least 0, at most 255
        }
    }
}

/// Returns the factor that scales a vector of this length to length 1. If f32 cannot represent the factor at full
/// precision, first multiplies the vector by a power of two, so that its length is near 1. This loses only values that
/// are much smaller than the rounding errors of the vector.
fn scale_of_unit(vector: &mut [f32], length: f64) -> f32 {
    if SCALED.contains(&length) {
        return length.recip() as f32;
    }
    // Multiplying by a power of two is exact, so only the range of the values changes.
    let power = (-length.log2().round()).exp2();
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) * power) as f32);
    (length * power).recip() as f32
}

/// Returns the median over all vectors of the distance to the nearest other vector.
fn half_are_farther(kernel: Kernel, drawn: &Panel<f32>) -> f64 {
    let count = drawn.rows();
    let mut distances = vec![0.0_f32; count];
    let mut nearest: Vec<f32> = (0..count)
        .map(|row| {
            kernel.one_to_many(drawn.row(row), drawn, &mut distances);
            // The distance of a vector to itself is ignored.
            distances[row] = f32::INFINITY;
            distances.iter().copied().fold(f32::INFINITY, f32::min)
        })
        .collect();
    nearest.sort_unstable_by(f32::total_cmp);
    nearest.get(count / 2).map_or(0.0, |squared| f64::from(squared.min(f32::MAX)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::geometry::{Coordinate, Threshold};
    use crate::base::options::{Element, VectorType};
    use crate::base::predicate::Predicate;
    use crate::base::random::Random;

    /// Creates vectors around a distant point. Their coordinates have very different scales.
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

    fn stored(panel: &Panel<f32>) -> Vec<u8> {
        let rows = (0..panel.rows()).map(|row| &panel.row(row)[..panel.dimensions()]);
        rows.flatten().flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Checks for several codings, metrics and kernel levels that the codes of a pair within the threshold are within
    /// the threshold plus residuals.
    #[test]
    fn codes_exclude_no_pair_within_the_threshold() {
        let vectors_of = VectorType { element: Element::F32, dimensions: 20 };
        for (spread, scale) in [(0.1, 1.0), (100.0, 1.0), (1e12, 1.0), (0.0, 1.0), (0.1, 1e-3)] {
            let (fitted, panel) = (vectors(50, 20, spread, 1), vectors(80, 20, spread, 2));
            for kernel in Kernel::available() {
                // A step that does not suit the data gives a loose bound, but the bound still holds.
                let mut coding = Coding::fit(kernel, &fitted).unwrap();
                coding.step *= scale;
                let stored = stored(&panel);
                for metric in [Metric::L2, Metric::Cosine] {
                    let space = Space { coding: Some(&coding), ..Space::plain(vectors_of, metric) };
                    let mut codes = Panel::zeroed(80, 20);
                    let Converted { residuals, .. } = u8::load(space, kernel, &stored, &mut codes);
                    let row = |row: usize| &stored[row * 80..][..80];
                    for (i, j) in (0..80).flat_map(|i| (0..i).map(move |j| (i, j))) {
                        let predicate = match metric {
                            Metric::L2 => {
                                let squared = crate::base::predicate::squared_distance(Element::F32, row(i), row(j));
                                Predicate::L2 { eps: squared.sqrt() }
                            }
                            _ => {
                                let min_similarity = crate::base::predicate::cosine(Element::F32, row(i), row(j));
                                Predicate::Cosine { min_similarity }
                            }
                        };
                        let residual = f64::from(residuals[i]) + f64::from(residuals[j]);
                        let limit = u8::tile_limit(&Threshold::new(predicate, space).widened(residual));
                        let between = kernel.distance(codes.row(i), codes.row(j));
                        assert!(between <= limit, "{spread} {scale} {metric} {i} {j}: {between} {limit}");
                    }
                }
            }
        }
    }

    #[test]
    fn codes_decide_most_pairs_and_none_wrongly() {
        let vectors_of = VectorType { element: Element::F32, dimensions: 20 };
        let (fitted, panel) = (vectors(50, 20, 0.1, 1), vectors(80, 20, 0.2, 2));
        let kernel = Kernel::detect();
        let coding = Coding::fit(kernel, &fitted).unwrap();
        let space = Space { coding: Some(&coding), ..Space::plain(vectors_of, Metric::L2) };
        let (stored, mut codes) = (stored(&panel), Panel::zeroed(80, 20));
        let Converted { residuals, .. } = u8::load(space, kernel, &stored, &mut codes);
        let row = |row: usize| &stored[row * 80..][..80];
        let mut counts = [0; 3];
        for (i, j) in (0..80).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let distance = crate::base::predicate::squared_distance(Element::F32, row(i), row(j)).sqrt();
            for factor in [0.5, 0.9, 1.0 - 1e-12, 1.0, 1.1, 2.0] {
                let (eps, residual) = (factor * distance, f64::from(residuals[i]) + f64::from(residuals[j]));
                let between = f64::from(kernel.distance(codes.row(i), codes.row(j)));
                let decided = Threshold::new(Predicate::L2 { eps }, space).decides(between, residual);
                assert!(decided.is_none_or(|within| within == (distance <= eps)), "{i} {j} {factor}");
                counts[decided.map_or(0, |within| 1 + usize::from(within))] += 1;
            }
        }
        // The factors near 1 are left undecided.
        assert!(counts[0] >= 2 * 80 * 79 / 2 && counts[1..].iter().all(|&count| count > 3_000), "{counts:?}");
    }

    /// Checks lengths with a reciprocal that f32 cannot represent, or not at full precision.
    #[test]
    fn codes_of_very_short_and_long_vectors_exclude_no_pair() {
        let vectors_of = VectorType { element: Element::F32, dimensions: 20 };
        let mut panel = vectors(80, 20, 5.0, 2);
        let coding = Coding::fit(Kernel::detect(), &vectors(50, 20, 0.0, 1)).unwrap();
        let coding = Coding { origin: vec![0.0; 20], step: 1.0 / 127.0, ..coding };
        for row in 0..80 {
            let magnitude = [1e-45, 1e-44, 1e-39, 1e-38, 1e37, 9e36, 1e-31, 1.0][row % 8];
            panel.row_mut(row).iter_mut().for_each(|x| *x = (f64::from(*x) * magnitude) as f32);
        }
        let stored = stored(&panel);
        let row = |row: usize| &stored[row * 80..][..80];
        for kernel in Kernel::available() {
            let space = Space { coding: Some(&coding), ..Space::plain(vectors_of, Metric::Cosine) };
            let mut codes = Panel::zeroed(80, 20);
            let Converted { residuals, .. } = u8::load(space, kernel, &stored, &mut codes);
            assert!(residuals.iter().all(|&residual| residual < 4.0), "{residuals:?}");
            for (i, j) in (0..80).flat_map(|i| (0..i).map(move |j| (i, j))) {
                let min_similarity = crate::base::predicate::cosine(Element::F32, row(i), row(j));
                let residual = f64::from(residuals[i]) + f64::from(residuals[j]);
                let threshold = Threshold::new(Predicate::Cosine { min_similarity }, space).widened(residual);
                assert!(kernel.distance(codes.row(i), codes.row(j)) <= u8::tile_limit(&threshold), "{i} {j}");
            }
        }
    }

    #[test]
    fn codes_approximate_ordinary_vectors() {
        let coding = Coding::fit(Kernel::detect(), &vectors(500, 64, 0.1, 3)).unwrap();
        assert!(coding.residual < 0.02 * coding.nearest && coding.tells_neighbors_apart());
        let coding = Coding::fit(Kernel::detect(), &vectors(500, 64, 1e4, 3)).unwrap();
        assert!(!coding.tells_apart(1.0) && coding.tells_apart(1e5), "{} {}", coding.residual, coding.nearest);
    }

    #[test]
    fn equal_vectors_have_no_coding() {
        let mut panel = Panel::<f32>::zeroed(3, 4);
        (0..3).for_each(|row| panel.row_mut(row).fill(0.5));
        assert_eq!(Coding::fit(Kernel::detect(), &panel), None);
        assert_eq!(Coding::fit(Kernel::detect(), &Panel::zeroed(0, 4)), None);
    }

    #[test]
    fn codes_of_decoded_vectors_are_stable() {
        let panel = vectors(100, 20, 3.0, 5);
        let coding = Coding::fit(Kernel::detect(), &panel).unwrap();
        let mut code = vec![0; 20];
        coding.nearest_code(&panel.row(7)[..20], &mut code);
        let mut again = vec![0; 20];
        coding.nearest_code(&coding.decode(&code).collect::<Vec<_>>(), &mut again);
        assert_eq!(code, again);
    }
}
