//! Heavy edges first (MARGO: Yue et al., PVLDB 18). Groups of vertices are merged along edges, in descending order of
//! weight, if the result fits on a page.
//!
//! During pruning, MARGO counts how many candidates an edge represents, which is the number of candidates that can be
//! reached by a monotonic path that starts with the edge. A graph does not store these counts. They decrease with the
//! rank of an edge, because nearer neighbors are kept first and remove the candidates beyond them. Therefore the
//! weight of an edge is derived from its rank here.

use adjoin::{
    Cancel, Result,
    lab::{Edges, Filling, Room, Tie},
};

/// Weights of ties are below this number.
const WEIGHTS: usize = 128;

/// Returns the weight of a tie. It is larger if the vertices are nearer in the order of each other's neighbors.
fn weight(tie: Tie) -> u32 {
    let of_rank = |rank: u32| if rank == 0 { 0 } else { 64 - rank };
    of_rank(tie.rank_to()) + of_rank(tie.rank_from())
}

pub(super) fn margo(cancel: &Cancel, edges: &Edges, room: Room) -> Result<Vec<u32>> {
    let mut groups = Groups { above: edges.numbers().collect(), sizes: vec![1; edges.vertices()] };
    for (from, to) in heaviest_first(edges) {
        groups.join(from, to, room.records() as u32);
    }
    cancel.check()?;
    Ok(groups.packed(edges, room))
}

/// Returns the ties between different vertices, each once, in descending order of weight. Ties of equal weight are in
/// the order of their vertices.
fn heaviest_first(edges: &Edges) -> Vec<(u32, u32)> {
    let once = |vertex: u32| edges.ties(vertex).iter().filter(move |tie| tie.other() > vertex);
    let mut ends = [0usize; WEIGHTS + 1];
    let place = |tie: &Tie| WEIGHTS - 1 - weight(*tie) as usize;
    edges.numbers().flat_map(once).for_each(|tie| ends[place(tie) + 1] += 1);
    (0..WEIGHTS).for_each(|weight| ends[weight + 1] += ends[weight]);
    let mut sorted = vec![(0, 0); ends[WEIGHTS]];
    for vertex in edges.numbers() {
        for tie in once(vertex) {
            let end = &mut ends[place(tie)];
            sorted[*end] = (vertex, tie.other());
            *end += 1;
        }
    }
    sorted
}

/// Groups of vertices, as a disjoint-set forest.
struct Groups {
    /// Parent of each vertex in its group. The representative of a group is its own parent.
    above: Vec<u32>,
    /// Size of each group, stored at its representative.
    sizes: Vec<u32>,
}

impl Groups {
    /// Returns the representative of a vertex's group.
    fn first(&mut self, mut vertex: u32) -> u32 {
        while self.above[vertex as usize] != vertex {
            let above = self.above[vertex as usize];
            self.above[vertex as usize] = self.above[above as usize];
            vertex = above;
        }
        vertex
    }

    /// Merges the groups of two vertices, unless the result would have more than `most` vertices.
    fn join(&mut self, one: u32, other: u32, most: u32) {
        let (one, other) = (self.first(one), self.first(other));
        let size = self.sizes[one as usize] + self.sizes[other as usize];
        if one != other && size <= most {
            let (least, greatest) = (one.min(other), one.max(other));
            self.above[greatest as usize] = least;
            self.sizes[least as usize] = size;
        }
    }

    /// Assigns groups to pages, larger groups first. A group gets the page with the fewest free places that suffice
    /// for it. The vertices of groups that fit on no page fill the remaining places.
    fn packed(mut self, edges: &Edges, room: Room) -> Vec<u32> {
        let mut order: Vec<u32> = edges.numbers().collect();
        let firsts: Vec<u32> = edges.numbers().map(|vertex| self.first(vertex)).collect();
        let key =
            |vertex: u32| (std::cmp::Reverse(self.sizes[firsts[vertex as usize] as usize]), firsts[vertex as usize]);
        order.sort_by_key(|&vertex| key(vertex));
        let mut filling = Filling::new(room);
        let mut by_free: Vec<Vec<u32>> = vec![Vec::new(); room.records() + 1];
        (0..room.pages() as u32).rev().for_each(|page| by_free[filling.free(page)].push(page));
        for group in order.chunk_by(|a, b| firsts[*a as usize] == firsts[*b as usize]) {
            let page = (group.len()..by_free.len()).find_map(|free| by_free[free].pop());
            if let Some(page) = page {
                group.iter().for_each(|&vertex| filling.put(vertex, page));
                by_free[filling.free(page)].push(page);
            }
        }
        filling.finish(&order)
    }
}
