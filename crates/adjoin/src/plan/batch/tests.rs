use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Creates a cache for `buckets` buckets of equal size, `capacity` of which fit.
fn entries(capacity: u64, buckets: usize) -> Residency {
    Residency::new(capacity, BucketCosts { sizes: vec![1; buckets], reads: vec![1.0; buckets] })
}

/// Returns five queries. The first, third and fifth are similar to each other, and so are the second and the fourth.
fn alternating() -> Vec<Vec<u32>> {
    vec![vec![0, 1, 2], vec![4, 5], vec![1, 2, 0], vec![5, 3, 4], vec![2, 1]]
}

#[test]
fn a_batch_plan_loads_each_bucket_once_and_starts_with_cached_ones() {
    let mut cache = entries(3, 6);
    let plan = plan_batch(&alternating(), &mut cache);
    let expected = "\
uses 13, misses 6, prefetched 0, loads 6
   1  load 0
      compare 0
   3  load 1
      compare 1
   5  load 2
      compare 2
      evict 0
   7  load 3
      compare 3
      evict 1
   9  load 4
      compare 4
      evict 2
  11  load 5
      compare 5
";
    assert_eq!(plan.to_string(), expected);
    let next = plan_batch(&[vec![0, 5], vec![5, 4]], &mut cache).to_string();
    assert!(next.starts_with("uses 4, misses 1, prefetched 0, loads 1\n      compare 4\n      compare 5\n"), "{next}");
}

#[test]
fn large_buckets_are_loaded_first_and_small_ones_in_order() {
    let costs = BucketCosts { sizes: vec![1, 300 << 10, 2, 1 << 20], reads: vec![1.0; 4] };
    let mut cache = Residency::new(2 << 20, costs);
    let plan = plan_batch(&[vec![2, 1], vec![0, 3]], &mut cache);
    let loads = plan.steps.iter().filter_map(|step| match step {
        BatchStep::Load { bucket, .. } => Some(*bucket),
        _ => None,
    });
    assert_eq!(loads.collect::<Vec<_>>(), [3, 1, 0, 2]);
}

proptest! {
    #[test]
    fn every_plan_compares_all_queries_with_loaded_buckets(
        batches in prop::collection::vec(
            prop::collection::vec(
                prop::collection::btree_set(0u32..9, 1..=9).prop_map(|list| list.into_iter().collect::<Vec<u32>>()),
                1..7,
            ),
            1..4,
        ),
        sizes in prop::collection::vec(1u64..7, 9),
    ) {
        let costs = BucketCosts { sizes: sizes.clone(), reads: sizes.iter().map(|&size| size as f64).collect() };
        let (mut cache, mut held) = (Residency::new(12, costs), BTreeSet::new());
        for lists in &batches {
            let plan = plan_batch(lists, &mut cache);
            let wanted: BTreeSet<u32> = lists.iter().flatten().copied().collect();
            let (mut last_turn, mut loads, mut compared) = (0, 0, BTreeSet::new());
            for step in &plan.steps {
                match *step {
                    BatchStep::Load { bucket, turn } => {
                        prop_assert!(held.insert(bucket) && turn >= last_turn);
                        (last_turn, loads) = (turn, loads + 1);
                    }
                    BatchStep::Evict(bucket) => prop_assert!(held.remove(&bucket)),
                    BatchStep::Compare { bucket, query } => {
                        prop_assert!(held.contains(&bucket) && query.is_none() && compared.insert(bucket));
                    }
                }
                prop_assert!(held.iter().map(|&bucket| sizes[bucket as usize]).sum::<u64>() <= 12);
            }
            prop_assert!(compared == wanted && !plan.is_by_query());
            prop_assert!(plan.counts.loads == loads && loads <= wanted.len() as u64);
            prop_assert_eq!(plan.counts.uses, lists.iter().map(|list| list.len() as u64).sum::<u64>());
        }
    }
}
