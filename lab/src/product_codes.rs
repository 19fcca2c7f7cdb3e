//! Vectors as product codes represent them: "Product Quantization for Nearest Neighbor Search" (Jégou, Douze, Schmid;
//! 2011). FreshDiskANN computes all distances of a merge from such codes (section 5.3).
//!
//! Chunks of consecutive coordinates have 256 centroids each. The engine's codes differ: they may be of rotated vectors, and
//! only estimate the distances of queries.

use std::ops::Range;

use adjoin::{
    Context, Error, Random, Result,
    kernels::Panel,
    lab::{geometry::Coordinate, workers::map_items},
};

/// Number of values of a byte of a code.
const CENTROIDS: usize = 256;
/// Number of vectors with which centroids are trained, and rounds of that training.
const SAMPLE: u64 = 10_000;
const ROUNDS: usize = 10;

/// Returns the vectors that codes of `bytes` bytes represent: each chunk of a vector is replaced by its nearest centroid.
///
/// # Errors
/// If there are more bytes than dimensions, or if the work is canceled.
pub(crate) fn decoded<T: Coordinate>(context: &Context, panel: &Panel<T>, bytes: usize) -> Result<Panel<T>> {
    let (rows, dimensions) = (panel.rows(), panel.dimensions());
    if !(1..=dimensions).contains(&bytes) {
        return Err(Error::option(format!("codes of {bytes} bytes: give 1 to {dimensions} bytes")));
    }
    let sample = Random::new(1, "sample of codes").ascending_sample(SAMPLE.min(rows as u64), rows as u64);
    let chunk_of = |chunk: usize| chunk * dimensions / bytes..(chunk + 1) * dimensions / bytes;
    let chunks = map_items(
        context.threads,
        bytes,
        &context.cancel,
        || (),
        |(), chunk| {
            let points: Vec<Vec<f64>> =
                sample.iter().map(|&row| values(panel, row as usize, chunk_of(chunk))).collect();
            let centroids = trained(&points, chunk as u64);
            let code = |row| nearest(&centroids, &values(panel, row, chunk_of(chunk)));
            let codes: Vec<usize> = (0..rows).map(code).collect();
            Ok((centroids, codes))
        },
    )?;
    let mut decoded = Panel::zeroed(rows, dimensions);
    for (chunk, (centroids, codes)) in chunks.iter().enumerate() {
        for (row, &centroid) in codes.iter().enumerate() {
            let coordinates = &mut decoded.row_mut(row)[chunk_of(chunk)];
            coordinates.iter_mut().zip(&centroids[centroid]).for_each(|(to, &mean)| *to = T::from_mean(mean));
        }
    }
    Ok(decoded)
}

fn values<T: Coordinate>(panel: &Panel<T>, row: usize, chunk: Range<usize>) -> Vec<f64> {
    panel.row(row)[chunk].iter().map(|coordinate| coordinate.value()).collect()
}

/// Returns centroids of points by k-means. The first ones are points drawn at random.
fn trained(points: &[Vec<f64>], seed: u64) -> Vec<Vec<f64>> {
    let count = CENTROIDS.min(points.len());
    let drawn = Random::new(seed, "first centroids").ascending_sample(count as u64, points.len() as u64);
    let mut centroids: Vec<Vec<f64>> = drawn.iter().map(|&point| points[point as usize].clone()).collect();
    for _ in 0..ROUNDS {
        let mut sums = vec![(0_u32, vec![0.0; points[0].len()]); count];
        for point in points {
            let (members, sum) = &mut sums[nearest(&centroids, point)];
            *members += 1;
            sum.iter_mut().zip(point).for_each(|(sum, value)| *sum += value);
        }
        // A centroid without members stays where it is.
        for (centroid, (members, sum)) in centroids.iter_mut().zip(&sums).filter(|(_, (members, _))| *members > 0) {
            centroid.iter_mut().zip(sum).for_each(|(mean, sum)| *mean = sum / f64::from(*members));
        }
    }
    centroids
}

/// Returns the number of the centroid that is nearest to a point.
fn nearest(centroids: &[Vec<f64>], point: &[f64]) -> usize {
    let squared = |centroid: &[f64]| centroid.iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let distances = centroids.iter().map(|centroid| squared(centroid)).enumerate();
    distances.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletes::tests::vectors;

    /// Returns the mean squared error of the vectors that codes represent.
    fn error(panel: &Panel<u8>, decoded: &Panel<u8>) -> f64 {
        let kernel = Context::default().kernel;
        let squared = (0..panel.rows()).map(|row| f64::from(kernel.distance(panel.row(row), decoded.row(row))));
        squared.sum::<f64>() / panel.rows() as f64
    }

    #[test]
    fn codes_of_more_bytes_are_nearer_to_the_vectors() {
        let (context, panel) = (Context::default(), vectors(2_000, 7));
        let errors = [1, 2, 3, 8].map(|bytes| error(&panel, &decoded(&context, &panel, bytes).unwrap()));
        assert!(errors.is_sorted_by(|more, less| more > less), "{errors:?}");
        assert!(errors[3] < 0.01 * errors[2], "a byte for each dimension of bytes is nearly exact: {errors:?}");
        assert!(decoded(&context, &panel, 9).is_err() && decoded(&context, &panel, 0).is_err());
    }
}
