//! What a search is asked to find.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::execute::{Hit, Nearest};
use crate::message::{Argument, message};
use crate::options::Metric;
use crate::predicate::Predicate;
use crate::sql::Condition;

/// The recall that is wanted where nothing is said.
pub(crate) const RECALL_UNSAID: f64 = 0.95;

/// Bytes of a hit of a query without a limit on their number: in a heap that doubles, sorted, and on its way out.
pub(super) const BYTES_OF_HIT: u64 = 4 * size_of::<Hit>() as u64;

/// What is wanted of each query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueryTarget {
    /// So many nearest vectors.
    Nearest(u64),
    /// All vectors within a threshold.
    Within(Predicate),
}

impl QueryTarget {
    /// Of what a caller gives: a number of vectors, or one of both thresholds.
    ///
    /// # Errors
    /// Where it is none or several, or makes no sense.
    pub fn of(k: Option<u64>, radius: Option<f64>, min_similarity: Option<f64>) -> Result<Self> {
        match (k, radius, min_similarity) {
            (Some(0), None, None) => {
                Err(Error::option(message![Argument::K.with(0), " asks for nothing; give at least 1"]))
            }
            (Some(k), None, None) => Ok(Self::Nearest(k)),
            (None, Some(radius), None) if radius.is_finite() && radius >= 0.0 => {
                Ok(Self::Within(Predicate::L2 { eps: radius }))
            }
            (None, Some(radius), None) => {
                Err(Error::option(format!("the radius is {radius}; it must be a finite distance of at least 0")))
            }
            (None, None, Some(similarity)) => Ok(Self::Within(Predicate::cosine(similarity)?)),
            _ => Err(Error::option(message![
                "say what is wanted of a query: either ",
                Argument::K,
                ", ",
                Argument::Radius,
                " or ",
                Argument::MinSimilarity
            ])),
        }
    }

    /// What a query has found of it when it has looked nowhere; the member at `but` does not count.
    pub(crate) fn nearest(self, metric: Metric, but: Option<(u32, u32)>) -> Nearest {
        match self {
            Self::Nearest(k) => Nearest::of(k as usize, metric, but),
            Self::Within(predicate) => Nearest::within(predicate, but),
        }
    }

    /// How many a query finds at most.
    pub(crate) fn hits_max(self) -> usize {
        match self {
            Self::Nearest(k) => k as usize,
            Self::Within(_) => usize::MAX,
        }
    }

    /// Hits for which there is room, where the memory of queries is not that of all that they may find.
    pub(crate) fn room(self, context: &Context) -> u64 {
        match self {
            Self::Nearest(_) => u64::MAX,
            Self::Within(_) => context.budget().free() / BYTES_OF_HIT,
        }
    }

    /// Bytes of hits that were found, where the memory of queries is not that of all that they may find.
    pub(crate) fn held_bytes(self, hits: u64) -> u64 {
        match self {
            Self::Nearest(_) => 0,
            Self::Within(_) => hits * BYTES_OF_HIT,
        }
    }

    /// Bytes of hits that have been found, where the memory of queries is not that of all that they may find: less than
    /// [`QueryTarget::room`] had for them, as they are sorted.
    pub(crate) fn found_bytes(self, found: &[Vec<Hit>]) -> u64 {
        self.held_bytes(found.iter().map(|hits| hits.capacity() as u64).sum()) / 4
    }

    /// No more than there are rows.
    pub(crate) fn among(self, rows: u64) -> Self {
        match self {
            Self::Nearest(k) => Self::Nearest(k.min(rows)),
            Self::Within(_) => self,
        }
    }

    /// Refuses a threshold of another metric than that of a store or an index, and any where inner products are looked for.
    ///
    /// # Errors
    /// Says which one to give instead.
    pub(crate) fn check(self, metric: Metric, folder: &std::path::Path) -> Result<()> {
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

/// Refuses what is no share of what is to be found.
pub(crate) fn check_recall(recall: f64) -> Result<()> {
    if recall > 0.0 && recall <= 1.0 {
        return Ok(());
    }
    Err(Error::option(format!("the recall is {recall}; give a share above 0, at most 1")))
}

/// Where a search looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchEffort {
    /// Everywhere: nothing is missed.
    Every,
    /// Into so many nearest buckets of each query, whatever that finds.
    Probes(u32),
    /// Where at least this share of what is wanted is found, on average over queries.
    Recall(f64),
    /// Nothing was said: 0.95.
    Unsaid,
}

impl SearchEffort {
    /// Of what a caller gives: at most one of them.
    ///
    /// # Errors
    /// Where it is several, or makes no sense.
    pub fn of(recall: Option<f64>, exact: bool, probes: Option<u32>) -> Result<Self> {
        match (recall, exact, probes) {
            (None, false, None) => Ok(Self::Unsaid),
            (None, true, None) => Ok(Self::Every),
            (None, false, Some(0)) => {
                Err(Error::option(message![Argument::Nprobe.with(0), " looks nowhere; give at least 1"]))
            }
            (None, false, Some(probes)) => Ok(Self::Probes(probes)),
            (Some(recall), false, None) => check_recall(recall).map(|()| Self::Recall(recall)),
            _ => Err(Error::option(message![
                "give at most one of ",
                Argument::Recall,
                ", ",
                Argument::Exact,
                " and ",
                Argument::Nprobe
            ])),
        }
    }

    /// The recall to reach; none where nothing is promised.
    pub(crate) fn target(self) -> Option<f64> {
        match self {
            Self::Every => Some(1.0),
            Self::Recall(recall) => Some(recall),
            Self::Unsaid => Some(RECALL_UNSAID),
            Self::Probes(_) => None,
        }
    }
}

/// How to search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// What is wanted of each query.
    pub wanted: QueryTarget,
    /// Where it is looked for.
    pub effort: SearchEffort,
    /// What must be true of the attributes of a row for it to be found; nothing where there is none.
    pub condition: Option<Condition>,
    /// Seed of the vectors that are drawn to learn the recall.
    pub seed: u64,
}
