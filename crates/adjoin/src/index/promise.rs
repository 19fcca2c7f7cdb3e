//! Chooses the length of the list that walks need to reach a recall for K hits.
//!
//! For queries with known true hits, walks are run with longer and longer lists until the bootstrap accepts one. Each of
//! these walks measures all shorter lists too. A build of an index does this once for every K up to 100, with rows of the
//! index as queries. A search does it if it needs a recall that the calibration of the index does not cover.

use std::collections::VecDeque;

use super::cache::PageCache;
use super::calibration::{Calibration, Inserted, NOTED, Reached, lists_up_to};
use super::filtered_vertices::FilteredVertices;
use super::promised::{Keeping, Promise};
use super::run::{SearchMethod, SearchPlan};
use super::sample::{self, Sample};
use super::walk::{WALKS, WalkAim};
use super::walk_strategy::WalkStrategy;
use super::walks::Walks;
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::VectorType;
use crate::base::report::RecallStatistics;
use crate::base::workers::map_items;
use crate::load::ReadCounts;
use crate::query::{QuerySources, SourceQueries};
use crate::source::VectorSource;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Role};

/// Values of K, with the recalls for which a build looks for a list. The first walks have a list for the largest K.
const AT_BUILD: [(u64, &[f64]); 3] =
    [(NOTED as u64, &[0.8, 0.9]), (10, &[0.8, 0.9, 0.95, 0.99]), (1, &[0.8, 0.9, 0.95, 0.99])];
/// Length of the list of the first walks. Later walks have lists of at least twice the length.
const FIRST: usize = 64;
/// Longest list tried during a build.
const LONGEST_AT_BUILD: usize = 256;
/// Longest list tried by a search. If no list suffices and the index has no more vertices than this, the search uses a
/// list of all vertices.
const LONGEST: usize = 4_096;
/// If K is large, the longest list tried by a search has this many candidates per hit.
const LISTS_OF_HITS: u64 = 4;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "calibrating the index";

/// What is known before an index is calibrated.
#[derive(Clone, Copy)]
pub(super) struct CalibrationAims<'a> {
    /// Rows that a merge has inserted. Their recall is measured separately.
    pub(super) inserted: &'a Inserted,
    /// Length of the list of the first walks, if a longer one than usual is likely to be needed. These walks measure all
    /// shorter lists too, so that fewer walks are run.
    pub(super) first: Option<usize>,
}

/// Calibrates the recall of an index and publishes the index. `drafts` holds all of its files except the manifest and
/// the calibration. Returns the manifest and the size of the index in bytes.
///
/// A calibration may need more memory than the build. If the budget is too small for it, the index is published without
/// a measured recall, and each search that promises a recall calibrates itself.
///
/// # Errors
/// If a file cannot be written, or if the work is cancelled.
pub(super) fn publish<T: Coordinate>(
    context: &Context,
    drafts: Drafts<'_>,
    mut manifest: IndexManifest,
    force: bool,
    aims: CalibrationAims<'_>,
) -> Result<(IndexManifest, u64)> {
    let (role, inserted) = (Role::Calibration, aims.inserted);
    let calibration = match context.budget().free() < publishing_bytes::<T>(context, &manifest) {
        true => {
            context.progress.note("memory does not hold the codes, so the first searches will calibrate the index");
            let drawn = sample::drawn_entries(&manifest).len();
            let is_merged = !inserted.entries.is_empty();
            is_merged.then(|| Calibration::unmeasured(WALKS, drawn, inserted.clone()).to_bytes())
        }
        false => {
            let index = Index::of_drafts(context, drafts.folder(), manifest.clone())?;
            Some(calibration_of::<T>(context, &index, aims)?)
        }
    };
    if let Some(calibration) = &calibration {
        manifest.files.add(role, FileFacts::of(&role.file_of(checksum(calibration)), calibration));
    }
    let encoded = manifest.encode();
    let bytes = manifest.files.iter().map(|(_, facts)| facts.bytes).sum::<u64>() + encoded.len() as u64;
    let contents: Vec<(Role, &[u8])> = calibration.iter().map(|calibration| (role, &calibration[..])).collect();
    drafts.publish(&manifest.files, &encoded, &contents, force)?;
    Ok((manifest, bytes))
}

