//! Finds the edges of a plan: by the requested rule, or by the cheapest rule that keeps the promised recall.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::PURPOSE;
use super::calibration::{Calibrated, Goal, calibrate, calibration_read_ahead, vectors_foreseen};
use super::division::centers_bytes;
use super::estimate::{DrawnPair, PairSample};
use super::margins::{self, Graph, MARGIN_BYTES_MIN, PassMemory, margin_edges, triangle_edges};
use super::neighbors::NeighborSearch;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coding, Coordinate, Threshold};
use crate::join::options::{JoinEffort, JoinOptions};
use crate::join::prepared::Admission;
use crate::join::watched::{Watched, of_sets};
use crate::load::{self, Buckets, read_ahead_bytes};
use crate::message::{Argument, message};
use crate::plan::{BucketGraph, Choice, Facts, Rule, RuleTarget, Weights, choose, pair_threshold};
use crate::report::{RecallStatistics, Stopwatch};

/// Most memory for margins in transit. More is unnecessary, since margins are spilled to disk in large pieces.
const MARGIN_BYTES_MAX: u64 = 32 << 20;

/// The edges of a plan, and facts about the rule that they are for.
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
    /// Memory of the centers.
    _memory: Reservation,
}

/// Chooses how to round floats to bytes, by drawn vectors. Returns `None` if rounding would blur the threshold, or for
/// the rule that relies on the radii of the store.
pub(super) fn fit_coding(context: &Context, buckets: &Buckets<'_>, options: &JoinOptions) -> Result<Option<Coding>> {
    if options.rule == Some(Rule::Triangle) {
        return Ok(None);
    }
    let eps = Threshold::new(options.predicate, buckets.space()).distance;
    let coding = load::fit_coding(context, buckets, options.seed, PURPOSE)?;
    Ok(coding.filter(|coding| coding.tells_apart(eps)))
}

impl<'a, T: Coordinate> Passes<'a, T> {
    /// Reads the centers.
    pub(super) fn new(
        context: &'a Context,
        buckets: &'a Buckets<'a>,
        (options, threshold): (&'a JoinOptions, &'a Threshold),
    ) -> Result<Self> {
        let memory = context.reserve(centers_bytes::<T>(buckets), PURPOSE)?;
        let centers = buckets.centers()?;
        Ok(Self { context, buckets, options, threshold, centers, _memory: memory })
    }

    /// Returns the edges by the requested rule, or by the cheapest rule that keeps the promised recall.
    pub(super) fn edges(&self) -> Result<Edges> {
        let Self { options, .. } = *self;
        let target = options.aim.target();
        let pointless = target >= 1.0 || self.threshold.distance == 0.0;
        let is_empty = self.buckets.parts().into_iter().any(|set| self.buckets.rows_of(set) == 0);
        match options.rule {
            rule if options.t.is_some() && rule.is_none_or(Rule::is_exact) => Err(Error::option(
                "a threshold is for a rule that needs one; name the rule, or leave the threshold out",
            )),
            Some(rule) if rule.is_exact() => self.exact(rule),
            _ if is_empty => self.exact(Rule::MarginSum), // there is nothing to sample
            Some(rule) if options.aim == JoinEffort::Every => Err(Error::option(format!(
                "the rule {} is not proved to find every pair; leave it out, or ask for a recall below 1",
                rule.name()
            ))),
            Some(rule) => self.calibrated(rule, &[target], u64::MAX)?.remove(0).ok_or_else(|| {
                let rule = rule.name();
                Error::option(message![
                    format!(
                        "the rule {rule} cannot be shown to reach a recall of {target} here; leave it out, or give "
                    ),
                    Argument::Exact
                ])
            }),
            None if pointless => self.exact(Rule::MarginSum),
            None => {
                let (recall, patience) = (target, options.aim.patience());
                let facts = self.facts(recall)?;
                let sample = vectors_foreseen(self.buckets.rows(), facts.results, recall);
                let wanted = RuleTarget { recall, patience, sample };
                let weights = Weights::of(!T::is_float(), self.centers.dimensions());
                match choose(&facts, wanted, &weights) {
                    Choice::Exact(rule) => self.exact(rule),
                    Choice::Calibrated { rule, sample_max } => {
                        match self.calibrated(rule, &[target], sample_max)?.remove(0) {
                            Some(edges) => Ok(edges),
                            None => self.exact(Rule::MarginSum),
                        }
                    }
                }
            }
        }
    }

