//! Measures how long the lists of walks must be for a recall.
//!
//! For drawn queries with known true hits, walks are run with a ladder of list lengths. Each hit records the shortest
//! list from which on every list of the ladder finds it. The shortest list that reaches a recall for any K is then
//! looked up.

use std::ops::Range;

use super::promised::Promise;
use crate::base::random::Random;
use crate::base::report::Interval;
use crate::truth::NeighborSample;

/// Shortest list of a ladder.
const SHORTEST: usize = 4;
/// Number of hits recorded per query. If there are more, this many of them are drawn.
pub(super) const NOTED: usize = 100;
const NUMBER_BYTES: usize = size_of::<u32>();
const HEAD_NUMBERS: usize = 5;
/// Divisor: at most this part of the queries may have lost hits with unknown replacements.
const LOST_SHARE: usize = 100;
/// Numbers before the entries of inserted rows: their count, and whether they are all inserted rows.
const INSERTED_NUMBERS: usize = 2;

/// Results of walks for drawn queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calibration {
    /// Version of the walks ([`super::walk::WALKS`]).
    walks: u32,
    /// Number of true hits per query: its nearest among all other rows.
    hits_of_query: u32,
    /// Lists of the ladder so far, ascending.
    lists: Vec<u32>,
    /// Entries of the recorded hits of each query, nearest first if all hits are recorded. For each of these hits,
    /// `from` has the first position in the ladder from which on all lists find the hit, or the length of the ladder if
    /// the last list misses the hit.
    noted: Vec<u32>,
    from: Vec<u8>,
    queries: usize,
    /// Inserted rows, which are the last queries.
    inserted: Inserted,
}

/// Rows that the last merge inserted and that are queries of a calibration.
///
/// If there are few of them in a new region, they hardly count in a sample of all rows. Their recall is therefore
/// measured separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Entries of the rows, ascending.
    pub(super) entries: Vec<u32>,
    /// Whether these are all inserted rows, so that their recall has no sampling error.
    pub(super) whole: bool,
}

/// Recall that a list reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// Mean recall of a query.
    pub(super) at_k: Interval,
    /// Recall that 95 % of the queries reach.
    pub(super) p5: f64,
    /// Number of drawn queries.
    pub(super) queries: u64,
    /// Whether this is the recall of the rows that the last merge inserted, which is reported if it is the lower one.
    pub(super) of_inserted: bool,
}

/// Returns the list after `before` in a ladder. The lists are the powers of two, and these times one and a half.
pub(super) fn next_list(before: Option<usize>) -> usize {
    match before {
        None => SHORTEST,
        Some(list) if list.is_power_of_two() => list / 2 * 3,
        Some(list) => list / 3 * 4,
    }
}

