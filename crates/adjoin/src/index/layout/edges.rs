//! Collects the edges among consecutive vertices of a graph. Each vertex has a list of its incoming and outgoing edges.

use std::ops::Range;

/// Largest number of vertices in a window. A tie has [`VERTEX_BITS`] bits for a vertex.
pub(super) const WINDOW_MAX: usize = 1 << VERTEX_BITS;
const VERTEX_BITS: u32 = 20;
/// Number of bits that a tie has for the rank of an edge.
const RANK_BITS: u32 = 6;
/// Number of distinct ranks, including 0 for no edge.
pub(super) const RANKS: usize = 1 << RANK_BITS;
/// Largest rank. Edges with a larger rank get this one.
const RANK_MAX: u32 = RANKS as u32 - 1;

/// Connection from a vertex to another vertex: an edge to the other vertex, an edge from it, or both.
///
/// The rank of an edge is its position among the out-neighbors of its source, nearest first. The first has rank 1. A
/// rank of 0 means that there is no edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tie(u32);

impl Tie {
    /// Returns the other vertex.
    pub fn other(self) -> u32 {
        self.0 & (WINDOW_MAX as u32 - 1)
    }

    /// Returns the rank of the edge to the other vertex.
    pub fn rank_to(self) -> u32 {
        self.0 >> VERTEX_BITS & RANK_MAX
    }

    /// Returns the rank of the edge from the other vertex.
    pub fn rank_from(self) -> u32 {
        self.0 >> (VERTEX_BITS + RANK_BITS)
    }

    /// Returns whether there is an edge to the other vertex.
    pub fn leads_out(self) -> bool {
        self.rank_to() > 0
    }

    /// Returns the number of edges, 1 or 2.
    pub fn edges(self) -> u32 {
        u32::from(self.rank_to() > 0) + u32::from(self.rank_from() > 0)
    }
}

/// Ties among the vertices of a window. Vertices are numbered from 0 within the window. Edges that leave the window are
/// omitted.
pub struct Edges {
    /// Start of the ties of each vertex in `ties`, followed by the end of the last ones.
    starts: Vec<u32>,
    /// Ties of all vertices, sorted by vertex and then by the other vertex.
    ties: Vec<Tie>,
}

impl Edges {
    /// Collects the ties among the vertices of a window. `neighbors` returns the out-neighbors of a vertex. It takes
    /// and returns numbers in the graph.
    pub fn of<'g>(window: Range<u32>, neighbors: impl Fn(u32) -> &'g [u32]) -> Self {
        let count = window.len();
        assert!(count <= WINDOW_MAX, "{count} vertices in a window");
        // Passes the source, target and rank of each edge to `take`. It is called twice: first to count the ties of
        // each vertex, then to store them.
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

    /// Merges the two ties of vertices that have edges in both directions.
    fn join(&mut self) {
        let Self { starts, ties } = self;
        let mut joined = 0;
        for vertex in 0..starts.len() - 1 {
            let range = starts[vertex] as usize..starts[vertex + 1] as usize;
            ties[range.clone()].sort_unstable_by_key(|tie| tie.other());
            starts[vertex] = joined as u32;
            for at in range {
                let tie = ties[at];
                // After the sort, ties for both directions between two vertices are adjacent. Their ranks are in
                // different bits.
                if joined > starts[vertex] as usize && ties[joined - 1].other() == tie.other() {
                    ties[joined - 1].0 |= tie.0;
                    continue;
                }
                ties[joined] = tie;
                joined += 1;
            }
        }
        *starts.last_mut().expect("starts end with a total") = joined as u32;
        ties.truncate(joined);
    }

    /// Returns the bytes of the ties among `vertices` vertices with at most `degree` out-neighbors each.
    pub(super) fn memory_bytes(vertices: usize, degree: usize) -> u64 {
        let (starts, ties) = (2 * (vertices as u64 + 1), 2 * vertices as u64 * degree as u64);
        starts * size_of::<u32>() as u64 + ties * size_of::<Tie>() as u64
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the numbers of all vertices.
    pub fn numbers(&self) -> Range<u32> {
        0..self.vertices() as u32
    }

    /// Returns the ties of a vertex, sorted by the other vertex.
    pub fn ties(&self, vertex: u32) -> &[Tie] {
        &self.ties[self.starts[vertex as usize] as usize..self.starts[vertex as usize + 1] as usize]
    }

    /// Returns the out-neighbors of a vertex, ascending.
    pub fn neighbors(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.ties(vertex).iter().filter(|tie| tie.leads_out()).map(|tie| tie.other())
    }

    /// Returns the tie from a vertex to another, if there is one.
    pub fn between(&self, vertex: u32, other: u32) -> Option<Tie> {
        let ties = self.ties(vertex);
        ties.binary_search_by_key(&other, |tie| tie.other()).ok().map(|at| ties[at])
    }
}
