//! What an index is to be like, and how it is searched.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::strategy::WalkStrategy;
use crate::error::{Error, Result};
use crate::graph::GraphOptions;
use crate::message::{Argument, message};
use crate::query::{RECALL_UNSAID, QueryTarget, check_recall};
use crate::sql::Condition;

/// Sizes of pages that may be asked for.
const PAGE_BYTES: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Most bytes of a code.
const CODE_BYTES_MAX: usize = 1_024;
/// Longest list of candidates that a search may keep.
const LIST_MAX: usize = 1 << 20;

/// How the graph of an index is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphMethod {
    /// Of the nearest rows of each row, which a search of the store finds for all at once.
    #[default]
    Near,
    /// Of searches in the graph itself, into which vertices are inserted one after the other (FreshDiskANN, Algorithm 2): all
    /// vectors are in memory.
    Vamana,
}

impl GraphMethod {
    const ALL: [Self; 2] = [Self::Near, Self::Vamana];

    /// Its name.
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

/// What an index is to be like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexOptions {
    /// How the graph is made.
    pub method: GraphMethod,
    /// The graph; its seed is also that of codes and of the navigation graph.
    pub graph: GraphOptions,
    /// Bytes of the code of a vector, 1 to 1,024; vectors of fewer dimensions have a byte for each.
    pub code_bytes: usize,
    /// Vectors of the navigation graph, which a search holds in memory, at least 1 and at most all; one of a hundred, at most
    /// 10,000, where not given.
    pub navigation: Option<u32>,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page_bytes: u64,
    /// In which order vectors lie on pages.
    pub layout: Layout,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            method: GraphMethod::default(),
            graph: GraphOptions::default(),
            code_bytes: 32,
            navigation: None,
            page_bytes: PAGE_BYTES[0],
            layout: Layout::default(),
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

/// How far walks of an index go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchEffort {
    /// As far as at least this share of what is nearest is found, on average over queries.
    Recall(f64),
    /// As far as a list of so many candidates leads (L), 1 to 2^20, whatever that finds; as many as are wanted where that is more.
    List(usize),
    /// Compares each query with all rows, so that nothing is missed.
    Exact,
}

impl Default for SearchEffort {
    fn default() -> Self {
        Self::Recall(RECALL_UNSAID)
    }
}

impl SearchEffort {
    /// Returns the effort for the options of a caller, who gives at most one of them.
    ///
    /// # Errors
    /// If several are given.
    pub fn of(recall: Option<f64>, exact: bool, list: Option<usize>) -> Result<Self> {
        match (recall, exact, list) {
            (None, false, None) => Ok(Self::default()),
            (Some(recall), false, None) => Ok(Self::Recall(recall)),
            (None, true, None) => Ok(Self::Exact),
            (None, false, Some(list)) => Ok(Self::List(list)),
            _ => Err(Error::option(message![
                "give at most one of ",
                Argument::Recall,
                ", ",
                Argument::Exact,
                " and ",
                Argument::List
            ])),
        }
    }

    /// Whether each query is compared with all rows.
    pub(crate) fn compares_all(self) -> bool {
        matches!(self, Self::Exact) || matches!(self, Self::Recall(recall) if recall >= 1.0)
    }
}

/// How an index is searched.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchOptions {
    /// What is wanted of each query.
    pub wanted: QueryTarget,
    /// What must be true of the rows that are found; of any where there is none.
    pub condition: Option<Condition>,
    /// How far walks go to find that.
    pub effort: SearchEffort,
    /// Seed of what is drawn to learn the recall.
    pub seed: u64,
    /// How walks go: the default, or what it is compared with.
    pub strategy: WalkStrategy,
}

impl SearchOptions {
    /// With walks of the default.
    pub fn new(wanted: QueryTarget, effort: SearchEffort, seed: u64) -> Self {
        Self { wanted, condition: None, effort, seed, strategy: WalkStrategy::default() }
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        if self.wanted == QueryTarget::Nearest(0) {
            return Err(Error::option(message![Argument::K.with(0), " asks for nothing; give at least 1"]));
        }
        match self.effort {
            SearchEffort::Recall(recall) => check_recall(recall),
            SearchEffort::List(list) if !(1..=LIST_MAX).contains(&list) => {
                Err(Error::option(message![Argument::List, format!(" is {list}; give 1 to {LIST_MAX}")]))
            }
            SearchEffort::List(_) | SearchEffort::Exact => Ok(()),
        }
    }
}
