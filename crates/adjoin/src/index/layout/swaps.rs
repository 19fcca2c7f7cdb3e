//! Swaps vertices between pages if that increases the sum of the weights of ties within pages. If every edge has a
//! weight of 1, this sum is OR(G), up to a factor (block neighbor swap: Starling, appendix E, Algorithm 3).
//!
//! For any two neighbors of a vertex, the algorithm of the paper tries to swap the vertices with the fewest neighbors
//! on the pages of the two. Most of these trials cannot gain: a swap gains only if one of its vertices has heavier ties
//! to the other page than to its own page. Therefore this module tries, for each vertex, only the pages to which the
//! vertex has heavier ties, but each vertex on these pages. That takes a few trials per vertex instead of the square of
//! the degree. Once a round gains nothing, no swap of any two vertices gains.

use super::edges::{Edges, Tie};
use super::filling::Room;
use crate::base::error::Result;
use crate::base::report::Cancel;

/// Rounds end if a round swaps fewer than one vertex in this number of vertices.
const SWAPS_SHARE: usize = 100;
/// Number of pages between two checks for cancellation.
const CANCEL_EVERY: usize = 4_096;

/// Improves an order by swaps. Runs at most `rounds_max` rounds over all vertices, and stops early after a round with
/// few swaps. `weight` returns the weight of a tie, which must be at least 1.
pub fn swapped(
    cancel: &Cancel,
    edges: &Edges,
    room: Room,
    order: Vec<u32>,
    weight: impl Fn(Tie) -> u32,
    rounds_max: usize,
) -> Result<Vec<u32>> {
    let mut swaps = Swaps::new(edges, room, weight, order);
    for _ in 0..rounds_max {
        let mut count = 0;
        for page in 0..room.pages() {
            if page % CANCEL_EVERY == 0 {
                cancel.check()?;
            }
            count += swaps.improve(page);
        }
        if count < edges.vertices() / SWAPS_SHARE {
            break;
        }
    }
    Ok(swaps.order)
}

/// A page, and the weight of the ties of a vertex to the other vertices on this page.
#[derive(Clone, Copy)]
struct PageTies {
    page: u32,
    weight: u32,
}

struct Swaps<'a, W> {
    edges: &'a Edges,
    weight: W,
    room: Room,
    order: Vec<u32>,
    page_of: Vec<u32>,
    /// Weight of the ties of each vertex to the other vertices on its page.
    own: Vec<u32>,
    /// Weight of the ties of each vertex to the page that is being improved.
    to_page: Vec<u32>,
    /// Weight of the ties of one vertex to each page.
    from_vertex: Vec<u32>,
    /// Pages with a weight above 0 in `from_vertex`.
    reached: Vec<u32>,
    /// Value of a unit of weight on a full page, and its value on the last page. They are in the proportion that OR(G)
    /// has.
    worth: [i64; 2],
}

impl<'a, W: Fn(Tie) -> u32> Swaps<'a, W> {
    fn new(edges: &'a Edges, room: Room, weight: W, order: Vec<u32>) -> Self {
        let (pages, page_of) = (room.pages(), room.pages_of(&order));
        let on = |vertex: u32, page: u32| {
            let on_page = edges.ties(vertex).iter().filter(|tie| page_of[tie.other() as usize] == page);
            on_page.map(|&tie| weight(tie)).sum::<u32>()
        };
        let own = edges.numbers().map(|vertex| on(vertex, page_of[vertex as usize])).collect();
        // On a page of m vertices, an edge adds 1 / (m - 1) to OR(G). On a page of one vertex, there are no edges.
        let [full, last] = [0, pages.saturating_sub(1)].map(|page| room.of(page) as i64 - 1);
        let worth = [last.max(1) * i64::from(full > 0), full * i64::from(last > 0)];
        let to_page = vec![0; edges.vertices()];
        Self {
            edges,
            weight,
            room,
            order,
            page_of,
            own,
            to_page,
            from_vertex: vec![0; pages],
            reached: Vec::new(),
            worth,
        }
    }

    fn members(&self, page: usize) -> std::ops::Range<usize> {
        let start = page * self.room.records();
        start..start + self.room.of(page)
    }

    fn worth(&self, page: u32) -> i64 {
        self.worth[usize::from(page as usize + 1 == self.room.pages())]
    }

