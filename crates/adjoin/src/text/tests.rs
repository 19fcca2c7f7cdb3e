//! Compares the removed texts with an oracle that compares all pairs.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::context::Context;
use crate::base::random::Random;
use crate::base::sorter::Sorter;

/// Removed rows, each with its kept row and the similarity of both.
type Removed = BTreeMap<u64, (u64, f32)>;

/// Returns texts in groups of variants: some words of a text are replaced, and some variants are equal.
fn texts(rows: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed, "texts");
    let mut texts: Vec<Vec<u64>> = Vec::new();
    for _ in 0..rows {
        let is_variant = !texts.is_empty() && random.below(3) > 0;
        let mut words = match is_variant {
            true => texts[random.below(texts.len() as u64) as usize].clone(),
            false => (0..1 + random.below(60)).map(|_| random.below(1_000)).collect(),
        };
        if is_variant {
            for _ in 0..random.below(4) {
                let at = random.below(words.len() as u64) as usize;
                words[at] = random.below(1_000);
            }
        }
        texts.push(words);
    }
    texts.iter().map(|words| words.iter().map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ")).collect()
}

fn sets(texts: &[String]) -> Vec<Vec<u64>> {
    let shingling = Shingling::new(ShingleUnit::Words, Some(2)).unwrap();
    texts.iter().map(|text| shingling.set_of(text)).collect()
}

fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    let [a, b] = [a, b].map(|set| set.iter().collect::<BTreeSet<_>>());
    a.intersection(&b).count() as f64 / a.union(&b).count() as f64
}

/// Removes rows in the order of `places` by the definition.
fn oracle(sets: &[Vec<u64>], places: &[u64], never_removed: u64, min_jaccard: f64) -> Removed {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|&row| places[row]);
    let (mut kept, mut removed) = (Vec::<usize>::new(), Removed::new());
    for row in order {
        let mut best: Option<(usize, f64)> = None;
        for &other in &kept {
            let similarity = jaccard(&sets[row], &sets[other]);
            if similarity >= min_jaccard && best.is_none_or(|(_, known)| similarity > known) {
                best = Some((other, similarity));
            }
        }
        match best.filter(|_| places[row] >= never_removed) {
            Some((other, similarity)) => drop(removed.insert(row as u64, (other as u64, similarity as f32))),
            None => kept.push(row),
        }
    }
    removed
}

/// Parameters of a search.
struct Search<'a> {
    sets: &'a [Vec<u64>],
    places: &'a [u64],
    never_removed: u64,
    min_jaccard: f64,
    recall: f64,
    threads: usize,
    /// Memory in addition to the least memory.
    kept_bytes: u64,
}

impl Search<'_> {
    fn run(&self) -> (Removed, Compared) {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::default().with_threads(self.threads);
        let mut counts = ShingleCounts::new(self.min_jaccard);
        let mut sorter = Sorter::new(&context, folder.path(), 0);
        let (mut bytes, mut set_bytes) = (Vec::new(), 0);
        for (row, set) in self.sets.iter().enumerate() {
            counts.add(set);
            set_bytes = set_bytes.max(8 * set.len() as u64);
            Record::new(self.places[row], row as u64, set.clone()).push_to(&mut sorter, &mut bytes).unwrap();
        }
        let scheme = Scheme::choose(self.min_jaccard, self.recall, 0.0, counts, 1).unwrap();
        let least = GreedyTexts::kept_bytes_min(&scheme, set_bytes, self.threads);
        let search = GreedyTexts {
            context: &context,
            at: folder.path(),
            scheme: &scheme,
            min_jaccard: self.min_jaccard,
            never_removed: self.never_removed,
            set_bytes,
            kept_bytes: least + self.kept_bytes,
            sorter_bytes: 0,
        };
        let mut removed = Removed::new();
        let remove = |row, kept, similarity| {
            assert_eq!(removed.insert(row, (kept, similarity)), None, "row {row} is removed twice");
            Ok(())
        };
        let compared = search.decide(sorter.finish().unwrap(), remove).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "temporary files are removed");
        (removed, compared)
    }
}

