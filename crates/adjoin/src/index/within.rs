//! Chooses how far walks must go to find the rows within a threshold with a promised recall.
//!
//! A walk for the K nearest ends with its list, but any number of rows may be within a threshold. So a walk also visits
//! every vertex with a code within *reach*, wherever it is in the list. The codes of true hits determine the reach: a
//! code is a rounded vector, and of the hits near the threshold, about half have codes beyond it. The length of the
//! list, which walks need to arrive near the hits at all, is found by trial, as for the K nearest (`promise.rs`).
//!
//! A few queries are not worth a calibration. They are compared with all pages in one pass, which is exact.

use super::Index;
use super::cache::PageCache;
use super::calibration::{NOTED, Reached, next_list};
use super::filtered_vertices::FilteredVertices;
use super::promise::{learning_bytes, recall_of};
use super::run::{SearchMethod, SearchPlan};
use super::sample::{Sample, Truth, drawn};
use super::walk::WalkAim;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::predicate::Predicate;
use crate::load::ReadCounts;
use crate::query::{QuerySources, SearchOptions, SourceQueries};
use crate::truth::{NeighborSample, setting_half};

/// Shortest and longest list that is tried.
const SHORTEST: usize = 16;
pub(super) const LONGEST: usize = 512;
/// Fraction of the allowed misses that may be due to the reach. The others are due to walks that do not come near the
/// hits.
const MISSES_OF_REACH: f64 = 0.5;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "calibrating the index";

/// Recall to reach for the rows within a threshold.
#[derive(Clone, Copy)]
pub(super) struct ThresholdRecall {
    pub(super) predicate: Predicate,
    pub(super) recall: f64,
}

/// Decides how a search reaches a recall for the rows within a threshold.
///
/// # Errors
/// If the calibration queries or the index cannot be read, or if the budget is too small.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    QuerySources { queries, calibrate_with }: QuerySources<'_>,
    target: ThresholdRecall,
    options: &SearchOptions,
    admitted: Option<&FilteredVertices>,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let ThresholdRecall { predicate, recall } = target;
    let whole = |reads| SearchPlan::whole(recall, reads);
    let facts = index.facts();
    // A calibration would compare at least as many queries with all pages. In a small index, the longest list would
    // hold all vertices.
    if queries.info().rows <= drawn(index, calibrate_with) || facts.vertices as usize <= LONGEST {
        return Ok(whole(None));
    }
    let calibration_queries = calibrate_with.map(|source| SourceQueries { source, space: facts.space() });
    let least = learning_bytes::<T>(context, facts, calibrate_with, NOTED as u64, LONGEST);
    let longest_walk = SearchMethod::Walk(WalkAim::within(predicate, LONGEST, 0.0));
    // The search itself must fit too: a budget that is too small for it is refused before the calibration.
    let after = running(longest_walk).max(running(SearchMethod::PageScan));
    let context = &context.for_run(least.max(after), PURPOSE)?;
    let sample = Sample::draw(context, index, admitted, calibration_queries, options.seed, &[])?;
    let (truth, reads) = sample.within::<T>(predicate, options.seed)?;
    let mut tried = Tried { context, index, sample, truth, sets: Vec::new(), target, options, reads };
    tried.sets = setting_half(tried.truth.counts.len(), options.seed);
    let found = tried.first_that_supports::<T>()?;
    let reads = Some(tried.reads);
    Ok(found.map_or_else(
        || whole(reads),
        |(aim, reached)| {
            let recall = Some(recall_of(reached, recall, true, calibrate_with.is_some()));
            SearchPlan { method: SearchMethod::Walk(aim), recall, reads }
        },
    ))
}

/// Queries with known true hits, and the results of trials with them.
struct Tried<'a> {
    context: &'a Context,
    index: &'a Index,
    sample: Sample<'a>,
    truth: Truth,
    /// Which of the queries choose the list. The others measure the recall that it reaches.
    sets: Vec<bool>,
    target: ThresholdRecall,
    options: &'a SearchOptions,
    reads: ReadCounts,
}

impl Tried<'_> {
    /// Returns the shortest list that supports the promise, and the recall that it reaches.
    fn first_that_supports<T: Coordinate>(&mut self) -> Result<Option<(WalkAim, Reached)>> {
        let (ThresholdRecall { predicate, recall }, seed) = (self.target, self.options.seed);
        let reach = self.truth.reach(1.0 - (1.0 - recall) * MISSES_OF_REACH, |query| self.sets[query]);
        let Some(reach) = reach else { return Ok(None) };
        // If even finding all hits would not support the promise, since too few queries have any, no walk is tried.
        let all = vec![true; self.truth.entries.len()];
        if self.of(&all, |query| self.sets[query]).calibrate(recall, seed).is_none() {
            return Ok(None);
        }
        let mut cache = None;
        let lists = std::iter::successors(Some(SHORTEST), |&list| Some(next_list(Some(list))));
        for list in lists.take_while(|&list| list <= LONGEST) {
            let aim = WalkAim::within(predicate, list, reach);
            let found = self.walk::<T>(aim, &mut cache)?;
            if self.of(&found, |query| self.sets[query]).calibrate(recall, seed).is_some() {
                let aside = self.of(&found, |query| !self.sets[query]);
                let (at_k, p5) = (aside.recalls(0.0, seed).per_vector, aside.fifth_percentile(0.0));
                // The other half must confirm the recall: the printed bound is the one that was promised.
                if at_k.low >= recall {
                    let queries = self.truth.counts.len() as u64;
                    return Ok(Some((aim, Reached { at_k, p5, queries, of_inserted: false })));
                }
            }
        }
        Ok(None)
    }

    /// Returns the sample of some queries: a hit that walks found has threshold 0, any other has infinity.
    fn of(&self, found: &[bool], takes: impl Fn(usize) -> bool) -> NeighborSample {
        let mut sample = NeighborSample::default();
        for (query, &count) in self.truth.counts.iter().enumerate().filter(|&(query, _)| takes(query)) {
            sample.vectors += 1;
            if count > 0 {
                let found = &found[self.truth.noted_of(query)];
                sample.pair_ts.extend(found.iter().map(|&found| if found { 0.0 } else { f32::INFINITY }));
                sample.neighbors.push((count, sample.pair_ts.len() as u32));
            }
        }
        sample
    }

    /// Returns whether walks find each of the recorded hits.
    fn walk<T: Coordinate>(&mut self, aim: WalkAim, cache: &mut Option<PageCache>) -> Result<Vec<bool>> {
        let Self { context, index, sample, truth, options, reads, .. } = self;
        let strategy = index.strategy.shared_if(options.shares_pages);
        let cache = match cache {
            Some(cache) => cache,
            None => cache.insert(PageCache::leaving(context, index, context.budget().free() / 2)?),
        };
        let noted = |query| &truth.entries[truth.noted_of(query)];
        sample.find_noted::<T>(aim, NOTED as u64, strategy, cache, noted, reads)
    }
}
