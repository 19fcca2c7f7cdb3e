//! How long must the list of a walk be to find enough? Queries whose true hits are known walk with longer and longer lists,
//! until the bootstrap is content. That is done once for every k up to a hundred, when an index is built, by rows of it; what
//! an index does not know is learned by the search that wants it.

use super::cache::PageCache;
use super::calibration::{Calibration, Inserted, NOTED, Reached, next_list};
use super::filtered_vertices::FilteredVertices;
use super::run::{SearchMethod, SearchPlan, Walks};
use super::sample::{self, Sample};
use super::walk::{WALKS, WalkAim};
use super::{Index, IndexManifest};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::load::ReadCounts;
use crate::options::VectorType;
use crate::query::SearchOptions;
use crate::query::SourceQueries;
use crate::query::WalkStrategy;
use crate::report::RecallStatistics;
use crate::source::VectorSource;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Role};

/// Numbers of hits and recalls for which an index is published with lists that reach them, where there are such lists.
const AT_BUILD: [(u64, &[f64]); 5] = [
    (1, &[0.8, 0.9, 0.95, 0.99]),
    (10, &[0.8, 0.9, 0.95, 0.99]),
    // No list is shorter than the number of hits: these make for steps between 10 and 100.
    (50, &[0.8]),
    (75, &[0.8]),
    (NOTED as u64, &[0.8, 0.9]),
];
/// The longest list that is tried for an index that is built.
const LONGEST_AT_BUILD: usize = 256;
/// The longest list that a search tries. An index of fewer vertices is searched whole where none does.
const LONGEST: usize = 4_096;
/// With more hits wanted, so many times as many candidates.
const LISTS_OF_HITS: u64 = 4;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "learning the recall of the index";

/// Publishes an index whose other files are drafts, together with the recall that it reaches; returns its manifest, and bytes
/// that it takes. Of rows that a merge has inserted the recall is measured apart. Where memory does not hold what that takes, which is more than a build needs, searches learn it themselves.
///
/// # Errors
/// Where the disk refuses, or the work is cancelled.
pub(super) fn publish<T: Coordinate>(
    context: &Context,
    drafts: Drafts<'_>,
    mut manifest: IndexManifest,
    force: bool,
    inserted: &Inserted,
) -> Result<(IndexManifest, u64)> {
    let role = Role::Calibration;
    let calibration = match context.budget().free() < publishing_bytes::<T>(context, &manifest) {
        true => {
            context.progress.note("the memory does not hold the codes: searches of the index will learn its recall");
            let drawn = sample::drawn_entries(&manifest).len();
            let is_merged = !inserted.entries.is_empty();
            is_merged.then(|| Calibration::unmeasured(WALKS, drawn, inserted.clone()).to_bytes())
        }
        false => {
            let index = Index::of_drafts(context, drafts.folder(), manifest.clone())?;
            Some(calibration_of::<T>(context, &index, inserted)?)
        }
    };
    if let Some(calibration) = &calibration {
        manifest.files.add(role, FileFacts::of(&role.file_of(checksum(calibration)), calibration));
    }
    let encoded = manifest.encode();
    let bytes = manifest.files.iter().map(|(_, facts)| facts.bytes).sum::<u64>() + encoded.len() as u64;
    let contents: Vec<(Role, &[u8])> = calibration.iter().map(|calibration| (role, &calibration[..])).collect();
    drafts.publish((&manifest.files, &encoded), &contents, force)?;
    Ok((manifest, bytes))
}

/// Bytes with which an index is published with the recall that it reaches.
pub(super) fn publishing_bytes<T: Coordinate>(context: &Context, manifest: &IndexManifest) -> u64 {
    Index::memory_bytes(manifest) + least_bytes_at_build::<T>(context, manifest)
}

/// The bytes of a calibration by rows of an index.
fn calibration_of<T: Coordinate>(context: &Context, index: &Index, inserted: &Inserted) -> Result<Vec<u8>> {
    let seed = index.facts().seed;
    let sample = Sample::of_rows((context, index), None, &inserted.entries)?;
    let mut climb = ListSearch::new((context, index), (sample, None), WalkStrategy::default());
    let mut calibration = climb.begin::<T>(NOTED as u64, seed, inserted)?;
    for (k, recalls) in AT_BUILD {
        for &recall in recalls {
            climb.until::<T>(&mut calibration, k, (recall, seed), LONGEST_AT_BUILD)?;
        }
    }
    Ok(calibration.to_bytes())
}

