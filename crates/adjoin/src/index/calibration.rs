//! Measures the recall of walks with lists of different lengths.
//!
//! Walks are run for sampled queries with known true hits. For each hit, the calibration records the shortest list of a
//! ladder of list lengths that finds the hit. From these records, the shortest list that reaches a recall can be looked
//! up for any K. One walk with a long list measures all shorter lists, since a walk with a shorter list takes the same
//! first steps.

use std::ops::Range;

use super::promised::Promise;
use crate::base::random::Random;
use crate::base::report::Interval;
use crate::truth::NeighborSample;

/// Shortest list of a ladder.
const SHORTEST: usize = 4;
/// Number of hits recorded per query. If a query has more hits, a random sample of this size is recorded.
pub(super) const NOTED: usize = 100;
const NUMBER_BYTES: usize = size_of::<u32>();
const HEAD_NUMBERS: usize = 5;
/// Divisor of the number of queries. After deletes, at most this part of the queries may lack recorded hits.
const LOST_SHARE: usize = 100;
/// Number of values that are stored before the entries of inserted rows: the number of entries, and the flag
/// [`Inserted::whole`].
const INSERTED_NUMBERS: usize = 2;

/// Hits that walks find for sampled queries, by list length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calibration {
    /// Version of the walks ([`super::walk::WALKS`]).
    walks: u32,
    /// Number of true hits per query, which are the nearest of all other rows.
    hits_of_query: u32,
    /// Lengths of the lists that were tried, ascending.
    lists: Vec<u32>,
    /// Entries of the recorded hits, query by query. If all hits of a query are recorded, they are sorted nearest
    /// first.
    noted: Vec<u32>,
    /// Position in `lists` of the shortest list that finds each recorded hit. If the longest list misses the hit, this
    /// is the number of lists.
    from: Vec<u8>,
    queries: usize,
    /// Rows that the last merge inserted. They are the last queries.
    inserted: Inserted,
}

/// Rows that the last merge inserted and that are queries of a calibration.
///
/// A few rows in a new region would hardly affect the recall of a sample of all rows. Therefore the recall of inserted
/// rows is measured separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Entries of the rows, ascending.
    pub(super) entries: Vec<u32>,
    /// Whether these are all rows that were inserted, so that their recall has no sampling error.
    pub(super) whole: bool,
}

/// Recall that a list reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// Mean recall of a query.
    pub(super) at_k: Interval,
    /// Recall that 95 % of the queries reach.
    pub(super) p5: f64,
    /// Number of sampled queries.
    pub(super) queries: u64,
    /// Whether this is the recall of the rows that the last merge inserted. It is reported if it is lower than the
    /// recall of all rows.
    pub(super) of_inserted: bool,
}

/// Returns the lists of the ladder that are longer than `before` and at most as long as `longest`.
pub(super) fn lists_up_to(before: Option<usize>, longest: usize) -> Vec<usize> {
    let lists = std::iter::successors(Some(next_list(before)), |&list| Some(next_list(Some(list))));
    lists.take_while(|&list| list <= longest).collect()
}

/// Returns the list length that follows `before` in the ladder. The ladder has the powers of two, and 1.5 times each of
/// them.
pub(super) fn next_list(before: Option<usize>) -> usize {
    match before {
        None => SHORTEST,
        Some(list) if list.is_power_of_two() => list / 2 * 3,
        Some(list) => list / 3 * 4,
    }
}

/// Selects the true hits of a query to record: all of them or, if there are too many, a sample. Keeps their order.
pub(super) fn noted(mut hits: Vec<u32>, seed: u64) -> Vec<u32> {
    if hits.len() <= NOTED {
        return hits;
    }
    let mut lot = Random::new(seed, "noted");
    let drawn = lot.ascending_sample(NOTED as u64, hits.len() as u64);
    (0..).zip(&drawn).for_each(|(to, &from): (usize, _)| hits[to] = hits[from as usize]);
    hits.truncate(NOTED);
    hits
}

impl Calibration {
    /// Creates a calibration without lists. Each query has `hits_of_query` true hits; `noted` has the recorded hits of
    /// each query. The last queries are the rows in `inserted`.
    pub(super) fn new(walks: u32, hits_of_query: u32, noted: &[Vec<u32>], inserted: Inserted) -> Self {
        let queries = noted.len();
        let noted = noted.concat();
        Self { walks, hits_of_query, lists: Vec::new(), from: vec![0; noted.len()], noted, queries, inserted }
    }

