//! Finds near-duplicates among texts by the shingles (runs of words or characters) that they share.
//!
//! A text is represented by the set of the 64-bit hashes of its shingles (`shingles.rs`). Two texts are near if the
//! Jaccard similarity of their sets reaches a threshold (`jaccard.rs`). A scheme (`scheme.rs`) computes a few keys per
//! text, so that only texts with a common key are compared. `kept.rs` holds the texts that are kept so far, by key.
//! `greedy.rs` passes all texts in the requested order, and decides which are removed.

mod greedy;
mod jaccard;
mod kept;
mod scheme;
mod shingles;
#[cfg(test)]
mod tests;

pub(crate) use greedy::{Compared, GreedyTexts, Record};
pub(crate) use scheme::{Scheme, ShingleCounts};
pub use shingles::ShingleUnit;
pub(crate) use shingles::{SET_GROWTH, Shingling};
