//! Converts stored vectors to coordinates for the kernels, and bounds the errors of computed distances.
//!
//! A [`Space`] defines how the vectors of a store become rows of a panel of *coordinates*. For u8 and i8 under L2, the
//! coordinates are bytes. An i8 is shifted by 128, which does not change differences. For all other vectors, the
//! coordinates are floats, or bytes to which floats are rounded (`codes.rs`). Under cosine, each vector is divided by
//! its length, so that a similarity becomes a distance on the unit sphere. For inner products, rows and queries are
//! lifted onto such a sphere (`Lift`).
//!
//! A [`Threshold`] is a predicate in terms of coordinates. It is never too small: every pair of the result is within
//! it. [`Coordinate`] bounds the effects of rounding. With these bounds, a rule that excludes pairs is proven to
//! exclude no pair of the result (docs/methods.md, "Rounding").

mod codes;
mod coordinate;
mod means;

use adjoin_kernels::Kernel;

pub(crate) use self::codes::Coding;
pub use self::coordinate::Coordinate;
use self::coordinate::read_f32;
pub(crate) use self::means::{Means, copy_row, move_to_means};
use crate::base::options::{DIMENSIONS_MAX, Element, Metric, VectorType};
use crate::base::predicate::Predicate;

/// Maximum number of coordinates of a vector. Lifting adds one coordinate.
pub(crate) const COORDINATES_MAX: usize = DIMENSIONS_MAX + 1;
/// Unit roundoff of f32.
const F32_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;
/// Twice the unit roundoff of f64.
const F64_EPSILON: f64 = f64::EPSILON;
/// Factor that covers the rounding of a few f64 operations between two bounds.
const F64_SLACK: f64 = 1.0 + 64.0 * F64_EPSILON;
/// Fraction of a threshold that covers all roundings of distances in f64. A pair is this much nearer if codes prove that
/// it is within the threshold.
const DECIDED_SLACK: f64 = 1e-9;

/// Conversion from stored vectors to coordinates.
#[derive(Debug, Clone, Copy)]
pub struct Space<'a> {
    /// Type of the stored vectors.
    pub vectors: VectorType,
    /// Metric of the vectors. Under cosine, vectors are divided by their lengths.
    pub metric: Metric,
    /// Rounding of floats to bytes, if any.
    pub(crate) coding: Option<&'a Coding>,
    /// Lifting to unit vectors. Only present for inner products.
    pub(crate) lift: Option<Lift>,
}

/// Lifting to unit vectors with an additional coordinate. It turns inner products into cosines (Bachrach et al.,
/// "Speeding up the Xbox recommender system using a Euclidean transformation for inner-product spaces", RecSys 2014).
///
/// Let M be the length of the longest row. A row x becomes `(x / M, sqrt(1 - |x|^2 / M^2))` and a query q becomes
/// `(q / |q|, 0)`. Their inner product is `<q, x> / (M |q|)`. In a zero vector, all coordinates but the last remain
/// zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lift {
    /// The length M. It is 0 if all rows are zero, or if M is not known yet and only the number of coordinates
    /// matters.
    longest: f64,
    side: Side,
}

/// Kind of the vectors to lift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Rows,
    Queries,
}

impl Lift {
    /// Lifts a vector to unit length by setting its last coordinate. Returns the squared length that it had before.
    fn apply(self, kernel: Kernel, coordinates: &mut [f32]) -> f64 {
        let (last, vector) = coordinates.split_last_mut().expect("lifted vectors have one coordinate more");
        let squared_norm = kernel.dot_wide(vector, vector);
        let (length, left) = match self.side {
            Side::Rows => (self.longest, 1.0 - squared_norm / (self.longest * self.longest)),
            Side::Queries => (squared_norm.sqrt(), 0.0),
        };
        // A zero vector has no direction. If it is a row, its last coordinate becomes 1. That coordinate is 0 in all
        // queries, so the score of the row is 0.
        if length == 0.0 {
            *last = if self.side == Side::Rows { 1.0 } else { 0.0 };
            return squared_norm;
        }
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        // For the longest row, rounding may make this slightly less than 0.
        *last = left.max(0.0).sqrt() as f32;
        squared_norm
    }
}

