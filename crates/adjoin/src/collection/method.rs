//! How rows in memory become rows of the index on disk.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How a merge makes the new index. What is found in it is the same up to the recall of walks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMethod {
    /// By changing the index where few rows have changed, else by building.
    #[default]
    Fastest,
    /// An index of all rows is built.
    Build,
    /// The index is changed: whoever had a neighbor that goes may have the neighbors of that one (FreshDiskANN, Algorithm 4).
    Change,
    /// The same with the nearest of that one's neighbors alone, to compare it with.
    ChangeNearest,
}

impl MergeMethod {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fastest, Self::Build, Self::Change, Self::ChangeNearest];
}

impl fmt::Display for MergeMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Fastest => "fastest",
            Self::Build => "build",
            Self::Change => "change",
            Self::ChangeNearest => "change-nearest",
        })
    }
}

impl FromStr for MergeMethod {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|method| method.to_string() == name).ok_or_else(|| {
            let names = Self::ALL.map(|method| method.to_string()).join(", ");
            Error::option(format!("{name} is no way to merge; give one of {names}"))
        })
    }
}
