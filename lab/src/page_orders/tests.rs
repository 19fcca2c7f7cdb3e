//! Compares orders with their definitions, on graphs of unusual shapes.

use adjoin::Random;

use super::*;
use crate::test_sets::{Lists, graphs, ratio};

fn laid(lists: &Lists, order: PageOrder, records: usize) -> (Vec<u32>, f64) {
    let (edges, vectors) =
        (Edges::of(0..lists.len() as u32, |vertex| &lists[vertex as usize]), vectors(lists.len(), 5));
    let (room, vectors) = (Room::new(lists.len(), records), Some(WindowVectors { kernel: kernel(), panel: &vectors }));
    let places = order.of_window(&Cancel::default(), &edges, vectors, room, ROUNDS_MAX).unwrap();
    let ratio = overlap_ratio(&edges, &places, room);
    (places, ratio)
}

fn kernel() -> Kernel {
    Kernel::detect()
}

/// Returns random vectors.
fn vectors(count: usize, dimensions: usize) -> Panel<f32> {
    let (mut random, mut panel) = (Random::new(2, "vectors for layouts"), Panel::zeroed(count, dimensions));
    for row in 0..count {
        panel.row_mut(row).iter_mut().for_each(|x| *x = random.below(1_000) as f32 / 7.0 - 50.0);
    }
    panel
}

#[test]
fn page_orders_have_all_vertices_and_the_reported_ratio() {
    for (name, lists) in graphs() {
        for (order, records) in PageOrder::ALL.into_iter().flat_map(|order| [1, 4, 15, 1_000].map(|r| (order, r))) {
            let (mut places, reported) = laid(&lists, order, records);
            let difference = reported - ratio(&lists, &places, records);
            assert!(difference.abs() < 1e-12, "{name}: {order}: {difference}");
            places.sort_unstable();
            assert_eq!(places, (0..lists.len() as u32).collect::<Vec<_>>(), "{name}: {order}");
        }
    }
}

#[test]
fn groups_that_fit_are_on_one_page() {
    let (_, lists) = graphs().swap_remove(3);
    for order in [PageOrder::Bnp, PageOrder::Grown, PageOrder::Margo, PageOrder::Bns, PageOrder::Gp2] {
        assert!((laid(&lists, order, 9).1 - 1.0).abs() < 1e-12, "{order}");
    }
}

#[test]
fn page_orders_parse_from_their_names() {
    assert!(PageOrder::ALL.iter().all(|order| order.name().parse::<PageOrder>().unwrap() == *order));
    assert!("bnx".parse::<PageOrder>().unwrap_err().to_string().contains("rows, bnp, bnf"));
}

/// Checks groups of vectors that are far from each other and have mixed numbers. Each page must have one group.
#[test]
fn halving_puts_near_vectors_on_one_page() {
    let group = |vertex: u32| vertex * 7 % 10;
    let mut panel = vectors(90, 4);
    for vertex in 0..90 {
        panel.row_mut(vertex)[0] += 1e4 * group(vertex as u32) as f32;
    }
    let order =
        halving::halved(&Cancel::default(), WindowVectors { kernel: kernel(), panel: &panel }, Room::new(90, 9))
            .unwrap();
    assert!(order.chunks(9).all(|page| page.iter().all(|&vertex| group(vertex) == group(page[0]))), "{order:?}");
}

/// Checks in f64 that the vectors on two pages are nearer to their means than they were in the order that halving
/// starts with.
#[test]
fn halving_reduces_the_distance_to_page_means() {
    for (count, dimensions) in [(20, 1), (37, 3), (64, 40)] {
        let panel = vectors(count, dimensions);
        let far = |page: &[u32], k: usize| {
            let of_page = || page.iter().map(|&vertex| f64::from(panel.row(vertex as usize)[k]));
            let mean = of_page().sum::<f64>() / page.len() as f64;
            of_page().map(|x| (x - mean) * (x - mean)).sum::<f64>()
        };
        let records = count.div_ceil(2);
        let all =
            |order: &[u32]| order.chunks(records).map(|page| (0..dimensions).map(|k| far(page, k)).sum::<f64>()).sum();
        let (before, room): (Vec<u32>, _) = ((0..count as u32).collect(), Room::new(count, records));
        let after =
            halving::halved(&Cancel::default(), WindowVectors { kernel: kernel(), panel: &panel }, room).unwrap();
        let (before, after): (f64, f64) = (all(&before), all(&after));
        assert!(after < 0.98 * before, "{count} of {dimensions}: {after} after {before}");
    }
}
