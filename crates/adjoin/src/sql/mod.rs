//! SQL expressions over columns, parsed by sqlparser and evaluated by Arrow's kernels.
//!
//! Null behaves as in SQL: an operation on null returns null, and `AND` and `OR` use three-valued logic. Names without
//! quotes may differ in case.

mod compare;
mod condition;
mod evaluate;
mod expression;
mod order;
mod pair_condition;
mod parse;
mod values;

pub use condition::Condition;
pub(crate) use evaluate::{cast, common};
pub use order::OrderBy;
pub use pair_condition::PairCondition;
pub(crate) use pair_condition::{BoundPairs, NULL, Rank};
