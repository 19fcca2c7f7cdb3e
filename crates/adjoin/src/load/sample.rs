//! Reads random samples of the vectors of stores into memory.

use std::ops::Range;

use adjoin_kernels::Panel;

use super::buckets::Buckets;
use super::members::Members;
use super::vectors::{read_rows, read_vectors};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;

/// Sampled vectors.
pub(crate) struct DrawnVectors<T> {
    pub(crate) members: Members<T>,
    /// Bucket of each vector, and its position in the bucket, in ascending order.
    pub(crate) places: Vec<(u32, u32)>,
    /// Squared distance of each vector to the center of its bucket.
    pub(crate) own: Vec<f64>,
    /// Row number of each vector. Empty unless pairs of one set are filtered: then the row with the lower number is
    /// the left one.
    pub(crate) rows: Vec<u64>,
}

/// Samples the places of `count` distinct vectors, in ascending order.
pub(crate) fn draw_places(buckets: &Buckets<'_>, count: u64, seed: u64, purpose: &str) -> Vec<(u32, u32)> {
    draw_other_places(buckets, 0..buckets.count(), &[], count, Random::new(seed, purpose))
}

/// Samples the places of `count` vectors from the buckets `numbers`, or of all vectors if there are fewer. Places in
/// `known`, which must ascend, are excluded. Positions count only filtered members.
pub(crate) fn draw_other_places(
    buckets: &Buckets<'_>,
    numbers: Range<u32>,
    known: &[(u32, u32)],
    count: u64,
    mut random: Random,
) -> Vec<(u32, u32)> {
    let others = buckets.rows_of(numbers.clone()) - known.len() as u64;
    let drawn = random.ascending_sample(count.min(others), others);
    let mut firsts = Vec::with_capacity(numbers.len());
    let mut rows = 0;
    for number in numbers.clone() {
        firsts.push(rows);
        rows += u64::from(buckets.members(number));
    }
    let mut known =
        known.iter().map(|&(bucket, place)| firsts[(bucket - numbers.start) as usize] + u64::from(place)).peekable();
    let mut skipped = 0;
    let ranks = drawn.into_iter().map(|number| {
        // A sampled number counts only places that are not known, so each known place before it shifts it by one.
        while known.next_if(|&known| known <= number + skipped).is_some() {
            skipped += 1;
        }
        number + skipped
    });
    let mut all = numbers.clone();
    let (mut bucket, mut start, mut end) = (0, 0, 0);
    let place_of = |number: u64| {
        while number >= end {
            let next = all.next().expect("buckets hold all vectors");
            (bucket, start, end) = (next, end, end + u64::from(buckets.members(next)));
        }
        (bucket, (number - start) as u32)
    };
    ranks.map(place_of).collect()
}

/// Reads the vectors at `places` as coordinates, without the data for exact decisions.
///
/// # Errors
/// Fails if the device fails.
pub(crate) fn read_coordinates<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    places: &[(u32, u32)],
) -> Result<Panel<T>> {
    let stored = read_vectors(context, buckets, places)?;
    let mut panel = Panel::zeroed(places.len(), buckets.space().dimensions());
    T::load(buckets.space(), context.kernel, &stored, &mut panel);
    Ok(panel)
}

impl<T: Coordinate> DrawnVectors<T> {
    /// Reads the vectors at `places`.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(crate) fn read(
        context: &Context,
        buckets: &Buckets<'_>,
        centers: &Panel<T>,
        places: &[(u32, u32)],
    ) -> Result<Self> {
        let stored = read_vectors(context, buckets, places)?;
        let members = Members::new(context.kernel, buckets.space(), &stored);
        let own = |(k, &(bucket, _)): (usize, &(u32, u32))| {
            let squared = context.kernel.distance(members.panel.row(k), centers.row(bucket as usize));
            T::at_most(squared, centers.dimensions())
        };
        let own = places.iter().enumerate().map(own).collect();
        // Row numbers are needed only to decide which row of a pair is the left one.
        let needs_rows = buckets.pairs().is_some() && !buckets.are_of_two_sets();
        let rows = if needs_rows { read_rows(context, buckets, places)? } else { Vec::new() };
        Ok(Self { members, places: places.to_vec(), own, rows })
    }

    /// Returns the memory in bytes of `count` vectors while they are read.
    pub(crate) fn memory_bytes(buckets: &Buckets<'_>, count: u64) -> u64 {
        let members = Members::<T>::memory_bytes(count, buckets.space());
        let of_row = if buckets.pairs().is_some() { 2 * size_of::<u64>() as u64 } else { 0 };
        members + count * (buckets.vectors().bytes() as u64 + 16 + 8 + of_row)
    }

    /// Returns the range of sampled vectors that belong to a bucket.
    pub(crate) fn of_bucket(&self, number: u32) -> Range<usize> {
        self.of_buckets(number..number + 1)
    }

    /// Returns the range of sampled vectors that belong to a range of buckets.
    pub(crate) fn of_buckets(&self, numbers: Range<u32>) -> Range<usize> {
        let before = |end: u32| self.places.partition_point(|&(bucket, _)| bucket < end);
        before(numbers.start)..before(numbers.end)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
}