/// The least bytes with which that can be done, beside the open index.
pub(super) fn least_bytes<T: Coordinate>(
    context: &Context,
    index: &IndexManifest,
    vectors: VectorType,
    (k, longest): (u64, usize),
) -> u64 {
    let aim = WalkAim::nearest(k.min(index.rows) as usize + 1, longest);
    let walks = 2 * context.threads as u64 * Walks::<T>::walk_bytes(index, aim, WalkStrategy::default());
    sample::least_bytes::<T>(context, index, vectors, k) + walks
}

/// The same for an index that is built.
fn least_bytes_at_build<T: Coordinate>(context: &Context, index: &IndexManifest) -> u64 {
    least_bytes::<T>(context, index, index.vectors, (NOTED as u64, LONGEST_AT_BUILD))
}

/// So many nearest with a list: of all by a walk, of some also by their codes.
pub(super) fn aim_at(index: &Index, admitted: Option<&FilteredVertices>, (hits, list): (usize, usize)) -> WalkAim {
    let by_codes = admitted.is_some_and(|admitted| admitted.is_by_codes(index, list));
    WalkAim { by_codes, ..WalkAim::nearest(hits, list) }
}

/// Decides how a search goes where so many nearest are wanted with a recall, for queries like those of a source, or like the
/// rows of the index. What an index knows of the recall of its walks is known of walks
/// among all rows: among others it is learned anew, unless queries are so few that they cost less themselves.
///
/// # Errors
/// Where the source or the index cannot be read, or the budget is too small for that or the search that follows.
pub(super) fn decide<T: Coordinate>(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (k, apart, thinned): (u64, Option<&FilteredVertices>, Option<&FilteredVertices>),
    (target, options): (f64, &SearchOptions),
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let wanted = RecallQuestion { k, admitted: apart, target, seed: options.seed, like: like.is_some() };
    if let Some(admitted) = apart {
        let drawn = sample::drawn(index, like);
        if queries.info().rows <= drawn || admitted.rows() <= k.max(drawn) {
            return Ok(SearchPlan::whole(target, None));
        }
    }
    let by_default = options.walk.finds_the_same(&WalkStrategy::default());
    let is_usual = like.is_none() && apart.is_none() && thinned.is_none() && by_default;
    let promise = (k, target, options.seed);
    if !is_usual {
        return learn::<T>(context, index, (queries, like), (wanted, thinned), options.walk, running);
    }
    if let Some((list, recall)) = index.promises.get(promise) {
        let way =
            list.map_or(SearchMethod::PageScan, |list| SearchMethod::Walk(WalkAim::nearest(wanted.hits(index), list)));
        return Ok(SearchPlan { method: way, recall: Some(recall), reads: None });
    }
    let decided = learn::<T>(context, index, (queries, like), (wanted, None), options.walk, running)?;
    let list = match decided.method {
        SearchMethod::Walk(aim) => Some(aim.list),
        SearchMethod::PageScan => None,
    };
    decided.recall.iter().for_each(|recall| index.promises.put(promise, (list, recall.clone())));
    Ok(decided)
}

