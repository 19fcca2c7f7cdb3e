//! Where buckets have their centers: k-means on a sample, laid in the order of a k-means tree.

use adjoin_kernels::{Kernel, Panel};

use super::assign::nearest;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::random::Random;

/// Rounds of Lloyd's algorithm; the study found 10 enough on 15 vectors a center.
const ROUNDS: usize = 10;
/// Rounds at each split of the tree.
const SPLIT_ROUNDS: usize = 6;
/// Rows of the smallest training sample, where there are as many.
const SAMPLE_ROWS_MIN: u64 = 1 << 16;

/// Default number of buckets for `rows` vectors: where own-cell pairs and assignment cost the same,
/// `(0.43 n)^(2/3)`, between 0.1 % and 2 % of the rows.
pub(crate) fn default_buckets(rows: u64) -> u32 {
    let wanted = (u128::from(rows) * 43).pow(2);
    let (mut low, mut high) = (1u64, (rows / 50).max(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if u128::from(middle).pow(3) * 10_000 <= wanted { low = middle } else { high = middle - 1 }
    }
    low.max(rows / 1_000).max(1).min(u64::from(u32::MAX)) as u32
}

/// Rows of the training sample: 2 % of the rows, or a fixed number where that is more; it depends on nothing else.
pub(crate) fn sample_rows(rows: u64) -> u64 {
    rows.min((rows / 50).max(SAMPLE_ROWS_MIN))
}

/// Centers for `buckets` buckets, trained on a sample. Unless `trained`, they are rows of the sample.
///
/// # Errors
/// Where the work is cancelled.
pub(crate) fn train<T: Coordinate>(
    context: &Context,
    sample: &Panel<T>,
    buckets: u32,
    trained: bool,
    seed: u64,
) -> Result<Panel<T>> {
    let count = (buckets as usize).min(sample.rows());
    let picked = Random::new(seed, "first centers").ascending_sample(count as u64, sample.rows() as u64);
    let mut centers = Panel::zeroed(count, sample.dimensions());
    for (k, &row) in picked.iter().enumerate() {
        let coordinates = &sample.row(row as usize)[..sample.dimensions()];
        centers.row_mut(k).copy_from_slice(coordinates);
    }
    for _ in 0..if trained { ROUNDS } else { 0 } {
        let assigned = nearest(context, sample, &centers)?;
        let members: Vec<u32> = assigned.iter().map(|nearest| nearest.center).collect();
        move_to_means(sample, &members, &mut centers);
    }
    Ok(centers)
}

/// Moves each center to the mean of its members; one without members stays. Sums run in row order, in f64.
fn move_to_means<T: Coordinate>(sample: &Panel<T>, members: &[u32], centers: &mut Panel<T>) {
    let dimensions = sample.dimensions();
    let mut sums = vec![0.0; centers.rows() * dimensions];
    let mut counts = vec![0u32; centers.rows()];
    for (row, &center) in members.iter().enumerate() {
        counts[center as usize] += 1;
        let sum = &mut sums[center as usize * dimensions..][..dimensions];
        for (sum, x) in sum.iter_mut().zip(sample.row(row)) {
            *sum += x.value();
        }
    }
    for (k, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
        let sum = &sums[k * dimensions..][..dimensions];
        for (to, sum) in centers.row_mut(k).iter_mut().zip(sum) {
            *to = T::from_mean(sum / f64::from(count));
        }
    }
}

/// The order of a k-means tree over the centers: split in two by 2-means, again and again; at each split the half
/// nearer to the center that was put out last comes first. Neighbours in space become neighbours on disk, and reading
/// in this order beats orders made from the bucket graph (docs/methods.md, "Order").
pub(crate) fn tree_order<T: Coordinate>(kernel: Kernel, centers: &Panel<T>) -> Vec<u32> {
    let points = as_floats(centers);
    let mut order = Vec::with_capacity(points.rows());
    let mut waiting = vec![(0..points.rows() as u32).collect::<Vec<_>>()];
    while let Some(members) = waiting.pop() {
        if members.len() <= 1 {
            order.extend(members);
            continue;
        }
        let (left, right, means) = split(kernel, &points, &members);
        let last = order.last().map(|&last: &u32| points.row(last as usize));
        let left_first = last.is_none_or(|last| {
            let mut distances = [0.0; 2];
            kernel.one_to_many(last, &means, &mut distances);
            distances[0] <= distances[1]
        });
        let (first, second) = if left_first { (left, right) } else { (right, left) };
        waiting.push(second);
        waiting.push(first);
    }
    order
}

fn as_floats<T: Coordinate>(centers: &Panel<T>) -> Panel<f32> {
    let mut points = Panel::zeroed(centers.rows(), centers.dimensions());
    for k in 0..centers.rows() {
        for (to, from) in points.row_mut(k).iter_mut().zip(centers.row(k)) {
            *to = from.value() as f32;
        }
    }
    points
}

/// Two parts of at least one member each, and their means.
fn split(kernel: Kernel, points: &Panel<f32>, members: &[u32]) -> (Vec<u32>, Vec<u32>, Panel<f32>) {
    let part = gather(points, members);
    let mut means = Panel::zeroed(2, points.dimensions());
    copy_row(&part, farthest(kernel, &part, 0), &mut means, 0);
    copy_row(&part, farthest(kernel, &part, farthest(kernel, &part, 0)), &mut means, 1);
    let mut side = vec![0u32; members.len()];
    for round in 0..=SPLIT_ROUNDS {
        let distances: Vec<Vec<f32>> = (0..2).map(|k| distances_to(kernel, means.row(k), &part)).collect();
        for (k, side) in side.iter_mut().enumerate() {
            *side = u32::from(distances[1][k] < distances[0][k]);
        }
        if round < SPLIT_ROUNDS {
            move_to_means(&part, &side, &mut means);
        }
    }
    if side.iter().all(|&s| s == side[0]) {
        side.iter_mut().enumerate().for_each(|(k, side)| *side = u32::from(k >= members.len() / 2)); // all are equal
    }
    let of = |wanted| members.iter().zip(&side).filter(move |(_, side)| **side == wanted).map(|(&m, _)| m).collect();
    (of(0), of(1), means)
}

fn gather(points: &Panel<f32>, members: &[u32]) -> Panel<f32> {
    let mut part = Panel::zeroed(members.len(), points.dimensions());
    for (k, &member) in members.iter().enumerate() {
        copy_row(points, member as usize, &mut part, k);
    }
    part
}

fn copy_row(from: &Panel<f32>, row: usize, to: &mut Panel<f32>, at: usize) {
    let coordinates = &from.row(row)[..from.dimensions()];
    to.row_mut(at).copy_from_slice(coordinates);
}

fn distances_to(kernel: Kernel, x: &[f32], panel: &Panel<f32>) -> Vec<f32> {
    let mut distances = vec![0.0; panel.rows()];
    kernel.one_to_many(x, panel, &mut distances);
    distances
}

/// The row farthest from a row; the first of equals.
fn farthest(kernel: Kernel, panel: &Panel<f32>, from: usize) -> usize {
    let distances = distances_to(kernel, panel.row(from), panel);
    (0..panel.rows()).fold(0, |best, k| if distances[k] > distances[best] { k } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buckets_follows_the_study() {
        let counts = [1, 49, 100, 20_000, 200_000, 900_000, 100_000_000].map(default_buckets);
        assert_eq!(counts, [1, 1, 2, 400, 1948, 5310, 122_737]);
        assert_eq!([10, 100_000, 10_000_000].map(sample_rows), [10, 65_536, 200_000]);
    }

    #[test]
    fn means_move_to_their_members_and_the_tree_keeps_neighbours_together() {
        let mut sample = Panel::<u8>::zeroed(60, 2);
        for k in 0..60 {
            sample.row_mut(k).copy_from_slice(&[[0, 60, 200][k % 3] + (k / 30) as u8, (k / 3 % 2) as u8]);
        }
        let context = Context::default();
        let centers = train(&context, &sample, 60, false, 1).unwrap();
        let order = tree_order(context.kernel, &centers);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..60));
        let clumps: Vec<u8> = order.iter().map(|&k| centers.row(k as usize)[0] / 50).collect();
        assert_eq!(clumps.windows(2).filter(|pair| pair[0] != pair[1]).count(), 2, "{clumps:?}");
        assert_eq!(train(&context, &sample, 1, true, 1).unwrap().row(0)[..2], [87, 1]);
    }

    #[test]
    fn equal_centers_end_the_splitting() {
        let order = tree_order(Kernel::detect(), &Panel::<f32>::zeroed(1000, 3));
        assert_eq!(order.len(), 1000);
    }
}
