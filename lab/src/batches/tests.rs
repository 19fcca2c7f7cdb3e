use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use adjoin::lab::plan::batch::{self, BatchPlan, BatchStep, BucketCosts};

use super::*;

/// Creates a cache for `buckets` buckets of size 1. `capacity` of them fit at the same time.
fn entries(retention: Retention, capacity: u64, buckets: usize) -> Residency {
    Residency::new(retention, capacity, BucketCosts { sizes: vec![1; buckets], reads: vec![1.0; buckets] })
}

/// Returns five queries. The first, third and fifth are similar, and so are the second and fourth.
fn alternating() -> Vec<Vec<u32>> {
    vec![vec![0, 1, 2], vec![4, 5], vec![1, 2, 0], vec![5, 3, 4], vec![2, 1]]
}

fn printed(order: &str, retention: Retention) -> String {
    let mut cache = entries(retention, 3, 6);
    plan_batch(order.parse().unwrap(), &alternating(), &mut cache, 0.0).to_string()
}

#[test]
fn a_plan_in_arrival_order_loads_buckets_repeatedly() {
    let plan = printed("arrival", Retention::Lru);
    let expected = "\
uses 13, misses 12, prefetched 0, loads 12
   1  load 0
   1  load 1
   1  load 2
      compare 0 with 0
      compare 1 with 0
      compare 2 with 0
      evict 0
   3  load 4
      evict 1
   3  load 5
      compare 4 with 1
      compare 5 with 1
";
    assert!(plan.starts_with(expected), "{plan}");
}

#[test]
fn a_plan_of_groups_prefetches_at_their_border() {
    let plan = printed("call", Retention::Lru);
    let expected = "\
uses 13, misses 4, prefetched 2, loads 6
   1  load 0
   1  load 1
   1  load 2
      compare 0 with 0
      compare 1 with 0
      compare 2 with 0
      compare 1 with 2
      compare 2 with 2
      compare 0 with 2
      compare 2 with 4
      compare 1 with 4
      evict 0
   6  load 4
      evict 2
   6  load 5
      compare 4 with 1
      compare 5 with 1
      evict 1
   9  load 3
      compare 5 with 3
      compare 4 with 3
      compare 3 with 3
";
    assert_eq!(plan, expected);
    assert!(printed("grouped", Retention::Lru).starts_with("uses 13, misses 6, prefetched 0, loads 6\n"));
}

/// Returns the smallest number of loads for queries that are answered one after another, over all choices of buckets
/// to keep. Tries all choices: `held` maps each possible set of cached buckets, as bits, to its smallest number of
/// loads.
fn least_loads(queries: &[Vec<u32>], capacity: u32) -> u64 {
    let mut held = BTreeMap::from([(0, 0)]);
    for query in queries {
        let needed: u32 = query.iter().map(|bucket| 1 << bucket).sum();
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        for (held, loads) in held {
            let (all, loads) = (held | needed, loads + u64::from((needed & !held).count_ones()));
            let fits = |set: &u32| set & !all == 0 && set & needed == needed && set.count_ones() <= capacity;
            for set in (0..64).filter(fits) {
                let least = next.entry(set).or_insert(loads);
                *least = loads.min(*least);
            }
        }
        held = next;
    }
    held.into_values().min().unwrap_or(0)
}

fn lists(buckets: u32, most: usize) -> impl Strategy<Value = Vec<Vec<u32>>> {
    let list = prop::collection::btree_set(0..buckets, 1..=most).prop_map(|list| list.into_iter().collect());
    prop::collection::vec(list, 1..7)
}

/// Returns the pairs of a bucket and a query that a plan compares.
fn compared(plan: &BatchPlan, lists: &[Vec<u32>]) -> Vec<(u32, u32)> {
    let of = |step: &BatchStep| match *step {
        BatchStep::Compare { bucket, query: Some(query) } => vec![(bucket, query)],
        BatchStep::Compare { bucket, query: None } => {
            let queries = (0..).zip(lists).filter(|(_, list)| list.contains(&bucket));
            queries.map(|(query, _)| (bucket, query)).collect()
        }
        _ => Vec::new(),
    };
    let mut compared: Vec<_> = plan.steps.iter().flat_map(of).collect();
    compared.sort_unstable();
    compared
}

proptest! {
    #[test]
    fn every_plan_compares_all_queries_with_loaded_buckets(
        batches in prop::collection::vec(lists(9, 9), 1..4),
        sizes in prop::collection::vec(1u64..7, 9),
    ) {
        for (order, retention) in BatchOrder::ALL.into_iter().flat_map(|order| Retention::ALL.map(|retention| (order, retention))) {
            let costs = BucketCosts { sizes: sizes.clone(), reads: sizes.iter().map(|&size| size as f64).collect() };
            let (mut cache, mut held) = (Residency::new(retention, 12, costs), BTreeSet::new());
            for (at, lists) in batches.iter().enumerate() {
                let plan = plan_batch(order, lists, &mut cache, 70.0 * at as f64);
                let mut wanted: Vec<_> = (0..).zip(lists).flat_map(|(query, list)| list.iter().map(move |&bucket| (bucket, query))).collect();
                wanted.sort_unstable();
                prop_assert_eq!(compared(&plan, lists), wanted, "{:?} {:?}", order, retention);
                let (mut last_turn, mut loads) = (0, 0);
                for step in &plan.steps {
                    match *step {
                        BatchStep::Load { bucket, turn } => {
                            prop_assert!(held.insert(bucket) && turn >= last_turn);
                            (last_turn, loads) = (turn, loads + 1);
                        }
                        BatchStep::Evict(bucket) => prop_assert!(held.remove(&bucket)),
                        BatchStep::Compare { bucket, .. } => prop_assert!(held.contains(&bucket)),
                    }
                    prop_assert!(held.iter().map(|&bucket| sizes[bucket as usize]).sum::<u64>() <= 12);
                }
                prop_assert_eq!(plan.counts.loads, loads);
                prop_assert_eq!(plan.counts.uses, lists.iter().map(|list| list.len() as u64).sum::<u64>());
                prop_assert!(hit_rate(&plan.counts, false) <= hit_rate(&plan.counts, true));
            }
        }
    }

    #[test]
    fn foreseen_retention_has_the_fewest_loads(lists in lists(6, 3), capacity in 3u32..6) {
        let mut cache = entries(Retention::Foreseen, capacity.into(), 6);
        let plan = plan_batch(BatchOrder::Arrival, &lists, &mut cache, 0.0);
        prop_assert_eq!(plan.counts.loads, least_loads(&lists, capacity));
    }

    /// Checks that the order and the cache that stand for the engine give the plan of the engine.
    #[test]
    fn bucket_major_order_with_foreseen_cache_equals_the_engine_plan(
        batches in prop::collection::vec(lists(9, 9), 1..4),
        sizes in prop::collection::vec(1u64..7, 9),
    ) {
        let costs = BucketCosts { sizes: sizes.clone(), reads: sizes.iter().map(|&size| 3.0 + size as f64).collect() };
        let mut cache = Residency::new(Retention::Foreseen, 12, costs.clone());
        let mut of_engine = batch::Residency::new(12, costs);
        for lists in &batches {
            let plan = plan_batch(BatchOrder::BucketMajor, lists, &mut cache, 0.0);
            prop_assert_eq!(plan, batch::plan_batch(lists, &mut of_engine));
        }
    }
}
