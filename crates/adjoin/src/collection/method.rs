//! How a merge computes the new long-term index.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// How a merge computes the new index. Results of searches are equal up to the recall of walks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMethod {
    /// Changes the index if few rows have changed, else builds it.
    #[default]
    Fastest,
    /// Builds an index of all rows.
    Build,
    /// Changes the index: the neighbors of a deleted vertex become candidates for the vertices that had it as a
    /// neighbor (FreshDiskANN, Algorithm 4).
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
