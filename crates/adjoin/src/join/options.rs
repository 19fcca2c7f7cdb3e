//! Options of a join.

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::predicate::Predicate;
use crate::plan::Rule;

/// Default recall.
const RECALL_UNSAID: f64 = 0.95;
/// Without a requested recall, finding every pair may cost up to this many times as much.
const PATIENCE: f64 = 2.0;

/// How many of the pairs to find.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JoinEffort {
    /// All pairs.
    Every,
    /// At least this fraction, of all pairs and of the average vector's neighbors.
    Recall(f64),
    /// The default: 0.95, or all pairs if that costs little more.
    Unsaid,
}

impl JoinEffort {
    /// Asks for at least this recall.
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

    /// Returns the recall to reach.
    pub fn target(self) -> f64 {
        match self {
            Self::Every => 1.0,
            Self::Recall(recall) => recall,
            Self::Unsaid => RECALL_UNSAID,
        }
    }

    /// Returns how many times the cost of a rule that misses some pairs an exact rule may have.
    pub(crate) fn patience(self) -> f64 {
        if self == Self::Unsaid { PATIENCE } else { 1.0 }
    }
}

/// Options of a join.
#[derive(Debug, Clone, Copy)]
pub struct JoinOptions {
    /// The pairs to find.
    pub predicate: Predicate,
    /// How many of them to find.
    pub aim: JoinEffort,
    /// Rule that selects the pairs to compare; the cheaper one if absent.
    pub rule: Option<Rule>,
    /// Seed of the vectors that are drawn to estimate the recall.
    pub seed: u64,
    /// Bytes of the bucket cache; the rest of the budget if absent.
    pub cache_bytes: Option<u64>,
}

impl JoinOptions {
    /// Finds every pair.
    pub fn exact(predicate: Predicate) -> Self {
        Self { predicate, aim: JoinEffort::Every, rule: None, seed: 1, cache_bytes: None }
    }

    /// Finds the fraction of pairs that `aim` asks for, by the cheapest rule.
    pub fn approximate(predicate: Predicate, aim: JoinEffort) -> Self {
        Self { aim, ..Self::exact(predicate) }
    }
}