/// Returns the bytes for calibrating and publishing an index.
pub(super) fn publishing_bytes<T: Coordinate>(context: &Context, manifest: &IndexManifest) -> u64 {
    Index::memory_bytes(manifest) + least_bytes_at_build::<T>(context, manifest)
}

/// Calibrates with rows of the index, and returns the encoded calibration.
fn calibration_of<T: Coordinate>(context: &Context, index: &Index, aims: CalibrationAims<'_>) -> Result<Vec<u8>> {
    let (seed, CalibrationAims { inserted, first }) = (index.facts().seed, aims);
    let sample = Sample::of_rows(context, index, None, &inserted.entries)?;
    let mut climb = ListSearch::new(context, index, sample, None, WalkStrategy::default());
    climb.first = first.map_or(FIRST, |first| first.max(FIRST));
    let mut calibration = climb.begin::<T>(NOTED as u64, seed, inserted)?;
    let promises =
        |&(k, recalls): &(u64, &'static [f64])| recalls.iter().map(move |&recall| Promise { k, recall, seed });
    let mut left: VecDeque<Promise> = AT_BUILD.iter().flat_map(promises).collect();
    while let Some(promise) = left.pop_front() {
        climb.until::<T>(&mut calibration, promise, LONGEST_AT_BUILD)?;
        // The same walks usually suffice for other promises. All threads check which of them are still open.
        let of_thread = calibration.choosing_bytes();
        let threads = ((context.budget().free() / of_thread) as usize).clamp(1, context.threads);
        let _memory = context.reserve((threads as u64 - 1) * of_thread, PURPOSE)?;
        let is_open = |_: &mut (), number: usize| Ok(calibration.choose(left[number]).is_none());
        let mut open = map_items(threads, left.len(), &context.cancel, || (), is_open)?.into_iter();
        left.retain(|_| open.next() == Some(true));
    }
    Ok(calibration.to_bytes())
}

/// Returns the least bytes for a calibration with lists of up to `longest` candidates, in addition to the open index.
pub(super) fn least_bytes<T: Coordinate>(
    context: &Context,
    index: &IndexManifest,
    vectors: VectorType,
    k: u64,
    longest: usize,
) -> u64 {
    // One more hit is counted, since a sampled row may find itself.
    let aim = WalkAim::nearest(k.min(index.rows) as usize + 1, longest);
    let walks = 2 * context.threads as u64 * Walks::<T>::walk_bytes(index, aim, WalkStrategy::default());
    sample::least_bytes::<T>(context, index, vectors, k) + walks
}

/// Returns the least bytes for the calibration during a build.
fn least_bytes_at_build<T: Coordinate>(context: &Context, index: &IndexManifest) -> u64 {
    least_bytes::<T>(context, index, index.vectors, NOTED as u64, LONGEST_AT_BUILD)
}

/// Returns the aim of a search for `hits` hits with a list of `list` candidates. If few vertices can be hits, the
/// candidates are chosen by codes.
pub(super) fn aim_at(admitted: Option<&FilteredVertices<'_>>, hits: usize, list: usize) -> WalkAim {
    let by_codes = admitted.is_some_and(|admitted| admitted.is_by_codes(list));
    WalkAim { by_codes, ..WalkAim::nearest(hits, list) }
}

/// A search for the K nearest that promises a recall.
#[derive(Clone, Copy)]
pub(super) struct RecallQuestion<'a> {
    pub(super) promise: Promise,
    pub(super) queries: QuerySources<'a>,
    /// Vertices that can be hits. Set only if walks may find a different fraction of these than of all vertices.
    pub(super) admitted: Option<&'a FilteredVertices<'a>>,
    /// Vertices that can be hits. Set only if a calibration with all rows may be wrong for them. Set whenever
    /// `admitted` is.
    pub(super) thinned: Option<&'a FilteredVertices<'a>>,
    pub(super) strategy: WalkStrategy,
}

