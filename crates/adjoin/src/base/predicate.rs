//! Predicates: decide which pairs belong to the result, from the stored elements. No other module decides this.
//!
//! Fast kernels work on the coordinates of [`crate::base::geometry`], and only leave out pairs that are certainly too far
//! apart. Every remaining pair is decided here.

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{Element, Metric, VectorType, f16_values, f32_values};

/// Predicate of the pairs to find.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Predicate {
    /// `sum_i (x_i - y_i)^2 <= eps * eps`.
    L2 {
        /// The threshold, a true distance (not squared).
        eps: f64,
    },
    /// `dot / sqrt(xx * yy) >= min_similarity`.
    Cosine {
        /// The threshold, from -1 to 1.
        min_similarity: f64,
    },
    /// `dot >= min_score`: the score that a hit must reach once a query has enough hits. It is never a user's
    /// threshold.
    #[serde(skip)]
    InnerProduct {
        /// The threshold.
        min_score: f64,
    },
}

/// A value of a pair, computed with rounding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// Bound on the distance from the exact value.
    pub(crate) error: f64,
}

impl Predicate {
    /// Accepts pairs at most `eps` apart.
    ///
    /// # Errors
    /// If `eps` is negative, infinite or NaN.
    pub fn l2(eps: f64) -> Result<Self> {
        if !eps.is_finite() || eps < 0.0 {
            return Err(Error::option(format!("eps is {eps}; it must be a finite distance of at least 0")));
        }
        Ok(Self::L2 { eps })
    }

    /// Accepts pairs with a cosine similarity of at least `min_similarity`.
    ///
    /// # Errors
    /// If it is not between -1 and 1.
    pub fn cosine(min_similarity: f64) -> Result<Self> {
        if !(-1.0..=1.0).contains(&min_similarity) {
            return Err(Error::option(format!(
                "the least similarity is {min_similarity}; a cosine lies between -1 and 1"
            )));
        }
        Ok(Self::Cosine { min_similarity })
    }

    /// Accepts all pairs, however far apart.
    pub(crate) fn all(metric: Metric) -> Self {
        match metric {
            Metric::L2 => Self::L2 { eps: f64::INFINITY },
            Metric::Cosine => Self::Cosine { min_similarity: f64::NEG_INFINITY },
            Metric::Ip => Self::InnerProduct { min_score: f64::NEG_INFINITY },
        }
    }

    /// Creates the predicate from exactly one of the two thresholds.
    ///
    /// # Errors
    /// If none or both are given, or as [`Predicate::l2`] and [`Predicate::cosine`].
    pub fn of(eps: Option<f64>, min_similarity: Option<f64>) -> Result<Self> {
        match (eps, min_similarity) {
            (Some(eps), None) => Self::l2(eps),
            (None, Some(similarity)) => Self::cosine(similarity),
            _ => Err(Error::option(message![
                "give a threshold: either ",
                Argument::Eps,
                " or ",
                Argument::MinSimilarity
            ])),
        }
    }

    /// Returns the threshold, as a distance or as a similarity.
    pub fn thresholds(&self) -> (Option<f64>, Option<f64>) {
        match *self {
            Self::L2 { eps } => (Some(eps), None),
            Self::Cosine { min_similarity } => (None, Some(min_similarity)),
            Self::InnerProduct { .. } => (None, None),
        }
    }

    /// Returns the squared distance of pairs at the threshold, in coordinates. Under cosine, vectors have length 1.
    /// Inner products have no such threshold, so their distance is infinite.
    pub(crate) fn squared_distance(&self) -> f64 {
        match *self {
            Self::L2 { eps } => eps * eps,
            Self::Cosine { min_similarity } => 2.0 - 2.0 * min_similarity,
            Self::InnerProduct { .. } => f64::INFINITY,
        }
    }

    /// Returns the metric.
    pub fn metric(&self) -> Metric {
        match self {
            Self::L2 { .. } => Metric::L2,
            Self::Cosine { .. } => Metric::Cosine,
            Self::InnerProduct { .. } => Metric::Ip,
        }
    }

    /// Returns the distance (L2, not squared), similarity or inner product of a pair of the result, and `None` for any
    /// other pair.
    ///
    /// `x` and `y` are stored vectors: little-endian elements of `vectors.element`.
    pub fn decide(&self, vectors: VectorType, x: &[u8], y: &[u8]) -> Option<f32> {
        self.accept(match self {
            Self::L2 { .. } => squared_distance(vectors.element, x, y),
            Self::Cosine { .. } => cosine(vectors.element, x, y),
            Self::InnerProduct { .. } => dot(vectors.element, x, y),
        })
    }

    /// Decides as [`Predicate::decide`] does, given the squared distance (L2), the cosine or the inner product
    /// of the pair.
    pub fn accept(&self, value: f64) -> Option<f32> {
        match *self {
            Self::L2 { eps } => (value <= eps * eps).then(|| value.sqrt() as f32),
            Self::Cosine { min_similarity } => (value >= min_similarity).then_some(value as f32),
            Self::InnerProduct { min_score } => (value >= min_score).then_some(value as f32),
        }
    }