/// Looks up the list that keeps the promise, or learns it.
fn learn<T: Coordinate>(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (mut wanted, thinned): (RecallQuestion<'_>, Option<&FilteredVertices>),
    strategy: WalkStrategy,
    running: &dyn Fn(SearchMethod) -> u64,
) -> Result<SearchPlan> {
    let RecallQuestion { k, admitted: apart, target, seed, .. } = wanted;
    let (promise, longest) = ((target, seed), longest(k));
    let of_rows = k.min(index.facts().rows - 1);
    let known = index.calibration.as_ref();
    let is_usual = like.is_none() && apart.is_none() && strategy.finds_the_same(&WalkStrategy::default());
    let mut known = known.filter(|known| is_usual && known.walks() == WALKS && known.serves(of_rows));
    if let Some(admitted) = thinned {
        // Of rows that are left, those say what walks find that were queries and hits before the others were deleted.
        let own = || sample::drawn_entries(index.facts());
        let left = known.and_then(|known| known.of_left(k, &own(), |entry| admitted.admits(entry)));
        if let Some((left, list)) = left.and_then(|left| left.choose(k, promise).map(|list| (left, list))) {
            return Ok(wanted.of(index, &left, Some(list), None));
        }
        (known, wanted.admitted) = (None, thinned);
    }
    if let Some(known) = known {
        let list = known.choose(wanted.k, promise);
        if list.is_some() || list_to_try(index, known, wanted.k, promise, longest).is_none() {
            return Ok(wanted.of(index, known, list, None));
        }
    } else if is_usual && queries.info().rows < sample::drawn(index, like) {
        // To learn the list takes a comparison of as many rows with all pages, and more after it.
        return Ok(SearchPlan::whole(target, None));
    }
    let queries = like.map(|source| SourceQueries { source, space: index.facts().space() });
    let admitted = wanted.admitted;
    let least = learning_bytes::<T>(context, index.facts(), like, (k, longest));
    let after = running(SearchMethod::Walk(longest_walk(index.facts(), k)))
        .max(admitted.map_or(0, |_| running(SearchMethod::PageScan)));
    let context = &context.for_run(least.max(after), PURPOSE)?;
    let inserted = index.calibration.as_ref().map(Calibration::inserted).filter(|_| like.is_none()).cloned();
    let mut inserted = inserted.unwrap_or_default();
    if let Some(admitted) = admitted.filter(|admitted| admitted.is_by_deletes()) {
        inserted.entries.retain(|&entry| admitted.admits(entry));
    }
    let sample = Sample::draw((context, index), admitted, (queries, seed), &inserted.entries)?;
    if sample.len() == inserted.entries.len() {
        return Ok(SearchPlan::whole(target, None)); // no row that was drawn is left
    }
    let mut climb = ListSearch::new((context, index), (sample, admitted), strategy);
    // A file that was written with other queries says nothing about these.
    let mut calibration = match known.filter(|known| known.queries() == climb.sample.len()) {
        Some(known) => known.clone(),
        None => climb.begin::<T>(k, seed, &inserted)?,
    };
    let list = climb.until::<T>(&mut calibration, wanted.k, promise, longest)?;
    Ok(wanted.of(index, &calibration, list, Some(climb.reads)))
}

/// Pages that a query of a sample asks for until its list is long enough, about.
const LISTS_TRIED: usize = 64;

/// The longest list that makes sense for so many hits.
pub(super) fn longest(k: u64) -> usize {
    LONGEST.max(LISTS_OF_HITS.saturating_mul(k) as usize)
}

/// The longest walk for `k` hits that may be decided.
pub(super) fn longest_walk(facts: &IndexManifest, k: u64) -> WalkAim {
    let hits = k.min(facts.rows) as usize;
    WalkAim::nearest(hits, longest(k).min(facts.vertices as usize).max(hits))
}

/// Bytes with which it is learned how long a list must be, by queries like those of a source or by rows of the index.
pub(super) fn learning_bytes<T: Coordinate>(
    context: &Context,
    facts: &IndexManifest,
    like: Option<&dyn VectorSource>,
    (k, longest): (u64, usize),
) -> u64 {
    let like = like.map(|source| SourceQueries { source, space: facts.space() });
    let vectors = like.map_or(facts.vectors, SourceQueries::vectors);
    let reading = like.map_or(0, SourceQueries::reading_bytes);
    // A list of all vertices needs no trial.
    reading + least_bytes::<T>(context, facts, vectors, (k, longest.min(facts.vertices as usize)))
}

/// The list by which a calibration goes on that does not support the promise yet; none where that makes no sense.
fn list_to_try(index: &Index, calibration: &Calibration, k: u64, promise: (f64, u64), longest: usize) -> Option<usize> {
    let ladder = std::iter::successors(Some(next_list(calibration.longest())), |&list| Some(next_list(Some(list))));
    let list = ladder.into_iter().find(|&list| list as u64 >= k)?;
    // A list of all vertices finds everything, which needs no trial.
    let makes_sense = list < index.facts().vertices as usize && list <= longest;
    (makes_sense && calibration.may_support(k, promise)).then_some(list)
}

/// What a search is to reach, and for whom.
struct RecallQuestion<'a> {
    k: u64,
    admitted: Option<&'a FilteredVertices>,
    target: f64,
    seed: u64,
    like: bool,
}

