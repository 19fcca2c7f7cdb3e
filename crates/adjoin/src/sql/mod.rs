//! Parses SQL expressions over columns with sqlparser, and evaluates them with Arrow's kernels.
//!
//! Null behaves as in SQL: an operation on null returns null, and `AND` and `OR` use three-valued logic. The case of a
//! name matters only if the name is in quotes.

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
