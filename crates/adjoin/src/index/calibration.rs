//! How long must the lists of walks be? For drawn queries, whose true hits are known, a ladder of lists, and for each hit the
//! shortest of these from which on all of them find it. So the shortest list that finds enough for any k is looked up.

use std::ops::Range;

use crate::random::Random;
use crate::report::Interval;
use crate::truth::NeighborSample;

/// The shortest list of a ladder.
const SHORTEST: usize = 4;
/// Hits of a query that are noted; of more, so many are drawn.
pub(super) const NOTED: usize = 100;
const NUMBER_BYTES: usize = size_of::<u32>();
const HEAD_NUMBERS: usize = 5;
/// At most one of so many queries may have lost hits of which it is not known what replaces them.
const LOST_SHARE: usize = 100;
/// Numbers before the entries of inserted rows: how many these are, and whether they are all that were inserted.
const INSERTED_NUMBERS: usize = 2;

/// What walks for drawn queries found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calibration {
    /// Which walks these were ([`super::walk::WALKS`]).
    walks: u32,
    /// True hits of a query: the nearest of all others.
    hits_of_query: u32,
    /// The ladder so far, ascending.
    lists: Vec<u32>,
    /// For each query the entries of its true hits that are noted, the nearest first where these are all; and for each of them
    /// the place in the ladder from which on it is found, the length of the ladder where it is not found at its end.
    noted: Vec<u32>,
    from: Vec<u8>,
    queries: usize,
    /// The last queries are rows that a merge has inserted.
    inserted: Inserted,
}

/// Rows that the last merge has inserted and that are queries of a calibration. Few rows of a region that is new hardly count among
/// rows drawn of all, so that their recall is measured apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Their entries, ascending.
    pub(super) entries: Vec<u32>,
    /// Whether these are all rows that were inserted, so that nothing about them is left to chance.
    pub(super) whole: bool,
}

/// What a list reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// The mean recall of a query.
    pub(super) at_k: Interval,
    /// The recall that 95 % of the queries reach.
    pub(super) p5: f64,
    /// Queries that were drawn.
    pub(super) queries: u64,
    /// Whether that is the recall of the rows that the last merge inserted, which is lower than that of all.
    pub(super) of_inserted: bool,
}

/// The list that follows on one in a ladder: powers of two, and one and a half times these.
pub(super) fn next_list(before: Option<usize>) -> usize {
    match before {
        None => SHORTEST,
        Some(list) if list.is_power_of_two() => list / 2 * 3,
        Some(list) => list / 3 * 4,
    }
}

