//! What a join is asked to do.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::predicate::Predicate;

/// Which pairs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Members whose margins towards each other's center add up to no more than the threshold: misses nothing.
    MarginSum,
    /// All pairs of buckets that the triangle inequality cannot part (DiskJoin, equation 1): misses nothing.
    Triangle,
}

impl Rule {
    /// Its name as a strategy.
    pub fn name(self) -> &'static str {
        match self {
            Self::MarginSum => "margin-sum",
            Self::Triangle => "triangle",
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "margin-sum" => Ok(Self::MarginSum),
            "triangle" => Ok(Self::Triangle),
            _ => Err(Error::option(format!("no such rule: {name}; choose margin-sum or triangle"))),
        }
    }
}

/// How to join.
#[derive(Debug, Clone, Copy)]
pub struct JoinOptions {
    /// Which pairs are wanted.
    pub predicate: Predicate,
    /// The recall to reach; 1 where every pair is wanted.
    pub recall: f64,
    /// Which pairs are compared.
    pub rule: Rule,
    /// Bytes of the cache of buckets; what the budget leaves where not given.
    pub cache_bytes: Option<u64>,
}

impl JoinOptions {
    /// Every pair, by the default rule.
    pub fn exact(predicate: Predicate) -> Self {
        Self { predicate, recall: 1.0, rule: Rule::MarginSum, cache_bytes: None }
    }
}
