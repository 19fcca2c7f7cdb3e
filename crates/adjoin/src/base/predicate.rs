//! Predicates decide, from the stored elements, which pairs belong to the result. No other module decides this.
//!
//! Fast kernels compute with the coordinates of [`crate::base::geometry`]. They only exclude pairs that are certainly
//! too far apart. All other pairs are decided here.

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{Element, Metric, VectorType, f16_values, f32_values};

/// Condition that pairs of the result must meet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Predicate {
    /// `sum_i (x_i - y_i)^2 <= eps * eps`.
    L2 {
        /// The threshold. It is a distance, not a squared distance.
        eps: f64,
    },
    /// `dot / sqrt(xx * yy) >= min_similarity`.
    Cosine {
        /// The threshold, from -1 to 1.
        min_similarity: f64,
    },
    /// `dot >= min_score`. The threshold is the score that a further hit must reach after a query has found enough
    /// hits. Users cannot set it.
    #[serde(skip)]
    InnerProduct {
        /// The threshold.
        min_score: f64,
    },
}

/// A value of a pair that was computed with rounding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    /// Upper bound on the difference from the exact value.
    pub(crate) error: f64,
}

impl Predicate {
    /// Creates a predicate that accepts pairs with a distance of at most `eps`.
    ///
    /// # Errors
    /// Fails if `eps` is negative, infinite or NaN.
    pub fn l2(eps: f64) -> Result<Self> {
        if !eps.is_finite() || eps < 0.0 {
            return Err(Error::option(format!("eps is {eps}; it must be a finite distance of at least 0")));
        }
        Ok(Self::L2 { eps })
    }

    /// Creates a predicate that accepts pairs with a cosine similarity of at least `min_similarity`.
    ///
    /// # Errors
    /// Fails if `min_similarity` is not between -1 and 1.
    pub fn cosine(min_similarity: f64) -> Result<Self> {
        if !(-1.0..=1.0).contains(&min_similarity) {
            return Err(Error::option(format!(
                "the minimum similarity is {min_similarity}; give a cosine between -1 and 1"
            )));
        }
        Ok(Self::Cosine { min_similarity })
    }

    /// Creates a predicate that accepts all pairs.
    pub(crate) fn all(metric: Metric) -> Self {
        match metric {
            Metric::L2 => Self::L2 { eps: f64::INFINITY },
            Metric::Cosine => Self::Cosine { min_similarity: f64::NEG_INFINITY },
            Metric::Ip => Self::InnerProduct { min_score: f64::NEG_INFINITY },
        }
    }

    /// Creates a predicate from a distance or a similarity. Exactly one of them must be given.
    ///
    /// # Errors
    /// Fails if none or both are given, or if [`Predicate::l2`] or [`Predicate::cosine`] fails.
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

    /// Returns the distance and the similarity that are the threshold. At most one of them is present.
    pub fn thresholds(&self) -> (Option<f64>, Option<f64>) {
        match *self {
            Self::L2 { eps } => (Some(eps), None),
            Self::Cosine { min_similarity } => (None, Some(min_similarity)),
            Self::InnerProduct { .. } => (None, None),
        }
    }

    /// Returns the squared distance of pairs at the threshold, in coordinates. Under cosine, vectors are scaled to
    /// length 1. For inner products, no distance corresponds to the threshold, so this is infinite.
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

    /// Returns the value of a pair if it belongs to the result: its L2 distance (not squared), similarity or inner
    /// product. Returns `None` for other pairs.
    ///
    /// `x` and `y` are stored vectors: little-endian elements of `vectors.element`.
    pub fn decide(&self, vectors: VectorType, x: &[u8], y: &[u8]) -> Option<f32> {
        self.accept(match self {
            Self::L2 { .. } => squared_distance(vectors.element, x, y),
            Self::Cosine { .. } => cosine(vectors.element, x, y),
            Self::InnerProduct { .. } => dot(vectors.element, x, y),
        })
    }

