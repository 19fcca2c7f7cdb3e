//! Search for the nearest of up to a few hundred short centroids. This is the inner loop of product codes.
//!
//! Kernels on whole panels add up lanes at the end of each vector. For short vectors, this costs more than everything
//! else. Here, each lane is a centroid, so nothing is added across lanes.

use crate::panel::Panel;
use crate::reference::Reference;

/// Number of centroids that are compared at once.
const LANES: usize = 16;

/// Centroids of equal length, in the layout that [`crate::Kernel::nearest_centroids`] needs.
#[derive(Debug, Clone)]
pub struct Centroids {
    dimensions: usize,
    /// Blocks of sixteen centroids. A block has one element per coordinate, with the values of the sixteen centroids.
    /// If the last block has fewer centroids, the other lanes are infinite.
    lanes: Vec<[f32; LANES]>,
}

impl Centroids {
    /// Creates centroids. Each row of the panel is one.
    pub fn new(panel: &Panel<f32>) -> Self {
        let dimensions = panel.dimensions();
        let mut lanes = vec![[f32::INFINITY; LANES]; panel.rows().div_ceil(LANES) * dimensions];
        for row in 0..panel.rows() {
            let block = &mut lanes[row / LANES * dimensions..][..dimensions];
            block.iter_mut().zip(panel.row(row)).for_each(|(lanes, &x)| lanes[row % LANES] = x);
        }
        Self { dimensions, lanes }
    }

    /// Returns the number of coordinates of each centroid.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns how much memory `rows` centroids take, in bytes.
    pub fn bytes_for(rows: usize, dimensions: usize) -> u64 {
        (rows.next_multiple_of(LANES) * dimensions * size_of::<f32>()) as u64
    }
}

/// Search for the nearest centroids, which each level implements.
pub(crate) trait Short {
    fn nearest_centroids(&self, points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]);
}

impl Short for Reference {
    fn nearest_centroids(&self, points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) {
        nearest_centroids(points, start, centroids, out);
    }
}

/// Implements [`crate::Kernel::nearest_centroids`].
///
/// The squares are added in the order of the coordinates, without fused multiply-add. Therefore the results of all
/// levels are equal, bit for bit.
#[inline(always)]
pub(crate) fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) {
    nearest_centroids_by(points, start, centroids, out, |sums, block, nearest, blocks| {
        for lane in 0..LANES {
            let is_nearer = sums[lane] < nearest[lane];
            nearest[lane] = if is_nearer { sums[lane] } else { nearest[lane] };
            blocks[lane] = if is_nearer { block } else { blocks[lane] };
        }
    });
}

/// Implements [`nearest_centroids`]. `take_nearer` receives the squared distances of a block of centroids and the
/// block's number. It updates, lane by lane, the smallest distances and their blocks.
#[inline(always)]
pub(crate) fn nearest_centroids_by(
    points: &Panel<f32>,
    start: usize,
    centroids: &Centroids,
    out: &mut [(u32, f32)],
    take_nearer: impl Fn(&[f32; LANES], u32, &mut [f32; LANES], &mut [u32; LANES]),
) {
    let dimensions = centroids.dimensions;
    for (row, out) in out.iter_mut().enumerate() {
        let point = &points.row(row)[start..][..dimensions];
        let (mut nearest, mut blocks) = ([f32::INFINITY; LANES], [0_u32; LANES]);
        for (block, lanes) in (0..).zip(centroids.lanes.chunks_exact(dimensions)) {
            let mut sums = [0.0_f32; LANES];
            for (lanes, x) in lanes.iter().zip(point) {
                for lane in 0..LANES {
                    let difference = lanes[lane] - x;
                    sums[lane] += difference * difference;
                }
            }
            take_nearer(&sums, block, &mut nearest, &mut blocks);
        }
        *out = (0, nearest[0]);
        for lane in 0..LANES {
            // If centroids are equally near, the first one counts, even if a later lane found it.
            let found = (blocks[lane] * LANES as u32 + lane as u32, nearest[lane]);
            let is_nearer = found.1 < out.1 || (found.1 == out.1 && found.0 < out.0);
            *out = if lane == 0 || is_nearer { found } else { *out };
        }
    }
}
