//! Here are pairs; where do they go? A [`PairSink`] takes them.

mod pairs;
#[allow(clippy::module_inception)] // the trait's file, as in `device::device`
mod sink;

pub use pairs::{PairFormat, PairWriter};
pub use sink::{Collect, Discard, PairBatch, PairSchema, PairSink};