/// Returns an order of rows that is not their own.
fn shuffled(rows: usize) -> Vec<u64> {
    let mut places: Vec<u64> = (0..rows as u64).collect();
    Random::new(1, "places").shuffle(&mut places);
    places
}

#[test]
fn exact_searches_match_the_oracle_with_any_memory_and_threads() {
    let mut spilled = 0;
    for (seed, min_jaccard) in [(1, 0.3), (2, 0.5), (3, 0.8), (4, 1.0)] {
        let sets = sets(&texts(600, seed));
        for (places, never_removed) in [((0..600).collect(), 0), (shuffled(600), 0), (shuffled(600), 40)] {
            let expected = oracle(&sets, &places, never_removed, min_jaccard);
            assert!(expected.len() > 20, "{}", expected.len());
            let run = |threads, kept_bytes| {
                let search = Search {
                    sets: &sets,
                    places: &places,
                    never_removed,
                    min_jaccard,
                    recall: 1.0,
                    threads,
                    kept_bytes,
                };
                search.run()
            };
            let (removed, all) = run(1, 64 << 20);
            assert_eq!(removed, expected, "{min_jaccard}");
            assert_eq!(all.passes, 1);
            for threads in [1, 3] {
                // The least memory does not hold all kept texts.
                let (removed, compared) = run(threads, 0);
                assert_eq!(removed, expected, "{min_jaccard} with {threads} threads");
                assert_eq!((compared.pairs, compared.near_pairs), (all.pairs, all.near_pairs));
                assert!(compared.passes > 1, "{compared:?}");
                spilled += compared.spilled;
            }
        }
    }
    assert!(spilled > 0, "no sets were written to disk");
}

#[test]
fn bands_compare_pairs_at_the_threshold_with_the_promised_recall() {
    const PAIRS: u64 = 2_000;
    let mut random = Random::new(5, "pairs");
    for (min_jaccard, recall) in [(0.5, 0.9), (0.8, 0.95), (0.9, 0.99)] {
        // Each pair has 100 shingles in all, of which both sets have the fraction `min_jaccard`.
        let common = (100.0 * min_jaccard) as usize;
        let mut sets = Vec::new();
        for _ in 0..PAIRS {
            let all: Vec<u64> = (0..100).map(|_| random.below(u64::MAX)).collect();
            let own = common + (100 - common) / 2;
            let second = [&all[..common], &all[own..]].concat();
            for mut set in [all[..own].to_vec(), second] {
                set.sort_unstable();
                sets.push(set);
            }
        }
        let places: Vec<u64> = (0..2 * PAIRS).collect();
        let search = Search {
            sets: &sets,
            places: &places,
            never_removed: 0,
            min_jaccard,
            recall,
            threads: 2,
            kept_bytes: 64 << 20,
        };
        let (removed, _) = search.run();
        // Three standard deviations of a fraction of this many pairs.
        let deviation = 3.0 * (recall * (1.0 - recall) / PAIRS as f64).sqrt();
        let found = removed.len() as f64 / PAIRS as f64;
        assert!(found >= recall - deviation, "{found} of {recall} at {min_jaccard}");
        assert!(removed.iter().all(|(row, (kept, _))| *kept == row - 1));
    }
}

#[test]
fn many_near_texts_take_one_comparison_each() {
    let template: Vec<String> =
        (0..20_000).map(|k| format!("order {k} was sent to you and will arrive soon")).collect();
    let sets = sets(&template);
    let places: Vec<u64> = (0..sets.len() as u64).collect();
    for recall in [0.95, 1.0] {
        let search = Search {
            sets: &sets,
            places: &places,
            never_removed: 0,
            min_jaccard: 0.6,
            recall,
            threads: 2,
            kept_bytes: 64 << 20,
        };
        let (removed, compared) = search.run();
        assert!(removed.len() as f64 >= recall * (sets.len() - 1) as f64, "{} at {recall}", removed.len());
        assert!(compared.pairs < 2 * sets.len() as u64, "{compared:?}");
    }
}
