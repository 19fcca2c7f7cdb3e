//! Joins, which find all pairs of vectors within a threshold. [`JoinOptions::prepare`] plans a join (`planning/`), and
//! [`Prepared::run`] runs the plan (`execution/`).

mod execution;
mod options;
mod parts;
mod planning;
mod prepared;
mod selection;
mod watched;

pub(crate) use crate::load::PairFilter;
pub use crate::load::{JoinSide, RowFilter, Sets};
pub use execution::{Done, run};
pub(crate) use execution::{SaveCheckpoints, hand_over, run_in_legs};
pub use options::{JoinEffort, JoinOptions};
pub(crate) use parts::{DividedTasks, PlannedPart, comparisons, members_of};
pub(crate) use planning::{Foresight, UnopenedSet, least_of_unbuilt, memory_bound, resume_within};
pub use planning::{least_memory, resume};
pub use prepared::{JoinPlan, Prepared};
