//! How does a search go? As it is told, or as far as a recall that is promised needs.

use super::admitted::Admitted;
use super::calibration::NOTED;
use super::options::{IndexEffort, IndexSearchOptions};
use super::run::{Decided, Way};
use super::walk::Aim;
use super::{Index, IndexManifest, promise, within};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::search::Wanted;
use crate::source::VectorSource;

/// A way that takes no more memory than the one that will be decided, as far as the options tell.
pub(super) fn least_way(facts: &IndexManifest, options: &IndexSearchOptions) -> Way {
    match (options.wanted, options.effort) {
        (_, effort) if effort.compares_all() => Way::Whole,
        (Wanted::Nearest(k), effort) => {
            let hits = k.min(facts.rows) as usize;
            let list = if let IndexEffort::List(list) = effort { list.max(hits) } else { hits };
            Way::Walk(Aim::nearest(hits, list))
        }
        (Wanted::Within(predicate), IndexEffort::List(list)) => Way::Walk(Aim::within(predicate, (list, 0.0))),
        (Wanted::Within(predicate), _) => Way::Walk(Aim::within(predicate, (1, 0.0))),
    }
}

/// Ways of which one takes as much memory as the way that will be decided, as far as the options tell.
pub(super) fn longest_ways(facts: &IndexManifest, options: &IndexSearchOptions) -> Vec<Way> {
    match (options.wanted, options.effort) {
        (_, IndexEffort::List(_)) => vec![least_way(facts, options)],
        (_, effort) if effort.compares_all() => vec![Way::Whole],
        (Wanted::Nearest(k), _) => vec![Way::Walk(promise::longest_walk(facts, k)), Way::Whole],
        (Wanted::Within(predicate), _) => {
            vec![Way::Walk(Aim::within(predicate, (within::LONGEST, 0.0))), Way::Whole]
        }
    }
}

/// Bytes with which it is decided how a search goes, at most.
pub(super) fn deciding_bytes<T: Coordinate>(
    context: &Context,
    facts: &IndexManifest,
    like: Option<&dyn VectorSource>,
    options: &IndexSearchOptions,
) -> u64 {
    let target = match (options.wanted, options.effort) {
        (_, effort) if effort.compares_all() || matches!(effort, IndexEffort::List(_)) => return 0,
        (Wanted::Nearest(k), _) => (k, promise::longest(k)),
        (Wanted::Within(_), _) => (NOTED as u64, within::LONGEST),
    };
    promise::learning_bytes::<T>(context, facts, like, target)
}

/// Decides how a search goes: one that promises a recall does so for queries like those of a source, or like the rows of the
/// index. `running` gives the least bytes of a search that goes some way.
///
/// # Errors
/// Where the source or the index cannot be read, or the budget is too small for that or for the search that follows.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (options, admitted): (&IndexSearchOptions, Option<&Admitted>),
    running: &dyn Fn(Way) -> u64,
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
        (_, effort) if effort.compares_all() => Ok(Decided::whole(1.0, None)),
        (_, IndexEffort::Exact) => unreachable!("it compares all"),
        (Wanted::Nearest(k), IndexEffort::Recall(target)) => {
            promise::decide::<T>(context, index, (queries, like), (k, apart, thinned), (target, options), running)
        }
        (Wanted::Within(predicate), IndexEffort::Recall(target)) => {
            within::decide::<T>(context, index, (queries, like), (predicate, thinned), (target, options), running)
        }
    }?;
    if let (Way::Walk(aim), Some(admitted)) = (&mut decided.way, admitted)
        && !aim.by_codes
    {
        aim.held = admitted.held(index, aim.list);
    }
    Ok(decided)
}