/// Facts about vectors after their conversion to coordinates.
#[derive(Debug, Default)]
pub struct Converted {
    /// Squared length of each vector. Only present under cosine and for inner products.
    pub(crate) squared_norms: Vec<f64>,
    /// For each vector, an upper bound on its distance from its rounded form, in coordinates. Only present if vectors
    /// were rounded to bytes.
    pub(crate) residuals: Vec<f32>,
}

impl Space<'_> {
    /// Creates the space of stored vectors that are not rounded to bytes. For inner products, it is the space of rows,
    /// and the length of the longest row is not set yet.
    pub fn plain(vectors: VectorType, metric: Metric) -> Self {
        let lift = (metric == Metric::Ip).then_some(Lift { longest: 0.0, side: Side::Rows });
        Self { vectors, metric, coding: None, lift }
    }

    /// Sets the length of the longest row, for inner products.
    #[must_use]
    pub fn up_to_length(self, longest: Option<f64>) -> Self {
        let longest = longest.unwrap_or(0.0);
        Self { lift: self.lift.map(|lift| Lift { longest, ..lift }), ..self }
    }

    /// Returns the space of queries with the type `vectors` for the rows of this space. For metrics that are distances
    /// between rows, queries are treated like rows.
    #[must_use]
    pub fn of_queries(self, vectors: VectorType) -> Self {
        let lift = self.lift.filter(|_| self.metric == Metric::Ip).map(|lift| Lift { side: Side::Queries, ..lift });
        Self { vectors, lift: lift.or(self.lift), ..self }
    }

    /// Returns the metric of distances between rows. It defines the nearest neighbors of rows. For inner products, it
    /// is the metric of the lifted rows.
    pub fn metric_of_rows(metric: Metric) -> Metric {
        if metric == Metric::Ip { Metric::L2 } else { metric }
    }

    /// Returns the number of coordinates of a vector.
    pub fn dimensions(&self) -> usize {
        self.vectors.dimensions + usize::from(self.lift.is_some())
    }

    /// Returns whether coordinates are floats before any rounding to bytes.
    pub fn is_of_floats(&self) -> bool {
        !self.vectors.element.is_integer() || self.metric == Metric::Cosine || self.lift.is_some()
    }

    /// Returns whether stored vectors are kept in addition to their coordinates.
    pub(crate) fn keeps_stored(&self) -> bool {
        self.metric != Metric::L2 || self.coding.is_some()
    }

    /// Returns the size of a coordinate of a stored center, in bytes.
    pub fn center_bytes(&self) -> u64 {
        (if self.is_of_floats() { size_of::<f32>() } else { size_of::<u8>() }) as u64
    }

    /// Returns whether coordinates are bytes.
    pub fn is_of_bytes(&self) -> bool {
        self.coding.is_some() || !self.is_of_floats()
    }

    /// Converts an upper bound on a length from coordinates to stored vectors and centers. Adds the residual of a
    /// center.
    pub fn stored_length(&self, length: f64) -> f64 {
        self.coding.map_or(length, |coding| coding.length(length + coding.center_residual()))
    }

    /// Converts a length from stored vectors to coordinates, approximately.
    pub fn rough_length(&self, stored: f64) -> f64 {
        self.coding.map_or(stored, |coding| coding.in_steps(stored) + coding.residual_seen())
    }

    /// Returns the largest residual of the sample to which the coding was fitted, in coordinates.
    pub(crate) fn residual_seen(&self) -> f64 {
        self.coding.map_or(0.0, Coding::residual_seen)
    }
}

/// An upper bound on the distance between the coordinates of a pair of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// Distance in coordinates. It is at least the true distance of each pair of the result.
    pub distance: f64,
    /// Maximum squared distance of a pair of the result, if coordinates are integers.
    pub squared_integer: u32,
    /// Number of coordinates.
    pub dimensions: usize,
}

impl Threshold {
    /// Converts a predicate to the coordinates of a space. If vectors are rounded to bytes, the threshold is valid
    /// only after it is [widened](Self::widened) by their residuals. For inner products, it applies to queries of
    /// length 1.
    pub fn new(predicate: Predicate, space: Space<'_>) -> Self {
        Self::of_query(predicate, space, 1.0)
    }

