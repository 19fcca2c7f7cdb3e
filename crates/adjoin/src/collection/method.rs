//! Methods by which a merge computes the new long-term index.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// Method by which a merge computes the new index. The methods differ in time; search results differ only within the
/// recall of walks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMethod {
    /// Changes the current index if few rows have changed; otherwise builds a new one.
    #[default]
    Fastest,
    /// Builds a new index of all rows.
    Build,
    /// Changes the current index. The neighbors of a deleted vertex become candidates for all vertices that had it as
    /// a neighbor (FreshDiskANN, Algorithm 4).
    Change,
}

impl MergeMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Fastest, Self::Build, Self::Change];
}

impl fmt::Display for MergeMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Fastest => "fastest",
            Self::Build => "build",
            Self::Change => "change",
        })
    }
}

impl FromStr for MergeMethod {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|method| method.to_string() == name).ok_or_else(|| {
            let names = Self::ALL.map(|method| method.to_string()).join(", ");
            Error::option(format!("{name} is not a merge method; give one of {names}"))
        })
    }
}
