//! What is nearest to each row of a store, for those who build on that.

use super::PURPOSE;
use super::calibration::{self, calibrate};
use super::options::Wanted;
use super::queries::QuerySet;
use super::searcher::{Queries, Searcher};
use super::source_queries::QueryBatch;
use crate::context::Context;
use crate::error::Result;
use crate::execute::Hit;
use crate::geometry::with_coordinates;
use crate::load::{Buckets, Subset};
use crate::plan::Probes;

/// Rows from which it is learned where to look, at first: nothing is promised.
const VECTORS: u64 = 500;

/// The nearest rows of each row of a store that counts.
#[derive(Clone, Copy)]
pub(crate) struct NearRows<'a> {
    pub(crate) buckets: &'a Buckets<'a>,
    /// The rows that count.
    pub(crate) subset: Subset<'a>,
    /// So many of each.
    pub(crate) count: u64,
    /// Such a share of them is to be found, about.
    pub(crate) recall: f64,
    /// Of the rows from which it is learned where to look.
    pub(crate) seed: u64,
}

/// Bytes with which [`NearRows::each`] works, at least.
pub(crate) fn least_near_rows(context: &Context, buckets: &Buckets<'_>, count: u64) -> u64 {
    let wanted = Wanted::Nearest(count);
    with_coordinates!(buckets.space(), T => {
        let of = Searcher::<T>::bytes_of_query(buckets, buckets.vectors(), wanted);
        let least = Searcher::<T>::least_bytes(buckets, context.threads, 2 * of);
        QuerySet::Rows.reading_bytes(buckets) + least + calibration::least_bytes::<T>(buckets, wanted)
    })
}

impl NearRows<'_> {
    /// Hands `take` the nearest rows of some rows, nearest first, in the order in which rows lie in the store, and the number of
    /// the first of these.
    ///
    /// # Errors
    /// Where the budget is too small, the store cannot be read, or `take` fails.
    pub(crate) fn each(self, context: &Context, take: &mut dyn FnMut(u32, Vec<Vec<Hit>>) -> Result<()>) -> Result<()> {
        let Self { buckets, subset, count, recall, seed } = self;
        let wanted = Wanted::Nearest(count);
        with_coordinates!(buckets.space(), T => {
            let _of_reading = context.reserve(QuerySet::Rows.reading_bytes(buckets), PURPOSE)?;
            let searcher = &Searcher::<T>::new(context, buckets)?.among(subset);
            let learned = match calibration::is_worth_it(buckets.rows(), VECTORS) {
                true => calibrate(searcher, (QuerySet::AllRows, VECTORS), wanted, (recall, seed))?,
                false => None,
            };
            let probes = learned.map_or(Probes::Bound, |learned| Probes::By(learned.rule));
            let of = Searcher::<T>::bytes_of_query(buckets, buckets.vectors(), wanted);
            let mut first = 0;
            QuerySet::Rows.each(searcher, searcher.queries_at_once(of) as usize, &mut |batch| {
                let QueryBatch { vectors, stored, rows, places, .. } = batch;
                let _memory = context.reserve(rows.len() as u64 * of, PURPOSE)?;
                let queries = Queries::new(searcher, vectors, &stored, places);
                drop(stored);
                searcher.search(&queries, wanted, probes, |range, found| take(first + range.start, found))?;
                first += rows.len() as u32;
                Ok(())
            })
        })
    }
}
