//! The order in which several loaders read missing buckets, and the times at which the loaders finish.

/// Orders buckets by CALL's load-weighted greedy packing (Algorithm 1). Larger buckets come first, in groups of one
/// bucket per loader. Buckets of equal size keep their order. The algorithm does not use its loads L_j (equation 7).
pub(crate) fn greedy_packing(missing: &[u32], size: impl Fn(u32) -> u64, threads: usize) -> Vec<u32> {
    let mut sorted = missing.to_vec();
    sorted.sort_by_key(|&bucket| std::cmp::Reverse(size(bucket)));
    let mut groups: Vec<Vec<u32>> = vec![Vec::new(); sorted.len().div_ceil(threads.max(1))];
    for bucket in sorted {
        let earliest = groups.iter_mut().find(|group| group.len() < threads.max(1));
        earliest.expect("the rounds have room for all buckets").push(bucket);
    }
    groups.concat()
}

/// Which loader reads the next bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// The loaders in turn, even if one has more work left than another (CALL, section III-D).
    RoundRobin,
    /// The loader that finishes first.
    Shared,
}

/// Returns the time at which each loader finishes. The loaders read buckets of these sizes in this order. The unit of
/// time is the time to read one unit of size.
pub(crate) fn finish_times(sizes: &[u64], threads: usize, assignment: Assignment) -> Vec<u64> {
    let mut done = vec![0; threads.max(1)];
    for (at, size) in sizes.iter().enumerate() {
        let loader = match assignment {
            Assignment::RoundRobin => at % done.len(),
            Assignment::Shared => {
                (0..done.len()).min_by_key(|&loader| done[loader]).expect("there is at least one loader")
            }
        };
        done[loader] += size;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_packing_loads_the_largest_buckets_first() {
        let sizes = [40, 50, 45, 140, 60, 55, 42, 48];
        let size = |bucket: u32| sizes[bucket as usize];
        let missing: Vec<u32> = (0..8).collect();
        let packed = greedy_packing(&missing, size, 4);
        assert_eq!(packed, [3, 4, 5, 1, 7, 2, 6, 0]);
        let of = |order: &[u32], assignment| {
            let sizes: Vec<u64> = order.iter().map(|&bucket| size(bucket)).collect();
            finish_times(&sizes, 4, assignment)
        };
        assert_eq!(of(&missing, Assignment::RoundRobin), [100, 105, 87, 188]);
        assert_eq!(of(&packed, Assignment::RoundRobin), [188, 105, 97, 90], "its order alone does not balance");
        assert_eq!(of(&packed, Assignment::Shared), [140, 102, 100, 138]);
        assert!(greedy_packing(&[], size, 4).is_empty());
        assert_eq!(greedy_packing(&[1, 5, 1], |_| 7, 0), [1, 5, 1], "equal ones keep their order");
    }
}