/// Of the true hits of a query, nearest first, those that are noted.
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
    /// Of queries that have so many true hits, of which these are noted; no list has been tried. The last queries are inserted rows.
    pub(super) fn new(walks: u32, hits_of_query: u32, noted: &[Vec<u32>], inserted: Inserted) -> Self {
        let queries = noted.len();
        let noted = noted.concat();
        Self { walks, hits_of_query, lists: Vec::new(), from: vec![0; noted.len()], noted, queries, inserted }
    }

    /// Returns a calibration of unknown recall, which only says which rows the last merge inserted: a search measures it by these
    /// and by the drawn ones.
    pub(super) fn unmeasured(walks: u32, drawn: usize, inserted: Inserted) -> Self {
        Self::new(walks, 0, &vec![Vec::new(); drawn + inserted.entries.len()], inserted)
    }

    /// The queries that are rows which the last merge inserted.
    pub(super) fn inserted(&self) -> &Inserted {
        &self.inserted
    }

    /// How many queries there are.
    pub(super) fn queries(&self) -> usize {
        self.queries
    }

    /// Queries that were drawn of all rows.
    fn drawn(&self) -> usize {
        self.queries - self.inserted.entries.len()
    }

    /// Returns the calibration by the queries and hits that are left after deletes, given the entry of each drawn query. A query that
    /// has lost more hits than were noted beyond `k` misses what replaces them, of which nothing is known. `None` if that is so for
    /// many queries, or none is left.
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
            if noted.len() < queries * hits {
                lost += 1;
                noted.resize(queries * hits, entry);
                from.resize(queries * hits, self.lists.len() as u8);
            }
        }
        let mut inserted = self.inserted.clone();
        inserted.entries.retain(|&entry| is_left(entry));
        let is_enough = queries > inserted.entries.len() && lost * LOST_SHARE <= queries;
        let (walks, hits_of_query, lists) = (self.walks, hits as u32, self.lists.clone());
        is_enough.then_some(Self { walks, hits_of_query, lists, noted, from, queries, inserted })
    }

    /// Which walks these were.
    pub(super) fn walks(&self) -> u32 {
        self.walks
    }

    /// Whether all that a query is to find is noted where it is to find so many.
    pub(super) fn serves(&self, k: u64) -> bool {
        let known = u64::from(self.hits_of_query);
        k == known || (k < known && self.noted_of_query() == self.hits_of_query as usize)
    }

    /// True hits of a query.
    pub(super) fn hits_of_query(&self) -> u32 {
        self.hits_of_query
    }

    /// The longest list that was tried.
    pub(super) fn longest(&self) -> Option<usize> {
        self.lists.last().map(|&list| list as usize)
    }

    fn noted_of_query(&self) -> usize {
        self.noted.len().checked_div(self.queries).unwrap_or(0)
    }

    /// The noted hits of a query.
    pub(super) fn noted(&self, query: usize) -> &[u32] {
        &self.noted[query * self.noted_of_query()..][..self.noted_of_query()]
    }

    /// Adds a longer list, and for all noted hits, query by query, whether it finds them.
    pub(super) fn add(&mut self, list: usize, found: &[bool]) {
        assert_eq!(found.len(), self.noted.len(), "of each hit is said whether it is found");
        assert!(self.longest().is_none_or(|longest| longest < list), "a ladder ascends");
        self.lists.push(list as u32);
        let lists = self.lists.len() as u8;
        self.from.iter_mut().zip(found).filter(|(_, found)| !**found).for_each(|(from, _)| *from = lists);
    }

    /// Some of the queries, each of `k` of its hits with the list that finds it.
    fn sample(&self, k: u64, queries: Range<usize>, whole: bool) -> NeighborSample {
        let mut sample = NeighborSample { whole, ..NeighborSample::default() };
        let of_query = self.noted_of_query();
        let hits = k.min(self.hits_of_query.into());
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

    /// The queries that were drawn of all rows, and those that were inserted, if any: a promise holds for both.
    fn samples(&self, k: u64) -> impl Iterator<Item = NeighborSample> {
        let inserted =
            (self.drawn() < self.queries).then(|| self.sample(k, self.drawn()..self.queries, self.inserted.whole));
        std::iter::once(self.sample(k, 0..self.drawn(), false)).chain(inserted)
    }

    /// Returns the shortest list of the ladder that supports the promise. `None` if no list does.
    ///
    /// A list holds at least as many candidates as hits are wanted, so that walks go as far as was measured. The bootstrap must be
    /// content, and the lower bound that is reported must reach the recall. One sample decides and reports: a
    /// longer list finds at least as much of it, as hits count from where all longer lists find them, so that a list that is too short
    /// passes no more often than the longest of those that are.
    pub(super) fn choose(&self, k: u64, (recall, seed): (f64, u64)) -> Option<usize> {
        let least = k.min(self.hits_of_query.into()).max(SHORTEST as u64) as usize;
        self.samples(k).try_fold(least, |longest, sample| {
            // Where everything is found by any list there is no threshold.
            let first = sample.calibrate(recall, seed)?.max(longest as f64);
            let supports = |&list: &f64| sample.recalls(list, seed).per_vector.low >= recall;
            let lists = self.lists.iter().map(|&list| f64::from(list)).filter(|&list| list >= first);
            lists.into_iter().find(supports).map(|list| list as usize)
        })
    }

    /// Whether a ladder that goes on may come to support the promise: it would, if it found everything.
    pub(super) fn may_support(&self, k: u64, (recall, seed): (f64, u64)) -> bool {
        let found = Self { lists: vec![1 << 30], from: vec![0; self.from.len()], ..self.clone() };
        found.choose(k, (recall, seed)).is_some()
    }

    /// What a list of the ladder reaches: the lower recall, that of all rows or of those that were inserted.
    pub(super) fn reached(&self, k: u64, list: usize, seed: u64) -> Reached {
        let reached = self.samples(k).enumerate().map(|(number, sample)| {
            let at_k = sample.recalls(list as f64, seed).per_vector;
            let p5 = sample.fifth_percentile(list as f64);
            Reached { at_k, p5, queries: sample.vectors, of_inserted: number > 0 }
        });
        reached.min_by(|a, b| a.at_k.low.total_cmp(&b.at_k.low)).expect("there is a sample")
    }

    /// Which walks, how many hits, lists, queries and noted hits; the lists, the noted hits, and from which list on each is found;
    /// then the inserted rows, if there are any.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let noted = self.noted_of_query() as u32;
        let head = [self.walks, self.hits_of_query, self.lists.len() as u32, self.queries as u32, noted];
        let numbers = head.iter().chain(&self.lists).chain(&self.noted);
        let bytes = numbers.flat_map(|number| number.to_le_bytes()).chain(self.from.iter().copied());
        let Inserted { entries, whole } = &self.inserted;
        let inserted = [entries.len() as u32, u32::from(*whole)];
        let inserted = inserted.iter().chain(entries).flat_map(|number| number.to_le_bytes());
        bytes.chain(inserted.take_while(|_| !entries.is_empty())).collect()
    }

    /// What [`Self::to_bytes`] wrote for an index of so many entries; none where these are not such bytes.
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

    /// Queries of which each has `hits` hits; the list of 40 finds all but the last hit of every second one, longer lists all, but
    /// that of 80 none of the last query.
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
    fn the_shortest_list_that_finds_enough_is_chosen_for_any_k() {
        let calibration = sample(2_000, 10);
        assert_eq!(calibration.choose(10, (0.8, 1)), Some(40));
        assert_eq!(calibration.choose(10, (0.97, 1)), Some(60));
        assert_eq!(calibration.choose(9, (0.97, 1)), Some(40), "the last hit is not wanted");
        assert_eq!(calibration.choose(10, (0.9999, 1)), None);
        assert!(!calibration.may_support(10, (0.9999, 1)) && calibration.may_support(10, (0.99, 1)));
        let reached = calibration.reached(10, 40, 1);
        assert!((reached.at_k.estimate - 0.95).abs() < 0.01 && reached.p5 == 0.9, "{reached:?}");
        assert!(calibration.serves(10) && calibration.serves(3) && !calibration.serves(11));
    }

    #[test]
    fn rows_that_were_inserted_must_be_found_as_well_as_all() {
        // Of 2,000 drawn rows and 100 inserted ones, a list of 40 finds all hits of the former and half of those of the latter.
        let noted: Vec<Vec<u32>> = (0..2_100).map(|query| (query..query + 10).collect()).collect();
        let inserted = Inserted { entries: (500..600).collect(), whole: true };
        let mut calibration = Calibration::new(7, 10, &noted, inserted);
        calibration.add(40, &(0..21_000).map(|hit| hit < 20_000 || hit % 2 == 0).collect::<Vec<_>>());
        assert_eq!(calibration.choose(10, (0.4, 1)), Some(40));
        assert_eq!(calibration.choose(10, (0.9, 1)), None);
        let reached = calibration.reached(10, 40, 1);
        assert!(reached.of_inserted && (reached.at_k.low, reached.queries) == (0.5, 100), "{reached:?}");
        calibration.add(60, &[true; 21_000]);
        assert_eq!(calibration.choose(10, (0.9, 1)), Some(60));
        assert_eq!(Calibration::from_bytes(&calibration.to_bytes(), 2_110), Some(calibration));
        let unmeasured = Calibration::unmeasured(7, 2_000, Inserted { entries: (500..600).collect(), whole: true });
        assert!(!unmeasured.serves(10) && unmeasured.queries() == 2_100);
        assert_eq!(Calibration::from_bytes(&unmeasured.to_bytes(), 2_110), Some(unmeasured));
    }

    #[test]
    fn what_was_deleted_is_neither_query_nor_hit() {
        let calibration = sample(2_000, 10);
        let own: Vec<u32> = (0..2_000).collect();
        // Without the queries of which only longer lists find all hits, the shortest list does.
        let left = calibration.of_left(9, &own, |entry| entry % 2 == 0 || entry >= 2_000);
        assert!(left.is_none(), "each query has lost half of its hits");
        let left = calibration.of_left(3, &own, |entry| entry % 2 == 0).unwrap();
        assert_eq!((left.queries, left.noted(0)), (1_000, &[0, 2, 4][..]));
        assert_eq!(left.choose(3, (0.9, 1)), Some(40));
        assert!(calibration.of_left(3, &own, |_| false).is_none());
    }

    #[test]
    fn what_is_chosen_has_a_lower_bound_that_reaches_the_recall() {
        for (queries, k, recall) in [(300, 2, 0.95), (1_000, 2, 0.95), (1_000, 10, 0.97), (4_000, 10, 0.95)] {
            let calibration = sample(queries, 10);
            let Some(list) = calibration.choose(k, (recall, 1)) else { continue };
            let reached = calibration.reached(k, list, 1);
            assert!(reached.at_k.low >= recall, "{queries} {k}: {reached:?}");
        }
    }

    #[test]
    fn a_hit_counts_from_where_all_longer_lists_find_it() {
        let calibration = sample(2, 1);
        // Of the last query 8 does not find the hit, so 6 does not count either.
        assert_eq!(calibration.from, [0, 3]);
    }

    #[test]
    fn of_many_hits_some_stand_for_all() {
        let all: Vec<u32> = (0..1_000).collect();
        let some = noted(all.clone(), 1);
        assert!(some.len() == NOTED && some.is_sorted() && some != noted(all, 2));
        let calibration = Calibration::new(7, 1_000, &[some.clone(), some], Inserted::default());
        assert!(calibration.serves(1_000) && !calibration.serves(10));
        assert_eq!(calibration.sample(1_000, 0..2, false).neighbors, [(1_000, 100), (1_000, 200)]);
    }

    #[test]
    fn a_ladder_ascends_by_a_half_or_a_third() {
        let lists: Vec<usize> =
            std::iter::successors(Some(next_list(None)), |&list| Some(next_list(Some(list)))).take(8).collect();
        assert_eq!(lists, [4, 6, 8, 12, 16, 24, 32, 48]);
    }

    #[test]
    fn bytes_come_back_and_what_cannot_be_is_refused() {
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
                    let list = other.choose(3, (0.5, 1)).or(other.longest()).unwrap_or(1);
                    assert!(other.reached(3, list, 1).at_k.estimate <= 1.0);
                }
            }
        }
    }
}