/// Chooses the method by which a search for the K nearest reaches a recall. The recall holds for queries that are
/// distributed like the calibration queries or, if there are none, like the rows of the index.
///
/// The calibration of the index applies only if no filter excludes rows, and if few rows are deleted. Otherwise the
/// search calibrates itself, unless it costs less to compare its queries with all pages.
///
/// # Errors
/// If the calibration queries or the index cannot be read, or if the budget is too small for the calibration or the
/// search.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    question: RecallQuestion<'_>,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let RecallQuestion { promise, queries, admitted, thinned, strategy } = question;
    let QuerySources { queries, calibrate_with } = queries;
    if let Some(admitted) = admitted {
        let drawn = sample::drawn(index, calibrate_with);
        // A calibration compares `drawn` queries with all pages. If the search has no more queries than that, or if few
        // rows can be hits, comparing the queries of the search costs less. It is also exact.
        if queries.info().rows <= drawn || admitted.rows() <= promise.k.max(drawn) {
            return Ok(SearchPlan::whole(promise.recall, None));
        }
    }
    // Only promises that depend on nothing except K, recall and seed are remembered.
    let by_default = strategy.finds_the_same(&WalkStrategy::default());
    let is_usual = calibrate_with.is_none() && admitted.is_none() && thinned.is_none() && by_default;
    if !is_usual {
        return learn::<T>(context, index, question, running);
    }
    if let Some(Keeping { list, recall }) = index.promises.get(promise) {
        let method = list
            .map_or(SearchMethod::PageScan, |list| SearchMethod::Walk(WalkAim::nearest(question.hits(index), list)));
        return Ok(SearchPlan { method, recall: Some(recall), reads: None });
    }
    let decided = learn::<T>(context, index, question, running)?;
    let list = match decided.method {
        SearchMethod::Walk(aim) => Some(aim.list),
        SearchMethod::PageScan => None,
    };
    decided.recall.iter().for_each(|recall| index.promises.put(promise, Keeping { list, recall: recall.clone() }));
    Ok(decided)
}

/// Looks up a list that keeps the promise in the calibration of the index. Calibrates if there is none.
fn learn<T: Coordinate>(
    context: &Context,
    index: &Index,
    mut question: RecallQuestion<'_>,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let RecallQuestion { promise, queries, admitted: apart, thinned, strategy } = question;
    let QuerySources { queries, calibrate_with } = queries;
    let Promise { k, recall, seed } = promise;
    let longest = longest(k);
    // A calibration query that is a row of the index does not count itself as a hit.
    let rows_max = k.min(index.facts().rows - 1);
    let known = index.calibration.as_ref();
    let is_usual = calibrate_with.is_none() && apart.is_none() && strategy.finds_the_same(&WalkStrategy::default());
    // A calibration by another version of the walks does not apply.
    let mut known = known.filter(|known| is_usual && known.walks() == WALKS && known.serves(rows_max));
    if let Some(admitted) = thinned {
        // After deletes, the calibration is restricted to the queries and hits that remain.
        let own = || sample::drawn_entries(index.facts());
        let left = known.and_then(|known| known.of_left(k, &own(), |entry| admitted.admits(entry)));
        if let Some((left, list)) = left.and_then(|left| left.choose(promise).map(|list| (left, list))) {
            return Ok(question.plan(index, &left, Some(list), None));
        }
        (known, question.admitted) = (None, thinned);
    }
    if let Some(known) = known {
        let list = known.choose(promise);
        if list.is_some() || lists_to_try(index, known, promise, (FIRST, longest)).is_empty() {
            return Ok(question.plan(index, known, list, None));
        }
    } else if is_usual && queries.info().rows < sample::drawn(index, calibrate_with) {
        // A calibration would compare more rows with all pages than the search has queries, and then run walks.
        return Ok(SearchPlan::whole(recall, None));
    }
    let calibration_queries = calibrate_with.map(|source| SourceQueries { source, space: index.facts().space() });
    let admitted = question.admitted;
    let least = learning_bytes::<T>(context, index.facts(), calibrate_with, k, longest);
    // The search must fit in the budget too. Otherwise it is refused before the calibration, not after it.
    let after = running(SearchMethod::Walk(longest_walk(index.facts(), k)))
        .max(admitted.map_or(0, |_| running(SearchMethod::PageScan)));
    let context = &context.for_run(least.max(after), PURPOSE)?;
    let inserted = index.calibration.as_ref().map(Calibration::inserted).filter(|_| calibrate_with.is_none()).cloned();
    let mut inserted = inserted.unwrap_or_default();
    if let Some(admitted) = admitted.filter(|admitted| admitted.is_by_deletes()) {
        inserted.entries.retain(|&entry| admitted.admits(entry));
    }
    let sample = Sample::draw(context, index, admitted, calibration_queries, seed, &inserted.entries)?;
    if sample.len() == inserted.entries.len() {
        return Ok(SearchPlan::whole(recall, None)); // all drawn rows are deleted
    }
    let mut climb = ListSearch::new(context, index, sample, admitted, strategy);
    // The calibration of the index can be continued if it was made with the same queries.
    let mut calibration = match known.filter(|known| known.queries() == climb.sample.len()) {
        Some(known) => known.clone(),
        None => climb.begin::<T>(k, seed, &inserted)?,
    };
    let list = climb.until::<T>(&mut calibration, promise, longest)?;
    Ok(question.plan(index, &calibration, list, Some(climb.reads)))
}