    /// Swaps each vertex of a page with a vertex of another page if that gains. Returns the number of swaps.
    fn improve(&mut self, page: usize) -> usize {
        let mut count = 0;
        self.count_to_page(page, 1);
        for at in self.members(page) {
            if let Some(other) = self.best_swap(at) {
                // The swap changes the members of the page, so their counts are removed before the swap and added again
                // after it.
                self.count_to_page(page, -1);
                self.swap(at, other);
                count += 1;
                self.count_to_page(page, 1);
            }
        }
        self.count_to_page(page, -1);
        count
    }

    /// Adds the weights of all ties to the members of a page to `to_page`, multiplied by `times`.
    fn count_to_page(&mut self, page: usize, times: i32) {
        for at in self.members(page) {
            for &tie in self.edges.ties(self.order[at]) {
                let count = &mut self.to_page[tie.other() as usize];
                *count = count.wrapping_add_signed(times * (self.weight)(tie) as i32);
            }
        }
    }

    /// Returns the place with which to swap the vertex at place `at`. It is the place with the largest gain or, if
    /// gains are equal, the first one. Returns `None` if no swap gains.
    fn best_swap(&mut self, at: usize) -> Option<usize> {
        let vertex = self.order[at];
        let page = self.page_of[vertex as usize];
        for &tie in self.edges.ties(vertex) {
            let other = self.page_of[tie.other() as usize];
            if self.from_vertex[other as usize] == 0 {
                self.reached.push(other);
            }
            self.from_vertex[other as usize] += (self.weight)(tie);
        }
        let mut best: Option<(i64, usize)> = None;
        for &other in self.reached.iter().filter(|&&other| other != page) {
            let own = PageTies { page, weight: self.own[vertex as usize] };
            let to_other = self.gain(own, PageTies { page: other, weight: self.from_vertex[other as usize] });
            // If this vertex does not gain, a swap can gain only if the other vertex does. It is then found when the
            // page of the other vertex is improved.
            if to_other > 0 {
                for to in self.members(other as usize) {
                    let gain =
                        to_other + self.gain_of_other(vertex, to, page, best.map_or(0, |best| best.0) - to_other);
                    if gain > best.map_or(0, |best| best.0) {
                        best = Some((gain, to));
                    }
                }
            }
        }
        self.reached.drain(..).for_each(|page| self.from_vertex[page as usize] = 0);
        best.map(|best| best.1)
    }

    /// Returns the gain of moving a vertex from one page to another.
    fn gain(&self, from: PageTies, to: PageTies) -> i64 {
        self.worth(to.page) * i64::from(to.weight) - self.worth(from.page) * i64::from(from.weight)
    }

    /// Returns the gain of moving the vertex at place `at` to page `to`, in exchange for `vertex`. Ties between the two
    /// vertices are subtracted, since both end up on different pages again. They are looked up only if the gain is more
    /// than `least`.
    fn gain_of_other(&self, vertex: u32, at: usize, to: u32, least: i64) -> i64 {
        let other = self.order[at];
        let from = self.page_of[other as usize];
        let own = PageTies { page: from, weight: self.own[other as usize] };
        let gain = self.gain(own, PageTies { page: to, weight: self.to_page[other as usize] });
        if gain <= least {
            return gain;
        }
        gain - (self.worth(from) + self.worth(to))
            * i64::from(self.edges.between(vertex, other).map_or(0, &self.weight))
    }

    /// Swaps the vertices at two places, which are on different pages.
    fn swap(&mut self, at: usize, other: usize) {
        let pages = [at, other].map(|at| self.page_of[self.order[at] as usize]);
        for (at, [from, to]) in [(at, pages), (other, [pages[1], pages[0]])] {
            let vertex = self.order[at];
            let mut own = 0;
            for &tie in self.edges.ties(vertex) {
                let page = self.page_of[tie.other() as usize];
                if page == from {
                    self.own[tie.other() as usize] -= (self.weight)(tie);
                } else if page == to {
                    self.own[tie.other() as usize] += (self.weight)(tie);
                    own += (self.weight)(tie);
                }
            }
            self.page_of[vertex as usize] = to;
            self.own[vertex as usize] = own;
        }
        self.order.swap(at, other);
    }
}
