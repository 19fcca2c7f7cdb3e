//! Finds the medoid, which is the vertex nearest to the mean. Searches start there.

use std::ops::Range;

use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::candidate::Candidate;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;

/// Number of vectors in a chunk. Each chunk is summed in order, and the sums of chunks are added in order, so the
/// result does not depend on the number of threads.
const CHUNK_ROWS: usize = 1 << 14;

/// Returns the vertex nearest to the mean of all vectors. Only vertices that `counts` accepts are considered. If several
/// are equally near, returns the first of them. Returns `None` if there are none.
///
/// # Errors
/// If the work is cancelled.
pub(super) fn medoid<T: Coordinate>(
    context: &Context,
    panel: &Panel<T>,
    counts: impl Fn(u32) -> bool + Sync,
) -> Result<Option<u32>> {
    let mean = mean(context, panel)?;
    nearest_of(context, panel, mean.row(0), counts)
}

/// Returns the live vertex that is nearest to `vertex`.
///
/// # Errors
/// If the work is cancelled.
pub(super) fn nearest_live<T: Coordinate>(
    context: &Context,
    panel: &Panel<T>,
    graph: &Graph,
    vertex: u32,
) -> Result<Option<u32>> {
    nearest_of(context, panel, panel.row(vertex as usize), |vertex| graph.is_live(vertex))
}

/// Returns the mean of all vectors, rounded to coordinates.
fn mean<T: Coordinate>(context: &Context, panel: &Panel<T>) -> Result<Panel<T>> {
    let (rows, dimensions) = (panel.rows(), panel.dimensions());
    let of_chunks = map_chunks(context, rows, |some| {
        let mut sums = vec![T::Sum::default(); dimensions];
        some.for_each(|row| T::add_to(&panel.row(row as usize)[..dimensions], &mut sums));
        sums
    })?;
    let mut totals = vec![0.0; dimensions];
    for sums in of_chunks {
        // The sums are added in the order of the chunks, since a sum of floats depends on the order.
        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum.into());
    }
    let mut mean = Panel::zeroed(1, dimensions);
    mean.row_mut(0).iter_mut().zip(totals).for_each(|(to, total)| *to = T::from_mean(total / rows.max(1) as f64));
    Ok(mean)
}

/// Processes chunks of rows on all threads. Returns the results in the order of the rows.
fn map_chunks<R: Send>(context: &Context, rows: usize, work: impl Fn(Range<u32>) -> R + Sync) -> Result<Vec<R>> {
    let chunk = |number: usize| (number * CHUNK_ROWS) as u32..rows.min((number + 1) * CHUNK_ROWS) as u32;
    let chunks = rows.div_ceil(CHUNK_ROWS);
    map_items(context.threads, chunks, &context.cancel, || (), |(), number| Ok(work(chunk(number))))
}

fn nearest_of<T: Coordinate>(
    context: &Context,
    panel: &Panel<T>,
    x: &[T],
    counts: impl Fn(u32) -> bool + Sync,
) -> Result<Option<u32>> {
    let of_chunks = map_chunks(context, panel.rows(), |some| {
        let rows: Vec<u32> = some.filter(|&vertex| counts(vertex)).collect();
        let mut distances = vec![T::Distance::default(); rows.len()];
        context.kernel.one_to_some(x, panel, &rows, &mut distances);
        // Candidates are ordered by distance and then by number, so the number decides between equally near vertices.
        rows.iter().zip(distances).map(|(&row, distance)| Candidate::new::<T>(distance, row)).min()
    })?;
    Ok(of_chunks.into_iter().flatten().min().map(Candidate::vertex))
}
