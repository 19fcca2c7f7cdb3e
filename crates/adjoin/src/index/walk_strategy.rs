//! Parameters of walks. Searches use the default. The laboratory sets others in an open index.

/// Largest number of queries in flight per thread. It is large enough to hide the latency of reads, and so small that
/// the sets of seen vertices and the distance tables of all queries stay in the processor's cache.
const WALKS: usize = 16;
/// Number of pages that a query requests at once if few queries are in flight, including the page that it needs.
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

/// Parameters of walks. The hits depend only on `expanded`, `entry` and `beam`. The cost depends on all fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkStrategy {
    /// Fraction of the vertices of a page, nearest first, whose neighbors are always examined, 0 to 1.
    pub expanded: f64,
    /// Where walks start.
    pub entry: Entry,
    /// Number of pages that a walk requests together and waits for, as in DiskANN's beam. A walk with a beam of 1 waits
    /// for one page at a time.
    pub beam: usize,
    /// Largest number of queries in flight per thread.
    pub walks: usize,
    /// Number of pages that a query requests at once if few queries are in flight, including the page that it needs.
    pub ahead: usize,
    /// Whether queries that start near each other run at about the same time (NDSearch's dynamic allocating, section
    /// VI-B).
    pub near_together: bool,
    /// Whether queries share pages. If not, each query reads every page that it needs, and prefetches no pages.
    pub shares: bool,
}

impl Default for WalkStrategy {
    fn default() -> Self {
        let (entry, beam) = (Entry::Navigation, 1);
        Self { expanded: EXPANDED, entry, beam, walks: WALKS, ahead: AHEAD, near_together: true, shares: true }
    }
}

impl WalkStrategy {
    /// Returns the strategy for a search. Queries share pages only if both the strategy and `shares` allow it.
    pub(super) fn shared_if(self, shares: bool) -> Self {
        Self { shares: self.shares && shares, ..self }
    }

    /// Returns whether walks find the same hits as with `other`.
    pub(super) fn finds_the_same(&self, other: &Self) -> bool {
        (self.expanded, self.entry, self.beam) == (other.expanded, other.entry, other.beam)
    }
}
