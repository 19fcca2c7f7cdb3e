//! Block neighbor frequency (Starling, Algorithm 1).
//!
//! In each round, a vertex moves to the page that has the most of its neighbors, among pages with free places. If
//! there is no such page, the vertex fills a free place at the end of the round. A neighbor that was placed earlier
//! in the round counts for its new page. Other neighbors count for their page in the previous round. If all counted
//! for their previous page, a round would gain half as much.

use std::cmp::Reverse;

use adjoin::{
    Cancel, Result,
    lab::{Edges, Filling, Room, overlap_ratio},
};

use super::GAIN_MIN;
use super::bnp::bnp;

/// Order in which a round places the vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// The order that the previous round produced.
    Before,
    /// Vertices with larger gains first: prioritized restreaming (Starling, appendix G, GP3).
    Gain,
}

/// Returns the best order after up to `rounds_max` rounds. The first round starts from block neighbor padding.
pub(super) fn bnf(cancel: &Cancel, edges: &Edges, room: Room, turns: Turns, rounds_max: usize) -> Result<Vec<u32>> {
    let mut best = bnp(edges, room);
    let mut best_ratio = overlap_ratio(edges, &best, room);
    for _ in 0..rounds_max {
        cancel.check()?;
        let next = round(edges, &best, room, turns);
        let ratio = overlap_ratio(edges, &next, room);
        let gain = ratio - best_ratio;
        if gain > 0.0 {
            (best, best_ratio) = (next, ratio);
        }
        if gain < GAIN_MIN {
            break;
        }
    }
    Ok(best)
}

fn round(edges: &Edges, order: &[u32], room: Room, turns: Turns) -> Vec<u32> {
    let mut votes = Votes { page_of: room.pages_of(order), pages: Vec::new() };
    let mut filling = Filling::new(room);
    let mut take = |vertex: u32| {
        if let Some(page) = votes.most(edges, vertex, |page| filling.has_room(page)).map(|most| most.1) {
            filling.put(vertex, page);
            votes.page_of[vertex as usize] = page;
        }
    };
    match turns {
        Turns::Before => order.iter().for_each(|&vertex| take(vertex)),
        Turns::Gain => by_gain(edges, order, room).into_iter().for_each(take),
    }
    filling.finish(order)
}

/// Returns the vertices in descending order of gain. The gain is the number of neighbors on the page with the most of
/// them, minus the number of neighbors on the vertex's own page.
fn by_gain(edges: &Edges, order: &[u32], room: Room) -> Vec<u32> {
    let mut votes = Votes { page_of: room.pages_of(order), pages: Vec::new() };
    let mut gains: Vec<(Reverse<usize>, u32)> = Vec::with_capacity(order.len());
    for &vertex in order {
        let most = votes.most(edges, vertex, |_| true).map_or(0, |most| most.0);
        let own = votes.page_of[vertex as usize];
        let on_own = votes.pages.iter().filter(|&&page| page == own).count();
        gains.push((Reverse(most - on_own), vertex));
    }
    gains.sort_by_key(|gain| gain.0);
    gains.into_iter().map(|gain| gain.1).collect()
}

/// Counts the neighbors of a vertex by page.
struct Votes {
    /// Page of each vertex.
    page_of: Vec<u32>,
    /// Pages of the neighbors of the vertex that was counted last.
    pages: Vec<u32>,
}

impl Votes {
    /// Returns the page with the most neighbors of a vertex, preceded by their number, among pages for which `may_be`
    /// returns true. If several pages have equally many, it is the first one.
    fn most(&mut self, edges: &Edges, vertex: u32, may_be: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let Self { page_of, pages } = self;
        pages.clear();
        pages.extend(edges.neighbors(vertex).map(|neighbor| page_of[neighbor as usize]));
        pages.sort_unstable();
        let same = pages.chunk_by(|a, b| a == b).filter(|same| may_be(same[0]));
        same.map(|same| (same.len(), same[0])).max_by_key(|&(count, page)| (count, Reverse(page)))
    }
}
