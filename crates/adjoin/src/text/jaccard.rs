//! Jaccard similarity of two sets of hashes.

/// Returns the Jaccard similarity of two ascending sets if it is at least `min`.
pub(super) fn similarity(a: &[u64], b: &[u64], min: f64) -> Option<f32> {
    if !can_reach(a.len(), b.len(), min) {
        return None;
    }
    // `common / (all - common) >= min` needs at least this many common elements. One less is assumed, since the product
    // is rounded.
    let all = a.len() + b.len();
    let common_min = ((min / (1.0 + min) * all as f64) as usize).saturating_sub(1);
    let single_max = all - 2 * common_min;
    let (mut i, mut k, mut common) = (0, 0, 0);
    while i < a.len() && k < b.len() {
        let (x, y) = (a[i], b[k]);
        common += usize::from(x == y);
        i += usize::from(x <= y);
        k += usize::from(y <= x);
        if i + k - 2 * common > single_max {
            return None;
        }
    }
    let similarity = common as f64 / (all - common) as f64;
    (similarity >= min).then_some(similarity as f32)
}

/// Returns whether sets of these sizes can have a similarity of at least `min`.
pub(super) fn can_reach(a: usize, b: usize, min: f64) -> bool {
    a.min(b) as f64 / a.max(b) as f64 >= min
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::random::Random;

    #[test]
    fn the_similarity_is_exact_at_every_threshold() {
        let mut random = Random::new(1, "sets");
        for _ in 0..2_000 {
            let (range, sizes) = (1 + random.below(40), [1 + random.below(30), 1 + random.below(30)]);
            let [a, b] = sizes.map(|size| (0..size).map(|_| random.below(range)).collect::<BTreeSet<u64>>());
            let expected = a.intersection(&b).count() as f64 / a.union(&b).count() as f64;
            let [a, b] = [a, b].map(|set| set.into_iter().collect::<Vec<_>>());
            for min in [0.1, 0.5, 0.8, 1.0, expected, expected + 1e-12] {
                let found = similarity(&a, &b, min);
                assert_eq!(found, (expected >= min).then_some(expected as f32), "{a:?} {b:?} at {min}");
            }
        }
        assert_eq!(similarity(&[1, 2, 3, 4], &[1, 2, 3, 4, 5], 0.8), Some(0.8));
    }
}
