//! Lists the queries that probe each bucket.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::Load;

/// Queries that probe each bucket.
pub(crate) enum Visits {
    /// All queries probe the same buckets. Holds the queries, and a flag for each bucket.
    All(Vec<u32>, Vec<bool>),
    /// The queries, grouped by bucket, in the second list. The first has the end of each bucket's group. Both are small
    /// if each query probes few buckets.
    Listed(Vec<usize>, Vec<u32>),
    /// One bit per bucket and query.
    Marked(Marks),
}

impl Visits {
    /// Inverts `lists`, which has the buckets that each query probes. The first query has number `first`.
    pub(crate) fn of_lists(lists: &[Vec<u32>], first: u32, buckets: u32) -> Self {
        // This is a counting sort by bucket. It keeps the queries of a bucket in ascending order.
        let mut ends = vec![0; buckets as usize];
        lists.iter().flatten().for_each(|&bucket| ends[bucket as usize] += 1);
        let mut end = 0;
        ends.iter_mut().for_each(|count| {
            let start = end;
            end += *count;
            *count = start;
        });
        let mut queries = vec![0; end];
        for (query, list) in (first..).zip(lists) {
            for &bucket in list {
                queries[ends[bucket as usize]] = query;
                ends[bucket as usize] += 1;
            }
        }
        Self::Listed(ends, queries)
    }

    /// Returns the queries that probe a bucket, in ascending order. `buffer` holds them if they are not stored as a
    /// list.
    pub(crate) fn of<'b>(&'b self, bucket: u32, buffer: &'b mut Vec<u32>) -> &'b [u32] {
        match self {
            Self::All(queries, buckets) => {
                if buckets[bucket as usize] {
                    queries
                } else {
                    &[]
                }
            }
            Self::Listed(ends, queries) => {
                let start = if bucket == 0 { 0 } else { ends[bucket as usize - 1] };
                &queries[start..ends[bucket as usize]]
            }
            Self::Marked(marks) => {
                buffer.clear();
                buffer.extend(marks.of(bucket));
                buffer
            }
        }
    }

    /// Returns whether a query probes a bucket.
    pub(super) fn holds(&self, bucket: u32, query: u32) -> bool {
        match self {
            Self::Marked(marks) => marks.is_set(bucket, query),
            _ => self.of(bucket, &mut Vec::new()).binary_search(&query).is_ok(),
        }
    }

    /// Returns the buckets that at least one query probes, in ascending order.
    pub(super) fn loads(&self, buckets: u32) -> impl Iterator<Item = Load> {
        let is_wanted = |bucket: u32| match self {
            Self::Marked(marks) => marks.of(bucket).next().is_some(),
            _ => !self.of(bucket, &mut Vec::new()).is_empty(),
        };
        Load::each(buckets).filter(move |load| is_wanted(load.bucket))
    }
}

/// One bit per bucket and query. Several threads may change bits at once if they work on different queries.
pub(crate) struct Marks {
    words: Vec<AtomicU64>,
    /// Words per bucket.
    of_bucket: usize,
    /// Number of the first query.
    first: u32,
}

impl Marks {
    const BITS: usize = u64::BITS as usize;

    /// Creates marks that are all unset.
    pub(super) fn none(buckets: u32, queries: &Range<u32>) -> Self {
        let of_bucket = queries.len().div_ceil(Self::BITS);
        let words = (0..buckets as usize * of_bucket).map(|_| AtomicU64::new(0)).collect();
        Self { words, of_bucket, first: queries.start }
    }

    /// Returns the memory of [`Marks::none`] in bytes.
    pub(super) fn bytes(buckets: u32, queries: &Range<u32>) -> u64 {
        u64::from(buckets) * (queries.len().div_ceil(Self::BITS) * size_of::<u64>()) as u64
    }

    fn place(&self, bucket: u32, query: u32) -> (&AtomicU64, u64) {
        let query = (query - self.first) as usize;
        let word = &self.words[bucket as usize * self.of_bucket + query / Self::BITS];
        (word, 1 << (query % Self::BITS))
    }

    pub(super) fn set(&self, bucket: u32, query: u32) {
        let (word, bit) = self.place(bucket, query);
        // Relaxed suffices: other threads read the marks only after this pass has ended.
        word.fetch_or(bit, Ordering::Relaxed);
    }

    /// Inverts a mark.
    pub(super) fn turn(&self, bucket: u32, query: u32) {
        let (word, bit) = self.place(bucket, query);
        word.fetch_xor(bit, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self, bucket: u32, query: u32) -> bool {
        let (word, bit) = self.place(bucket, query);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Returns the queries marked for a bucket, in ascending order.
    fn of(&self, bucket: u32) -> impl Iterator<Item = u32> {
        let start = bucket as usize * self.of_bucket;
        let words = self.words[start..start + self.of_bucket].iter().map(|word| word.load(Ordering::Relaxed));
        (self.first..).step_by(Self::BITS).zip(words).filter(|&(_, word)| word != 0).flat_map(|(first, word)| {
            let bits = (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| first + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    /// Returns the queries of each bucket, and the buckets to load.
    fn seen(visits: &Visits, buckets: u32) -> (Vec<Vec<u32>>, Vec<u32>) {
        let of = |bucket| visits.of(bucket, &mut vec![7; 3]).to_vec();
        ((0..buckets).map(of).collect(), visits.loads(buckets).map(|load| load.bucket).collect())
    }

    #[test]
    fn lists_and_marks_have_equal_visits() {
        let mut random = Random::new(1, "visits");
        let (range, buckets) = (1_000..1_130_u32, 40);
        let marks = Marks::none(buckets, &range);
        let lists = range.clone().map(|query| {
            let wanted = (0..buckets).filter(|bucket| bucket % 7 != 3 && random.below(9) == 0);
            wanted.inspect(|&bucket| marks.set(bucket, query)).collect()
        });
        let lists: Vec<Vec<u32>> = lists.collect();
        for (bucket, query) in (0..buckets).flat_map(|bucket| range.clone().map(move |query| (bucket, query))) {
            assert_eq!(marks.is_set(bucket, query), lists[(query - range.start) as usize].contains(&bucket));
        }
        marks.turn(3, 1_129);
        marks.turn(3, 1_129);
        let (listed, marked) = (Visits::of_lists(&lists, range.start, buckets), Visits::Marked(marks));
        assert_eq!(seen(&listed, buckets), seen(&marked, buckets));
        let loads = seen(&marked, buckets).1;
        assert!(!loads.is_empty() && loads.iter().all(|bucket| bucket % 7 != 3));
    }

    #[test]
    fn all_queries_visit_only_marked_buckets() {
        let visits = Visits::All(vec![4, 5], vec![true, false, true]);
        assert_eq!(seen(&visits, 3), (vec![vec![4, 5], vec![], vec![4, 5]], vec![0, 2]));
    }
}
