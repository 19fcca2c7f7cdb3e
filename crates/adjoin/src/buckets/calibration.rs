//! Calibrates the probe rule of a search: how many buckets must queries probe to reach a recall?
//!
//! Samples calibration queries from the store or from a source of queries, and finds the true hits of each. A
//! bootstrap then chooses the rule threshold at which enough of these hits are in probed buckets.

use adjoin_device::Reservation;

use super::probe_sample::{NotedHit, ProbeSample, SampledQuery};
use super::queries::QuerySet;
use super::searcher::{Queries, Searcher};
use crate::base::error::{ErrorKind, Result};
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::base::report::Interval;
use crate::load::{Buckets, DrawnVectors, draw_places, read_vectors};
use crate::plan::{ProbeRule, Probes};
use crate::query::QueryTarget;
use crate::truth::{NeighborSample, setting_half};

/// Number of vectors in the first sample. One half sets the threshold, the other half measures the recall that it
/// reaches.
pub(crate) const VECTORS: u64 = 2_000;
/// Factor by which the second sample is larger, if the first one is too small to support the promise.
const MORE: u64 = 3;
/// Largest fraction of all vectors that is worth sampling. Comparing the queries with every vector costs little more
/// than a larger sample.
const SHARE_MAX: f64 = 1.0 / 3.0;
/// Number of hits to record per sampled vector. If there are more, a random sample of them is recorded. A service
/// calibrates for at most this K, and answers queries for a larger K exactly.
pub(crate) const NOTED: u64 = 50;
/// Weights of the margin, relative to the logarithm of the rank ([`ProbeSample::per_margin`]), among which the
/// calibration chooses.
const WEIGHTS: [f64; 5] = [0.0, 0.5, 1.0, 2.0, 4.0];
/// Number of sampled vectors on which the cost of each weight is measured.
const COST_VECTORS: u64 = 500;
/// Name of the random stream for the sample.
const PLACES: &str = "search";
/// Purpose of the memory in error messages.
const PURPOSE: &str = "calibrating this search";

/// A calibrated rule and the recall that it reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calibrated {
    pub(super) rule: ProbeRule,
    /// Mean recall of a query.
    pub(super) at_k: Interval,
    /// Recall that at least 95 % of the queries reach.
    pub(super) p5: f64,
    /// Number of sampled vectors from which these figures were computed.
    pub(super) vectors: u64,
}

/// Samples with the [`NOTED`] nearest hits of each vector, which a service keeps. A sample is taken when it is first
/// needed. The rules for all smaller K and all recalls are computed from it.
#[derive(Default)]
pub(crate) struct CalibrationSamples(Vec<CalibrationSample>);

struct CalibrationSample {
    /// Number of vectors requested for the sample.
    count: u64,
    sampled: ProbeSample,
    _memory: Reservation,
}

/// Request for a sample of calibration queries.
#[derive(Clone, Copy)]
pub(super) struct CalibrationDraw<'a> {
    /// Set from which the queries are sampled.
    pub(super) queries: QuerySet<'a>,
    /// Maximum number of queries.
    pub(super) count: u64,
    /// Seed of the sample, and of the bootstrap over the sampled queries.
    pub(super) seed: u64,
}

/// Returns whether a sample of `vectors` vectors is small enough to be worthwhile in a search of `rows` rows.
pub(super) fn is_worth_it(rows: u64, vectors: u64) -> bool {
    vectors as f64 <= SHARE_MAX * rows as f64
}

/// Finds a rule that reaches `recall` for queries with the distribution of the sampled ones. If the sample is too
/// small to support the promise, tries a larger one. Returns `None` if no sample supports it.
///
/// # Errors
/// If the store or the calibration queries cannot be read, or if the sample does not fit into memory.
pub(super) fn calibrate<T: Coordinate>(
    searcher: &Searcher<'_, T>,
    draw: CalibrationDraw<'_>,
    target: QueryTarget,
    recall: f64,
    mut samples: Option<&mut CalibrationSamples>,
) -> Result<Option<Calibrated>> {
    for count in [draw.count, MORE * draw.count] {
        if !is_worth_it(searcher.buckets.rows(), count) {
            break;
        }
        let draw = CalibrationDraw { count, ..draw };
        let _memory = searcher.context.reserve(bytes_of(count, target), PURPOSE)?;
        let known = match (&mut samples, target) {
            (Some(samples), QueryTarget::Nearest(k)) if k <= NOTED => samples.nearest(searcher, draw, k)?,
            _ => None,
        };
        let sampled = known.map_or_else(|| sample(searcher, draw, target), Ok)?;
        if let Some(calibrated) = calibrate_with(searcher, draw, &sampled, recall)? {
            return Ok(Some(calibrated));
        }
    }
    Ok(None)
}