    /// Decides as [`Predicate::accept`] does, given an estimate of the value. It calls `exactly` only if the exact
    /// value could change the result, which is rare: near the threshold, and near the boundary between two f32.
    pub(crate) fn accept_near(&self, estimate: Estimate, exactly: impl FnOnce() -> f64) -> Option<f32> {
        let Estimate { value, error } = estimate;
        // If both ends of the interval give the same f32, so does every value between them.
        let low = self.accept(value - error);
        if low == self.accept(value + error) { low } else { self.accept(exactly()) }
    }

    /// Returns a predicate that accepts all pairs up to a nearness, and a few more. A *nearness* orders pairs, and is
    /// smaller for nearer ones: the squared distance under L2, else the negated cosine or inner product. It is derived
    /// from the reported value, rounded to f32, so pairs with equal reported values have equal nearness; squared
    /// distances of integers are exact.
    pub(crate) fn up_to(nearness: f64, metric: Metric, element: Element) -> Self {
        match metric {
            Metric::L2 if element.is_integer() => Self::L2 { eps: nearness.sqrt().next_up() }, // its square is at least `nearness`
            Metric::L2 => Self::L2 { eps: (nearness.sqrt() as f32).next_up().into() },
            Metric::Cosine => Self::Cosine { min_similarity: (-nearness as f32).next_down().into() },
            Metric::Ip => Self::InnerProduct { min_score: (-nearness as f32).next_down().into() },
        }
    }

    /// Returns the nearness of a pair, given the value of [`Predicate::accept`]. There is one zero: -0 and 0 are
    /// equally near.
    pub(crate) fn nearness_of(&self, value: f32) -> f64 {
        match self {
            Self::L2 { .. } => f64::from(value) * f64::from(value),
            // Subtracting from zero turns -0 into 0, so both are equally near.
            Self::Cosine { .. } | Self::InnerProduct { .. } => 0.0 - f64::from(value),
        }
    }

    /// Returns the reported value of a pair; the reverse of [`Predicate::nearness_of`].
    pub(crate) fn value_of(metric: Metric, nearness: f64) -> f32 {
        match metric {
            Metric::L2 => nearness.sqrt() as f32,
            Metric::Cosine | Metric::Ip => (0.0 - nearness) as f32,
        }
    }

    /// Returns the nearness of the threshold.
    pub(crate) fn nearness(&self) -> f64 {
        match self {
            Self::L2 { eps } => eps * eps,
            Self::Cosine { min_similarity } => -min_similarity,
            Self::InnerProduct { min_score } => -min_score,
        }
    }

    /// Returns whether a pair belongs to the result, given an estimate of its value; `None` if that is not enough to
    /// decide.
    pub(crate) fn accepts_near(&self, estimate: Estimate) -> Option<bool> {
        let Estimate { value, error } = estimate;
        let belongs = self.accept(value - error).is_some();
        // A NaN would be refused at both ends, which is no decision.
        (value.is_finite() && belongs == self.accept(value + error).is_some()).then_some(belongs)
    }
}

/// Returns the squared L2 distance of two stored vectors: in integers for u8 and i8, else in f64, summed in index
/// order.
pub(crate) fn squared_distance(element: Element, x: &[u8], y: &[u8]) -> f64 {
    match element {
        Element::U8 => squared_integers(x, y, i32::from) as f64,
        Element::I8 => squared_integers(x, y, |byte| i32::from(byte.cast_signed())) as f64,
        Element::F16 => squared_floats(f16_values(x), f16_values(y)),
        Element::F32 => squared_floats(f32_values(x), f32_values(y)),
    }
}

/// Returns the squared length of a stored vector, summed as in `squared_distance`.
pub(crate) fn squared_norm(element: Element, x: &[u8]) -> f64 {
    dot(element, x, x)
}

/// Returns `dot / sqrt(xx * yy)` of two stored vectors, with the three sums in f64 (in integers for u8 and i8) in index
/// order.
pub(crate) fn cosine(element: Element, x: &[u8], y: &[u8]) -> f64 {
    dot(element, x, y) / (squared_norm(element, x) * squared_norm(element, y)).sqrt()
}

/// Returns [`dot`] of f32 vectors, or of other elements converted to equal floats.
pub(crate) fn dot_of_floats(x: &[f32], y: &[f32]) -> f64 {
    sums([(x, y)], |&x| x.into(), |x, y| x * y)[0]
}

/// Returns [`cosine`] of f32 vectors, or of f16 converted to equal floats.
pub(crate) fn cosine_of_floats(x: &[f32], y: &[f32]) -> f64 {
    let [dot, xx, yy] = sums([(x, y), (x, x), (y, y)], |&x| x.into(), |x, y| x * y);
    dot / (xx * yy).sqrt()
}

/// Returns the inner product of two stored vectors, summed as in `cosine`.
pub(crate) fn dot(element: Element, x: &[u8], y: &[u8]) -> f64 {
    match element {
        Element::U8 => dot_integers(x, y, i64::from) as f64,
        Element::I8 => dot_integers(x, y, |byte| i64::from(byte.cast_signed())) as f64,
        Element::F16 => dot_floats(f16_values(x), f16_values(y)),
        Element::F32 => dot_floats(f32_values(x), f32_values(y)),
    }
}