    /// Creates a calibration without recorded hits. It only stores the rows that the last merge inserted. A search
    /// later measures the recall with these rows and with `drawn` sampled rows.
    pub(super) fn unmeasured(walks: u32, drawn: usize, inserted: Inserted) -> Self {
        Self::new(walks, 0, &vec![Vec::new(); drawn + inserted.entries.len()], inserted)
    }

    /// Returns the queries that are rows which the last merge inserted.
    pub(super) fn inserted(&self) -> &Inserted {
        &self.inserted
    }

    pub(super) fn queries(&self) -> usize {
        self.queries
    }

    /// Returns the number of queries that were sampled from all rows.
    fn drawn(&self) -> usize {
        self.queries - self.inserted.entries.len()
    }

    /// Returns the calibration restricted to the queries and hits that remain after deletes, with up to `k` hits per
    /// query. `own` has the entry of each query that was sampled from all rows.
    ///
    /// If a query has fewer than `k` recorded hits left, it has other hits now, and it is unknown which lists find
    /// them. Returns `None` if many queries have such hits, or if no sampled query remains.
    pub(super) fn of_left(&self, k: u64, own: &[u32], is_left: impl Fn(u32) -> bool) -> Option<Self> {
        let (of_query, hits) = (self.noted_of_query(), k.min(self.hits_of_query.into()) as usize);
        let entries = own.iter().chain(&self.inserted.entries);
        let (mut noted, mut from, mut queries, mut lost) = (Vec::new(), Vec::new(), 0, 0);
        for (query, &entry) in entries.enumerate().filter(|&(_, &entry)| is_left(entry)) {
            let all = query * of_query..(query + 1) * of_query;
            for at in all.filter(|&at| is_left(self.noted[at])).take(hits) {
                noted.push(self.noted[at]);
                from.push(self.from[at]);
            }
            queries += 1;
            // Unknown hits count as missed by every list. The entry of the query is a placeholder for their entries.
            if noted.len() < queries * hits {
                lost += 1;
                noted.resize(queries * hits, entry);
                from.resize(queries * hits, self.lists.len() as u8);
            }
        }
        let mut inserted = self.inserted.clone();
        inserted.entries.retain(|&entry| is_left(entry));
        // A few unknown hits lower the measured recall a little. Many would make it meaningless.
        let is_enough = queries > inserted.entries.len() && lost * LOST_SHARE <= queries;
        let (walks, hits_of_query, lists) = (self.walks, hits as u32, self.lists.clone());
        is_enough.then_some(Self { walks, hits_of_query, lists, noted, from, queries, inserted })
    }

    pub(super) fn walks(&self) -> u32 {
        self.walks
    }

    /// Returns whether the calibration covers searches for the `k` nearest. It does if `k` is the number of true hits
    /// per query, or if `k` is smaller and all true hits are recorded.
    pub(super) fn serves(&self, k: u64) -> bool {
        let known = u64::from(self.hits_of_query);
        k == known || (k < known && self.noted_of_query() == self.hits_of_query as usize)
    }

    /// Returns the number of true hits per query.
    pub(super) fn hits_of_query(&self) -> u32 {
        self.hits_of_query
    }

    /// Returns the longest list tried so far.
    pub(super) fn longest(&self) -> Option<usize> {
        self.lists.last().map(|&list| list as usize)
    }

    fn noted_of_query(&self) -> usize {
        self.noted.len().checked_div(self.queries).unwrap_or(0)
    }

    /// Returns the recorded hits of a query.
    pub(super) fn noted(&self, query: usize) -> &[u32] {
        &self.noted[query * self.noted_of_query()..][..self.noted_of_query()]
    }

    /// Adds lists of ascending lengths that are longer than all lists before. `least` has the length of the shortest
    /// list that finds each recorded hit, query by query.
    pub(super) fn add(&mut self, lists: &[usize], least: &[u32]) {
        assert_eq!(least.len(), self.noted.len(), "one length per recorded hit");
        let before = self.lists.len();
        self.lists.extend(lists.iter().map(|&list| list as u32));
        assert!(self.lists.is_sorted_by(|a, b| a < b), "a ladder ascends");
        for (from, least) in self.from.iter_mut().zip(least) {
            let missing = self.lists[before..].partition_point(|list| list < least);
            // A hit that a list before finds is also found by longer lists, unless these choose candidates by another
            // method. Then it counts for the lists after the last one that misses it.
            if missing > 0 {
                *from = (before + missing) as u8;
            }
        }
    }

