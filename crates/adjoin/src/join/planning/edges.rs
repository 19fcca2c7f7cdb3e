//! Finds the edges of a plan. Uses the requested rule, or the cheapest rule that reaches the promised recall.

use std::sync::Arc;

use adjoin_device::{Reclaimable, Reservation};
use adjoin_kernels::Panel;

use super::PURPOSE;
use super::calibration::{Calibrated, Goal, calibrate, calibration_read_ahead, vectors_foreseen};
use super::division::centers_bytes;
use super::estimate::{DrawnPair, PairSample};
use super::margins::{self, Graph, MARGIN_BYTES_MIN, PassMemory, margin_edges};
use super::neighbors::NeighborSearch;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coding, Coordinate, Threshold};
use crate::base::message::{Argument, message};
use crate::base::report::{RecallStatistics, Stopwatch};
use crate::join::options::{JoinEffort, JoinOptions};
use crate::join::prepared::Admission;
use crate::join::watched::{Watched, of_sets};
use crate::load::{self, Buckets, KeptBuckets, read_ahead_bytes};
use crate::plan::{BucketGraph, Choice, Facts, Rule, RuleTarget, Weights, choose, pair_threshold};

/// Maximum memory for margins that are being collected. More is useless, since margins are spilled to disk in large
/// pieces.
const MARGIN_BYTES_MAX: u64 = 32 << 20;

/// The edges of a plan, and facts about the rule by which they were found.
pub(super) struct Edges {
    pub(super) graph: BucketGraph,
    /// Memory of the graph.
    pub(super) memory: Reservation,
    pub(super) admission: Admission,
    pub(super) recall: RecallStatistics,
    pub(super) watched: Option<Watched>,
    pub(super) center_distances: u64,
    pub(super) sample_distances: u64,
    pub(super) predicted_pairs: u64,
    pub(super) predicted_results: u64,
    pub(super) calibrate_seconds: Option<f64>,
}

/// The passes over the buckets that find edges.
pub(super) struct Passes<'a, T: Coordinate> {
    context: &'a Context,
    buckets: &'a Buckets<'a>,
    options: &'a JoinOptions,
    threshold: &'a Threshold,
    centers: Panel<T>,
    /// Buckets that stay in memory between the passes of a calibration.
    kept: Arc<KeptBuckets<T>>,
    /// Memory of the centers.
    _memory: Reservation,
}

/// Chooses a rounding of floats to bytes with the help of sampled vectors. Returns `None` if the rounding errors would
/// be too large compared with the threshold.
pub(super) fn fit_coding(context: &Context, buckets: &Buckets<'_>, options: &JoinOptions) -> Result<Option<Coding>> {
    let eps = Threshold::new(options.predicate, buckets.space()).distance;
    let coding = load::fit_coding(context, buckets, options.seed, PURPOSE)?;
    Ok(coding.filter(|coding| coding.tells_apart(eps)))
}

impl<'a, T: Coordinate> Passes<'a, T> {
    /// Reads the centers, and creates the passes.
    pub(super) fn new(
        context: &'a Context,
        buckets: &'a Buckets<'a>,
        options: &'a JoinOptions,
        threshold: &'a Threshold,
    ) -> Result<Self> {
        let memory = context.reserve(centers_bytes::<T>(buckets), PURPOSE)?;
        let centers = buckets.centers()?;
        let kept = KeptBuckets::none();
        Ok(Self { context, buckets, options, threshold, centers, kept, _memory: memory })
    }

    /// Returns the edges of the requested rule, or of the cheapest rule that reaches the promised recall.
    pub(super) fn edges(&self) -> Result<Edges> {
        let Self { options, .. } = *self;
        let target = options.aim.target();
        let pointless = target >= 1.0 || self.threshold.distance == 0.0;
        let is_empty = self.buckets.parts().into_iter().any(|set| self.buckets.rows_of(set) == 0);
        match options.rule {
            Some(Rule::MarginSum) => self.exact(),
            _ if is_empty => self.exact(), // there is nothing to sample
            Some(rule) if options.aim == JoinEffort::Every => Err(Error::option(format!(
                "the rule {} is not proven to find every pair; leave it out, or ask for a recall below 1",
                rule.name()
            ))),
            Some(rule) => self.calibrated(target, u64::MAX)?.ok_or_else(|| {
                let rule = rule.name();
                Error::option(message![
                    format!(
                        "the rule {rule} cannot be shown to reach a recall of {target} here; leave it out, or give "
                    ),
                    Argument::Exact
                ])
            }),
            None if pointless => self.exact(),
            None => {
                let (recall, patience) = (target, options.aim.patience());
                let facts = self.facts(recall)?;
                let sample = vectors_foreseen(self.buckets.rows(), facts.results, recall);
                let wanted = RuleTarget { recall, patience, sample };
                let weights = Weights::of(!T::is_float(), self.centers.dimensions());
                match choose(&facts, wanted, &weights) {
                    Choice::Exact => self.exact(),
                    Choice::Calibrated { sample_max } => match self.calibrated(target, sample_max)? {
                        Some(edges) => Ok(edges),
                        // No sample suffices to certify the recall, so every pair is found instead.
                        None => self.exact(),
                    },
                }
            }
        }
    }

