//! Finds every pair of vectors within a threshold: [`prepare`] plans a join (`planning/`), and [`join`] runs the plan
//! (`execution/`).

mod execution;
mod options;
mod planning;
mod prepared;
mod watched;

pub use crate::load::{JoinSide, PairFilter, RowFilter, Sets};
pub use execution::{Done, join, run};
pub(crate) use execution::{SaveCheckpoints, hand_over, run_in_legs};
pub use options::{JoinEffort, JoinOptions};
pub(crate) use planning::{Foresight, UnopenedSet, least_of_unbuilt, memory_bound, resume_within};
pub use planning::{least_memory, neighbor_curve, prepare, resume};
pub use prepared::{JoinPlan, Prepared};
