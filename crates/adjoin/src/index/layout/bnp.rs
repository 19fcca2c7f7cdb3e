//! Block neighbor padding (Starling, section 4.1): a page gets the next unplaced vertex and its neighbors. While there
//! is room, the next unplaced vertex follows with its neighbors.

use super::edges::Edges;
use super::filling::Room;
use crate::row_numbers::RowSet;

pub(super) fn bnp(edges: &Edges, room: Room) -> Vec<u32> {
    let mut placed = RowSet::new(edges.vertices() as u64);
    let mut order: Vec<u32> = Vec::with_capacity(edges.vertices());
    for vertex in edges.numbers() {
        if placed.contains(vertex.into()) {
            continue;
        }
        let page_end = (order.len() / room.records() + 1) * room.records();
        for member in std::iter::once(vertex).chain(edges.neighbors(vertex)) {
            // Neighbors that do not fit on this page are placed on another one.
            if order.len() < page_end && !placed.contains(member.into()) {
                placed.insert(member.into());
                order.push(member);
            }
        }
    }
    order
}
