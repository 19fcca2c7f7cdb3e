//! What a join is asked to do.

use crate::error::{Error, Result};
use crate::message::{Argument, message};
use crate::plan::{Lead, Order, Policy, Rule};
use crate::predicate::Predicate;

/// The recall that is wanted where nothing is said.
const RECALL_UNSAID: f64 = 0.95;
/// Where nothing is said, finding every pair may cost so many times as much.
const PATIENCE: f64 = 2.0;

/// How many of the pairs are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// All.
    Every,
    /// At least this share, of all pairs and of the average vector's neighbours.
    Recall(f64),
    /// Nothing was said: 0.95, and all where that costs little more.
    Unsaid,
}

impl Aim {
    /// At least this recall.
    ///
    /// # Errors
    /// Where it is not above 0 and at most 1.
    pub fn recall(recall: f64) -> Result<Self> {
        if !(recall > 0.0 && recall <= 1.0) {
            return Err(Error::option(format!("the recall is {recall}; give a share above 0, at most 1")));
        }
        Ok(Self::Recall(recall))
    }

    /// Of what a caller gives: a recall, or that every pair is wanted.
    ///
    /// # Errors
    /// Where it is both, or as [`Aim::recall`].
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

    /// The recall to reach.
    pub fn target(self) -> f64 {
        match self {
            Self::Every => 1.0,
            Self::Recall(recall) => recall,
            Self::Unsaid => RECALL_UNSAID,
        }
    }

    /// How many times the cost of a rule that misses some pairs one that misses none may have.
    pub(crate) fn patience(self) -> f64 {
        if self == Self::Unsaid { PATIENCE } else { 1.0 }
    }
}

/// How to join.
#[derive(Debug, Clone, Copy)]
pub struct JoinOptions {
    /// Which pairs are wanted.
    pub predicate: Predicate,
    /// How many of them.
    pub aim: Aim,
    /// Which pairs are compared; chosen by what it costs where not given.
    pub rule: Option<Rule>,
    /// The threshold of a rule that needs one, whatever recall it reaches; set by a sample where not given.
    pub t: Option<f64>,
    /// Seed of the vectors that are drawn to learn the recall.
    pub seed: u64,
    /// The order of tasks; the one that reads least where not given.
    pub order: Option<Order>,
    /// Of two sets the one that is gone through; the one with which less is read where not given.
    pub lead: Option<Lead>,
    /// What the cache of buckets goes by; Belady's algorithm where not given, LRU where there is no memory for it.
    pub policy: Option<Policy>,
    /// Bytes of the cache of buckets; what the budget leaves where not given.
    pub cache_bytes: Option<u64>,
}

impl JoinOptions {
    /// Every pair, by the default rule.
    pub fn exact(predicate: Predicate) -> Self {
        Self {
            predicate,
            aim: Aim::Every,
            rule: None,
            t: None,
            seed: 1,
            order: None,
            lead: None,
            policy: None,
            cache_bytes: None,
        }
    }

    /// At least this share of the pairs, by the rule that costs least.
    pub fn approximate(predicate: Predicate, aim: Aim) -> Self {
        Self { aim, ..Self::exact(predicate) }
    }

    /// The policy that needs least memory of those that may be used.
    pub(super) fn least_policy(&self) -> Policy {
        self.policy.unwrap_or(Policy::Lru)
    }
}
