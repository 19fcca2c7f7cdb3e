//! Chooses the method of a search of an index: a walk with a given list, or the method that keeps a promised recall.

use super::calibration::NOTED;
use super::filtered_vertices::FilteredVertices;
use super::promise::RecallQuestion;
use super::promised::Promise;
use super::run::{SearchMethod, SearchPlan};
use super::walk::WalkAim;
use super::within::ThresholdRecall;
use super::{Index, IndexManifest, promise, within};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::query::{QuerySources, QueryTarget, SearchEffort, SearchOptions};
use crate::source::VectorSource;

/// Returns a method that needs at most the memory of the method that [`decide`] will choose, as far as the options
/// allow a prediction.
pub(super) fn least_way(facts: &IndexManifest, options: &SearchOptions) -> SearchMethod {
    match (options.target, options.effort) {
        (_, effort) if effort.compares_all() => SearchMethod::PageScan,
        (QueryTarget::Nearest(k), effort) => {
            let hits = k.min(facts.rows) as usize;
            let list = if let SearchEffort::List(list) = effort { list.max(hits) } else { hits };
            SearchMethod::Walk(WalkAim::nearest(hits, list))
        }
        (QueryTarget::Within(predicate), SearchEffort::List(list)) => {
            SearchMethod::Walk(WalkAim::within(predicate, list, 0.0))
        }
        (QueryTarget::Within(predicate), _) => SearchMethod::Walk(WalkAim::within(predicate, 1, 0.0)),
    }
}

/// Returns the methods that [`decide`] may choose, each with the longest list that is possible. One of them needs at
/// least the memory of the chosen method, as far as the options allow a prediction.
pub(super) fn longest_ways(facts: &IndexManifest, options: &SearchOptions) -> Vec<SearchMethod> {
    match (options.target, options.effort) {
        (_, SearchEffort::List(_)) => vec![least_way(facts, options)],
        (_, effort) if effort.compares_all() => vec![SearchMethod::PageScan],
        (QueryTarget::Nearest(k), _) => {
            vec![SearchMethod::Walk(promise::longest_walk(facts, k)), SearchMethod::PageScan]
        }
        (QueryTarget::Within(predicate), _) => {
            vec![SearchMethod::Walk(WalkAim::within(predicate, within::LONGEST, 0.0)), SearchMethod::PageScan]
        }
    }
}

/// Returns an upper bound on the bytes that [`decide`] needs.
pub(super) fn deciding_bytes<T: Coordinate>(
    context: &Context,
    facts: &IndexManifest,
    calibrate_with: Option<&dyn VectorSource>,
    options: &SearchOptions,
) -> u64 {
    let (k, longest) = match (options.target, options.effort) {
        (_, effort) if effort.compares_all() || matches!(effort, SearchEffort::List(_)) => return 0,
        (QueryTarget::Nearest(k), _) => (k, promise::longest(k)),
        (QueryTarget::Within(_), _) => (NOTED as u64, within::LONGEST),
    };
    promise::learning_bytes::<T>(context, facts, calibrate_with, k, longest)
}

/// Chooses the method of a search. A promised recall holds for queries that are distributed like the calibration
/// queries or, if there are none, like the rows of the index. `running` returns the least bytes that a search by a
/// method needs.
///
/// # Errors
/// If the calibration queries or the index cannot be read, or if the budget is too small for the calibration or the
/// search.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    queries: QuerySources<'_>,
    options: &SearchOptions,
    admitted: Option<&FilteredVertices<'_>>,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let unpromised = |aim| Ok(SearchPlan { method: SearchMethod::Walk(aim), recall: None, reads: None });
    let apart = admitted.filter(|admitted| admitted.is_apart());
    // A calibration with all rows may be wrong for the rows that can be hits.
    let thinned = admitted.filter(|admitted| apart.is_some() || admitted.is_thinned());
    let mut decided = match (options.target, options.effort) {
        (QueryTarget::Nearest(k), SearchEffort::List(list)) => {
            let hits = k.min(index.facts().rows) as usize;
            unpromised(promise::aim_at(apart, hits, list.max(hits)))
        }
        (QueryTarget::Within(predicate), SearchEffort::List(list)) => {
            unpromised(WalkAim::within(predicate, list, predicate.squared_distance() as f32))
        }
        // No sample supports a recall of 1. Only a comparison with all rows finds every hit.
        (_, effort) if effort.compares_all() => Ok(SearchPlan::whole(1.0, None)),
        (_, SearchEffort::Exact | SearchEffort::Probes(_)) => {
            unreachable!("exact searches compare all rows, and probes are refused for an index")
        }
        (QueryTarget::Nearest(k), SearchEffort::Recall(recall)) => {
            let promise = Promise { k, recall, seed: options.seed };
            let strategy = index.strategy.shared_if(options.shares_pages);
            let question = RecallQuestion { promise, queries, admitted: apart, thinned, strategy };
            promise::decide::<T>(context, index, question, running)
        }
        (QueryTarget::Within(predicate), SearchEffort::Recall(recall)) => {
            let target = ThresholdRecall { predicate, recall };
            within::decide::<T>(context, index, queries, target, options, thinned, running)
        }
    }?;
    // The list of a walk also holds vertices that cannot be hits, since walks expand these too.
    if let (SearchMethod::Walk(aim), Some(admitted)) = (&mut decided.method, admitted)
        && !aim.by_codes
    {
        aim.held = admitted.held(aim.list);
    }
    Ok(decided)
}
