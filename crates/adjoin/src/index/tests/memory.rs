//! Tests of the memory that an open index states.

use super::*;
use crate::base::allocated::assert_states_bytes;
use crate::base::geometry::with_coordinates;
use crate::index::navigation::Navigator;

/// Opens indexes of different shapes and searches them once, since the first search makes the coordinates of the
/// navigation graph.
#[test]
fn an_open_index_holds_the_bytes_that_it_states() {
    let floats = |dimensions| VectorType { element: Element::F32, dimensions };
    let sets: [(Set, Option<u32>); 5] = [
        (Set::spread(floats(300), 9_000, 1), Some(2_000)),
        (Set::spread(floats(33), 20_000, 2), Some(5_000)),
        (Set::spread(u8s(128), 20_000, 3), None),
        // Further rows take most of the memory.
        (Set::drawn(u8s(16), 60_000, 1, 4), None),
        (Set::spread(floats(40), 2_000, 5), None),
    ];
    for (set, navigation) in sets {
        let of_set = format!("{:?}", set.info);
        let indexed = Indexed::with_navigation(set, Metric::L2, navigation);
        let stated = Index::memory_bytes(indexed.index.facts());
        let context = &Context::default().with_threads(1);
        let mut opened = None;
        let counted = allocation_counter::measure(|| {
            let index = Index::open(context, &indexed.at("index")).unwrap();
            let space = index.facts().space();
            let vertices =
                with_coordinates!(space, T => Navigator::<T>::new(context.kernel, space, &index.navigation).len());
            assert!(vertices > 0);
            opened = Some(index);
        });
        assert!(counted.bytes_max <= stated, "{} bytes at most, {stated} are stated, {of_set}", counted.bytes_max);
        assert_states_bytes(counted.bytes_current.try_into().unwrap(), stated);
    }
}
