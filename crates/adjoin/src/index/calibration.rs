//! How long must the lists of walks be? For drawn queries, whose true hits are known, a ladder of lists, and for each hit the
//! shortest of these from which on all of them find it. So the shortest list that finds enough for any k is looked up.

use crate::random::Random;
use crate::report::Interval;
use crate::truth::{NeighbourSample, setting_half};

/// The shortest list of a ladder.
const SHORTEST: usize = 4;
/// Hits of a query that are noted; of more, so many are drawn.
pub(super) const NOTED: usize = 100;
const NUMBER_BYTES: usize = size_of::<u32>();
const HEAD_NUMBERS: usize = 5;

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
}

/// What a list reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// The mean recall of a query.
    pub(super) at_k: Interval,
    /// The recall that 95 % of the queries reach.
    pub(super) p5: f64,
    /// Queries that were drawn, half of which say that.
    pub(super) queries: u64,
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
    /// Of queries that have so many true hits, of which these are noted; no list has been tried.
    pub(super) fn new(walks: u32, hits_of_query: u32, noted: &[Vec<u32>]) -> Self {
        let queries = noted.len();
        let noted = noted.concat();
        Self { walks, hits_of_query, lists: Vec::new(), from: vec![0; noted.len()], noted, queries }
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
    fn sample(&self, k: u64, takes: impl Fn(usize) -> bool) -> NeighbourSample {
        let mut sample = NeighbourSample::default();
        let of_query = self.noted_of_query();
        let hits = k.min(self.hits_of_query.into());
        let counted = of_query.min(hits as usize);
        for query in (0..self.queries).filter(|&query| takes(query)) {
            sample.vectors += 1;
            let from = &self.from[query * of_query..][..counted];
            let list = |&from: &u8| self.lists.get(usize::from(from)).map_or(f32::INFINITY, |&list| list as f32);
            sample.pair_ts.extend(from.iter().map(list));
            if hits > 0 {
                sample.neighbours.push((hits, sample.pair_ts.len() as u32));
            }
        }
        sample
    }

    /// The shortest list of the ladder by which one half of the queries support the promise; none where none does.
    pub(super) fn choose(&self, k: u64, (recall, seed): (f64, u64)) -> Option<usize> {
        let sets = setting_half(self.queries, seed);
        let list = self.sample(k, |query| sets[query]).calibrate(recall, seed)?;
        // Where everything is found by any list there is no threshold.
        Some(list.max(SHORTEST as f64) as usize)
    }

    /// Whether a ladder that goes on may come to support the promise: it would, if it found everything.
    pub(super) fn may_support(&self, k: u64, (recall, seed): (f64, u64)) -> bool {
        let found = Self { lists: vec![SHORTEST as u32], from: vec![0; self.from.len()], ..self.clone() };
        found.choose(k, (recall, seed)).is_some()
    }

    /// What a list of the ladder reaches, by the other half.
    pub(super) fn reached(&self, k: u64, list: usize, seed: u64) -> Reached {
        let sets = setting_half(self.queries, seed);
        let aside = self.sample(k, |query| !sets[query]);
        let at_k = aside.recalls(list as f64, seed).per_vector;
        Reached { at_k, p5: aside.fifth_percentile(list as f64), queries: self.queries as u64 }
    }

    /// Which walks, how many hits, lists, queries and noted hits; the lists, the noted hits, and from which list on each is found.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let noted = self.noted_of_query() as u32;
        let head = [self.walks, self.hits_of_query, self.lists.len() as u32, self.queries as u32, noted];
        let numbers = head.iter().chain(&self.lists).chain(&self.noted);
        numbers.flat_map(|number| number.to_le_bytes()).chain(self.from.iter().copied()).collect()
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
        let from = rest.to_vec();
        let holds = [
            lists.len() < usize::from(u8::MAX),
            lists.is_sorted_by(|a, b| a < b),
            lists.first().is_none_or(|&first| first > 0) && queries as u64 <= entries,
            u64::from(hits_of_query) <= entries && of_query as usize == NOTED.min(hits_of_query as usize),
            noted.iter().all(|&entry| u64::from(entry) < entries),
            from.len() == noted.len() && from.iter().all(|&from| usize::from(from) <= lists.len()),
        ];
        holds.iter().all(|&holds| holds).then_some(Self { walks, hits_of_query, lists, noted, from, queries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries of which each has `hits` hits; the list of four finds all but the last hit of every second one, longer lists
    /// all, but that of eight none of the last query.
    fn sample(queries: u32, hits: u32) -> Calibration {
        let noted: Vec<Vec<u32>> = (0..queries).map(|query| (query..query + hits).collect()).collect();
        let mut calibration = Calibration::new(7, hits, &noted);
        let found = |of: &dyn Fn(u32, u32) -> bool| -> Vec<bool> {
            (0..queries).flat_map(|query| (0..hits).map(move |hit| of(query, hit))).collect()
        };
        calibration.add(4, &found(&|query, hit| query % 2 == 0 || hit + 1 < hits));
        calibration.add(6, &found(&|_, _| true));
        calibration.add(8, &found(&|query, _| query + 1 < queries));
        calibration.add(12, &found(&|_, _| true));
        calibration
    }

    #[test]
    fn the_shortest_list_that_finds_enough_is_chosen_for_any_k() {
        let calibration = sample(2_000, 10);
        assert_eq!(calibration.choose(10, (0.8, 1)), Some(4));
        assert_eq!(calibration.choose(10, (0.97, 1)), Some(6));
        assert_eq!(calibration.choose(9, (0.97, 1)), Some(4), "the last hit is not wanted");
        assert_eq!(calibration.choose(10, (0.9999, 1)), None);
        assert!(!calibration.may_support(10, (0.9999, 1)) && calibration.may_support(10, (0.99, 1)));
        let reached = calibration.reached(10, 4, 1);
        assert!((reached.at_k.estimate - 0.95).abs() < 0.01 && reached.p5 == 0.9, "{reached:?}");
        assert!(calibration.serves(10) && calibration.serves(3) && !calibration.serves(11));
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
        let calibration = Calibration::new(7, 1_000, &[some.clone(), some]);
        assert!(calibration.serves(1_000) && !calibration.serves(10));
        assert_eq!(calibration.sample(1_000, |_| true).neighbours, [(1_000, 100), (1_000, 200)]);
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