/// Returns the recorded ones of a query's true hits, nearest first.
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
    /// Creates a calibration of queries with `hits_of_query` true hits each, of which `noted` are recorded. No list has
    /// been tried. The last queries are inserted rows.
    pub(super) fn new(walks: u32, hits_of_query: u32, noted: &[Vec<u32>], inserted: Inserted) -> Self {
        let queries = noted.len();
        let noted = noted.concat();
        Self { walks, hits_of_query, lists: Vec::new(), from: vec![0; noted.len()], noted, queries, inserted }
    }

    /// Returns a calibration of unknown recall, which only records the rows that the last merge inserted. A search then
    /// measures the recall with these and the drawn rows.
    pub(super) fn unmeasured(walks: u32, drawn: usize, inserted: Inserted) -> Self {
        Self::new(walks, 0, &vec![Vec::new(); drawn + inserted.entries.len()], inserted)
    }

    /// Returns the queries that are rows inserted by the last merge.
    pub(super) fn inserted(&self) -> &Inserted {
        &self.inserted
    }

    pub(super) fn queries(&self) -> usize {
        self.queries
    }

    /// Returns the number of queries drawn from all rows.
    fn drawn(&self) -> usize {
        self.queries - self.inserted.entries.len()
    }

    /// Returns the calibration restricted to the queries and hits that remain after deletes. `own` has the entry of
    /// each drawn query.
    ///
    /// A query that lost more hits than were recorded beyond `k` has hits that nothing is known about. Returns `None`
    /// if many queries have such hits, or if no query remains.
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
            // Hits that nothing is known about count as missed by every list. The entry of the query stands in for
            // theirs.
            if noted.len() < queries * hits {
                lost += 1;
                noted.resize(queries * hits, entry);
                from.resize(queries * hits, self.lists.len() as u8);
            }
        }
        let mut inserted = self.inserted.clone();
        inserted.entries.retain(|&entry| is_left(entry));
        // A few unknown hits lower the measured recall a little. With many, it would not describe the index.
        let is_enough = queries > inserted.entries.len() && lost * LOST_SHARE <= queries;
        let (walks, hits_of_query, lists) = (self.walks, hits as u32, self.lists.clone());
        is_enough.then_some(Self { walks, hits_of_query, lists, noted, from, queries, inserted })
    }

    pub(super) fn walks(&self) -> u32 {
        self.walks
    }

    /// Returns whether the calibration covers `k` hits per query: all of them are recorded, or `k` is the number that
    /// it was measured with.
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

    /// Adds a longer list. `found` states for all recorded hits, query by query, whether the list finds them.
    pub(super) fn add(&mut self, list: usize, found: &[bool]) {
        assert_eq!(found.len(), self.noted.len(), "one flag per recorded hit");
        assert!(self.longest().is_none_or(|longest| longest < list), "a ladder ascends");
        self.lists.push(list as u32);
        // A hit counts from the list after the last one that misses it.
        let lists = self.lists.len() as u8;
        self.from.iter_mut().zip(found).filter(|(_, found)| !**found).for_each(|(from, _)| *from = lists);
    }

    /// Returns the sample of some queries: for `k` hits of each, the list that finds them.
    fn sample(&self, k: u64, queries: Range<usize>, whole: bool) -> NeighborSample {
        let mut sample = NeighborSample { whole, ..NeighborSample::default() };
        let of_query = self.noted_of_query();
        let hits = k.min(self.hits_of_query.into());
        // If more hits are wanted than are recorded, the recorded ones represent all.
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

    /// Returns the sample of queries drawn from all rows, and the sample of inserted rows, if any. A promise must hold
    /// for both.
    fn samples(&self, k: u64) -> impl Iterator<Item = NeighborSample> {
        let inserted =
            (self.drawn() < self.queries).then(|| self.sample(k, self.drawn()..self.queries, self.inserted.whole));
        std::iter::once(self.sample(k, 0..self.drawn(), false)).chain(inserted)
    }

    /// Returns the shortest list of the ladder that supports the promise, or `None` if no list does.
    ///
    /// A list has at least as many candidates as there are hits to find, so that walks proceed as measured. Two
    /// conditions must hold: the bootstrap accepts the list, and the reported lower bound reaches the recall. One
    /// sample both decides and reports. This is sound because a longer list finds at least as many of the counted hits:
    /// a hit counts from where all longer lists find it. A list that is too short therefore passes no more often than
    /// the longest of the lists that are too short.
    pub(super) fn choose(&self, promise: Promise) -> Option<usize> {
        let Promise { k, recall, seed } = promise;
        let least = k.min(self.hits_of_query.into()).max(SHORTEST as u64) as usize;
        self.samples(k).try_fold(least, |longest, sample| {
            // The threshold is negative infinity if any list finds everything.
            let first = sample.calibrate(recall, seed)?.max(longest as f64);
            let supports = |&list: &f64| sample.recalls(list, seed).per_vector.low >= recall;
            let lists = self.lists.iter().map(|&list| f64::from(list)).filter(|&list| list >= first);
            lists.into_iter().find(supports).map(|list| list as usize)
        })
    }

    /// Returns whether longer lists may come to support the promise, which they would if they found everything.
    pub(super) fn may_support(&self, promise: Promise) -> bool {
        let found = Self { lists: vec![1 << 30], from: vec![0; self.from.len()], ..self.clone() };
        found.choose(promise).is_some()
    }

    /// Returns what a list of the ladder reaches: the lower of the recalls of all rows and of inserted rows.
    pub(super) fn reached(&self, k: u64, list: usize, seed: u64) -> Reached {
        let reached = self.samples(k).enumerate().map(|(number, sample)| {
            let at_k = sample.recalls(list as f64, seed).per_vector;
            let p5 = sample.fifth_percentile(list as f64);
            Reached { at_k, p5, queries: sample.vectors, of_inserted: number > 0 }
        });
        reached.min_by(|a, b| a.at_k.low.total_cmp(&b.at_k.low)).expect("a calibration has a sample")
    }

    /// Encodes the calibration: version of the walks, number of hits, lists, queries and recorded hits per query; then
    /// the lists, the recorded hits, and the position from which on each is found; then the inserted rows, if any.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let noted = self.noted_of_query() as u32;
        let head = [self.walks, self.hits_of_query, self.lists.len() as u32, self.queries as u32, noted];
        let numbers = head.iter().chain(&self.lists).chain(&self.noted);
        let bytes = numbers.flat_map(|number| number.to_le_bytes()).chain(self.from.iter().copied());
        let Inserted { entries, whole } = &self.inserted;
        let inserted = [entries.len() as u32, u32::from(*whole)];
        let inserted = inserted.iter().chain(entries).flat_map(|number| number.to_le_bytes());
        // Nothing is appended without inserted rows; the decoder takes an empty rest as none.
        bytes.chain(inserted.take_while(|_| !entries.is_empty())).collect()
    }

    /// Decodes a calibration that [`Self::to_bytes`] encoded, for an index of `entries` entries. Returns `None` if the
    /// bytes are not valid.
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
            // A position in the ladder is a byte; the length of the ladder means that no list finds the hit.
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

    /// Returns a calibration of queries with `hits` hits each. The list of 40 finds all but the last hit of every
    /// second query. Longer lists find all hits, except that the list of 80 finds none of the last query.
    fn sample(queries: u32, hits: u32) -> Calibration {
        let noted: Vec<Vec<u32>> = (0..queries).map(|query| (query..query + hits).collect()).collect();
        let mut calibration = Calibration::new(7, hits, &noted, Inserted::default());
        let found = |of: &dyn Fn(u32, u32) -> bool| -> Vec<bool> {
            (0..queries).flat_map(|query| (0..hits).map(move |hit| of(query, hit))).collect()
        };
        calibration.add(40, &found(&|query, hit| query % 2 == 0 || hit + 1 < hits));
        calibration.add(60, &found(&|_, _| true));
        calibration.add(80, &found(&|query, _| query + 1 < queries));
        calibration.add(120, &found(&|_, _| true));
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
        // Of 2,000 drawn rows and 100 inserted ones, a list of 40 finds all hits of the former and half of the hits of
        // the latter.
        let noted: Vec<Vec<u32>> = (0..2_100).map(|query| (query..query + 10).collect()).collect();
        let inserted = Inserted { entries: (500..600).collect(), whole: true };
        let mut calibration = Calibration::new(7, 10, &noted, inserted);
        calibration.add(40, &(0..21_000).map(|hit| hit < 20_000 || hit % 2 == 0).collect::<Vec<_>>());
        assert_eq!(calibration.choose(promise(10, 0.4)), Some(40));
        assert_eq!(calibration.choose(promise(10, 0.9)), None);
        let reached = calibration.reached(10, 40, 1);
        assert!(reached.of_inserted && (reached.at_k.low, reached.queries) == (0.5, 100), "{reached:?}");
        calibration.add(60, &[true; 21_000]);
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
        // Without the queries that need a longer list, the shortest list finds all hits.
        let left = calibration.of_left(9, &own, |entry| entry % 2 == 0 || entry >= 2_000);
        assert!(left.is_none(), "each query has lost half of its hits");
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
    fn a_hit_counts_for_a_list_if_all_longer_lists_find_it() {
        let calibration = sample(2, 1);
        // List 8 misses the hit of the last query, so list 6 does not count either.
        assert_eq!(calibration.from, [0, 3]);
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
