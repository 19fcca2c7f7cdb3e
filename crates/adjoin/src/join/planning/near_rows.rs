//! Finds the rows of a panel that are near a center.

use std::ops::Range;

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel, TILE_COLUMNS};

use crate::base::geometry::Coordinate;

/// Number of consecutive centers whose rows are searched at once. A row has one bit for each of them.
const BLOCK_CENTERS: u32 = u32::BITS;
/// Number of masks that are tested at once.
const MASKS_AT_ONCE: usize = 16;
/// Number of rows that are compared with a block at once.
const ROWS_AT_ONCE: usize = 4096;

/// Rows near the centers of a block. A worker asks for centers in ascending order, so it searches once per block.
pub(super) struct NearRows<T: Coordinate> {
    centers: Range<u32>,
    /// Bit `k` of a row is set if the row is near the center `centers.start + k`.
    masks: Vec<u32>,
    columns: PackedColumns<T>,
    order: Vec<u32>,
    limits: Vec<T::Distance>,
    hits: Vec<HitMask>,
}

impl<T: Coordinate> NearRows<T> {
    pub(super) fn new(kernel: Kernel, dimensions: usize) -> Self {
        let columns = kernel.pack(&Panel::zeroed(0, dimensions), &[]);
        Self { centers: 0..0, masks: Vec::new(), columns, order: Vec::new(), limits: Vec::new(), hits: Vec::new() }
    }

    /// Memory in bytes per row.
    pub(super) const BYTES_A_ROW: u64 = size_of::<u32>() as u64;

    /// Returns the memory in bytes that does not depend on the number of rows.
    pub(super) fn memory_bytes(dimensions: usize) -> u64 {
        // A mask covers at least as many columns as a tile. Hits are in a vector that doubles as it grows.
        let hits = 2 * (BLOCK_CENTERS as usize).div_ceil(TILE_COLUMNS) * size_of::<HitMask>();
        let of_row = size_of::<u32>() + size_of::<T::Distance>() + hits;
        PackedColumns::<T>::bytes_for(BLOCK_CENTERS as usize, dimensions) + (ROWS_AT_ONCE * of_row) as u64
    }

    /// Calls `take` with the rows whose computed squared distance to the center `number` is at most the limit of the
    /// center or that of the row, and with some others, in ascending order. `of_center` and `of_row` return these
    /// limits. All calls must have the same centers, rows and limits.
    pub(super) fn find(
        &mut self,
        kernel: Kernel,
        (centers, number): (&Panel<T>, u32),
        rows: &Panel<T>,
        of_center: impl Fn(u32) -> T::Distance,
        of_row: impl Fn(usize) -> T::Distance,
        mut take: impl FnMut(u32),
    ) {
        if !self.centers.contains(&number) {
            let start = number / BLOCK_CENTERS * BLOCK_CENTERS;
            self.centers = start..(start + BLOCK_CENTERS).min(centers.rows() as u32);
            let least = self.centers.clone().map(of_center).fold(T::Distance::default(), larger);
            self.search(kernel, centers, rows, |row| larger(least, of_row(row)));
        }
        let bit = 1 << (number - self.centers.start);
        for (masks, start) in self.masks.chunks(MASKS_AT_ONCE).zip((0..).step_by(MASKS_AT_ONCE)) {
            // Few rows are near. The compiler vectorizes this test, so that most masks are skipped quickly.
            if masks.iter().fold(0, |any, mask| any | mask) & bit != 0 {
                let near = (start..).zip(masks).filter(|(_, mask)| **mask & bit != 0);
                near.for_each(|(row, _)| take(row));
            }
        }
    }

    fn search(&mut self, kernel: Kernel, centers: &Panel<T>, rows: &Panel<T>, limit: impl Fn(usize) -> T::Distance) {
        let Self { centers: block, masks, columns, order, limits, hits } = self;
        order.clear();
        order.extend(block.clone());
        kernel.pack_into(centers, order, columns);
        masks.clear();
        masks.resize(rows.rows(), 0);
        for start in (0..rows.rows()).step_by(ROWS_AT_ONCE) {
            let some = start..rows.rows().min(start + ROWS_AT_ONCE);
            order.clear();
            order.extend(some.start as u32..some.end as u32);
            limits.clear();
            limits.extend(some.map(&limit));
            hits.clear();
            kernel.within_each(rows, order, limits, columns, hits);
            for hit in &*hits {
                masks[start + hit.row as usize] |= (hit.bits as u32) << hit.column;
            }
        }
    }
}

/// Returns the larger distance.
pub(super) fn larger<D: PartialOrd>(a: D, b: D) -> D {
    if a < b { b } else { a }
}