    /// Converts a predicate for a query of length `length`. The length matters only for inner products.
    fn of_query(predicate: Predicate, space: Space<'_>, length: f64) -> Self {
        let dimensions = space.dimensions();
        let roundings = (dimensions + 8) as f64 * F64_EPSILON;
        let of_cosine = |cosine: f64, roundings: f64| {
            let squared = (2.0 - 2.0 * cosine + 2.0 * roundings).max(0.0);
            (squared.sqrt() * (1.0 + roundings) + 4.0 * F32_ROUNDOFF, squared)
        };
        let (distance, squared) = match predicate {
            // The f64 sum of the predicate has a relative error of at most `roundings`.
            Predicate::L2 { eps } => (eps * (1.0 + roundings), eps * eps),
            // The formula is |x/|x| - y/|y||^2 = 2 - 2 cos. The rounding of each unit vector is at most one f32
            // roundoff. The bound allows for two.
            Predicate::Cosine { min_similarity } => of_cosine(min_similarity, roundings),
            // For lifted vectors, the same formula holds. The last coordinate of a query is 0, so only the square of
            // its error matters. Both lengths and the sum of the predicate each have a relative error of at most
            // `roundings`.
            Predicate::InnerProduct { min_score } => {
                let most = space.lift.map_or(0.0, |lift| lift.longest * length);
                let cosine = if most > 0.0 { min_score / most } else { f64::NEG_INFINITY };
                of_cosine(cosine, 3.0 * roundings)
            }
        };
        match space.coding {
            None => Self { distance, squared_integer: floor(squared, dimensions), dimensions },
            Some(coding) => Self { distance: 0.0, squared_integer: 0, dimensions }.widened(coding.in_steps(distance)),
        }
    }

    /// Returns the threshold of pairs that have at most the nearness `nearness` (`Predicate::up_to`). They are pairs
    /// with a query of length `length`, which matters only for inner products.
    pub fn up_to(nearness: f64, space: Space<'_>, length: f64) -> Self {
        Self::of_query(Predicate::up_to(nearness, space.metric, space.vectors.element), space, length)
    }

    /// Returns whether a ball with radius `radius` may contain a vector within the threshold of another vector y.
    /// `squared_at_least` is a lower bound on the squared distance between y and the center of the ball. Distances
    /// between coordinates obey the triangle inequality, no matter how the coordinates were rounded.
    pub fn reaches(&self, squared_at_least: f64, radius: f64) -> bool {
        let reach = self.distance + radius;
        // NaN does not count as beyond, so that the vectors are compared.
        let is_beyond = squared_at_least > reach * reach * F64_SLACK;
        !is_beyond
    }

    /// Decides a pair by L2, given the exact squared distance of its rounded vectors and the sum of their residuals.
    /// Returns `None` if the true distance may be on either side of the threshold.
    pub(crate) fn decides(&self, squared: f64, residuals: f64) -> Option<bool> {
        let (near, far) = (self.distance * (1.0 - DECIDED_SLACK) - residuals, self.distance + residuals);
        if near > 0.0 && squared < near * near {
            return Some(true);
        }
        (squared > far * far * F64_SLACK).then_some(false)
    }

    /// Returns the threshold, increased by `residuals`, the sum of the residuals of both vectors of a pair.
    #[must_use]
    pub fn widened(self, residuals: f64) -> Self {
        if residuals == 0.0 {
            return self;
        }
        // By the triangle inequality, the distance between rounded vectors is larger by at most both residuals.
        let distance = self.distance + residuals;
        Self { distance, squared_integer: floor(distance * distance * F64_SLACK, self.dimensions), ..self }
    }
}

/// Rounds a squared distance of bytes down to an integer.
fn floor(squared: f64, dimensions: usize) -> u32 {
    // The result is limited to the largest possible distance, since a larger number may not fit in 32 bits.
    squared.floor().min(255.0 * 255.0 * dimensions as f64) as u32
}