    /// Decides like [`Predicate::decide`]. `value` is the squared L2 distance, the cosine or the inner product of the
    /// pair.
    pub fn accept(&self, value: f64) -> Option<f32> {
        match *self {
            Self::L2 { eps } => (value <= eps * eps).then(|| value.sqrt() as f32),
            Self::Cosine { min_similarity } => (value >= min_similarity).then_some(value as f32),
            Self::InnerProduct { min_score } => (value >= min_score).then_some(value as f32),
        }
    }

    /// Decides like [`Predicate::accept`], but from an estimate of the value. Calls `exactly` only if the exact value
    /// could change the result. This is rare: it happens only near the threshold and near the boundary between two
    /// f32.
    pub(crate) fn accept_near(&self, estimate: Estimate, exactly: impl FnOnce() -> f64) -> Option<f32> {
        let Estimate { value, error } = estimate;
        // If both ends of the interval give the same f32, all values in between give it, too.
        let low = self.accept(value - error);
        if low == self.accept(value + error) { low } else { self.accept(exactly()) }
    }

    /// Returns a predicate that accepts all pairs up to a nearness, and a few more. The *nearness* of a pair is
    /// smaller for nearer pairs: it is the squared distance under L2, otherwise the negated cosine or inner product.
    /// It is computed from the reported value, which is rounded to f32, so pairs with equal reported values have equal
    /// nearness. Only squared distances of integers are not rounded.
    pub(crate) fn up_to(nearness: f64, metric: Metric, element: Element) -> Self {
        match metric {
            Metric::L2 if element.is_integer() => Self::L2 { eps: nearness.sqrt().next_up() }, // its square is at least `nearness`
            Metric::L2 => Self::L2 { eps: (nearness.sqrt() as f32).next_up().into() },
            Metric::Cosine => Self::Cosine { min_similarity: (-nearness as f32).next_down().into() },
            Metric::Ip => Self::InnerProduct { min_score: (-nearness as f32).next_down().into() },
        }
    }

    /// Returns the nearness of a pair from the value that [`Predicate::accept`] returned. The values -0 and 0 have the
    /// same nearness.
    pub(crate) fn nearness_of(&self, value: f32) -> f64 {
        match self {
            Self::L2 { .. } => f64::from(value) * f64::from(value),
            // The subtraction from zero turns -0 into 0, so both values have the same nearness.
            Self::Cosine { .. } | Self::InnerProduct { .. } => 0.0 - f64::from(value),
        }
    }

    /// Returns the reported value of a pair from its nearness. This is the inverse of [`Predicate::nearness_of`].
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

    /// Returns whether a pair belongs to the result, based on an estimate of its value. Returns `None` if the estimate
    /// is not precise enough to decide.
    pub(crate) fn accepts_near(&self, estimate: Estimate) -> Option<bool> {
        let Estimate { value, error } = estimate;
        let belongs = self.accept(value - error).is_some();
        // NaN is not accepted at either end, but that must not count as a decision.
        (value.is_finite() && belongs == self.accept(value + error).is_some()).then_some(belongs)
    }
}

/// Returns the squared L2 distance of two stored vectors. For u8 and i8 the sum is an integer. For other elements it
/// is an f64, and terms are added in index order.
pub(crate) fn squared_distance(element: Element, x: &[u8], y: &[u8]) -> f64 {
    match element {
        Element::U8 => squared_integers(x, y, i32::from) as f64,
        Element::I8 => squared_integers(x, y, |byte| i32::from(byte.cast_signed())) as f64,
        Element::F16 => squared_floats(f16_values(x), f16_values(y)),
        Element::F32 => squared_floats(f32_values(x), f32_values(y)),
    }
}

/// Returns the squared length of a stored vector. It is summed like [`squared_distance`].
pub(crate) fn squared_norm(element: Element, x: &[u8]) -> f64 {
    dot(element, x, x)
}