    /// Returns the sample of some queries: for up to `k` hits of each, the shortest list that counts as finding the
    /// hit.
    fn sample(&self, k: u64, queries: Range<usize>, whole: bool) -> NeighborSample {
        let mut sample = NeighborSample { whole, ..NeighborSample::default() };
        let of_query = self.noted_of_query();
        let hits = k.min(self.hits_of_query.into());
        // If `k` is larger than the number of recorded hits, these represent all hits.
        let counted = of_query.min(hits as usize);
        for query in queries {
            sample.vectors += 1;
            let from = &self.from[query * of_query..][..counted];
            let list = |&from: &u8| self.lists.get(usize::from(from)).map_or(f32::INFINITY, |&list| list as f32);
            sample.pair_ts.extend(from.iter().map(list));
            if hits > 0 {
                sample.neighbors.push((hits, sample.pair_ts.len() as u32));
            }
        }
        sample
    }

    /// Returns the sample of all rows and, if rows were inserted, the sample of these. A promise must hold for both.
    fn samples(&self, k: u64) -> impl Iterator<Item = NeighborSample> {
        let inserted =
            (self.drawn() < self.queries).then(|| self.sample(k, self.drawn()..self.queries, self.inserted.whole));
        std::iter::once(self.sample(k, 0..self.drawn(), false)).chain(inserted)
    }

    /// Returns the shortest list of the ladder that supports the promise, or `None` if no list does.
    ///
    /// The list has at least as many candidates as there are hits to find, since walks never have a shorter list. Two
    /// conditions must hold: the bootstrap accepts the list, and the reported lower bound reaches the recall.
    ///
    /// One sample both chooses the list and reports its recall. This is sound because a longer list finds all hits that
    /// a shorter one finds. Therefore all lists that are too short together pass no more often than the longest of them.
    pub(super) fn choose(&self, promise: Promise) -> Option<usize> {
        if self.lists.is_empty() {
            return None;
        }
        let Promise { k, recall, seed } = promise;
        let least = k.min(self.hits_of_query.into()).max(SHORTEST as u64) as usize;
        self.samples(k).try_fold(least, |longest, sample| {
            // The threshold is negative infinity if every list finds all hits.
            let first = sample.calibrate(recall, seed)?.max(longest as f64);
            let supports = |&list: &f64| sample.recalls(list, seed).per_vector.low >= recall;
            let lists = self.lists.iter().map(|&list| f64::from(list)).filter(|&list| list >= first);
            lists.into_iter().find(supports).map(|list| list as usize)
        })
    }

    /// Returns the bytes that [`Self::choose`] takes.
    pub(super) fn choosing_bytes(&self) -> u64 {
        (self.noted.len() as u64 * NeighborSample::step_bytes()).max(1)
    }

    /// Returns whether a longer list may support the promise: whether a list that finds all hits would.
    pub(super) fn may_support(&self, promise: Promise) -> bool {
        let found = Self { lists: vec![1 << 30], from: vec![0; self.from.len()], ..self.clone() };
        found.choose(promise).is_some()
    }

    /// Returns the recall that a list reaches for all rows, or its recall for inserted rows if this is lower.
    pub(super) fn reached(&self, k: u64, list: usize, seed: u64) -> Reached {
        let reached = self.samples(k).enumerate().map(|(number, sample)| {
            let at_k = sample.recalls(list as f64, seed).per_vector;
            let p5 = sample.fifth_percentile(list as f64);
            Reached { at_k, p5, queries: sample.vectors, of_inserted: number > 0 }
        });
        reached.min_by(|a, b| a.at_k.low.total_cmp(&b.at_k.low)).expect("a calibration has a sample")
    }

