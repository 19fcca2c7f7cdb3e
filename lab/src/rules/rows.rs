//! All rows of a store in memory, in the order of its buckets.

use std::ops::Range;

use adjoin::{
    Context, Result,
    kernels::Panel,
    lab::{
        geometry::Coordinate,
        load::{Buckets, ReadAhead, most_read_ahead},
        plan::Load,
    },
};

/// The rows of a store, grouped by bucket.
pub(super) struct Rows<T: Coordinate> {
    pub(super) panel: Panel<T>,
    /// Number of each row in its source.
    pub(super) numbers: Vec<u64>,
    /// First row of each bucket, followed by the number of rows.
    starts: Vec<u32>,
    pub(super) centers: Panel<T>,
    /// Computed squared distance of each row to the center of its bucket.
    pub(super) own: Vec<T::Distance>,
    /// For each bucket, an upper bound on the distances of its members to its center.
    pub(super) radii: Vec<f64>,
    /// Number of rows of the source.
    pub(super) source_rows: u64,
}

impl<T: Coordinate> Rows<T> {
    /// Reads all rows of a store.
    pub(super) fn read(context: &Context, buckets: &Buckets<'_>) -> Result<Self> {
        let bytes = most_read_ahead(buckets.extents(), false);
        let loads = Load::each(buckets.count());
        let mut ahead = ReadAhead::new(context, "rules", buckets, false, bytes, loads, &context.cancel)?;
        let (mut stored, mut numbers, mut starts) = (Vec::new(), Vec::new(), vec![0]);
        while let Some(bucket) = ahead.next_bucket()? {
            let decoded = bucket.decode(buckets)?;
            stored.extend_from_slice(&bucket.bytes()[decoded.vectors]);
            numbers.extend(decoded.rows);
            starts.push(numbers.len() as u32);
        }
        let mut panel = Panel::zeroed(numbers.len(), buckets.space().dimensions());
        T::load(buckets.space(), context.kernel, &stored, &mut panel);
        let centers = buckets.centers::<T>()?;
        let radii = buckets.extents().iter().map(|extent| extent.radius.into()).collect();
        let source_rows = buckets.at(0).0.manifest().source_rows;
        let own = vec![T::Distance::default(); numbers.len()];
        let mut rows = Self { panel, numbers, starts, centers, own, radii, source_rows };
        for bucket in 0..rows.buckets() {
            let (members, range) = (rows.members(bucket), rows.range(bucket));
            let center = rows.centers.row(bucket as usize);
            context.kernel.one_to_some(center, &rows.panel, &members, &mut rows.own[range]);
        }
        Ok(rows)
    }

    pub(super) fn buckets(&self) -> u32 {
        self.centers.rows() as u32
    }

    /// Returns the range of the rows of a bucket.
    pub(super) fn range(&self, bucket: u32) -> Range<usize> {
        self.starts[bucket as usize] as usize..self.starts[bucket as usize + 1] as usize
    }

    /// Returns the rows of a bucket.
    pub(super) fn members(&self, bucket: u32) -> Vec<u32> {
        self.range(bucket).map(|row| row as u32).collect()
    }

    /// Returns the bucket of a row.
    pub(super) fn bucket_of(&self, row: u32) -> u32 {
        self.starts.partition_point(|&start| start <= row) as u32 - 1
    }

    /// Converts a computed squared distance to an upper bound in f64.
    pub(super) fn squared(&self, computed: T::Distance) -> f64 {
        T::at_most(computed, self.panel.dimensions())
    }
}