/// Returns `dot / sqrt(xx * yy)` of two stored vectors. For u8 and i8 the three sums are integers. For other elements
/// they are f64, and terms are added in index order.
pub(crate) fn cosine(element: Element, x: &[u8], y: &[u8]) -> f64 {
    dot(element, x, y) / (squared_norm(element, x) * squared_norm(element, y)).sqrt()
}

/// Returns [`dot`] of f32 vectors. Vectors of other elements may be converted to equal floats first.
pub(crate) fn dot_of_floats(x: &[f32], y: &[f32]) -> f64 {
    sums([(x, y)], |&x| x.into(), |x, y| x * y)[0]
}

/// Returns [`cosine`] of f32 vectors. f16 vectors may be converted to equal floats first.
pub(crate) fn cosine_of_floats(x: &[f32], y: &[f32]) -> f64 {
    let [dot, xx, yy] = sums([(x, y), (x, x), (y, y)], |&x| x.into(), |x, y| x * y);
    dot / (xx * yy).sqrt()
}

/// Returns the inner product of two stored vectors. It is summed like the sums of [`cosine`].
pub(crate) fn dot(element: Element, x: &[u8], y: &[u8]) -> f64 {
    match element {
        Element::U8 => dot_integers(x, y, i64::from) as f64,
        Element::I8 => dot_integers(x, y, |byte| i64::from(byte.cast_signed())) as f64,
        Element::F16 => dot_floats(f16_values(x), f16_values(y)),
        Element::F32 => dot_floats(f32_values(x), f32_values(y)),
    }
}

/// Returns the squared distance of two vectors of integers.
fn squared_integers(x: &[u8], y: &[u8], value: impl Fn(u8) -> i32) -> u32 {
    x.iter().zip(y).map(|(&x, &y)| (value(x) - value(y)).pow(2).cast_unsigned()).sum()
}

fn dot_integers(x: &[u8], y: &[u8], value: impl Fn(u8) -> i64) -> i64 {
    x.iter().zip(y).map(|(&x, &y)| value(x) * value(y)).sum()
}

/// Returns the squared distance of two vectors of floats, summed in f64 in index order.
fn squared_floats(x: impl Iterator<Item = f64>, y: impl Iterator<Item = f64>) -> f64 {
    x.zip(y).fold(0.0, |sum, (x, y)| sum + squared_difference(x, y))
}

fn dot_floats(x: impl Iterator<Item = f64>, y: impl Iterator<Item = f64>) -> f64 {
    x.zip(y).fold(0.0, |sum, (x, y)| sum + x * y)
}

/// Returns the term of a squared distance for one element.
pub(crate) fn squared_difference(x: f64, y: f64) -> f64 {
    (x - y) * (x - y)
}

/// Sums a term over the elements of vectors, for several pairs of vectors at a time. Each sum is in index order. An
/// addition must wait for the previous addition of its own sum, but not for the additions of the other sums.
pub(crate) fn sums<X, const N: usize>(
    pairs: [(&[X], &[X]); N],
    value: impl Fn(&X) -> f64,
    term: impl Fn(f64, f64) -> f64,
) -> [f64; N] {
    let dimensions = pairs.first().map_or(0, |(x, _)| x.len());
    // Slices with the same length let the compiler remove the bounds checks in the loop.
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
        // The square of the f64 nearest to sqrt(2) is more than 2. The square of the f64 nearest to sqrt(3) is less
        // than 3.
        assert!(Predicate::l2(2f64.sqrt()).unwrap().decide(bytes, &[0, 0], &[1, 1]).is_some());
        let three = VectorType { element: Element::I8, dimensions: 3 };
        assert!(Predicate::l2(3f64.sqrt()).unwrap().decide(three, &[0, 0, 255], &[1, 1, 0]).is_none());
    }

    /// Checks that an approximate value is used if the exact value would give the same decision and the same f32.
    #[test]
    fn approximate_values_decide_like_the_exact_ones() {
        let predicate = Predicate::cosine(0.75).unwrap();
        let mut exactly = 0;
        for step in -2_000..2_000 {
            // Some of these values are at the threshold, others at the boundary between two f32.
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