/// Returns the squared distance of integers.
fn squared_integers(x: &[u8], y: &[u8], value: impl Fn(u8) -> i32) -> u32 {
    x.iter().zip(y).map(|(&x, &y)| (value(x) - value(y)).pow(2).cast_unsigned()).sum()
}

fn dot_integers(x: &[u8], y: &[u8], value: impl Fn(u8) -> i64) -> i64 {
    x.iter().zip(y).map(|(&x, &y)| value(x) * value(y)).sum()
}

/// Returns the squared distance of floats, summed in f64 in index order.
fn squared_floats(x: impl Iterator<Item = f64>, y: impl Iterator<Item = f64>) -> f64 {
    x.zip(y).fold(0.0, |sum, (x, y)| sum + squared_difference(x, y))
}

fn dot_floats(x: impl Iterator<Item = f64>, y: impl Iterator<Item = f64>) -> f64 {
    x.zip(y).fold(0.0, |sum, (x, y)| sum + x * y)
}

/// Returns one term of a squared distance.
pub(crate) fn squared_difference(x: f64, y: f64) -> f64 {
    (x - y) * (x - y)
}

/// Sums a term over the elements of several pairs of vectors, each sum in index order. An addition waits for the
/// previous one of its sum; interleaved sums do not wait for each other.
pub(crate) fn sums<X, const N: usize>(
    pairs: [(&[X], &[X]); N],
    value: impl Fn(&X) -> f64,
    term: impl Fn(f64, f64) -> f64,
) -> [f64; N] {
    let dimensions = pairs.first().map_or(0, |(x, _)| x.len());
    // Slices of one length, so that the compiler drops the bounds checks in the loop.
    let pairs = pairs.map(|(x, y)| (&x[..dimensions], &y[..dimensions]));
    let mut sums = [0.0; N];
    for k in 0..dimensions {
        for (sum, (x, y)) in sums.iter_mut().zip(&pairs) {
            *sum += term(value(&x[k]), value(&y[k]));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn refuses_invalid_thresholds() {
        for eps in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Predicate::l2(eps).is_err());
        }
        for similarity in [-1.1, 1.000_001, f64::NAN] {
            assert!(Predicate::cosine(similarity).is_err());
        }
        assert_eq!(Predicate::l2(0.0).unwrap().metric(), Metric::L2);
    }

    #[test]
    fn pairs_at_the_threshold_are_results() {
        let bytes = VectorType { element: Element::U8, dimensions: 2 };
        let five = Predicate::l2(5.0).unwrap();
        assert_eq!(five.decide(bytes, &[0, 0], &[3, 4]), Some(5.0));
        assert_eq!(five.decide(bytes, &[0, 0], &[3, 5]), None);
        // The f64 nearest to the square root of 2 squares to more than 2, and the one of 3 to less than 3.
        assert!(Predicate::l2(2f64.sqrt()).unwrap().decide(bytes, &[0, 0], &[1, 1]).is_some());
        let three = VectorType { element: Element::I8, dimensions: 3 };
        assert!(Predicate::l2(3f64.sqrt()).unwrap().decide(three, &[0, 0, 255], &[1, 1, 0]).is_none());
    }

    /// An approximate value is used if the exact one would give the same result, for both the threshold and the f32.
    #[test]
    fn approximate_values_decide_like_the_exact_ones() {
        let predicate = Predicate::cosine(0.75).unwrap();
        let mut exactly = 0;
        for step in -2_000..2_000 {
            // Some of these are at the threshold, others at the boundary between two f32.
            let exact = 0.75 + f64::from(step) * 2f64.powi(-32);
            for off in [-1e-12, 0.0, 1e-12] {
                let decided = predicate.accept_near(Estimate { value: exact + off, error: 1e-12 }, || {
                    exactly += 1;
                    exact
                });
                assert_eq!(decided, predicate.accept(exact), "{exact} {off}");
            }
        }
        assert!((1..1_000).contains(&exactly), "{exactly}");
        let near = Predicate::l2(0.0).unwrap();
        assert_eq!(near.accept_near(Estimate { value: 0.0, error: 0.0 }, || 1.0), Some(0.0));
        assert_eq!(near.accept_near(Estimate { value: 1e-20, error: 1e-19 }, || 0.0), Some(0.0));
    }

    #[test]
    fn distances_are_right_for_every_stored_element_type() {
        let floats = VectorType { element: Element::F32, dimensions: 1 };
        let far = Predicate::l2(1e39).unwrap();
        assert!(far.decide(floats, &f32::MAX.to_le_bytes(), &f32::MIN.to_le_bytes()).is_some());
        let half = |value: f32| f16::from_f32(value).to_le_bytes();
        assert_eq!(squared_distance(Element::F16, &half(1.5), &half(-0.5)), 4.0);
        assert_eq!(cosine(Element::I8, &[255, 0], &[1, 0]), -1.0);
        assert_eq!(squared_norm(Element::U8, &[200, 255]), 105_025.0);
    }
}
