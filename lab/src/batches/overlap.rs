//! Similarity of the sets of buckets that two queries probe. It is the Jaccard index (CALL, equations 1 and 3 to 5).

use std::collections::HashSet;

/// Sets of buckets as bitmaps, one per query (equation 3). They are stored word by word, so that one query can be
/// compared with many at once.
pub(crate) struct Bitmaps {
    /// For each 64 buckets, one word of bits per query.
    words: Vec<Vec<u64>>,
    /// Number of buckets of each query.
    sizes: Vec<u32>,
}

/// The sets of queries as hash tables, as in table II.
pub(crate) struct HashedSets(Vec<HashSet<u32>>);

/// Sets that can report their sizes and overlaps.
pub(crate) trait Overlap {
    /// Returns the number of sets.
    fn count(&self) -> usize;

    /// Returns the number of members of set `i`.
    fn size(&self, i: usize) -> u32;

    /// Writes to `common` the number of members that set `i` has in common with each earlier set.
    fn common_with_earlier(&self, i: usize, common: &mut Vec<u32>);
}

impl Bitmaps {
    /// Creates the bitmaps from lists of distinct buckets, which are below `buckets`.
    pub(crate) fn new(lists: &[Vec<u32>], buckets: u32) -> Self {
        let mut words = vec![vec![0; lists.len()]; buckets.div_ceil(u64::BITS) as usize];
        for (query, list) in lists.iter().enumerate() {
            list.iter().for_each(|bucket| words[(bucket / u64::BITS) as usize][query] |= 1 << (bucket % u64::BITS));
        }
        Self { words, sizes: lists.iter().map(|list| list.len() as u32).collect() }
    }
}

impl Overlap for Bitmaps {
    fn count(&self) -> usize {
        self.sizes.len()
    }

    fn size(&self, i: usize) -> u32 {
        self.sizes[i]
    }

    /// Counts 64 buckets at a time (equation 4), without a branch.
    fn common_with_earlier(&self, i: usize, common: &mut Vec<u32>) {
        common.clear();
        common.resize(i, 0);
        for word in &self.words {
            let own = word[i];
            common.iter_mut().zip(word).for_each(|(common, other)| *common += (own & other).count_ones());
        }
    }
}

impl HashedSets {
    /// Creates the hash tables from lists of buckets.
    pub(crate) fn new(lists: &[Vec<u32>]) -> Self {
        Self(lists.iter().map(|list| list.iter().copied().collect()).collect())
    }
}

impl Overlap for HashedSets {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn size(&self, i: usize) -> u32 {
        self.0[i].len() as u32
    }

    fn common_with_earlier(&self, i: usize, common: &mut Vec<u32>) {
        common.clear();
        common.extend(self.0[..i].iter().map(|other| self.0[i].intersection(other).count() as u32));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bitmaps_and_hash_sets_count_equal_overlaps(lists in prop::collection::vec(prop::collection::btree_set(0u32..150, 0..40), 1..20)) {
            let lists: Vec<Vec<u32>> = lists.into_iter().map(|list| list.into_iter().collect()).collect();
            let (bitmaps, hashed) = (Bitmaps::new(&lists, 150), HashedSets::new(&lists));
            let (mut a, mut b) = (Vec::new(), vec![7]);
            for i in 0..lists.len() {
                bitmaps.common_with_earlier(i, &mut a);
                hashed.common_with_earlier(i, &mut b);
                prop_assert_eq!(&a, &b);
                let plain = |j: usize| lists[i].iter().filter(|bucket| lists[j].contains(bucket)).count() as u32;
                prop_assert_eq!(&a, &(0..i).map(plain).collect::<Vec<_>>());
                prop_assert_eq!((bitmaps.size(i), hashed.size(i)), (lists[i].len() as u32, lists[i].len() as u32));
            }
        }
    }
}
