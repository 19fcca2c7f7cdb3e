//! Orders buckets on disk by a k-means tree over their centers.

use adjoin_kernels::{Kernel, Panel};

use crate::base::geometry::{Coordinate, copy_row, move_to_means};

/// Number of rounds of 2-means at each split of the tree.
const SPLIT_ROUNDS: usize = 6;

/// Returns the centers in the order of a k-means tree. The tree splits the centers in two by 2-means, recursively. At
/// each split, the half that is nearer to the last placed center is placed first. So neighbors in space become
/// neighbors on disk. Reading buckets in this order is faster than in orders derived from the bucket graph
/// (docs/methods.md, "Order").
pub(crate) fn tree_order<T: Coordinate>(kernel: Kernel, centers: &Panel<T>) -> Vec<u32> {
    groups(kernel, centers, 1).concat()
}

/// Returns the parts of the k-means tree that have at most `largest` centers, in tree order. A k-means with as many
/// means could have large cells instead: if all distances in the data are about equal, one mean may be the nearest to
/// many centers.
pub(super) fn groups<T: Coordinate>(kernel: Kernel, centers: &Panel<T>, largest: usize) -> Vec<Vec<u32>> {
    let points = as_floats(centers);
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut waiting = vec![(0..points.rows() as u32).collect::<Vec<_>>()];
    while let Some(members) = waiting.pop() {
        if members.len() <= largest {
            groups.push(members);
            continue;
        }
        let (left, right, means) = split(kernel, &points, &members);
        let last = groups.last().and_then(|group| group.last()).map(|&last| points.row(last as usize));
        let left_first = last.is_none_or(|last| {
            let mut distances = [0.0; 2];
            kernel.one_to_many(last, &means, &mut distances);
            distances[0] <= distances[1]
        });
        let (first, second) = if left_first { (left, right) } else { (right, left) };
        // `waiting` is a stack, so the part that is pushed last is placed next on disk.
        waiting.push(second);
        waiting.push(first);
    }
    groups
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

/// Splits the members into two parts with at least one member each. Returns both parts and their means.
fn split(kernel: Kernel, points: &Panel<f32>, members: &[u32]) -> (Vec<u32>, Vec<u32>, Panel<f32>) {
    let part = gather(points, members);
    let mut means = Panel::zeroed(2, points.dimensions());
    // Starts from two points that are far apart, found by two passes. It uses no random numbers, so equal centers give
    // equal trees.
    copy_row(&part, farthest(kernel, &part, 0), &mut means, 0);
    copy_row(&part, farthest(kernel, &part, farthest(kernel, &part, 0)), &mut means, 1);
    let mut side = vec![0u32; members.len()];
    // The last round only assigns members, so that the sides match the returned means.
    for round in 0..=SPLIT_ROUNDS {
        let distances: Vec<Vec<f32>> = (0..2).map(|k| distances_to(kernel, means.row(k), &part)).collect();
        for (k, side) in side.iter_mut().enumerate() {
            *side = u32::from(distances[1][k] < distances[0][k]);
        }
        if round < SPLIT_ROUNDS {
            move_to_means(&part, &side, &mut means);
        }
    }
    // If all members are equal, they are halved by their position. Otherwise the recursion would not end.
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

fn distances_to(kernel: Kernel, x: &[f32], panel: &Panel<f32>) -> Vec<f32> {
    let mut distances = vec![0.0; panel.rows()];
    kernel.one_to_many(x, panel, &mut distances);
    distances
}

/// Returns the row that is farthest from row `from`; the first one if several are equally far.
fn farthest(kernel: Kernel, panel: &Panel<f32>, from: usize) -> usize {
    let distances = distances_to(kernel, panel.row(from), panel);
    (0..panel.rows()).fold(0, |best, k| if distances[k] > distances[best] { k } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_order_keeps_neighbors_together() {
        let mut centers = Panel::<u8>::zeroed(60, 2);
        for k in 0..60 {
            centers.row_mut(k).copy_from_slice(&[[0, 60, 200][k % 3] + (k / 30) as u8, (k / 3 % 2) as u8]);
        }
        let order = tree_order(Kernel::detect(), &centers);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..60));
        let clumps: Vec<u8> = order.iter().map(|&k| centers.row(k as usize)[0] / 50).collect();
        assert_eq!(clumps.windows(2).filter(|pair| pair[0] != pair[1]).count(), 2, "{clumps:?}");
    }

    #[test]
    fn groups_have_a_maximum_size() {
        let mut centers = Panel::<f32>::zeroed(500, 40);
        let mut random = crate::base::random::Random::new(1, "groups");
        (0..500).for_each(|k| centers.row_mut(k).iter_mut().for_each(|x| *x = random.normal() as f32));
        let groups = groups(Kernel::detect(), &centers, 40);
        assert!(groups.iter().all(|group| !group.is_empty() && group.len() <= 40));
        let mut all = groups.concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..500) && groups.len() < 60, "{}", groups.len());
    }

    #[test]
    fn equal_centers_end_tree_splitting() {
        let order = tree_order(Kernel::detect(), &Panel::<f32>::zeroed(1000, 3));
        assert_eq!(order.len(), 1000);
    }
}
