//! Rows against columns: which pairs may be within a threshold? Floats are looked at by their codes first.

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel};

use crate::geometry::{Coordinate, Threshold};
use crate::load::{Coding, Members};

/// Where more than one in so many pairs may be within the threshold by their codes, the coordinates are asked.
const PAIRS_PER_HIT: u64 = 16;

/// One worker's comparison of rows with columns: finds the pairs that may be within the threshold.
pub(crate) struct Filter<'a, T: Coordinate> {
    kernel: Kernel,
    threshold: &'a Threshold,
    coding: Option<&'a Coding>,
    columns: PackedColumns<T>,
    /// Whether `columns` are those of the present order.
    packed: bool,
    code_columns: PackedColumns<u8>,
}

/// Some members of a bucket, in an order.
#[derive(Clone, Copy)]
pub(crate) struct Ordered<'a, T> {
    pub(crate) members: &'a Members<T>,
    pub(crate) order: &'a [u32],
}

impl<'a, T: Coordinate> Filter<'a, T> {
    pub(crate) fn new(kernel: Kernel, threshold: &'a Threshold, coding: Option<&'a Coding>) -> Self {
        let columns = kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]);
        let code_columns = kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]);
        Self { kernel, threshold, coding, columns, packed: false, code_columns }
    }

    /// Bytes that it holds for at most so many columns.
    pub(crate) fn memory_bytes(columns: usize, dimensions: usize) -> u64 {
        let codes = if T::is_float() { PackedColumns::<u8>::bytes_for(columns, dimensions) } else { 0 };
        PackedColumns::<T>::bytes_for(columns, dimensions) + codes
    }

    /// Takes members as columns.
    pub(crate) fn pack(&mut self, columns: Ordered<'_, T>) {
        self.packed = false;
        match self.coding {
            Some(coding) => {
                let codes = columns.members.codes(coding);
                self.kernel.pack_into(&codes.panel, columns.order, &mut self.code_columns);
            }
            None => self.pack_coordinates(columns),
        }
    }

    fn pack_coordinates(&mut self, columns: Ordered<'_, T>) {
        if !self.packed {
            self.kernel.pack_into(&columns.members.panel, columns.order, &mut self.columns);
            self.packed = true;
        }
    }

    /// Notes the pairs that may be within the threshold, of each row with the first `reach` columns, which are those that
    /// were packed: integers that are surely are. Returns how many pairs were looked at, tiles included.
    pub(crate) fn within(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        hits: &mut Vec<HitMask>,
    ) -> u64 {
        hits.clear();
        if let Some(coding) = self.coding {
            let (a, b) = (rows.members.codes(coding), columns.members.codes(coding));
            let limit = coding.limit(self.threshold, a, b);
            let pairs = self.kernel.within(&a.panel, rows.order, &self.code_columns, reach, limit, hits);
            if hits.iter().map(|mask| u64::from(mask.count())).sum::<u64>() * PAIRS_PER_HIT <= pairs {
                return pairs;
            }
            hits.clear();
            self.pack_coordinates(columns);
        }
        let limit = T::tile_limit(self.threshold);
        self.kernel.within(&rows.members.panel, rows.order, &self.columns, reach, limit, hits)
    }
}