impl CalibrationSamples {
    /// Returns the sample for the `k` nearest hits, where `k` is at most [`NOTED`]. It is identical to the one that
    /// [`sample`] would take. Returns `None` if memory is too small for the sample with [`NOTED`] hits.
    fn nearest<T: Coordinate>(
        &mut self,
        searcher: &Searcher<'_, T>,
        draw: CalibrationDraw<'_>,
        k: u64,
    ) -> Result<Option<ProbeSample>> {
        if let Some(known) = self.0.iter().find(|known| known.count == draw.count) {
            return Ok(Some(known.sampled.nearest(k)));
        }
        let all = QueryTarget::Nearest(NOTED);
        let Ok(_drawing) = searcher.context.reserve(bytes_of(draw.count, all), PURPOSE) else { return Ok(None) };
        let Ok(memory) = searcher.context.reserve(ProbeSample::memory_bytes(draw.count, NOTED), PURPOSE) else {
            return Ok(None);
        };
        let sampled = match sample(searcher, draw, all) {
            // This is not an error yet: a sample with fewer hits may still fit.
            Err(error) if error.kind() == ErrorKind::Budget => return Ok(None),
            sampled => sampled?,
        };
        let nearest = sampled.nearest(k);
        self.0.push(CalibrationSample { count: draw.count, sampled, _memory: memory });
        Ok(Some(nearest))
    }
}

/// Finds the cheapest rule that reaches `recall` for vectors with the distribution of the sampled ones.
fn calibrate_with<T: Coordinate>(
    searcher: &Searcher<'_, T>,
    draw: CalibrationDraw<'_>,
    sampled: &ProbeSample,
    recall: f64,
) -> Result<Option<Calibrated>> {
    let seed = draw.seed;
    let sets = setting_half(sampled.queries(), seed);
    let rules = WEIGHTS.into_iter().filter_map(|weight| {
        let per_margin = sampled.per_margin(weight);
        let t = sampled.of_rule(per_margin, |k| sets[k]).calibrate(recall, seed)?;
        Some(ProbeRule { per_margin, t })
    });
    let rules: Vec<ProbeRule> = rules.collect();
    let costs = costs(searcher, draw, &rules)?;
    let Some((_, &rule)) = costs.iter().zip(&rules).min_by_key(|(cost, _)| **cost) else { return Ok(None) };
    let aside = sampled.of_rule(rule.per_margin, |k| !sets[k]);
    let confirmed = confirmed(&aside, rule.t, recall, seed);
    Ok(confirmed.map(|(t, at_k)| {
        let rule = ProbeRule { t, ..rule };
        Calibrated { rule, at_k, p5: aside.fifth_percentile(t), vectors: sampled.queries() as u64 }
    }))
}

/// Returns the smallest threshold, at least `least`, for which the lower bound of the recall reaches `recall`. Also
/// returns the recall for this threshold. The recall is measured on `aside`, the half of the sample that did not
/// choose the rule. Returns `None` if no threshold reaches it.
///
/// A larger threshold never finds less. So thresholds are tried in ascending order, and the first one that passes is
/// no more likely to be too small than a single tried threshold would be.
fn confirmed(aside: &NeighborSample, least: f64, recall: f64, seed: u64) -> Option<(f64, Interval)> {
    let reached = |t: f64| aside.recalls(t, seed).per_vector;
    let mut larger: Vec<f64> = aside.pair_ts.iter().map(|&t| f64::from(t)).filter(|&t| t > least).collect();
    larger.sort_unstable_by(f64::total_cmp);
    larger.dedup();
    larger.insert(0, least);
    let first = larger.partition_point(|&t| reached(t).low < recall);
    larger.get(first).filter(|t| t.is_finite()).map(|&t| (t, reached(t)))
}

/// Returns the memory in bytes of `vectors` sampled vectors and their recorded hits.
fn bytes_of(vectors: u64, target: QueryTarget) -> u64 {
    let noted = match target {
        QueryTarget::Nearest(k) => k.min(NOTED),
        QueryTarget::Within(_) => NOTED,
    };
    // This counts recorded hits while they are found and afterwards, and the thresholds of one half of the sample.
    vectors * (noted * (3 * size_of::<NotedHit>() + size_of::<f32>()) as u64 + 128)
}