    fn of_pairs_only(&self) -> bool {
        matches!(self.options.aim, JoinEffort::RecallOfPairs(_))
    }

    fn search(&self) -> NeighborSearch<'_, T> {
        let Self { context, buckets, options, threshold, ref centers, ref kept, .. } = *self;
        let predicate = options.predicate;
        let read_ahead = calibration_read_ahead(buckets.extents(), context.budget().free());
        NeighborSearch { context, buckets, centers, threshold, predicate, kept, read_ahead }
    }

    /// Returns the facts on which the choice of a rule depends.
    fn facts(&self, recall: f64) -> Result<Facts> {
        let search = self.search();
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        Ok(pairs.facts(self.threshold, self.buckets.space().residual_seen(), recall))
    }

    /// Returns the edges of the union rule, with a threshold that reaches a recall. Returns `None` if no sample of at
    /// most `vectors_max` vectors suffices to certify the recall.
    fn calibrated(&self, recall: f64, vectors_max: u64) -> Result<Option<Edges>> {
        let watch = Stopwatch::start();
        let search = self.search();
        let seed = self.options.seed;
        let goal = Goal { recall, of_pairs_only: self.of_pairs_only(), seed };
        self.kept.make_room(self.context, self.buckets);
        let found = calibrate(&search, goal, vectors_max);
        self.kept.release();
        let Some(found) = found? else { return Ok(None) };
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, seed)?;
        self.edges_of(recall, found, &pairs, &watch).map(Some)
    }

    fn edges_of(&self, target: f64, found: Calibrated, pairs: &PairSample<T>, watch: &Stopwatch) -> Result<Edges> {
        let (rule, t) = (Rule::Union, found.t);
        let promised = RecallStatistics { of_pairs_only: self.of_pairs_only(), ..RecallStatistics::promised(target) };
        let (edges, memory) = found.graph.edges(&self.search(), t)?;
        // The thresholds of single edges are not needed from here on.
        drop(found.graph);
        let graph = BucketGraph { buckets: self.centers.rows(), edges };
        let (predicted_pairs, predicted_results) = self.predict(pairs, |pair| {
            pair_threshold(&rule.parts(self.threshold.distance, pair.gap), pair.x, pair.y) <= t
                && graph.contains(pair.buckets.0, pair.buckets.1)
        });
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, t: Some(t) },
            recall: RecallStatistics {
                sample_vectors: Some(found.vectors),
                sample_vectors_with_neighbors: Some(found.vectors_with_neighbors),
                sample_pairs: Some(found.pairs),
                ..of_sets(promised, &found.recalls)
            },
            watched: Some(found.watched),
            center_distances: found.center_distances,
            sample_distances: found.sample_distances,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: Some(watch.seconds()),
        })
    }

    /// Returns the edges of the exact rule, which misses no pair.
    fn exact(&self) -> Result<Edges> {
        let (rule, proved) = (Rule::MarginSum, RecallStatistics::proved_of_pairs(self.options.aim.target()));
        let Graph { graph, memory, center_distances } = self.exact_graph()?;
        let parts = |pair: &DrawnPair| rule.parts(self.threshold.distance, pair.gap);
        let search = self.search();
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        let (predicted_pairs, predicted_results) =
            self.predict(&pairs, |pair| pair_threshold(&parts(pair), pair.x, pair.y) <= 1.0);
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, t: None },
            recall: RecallStatistics { of_pairs_only: self.of_pairs_only(), ..proved },
            watched: None,
            center_distances,
            sample_distances: 0,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: None,
        })
    }

    /// Estimates the number of pairs that a rule admits, and the number of result pairs. `admits` returns whether the
    /// rule admits a pair of vectors of different buckets.
    fn predict(&self, pairs: &PairSample<T>, admits: impl Fn(&DrawnPair) -> bool) -> (u64, u64) {
        let [others] = pairs.expect(|pair| [admits(pair)]);
        (pairs.own_pairs() + others, pairs.expect_results(self.threshold))
    }

    fn exact_graph(&self) -> Result<Graph> {
        let Self { context, buckets, threshold, ref centers, .. } = *self;
        let pass = margins::memory_bytes::<T>(context.threads, buckets);
        let free = context.budget().free() - pass;
        let read_ahead = read_ahead_bytes(buckets.extents(), false, free - MARGIN_BYTES_MIN);
        // Only a quarter of the remaining memory is for margins; the edges get the rest.
        let margins = ((free - read_ahead) / 4).clamp(MARGIN_BYTES_MIN, MARGIN_BYTES_MAX);
        let _memory = context.reserve(pass + read_ahead + margins, PURPOSE)?;
        margin_edges(context, buckets, centers, threshold, PassMemory { read_ahead, margins })
    }
}
