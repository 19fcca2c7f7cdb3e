//! Fills pages one after another. A page starts with the first vertex that has no page. Then the vertex with the
//! heaviest ties to the page is added, until the page is full. If weights are equal, the vertex with the lowest number
//! is added.

use std::cmp::Reverse;

use super::edges::{Edges, RANKS, Tie};
use super::filling::Room;
use crate::base::error::Result;
use crate::base::report::Cancel;
use crate::base::row_numbers::RowSet;

/// Number of pages between two checks for cancellation.
const CANCEL_EVERY: usize = 4_096;

/// Weight of an edge by rank: 0 for no edge, 960 for the first out-neighbor.
const WEIGHTS: [u32; RANKS] = {
    let (mut weights, mut rank) = ([0; RANKS], 1);
    while rank < RANKS {
        weights[rank] = (960 * 960 / rank as u32).isqrt();
        rank += 1;
    }
    weights
};

/// Returns the weight of a tie: the sum over its edges of 960 divided by the square root of the rank.
///
/// OR(G) counts all edges equally. But a walk reads most of its pages near its end, when it visits the vertices nearest
/// to the query. Compared with equal weights, these weights save 7 to 11 % of the reads at equal recall, although OR(G)
/// is a tenth lower. Weights divided by the rank itself save less than half of that.
pub fn weight(tie: Tie) -> u32 {
    WEIGHTS[tie.rank_to() as usize] + WEIGHTS[tie.rank_from() as usize]
}

/// Returns an order of the vertices such that pages grow along heavy ties.
pub fn grown(cancel: &Cancel, edges: &Edges, room: Room) -> Result<Vec<u32>> {
    let count = edges.vertices();
    let mut growth = Growth { edges, placed: RowSet::new(count as u64), weights: vec![0; count], near: Vec::new() };
    let mut order: Vec<u32> = Vec::with_capacity(count);
    // A vertex keeps its page, so one pass over the numbers finds the first vertices of all pages.
    let mut seeds = edges.numbers();
    for page in 0..room.pages() {
        if page % CANCEL_EVERY == 0 {
            cancel.check()?;
        }
        for _ in 0..room.of(page) {
            let nearest = growth.nearest();
            let mut seed = || seeds.find(|&vertex| !growth.placed.contains(vertex.into()));
            let vertex = nearest.or_else(&mut seed).expect("some vertices have no page yet");
            order.push(vertex);
            growth.place(vertex);
        }
        growth.end_page();
    }
    Ok(order)
}

/// The page that is being filled.
struct Growth<'a> {
    edges: &'a Edges,
    /// Vertices that have a page.
    placed: RowSet,
    /// Weight of the ties of each vertex to this page; 0 for vertices that have a page.
    weights: Vec<u32>,
    /// Vertices that have no page yet and have ties to this page.
    near: Vec<u32>,
}

impl Growth<'_> {
    /// Removes the vertex with the heaviest ties to the page from `near` and returns it.
    fn nearest(&mut self) -> Option<u32> {
        // `near` has no particular order, so the number decides if weights are equal.
        let weight = |vertex: u32| (self.weights[vertex as usize], Reverse(vertex));
        let at = (0..self.near.len()).max_by_key(|&at| weight(self.near[at]))?;
        Some(self.near.swap_remove(at))
    }

    /// Assigns a vertex to the page.
    fn place(&mut self, vertex: u32) {
        self.placed.insert(vertex.into());
        self.weights[vertex as usize] = 0;
        for &tie in self.edges.ties(vertex) {
            let other = tie.other();
            if !self.placed.contains(other.into()) {
                let before = &mut self.weights[other as usize];
                // The vertex had no tie to this page, so it is not in `near` yet.
                if *before == 0 {
                    self.near.push(other);
                }
                *before += weight(tie);
            }
        }
    }

    fn end_page(&mut self) {
        // The weights of all other vertices are 0. Clearing all weights for each page would take quadratic time.
        self.near.drain(..).for_each(|vertex| self.weights[vertex as usize] = 0);
    }
}
