//! Block neighbor frequency (Starling, Algorithm 1) by the rules of the authors' partitioner, which the paper does not
//! state (`SonglinLife/SSD_BASED_PLAN`, commit `ee8c04d`).
//!
//! The first order is block neighbor padding. Each round empties all pages and places every vertex again. The score of
//! a page is the number of edges between it and the vertex, in either direction, times the fraction of the page that is
//! free. The vertex is placed on the page with the highest score. If no page has a score above 0, the vertex is placed
//! at once on the page with free places that has received no vertex for the longest time.
//!
//! A neighbor that was placed earlier in the round counts for its new page, any other neighbor for its page in the
//! previous round. The number of rounds is fixed: the paper's threshold on the gain would end most of its own runs of
//! Table 5 early.

use std::cmp::Reverse;
use std::collections::VecDeque;

use adjoin::{
    Cancel, Random, Result,
    lab::{Edges, Filling, Room},
};

use super::bnp::bnp;

/// Order in which a round places the vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// A random order, which is the same in all rounds: the authors' generator starts each round with its default seed.
    Shuffled,
    /// Vertices with larger gains first: prioritized restreaming (Starling, appendix G, GP3). Vertices with equal gains
    /// are in random order.
    Gain,
}

/// Returns the order after `rounds` rounds.
pub(super) fn bnf(cancel: &Cancel, edges: &Edges, room: Room, turns: Turns, rounds: usize) -> Result<Vec<u32>> {
    let mut shuffled: Vec<u32> = edges.numbers().collect();
    Random::new(1, "block neighbor frequency").shuffle(&mut shuffled);
    let mut order = bnp(edges, room);
    let mut votes = Votes::new(edges, room.pages_of(&order), room.pages());
    for _ in 0..rounds {
        cancel.check()?;
        order = match turns {
            Turns::Shuffled => votes.round(room, &shuffled),
            Turns::Gain => votes.round(room, &votes.clone().by_gain(&shuffled)),
        };
    }
    Ok(order)
}

/// Counts the edges between a vertex and each page.
#[derive(Clone)]
struct Votes<'e> {
    edges: &'e Edges,
    /// Page of each vertex.
    page_of: Vec<u32>,
    /// Number of edges between the vertex that was counted last and each page.
    of_page: Vec<u32>,
    /// Pages with a number above 0, in the order of the vertex's neighbors.
    reached: Vec<u32>,
}

impl<'e> Votes<'e> {
    fn new(edges: &'e Edges, page_of: Vec<u32>, pages: usize) -> Self {
        Self { edges, page_of, of_page: vec![0; pages], reached: Vec::new() }
    }

    /// Places all vertices in the order `turns`. Returns them by page.
    fn round(&mut self, room: Room, turns: &[u32]) -> Vec<u32> {
        let mut filling = Filling::new(room);
        let mut received: VecDeque<u32> = (0..room.pages() as u32).collect();
        for &vertex in turns {
            self.count(vertex);
            // All pages are equally large, except perhaps the last. So the free fraction is proportional to the places.
            let score = |page: u32| self.of_page[page as usize] as usize * filling.free(page);
            let best = self.reached.iter().map(|&page| (score(page), Reverse(page))).max();
            let page = match best {
                Some((score, Reverse(page))) if score > 0 => page,
                _ => std::iter::from_fn(|| received.pop_front())
                    .find(|&page| filling.has_room(page))
                    .expect("each page with free places is in the queue"),
            };
            filling.put(vertex, page);
            self.page_of[vertex as usize] = page;
            if filling.has_room(page) {
                received.push_back(page);
            }
        }
        filling.finish(turns)
    }

