//! Options of building an index.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::graph::GraphOptions;
use crate::message::{Argument, message};

/// Valid page sizes.
const PAGE_BYTES: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Largest code in bytes.
const CODE_BYTES_MAX: usize = 1_024;

/// Method of building the graph of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphMethod {
    /// From the nearest rows of each row, which a search of the store finds for all at once.
    #[default]
    Near,
    /// By inserting vertices one after another, with searches of the graph itself (FreshDiskANN, Algorithm 2). All
    /// vectors are in memory.
    Vamana,
}

impl GraphMethod {
    const ALL: [Self; 2] = [Self::Near, Self::Vamana];

    /// Returns the name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Vamana => "vamana",
        }
    }
}

impl fmt::Display for GraphMethod {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for GraphMethod {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| Error::option(message![Argument::Graph, format!(" is {name:?}; give near or vamana")]))
    }
}

/// Options of building an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexOptions {
    /// Method of building the graph.
    pub method: GraphMethod,
    /// Options of the graph. Its seed also draws the samples for codes and for the navigation graph.
    pub graph: GraphOptions,
    /// Bytes of a vector's code, 1 to 1,024. Vectors with fewer dimensions have one byte per dimension.
    pub code_bytes: usize,
    /// Number of vectors in the navigation graph, which a search holds in memory: 1 to all. By default one in a
    /// hundred, at most 10,000.
    pub navigation: Option<u32>,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page_bytes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            method: GraphMethod::default(),
            graph: GraphOptions::default(),
            code_bytes: 32,
            navigation: None,
            page_bytes: PAGE_BYTES[0],
        }
    }
}

impl IndexOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        self.graph.check()?;
        if !(1..=CODE_BYTES_MAX).contains(&self.code_bytes) {
            let range = format!(" is {}; give 1 to {CODE_BYTES_MAX}", self.code_bytes);
            return Err(Error::option(message![Argument::CodeBytes, range]));
        }
        if self.navigation == Some(0) {
            return Err(Error::option(message![Argument::Navigation, " is 0; give 1 or more"]));
        }
        if !PAGE_BYTES.contains(&self.page_bytes) {
            let range = format!(" is {} bytes; give 4KiB, 8KiB or 16KiB", self.page_bytes);
            return Err(Error::option(message![Argument::Page, range]));
        }
        Ok(())
    }
}