/// Evaluates `$body`. In it, `$T` is the coordinate type of the space.
macro_rules! with_coordinates {
    ($space:expr, $T:ident => $body:expr) => {
        if $space.is_of_bytes() {
            type $T = u8;
            $body
        } else {
            type $T = f32;
            $body
        }
    };
}

pub(crate) use with_coordinates;

/// Returns the length of the longest of the stored vectors.
pub(crate) fn longest(kernel: Kernel, vectors: VectorType, stored: &[u8]) -> f64 {
    let mut floats = vec![0.0; vectors.dimensions];
    let squared_norms = stored.chunks_exact(vectors.bytes()).map(|vector| {
        as_floats(kernel, vectors.element, vector, &mut floats);
        kernel.dot_wide(&floats, &floats)
    });
    squared_norms.fold(0.0, f64::max).sqrt()
}

/// Converts stored elements to floats without loss. The elements must be finite.
///
/// # Panics
/// Panics if elements are f16 and `to` has a wrong length.
pub(crate) fn as_floats(kernel: Kernel, element: Element, stored: &[u8], to: &mut [f32]) {
    match element {
        Element::F16 => kernel.halves_as_floats(stored, to),
        Element::F32 => read_f32(stored, to),
        Element::U8 => to.iter_mut().zip(stored).for_each(|(to, &x)| *to = x.into()),
        Element::I8 => to.iter_mut().zip(stored).for_each(|(to, &x)| *to = x.cast_signed().into()),
    }
}

#[cfg(test)]
mod tests {
    use adjoin_kernels::Panel;

    use super::*;

    fn threshold(eps: f64, element: Element, dimensions: usize) -> Threshold {
        Threshold::new(Predicate::L2 { eps }, Space::plain(VectorType { element, dimensions }, Metric::L2))
    }

    #[test]
    fn integer_thresholds_are_the_last_square_inside() {
        assert_eq!(threshold(2f64.sqrt(), Element::U8, 4).squared_integer, 2);
        assert_eq!(threshold(3f64.sqrt(), Element::U8, 4).squared_integer, 2);
        assert_eq!(threshold(0.0, Element::U8, 4).squared_integer, 0);
        assert_eq!(threshold(f64::MAX, Element::U8, 8192).squared_integer, 255 * 255 * 8192);
    }

    #[test]
    fn margin_limits_do_not_cut_a_collinear_pair() {
        // With centers at 0 and 10, x at 3 and y at 6, the sum of both differences is exactly 2 * D * |x - y|.
        let squares = |x: f64| ((x - 10.0) * (x - 10.0) - x * x, x * x - (x - 10.0) * (x - 10.0));
        let sum = squares(3.0).0 + squares(6.0).1;
        assert_eq!(sum, 60.0);
        assert!(sum <= u8::margin_limit(&threshold(3.0, Element::U8, 1), 100.0));
        assert!(sum > u8::margin_limit(&threshold(2.99, Element::U8, 1), 100.0));
        assert!(sum <= f32::margin_limit(&threshold(3.0, Element::F32, 1), 100.0));
    }

