//! Tests of delete lists of an index.

use super::*;

/// Adds and removes entries at random, and counts the vertices of which all rows are deleted.
#[test]
fn a_delete_list_counts_vertices_without_rows() {
    let indexed = Indexed::new(Set::drawn(u8s(4), 700, 1, 1), Metric::L2);
    let (index, rows) = (&indexed.index, indexed.set.info.rows);
    assert!(u64::from(index.facts().vertices) < rows / 2, "vertices have several rows");
    let mut memory = Context::default().reserve(100 * DeleteList::change_bytes(rows, rows), "a test").unwrap();
    let (mut deleted, mut random, mut most) = (DeleteList::new(rows), Random::new(1, "deletes"), 0);
    for round in 0..3_000 {
        let entry = random.below(rows) as u32;
        // More entries are added than removed at first, and fewer later.
        let adds = random.below(3) > u64::from(round > 1_500);
        match deleted.has(entry) {
            false if adds => assert!(deleted.add(index, entry, &mut memory)),
            true if adds => assert!(!deleted.add(index, entry, &mut memory)),
            true => deleted.undo(index, entry, &mut memory),
            false => {}
        }
        if round % 50 == 0 {
            let is_kept =
                |&vertex: &u32| (0..rows as u32).any(|entry| index.vertex_of(entry) == vertex && !deleted.has(entry));
            let kept: Vec<u64> = (0..index.facts().vertices).filter(is_kept).map(u64::from).collect();
            assert!(deleted.kept_vertices(index).iter().eq(kept.iter().copied()));
            assert_eq!(index.facts().vertices - deleted.vertices(), kept.len() as u32);
            most = most.max(deleted.vertices());
        }
    }
    assert!(most > 10, "{most} vertices lost all rows");
}
