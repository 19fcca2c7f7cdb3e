//! Options of a join.

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::predicate::Predicate;
use crate::plan::Rule;

/// Target recall if the user requests none.
const RECALL_UNSAID: f64 = 0.95;
/// If the user requests no recall, all pairs are found if that costs at most this many times as much as finding the
/// default fraction.
const PATIENCE: f64 = 2.0;

/// Fraction of the pairs to find.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JoinEffort {
    /// All pairs.
    Every,
    /// At least this fraction of all pairs, and at least this fraction of a vector's neighbors on average.
    Recall(f64),
    /// At least this fraction of all pairs. Vectors with few neighbors may miss more of them. Papers on joins define
    /// recall in this way (DiskJoin, section 2).
    RecallOfPairs(f64),
    /// The default: 0.95, or all pairs if that costs little more.
    Unsaid,
}

impl JoinEffort {
    /// Creates the effort for a target recall.
    ///
    /// # Errors
    /// Fails unless it is above 0 and at most 1.
    pub fn recall(recall: f64) -> Result<Self> {
        // Negated, so that NaN is refused too.
        if !(recall > 0.0 && recall <= 1.0) {
            return Err(Error::option(format!("the recall is {recall}; give a fraction above 0 and at most 1")));
        }
        Ok(Self::Recall(recall))
    }

    /// Converts a caller's options: a recall, or a flag for every pair.
    ///
    /// # Errors
    /// Fails if both are given, or as [`JoinEffort::recall`] does.
    pub fn of(recall: Option<f64>, exact: bool) -> Result<Self> {
        match recall {
            Some(_) if exact => {
                Err(Error::option(message![Argument::Exact, " finds every pair; leave out ", Argument::Recall]))
            }
            Some(recall) => Self::recall(recall),
            None if exact => Ok(Self::Every),
            None => Ok(Self::Unsaid),
        }
    }

    /// What a recall may be a fraction of: all pairs and also a vector's neighbors on average, or all pairs only.
    pub const RECALL_OF: [&str; 2] = ["pairs-and-vectors", "pairs"];

    /// Returns the effort whose recall is of `of`, one of [`JoinEffort::RECALL_OF`].
    ///
    /// # Errors
    /// Fails if `of` is another text, or if pairs are named but no recall was requested.
    pub fn with_recall_of(self, of: &str) -> Result<Self> {
        let [both, pairs] = Self::RECALL_OF;
        match self {
            _ if of == both => Ok(self),
            Self::Recall(recall) | Self::RecallOfPairs(recall) if of == pairs => Ok(Self::RecallOfPairs(recall)),
            _ if of == pairs => Err(Error::option(message![Argument::RecallOf.with(of), " needs ", Argument::Recall])),
            _ => Err(Error::option(message![Argument::RecallOf, format!(" is {of:?}; give {both} or {pairs}")])),
        }
    }

    /// Returns the recall to reach.
    pub fn target(self) -> f64 {
        match self {
            Self::Every => 1.0,
            Self::Recall(recall) | Self::RecallOfPairs(recall) => recall,
            Self::Unsaid => RECALL_UNSAID,
        }
    }

    /// Returns the largest acceptable ratio of the cost of an exact rule to the cost of an approximate one.
    pub(crate) fn patience(self) -> f64 {
        if self == Self::Unsaid { PATIENCE } else { 1.0 }
    }
}

/// Options of a join.
#[derive(Debug, Clone, Copy)]
pub struct JoinOptions {
    /// The pairs to find.
    pub predicate: Predicate,
    /// Fraction of these pairs to find.
    pub aim: JoinEffort,
    /// Rule that selects the pairs to compare. `None` chooses the cheapest one.
    pub rule: Option<Rule>,
    /// Seed of the random sample that estimates the recall.
    pub seed: u64,
    /// Bytes of the bucket cache. `None` uses the rest of the budget.
    pub cache_bytes: Option<u64>,
}

impl JoinOptions {
    /// Returns options to find every pair.
    pub fn exact(predicate: Predicate) -> Self {
        Self { predicate, aim: JoinEffort::Every, rule: None, seed: 1, cache_bytes: None }
    }

    /// Returns options to find the fraction of pairs that `aim` requests, with the cheapest rule.
    pub fn approximate(predicate: Predicate, aim: JoinEffort) -> Self {
        Self { aim, ..Self::exact(predicate) }
    }
}
