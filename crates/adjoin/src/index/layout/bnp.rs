//! Block neighbor padding (Starling, section 4.1): a page gets the next vertex that has none, its neighbors, and where there
//! is still room, the next such vertex with its own.

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
            // Neighbors that find no room on this page wait for another.
            if order.len() < page_end && !placed.contains(member.into()) {
                placed.insert(member.into());
                order.push(member);
            }
        }
    }
    order
}
