//! Context-aware grouping of CALL (section IV-B). Agglomerative clustering groups the queries of a batch that probe
//! similar buckets.
//!
//! The paper requires that all members of a group overlap (equation 2). This is complete linkage, although the paper
//! does not use that name. It defines the threshold theta in two ways: equation 2 requires a similarity of at least
//! theta, and the text next to it a distance of at most theta. Both are implemented.

use super::overlap::Overlap;

/// Meaning of the threshold of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Any two members have a similarity of at least theta (equation 2).
    Similarity,
    /// Any two members have a distance of at most theta. The distance is 1 minus the similarity.
    Distance,
}

/// Resolution of stored similarities. With it, different similarities of sets of up to 200 buckets stay different.
const PARTS: f32 = 65_534.0;
/// Stands for no cluster.
const NONE: u32 = u32::MAX;

/// Number of rows and columns of a tile of the table. A tile fits in the processor's caches.
const TILE: usize = 64;

/// Similarities of clusters. A cluster is identified by its first query. The similarity is 0 if two clusters may not
/// be merged.
///
/// The row of a cluster is updated when it is read. Columns are never written, since that would touch a page of
/// memory per cluster at every merge.
struct Similarities {
    count: usize,
    all: Vec<u16>,
    /// For each cluster: all bits set if it exists and may still grow, otherwise 0.
    open: Vec<u16>,
    /// Existing clusters with several queries.
    grown: Vec<u32>,
    /// For each cluster, the number of merges up to the one that last changed it.
    grew: Vec<u32>,
    /// For each cluster, the number of merges that its row takes into account.
    known: Vec<u32>,
    merges: u32,
}

/// Returns the groups of queries. Each is in ascending order, and groups are in the order of their first queries.
pub(crate) fn group(sets: &impl Overlap, theta: f64, reading: Reading) -> Vec<Vec<u32>> {
    let least = match reading {
        Reading::Similarity => theta,
        Reading::Distance => 1.0 - theta,
    };
    let mut clusters = Similarities::of(sets, least);
    // `next` has, for each query, the next query of its cluster. `last` has, for each first query, the last query of
    // its cluster.
    let mut next = vec![NONE; sets.count()];
    let mut last: Vec<u32> = (0..sets.count() as u32).collect();
    let mut is_first = vec![true; sets.count()];
    clusters.merge_all(|a, b| {
        next[last[a] as usize] = b as u32;
        last[a] = last[b];
        is_first[b] = false;
    });
    let firsts = (0..sets.count() as u32).filter(|&query| is_first[query as usize]);
    let of = |first: u32| {
        let mut members: Vec<u32> =
            std::iter::successors(Some(first), |&query| Some(next[query as usize]).filter(|&next| next != NONE))
                .collect();
        members.sort_unstable();
        members
    };
    firsts.map(of).collect()
}

impl Similarities {
    /// Computes the similarities of single queries (equation 5). Similarities below `least` do not allow a merge.
    fn of(sets: &impl Overlap, least: f64) -> Self {
        let count = sets.count();
        let (mut all, mut common) = (vec![0; count * count], Vec::new());
        let (sizes, least): (Vec<f32>, f32) = ((0..count).map(|i| sets.size(i) as f32).collect(), least as f32);
        for i in 0..count {
            sets.common_with_earlier(i, &mut common);
            let (own, row) = (sizes[i], &mut all[i * count..][..i]);
            for ((part, &common), &other) in row.iter_mut().zip(&common).zip(&sizes) {
                let common = common as f32;
                let union = own + other - common;
                // Two empty sets count as equal.
                let similarity = if union > 0.0 { common / union } else { 1.0 };
                *part = if similarity >= least { 1 + (similarity * PARTS) as u16 } else { 0 };
            }
        }
        mirror(&mut all, count);
        let (grew, known) = (vec![0; count], vec![0; count]);
        Self { count, all, open: vec![u16::MAX; count], grown: Vec::new(), grew, known, merges: 0 }
    }

    /// Merges clusters by chains of nearest neighbors, until no two clusters may be merged (Müllner, section 3.2, the
    /// paper's reference 24). Calls `merged` for each merge with the cluster that remains, which has the smaller
    /// number, and the other.
    fn merge_all(&mut self, mut merged: impl FnMut(usize, usize)) {
        let mut chain: Vec<usize> = Vec::new();
        let mut first = 0;
        loop {
            if chain.is_empty() {
                while first < self.count && self.open[first] == 0 {
                    first += 1;
                }
                if first == self.count {
                    return;
                }
                chain.push(first);
            }
            let top = chain[chain.len() - 1];
            let before = chain.len().checked_sub(2).map(|at| chain[at]);
            match self.nearest(top, before) {
                // The similarity to a cluster never increases when that cluster grows. Therefore this cluster is
                // never merged again.
                None => {
                    self.open[top] = 0;
                    chain.pop();
                }
                Some(other) if Some(other) == before => {
                    chain.truncate(chain.len() - 2);
                    let (a, b) = (top.min(other), top.max(other));
                    self.merge(a, b);
                    merged(a, b);
                }
                Some(other) => chain.push(other),
            }
        }
    }

    /// Returns the most similar cluster that the cluster `of` may be merged with. If several are equally similar,
    /// prefers `before`, the predecessor in the chain, and otherwise the first one.
    fn nearest(&mut self, of: usize, before: Option<usize>) -> Option<usize> {
        self.look_at(of);
        let row = &self.all[of * self.count..][..self.count];
        let open = || row.iter().zip(&self.open).map(|(&similarity, &open)| similarity & open);
        let best = open().max().filter(|&best| best > 0)?;
        before.filter(|&before| row[before] == best).or_else(|| open().position(|similarity| similarity == best))
    }

