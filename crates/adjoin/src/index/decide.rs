//! How does a search go? As it is told, or as far as a recall that is promised needs.

use super::admitted::Admitted;
use super::options::{IndexEffort, IndexSearchOptions};
use super::run::{Decided, Way};
use super::walk::Aim;
use super::{Index, promise, within};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::search::Wanted;
use crate::source::VectorSource;

/// Decides how a search goes: one that promises a recall does so for queries like those of a source, or like the rows of the
/// index.
///
/// # Errors
/// Where the source or the index cannot be read, or the budget is too small.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (options, admitted): (&IndexSearchOptions, Option<&Admitted>),
) -> Result<Decided> {
    let unpromised = |aim| Ok(Decided { way: Way::Walk(aim), recall: None, reads: None });
    let apart = admitted.filter(|admitted| admitted.is_apart(index));
    // A calibration by all rows may be off for those that are left.
    let thinned = admitted.filter(|admitted| apart.is_some() || admitted.is_thinned(index));
    let mut decided = match (options.wanted, options.effort) {
        (Wanted::Nearest(k), IndexEffort::List(list)) => {
            let hits = k.min(index.facts().rows) as usize;
            unpromised(promise::aim_at(index, apart, (hits, list.max(hits))))
        }
        (Wanted::Within(predicate), IndexEffort::List(list)) => {
            unpromised(Aim::within(predicate, (list, predicate.squared_distance() as f32)))
        }
        // No sample supports a recall of 1: that everything is found takes a comparison with everything.
        (_, IndexEffort::Exact) => Ok(Decided::whole(1.0, None)),
        (_, IndexEffort::Recall(target)) if target >= 1.0 => Ok(Decided::whole(target, None)),
        (Wanted::Nearest(k), IndexEffort::Recall(target)) => {
            promise::decide::<T>(context, index, (queries, like), (k, apart, thinned), (target, options))
        }
        (Wanted::Within(predicate), IndexEffort::Recall(target)) => {
            within::decide::<T>(context, index, (queries, like), (predicate, thinned), (target, options))
        }
    }?;
    if let (Way::Walk(aim), Some(admitted)) = (&mut decided.way, admitted)
        && !aim.by_codes
    {
        aim.held = admitted.held(index, aim.list);
    }
    Ok(decided)
}
