//! How far must walks go to find what lies within a threshold?
//!
//! A walk for the nearest ends where its list does; what lies within a threshold may be any number. So a walk also looks at
//! every vertex whose code is within *reach*, wherever that stands in its list. The codes of true hits say how far that must
//! be: a code is a rounded vector, and of hits near the threshold about half have codes that are beyond it. How long the list
//! must be for walks to come to the hits at all is tried, as for the nearest (`promise.rs`).
//!
//! Few queries are not worth that: they are compared with all pages in one pass, which is exact.

use super::Index;
use super::cache::PageCache;
use super::calibration::{NOTED, Reached, next_list};
use super::filtered_vertices::FilteredVertices;
use super::promise::{learning_bytes, recall_of};
use super::run::{SearchMethod, SearchPlan};
use super::sample::{Sample, Truth, drawn};
use super::walk::WalkAim;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::load::ReadCounts;
use crate::predicate::Predicate;
use crate::query::SearchOptions;
use crate::query::SourceQueries;
use crate::source::VectorSource;
use crate::truth::{NeighborSample, setting_half};

/// The shortest and the longest list that is tried.
const SHORTEST: usize = 16;
pub(super) const LONGEST: usize = 512;
/// Of the misses that a promise allows, the share that the reach may make; the others are those of walks that do not come near.
const MISSES_OF_REACH: f64 = 0.5;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "learning the recall of the index";

/// Decides how a search goes that promises to find a share of what lies within a threshold.
///
/// # Errors
/// Where the source or the index cannot be read, or the budget is too small.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (predicate, admitted): (Predicate, Option<&FilteredVertices>),
    (target, options): (f64, &SearchOptions),
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let whole = |reads| SearchPlan::whole(target, reads);
    let facts = index.facts();
    if queries.info().rows <= drawn(index, like) || facts.vertices as usize <= LONGEST {
        return Ok(whole(None));
    }
    let like_them = like.map(|source| SourceQueries { source, space: facts.space() });
    let least = learning_bytes::<T>(context, facts, like, (NOTED as u64, LONGEST));
    let longest_walk = SearchMethod::Walk(WalkAim::within(predicate, (LONGEST, 0.0)));
    let after = running(longest_walk).max(running(SearchMethod::PageScan));
    let context = &context.for_run(least.max(after), PURPOSE)?;
    let sample = Sample::draw((context, index), admitted, (like_them, options.seed), &[])?;
    let (truth, reads) = sample.within::<T>(predicate, options.seed)?;
    let mut tried = Tried { context, index, sample, truth, sets: Vec::new(), predicate, options, reads };
    tried.sets = setting_half(tried.truth.counts.len(), options.seed);
    let found = tried.first_that_supports::<T>(target)?;
    let reads = Some(tried.reads);
    Ok(found.map_or_else(
        || whole(reads),
        |(aim, reached)| {
            let recall = Some(recall_of(reached, (target, true), like.is_some()));
            SearchPlan { method: SearchMethod::Walk(aim), recall, reads }
        },
    ))
}

/// Queries whose true hits are known, and what was tried with them.
struct Tried<'a> {
    context: &'a Context,
    index: &'a Index,
    sample: Sample<'a>,
    truth: Truth,
    /// Which of them decide; the others say what is reached.
    sets: Vec<bool>,
    predicate: Predicate,
    options: &'a SearchOptions,
    reads: ReadCounts,
}

impl Tried<'_> {
    /// The shortest list that supports the promise, and what it reaches.
    fn first_that_supports<T: Coordinate>(&mut self, target: f64) -> Result<Option<(WalkAim, Reached)>> {
        let seed = self.options.seed;
        let reach = self.truth.reach(1.0 - (1.0 - target) * MISSES_OF_REACH, |query| self.sets[query]);
        let Some(reach) = reach else { return Ok(None) };
        // Where so few have hits that to find all of them would not do, no walk is tried.
        let all = vec![true; self.truth.entries.len()];
        if self.of(&all, |query| self.sets[query]).calibrate(target, seed).is_none() {
            return Ok(None);
        }
        let mut cache = None;
        let lists = std::iter::successors(Some(SHORTEST), |&list| Some(next_list(Some(list))));
        for list in lists.take_while(|&list| list <= LONGEST) {
            let aim = WalkAim::within(self.predicate, (list, reach));
            let found = self.walk::<T>(aim, &mut cache)?;
            if self.of(&found, |query| self.sets[query]).calibrate(target, seed).is_some() {
                let aside = self.of(&found, |query| !self.sets[query]);
                let (at_k, p5) = (aside.recalls(0.0, seed).per_vector, aside.fifth_percentile(0.0));
                // The other half must bear it out: the bound that is printed is the one that was promised.
                if at_k.low >= target {
                    let queries = self.truth.counts.len() as u64;
                    return Ok(Some((aim, Reached { at_k, p5, queries, of_inserted: false })));
                }
            }
        }
        Ok(None)
    }

    /// Some of the queries: hits that walks found at a threshold of 0, and those that they did not.
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

    /// Whether walks find each of the noted hits.
    fn walk<T: Coordinate>(&mut self, aim: WalkAim, cache: &mut Option<PageCache>) -> Result<Vec<bool>> {
        let Self { context, index, sample, truth, options, reads, .. } = self;
        let cache = match cache {
            Some(cache) => cache,
            None => cache.insert(PageCache::beside(context, index, context.budget().free() / 2)?),
        };
        let noted = |query| &truth.entries[truth.noted_of(query)];
        sample.find_noted::<T>((aim, NOTED as u64), (options.walk, cache), noted, reads)
    }
}
