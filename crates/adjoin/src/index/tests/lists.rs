//! Checks that one walk measures which hits each shorter list finds.

use super::{Indexed, Set, context_of, u8s};
use crate::base::context::Context;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::options::{Element, Metric, VectorType};
use crate::index::cache::PageCache;
use crate::index::calibration::lists_up_to;
use crate::index::filtered_vertices::FilteredVertices;
use crate::index::promise::aim_at;
use crate::index::sample::{MISSED, Sample};
use crate::index::{DeleteList, Index, WalkStrategy};
use crate::load::ReadCounts;

/// Number of true hits of a query.
const K: u64 = 20;

/// Returns, for each true hit of the calibration queries, the shortest list that finds it, according to a walk with a
/// list of `list` candidates. All pages are cached before if `reads` reads are worth it.
fn least_lists<T: Coordinate>(
    context: &Context,
    index: &Index,
    admitted: Option<&FilteredVertices<'_>>,
    list: usize,
    reads: u64,
) -> Vec<u32> {
    let sample = Sample::of_rows(context, index, admitted, &[]).unwrap();
    let (noted, _) = sample.true_hits::<T>(K, 1).unwrap();
    let cache = PageCache::filled(context, index, context.budget().free() / 2, reads).unwrap();
    assert_eq!(cache.is_filled(), reads > 0);
    let (aim, strategy) = (aim_at(admitted, K as usize + 1, list), WalkStrategy::default());
    assert!(!aim.by_codes, "walks choose the candidates");
    let noted = |query: usize| &noted[query][..];
    sample.find_noted::<T>(aim, K + 1, strategy, &cache, noted, &mut ReadCounts::default()).unwrap()
}

#[test]
fn one_walk_measures_all_shorter_lists() {
    let sets = [
        (Set::spread(VectorType { element: Element::F32, dimensions: 24 }, 6_000, 1), 0),
        (Set::spread(u8s(16), 5_000, 2), 2),
        (Set::drawn(u8s(6), 3_000, 0, 3), 10),
    ];
    for (set, deleted) in sets {
        let indexed = Indexed::new(set, Metric::L2);
        let index = &indexed.index;
        let rows = index.facts().rows as u32;
        let deleted = DeleteList::of(index, (0..rows).filter(|entry| entry * 37 % 100 < deleted));
        let admitted = FilteredVertices::excluding(index, &deleted);
        let admitted = admitted.as_ref();
        with_coordinates!(index.facts().space(), T => {
            let measured = least_lists::<T>(&context_of(2), index, admitted, 128, u64::MAX);
            let mut found_before = 0;
            for list in lists_up_to(None, 128) {
                // Pages that are all in memory and pages that are read one by one lead to the same hits.
                let found = least_lists::<T>(&context_of(1), index, admitted, list, 0);
                let least = measured.iter().map(|&least| if least as usize <= list { least } else { MISSED });
                assert!(found.iter().copied().eq(least), "list {list}");
                let count = found.iter().filter(|&&least| least != MISSED).count();
                assert!(count >= found_before);
                found_before = count;
            }
            // If most rows are equal to others, a few pages have all of them.
            let are_different = 2 * index.facts().vertices > rows;
            let short = measured.iter().filter(|&&least| least <= 8).count();
            assert!(!are_different || short * 100 < measured.len() * 99, "short lists miss hits: {short}");
        });
    }
}