impl RecallQuestion<'_> {
    /// By what was learned, where the list that supports the promise may be missing.
    fn of(
        &self,
        index: &Index,
        calibration: &Calibration,
        list: Option<usize>,
        reads: Option<ReadCounts>,
    ) -> SearchPlan {
        let vertices = index.facts().vertices as usize;
        if list.is_none() && self.admitted.is_some() {
            return SearchPlan::whole(self.target, reads);
        }
        if list.is_none() && vertices <= longest(self.k) {
            let way = SearchMethod::Walk(WalkAim::nearest(self.hits(index), vertices));
            return SearchPlan { method: way, recall: Some(RecallStatistics::proved_at_k(self.target)), reads };
        }
        let list_is_enough = list.is_some();
        let list = list.or(calibration.longest()).unwrap_or(LONGEST);
        let reached = calibration.reached(self.k, list, self.seed);
        let kept = list_is_enough && reached.at_k.low >= self.target;
        let recall = recall_of(reached, (self.target, kept), self.like);
        let hits = self.hits(index);
        let aim = aim_at(index, self.admitted, (hits, list.max(hits)));
        SearchPlan { method: SearchMethod::Walk(aim), recall: Some(recall), reads }
    }

    /// How many hits there are.
    fn hits(&self, index: &Index) -> usize {
        self.k.min(index.facts().rows) as usize
    }
}

/// What is told of a recall that was wanted, and is kept or not, where queries `like` some say what is reached.
pub(super) fn recall_of(reached: Reached, (target, kept): (f64, bool), like: bool) -> RecallStatistics {
    let Reached { at_k, p5, queries, of_inserted } = reached;
    let whose = match (like, of_inserted) {
        (true, _) => "calibrate-with",
        (false, true) => "rows that the last merge inserted",
        (false, false) => "rows of the index",
    };
    RecallStatistics {
        at_k: Some(at_k),
        p5: Some(p5),
        queries: Some(whose.to_owned()),
        sample_queries: Some(queries),
        kept,
        ..RecallStatistics::promised(target)
    }
}

/// A sample that walks with longer and longer lists.
struct ListSearch<'a> {
    context: &'a Context,
    index: &'a Index,
    sample: Sample<'a>,
    admitted: Option<&'a FilteredVertices>,
    strategy: WalkStrategy,
    /// Pages that one walk after the other needs.
    cache: Option<PageCache>,
    reads: ReadCounts,
}

impl<'a> ListSearch<'a> {
    fn new(
        (context, index): (&'a Context, &'a Index),
        (sample, admitted): (Sample<'a>, Option<&'a FilteredVertices>),
        strategy: WalkStrategy,
    ) -> Self {
        Self { context, index, sample, admitted, strategy, cache: None, reads: ReadCounts::default() }
    }

    /// Finds the true hits of all queries, the last of which are inserted rows.
    fn begin<T: Coordinate>(&mut self, k: u64, seed: u64, inserted: &Inserted) -> Result<Calibration> {
        let (hits, reads) = self.sample.true_hits::<T>(k, seed)?;
        self.reads += reads;
        Ok(Calibration::new(WALKS, self.sample.hits_of_query(k), &hits, inserted.clone()))
    }

    /// Tries longer lists until one supports the promise; none where none does that makes sense.
    fn until<T: Coordinate>(
        &mut self,
        calibration: &mut Calibration,
        k: u64,
        promise: (f64, u64),
        longest: usize,
    ) -> Result<Option<usize>> {
        loop {
            if let Some(list) = calibration.choose(k, promise) {
                return Ok(Some(list));
            }
            let Some(list) = list_to_try(self.index, calibration, k, promise, longest) else { return Ok(None) };
            self.try_list::<T>(calibration, list)?;
        }
    }

    /// Lets all queries walk with a list.
    fn try_list<T: Coordinate>(&mut self, calibration: &mut Calibration, list: usize) -> Result<()> {
        let Self { context, index, sample, admitted, strategy, cache, reads } = self;
        // One more than is noted: a row may find itself.
        let k = u64::from(calibration.hits_of_query()) + 1;
        let aim = aim_at(index, *admitted, (k as usize, list));
        let cache = match cache {
            Some(cache) => cache,
            None => {
                let of_walk = Walks::<T>::walk_bytes(index.facts(), aim, *strategy);
                let walks = (context.threads * strategy.walks) as u64 * of_walk;
                let held = PageCache::beside(context, index, 4 * (walks + sample.finding_bytes::<T>(k)))?;
                held.fill(context, index, (sample.len() * LISTS_TRIED) as u64)?;
                cache.insert(held)
            }
        };
        let with = (*strategy, &*cache);
        let found_all = sample.find_noted::<T>((aim, k), with, |query| calibration.noted(query), reads)?;
        calibration.add(list, &found_all);
        Ok(())
    }
}
