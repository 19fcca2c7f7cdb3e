//! What a user says about columns in SQL: parsed by sqlparser, carried out by Arrow's kernels.
//!
//! Null is SQL's: an operation on it gives null, `AND` and `OR` know three values. Names without quotes may differ in case.

mod evaluate;
mod expression;
mod order;

pub(crate) use evaluate::common;
pub use order::OrderBy;
