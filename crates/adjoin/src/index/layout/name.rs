//! The names of layouts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::{Argument, message};

/// In which order vectors lie on pages. All but the first two and GP1 go by the edges of the graph, all but the first two
/// within windows of the order of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// By row number, as DiskANN lays them.
    Rows,
    /// As they lie in the buckets of the store, whose tree of centers clusters vectors without regard to edges.
    Buckets,
    /// A vertex and its neighbors, page by page: block neighbor padding (Starling, section 4.1).
    Bnp,
    /// Each to the page on which most of its neighbors are: block neighbor frequency (Starling, section 4.1).
    Bnf,
    /// Swaps of two vertices after that: block neighbor swap (Starling, appendix E).
    Bns,
    /// Pages that grow along the edges, then the same swaps.
    #[default]
    Grown,
    /// Heavy edges first, where an edge weighs as a monotonic path needs it (MARGO, VLDB 2025).
    Margo,
    /// Breadth first, from and to vertices of few edges before others (NDSearch, section VI-A).
    Degree,
    /// Breadth first in the order of buckets, the base of that.
    Bfs,
    /// Halves of halves of the vectors, down to a page: hierarchical balanced clustering (GP1 in Starling, appendix G). It
    /// goes by vectors, so it is for indexes that are there.
    Gp1,
    /// All pages grow at the same time: k-way greedy graph growing (GP2 in Starling, appendix G).
    Gp2,
    /// Block neighbor frequency, who gains most first: prioritised restreaming (GP3 in Starling, appendix G).
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

    /// Its name.
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

    /// Whether the order depends on the vectors themselves.
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
