//! Finds the nearest rows of each row of a store, as input for the construction of other structures.

use std::ops::Range;

use super::PURPOSE;
use super::calibration::{self, CalibrationDraw, calibrate};
use super::queries::QuerySet;
use super::searcher::{Counts, Queries, Searcher};
use super::visits::Visits;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::workers::map_items;
use crate::execute::{NearComparison, NearPlaces, NumberedQueries};
use crate::load::{Buckets, Subset};
use crate::plan::Probes;
use crate::query::{QueryBatch, QueryTarget, bytes_for_all_hits, in_halves};

/// Number of vectors in the calibration sample. It is small, since no recall is promised.
const VECTORS: u64 = 500;
/// Largest number of rows that look for others at once.
const ROWS_MAX: u64 = 1 << 20;

/// Request for the nearest rows of each row of a subset.
#[derive(Clone, Copy)]
pub(crate) struct NearRows<'a> {
    pub(crate) buckets: &'a Buckets<'a>,
    /// Rows that are the queries and the possible results.
    pub(crate) subset: Subset<'a>,
    /// Number of nearest rows to find for each row.
    pub(crate) count: u64,
    /// Approximate fraction of the nearest rows to find.
    pub(crate) recall: f64,
    /// Seed of the calibration sample.
    pub(crate) seed: u64,
}

/// Returns the least memory in bytes for [`NearRows::each`].
pub(crate) fn least_near_rows(context: &Context, buckets: &Buckets<'_>, count: u64) -> u64 {
    with_coordinates!(buckets.space(), T => {
        let least = Searcher::<T>::least_bytes(buckets, context.threads, 2 * bytes_of_row::<T>(buckets, count));
        let comparing = comparing_bytes::<T>(context, buckets);
        let learning = calibration::least_bytes::<T>(buckets, QueryTarget::Nearest(count));
        QuerySet::Rows.reading_bytes(buckets) + least + comparing + learning
    })
}

/// Returns the memory in bytes of a row that looks for `count` others.
fn bytes_of_row<T: Coordinate>(buckets: &Buckets<'_>, count: u64) -> u64 {
    let of_place = size_of::<u32>() as u64;
    NearPlaces::memory_bytes(count) + Searcher::<T>::bytes_of_vector(buckets, buckets.vectors()) + of_place
}

/// Returns the memory in bytes of all workers that compare rows.
fn comparing_bytes<T: Coordinate>(context: &Context, buckets: &Buckets<'_>) -> u64 {
    let of_worker = NearComparison::<T>::memory_bytes(buckets.rows_max(), buckets.space().dimensions());
    context.threads.max(1) as u64 * of_worker
}