/// Approximate number of pages that the walks of a calibration query request.
const LISTS_TRIED: usize = 64;

/// Returns the longest list worth trying for `k` hits.
pub(super) fn longest(k: u64) -> usize {
    LONGEST.max(LISTS_OF_HITS.saturating_mul(k) as usize)
}

/// Returns the longest walk that may be chosen for `k` hits.
pub(super) fn longest_walk(facts: &IndexManifest, k: u64) -> WalkAim {
    let hits = k.min(facts.rows) as usize;
    WalkAim::nearest(hits, longest(k).min(facts.vertices as usize).max(hits))
}

/// Returns the bytes for calibrating a search for `k` hits with lists of up to `longest` candidates. The queries are
/// vectors of `calibrate_with` or, if it is not set, rows of the index.
pub(super) fn learning_bytes<T: Coordinate>(
    context: &Context,
    facts: &IndexManifest,
    calibrate_with: Option<&dyn VectorSource>,
    k: u64,
    longest: usize,
) -> u64 {
    let queries = calibrate_with.map(|source| SourceQueries { source, space: facts.space() });
    let vectors = queries.map_or(facts.vectors, SourceQueries::vectors);
    let reading = queries.map_or(0, SourceQueries::reading_bytes);
    // A list of all vertices is not tried.
    reading + least_bytes::<T>(context, facts, vectors, k, longest.min(facts.vertices as usize))
}

/// Returns the lists to try next, all by one walk, if the calibration does not support the promise yet. Returns no lists
/// if longer lists are not worth a trial.
fn lists_to_try(
    index: &Index,
    calibration: &Calibration,
    promise: Promise,
    (first, longest): (usize, usize),
) -> Vec<usize> {
    let before = calibration.longest();
    let enough = first.max(promise.k as usize).max(before.map_or(0, |before| before + 1)).next_power_of_two();
    // A list of all vertices finds everything without a trial.
    let most = longest.min(index.facts().vertices as usize - 1);
    match calibration.may_support(promise) {
        true => lists_up_to(before, enough.min(most)),
        false => Vec::new(),
    }
}

impl RecallQuestion<'_> {
    /// Returns the plan that follows from a calibration. `list` is the list that supports the promise, if there is one.
    /// `reads` are the reads of a new calibration.
    fn plan(
        &self,
        index: &Index,
        calibration: &Calibration,
        list: Option<usize>,
        reads: Option<ReadCounts>,
    ) -> SearchPlan {
        let Promise { k, recall: target, seed } = self.promise;
        let vertices = index.facts().vertices as usize;
        // If no list suffices for the rows that can be hits, all of them are compared, which is exact.
        if list.is_none() && self.admitted.is_some() {
            return SearchPlan::whole(target, reads);
        }
        // A list of all vertices finds everything.
        if list.is_none() && vertices <= longest(k) {
            let method = SearchMethod::Walk(WalkAim::nearest(self.hits(index), vertices));
            return SearchPlan { method, recall: Some(RecallStatistics::proved_at_k(target)), reads };
        }
        let list_is_enough = list.is_some();
        let list = list.or(calibration.longest()).unwrap_or(LONGEST);
        let reached = calibration.reached(k, list, seed);
        // If no list suffices, the longest one is used, and the promise is reported as not kept.
        let kept = list_is_enough && reached.at_k.low >= target;
        let recall = recall_of(reached, target, kept, self.queries.calibrate_with.is_some());
        let hits = self.hits(index);
        let aim = aim_at(self.admitted, hits, list.max(hits));
        SearchPlan { method: SearchMethod::Walk(aim), recall: Some(recall), reads }
    }

    fn hits(&self, index: &Index) -> usize {
        self.promise.k.min(index.facts().rows) as usize
    }
}

