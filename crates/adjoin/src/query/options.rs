//! Options of a search, such as the target of each query and the effort of the search.

use std::path::Path;

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::base::predicate::Predicate;
use crate::execute::{Hit, Nearest};
use crate::sql::Condition;
use crate::store::FolderKind;

/// Default recall of a search.
pub(crate) const RECALL_DEFAULT: f64 = 0.95;

/// Longest list of candidates of a walk.
const LIST_MAX: usize = 1 << 20;

/// Bytes of a hit if the number of hits has no limit. They cover the copies of the hit in a heap that may have twice
/// the capacity that it needs, in the sorted hits, and in delivery.
pub(super) const BYTES_OF_HIT: u64 = 4 * size_of::<Hit>() as u64;

/// Target of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueryTarget {
    /// The K nearest vectors.
    Nearest(u64),
    /// All vectors within a threshold.
    Within(Predicate),
}

/// Returns the bytes with which the hits of any query fit in memory. Half of them are for queries that wait. The number
/// of hits is not known in advance, so the bytes suffice for `rows` hits.
pub(crate) fn bytes_for_all_hits(rows: u64) -> u64 {
    rows.saturating_mul(2 * BYTES_OF_HIT)
}

impl QueryTarget {
    /// Returns the target given by a number of neighbors, a radius, or a least similarity.
    ///
    /// # Errors
    /// If not exactly one of them is given, or if its value is out of range.
    pub fn of(k: Option<u64>, radius: Option<f64>, min_similarity: Option<f64>) -> Result<Self> {
        match (k, radius, min_similarity) {
            (Some(0), None, None) => {
                Err(Error::option(message![Argument::K.with(0), " asks for nothing; give at least 1"]))
            }
            (Some(k), None, None) => Ok(Self::Nearest(k)),
            // NaN is not finite, so it is refused too.
            (None, Some(radius), None) if radius.is_finite() && radius >= 0.0 => {
                Ok(Self::Within(Predicate::L2 { eps: radius }))
            }
            (None, Some(radius), None) => {
                Err(Error::option(format!("the radius is {radius}; it must be a finite distance of at least 0")))
            }
            (None, None, Some(similarity)) => Ok(Self::Within(Predicate::cosine(similarity)?)),
            _ => Err(Error::option(message![
                "give a target for the queries: either ",
                Argument::K,
                ", ",
                Argument::Radius,
                " or ",
                Argument::MinSimilarity
            ])),
        }
    }

    /// Returns an empty set of hits for a query. The member at the place `but` is never a hit.
    pub(crate) fn nearest(self, metric: Metric, but: Option<(u32, u32)>) -> Nearest {
        match self {
            Self::Nearest(k) => Nearest::of(k as usize, metric, but),
            Self::Within(predicate) => Nearest::within(predicate, but),
        }
    }

    /// Returns the largest number of hits of a query.
    pub(crate) fn hits_max(self) -> usize {
        match self {
            Self::Nearest(k) => k as usize,
            Self::Within(_) => usize::MAX,
        }
    }

    /// Returns the number of hits that fit in the free memory. For K nearest it is unlimited, since the memory of their
    /// hits is part of the reservation of a query.
    pub(crate) fn room(self, context: &Context) -> u64 {
        match self {
            Self::Nearest(_) => u64::MAX,
            Self::Within(_) => context.budget().free() / BYTES_OF_HIT,
        }
    }

    /// Returns the bytes of `hits` hits. Returns 0 if they are part of the reservation of a query.
    pub(crate) fn held_bytes(self, hits: u64) -> u64 {
        match self {
            Self::Nearest(_) => 0,
            Self::Within(_) => hits * BYTES_OF_HIT,
        }
    }

    /// Returns the bytes that a query needs in addition to its own reservation if all `rows` rows are hits.
    pub(crate) fn all_hits_bytes(self, rows: u64) -> u64 {
        match self {
            Self::Nearest(_) => 0,
            // The hits are held once more while their ids are looked up.
            Self::Within(_) => bytes_for_all_hits(rows).saturating_mul(2),
        }
    }

    /// Returns the bytes of sorted hits. Returns 0 if they are part of the reservation of a query. Sorted hits need a
    /// quarter of the bytes that [`QueryTarget::room`] allows for, since the heap no longer exists.
    pub(crate) fn found_bytes(self, found: &[Vec<Hit>]) -> u64 {
        self.held_bytes(found.iter().map(|hits| hits.capacity() as u64).sum()) / 4
    }

    /// Limits K to the number of rows.
    pub(crate) fn among(self, rows: u64) -> Self {
        match self {
            // Memory is reserved for K hits, so K should not exceed the number of rows.
            Self::Nearest(k) => Self::Nearest(k.min(rows)),
            Self::Within(_) => self,
        }
    }

    /// Checks that a threshold matches the metric of the folder, and that no threshold is used with inner products.
    ///
    /// # Errors
    /// If the check fails. The error names the option to use instead.
    pub(crate) fn check(self, metric: Metric, folder: &Path) -> Result<()> {
        let Self::Within(predicate) = self else { return Ok(()) };
        let instead = match metric {
            Metric::L2 => Argument::Radius,
            Metric::Cosine => Argument::MinSimilarity,
            Metric::Ip => Argument::K,
        };
        if metric == predicate.metric() && metric != Metric::Ip {
            return Ok(());
        }
        Err(Error::option(message![format!("{} was built for the metric {metric}; give ", folder.display()), instead]))
    }
}

