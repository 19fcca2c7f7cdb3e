//! Decides which buckets are compared, in which order, and which are in memory when.
//!
//! Data in, schedule out: nothing here reads a file, a clock or a thread count. A join does exactly what its plan
//! states, and `adjoin explain` prints the plan.

pub(crate) mod batch;
mod bucket_graph;
mod cache;
mod choose;
mod division;
mod explain;
mod legs;
mod order;
mod probe;
mod rule;
mod schedule;

pub(crate) use bucket_graph::within;
pub use bucket_graph::{BucketGraph, EdgeSide, LeastMargin, add_margin_edges};
pub use cache::{CacheCounts, CacheStart, Load, Policy, Step, Steps};
pub use choose::{BucketPairsToVisit, Choice, Costs, Facts, RuleTarget, SetSize, Weights, choose, guessed_threshold};
pub use division::{Division, Needs, divide, threads_within};
pub use explain::{Explanation, explain};
pub use legs::leg_ends;
pub use order::{Lead, Order, Task, sort_tasks, tasks_of};
pub use probe::{ProbeRule, Probes};
pub use rule::{
    Gap, Measure, Nearness, Place, Rule, RulePart, RuleParts, ThresholdGraph, excess_limits, pair_threshold,
};
pub use schedule::{BucketSizes, Schedule, schedule, schedule_in_order};
