//! Decides which buckets are compared, in which order, and when each bucket is in memory.
//!
//! This module computes a schedule from data; it reads no file, no clock and no thread count. A join does exactly what
//! its plan states. `adjoin explain` prints the plan.

pub(crate) mod batch;
mod bucket_graph;
mod cache;
mod choose;
mod division;
mod explain;
mod legs;
mod order;
mod parts;
mod probe;
mod rule;
mod schedule;

pub use bucket_graph::BucketGraph;
pub(crate) use bucket_graph::within;
pub(crate) use bucket_graph::{EdgeSide, LeastMargin, add_margin_edges};
pub(crate) use cache::CacheCounts;
pub use cache::{CacheStart, Load, Policy, Step, Steps};
pub(crate) use choose::{
    BucketPairsToVisit, Choice, Costs, Facts, RuleTarget, SetSize, Weights, choose, guessed_threshold,
};
pub(crate) use division::{Division, Needs, divide, threads_within};
pub(crate) use explain::{Explanation, explain};
pub(crate) use legs::leg_ends;
pub(crate) use order::tasks_of;
pub use order::{Lead, Order, Task, sort_tasks};
pub(crate) use parts::PartInputs;
pub(crate) use probe::{ProbeRule, Probes};
pub use rule::Rule;
pub(crate) use rule::{Gap, Measure, Nearness, Place, RulePart, ThresholdGraph, excess_limits, pair_threshold};
pub(crate) use schedule::{BucketSizes, Schedule, schedule, schedule_in_order};
