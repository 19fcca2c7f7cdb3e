//! Options of a build.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::manifest::Centers;
use crate::base::checkpoint::Fact;
use crate::base::choice::choices;
use crate::base::message::Argument;
use crate::base::options::Metric;
use crate::base::row_numbers::RowSet;
use crate::source::SourceOptions;

/// Handling of rows that have no usable vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnBad {
    /// Refuse the source and name the first such row.
    Error,
    /// Leave the rows out and count them.
    Skip,
}

choices! { Argument::OnBad => OnBad { Error = "error", Skip = "skip" } }

/// Handling of ids that occur more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDuplicateId {
    /// Refuse the source and name the first such id.
    Error,
    /// Keep all rows, e.g. several vectors of one document.
    Keep,
}

choices! { Argument::OnDuplicateId => OnDuplicateId { Error = "error", Keep = "keep" } }

/// Options of a build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Metric of later joins and searches. Inner products support searches only.
    pub metric: Metric,
    /// Seed of the training sample.
    pub seed: u64,
    /// Number of buckets. If absent, it is computed from the number of rows.
    pub buckets: Option<u32>,
    /// Centers that were computed elsewhere: stored vectors, end to end. If absent, centers are trained.
    #[doc(hidden)]
    pub centers: Option<Arc<[u8]>>,
    /// For each row of the source, the number of its center among `centers`, as it was chosen elsewhere. Needs memory
    /// for all rows. If absent, each row is assigned to a center that is nearest to it, or nearly so.
    #[doc(hidden)]
    pub assignment: Option<Arc<[u32]>>,
    /// What to do with rows without a usable vector.
    pub on_bad: OnBad,
    /// What to do with ids that occur more than once.
    pub on_duplicate_id: OnDuplicateId,
    /// Rows to leave out, as if they had no usable vector.
    pub left_out: Option<Arc<RowSet>>,
    /// Names of source columns to keep, which filters can use.
    pub attributes: Vec<String>,
    /// Column by which rows are sorted within buckets, so that a filter on it reads only parts of them. The column is
    /// kept too.
    pub sort_by: Option<String>,
    /// Replace an existing store.
    pub force: bool,
    /// Write checkpoints next to the store, and continue from the checkpoints of an earlier build. Contains the
    /// options with which the source was opened.
    pub resume: Option<SourceOptions>,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            metric: Metric::L2,
            seed: 1,
            buckets: None,
            centers: None,
            assignment: None,
            on_bad: OnBad::Error,
            on_duplicate_id: OnDuplicateId::Error,
            left_out: None,
            attributes: Vec::new(),
            sort_by: None,
            force: false,
            resume: None,
        }
    }
}

impl BuildOptions {
    /// Returns all options that affect the bytes of the store. Properties of the source are not included.
    pub(crate) fn facts(&self) -> Vec<Fact> {
        let Self { metric, seed, buckets, on_bad, on_duplicate_id, attributes, sort_by, .. } = self;
        vec![
            Fact::new("the metric", metric),
            Fact::new("the seed of the build", seed),
            Fact::new("the number of buckets", buckets.map_or("not given".into(), |buckets| buckets.to_string())),
            Fact::new("the choice of centers", self.centers().name()),
            Fact::new("the action on bad rows", format!("{on_bad:?}")),
            Fact::new("the action on duplicate ids", format!("{on_duplicate_id:?}")),
            Fact::new("the columns", attributes.join(", ")),
            Fact::new("the sort column", sort_by.as_deref().unwrap_or("not given")),
        ]
    }

    /// Returns the columns to keep: the named ones and the sort column.
    pub fn kept_columns(&self) -> Vec<String> {
        let added = self.sort_by.iter().filter(|name| !self.attributes.contains(name));
        self.attributes.iter().chain(added).cloned().collect()
    }

    /// Returns how centers are chosen.
    pub(super) fn centers(&self) -> Centers {
        if self.centers.is_some() { Centers::Given } else { Centers::Trained }
    }
}