/// Returns the statistics of a promised recall. `kept` states whether the promise is kept, and
/// `has_calibration_queries` whether the user gave calibration queries.
pub(super) fn recall_of(reached: Reached, target: f64, kept: bool, has_calibration_queries: bool) -> RecallStatistics {
    let Reached { at_k, p5, queries, of_inserted } = reached;
    let drawn_from = match (has_calibration_queries, of_inserted) {
        (true, _) => "calibrate-with",
        (false, true) => "rows that the last merge inserted",
        (false, false) => "rows of the index",
    };
    RecallStatistics {
        at_k: Some(at_k),
        p5: Some(p5),
        queries: Some(drawn_from.to_owned()),
        sample_queries: Some(queries),
        kept,
        ..RecallStatistics::promised(target)
    }
}

/// Search for a sufficient list, by walks of a sample with longer and longer lists.
struct ListSearch<'a> {
    context: &'a Context,
    index: &'a Index,
    sample: Sample<'a>,
    admitted: Option<&'a FilteredVertices<'a>>,
    strategy: WalkStrategy,
    /// Length of the list of the first walks.
    first: usize,
    /// Cache of pages for all trials.
    cache: Option<PageCache>,
    reads: ReadCounts,
}

impl<'a> ListSearch<'a> {
    fn new(
        context: &'a Context,
        index: &'a Index,
        sample: Sample<'a>,
        admitted: Option<&'a FilteredVertices<'a>>,
        strategy: WalkStrategy,
    ) -> Self {
        Self { context, index, sample, admitted, strategy, first: FIRST, cache: None, reads: ReadCounts::default() }
    }

    /// Creates a calibration without lists: finds the true hits of all queries of the sample. The last queries of the
    /// sample are `inserted`.
    fn begin<T: Coordinate>(&mut self, k: u64, seed: u64, inserted: &Inserted) -> Result<Calibration> {
        let (hits, reads) = self.sample.true_hits::<T>(k, seed)?;
        self.reads += reads;
        Ok(Calibration::new(WALKS, self.sample.hits_of_query(k), &hits, inserted.clone()))
    }

    /// Tries longer lists until one supports the promise, and returns this list. Returns `None` once a longer list is
    /// not worth a trial.
    fn until<T: Coordinate>(
        &mut self,
        calibration: &mut Calibration,
        promise: Promise,
        longest: usize,
    ) -> Result<Option<usize>> {
        loop {
            if let Some(list) = calibration.choose(promise) {
                return Ok(Some(list));
            }
            let lists = lists_to_try(self.index, calibration, promise, (self.first, longest));
            if lists.is_empty() {
                return Ok(None);
            }
            self.try_lists::<T>(calibration, &lists)?;
        }
    }

    /// Runs the walks of all queries with the last and longest of some lists. Adds the hits that each list finds to the
    /// calibration.
    fn try_lists<T: Coordinate>(&mut self, calibration: &mut Calibration, lists: &[usize]) -> Result<()> {
        let Self { context, index, sample, admitted, strategy, cache, reads, .. } = self;
        // Each walk finds one hit more than is recorded, since a row may find itself.
        let k = u64::from(calibration.hits_of_query()) + 1;
        let by_codes = aim_at(*admitted, k as usize, lists[0]).by_codes;
        // A walk that reads several pages at once may read another page with a shorter list.
        let lists_max = if strategy.beam > 1 { 1 } else { lists.len() };
        let aims = lists[..lists_max].iter().map(|&list| aim_at(*admitted, k as usize, list));
        // A walk measures only lists that choose candidates by the same method. The others are tried later.
        let aims: Vec<WalkAim> = aims.take_while(|aim| aim.by_codes == by_codes).collect();
        let (aim, lists) = (aims[aims.len() - 1], &lists[..aims.len()]);
        let cache = match cache {
            Some(cache) => cache,
            None => {
                // Queries near each other need the same pages, so a cached page is used many times.
                let of_walk = Walks::<T>::walk_bytes(index.facts(), aim, *strategy);
                let walks = (context.threads * strategy.walks) as u64 * of_walk;
                let left = 4 * (walks + sample.finding_bytes::<T>(k));
                cache.insert(PageCache::filled(context, index, left, (sample.len() * LISTS_TRIED) as u64)?)
            }
        };
        let noted = |query| calibration.noted(query);
        let least = sample.find_noted::<T>(aim, k, *strategy, cache, noted, reads)?;
        calibration.add(lists, &least);
        Ok(())
    }
}
