//! The numbers that walks go by. Searches use the default; the laboratory hands others to an open index.

/// Largest number of queries in flight per thread. Enough to hide the latency of a read, and few enough that their
/// visited vertices and distance tables stay in the processor's cache.
const WALKS: usize = 16;
/// Number of pages that a lone query requests at once, including the one that it needs.
const AHEAD: usize = 8;
/// Fraction of the vertices of a page, nearest first, whose neighbors are examined even if the list has nearer vertices
/// (Starling's sigma, appendix K).
const EXPANDED: f64 = 0.3;
/// Where walks start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the nearest vertices of the navigation graph (Starling, section 4.2), and at the entry of the graph.
    Navigation,
    /// At the entry of the graph, which is in its middle.
    Vertex,
}

/// How walks proceed. The hits depend on `expanded`, `entry` and `beam` only, the cost on all fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkStrategy {
    /// Fraction of the vertices of a page, nearest first, whose neighbors are always examined, 0 to 1.
    pub expanded: f64,
    /// Where walks start.
    pub entry: Entry,
    /// Pages that are requested and waited for together, as in DiskANN's beam; 1 reads a page at a time.
    pub beam: usize,
    /// Queries in flight per thread.
    pub walks: usize,
    /// Pages that a query requests at once if few queries are in flight, including the one that it needs.
    pub ahead: usize,
    /// Runs queries together that start near each other (NDSearch's dynamic allocating, section VI-B).
    pub near_together: bool,
    /// Shares pages between queries. If `false`, each query reads every page that it needs, and nothing in advance.
    pub shares: bool,
}

impl Default for WalkStrategy {
    fn default() -> Self {
        let (entry, beam) = (Entry::Navigation, 1);
        Self { expanded: EXPANDED, entry, beam, walks: WALKS, ahead: AHEAD, near_together: true, shares: true }
    }
}

impl WalkStrategy {
    /// Returns the strategy with pages shared between queries only if `shares` is set too.
    pub(super) fn shared_if(self, shares: bool) -> Self {
        Self { shares: self.shares && shares, ..self }
    }

    /// Returns whether walks find the same hits as with `other`.
    pub(super) fn finds_the_same(&self, other: &Self) -> bool {
        (self.expanded, self.entry, self.beam) == (other.expanded, other.entry, other.beam)
    }
}