    /// Returns vertices in descending order of gain. The gain is the number of edges to the page with the most of them,
    /// minus the number of edges to the vertex's own page.
    fn by_gain(mut self, vertices: &[u32]) -> Vec<u32> {
        let mut gains: Vec<(Reverse<u32>, u32)> = Vec::with_capacity(vertices.len());
        for &vertex in vertices {
            self.count(vertex);
            let most = self.reached.iter().map(|&page| self.of_page[page as usize]).max().unwrap_or(0);
            let own = self.of_page[self.page_of[vertex as usize] as usize];
            gains.push((Reverse(most - own), vertex));
        }
        gains.sort_by_key(|gain| gain.0);
        gains.into_iter().map(|gain| gain.1).collect()
    }

    /// Counts the edges of a vertex by page.
    fn count(&mut self, vertex: u32) {
        let Self { edges, page_of, of_page, reached } = self;
        reached.drain(..).for_each(|page| of_page[page as usize] = 0);
        for tie in edges.ties(vertex) {
            let page = page_of[tie.other() as usize];
            if of_page[page as usize] == 0 {
                reached.push(page);
            }
            of_page[page as usize] += tie.edges();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::test_sets::graphs;

    /// Places all vertices by the rule as the paper and the authors' program state it, with fractions of pages.
    fn placed(lists: &[Vec<u32>], before: &[u32], room: Room, turns: &[u32]) -> Vec<u32> {
        let (mut page_of, mut sizes) = (before.to_vec(), vec![0; room.pages()]);
        let mut queue: VecDeque<usize> = (0..room.pages()).collect();
        for &vertex in turns {
            let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
            for (from, list) in (0..).zip(lists) {
                for &to in list.iter().filter(|&&to| to != from) {
                    let others = [(vertex == from).then_some(to), (vertex == to).then_some(from)];
                    for other in others.into_iter().flatten() {
                        *counts.entry(page_of[other as usize] as usize).or_default() += 1.0;
                    }
                }
            }
            let mut best = (0.0, None);
            for (&page, &count) in counts.iter().filter(|&(&page, _)| sizes[page] < room.of(page)) {
                let score = count * (room.of(page) - sizes[page]) as f64 / room.records() as f64;
                if score > best.0 {
                    best = (score, Some(page));
                }
            }
            let page = best.1.unwrap_or_else(|| {
                loop {
                    let page = queue.pop_front().unwrap();
                    if sizes[page] < room.of(page) {
                        break page;
                    }
                }
            });
            sizes[page] += 1;
            page_of[vertex as usize] = page as u32;
            queue.push_back(page);
        }
        page_of
    }

    #[test]
    fn rounds_place_vertices_as_the_authors_program_does() {
        for (name, lists) in graphs() {
            for records in [1, 4, 15] {
                let (edges, room) = (
                    Edges::of(0..lists.len() as u32, |vertex| &lists[vertex as usize]),
                    Room::new(lists.len(), records),
                );
                let mut turns: Vec<u32> = edges.numbers().collect();
                Random::new(1, "block neighbor frequency").shuffle(&mut turns);
                let mut expected = room.pages_of(&bnp(&edges, room));
                for rounds in 1..4 {
                    expected = placed(&lists, &expected, room, &turns);
                    let order = bnf(&Cancel::default(), &edges, room, Turns::Shuffled, rounds).unwrap();
                    assert_eq!(room.pages_of(&order), expected, "{name}: {records} records, {rounds} rounds");
                }
            }
        }
    }

    #[test]
    fn vertices_with_larger_gains_are_placed_first() {
        // Vertices 3 and 5 are on page 1. Vertex 3 has two edges to page 0. Vertex 4 has two edges to page 1 and one to
        // its own page. Vertex 0 has most edges to its own page, and 1 and 2 have no others.
        let lists: [&[u32]; 6] = [&[1, 2, 4], &[], &[], &[0], &[3, 5], &[]];
        let (edges, room) = (Edges::of(0..6, |vertex| lists[vertex as usize]), Room::new(6, 3));
        let votes = Votes::new(&edges, vec![0, 0, 0, 1, 0, 1], room.pages());
        assert_eq!(votes.by_gain(&[0, 1, 2, 3, 4, 5]), [3, 4, 5, 0, 1, 2]);
    }
}
