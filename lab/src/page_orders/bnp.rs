//! Block neighbor padding (Starling, section 4.1). A page gets the next unplaced vertex and its neighbors. This is
//! repeated while the page has free places.

use adjoin::lab::{Edges, Room};

pub(super) fn bnp(edges: &Edges, room: Room) -> Vec<u32> {
    let mut placed = vec![false; edges.vertices()];
    let mut order: Vec<u32> = Vec::with_capacity(edges.vertices());
    for vertex in edges.numbers() {
        if placed[vertex as usize] {
            continue;
        }
        let page_end = (order.len() / room.records() + 1) * room.records();
        for member in std::iter::once(vertex).chain(edges.neighbors(vertex)) {
            // Neighbors that do not fit on this page are placed on a later one.
            if order.len() < page_end && !placed[member as usize] {
                placed[member as usize] = true;
                order.push(member);
            }
        }
    }
    order
}