/// Checks that a recall is above 0 and at most 1.
pub(crate) fn check_recall(recall: f64) -> Result<()> {
    // NaN fails both comparisons.
    if recall > 0.0 && recall <= 1.0 {
        return Ok(());
    }
    Err(Error::option(format!("the recall is {recall}; give a fraction above 0 and at most 1")))
}

/// Effort of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchEffort {
    /// Reaches this recall, which is above 0 and at most 1. Recall is the fraction of the hits that a search finds, on
    /// average over queries.
    Recall(f64),
    /// Finds every hit.
    Exact,
    /// Probes this number of nearest buckets of each query, and promises no recall. For stores only.
    Probes(u32),
    /// Walks with a list of this number of candidates (L), 1 to 2^20, and promises no recall. If the number is smaller
    /// than K, the list has K candidates. For graph indexes and collections only.
    List(usize),
}

impl Default for SearchEffort {
    fn default() -> Self {
        Self::Recall(RECALL_DEFAULT)
    }
}

/// Effort as the caller gives it. At most one field may be set.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct EffortOptions {
    pub recall: Option<f64>,
    pub exact: bool,
    pub probes: Option<u32>,
    pub list: Option<usize>,
}

impl TryFrom<EffortOptions> for SearchEffort {
    type Error = Error;

    fn try_from(options: EffortOptions) -> Result<Self> {
        let given = [
            options.recall.map(Self::Recall),
            options.exact.then_some(Self::Exact),
            options.probes.map(Self::Probes),
            options.list.map(Self::List),
        ];
        let mut given = given.into_iter().flatten();
        let effort = given.next().unwrap_or_default();
        if given.next().is_some() {
            let [recall, exact, probes, list] = [Argument::Recall, Argument::Exact, Argument::Nprobe, Argument::List];
            return Err(Error::option(message![
                "give at most one of ",
                recall,
                ", ",
                exact,
                ", ",
                probes,
                " and ",
                list
            ]));
        }
        effort.check().map(|()| effort)
    }
}

impl SearchEffort {
    /// Returns the recall to reach, or `None` if no recall is promised.
    pub(crate) fn recall(self) -> Option<f64> {
        match self {
            Self::Exact => Some(1.0),
            Self::Recall(recall) => Some(recall),
            Self::Probes(_) | Self::List(_) => None,
        }
    }

    /// Returns whether each query is compared with all rows. This includes a recall of 1, which no sample can support.
    pub fn compares_all(self) -> bool {
        self.recall().is_some_and(|recall| recall >= 1.0)
    }

    /// Checks that a folder of the given kind can be searched with this effort.
    ///
    /// # Errors
    /// If it cannot. The error names efforts to use instead.
    pub fn check_for(self, kind: FolderKind) -> Result<()> {
        let (given, for_kinds, instead) = match (self, kind) {
            (Self::List(list), FolderKind::Store) => {
                (Argument::List.with(list), "graph indexes and collections", Argument::Nprobe)
            }
            (Self::Probes(probes), FolderKind::Index | FolderKind::Collection) => {
                (Argument::Nprobe.with(probes), "stores", Argument::List)
            }
            _ => return Ok(()),
        };
        Err(Error::option(message![
            given,
            format!(" is for {for_kinds}, but this is {kind}; give "),
            Argument::Recall,
            " or ",
            instead
        ]))
    }

    fn check(self) -> Result<()> {
        match self {
            Self::Recall(recall) => check_recall(recall),
            Self::Probes(0) => {
                Err(Error::option(message![Argument::Nprobe.with(0), " probes nothing; give at least 1"]))
            }
            // Each walk in flight allocates a list of this length, so a mistyped length must not take all of the
            // memory.
            Self::List(list) if !(1..=LIST_MAX).contains(&list) => {
                Err(Error::option(message![Argument::List, format!(" is {list}; give 1 to {LIST_MAX}")]))
            }
            Self::Probes(_) | Self::List(_) | Self::Exact => Ok(()),
        }
    }
}

/// Target and effort of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SearchGoal {
    pub(crate) target: QueryTarget,
    pub(crate) effort: SearchEffort,
}

/// Options of a search of any kind of folder.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchOptions {
    /// Target of each query.
    pub target: QueryTarget,
    /// Effort of the search.
    pub effort: SearchEffort,
    /// Filter on rows. If `None`, every row can be a hit.
    pub filter: Option<Condition>,
    /// Names of the columns that hits carry. The folder must have these columns.
    pub columns: Vec<String>,
    /// Seed of the calibration sample.
    pub seed: u64,
    /// Whether queries share the pages of a graph index. If not, each query reads every page that it needs, and
    /// prefetches no pages. A trace of the reads then shows the reads of each query. Searches of stores ignore this
    /// option.
    pub shares_pages: bool,
}

impl SearchOptions {
    /// Creates options without a filter and without columns.
    pub fn new(target: QueryTarget, effort: SearchEffort, seed: u64) -> Self {
        Self { target, effort, filter: None, columns: Vec::new(), seed, shares_pages: true }
    }

    pub(crate) fn goal(&self) -> SearchGoal {
        SearchGoal { target: self.target, effort: self.effort }
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// If an option is out of range. The error names the first such option and its range.
    pub fn check(&self) -> Result<()> {
        // The fields are public, so the target may not have been checked by `QueryTarget::of`.
        if self.target == QueryTarget::Nearest(0) {
            return Err(Error::option(message![Argument::K.with(0), " asks for nothing; give at least 1"]));
        }
        self.effort.check()
    }
}