    /// Checks that rows and queries become unit vectors, and that their inner products are the original ones divided
    /// by lengths.
    #[test]
    fn lifted_vectors_preserve_scaled_inner_products() {
        let mut random = crate::base::random::Random::new(1, "lift");
        for (element, dimensions) in [(Element::F32, 5), (Element::U8, 9), (Element::I8, 3), (Element::F16, 16)] {
            let vectors = VectorType { element, dimensions };
            let mut stored: Vec<u8> = (0..40 * vectors.bytes()).map(|_| random.below(60) as u8).collect();
            if element == Element::F32 {
                // The lengths of these vectors differ by a factor of up to a million.
                let floats =
                    (0..40 * dimensions).map(|k| random.normal() as f32 * 10.0_f32.powi((k / dimensions % 7) as i32));
                stored = floats.flat_map(f32::to_le_bytes).collect();
            }
            stored[..vectors.bytes()].fill(0);
            let kernel = Kernel::detect();
            let space = Space::plain(vectors, Metric::Ip).up_to_length(Some(longest(kernel, vectors, &stored)));
            let (mut rows, mut queries) =
                (Panel::zeroed(40, space.dimensions()), Panel::zeroed(40, space.dimensions()));
            f32::load(space, kernel, &stored, &mut rows);
            f32::load(space.of_queries(vectors), kernel, &stored, &mut queries);
            let mut plain = vec![vec![0.0; dimensions]; 40];
            plain
                .iter_mut()
                .zip(stored.chunks_exact(vectors.bytes()))
                .for_each(|(to, vector)| as_floats(kernel, element, vector, to));
            let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
            let length = |x: &[f32]| dot(x, x).sqrt();
            let most = plain.iter().map(|x| length(x)).fold(0.0, f64::max);
            for (x, lifted) in plain.iter().zip((0..40).map(|row| rows.row(row))) {
                assert!((length(lifted) - 1.0).abs() < 1e-6, "{element}: a row of length {}", length(lifted));
                for (q, asked) in plain.iter().zip((0..40).map(|row| queries.row(row))) {
                    let expected = if length(q) == 0.0 { 0.0 } else { dot(x, q) / (most * length(q)) };
                    assert!((dot(lifted, asked) - expected).abs() < 1e-6, "{element}: {x:?} and {q:?}");
                }
            }
        }
    }

    #[test]
    fn a_ball_is_reached_up_to_its_very_edge() {
        // The vector is at 0. The center is at 10, and its ball ends at 3.
        let reaches = |eps, element| threshold(eps, element, 1).reaches(100.0, 7.0);
        assert!(reaches(3.0, Element::U8) && reaches(3.0, Element::F32));
        assert!(!reaches(3.0 - 1e-9, Element::U8) && !reaches(3.0 - 1e-9, Element::F32));
        assert!(threshold(0.0, Element::F32, 1).reaches(0.0, 0.0), "at the center");
        assert!(threshold(1.0, Element::F32, 1).reaches(f64::from(f32::MAX), f64::INFINITY));
    }

    /// Creates f32 vectors around a distant point, so that computed distances have rounding errors.
    fn around(point: f64, spread: f64, count: usize, seed: u64) -> Panel<f32> {
        let mut random = crate::base::random::Random::new(seed, "balls");
        let mut panel = Panel::zeroed(count, 5);
        for row in 0..count {
            panel.row_mut(row)[..5].fill_with(|| (point + spread * random.normal()) as f32);
        }
        panel
    }

    #[test]
    fn a_ball_that_holds_a_vector_within_the_threshold_is_reached() {
        let (kernel, mut near, mut beyond) = (Kernel::detect(), 0, 0);
        for (point, spread) in [(0.0, 1.0), (1e6, 1.0), (1e4, 1e-2), (0.0, 1e-21), (0.0, 1e18)] {
            let space = Space::plain(VectorType { element: Element::F32, dimensions: 5 }, Metric::L2);
            let (centers, queries) = (around(point, 3.0 * spread, 40, 1), around(point, 3.0 * spread, 10, 2));
            for center in 0..centers.rows() {
                let mut members = around(0.0, spread, 20, 3 + center as u64);
                for row in 0..members.rows() {
                    members.row_mut(row).iter_mut().zip(centers.row(center)).for_each(|(x, c)| *x += c);
                }
                let mut computed = vec![0.0; members.rows()];
                kernel.one_to_many(centers.row(center), &members, &mut computed);
                let radius = computed.iter().map(|&squared| f32::at_most(squared, 5).sqrt()).fold(0.0, f64::max);
                let radius = f64::from((radius as f32).next_up());
                for query in 0..queries.rows() {
                    let at_least = f32::at_least(kernel.distance(queries.row(query), centers.row(center)), 5);
                    let squared = |row: usize| {
                        let pairs = queries.row(query).iter().zip(members.row(row));
                        pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>()
                    };
                    let nearest = (0..members.rows()).map(squared).fold(f64::INFINITY, f64::min);
                    assert!(Threshold::up_to(nearest, space, 1.0).reaches(at_least, radius), "{point} {spread}");
                    near += 1;
                    beyond += usize::from(!Threshold::up_to(nearest / 16.0, space, 1.0).reaches(at_least, radius));
                }
            }
        }
        assert!(beyond > near / 20, "a bound that leaves out nothing shows nothing: {beyond} of {near}");
    }

