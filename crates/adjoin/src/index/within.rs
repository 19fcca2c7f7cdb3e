//! Chooses the reach and the list of walks that find the rows within a threshold with a promised recall.
//!
//! A walk for the K nearest ends when its list is expanded, but any number of rows may be within a threshold. Therefore
//! a walk also visits every vertex that it has seen with a distance by codes of at most *reach*, even if the list does
//! not keep the vertex. The reach is chosen from the codes of true hits. It is usually larger than the threshold: a
//! code is a rounded vector, so about half of the hits near the threshold have codes beyond the threshold. Walks also
//! need a list to get near the hits at all. Its length is found by trial, as for the K nearest (`promise.rs`).
//!
//! If a search has few queries, a calibration is not worth its cost. The queries are then compared with all pages in
//! one pass, which is exact.

use super::Index;
use super::cache::PageCache;
use super::calibration::{NOTED, Reached, next_list};
use super::filtered_vertices::FilteredVertices;
use super::promise::{learning_bytes, recall_of};
use super::run::{SearchMethod, SearchPlan};
use super::sample::{MISSED, Sample, Truth, drawn};
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
/// Fraction of the allowed misses that may be due to the reach. The other misses may be due to walks that do not get
/// near the hits.
const MISSES_OF_REACH: f64 = 0.5;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "calibrating the index";

/// Recall to reach for the rows within a threshold.
#[derive(Clone, Copy)]
pub(super) struct ThresholdRecall {
    pub(super) predicate: Predicate,
    pub(super) recall: f64,
}

/// Chooses the method by which a search reaches a recall for the rows within a threshold.
///
/// # Errors
/// If the calibration queries or the index cannot be read, or if the budget is too small.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    QuerySources { queries, calibrate_with }: QuerySources<'_>,
    target: ThresholdRecall,
    options: &SearchOptions,
    admitted: Option<&FilteredVertices<'_>>,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let ThresholdRecall { predicate, recall } = target;
    let whole = |reads| SearchPlan::whole(recall, reads);
    let facts = index.facts();
    // A calibration would compare at least as many queries with all pages as the search has. In a small index, the
    // longest list would hold all vertices.
    if queries.info().rows <= drawn(index, calibrate_with) || facts.vertices as usize <= LONGEST {
        return Ok(whole(None));
    }
    let calibration_queries = calibrate_with.map(|source| SourceQueries { source, space: facts.space() });
    let least = learning_bytes::<T>(context, facts, calibrate_with, NOTED as u64, LONGEST);
    let longest_walk = SearchMethod::Walk(WalkAim::within(predicate, LONGEST, 0.0));
    // The search must fit in the budget too. Otherwise it is refused before the calibration, not after it.
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

/// Search for a sufficient list, by walks of sampled queries with known true hits.
struct Tried<'a> {
    context: &'a Context,
    index: &'a Index,
    sample: Sample<'a>,
    truth: Truth,
    /// Whether each query is used to choose the list. The other queries measure the recall that the list reaches.
    sets: Vec<bool>,
    target: ThresholdRecall,
    options: &'a SearchOptions,
    reads: ReadCounts,
}

impl Tried<'_> {
    /// Returns the aim with the shortest list that supports the promise, and the recall that it reaches. Returns `None`
    /// if no list does.
    fn first_that_supports<T: Coordinate>(&mut self) -> Result<Option<(WalkAim, Reached)>> {
        let (ThresholdRecall { predicate, recall }, seed) = (self.target, self.options.seed);
        let reach = self.truth.reach(1.0 - (1.0 - recall) * MISSES_OF_REACH, |query| self.sets[query]);
        let Some(reach) = reach else { return Ok(None) };
        // If too few queries have any hits, even finding all of them does not support the promise. No walk is tried
        // then.
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
                // The other half of the queries must confirm the recall, since the bound that they give is reported.
                if at_k.low >= recall {
                    let queries = self.truth.counts.len() as u64;
                    return Ok(Some((aim, Reached { at_k, p5, queries, of_inserted: false })));
                }
            }
        }
        Ok(None)
    }

    /// Returns the sample of some queries. A recorded hit has threshold 0 if walks found it, and infinity if not.
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

    /// Returns a flag for each recorded hit: whether walks find it.
    fn walk<T: Coordinate>(&mut self, aim: WalkAim, cache: &mut Option<PageCache>) -> Result<Vec<bool>> {
        let Self { context, index, sample, truth, options, reads, .. } = self;
        let strategy = index.strategy.shared_if(options.shares_pages);
        let cache = match cache {
            Some(cache) => cache,
            None => cache.insert(PageCache::leaving(context, index, context.budget().free() / 2)?),
        };
        let noted = |query| &truth.entries[truth.noted_of(query)];
        let lists = sample.find_noted::<T>(aim, NOTED as u64, strategy, cache, noted, reads)?;
        Ok(lists.into_iter().map(|list| list != MISSED).collect())
    }
}