impl NearRows<'_> {
    /// Passes the places of each row's nearest rows to `take`, for some rows at a time, in the order of the rows in
    /// the store. The first argument of `take` is the number of the first of these rows. Nearness is determined by
    /// computed distances, without bounds on rounding.
    ///
    /// # Errors
    /// If the budget is too small, if the store cannot be read, or if `take` fails.
    pub(crate) fn each(self, context: &Context, take: &mut dyn FnMut(u32, Vec<Vec<u32>>) -> Result<()>) -> Result<()> {
        let Self { buckets, subset, count, recall, seed } = self;
        let target = QueryTarget::Nearest(count);
        let draw = CalibrationDraw { queries: QuerySet::AllRows, count: VECTORS, seed };
        with_coordinates!(buckets.space(), T => {
            let _of_reading = context.reserve(QuerySet::Rows.reading_bytes(buckets), PURPOSE)?;
            let searcher = &Searcher::<T>::new(context, buckets, context.budget().free())?.among(subset);
            let learned = match calibration::is_worth_it(buckets.rows(), VECTORS) {
                true => calibrate(searcher, draw, target, recall, None)?,
                false => None,
            };
            let probes = learned.map(|learned| Probes::By(learned.rule));
            let of_row = bytes_of_row::<T>(buckets, count);
            let _of_comparing = context.reserve(comparing_bytes::<T>(context, buckets), PURPOSE)?;
            let mut first = 0;
            // Few large batches read a bucket less often than many small ones.
            let at_once = searcher.queries_in_memory(of_row).min(ROWS_MAX) as usize;
            QuerySet::Rows.each(searcher, at_once, &mut |batch| {
                let QueryBatch { vectors, stored, rows, places, .. } = batch;
                let _memory = context.reserve(rows.len() as u64 * of_row, PURPOSE)?;
                let queries = &Queries::new(searcher, vectors, &stored, places);
                // Only the converted vectors are needed after this.
                drop(stored);
                let find = |range| self.find(searcher, queries, range, probes);
                let more = bytes_for_all_hits(buckets.rows());
                in_halves(context, more, rows.len() as u32, find, |range, found| take(first + range.start, found))?;
                first += rows.len() as u32;
                Ok(())
            })
        })
    }

    /// Finds the nearest rows of a range of rows. If `probes` is `None`, each row is compared with all buckets.
    /// Returns `None` if memory does not suffice.
    fn find<T: Coordinate>(
        &self,
        searcher: &Searcher<'_, T>,
        queries: &Queries<T>,
        range: Range<u32>,
        probes: Option<Probes>,
    ) -> Result<Option<Vec<Vec<u32>>>> {
        let Self { subset, count, .. } = *self;
        let Searcher { context, buckets, .. } = searcher;
        let listed = match probes {
            Some(probes) => {
                // The row itself is one of its nearest rows, so one more row is needed.
                let least_rows = (count + 1).min(searcher.all_rows());
                searcher.visits(queries, range.clone(), probes, least_rows, &Counts::default())?
            }
            None => {
                // If there is no rule, every row is compared with every bucket.
                let all = vec![true; buckets.count() as usize];
                Some((Visits::All(range.clone().collect(), all), context.reserve(0, PURPOSE)?))
            }
        };
        let Some((visits, _memory)) = listed else { return Ok(None) };
        let places = queries.places.iter().flatten();
        let own: Vec<u32> = places.map(|&(bucket, member)| subset.starts[bucket as usize] + member).collect();
        let near = NearPlaces::new(range.len(), count as usize);
        let numbered = NumberedQueries { members: &queries.members, first: range.start };
        let comparison = || NearComparison::new(context.kernel, numbered, &own, &near, subset);
        // If all members of a bucket are queries, they are first compared with each other. Each of these rows then has
        // a limit before other buckets are read, and few rows of other buckets are near enough to be examined.
        let groups = self.whole_buckets(&own, range.clone());
        map_items(context.threads, groups.len(), &context.cancel, comparison, |comparison, number| {
            comparison.compare_own(groups[number].1.clone());
            Ok(())
        })?;
        let state = || (comparison(), Vec::new());
        searcher.look(&visits, state, |(comparison, others), number, bucket, looking| {
            let own = groups.binary_search_by_key(&number, |group| group.0).map_or(0..0, |at| groups[at].1.clone());
            others.clear();
            // Queries that are members of this bucket were already compared with it above.
            others.extend(looking.iter().filter(|query| !own.contains(query)));
            comparison.compare(number, bucket, others);
            Ok(())
        })?;
        Ok(Some(near.into_places()))
    }

    /// Finds the buckets whose members in the subset are all queries of `range`. Returns these buckets, with the
    /// numbers of those queries. `own` has the place of each query.
    fn whole_buckets(&self, own: &[u32], range: Range<u32>) -> Vec<(u32, Range<u32>)> {
        let starts = self.subset.starts;
        let (mut groups, mut next) = (Vec::new(), range.start);
        while next < range.end {
            let bucket = starts.partition_point(|&start| start <= own[next as usize]) - 1;
            let start = next;
            next += own[next as usize..range.end as usize].partition_point(|&place| place < starts[bucket + 1]) as u32;
            if u64::from(next - start) == self.subset.rows(bucket as u32) {
                groups.push((bucket as u32, start..next));
            }
        }
        groups
    }
}
