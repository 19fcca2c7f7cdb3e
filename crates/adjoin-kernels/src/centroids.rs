//! Finds the nearest of up to a few hundred short centroids, the inner loop of product codes.
//!
//! Kernels on whole panels add up lanes at the end of each vector. For short vectors that costs more than everything
//! else, so here each lane is one centroid.

use crate::panel::Panel;
use crate::reference::Reference;

/// Centroids compared at once.
const LANES: usize = 16;

/// Centroids of one length, ready for [`crate::Kernel::nearest_centroids`].
#[derive(Debug, Clone)]
pub struct Centroids {
    dimensions: usize,
    /// Coordinates of sixteen centroids at a time, coordinate by coordinate. Lanes past the last centroid are infinite.
    lanes: Vec<[f32; LANES]>,
}

impl Centroids {
    /// Creates centroids from the rows of a panel.
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

    /// Returns the bytes that `rows` centroids take.
    pub fn bytes_for(rows: usize, dimensions: usize) -> u64 {
        (rows.next_multiple_of(LANES) * dimensions * size_of::<f32>()) as u64
    }
}

/// Search for centroids, implemented by each level.
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
/// Adds squares in the order of the coordinates, without fusing, so all levels agree bit for bit.
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

/// Implements [`nearest_centroids`]. `take_nearer` receives the sums of a block of centroids and its number, and updates
/// the nearest sums and their blocks, lane by lane.
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
            // Of equally near centroids the first counts, whichever lane found it.
            let found = (blocks[lane] * LANES as u32 + lane as u32, nearest[lane]);
            let is_nearer = found.1 < out.1 || (found.1 == out.1 && found.0 < out.0);
            *out = if lane == 0 || is_nearer { found } else { *out };
        }
    }
}