    #[test]
    fn overflowing_distances_exclude_nothing() {
        assert_eq!(f32::tile_limit(&threshold(1e30, Element::F32, 8)), f32::INFINITY);
        assert!(f32::at_least(f32::INFINITY, 8).is_finite());
        assert_eq!(f32::at_most(f32::INFINITY, 8), f64::INFINITY);
        assert!(f32::tile_limit(&threshold(0.0, Element::F32, 8)) > 0.0);
    }

    /// Returns the keys of the distances to another center, and the keys of the margins.
    fn keys<T: Coordinate>(other: &[T::Distance], own: &[T::Distance]) -> [Vec<u32>; 2] {
        [None, Some(own)].map(|own| {
            let mut keys = vec![1, 2, 3];
            T::measure_keys(other, own, 100, &mut keys);
            keys
        })
    }

    /// Checks that keys have the order of the measures, that they are never above the measures and hardly below them,
    /// and that they are within `key_up_to`.
    fn check_keys<T: Coordinate>(keys: &[u32], measures: &[f64]) {
        for (&key, &measure) in keys.iter().zip(measures) {
            let stands_for = T::measure_of(key);
            assert!(stands_for <= measure && measure - stands_for <= 1e-6 * measure.abs() + 1e-30, "{measure:e}");
            assert!(key <= T::key_up_to(measure) && T::key_up_to(f64::NEG_INFINITY) <= key, "{measure:e}");
            assert!(key <= T::key_up_to(f64::INFINITY));
            for (&other, &larger) in keys.iter().zip(measures).filter(|(_, larger)| **larger > measure) {
                assert!(key <= other && T::measure_of(other) >= stands_for, "{measure:e} {larger:e}");
            }
        }
    }

    #[test]
    fn keys_preserve_the_order_of_measures_and_never_exceed_them() {
        let bytes = [0, 1, 2, 77, 1 << 20, 255 * 255 * 100];
        let pairs = || bytes.iter().flat_map(|other| bytes.iter().map(move |own| (*other, *own)));
        let (other, own): (Vec<u32>, Vec<u32>) = pairs().unzip();
        let [distances, margins] = keys::<u8>(&other, &own);
        check_keys::<u8>(&distances, &other.iter().map(|&other| other.into()).collect::<Vec<_>>());
        let of = |(other, own): (u32, u32)| f64::from(other) - f64::from(own);
        check_keys::<u8>(&margins, &pairs().map(of).collect::<Vec<_>>());

        let floats = [0.0, 1e-42, 1e-30, 0.1, 0.100_000_01, 1.0, 3e7, 1e38];
        let pairs = || floats.iter().flat_map(|other| floats.iter().map(move |own| (*other, *own)));
        let (other, own): (Vec<f32>, Vec<f32>) = pairs().unzip();
        let [distances, margins] = keys::<f32>(&other, &own);
        check_keys::<f32>(&distances, &other.iter().map(|&other| f32::at_least(other, 100)).collect::<Vec<_>>());
        let of = |(other, own): (f32, f32)| f32::at_least(other, 100) - f32::at_most(own, 100);
        check_keys::<f32>(&margins, &pairs().map(of).collect::<Vec<_>>());
    }

    #[test]
    fn nan_margins_are_not_excluded() {
        let [_, margins] = keys::<f32>(&[1.0, f32::INFINITY], &[f32::NAN, f32::INFINITY]);
        assert!(f32::measure_of(margins[0]).is_nan() && margins[0] <= f32::key_up_to(-1e30));
        assert_eq!(f32::measure_of(margins[1]), f64::NEG_INFINITY);
    }

    #[test]
    fn a_cosine_threshold_covers_the_rounding_of_unit_vectors() {
        let space = Space::plain(VectorType { element: Element::F32, dimensions: 384 }, Metric::Cosine);
        let equal = Threshold::new(Predicate::Cosine { min_similarity: 1.0 }, space);
        assert!(equal.distance > 2.0 * F32_ROUNDOFF && equal.distance < 1e-6);
    }
}
