//! Hierarchical balanced clustering (GP1 in Starling, appendix G, after SPANN: Chen et al., NeurIPS 2021). It divides
//! a group of vertices between two means, each with half of the pages. It then divides the halves in the same way,
//! until a group fits on a page. It uses only vectors, not edges.
//!
//! SPANN penalizes clusters of unequal size. Here the sizes are fixed, since all pages except the last are full. A
//! half gets the vertices that are nearer to its mean than to the other mean, relative to the other vertices, until
//! it has its size. The first means are of the halves of the order of buckets, in which similar vectors are near each
//! other.

use adjoin::{
    Cancel, Result,
    kernels::{Kernel, Panel},
    lab::Room,
};

use super::WindowVectors;

/// Maximum number of rounds for dividing a group.
const ROUNDS_MAX: usize = 8;

pub(super) fn halved(cancel: &Cancel, vectors: WindowVectors<'_>, room: Room) -> Result<Vec<u32>> {
    let WindowVectors { kernel, panel } = vectors;
    let mut order: Vec<u32> = (0..panel.rows() as u32).collect();
    // Ranges of pages that are still to be divided, as first page and end.
    let mut waiting = vec![(0, room.pages())];
    while let Some((first, end)) = waiting.pop() {
        if end < first + 2 {
            continue;
        }
        cancel.check()?;
        let middle = usize::midpoint(first, end);
        let [from, cut, to] = [first, middle, end].map(|page| order.len().min(page * room.records()));
        halve(kernel, panel, &mut order[from..to], cut - from);
        waiting.extend([(first, middle), (middle, end)]);
    }
    Ok(order)
}

/// Divides a group into the first `cut` vertices and the rest. Within both parts, vertices are ordered by number.
fn halve(kernel: Kernel, panel: &Panel<f32>, group: &mut [u32], cut: usize) {
    let mut sides: Vec<(f64, u32)> = Vec::with_capacity(group.len());
    for _ in 0..ROUNDS_MAX {
        let away = difference(&mean(panel, &group[cut..]), &mean(panel, &group[..cut]));
        // How much nearer a vertex is to the second mean than to the first, up to a factor and a constant.
        let side = |&vertex: &u32| (kernel.dot_wide(panel.row(vertex as usize), &away), vertex);
        sides.clear();
        sides.extend(group.iter().map(side));
        sides.select_nth_unstable_by(cut, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (first, second) = sides.split_at_mut(cut);
        [first, second].into_iter().for_each(|half| half.sort_unstable_by_key(|side| side.1));
        if group.iter().zip(&sides).all(|(&vertex, side)| vertex == side.1) {
            break;
        }
        group.iter_mut().zip(&sides).for_each(|(vertex, side)| *vertex = side.1);
    }
}

/// Returns the mean of some vectors, with their padding.
fn mean(panel: &Panel<f32>, group: &[u32]) -> Vec<f64> {
    let mut sums = vec![0.0; panel.stride()];
    for &vertex in group {
        sums.iter_mut().zip(panel.row(vertex as usize)).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    sums.iter_mut().for_each(|sum| *sum /= group.len() as f64);
    sums
}

fn difference(one: &[f64], other: &[f64]) -> Vec<f32> {
    one.iter().zip(other).map(|(one, other)| (one - other) as f32).collect()
}
