//! Here are the buckets and what is known of them; in which order are which of them compared, and what is held?
//!
//! Data in, schedule out: nothing here reads a file, a clock or a thread count. What a plan says is what a join does
//! (`adjoin explain` prints it).

mod bucket_graph;
mod cache;
mod explain;
mod order;
mod schedule;

pub(crate) use bucket_graph::within;
pub use bucket_graph::{BucketGraph, LeastMargin, add_margin_edges, triangle_graph};
pub use cache::{CacheCounts, Step, Steps};
pub use explain::{Explanation, explain};
pub use order::{Order, Task, tasks};
pub use schedule::{BucketSizes, Schedule, schedule};