    fn search(&self, rule: Rule) -> NeighborSearch<'_, T> {
        let Self { context, buckets, options, threshold, ref centers, .. } = *self;
        let predicate = options.predicate;
        let read_ahead = calibration_read_ahead(buckets.extents(), context.budget().free());
        NeighborSearch { context, buckets, centers, threshold, predicate, rule, read_ahead }
    }

    /// Returns the facts on which the choice of a rule depends.
    fn facts(&self, recall: f64) -> Result<Facts> {
        let search = self.search(Rule::Union);
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        Ok(pairs.facts(self.threshold, self.buckets.space().residual_seen(), recall))
    }

    /// Returns the edges of a rule with a threshold for each recall; `None` if the rule cannot be shown to reach it.
    pub(super) fn calibrated(&self, rule: Rule, recalls: &[f64], vectors_max: u64) -> Result<Vec<Option<Edges>>> {
        let watch = Stopwatch::start();
        let search = self.search(rule);
        let JoinOptions { t, seed, .. } = *self.options;
        let goals: Vec<Goal> = recalls.iter().map(|&recall| Goal { recall, t, seed }).collect();
        let found = calibrate(&search, &goals, vectors_max)?;
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, seed)?;
        let edges = |(found, &recall): (Option<Calibrated>, &f64)| {
            found.map(|found| self.edges_of(rule, recall, found, &pairs, &watch)).transpose()
        };
        found.into_iter().zip(recalls).map(edges).collect()
    }

    fn edges_of(
        &self,
        rule: Rule,
        target: f64,
        found: Calibrated,
        pairs: &PairSample<T>,
        watch: &Stopwatch,
    ) -> Result<Edges> {
        let t = found.t;
        let (edges, memory) = found.graph.edges(&self.search(rule), t)?;
        drop(found.graph);
        let graph = BucketGraph { buckets: self.centers.rows(), edges };
        let (predicted_pairs, predicted_results) = self.predict(pairs, rule, &graph, |pair| {
            pair_threshold(rule, &rule.parts(self.threshold.distance, pair.gap), pair.x, pair.y) <= t
                && graph.contains(pair.buckets.0, pair.buckets.1)
        });
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, t: Some(t) },
            recall: RecallStatistics {
                kept: found.kept,
                sample_vectors: Some(found.vectors),
                sample_vectors_with_neighbors: Some(found.vectors_with_neighbors),
                sample_pairs: Some(found.pairs),
                ..of_sets(RecallStatistics::promised(target), &found.recalls)
            },
            watched: Some(found.watched),
            center_distances: found.center_distances,
            sample_distances: found.sample_distances,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: Some(watch.seconds()),
        })
    }

    /// Returns the edges of a rule that misses no pair.
    fn exact(&self, rule: Rule) -> Result<Edges> {
        let Graph { graph, memory, center_distances } = self.exact_graph(rule)?;
        let parts = |pair: &DrawnPair| rule.parts(self.threshold.distance, pair.gap);
        let search = self.search(rule);
        let _memory = self.context.reserve(PairSample::<T>::memory_bytes(self.buckets), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        let (predicted_pairs, predicted_results) =
            self.predict(&pairs, rule, &graph, |pair| pair_threshold(rule, &parts(pair), pair.x, pair.y) <= 1.0);
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, t: None },
            recall: RecallStatistics::proved_of_pairs(self.options.aim.target()),
            watched: None,
            center_distances,
            sample_distances: 0,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: None,
        })
    }

    /// Returns the number of pairs to compare if buckets are compared whole.
    fn whole_pairs(&self, pairs: &PairSample<T>, graph: &BucketGraph) -> u64 {
        let rows = |bucket: u32| u64::from(self.buckets.members(bucket));
        pairs.own_pairs() + graph.edges.iter().map(|&(i, j)| rows(i) * rows(j)).sum::<u64>()
    }

    /// Estimates the number of pairs that a rule admits, and the number of result pairs. `admits` returns whether the
    /// rule admits a pair of different buckets.
    fn predict(
        &self,
        pairs: &PairSample<T>,
        rule: Rule,
        graph: &BucketGraph,
        admits: impl Fn(&DrawnPair) -> bool,
    ) -> (u64, u64) {
        let admitted = if rule.takes_whole() {
            self.whole_pairs(pairs, graph)
        } else {
            let [others] = pairs.expect(|pair| [admits(pair)]);
            pairs.own_pairs() + others
        };
        (admitted, pairs.expect_results(self.threshold))
    }

    fn exact_graph(&self, rule: Rule) -> Result<Graph> {
        let Self { context, buckets, threshold, ref centers, .. } = *self;
        if rule == Rule::Triangle {
            return triangle_edges(context, buckets, centers, threshold);
        }
        let pass = margins::memory_bytes::<T>(context.threads, buckets);
        let free = context.budget().free() - pass;
        let read_ahead = read_ahead_bytes(buckets.extents(), false, free - MARGIN_BYTES_MIN);
        // The rest is for the edges.
        let margins = ((free - read_ahead) / 4).clamp(MARGIN_BYTES_MIN, MARGIN_BYTES_MAX);
        let _memory = context.reserve(pass + read_ahead + margins, PURPOSE)?;
        margin_edges(context, buckets, centers, threshold, PassMemory { read_ahead, margins })
    }
}
