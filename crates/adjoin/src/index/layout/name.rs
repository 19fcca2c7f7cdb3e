//! Names of page layouts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::{Argument, message};

/// Order of vectors on pages. All but `Rows`, `Buckets` and `Gp1` are based on the edges of the graph. All but `Rows`
/// and `Buckets` work within windows of the order of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// By row number, as in DiskANN.
    Rows,
    /// As in the buckets of the store, whose tree of centers clusters vectors without regard to edges.
    Buckets,
    /// A vertex and its neighbors, page by page: block neighbor padding (Starling, section 4.1).
    Bnp,
    /// Each vertex on the page with most of its neighbors: block neighbor frequency (Starling, section 4.1).
    Bnf,
    /// Block neighbor frequency, then swaps of two vertices: block neighbor swap (Starling, appendix E).
    Bns,
    /// Pages that grow along the edges, followed by the same swaps.
    #[default]
    Grown,
    /// Heavy edges first, weighted by their use for monotonic paths (MARGO, VLDB 2025).
    Margo,
    /// Breadth first, visiting vertices with few edges first (NDSearch, section VI-A).
    Degree,
    /// Breadth first in the order of buckets, as a baseline for `Degree`.
    Bfs,
    /// Vectors halved repeatedly, down to a page: hierarchical balanced clustering (GP1 in Starling, appendix G). It
    /// needs the vectors, so it only applies to an existing index.
    Gp1,
    /// All pages grow at once: k-way greedy graph growing (GP2 in Starling, appendix G).
    Gp2,
    /// Block neighbor frequency, largest gain first: prioritized restreaming (GP3 in Starling, appendix G).
    Gp3,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 12] = [
        Self::Rows,
        Self::Buckets,
        Self::Bnp,
        Self::Bnf,
        Self::Bns,
        Self::Grown,
        Self::Margo,
        Self::Degree,
        Self::Bfs,
        Self::Gp1,
        Self::Gp2,
        Self::Gp3,
    ];

    /// Returns the name of the layout.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Buckets => "buckets",
            Self::Bnp => "bnp",
            Self::Bnf => "bnf",
            Self::Bns => "bns",
            Self::Grown => "grown",
            Self::Margo => "margo",
            Self::Degree => "degree",
            Self::Bfs => "bfs",
            Self::Gp1 => "gp1",
            Self::Gp2 => "gp2",
            Self::Gp3 => "gp3",
        }
    }

    /// Returns whether the order depends on the vectors themselves.
    pub(crate) fn goes_by_vectors(self) -> bool {
        self == Self::Gp1
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(message![Argument::Layout, format!(" is {name:?}; give one of {names}")])
        })
    }
}
