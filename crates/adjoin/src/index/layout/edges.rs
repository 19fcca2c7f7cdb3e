//! The edges among some consecutive vertices of a graph, both ways.

use std::ops::Range;

/// Most vertices of a window: what the number of a vertex has bits for in a tie.
pub(super) const WINDOW_MAX: usize = 1 << VERTEX_BITS;
const VERTEX_BITS: u32 = 20;
/// Bits of the rank of an edge.
const RANK_BITS: u32 = 6;
/// Ranks that are told apart, that of no edge among them.
pub(super) const RANKS: usize = 1 << RANK_BITS;
/// Ranks from here on are taken for equal.
const RANK_MAX: u32 = RANKS as u32 - 1;

/// What ties a vertex to another: an edge to it, one from it, or both.
///
/// Each edge with its rank among the out-neighbors of where it begins, which are the nearest first: 1 for the first, 0 for no
/// edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tie(u32);

impl Tie {
    /// The other vertex.
    pub(super) fn other(self) -> u32 {
        self.0 & (WINDOW_MAX as u32 - 1)
    }

    /// The rank of the edge to the other vertex.
    pub(super) fn rank_to(self) -> u32 {
        self.0 >> VERTEX_BITS & RANK_MAX
    }

    /// The rank of the edge from the other vertex.
    pub(super) fn rank_from(self) -> u32 {
        self.0 >> (VERTEX_BITS + RANK_BITS)
    }

    /// Whether an edge leads to the other vertex.
    pub(super) fn leads_out(self) -> bool {
        self.rank_to() > 0
    }

    /// How many edges it is: 1 or 2.
    pub(super) fn edges(self) -> u32 {
        u32::from(self.rank_to() > 0) + u32::from(self.rank_from() > 0)
    }
}

/// The ties among the vertices of a window, which have numbers from 0 here. Edges that leave the window are left out.
pub(super) struct Edges {
    /// Where the ties of each vertex begin, and where the last end.
    starts: Vec<u32>,
    /// For each vertex by the numbers of the others.
    ties: Vec<Tie>,
}

impl Edges {
    /// The ties among these vertices, whose out-neighbors `neighbors` gives by their numbers in the graph.
    pub(super) fn of<'g>(window: Range<u32>, neighbors: impl Fn(u32) -> &'g [u32]) -> Self {
        let count = window.len();
        assert!(count <= WINDOW_MAX, "{count} vertices in a window");
        // Pairs of (from, to, rank), twice: to know how much room each vertex needs, then to fill it.
        let each = |take: &mut dyn FnMut(u32, u32, u32)| {
            for vertex in window.clone() {
                let inside = |neighbor: &u32| window.contains(neighbor) && *neighbor != vertex;
                for (&neighbor, rank) in neighbors(vertex).iter().zip(1..).filter(|(neighbor, _)| inside(neighbor)) {
                    take(vertex - window.start, neighbor - window.start, RANK_MAX.min(rank));
                }
            }
        };
        let mut starts = vec![0u32; count + 1];
        each(&mut |from, to, _| [from, to].into_iter().for_each(|vertex| starts[vertex as usize + 1] += 1));
        (0..count).for_each(|vertex| starts[vertex + 1] += starts[vertex]);
        let mut ties = vec![Tie(0); starts[count] as usize];
        let mut ends = starts.clone();
        each(&mut |from, to, rank| {
            let sides = [(from, to | rank << VERTEX_BITS), (to, from | rank << (VERTEX_BITS + RANK_BITS))];
            for (vertex, tie) in sides {
                ties[ends[vertex as usize] as usize] = Tie(tie);
                ends[vertex as usize] += 1;
            }
        });
        let mut edges = Self { starts, ties };
        edges.join();
        edges
    }

    /// Makes one tie of the edges between two vertices.
    fn join(&mut self) {
        let Self { starts, ties } = self;
        let mut joined = 0;
        for vertex in 0..starts.len() - 1 {
            let range = starts[vertex] as usize..starts[vertex + 1] as usize;
            ties[range.clone()].sort_unstable_by_key(|tie| tie.other());
            starts[vertex] = joined as u32;
            for at in range {
                let tie = ties[at];
                if joined > starts[vertex] as usize && ties[joined - 1].other() == tie.other() {
                    ties[joined - 1].0 |= tie.0;
                    continue;
                }
                ties[joined] = tie;
                joined += 1;
            }
        }
        *starts.last_mut().expect("there is an end") = joined as u32;
        ties.truncate(joined);
    }

    /// Bytes that the edges of so many vertices take, each of so many at most.
    pub(super) fn memory_bytes(vertices: usize, degree: usize) -> u64 {
        let (starts, ties) = (2 * (vertices as u64 + 1), 2 * vertices as u64 * degree as u64);
        starts * size_of::<u32>() as u64 + ties * size_of::<Tie>() as u64
    }

    /// How many vertices there are.
    pub(super) fn vertices(&self) -> usize {
        self.starts.len() - 1
    }

    /// The numbers of all vertices.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.vertices() as u32
    }

    /// The ties of a vertex, by the numbers of the others.
    pub(super) fn ties(&self, vertex: u32) -> &[Tie] {
        &self.ties[self.starts[vertex as usize] as usize..self.starts[vertex as usize + 1] as usize]
    }

    /// How many ties there are, each counted at both ends.
    pub(super) fn len(&self) -> usize {
        self.ties.len()
    }

    /// The out-neighbors of a vertex, by their numbers.
    pub(super) fn neighbors(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.ties(vertex).iter().filter(|tie| tie.leads_out()).map(|tie| tie.other())
    }

    /// What ties a vertex to another.
    pub(super) fn between(&self, vertex: u32, other: u32) -> Option<Tie> {
        let ties = self.ties(vertex);
        ties.binary_search_by_key(&other, |tie| tie.other()).ok().map(|at| ties[at])
    }
}
