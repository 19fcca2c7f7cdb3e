//! Compares layouts with their definitions, on graphs of unusual shapes.

use super::edges::WINDOW_MAX;
use super::*;
use crate::test_sets::{Lists, graphs, ratio};

fn laid(lists: &Lists, records: usize) -> Arrangement {
    let all = 0..lists.len() as u32;
    Arrangement::of_window(&Cancel::default(), records, all, |vertex| &lists[vertex as usize][..]).unwrap()
}

#[test]
fn the_page_order_has_all_vertices_and_the_reported_ratio() {
    for (name, lists) in graphs() {
        for records in [1, 4, 15, 1_000] {
            let arrangement = laid(&lists, records);
            let mut sorted = arrangement.order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..lists.len() as u32).collect::<Vec<_>>(), "{name}");
            let difference = arrangement.overlap_ratio - ratio(&lists, &arrangement.order, records);
            assert!(difference.abs() < 1e-12, "{name}: {difference}");
        }
    }
}

#[test]
fn edges_of_a_window_have_their_ranks() {
    for (name, lists) in graphs() {
        let window = lists.len() as u32 / 3..lists.len() as u32;
        let edges = Edges::of(window.clone(), |vertex| &lists[vertex as usize]);
        assert_eq!(edges.vertices(), window.len());
        let rank = |from: u32, to: u32| {
            let list = &lists[(window.start + from) as usize];
            list.iter().position(|&neighbor| neighbor == window.start + to).map_or(0, |at| at as u32 + 1)
        };
        for vertex in edges.numbers() {
            let ranks = |other: u32| [rank(vertex, other), rank(other, vertex)];
            let wanted: Vec<(u32, [u32; 2])> =
                edges.numbers().map(|other| (other, ranks(other))).filter(|(_, ranks)| *ranks != [0, 0]).collect();
            let found = edges.ties(vertex).iter();
            let found: Vec<_> = found.map(|tie| (tie.other(), [tie.rank_to(), tie.rank_from()])).collect();
            assert_eq!(found, wanted, "{name}: {vertex}");
            for other in edges.numbers() {
                let between = ranks(other).into_iter().filter(|&rank| rank > 0).count() as u32;
                assert_eq!(edges.between(vertex, other).map_or(0, Tie::edges), between, "{name}");
            }
        }
    }
}

/// Swaps do not decrease OR(G). If a round gains nothing, no swap of any two vertices gains.
#[test]
fn swaps_increase_the_overlap_ratio_until_none_can() {
    for (name, lists) in graphs() {
        let all = 0..lists.len() as u32;
        let edges = Edges::of(all.clone(), |vertex| &lists[vertex as usize]);
        for records in [1, 4, 15] {
            let room = Room::new(lists.len(), records);
            let before: Vec<u32> = all.clone().collect();
            let swapped = |order| swapped(&Cancel::default(), &edges, room, order, Tie::edges, ROUNDS_MAX).unwrap();
            let mut order = swapped(before.clone());
            let mut least = ratio(&lists, &before, records);
            loop {
                let now = ratio(&lists, &order, records);
                assert!(now >= least - 1e-12, "{name}: {now} after {least}");
                if now - least < 1e-12 {
                    break;
                }
                (least, order) = (now, swapped(order));
            }
            // Trying all swaps of a larger graph would take too long.
            if lists.len() > 100 {
                continue;
            }
            for (one, other) in (0..order.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
                order.swap(one, other);
                assert!(ratio(&lists, &order, records) < least + 1e-12, "{name}: {one} and {other}");
                order.swap(one, other);
            }
        }
    }
}

#[test]
fn groups_that_fit_are_on_one_page() {
    let (_, lists) = graphs().swap_remove(3);
    assert!((laid(&lists, 9).overlap_ratio - 1.0).abs() < 1e-12);
}

#[test]
fn windows_have_whole_pages_and_all_vertices() {
    for (vertices, records) in [(0, 3), (1, 15), (890_000, 15), (1 << 20, 1), (3 << 17, 1_365), ((1 << 31) - 1, 12)] {
        let mut end = 0;
        for window in windows(vertices, records) {
            assert!(window.start == end && (window.start as usize).is_multiple_of(records) && !window.is_empty());
            assert!(window.len() <= WINDOW as usize + records && window.len() <= WINDOW_MAX);
            assert!(window.len() * 2 > WINDOW.min(vertices.into()) as usize, "windows are about equal");
            end = window.end;
        }
        assert_eq!(end, vertices);
    }
}

#[test]
fn windows_are_combined_into_one_order() {
    let vertices = 300_000;
    // Edges of the last step leave their windows, which are laid out without them.
    let of = |vertex: u32| [1, 2, 7, 60_000].map(|step| (vertex + step) % vertices);
    let lists: Lists = (0..vertices).map(|vertex| of(vertex).to_vec()).collect();
    let windows: Vec<Range<u32>> = windows(vertices, 15).collect();
    assert!(windows.len() > 1);
    let cancel = Cancel::default();
    let laid = windows.iter().map(|window| {
        let neighbors = |vertex: u32| &lists[vertex as usize][..];
        (window.start, Arrangement::of_window(&cancel, 15, window.clone(), neighbors).unwrap())
    });
    let places = Places::of_windows(vertices, laid);
    let order: Vec<u32> = windows.iter().flat_map(|window| places.order(window.clone())).collect();
    assert!((places.overlap_ratio - ratio(&lists, &order, 15)).abs() < 1e-9 && places.overlap_ratio > 0.1);
    assert!((0..).zip(&order).all(|(place, &vertex)| places.by_vertex[vertex as usize] == place));
    let whole = Arrangement::in_order(order, 15, |vertex| &lists[vertex as usize]);
    assert!((places.overlap_ratio - whole.overlap_ratio).abs() < 1e-9);
}
