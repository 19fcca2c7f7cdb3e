//! Compares layouts with their definitions, on graphs of unusual shapes.

use super::edges::WINDOW_MAX;
use super::kept::kept;
use super::*;
use crate::base::random::Random;
use crate::test_sets::{Lists, graphs, ratio};

fn laid(lists: &Lists, records: usize) -> Arrangement {
    let all = 0..lists.len() as u32;
    Arrangement::of_window(&Cancel::default(), records, all, None, |vertex| &lists[vertex as usize][..]).unwrap()
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

/// Each page has lost some vertices. The others keep it, and a new vertex joins a page to which it has ties and that has
/// room, if there is one.
#[test]
fn pages_are_kept_and_filled_up_with_new_vertices() {
    let mut random = Random::new(1, "kept");
    for (name, lists) in graphs() {
        let edges = Edges::of(0..lists.len() as u32, |vertex| &lists[vertex as usize]);
        for records in [1, 4, 15] {
            let room = Room::new(lists.len(), records);
            let is_new: Vec<bool> = edges.numbers().map(|_| random.below(5) == 0).collect();
            let before: Vec<Option<u32>> =
                (0..lists.len()).map(|place| (!is_new[place]).then_some((place / records) as u32 + 7)).collect();
            let order = kept(&edges, room, &before, weight);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(edges.numbers()), "{name}");
            let pages = room.pages_of(&order);
            for (vertex, &page) in before.iter().enumerate().filter_map(|(vertex, page)| Some((vertex, page.as_ref()?)))
            {
                let others = (0..vertex).filter(|&other| before[other] == Some(page));
                assert!(others.into_iter().all(|other| pages[other] == pages[vertex]), "{name}: {vertex}");
            }
            // New vertices are added in the order of their numbers. When the first one is added, all others are missing.
            let Some(first) = is_new.iter().position(|&is_new| is_new) else { continue };
            let kept_on = |page| (0..lists.len()).filter(|&vertex| !is_new[vertex] && pages[vertex] == page).count();
            let ties = |page| {
                let ties = edges.ties(first as u32).iter().filter(|tie| !is_new[tie.other() as usize]);
                ties.filter(|tie| pages[tie.other() as usize] == page).map(|&tie| weight(tie)).sum::<u32>()
            };
            let has_room = |&page: &u32| kept_on(page) < room.of(page as usize);
            let heaviest = (0..room.pages() as u32).filter(has_room).map(ties).max().expect("the page of the vertex");
            assert_eq!(ties(pages[first]), heaviest, "{name}");
        }
    }
}

#[test]
fn pages_with_few_vertices_are_given_up() {
    let (_, lists) = graphs().swap_remove(3);
    let edges = Edges::of(0..lists.len() as u32, |vertex| &lists[vertex as usize]);
    // The earlier order has twice as many pages. Every second of them has a single vertex.
    let room = Room::new(lists.len(), 9);
    let pages: Vec<Option<u32>> =
        edges.numbers().map(|vertex| Some(vertex / 9 * 2 + u32::from(vertex % 9 == 8))).collect();
    let laid = room.pages_of(&kept(&edges, room, &pages, weight));
    let together = |some: &[u32]| some.iter().all(|&page| page == some[0]);
    assert!(laid.chunks_exact(9).all(|of_page| together(&of_page[..8])));
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
        (window.start, Arrangement::of_window(&cancel, 15, window.clone(), None, neighbors).unwrap())
    });
    let places = Places::of_windows(vertices, laid);
    let order: Vec<u32> = windows.iter().flat_map(|window| places.order(window.clone())).collect();
    assert!((places.overlap_ratio - ratio(&lists, &order, 15)).abs() < 1e-9 && places.overlap_ratio > 0.1);
    assert!((0..).zip(&order).all(|(place, &vertex)| places.by_vertex[vertex as usize] == place));
    let whole = Arrangement::in_order(order, 15, |vertex| &lists[vertex as usize]);
    assert!((places.overlap_ratio - whole.overlap_ratio).abs() < 1e-9);
}
