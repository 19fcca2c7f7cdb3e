//! Rotates vectors to axes that suit a set better than its original axes.

use adjoin_kernels::{Kernel, Panel};

use super::chunks::Chunks;
use super::eigen::{Square, eigenvectors};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::workers::map_items;

/// Largest number of dimensions for which principal axes are computed, since eigenvectors take cubic time.
pub(super) const PRINCIPAL_DIMENSIONS_MAX: usize = 2_048;

/// Orthonormal axes, one per row of the panel. There may be fewer axes than dimensions.
pub struct Axes(pub Panel<f32>);

impl Axes {
    /// Creates axes from `rows`.
    pub fn of(rows: impl ExactSizeIterator<Item: Iterator<Item = f64>>, dimensions: usize) -> Self {
        let mut axes = Panel::zeroed(rows.len(), dimensions);
        for (at, row) in rows.enumerate() {
            axes.row_mut(at).iter_mut().zip(row).for_each(|(to, x)| *to = x as f32);
        }
        Self(axes)
    }

    /// Projects the rows of `vectors` onto the axes, into `turned`.
    pub fn turn(&self, kernel: Kernel, vectors: &Panel<f32>, turned: &mut Panel<f32>) {
        turned.reset(vectors.rows(), self.0.rows());
        for row in 0..vectors.rows() {
            let to = turned.row_mut(row).iter_mut().enumerate();
            to.for_each(|(axis, x)| *x = kernel.dot_near(self.0.row(axis), vectors.row(row)));
        }
    }
}

/// The mean of a sample, and the axes along which it varies most.
pub struct Principal {
    /// The mean.
    pub mean: Vec<f32>,
    /// Variance along each axis, descending.
    pub variances: Vec<f64>,
    axes: Square,
}

impl Principal {
    /// Returns the bytes that [`Principal::of`] holds.
    fn bytes(rows: usize, dimensions: usize) -> u64 {
        // The centered sample, and four matrices: two copies of the covariance matrix, its reflections, and its
        // eigenvectors.
        (rows * dimensions * size_of::<f32>() + 4 * dimensions * dimensions * size_of::<f64>()) as u64
    }

    /// Computes the mean and the principal axes of the rows of a sample.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub fn of(context: &Context, sample: &Panel<f32>) -> Result<Self> {
        let (rows, dimensions) = (sample.rows(), sample.dimensions());
        let _memory = context.reserve(Self::bytes(rows, dimensions), "training codes")?;
        let mut mean = Vec::with_capacity(dimensions);
        let mut centered = vec![0.0; rows * dimensions];
        for (k, column) in centered.chunks_exact_mut(rows).enumerate() {
            let of_rows = || (0..rows).map(|row| sample.row(row)[k]);
            let middle = (of_rows().map(f64::from).sum::<f64>() / rows as f64) as f32;
            column.iter_mut().zip(of_rows()).for_each(|(to, x)| *to = (x - middle).clamp(f32::MIN, f32::MAX));
            mean.push(middle);
        }
        let column = |k: usize| &centered[k * rows..][..rows];
        let line = |(): &mut (), k: usize| {
            // The matrix is symmetric, so only half of it is computed.
            Ok((0..=k).map(|j| context.kernel.dot_wide(column(k), column(j)) / rows as f64).collect::<Vec<_>>())
        };
        let half = map_items(context.threads, dimensions, &context.cancel, || (), line)?;
        let covariance = (0..dimensions * dimensions).map(|at| (at / dimensions, at % dimensions));
        let covariance = covariance.map(|(i, j)| half[i.max(j)][i.min(j)]).collect();
        let (variances, axes) = eigenvectors(Square::new(covariance, dimensions));
        Ok(Self { mean, variances, axes })
    }

    /// Returns the axis with this number.
    pub fn axis(&self, axis: usize) -> &[f64] {
        self.axes.row(axis)
    }

    /// Returns all axes, grouped by chunk such that all chunks have about equal products of variances. Each axis is
    /// assigned to the chunk that has the least product so far, out of those that are not full (Ge, He, Ke, Sun,
    /// "Optimized product quantization", 2013, section 3.2.3, eigenvalue allocation).
    pub(super) fn balanced(&self, chunks: Chunks) -> Axes {
        // Variances are divided by a lower bound on them. Otherwise their scale would favor long or short chunks.
        let least = (self.variances[0] * 1e-9).max(f64::MIN_POSITIVE);
        let mut parts = vec![(0.0_f64, Vec::new()); chunks.count];
        for (axis, variance) in self.variances.iter().enumerate() {
            let room = |&k: &usize| parts[k].1.len() < chunks.range(k).len();
            let by_product = |&a: &usize, &b: &usize| parts[a].0.total_cmp(&parts[b].0);
            let least_varied =
                (0..chunks.count).filter(room).min_by(by_product).expect("chunks have room for all axes");
            parts[least_varied].0 += log2(variance.max(least) / least);
            parts[least_varied].1.push(axis);
        }
        let order: Vec<usize> = parts.into_iter().flat_map(|(_, axes)| axes).collect();
        Axes::of(order.iter().map(|&axis| self.axes.row(axis).iter().copied()), chunks.dimensions)
    }
}

/// Returns an approximate binary logarithm, which is linear between powers of two. It is precise enough to compare
/// products. In contrast to `ln`, it does not depend on a library.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    (bits >> 52) as f64 - 1023.0 + (bits & ((1 << 52) - 1)) as f64 / (1u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    /// Returns normal vectors that vary most along the first two dimensions.
    fn sample() -> Panel<f32> {
        let mut random = Random::new(1, "rotation");
        let mut panel = Panel::zeroed(2_000, 9);
        for row in 0..2_000 {
            let along = panel.row_mut(row).iter_mut().enumerate();
            along.for_each(|(k, x)| *x = (if k < 2 { 10.0 } else { 1.0 } * random.normal()) as f32);
        }
        panel
    }

    fn check_orthonormal(axes: &Axes) {
        for (i, j) in (0..axes.0.rows()).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            let dot: f64 = axes.0.row(i).iter().zip(axes.0.row(j)).map(|(x, y)| f64::from(x * y)).sum();
            assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-6, "{i} {j}: {dot}");
        }
    }

    #[test]
    fn chunks_share_the_axes_of_largest_variance() {
        let principal = Principal::of(&Context::default(), &sample()).unwrap();
        assert!(principal.variances[1] > 80.0 && principal.variances[2] < 2.0);
        for count in [2, 4] {
            let chunks = Chunks { count, dimensions: 9 };
            let axes = principal.balanced(chunks);
            check_orthonormal(&axes);
            let varies = |axis: usize| axes.0.row(axis)[..2].iter().map(|x| x * x).sum::<f32>() > 0.9;
            let of_chunks: Vec<usize> =
                (0..count).map(|k| chunks.range(k).filter(|&axis| varies(axis)).count()).collect();
            assert_eq!((of_chunks.iter().sum::<usize>(), of_chunks.iter().max()), (2, Some(&1)), "{of_chunks:?}");
        }
    }

    #[test]
    fn log2_approximates_logarithms() {
        for (x, expected) in [(1.0, 0.0), (1024.0, 10.0), (0.25, -2.0), (1e300, 996.5)] {
            assert!((log2(x) - expected).abs() < 0.1, "{x}");
        }
    }
}
