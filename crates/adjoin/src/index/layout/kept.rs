//! Keeps the pages of an earlier order as far as their vertices remain. Other vertices are added to the pages to which they
//! have the heaviest ties.

use std::cmp::Reverse;

use super::edges::{Edges, Tie};
use super::filling::{Filling, Room};

/// Returns an order of the vertices that keeps the pages of an earlier order. `before` has the page of each vertex in the
/// earlier order; `None` for a vertex that was not in it. It must have the vertices of a page one after another. If there
/// are fewer pages than before, the pages with the fewest vertices are given up. The last page may lose vertices, since it
/// may have less room than before.
pub(super) fn kept(edges: &Edges, room: Room, before: &[Option<u32>], weight: impl Fn(Tie) -> u32) -> Vec<u32> {
    let mut groups: Vec<(u32, usize)> = Vec::new();
    for &page in before.iter().flatten() {
        match groups.last_mut() {
            Some((last, count)) if *last == page => *count += 1,
            _ => groups.push((page, 1)),
        }
    }
    let mut largest: Vec<usize> = (0..groups.len()).collect();
    largest.sort_by_key(|&group| Reverse(groups[group].1));
    largest.truncate(room.pages());
    largest.sort_unstable();
    let mut page_of = vec![None; groups.len()];
    largest.iter().zip(0..).for_each(|(&group, page)| page_of[group] = Some(page));
    let (mut filling, mut group) = (Filling::new(room), 0);
    for (vertex, &page) in (0..).zip(before) {
        let Some(page) = page else { continue };
        // Groups are in the order of the vertices.
        group += usize::from(groups[group].0 != page);
        // The last page may have less room than before.
        if let Some(page) = page_of[group].filter(|&page| filling.has_room(page)) {
            filling.put(vertex, page);
        }
    }
    let (mut weights, mut near) = (vec![0; room.pages()], Vec::new());
    for vertex in edges.numbers() {
        if filling.page_of(vertex).is_some() {
            continue;
        }
        for &tie in edges.ties(vertex) {
            let Some(page) = filling.page_of(tie.other()).filter(|&page| filling.has_room(page)) else { continue };
            if weights[page as usize] == 0 {
                near.push(page);
            }
            weights[page as usize] += weight(tie);
        }
        let heaviest = near.iter().max_by_key(|&&page| (weights[page as usize], Reverse(page)));
        heaviest.into_iter().for_each(|&page| filling.put(vertex, page));
        near.drain(..).for_each(|page| weights[page as usize] = 0);
    }
    filling.finish(&edges.numbers().collect::<Vec<u32>>())
}