    /// Updates the row of a cluster. Clusters that grew since the last update have the current similarity in their
    /// own rows, because this cluster did not grow.
    fn look_at(&mut self, cluster: usize) {
        let Self { count, all, grown, grew, known, merges, .. } = self;
        for other in grown.iter().map(|&other| other as usize).filter(|&other| grew[other] > known[cluster]) {
            all[cluster * *count + other] = all[other * *count + cluster];
        }
        known[cluster] = *merges;
    }

    /// Merges two clusters by complete linkage: the similarity to another cluster is the smaller one of both.
    fn merge(&mut self, a: usize, b: usize) {
        self.look_at(a);
        self.look_at(b);
        let (before, from_b) = self.all.split_at_mut(b * self.count);
        let (of_a, of_b) = (&mut before[a * self.count..][..self.count], &from_b[..self.count]);
        of_a.iter_mut().zip(of_b).for_each(|(to_a, &to_b)| *to_a = (*to_a).min(to_b));
        self.merges += 1;
        self.open[b] = 0;
        self.grown.retain(|&grown| ![a, b].contains(&(grown as usize)));
        self.grown.push(a as u32);
        (self.grew[a], self.known[a]) = (self.merges, self.merges);
    }
}

/// Copies the lower triangle of a table to its upper triangle.
fn mirror(all: &mut [u16], count: usize) {
    let tiles = (0..count).step_by(TILE).flat_map(|row| (0..=row).step_by(TILE).map(move |column| (row, column)));
    for (row, column) in tiles {
        for j in column..(column + TILE).min(count) {
            (row.max(j + 1)..(row + TILE).min(count)).for_each(|i| all[j * count + i] = all[i * count + j]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::overlap::{Bitmaps, HashedSets};
    use super::*;

    fn jaccard(a: &[u32], b: &[u32]) -> f64 {
        let (a, b): (BTreeSet<_>, BTreeSet<_>) = (a.iter().collect(), b.iter().collect());
        let union = a.union(&b).count();
        if union == 0 { 1.0 } else { a.intersection(&b).count() as f64 / union as f64 }
    }

    /// Returns the smallest similarity between members of two groups.
    fn linkage(lists: &[Vec<u32>], a: &[u32], b: &[u32]) -> f64 {
        let pairs = a.iter().flat_map(|&i| b.iter().map(move |&j| (i, j)));
        pairs.map(|(i, j)| jaccard(&lists[i as usize], &lists[j as usize])).fold(1.0, f64::min)
    }

    /// Merges the two most similar groups, by the definition, until none are similar enough. Returns `None` if two
    /// pairs of groups are equally similar, since the result is then ambiguous.
    fn plain(lists: &[Vec<u32>], least: f64) -> Option<Vec<Vec<u32>>> {
        let mut groups: Vec<Vec<u32>> = (0..lists.len() as u32).map(|query| vec![query]).collect();
        loop {
            let pairs = (0..groups.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            let mut linked: Vec<_> = pairs.map(|(i, j)| (linkage(lists, &groups[i], &groups[j]), i, j)).collect();
            linked.sort_by(|a, b| b.0.total_cmp(&a.0));
            linked.retain(|&(similarity, ..)| similarity >= least);
            let Some(&(_, i, j)) = linked.first() else { break };
            if linked.windows(2).any(|two| two[0].0 - two[1].0 < 1e-4) {
                return None;
            }
            let other = groups.remove(j);
            groups[i].extend(other);
            groups[i].sort_unstable();
        }
        groups.sort_unstable();
        Some(groups)
    }

    fn lists() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let list = prop::collection::btree_set(0u32..70, 0..30).prop_map(|list| list.into_iter().collect());
        prop::collection::vec(list, 0..14)
    }

    proptest! {
        #[test]
        fn groups_reach_the_requested_similarity_and_cannot_be_merged(lists in lists(), theta in 0.05f64..0.95) {
            for (reading, least) in [(Reading::Similarity, theta), (Reading::Distance, 1.0 - theta)] {
                let groups = group(&Bitmaps::new(&lists, 70), theta, reading);
                prop_assert_eq!(&groups, &group(&HashedSets::new(&lists), theta, reading));
                let mut all: Vec<u32> = groups.concat();
                prop_assert!(groups.iter().all(|group| group.is_sorted()) && groups.is_sorted_by_key(|group| group[0]));
                all.sort_unstable();
                prop_assert_eq!(all, (0..lists.len() as u32).collect::<Vec<_>>());
                for (at, one) in groups.iter().enumerate() {
                    prop_assert!(linkage(&lists, one, one) >= least);
                    prop_assert!(groups[..at].iter().all(|other| linkage(&lists, one, other) < least));
                }
                if let Some(plain) = plain(&lists, least) {
                    prop_assert_eq!(groups, plain);
                }
            }
        }
    }

    #[test]
    fn a_grouping_threshold_is_a_similarity_or_a_distance() {
        // The similarity of the first two is 3/5. Each has a similarity of 1/7 with the third.
        let lists = [vec![0, 1, 2, 3], vec![0, 1, 2, 4], vec![0, 9, 10, 11]];
        let of = |reading| group(&Bitmaps::new(&lists, 12), 0.3, reading);
        assert_eq!(of(Reading::Similarity), [vec![0, 1], vec![2]]);
        assert_eq!(of(Reading::Distance), [vec![0], vec![1], vec![2]]);
    }
}
