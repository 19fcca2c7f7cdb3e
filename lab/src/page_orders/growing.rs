//! K-way greedy graph growing (GP2 in Starling, appendix G). All pages grow at the same time, each from one vertex.
//! Of all vertices and pages, the pair with the most edges between them is placed next.
//!
//! The first vertices of the pages are spread evenly over the order of buckets. In the paper, they are drawn at
//! random.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adjoin::{
    Cancel, Result,
    lab::{Edges, Filling, Room},
};

/// A possible placement: the number of ties between a vertex and a page, the vertex, and the page.
type Wish = (u32, Reverse<u32>, Reverse<u32>);
/// Number of placements between two checks for cancellation.
const CANCEL_EVERY: usize = 1 << 16;

pub(super) fn growing(cancel: &Cancel, edges: &Edges, room: Room) -> Result<Vec<u32>> {
    let mut filling = Filling::new(room);
    let mut wishes: BinaryHeap<Wish> = BinaryHeap::new();
    for page in 0..room.pages() {
        put(edges, (page * room.records()) as u32, page as u32, &mut filling, &mut wishes);
    }
    for turn in 0.. {
        if turn % CANCEL_EVERY == 0 {
            cancel.check()?;
        }
        let Some((_, Reverse(vertex), Reverse(page))) = wishes.pop() else { break };
        if filling.page_of(vertex).is_none() && filling.has_room(page) {
            put(edges, vertex, page, &mut filling, &mut wishes);
        }
    }
    Ok(filling.finish(&edges.numbers().collect::<Vec<_>>()))
}

/// Assigns a vertex to a page. Adds the possible placements of its neighbors on that page, which now has more edges
/// to them.
fn put(edges: &Edges, vertex: u32, page: u32, filling: &mut Filling, wishes: &mut BinaryHeap<Wish>) {
    filling.put(vertex, page);
    if !filling.has_room(page) {
        return;
    }
    for tie in edges.ties(vertex) {
        let other = tie.other();
        if filling.page_of(other).is_none() {
            let on_page = edges.ties(other).iter().filter(|tie| filling.page_of(tie.other()) == Some(page));
            wishes.push((on_page.map(|tie| tie.edges()).sum(), Reverse(other), Reverse(page)));
        }
    }
}
