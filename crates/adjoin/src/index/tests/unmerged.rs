//! Checks that walks end earlier if rows outside the index are near their queries.

use super::{Indexed, SearchGoal, Set, context_of, recall};
use crate::base::options::{Element, Metric, VectorType};
use crate::query::{QueryTarget, SearchEffort};

const ROWS: usize = 6_000;

#[test]
fn walks_end_earlier_if_unmerged_rows_are_near() {
    let vectors = VectorType { element: Element::F32, dimensions: 8 };
    let indexed = Indexed::new(Set::spread(vectors, ROWS, 1), Metric::L2);
    let queries = Set::spread(vectors, 200, 2);
    let unmerged = |rows| Set::spread(vectors, rows, 3);
    let goal = SearchGoal { target: QueryTarget::Nearest(10), effort: SearchEffort::List(30) };
    // Returns the recall, and the distances that walks compute for a query.
    let search = |unmerged: &Set, is_deleted: &dyn Fn(usize) -> bool| {
        let deleted = &indexed.deleted(is_deleted);
        let found = indexed.search(&context_of(1), &queries, unmerged, deleted, goal).unwrap();
        let again = indexed.search(&context_of(3), &queries, unmerged, deleted, goal).unwrap();
        assert_eq!(again.hits, found.hits, "on three threads");
        let right = indexed.wanted(&queries, unmerged, is_deleted, goal.target);
        (recall(&found.hits, &right), found.statistics.search.distances_per_query)
    };
    let (kept, half) = (|_: usize| false, |row: usize| row % 2 == 1);
    let (unchanged, least) = search(&unmerged(0), &kept);
    let (thinned, most) = search(&unmerged(0), &half);
    assert!(most > 1.4 * least, "walks expand deleted vertices too: {most} and {least}");
    // Half of the hits are unmerged rows, so walks find only the other half.
    let (replaced, fewer) = search(&unmerged(ROWS / 2), &half);
    assert!(fewer < 1.15 * least, "{fewer}, without changes {least}");
    // No unmerged row is a hit.
    let (beside, as_many) = search(&unmerged(ROWS / 2).moved(100.0), &half);
    assert!(as_many > 0.9 * most, "{as_many}, without unmerged rows {most}");
    let recalls = [unchanged, thinned, replaced, beside];
    assert!(recalls.iter().all(|recall| recall + 0.01 > unchanged.min(thinned)), "{recalls:?}");
}
