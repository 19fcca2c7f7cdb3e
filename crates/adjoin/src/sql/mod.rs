//! What a user says about columns in SQL: parsed by sqlparser, carried out by Arrow's kernels.
//!
//! Null is SQL's: an operation on it gives null, `AND` and `OR` know three values. Names without quotes may differ in case.

mod condition;
mod evaluate;
mod expression;
mod order;
mod pair_condition;
mod parse;

pub use condition::Condition;
pub(crate) use evaluate::{cast, common};
pub use order::OrderBy;
pub use pair_condition::PairCondition;
pub(crate) use pair_condition::{BoundPairs, NULL, Rank};