    /// Encodes the calibration. It starts with five numbers: version of the walks, hits per query, number of lists,
    /// number of queries, and recorded hits per query. Then follow the lists, the recorded hits, and a position in
    /// `lists` for each recorded hit. If rows were inserted, their number, the flag [`Inserted::whole`] and their
    /// entries follow.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let noted = self.noted_of_query() as u32;
        let head = [self.walks, self.hits_of_query, self.lists.len() as u32, self.queries as u32, noted];
        let numbers = head.iter().chain(&self.lists).chain(&self.noted);
        let bytes = numbers.flat_map(|number| number.to_le_bytes()).chain(self.from.iter().copied());
        let Inserted { entries, whole } = &self.inserted;
        let inserted = [entries.len() as u32, u32::from(*whole)];
        let inserted = inserted.iter().chain(entries).flat_map(|number| number.to_le_bytes());
        // If no rows were inserted, nothing is appended. The decoder expects that.
        bytes.chain(inserted.take_while(|_| !entries.is_empty())).collect()
    }

    /// Decodes a calibration that [`Self::to_bytes`] encoded, for an index of `entries` entries. Returns `None` if the
    /// bytes are invalid.
    pub(super) fn from_bytes(bytes: &[u8], entries: u64) -> Option<Self> {
        let take = |bytes: &mut &[u8], count: usize| -> Option<Vec<u32>> {
            let (taken, rest) = bytes.split_at_checked(count.checked_mul(NUMBER_BYTES)?)?;
            *bytes = rest;
            Some(taken.as_chunks::<NUMBER_BYTES>().0.iter().map(|&number| u32::from_le_bytes(number)).collect())
        };
        let mut rest = bytes;
        let [walks, hits_of_query, lists, queries, of_query] = take(&mut rest, HEAD_NUMBERS)?.try_into().ok()?;
        let (lists, queries) = (take(&mut rest, lists as usize)?, queries as usize);
        let noted = take(&mut rest, queries.checked_mul(of_query as usize)?)?;
        let from = rest.split_off(..noted.len())?.to_vec();
        let inserted = match rest.is_empty() {
            true => Inserted::default(),
            false => {
                let [count, whole] = <[u32; INSERTED_NUMBERS]>::try_from(take(&mut rest, INSERTED_NUMBERS)?).ok()?;
                let entries = take(&mut rest, count as usize)?;
                (count > 0 && whole <= 1).then_some(Inserted { entries, whole: whole == 1 })?
            }
        };
        let holds = [
            rest.is_empty() && inserted.entries.is_sorted_by(|a, b| a < b) && inserted.entries.len() < queries,
            inserted.entries.iter().all(|&entry| u64::from(entry) < entries),
            // A position in `lists`, which may also be the number of lists, is stored as a byte.
            lists.len() < usize::from(u8::MAX),
            lists.is_sorted_by(|a, b| a < b),
            lists.first().is_none_or(|&first| first > 0) && queries as u64 <= 2 * entries,
            u64::from(hits_of_query) <= entries && of_query as usize == NOTED.min(hits_of_query as usize),
            noted.iter().all(|&entry| u64::from(entry) < entries),
            from.len() == noted.len() && from.iter().all(|&from| usize::from(from) <= lists.len()),
        ];
        holds.iter().all(|&holds| holds).then_some(Self { walks, hits_of_query, lists, noted, from, queries, inserted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(k: u64, recall: f64) -> Promise {
        Promise { k, recall, seed: 1 }
    }

    /// Returns a calibration of queries with `hits` hits each. The list of 40 finds all hits of every second query, and
    /// all but the last hit of the others. The list of 60 finds all hits, except that it finds no hit of the last query.
    fn sample(queries: u32, hits: u32) -> Calibration {
        let noted: Vec<Vec<u32>> = (0..queries).map(|query| (query..query + hits).collect()).collect();
        let mut calibration = Calibration::new(7, hits, &noted, Inserted::default());
        let least = |query: u32, hit: u32| match query {
            _ if query + 1 == queries => 81,
            _ if query.is_multiple_of(2) || hit + 1 < hits => 33,
            _ => 60,
        };
        let least: Vec<u32> = (0..queries).flat_map(|query| (0..hits).map(move |hit| least(query, hit))).collect();
        calibration.add(&[40, 60], &least);
        calibration.add(&[80, 120], &least);
        calibration
    }

    #[test]
    fn chooses_the_shortest_list_that_reaches_the_recall() {
        let calibration = sample(2_000, 10);
        assert_eq!(calibration.choose(promise(10, 0.8)), Some(40));
        assert_eq!(calibration.choose(promise(10, 0.97)), Some(60));
        assert_eq!(calibration.choose(promise(9, 0.97)), Some(40), "the last hit is not wanted");
        assert_eq!(calibration.choose(promise(10, 0.9999)), None);
        assert!(!calibration.may_support(promise(10, 0.9999)) && calibration.may_support(promise(10, 0.99)));
        let reached = calibration.reached(10, 40, 1);
        assert!((reached.at_k.estimate - 0.95).abs() < 0.01 && reached.p5 == 0.9, "{reached:?}");
        assert!(calibration.serves(10) && calibration.serves(3) && !calibration.serves(11));
    }

    #[test]
    fn the_recall_of_inserted_rows_must_also_be_reached() {
        // A list of 40 finds all hits of the 2,000 sampled rows, and half of the hits of the 100 inserted rows.
        let noted: Vec<Vec<u32>> = (0..2_100).map(|query| (query..query + 10).collect()).collect();
        let inserted = Inserted { entries: (500..600).collect(), whole: true };
        let mut calibration = Calibration::new(7, 10, &noted, inserted);
        let least = |hit: u32| if hit < 20_000 || hit.is_multiple_of(2) { 40 } else { 41 };
        let least: Vec<u32> = (0..21_000).map(least).collect();
        calibration.add(&[40], &least);
        assert_eq!(calibration.choose(promise(10, 0.4)), Some(40));
        assert_eq!(calibration.choose(promise(10, 0.9)), None);
        let reached = calibration.reached(10, 40, 1);
        assert!(reached.of_inserted && (reached.at_k.low, reached.queries) == (0.5, 100), "{reached:?}");
        calibration.add(&[60], &least);
        assert_eq!(calibration.choose(promise(10, 0.9)), Some(60));
        assert_eq!(Calibration::from_bytes(&calibration.to_bytes(), 2_110), Some(calibration));
        let unmeasured = Calibration::unmeasured(7, 2_000, Inserted { entries: (500..600).collect(), whole: true });
        assert!(!unmeasured.serves(10) && unmeasured.queries() == 2_100);
        assert_eq!(Calibration::from_bytes(&unmeasured.to_bytes(), 2_110), Some(unmeasured));
    }

    #[test]
    fn deleted_rows_are_neither_calibration_queries_nor_hits() {
        let calibration = sample(2_000, 10);
        let own: Vec<u32> = (0..2_000).collect();
        let left = calibration.of_left(9, &own, |entry| entry % 2 == 0 || entry >= 2_000);
        assert!(left.is_none(), "each query has lost half of its hits");
        // The remaining queries are those for which the shortest list finds all hits.
        let left = calibration.of_left(3, &own, |entry| entry % 2 == 0).unwrap();
        assert_eq!((left.queries, left.noted(0)), (1_000, &[0, 2, 4][..]));
        assert_eq!(left.choose(promise(3, 0.9)), Some(40));
        assert!(calibration.of_left(3, &own, |_| false).is_none());
    }

    #[test]
    fn the_chosen_list_has_a_lower_bound_that_reaches_the_recall() {
        for (queries, k, recall) in [(300, 2, 0.95), (1_000, 2, 0.95), (1_000, 10, 0.97), (4_000, 10, 0.95)] {
            let calibration = sample(queries, 10);
            let Some(list) = calibration.choose(promise(k, recall)) else { continue };
            let reached = calibration.reached(k, list, 1);
            assert!(reached.at_k.low >= recall, "{queries} {k}: {reached:?}");
        }
    }

    #[test]
    fn a_hit_counts_from_the_shortest_list_that_finds_it() {
        let mut calibration = sample(3, 1);
        assert_eq!(calibration.from, [0, 1, 3]);
        let noted: Vec<Vec<u32>> = (0..4).map(|hit| vec![hit]).collect();
        calibration = Calibration::new(7, 1, &noted, Inserted::default());
        calibration.add(&[4, 6], &[1, 4, 5, u32::MAX]);
        assert_eq!(calibration.from, [0, 0, 1, 2]);
    }

    #[test]
    fn a_sample_represents_many_hits() {
        let all: Vec<u32> = (0..1_000).collect();
        let some = noted(all.clone(), 1);
        assert!(some.len() == NOTED && some.is_sorted() && some != noted(all, 2));
        let calibration = Calibration::new(7, 1_000, &[some.clone(), some], Inserted::default());
        assert!(calibration.serves(1_000) && !calibration.serves(10));
        assert_eq!(calibration.sample(1_000, 0..2, false).neighbors, [(1_000, 100), (1_000, 200)]);
    }

    #[test]
    fn list_sizes_grow_by_a_half_or_a_third() {
        let lists: Vec<usize> =
            std::iter::successors(Some(next_list(None)), |&list| Some(next_list(Some(list)))).take(8).collect();
        assert_eq!(lists, [4, 6, 8, 12, 16, 24, 32, 48]);
    }

    #[test]
    fn calibrations_round_trip_and_invalid_bytes_are_refused() {
        let calibration = sample(20, 3);
        let bytes = calibration.to_bytes();
        assert_eq!(Calibration::from_bytes(&bytes, 22), Some(calibration));
        assert_eq!(Calibration::from_bytes(&bytes, 21), None, "there is no entry 21");
        (0..bytes.len()).for_each(|len| assert_eq!(Calibration::from_bytes(&bytes[..len], 22), None, "{len} bytes"));
        for at in 0..bytes.len() {
            for flip in [0x01, 0x81] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Some(other) = Calibration::from_bytes(&other, 22) {
                    let list = other.choose(promise(3, 0.5)).or(other.longest()).unwrap_or(1);
                    assert!(other.reached(3, list, 1).at_k.estimate <= 1.0);
                }
            }
        }
    }
}
