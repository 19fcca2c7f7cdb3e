//! The two types of coordinates, bytes and floats: how vectors become coordinates, and bounds on the errors of
//! distances.

use adjoin_kernels::{Kernel, Panel, Scalar, relative_error, wide_error};

use super::{Converted, F32_ROUNDOFF, F64_SLACK, Space, Threshold, as_floats};
use crate::base::options::{Element, Metric};
use crate::base::predicate::{Estimate, Predicate, squared_difference, sums};

/// Type of coordinates: u8 or f32.
pub trait Coordinate: Scalar + PartialOrd + Default + Send + Sync {
    /// Converts stored vectors to coordinates. They become the rows of a panel, from row 0 on.
    fn load(space: Space<'_>, kernel: Kernel, stored: &[u8], panel: &mut Panel<Self>) -> Converted;

    /// Appends a center to `stored` in the format of stored centers. This is the inverse of
    /// [`Coordinate::read_center`].
    fn write_center(space: Space<'_>, center: &[Self], stored: &mut Vec<u8>);

    /// Converts a stored center to coordinates.
    fn read_center(space: Space<'_>, stored: &[u8], center: &mut [Self]);

    /// Sum of coordinates. For bytes, it is exact for up to 2^24 summands.
    type Sum: Copy + Default + Into<f64> + Send + Sync;

    /// Adds the coordinates of a vector to sums.
    fn add_to(vector: &[Self], sums: &mut [Self::Sum]);

    /// Returns the coordinate nearest to a mean.
    fn from_mean(mean: f64) -> Self;

    /// Returns the value of a coordinate.
    fn value(self) -> f64;

    /// Returns whether coordinates are floats.
    fn is_float() -> bool;

    /// Decides whether two padded rows are a pair of the result. Uses their squared distance, summed in the order of
    /// `squared_distance`. Under L2, the distance between coordinates equals the distance between the stored elements.
    fn decide(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f32>;

    /// Returns the nearness (`Predicate::up_to`) of two padded rows if they are a pair of the result. Otherwise
    /// returns `None`.
    fn nearness(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f64>;

    /// Returns a lower bound on the true squared distance of a pair with the computed squared distance `computed`.
    fn at_least(computed: Self::Distance, dimensions: usize) -> f64;

    /// Returns an upper bound on the true squared distance of a pair with the computed squared distance `computed`.
    fn at_most(computed: Self::Distance, dimensions: usize) -> f64;

    /// Converts a computed distance to an integer key. Keys have the order of the distances. NaN is last.
    fn distance_key(computed: Self::Distance) -> u32;

    /// Converts a key back to the computed distance.
    fn distance_of(key: u32) -> f64;

    /// Converts a computed distance to f32. The result is at most the largest finite f32.
    fn rough(computed: Self::Distance) -> f32;

    /// Returns a lower bound on `at_least(d(x, c_j)) - at_most(d(x, c_i))`. `rough` is the difference between the
    /// [`Coordinate::rough`] values of both distances. `own_most` is an upper bound on the second term.
    fn least_margin(rough: f32, own_most: f64, dimensions: usize) -> f64 {
        let rough = f64::from(rough);
        // The distance d(x, c_j) is at most |rough| + own_most. The error allows for four f32 roundings: those of both
        // terms, of their bounds, and of the difference.
        let error = Self::relative(dimensions) + 4.0 * F32_ROUNDOFF;
        rough - error * (rough.abs() + 2.0 * own_most) * F64_SLACK - underflow(dimensions)
    }

    /// Returns an upper bound on the relative error of a computed distance.
    fn relative(dimensions: usize) -> f64;

    /// Computes a key for the measure of each member. If `own` has the distances to the members' own center, the
    /// measure is the margin. Otherwise it is the computed squared distance to another center. Keys are integers in
    /// the order of the measures. [`Coordinate::measure_of`] converts a key back to a measure. That measure is never
    /// above the bound that [`Coordinate::at_least`] and [`Coordinate::at_most`] give, and hardly below it.
    fn measure_keys(other: &[Self::Distance], own: Option<&[Self::Distance]>, dimensions: usize, keys: &mut Vec<u32>);

    /// Converts a key back to the measure.
    fn measure_of(key: u32) -> f64;

    /// Returns a key that is at least as large as the key of every measure up to `most`.
    fn key_up_to(most: f64) -> u32;

    /// Returns a limit on computed distances. A pair with a larger computed distance is certainly beyond the
    /// threshold.
    fn tile_limit(threshold: &Threshold) -> Self::Distance;

    /// Returns `2 * D * eps` or a slightly larger number. D is the distance between two centers c_i and c_j, and D^2
    /// is at most `center_distance_squared`. The result is the maximum of the sum of `d(x, c_j)^2 - d(x, c_i)^2` and
    /// `d(y, c_i)^2 - d(y, c_j)^2` for a pair x, y within `eps`.
    fn margin_limit(threshold: &Threshold, center_distance_squared: f64) -> f64;
}

/// Returns the mask that converts stored bytes to u8. Flipping the top bit of an i8 adds 128 to it.
fn shift_of(element: Element) -> u8 {
    if element == Element::I8 { 0x80 } else { 0 }
}

impl Coordinate for u8 {
    fn load(space: Space<'_>, kernel: Kernel, stored: &[u8], panel: &mut Panel<Self>) -> Converted {
        if let Some(coding) = space.coding {
            return coding.load(space, kernel, stored, panel);
        }
        let shift = shift_of(space.vectors.element);
        for (k, vector) in stored.chunks_exact(space.vectors.dimensions).enumerate() {
            for (to, from) in panel.row_mut(k).iter_mut().zip(vector) {
                *to = from ^ shift;
            }
        }
        Converted::default()
    }

    fn write_center(space: Space<'_>, center: &[Self], stored: &mut Vec<u8>) {
        match space.coding {
            Some(coding) => stored.extend(coding.decode(center).flat_map(f32::to_le_bytes)),
            None => stored.extend(center.iter().map(|x| x ^ shift_of(space.vectors.element))),
        }
    }

    fn read_center(space: Space<'_>, stored: &[u8], center: &mut [Self]) {
        if let Some(coding) = space.coding {
            let mut floats = vec![0.0; center.len()];
            read_f32(stored, &mut floats);
            return coding.nearest_code(&floats, center);
        }
        for (to, from) in center.iter_mut().zip(stored) {
            *to = from ^ shift_of(space.vectors.element);
        }
    }

    type Sum = u32;

    fn add_to(vector: &[Self], sums: &mut [u32]) {
        sums.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += u32::from(x));
    }

    fn from_mean(mean: f64) -> Self {
        mean.round() as Self
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn is_float() -> bool {
        false
    }

    fn decide(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f32> {
        predicate.accept(kernel.distance(x, y).into())
    }

    fn nearness(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f64> {
        let squared = kernel.distance(x, y).into();
        predicate.accept(squared).map(|_| squared)
    }

    fn at_least(computed: u32, _dimensions: usize) -> f64 {
        f64::from(computed)
    }

    fn at_most(computed: u32, _dimensions: usize) -> f64 {
        f64::from(computed)
    }

    fn distance_key(computed: u32) -> u32 {
        computed
    }

    fn distance_of(key: u32) -> f64 {
        key.into()
    }

    fn rough(computed: u32) -> f32 {
        computed.cast_signed() as f32 // below 2^30; the signed conversion is the fast one
    }

    fn relative(_dimensions: usize) -> f64 {
        0.0
    }

    fn measure_keys(other: &[u32], own: Option<&[u32]>, _dimensions: usize, keys: &mut Vec<u32>) {
        keys.clear();
        match own {
            // Flipping the sign bit maps signed differences to unsigned keys with the same order.
            Some(own) => keys.extend(other.iter().zip(own).map(|(other, own)| other.wrapping_sub(*own) ^ SIGN)),
            None => keys.extend(other.iter().map(|other| other ^ SIGN)),
        }
    }

    fn measure_of(key: u32) -> f64 {
        (key ^ SIGN).cast_signed().into() // distances are below 2^31
    }

    fn key_up_to(most: f64) -> u32 {
        (most.floor() as i32).cast_unsigned() ^ SIGN
    }

    fn tile_limit(threshold: &Threshold) -> u32 {
        threshold.squared_integer
    }

    fn margin_limit(threshold: &Threshold, center_distance_squared: f64) -> f64 {
        // All values are integers, so a sum is within the limit if its square is at most `4 D^2 floor(eps^2)`.
        let squared = 4 * center_distance_squared as u64 * u64::from(threshold.squared_integer);
        squared.isqrt() as f64
    }
}

impl Coordinate for f32 {
    fn load(space: Space<'_>, kernel: Kernel, stored: &[u8], panel: &mut Panel<Self>) -> Converted {
        let Space { vectors, metric, lift, .. } = space;
        let mut converted = Converted::default();
        for (row, vector) in stored.chunks_exact(vectors.bytes()).enumerate() {
            let to = panel.row_mut(row);
            as_floats(kernel, vectors.element, vector, &mut to[..vectors.dimensions]);
            if let Some(lift) = lift {
                converted.squared_norms.push(lift.apply(kernel, to));
            } else if metric == Metric::Cosine {
                let squared_norm = kernel.dot_wide(to, to);
                let length = squared_norm.sqrt();
                to.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as Self);
                converted.squared_norms.push(squared_norm);
            }
        }
        converted
    }

    fn write_center(_space: Space<'_>, center: &[Self], stored: &mut Vec<u8>) {
        stored.extend(center.iter().flat_map(|x| x.to_le_bytes()));
    }

    fn read_center(_space: Space<'_>, stored: &[u8], center: &mut [Self]) {
        read_f32(stored, center);
    }

    type Sum = f64;

    fn add_to(vector: &[Self], sums: &mut [f64]) {
        sums.iter_mut().zip(vector).for_each(|(sum, &x)| *sum += f64::from(x));
    }

    fn from_mean(mean: f64) -> Self {
        mean as Self
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn is_float() -> bool {
        true
    }

    fn decide(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f32> {
        let squared = kernel.squared_distance_wide(x, y);
        // The padding does not change the sum, since it only adds zeros.
        let exactly = || sums([(x, y)], |&x| f64::from(x), squared_difference)[0];
        predicate.accept_near(Estimate { value: squared, error: squared * wide_error(x.len()) }, exactly)
    }

    fn nearness(kernel: Kernel, predicate: Predicate, x: &[Self], y: &[Self]) -> Option<f64> {
        Self::decide(kernel, predicate, x, y).map(|distance| predicate.nearness_of(distance))
    }

    fn at_least(computed: f32, dimensions: usize) -> f64 {
        // If the sum overflowed, the true distance is at least the largest float.
        let computed = f64::from(computed.min(Self::MAX));
        (computed * (1.0 - Self::relative(dimensions)) - underflow(dimensions)).max(0.0)
    }

    fn at_most(computed: f32, dimensions: usize) -> f64 {
        f64::from(computed) * (1.0 + Self::relative(dimensions)) + underflow(dimensions)
    }

    fn distance_key(computed: f32) -> u32 {
        computed.to_bits() // no distance is negative
    }

    fn distance_of(key: u32) -> f64 {
        Self::from_bits(key).into()
    }

    fn rough(computed: f32) -> f32 {
        computed.min(Self::MAX)
    }

    fn relative(dimensions: usize) -> f64 {
        relative_error(dimensions)
    }

    fn measure_keys(other: &[f32], own: Option<&[f32]>, dimensions: usize, keys: &mut Vec<u32>) {
        // The measure is computed in f64. It is then lowered by a bound on the rounding to f32, and a little more.
        let key = |measure: f64| {
            let down = measure - measure.abs() * (4.0 * F32_ROUNDOFF) - f64::from(Self::MIN_POSITIVE);
            ordered(down as Self)
        };
        keys.clear();
        match own {
            Some(own) => keys.extend(
                other
                    .iter()
                    .zip(own)
                    .map(|(&other, &own)| key(Self::at_least(other, dimensions) - Self::at_most(own, dimensions))),
            ),
            None => keys.extend(other.iter().map(|&other| key(Self::at_least(other, dimensions)))),
        }
    }

    fn measure_of(key: u32) -> f64 {
        let bits = if key & SIGN == 0 { !key } else { key ^ SIGN };
        Self::from_bits(bits).into()
    }

    fn key_up_to(most: f64) -> u32 {
        ordered((most as Self).next_up())
    }

    fn tile_limit(threshold: &Threshold) -> f32 {
        let squared = threshold.distance * threshold.distance * F64_SLACK;
        let limit = squared * (1.0 + relative_error(threshold.dimensions)) + underflow(threshold.dimensions);
        // Near the largest float, a computed sum may overflow although the true value does not. So no pair is excluded
        // there.
        if limit >= f64::from(Self::MAX) / 2.0 { Self::INFINITY } else { (limit as Self).next_up() }
    }

    fn margin_limit(threshold: &Threshold, center_distance_squared: f64) -> f64 {
        2.0 * center_distance_squared.sqrt() * threshold.distance * F64_SLACK
    }
}

/// The bit that maps signed integers to unsigned integers with the same order.
const SIGN: u32 = 1 << 31;

/// Maps floats to integers with the same order. NaN becomes the smallest integer, so that it is not excluded.
fn ordered(x: f32) -> u32 {
    let bits = x.to_bits();
    match bits & SIGN == 0 {
        _ if x.is_nan() => 0,
        true => bits ^ SIGN,
        false => !bits,
    }
}

/// Returns an upper bound on the loss by underflow. Each square that underflows loses at most the smallest positive
/// float.
fn underflow(dimensions: usize) -> f64 {
    dimensions as f64 * f64::from(f32::from_bits(1))
}

pub(super) fn read_f32(stored: &[u8], to: &mut [f32]) {
    to.iter_mut().zip(stored.as_chunks().0).for_each(|(to, &x)| *to = f32::from_le_bytes(x));
}