/// Returns the least memory in bytes for a calibration, in addition to the memory of the search.
pub(crate) fn least_bytes<T: Coordinate>(buckets: &Buckets<'_>, target: QueryTarget) -> u64 {
    sample_bytes_max(target) + DrawnVectors::<T>::memory_bytes(buckets, 2 * COST_VECTORS)
}

/// Returns the memory in bytes of the largest sample and its recorded hits.
pub(super) fn sample_bytes_max(target: QueryTarget) -> u64 {
    bytes_of(MORE * VECTORS, target)
}

/// Samples calibration queries, and passes them to `take`, at most `at_once` at a time.
fn each_drawn<T: Coordinate>(
    searcher: &Searcher<'_, T>,
    CalibrationDraw { queries: set, count, seed }: CalibrationDraw<'_>,
    at_once: usize,
    take: &mut dyn FnMut(Queries<T>) -> Result<()>,
) -> Result<()> {
    let Searcher { context, buckets, subset, .. } = searcher;
    let QuerySet::Source(source) = set else {
        let places = match (set, subset) {
            (QuerySet::Rows, Some(subset)) => subset.draw(count, seed, PLACES),
            _ => draw_places(buckets, count, seed, PLACES),
        };
        return places.chunks(at_once).try_for_each(|some| {
            let stored = read_vectors(context, buckets, some)?;
            take(Queries::new(searcher, buckets.vectors(), &stored, Some(some.to_vec())))
        });
    };
    let rows = source.info().rows;
    let drawn = Random::new(seed, PLACES).ascending_sample(count.min(rows), rows);
    set.each(searcher, at_once, &mut |mut batch| {
        batch.retain(|row| drawn.binary_search(&row).is_ok());
        if batch.rows.is_empty() {
            return Ok(());
        }
        take(Queries::new(searcher, batch.vectors, &batch.stored, None))
    })
}

/// Samples calibration queries, and records the buckets of their hits.
fn sample<T: Coordinate>(
    searcher: &Searcher<'_, T>,
    draw: CalibrationDraw<'_>,
    target: QueryTarget,
) -> Result<ProbeSample> {
    let Searcher { context, buckets, loaded, .. } = searcher;
    let mut found: Vec<SampledQuery> = Vec::with_capacity(draw.count as usize);
    let of = Searcher::<T>::bytes_of_query(buckets, draw.queries.vectors(buckets.space()), target);
    each_drawn(searcher, draw, searcher.queries_at_once(of) as usize, &mut |queries| {
        searcher.search(&queries, target, Probes::Bound, |range, hits| {
            let (first, start) = (found.len() as u64, range.start);
            let more = loaded.prober.map(context, &queries.members.panel, range, |query, measured| {
                let hits = &hits[(query - start) as usize];
                // Each query has its own random stream, so that its sample of hits does not depend on the number of
                // queries searched at once.
                let lot = &mut Random::new(draw.seed ^ (first + u64::from(query - start)), "noted");
                let chosen = lot.ascending_sample(NOTED.min(hits.len() as u64), hits.len() as u64);
                let places = chosen.iter().map(|&hit| hits[hit as usize].place.0);
                SampledQuery::new::<T>(measured, hits.len() as u64, places)
            })?;
            found.extend(more);
            Ok(())
        })
    })?;
    Ok(ProbeSample::of(found))
}

/// Returns for each rule the number of rows with which a few sampled vectors are compared.
fn costs<T: Coordinate>(
    searcher: &Searcher<'_, T>,
    draw: CalibrationDraw<'_>,
    rules: &[ProbeRule],
) -> Result<Vec<u64>> {
    let Searcher { context, buckets, loaded, .. } = searcher;
    let _memory = context.reserve(DrawnVectors::<T>::memory_bytes(buckets, COST_VECTORS), PURPOSE)?;
    let rows = |bucket| u64::from(buckets.extent(bucket).rows);
    let mut costs = vec![0; rules.len()];
    let few = CalibrationDraw { count: COST_VECTORS, ..draw };
    each_drawn(searcher, few, COST_VECTORS as usize, &mut |queries| {
        let panel = &queries.members.panel;
        let of = loaded.prober.map(context, panel, 0..panel.rows() as u32, |_, measured| {
            rules.iter().map(|&rule| measured.rows_of::<T>(rule, rows)).collect::<Vec<u64>>()
        })?;
        of.iter().for_each(|of| costs.iter_mut().zip(of).for_each(|(cost, rows)| *cost += rows));
        Ok(())
    })?;
    Ok(costs)
}
