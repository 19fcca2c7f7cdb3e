//! What planning would decide of vectors of which no store was built yet.

use adjoin_kernels::{Kernel, Panel};

use super::calibration::vectors_foreseen;
use super::estimate::{PairSample, Placed, pairs_of};
use super::neighbours::Comparison;
use crate::geometry::{Coordinate, Space, Threshold};
use crate::join::execution::{Queue, Verifier};
use crate::join::options::Aim;
use crate::load::{Cache, Members};
use crate::options::{Metric, VectorType};
use crate::plan::{Choice, Costs, Meetings, Rule, Wanted, Weights, choose};
use crate::sink::PairWriter;
use crate::source::IdKind;

/// A sample of a set, placed in the buckets that a build would make, about.
pub(crate) struct Foresight<'a, T: Coordinate> {
    pairs: PairSample<T>,
    space: Space<'a>,
}

impl<'a, T: Coordinate> Foresight<'a, T> {
    /// Of `vectors` drawn from `rows`, each with its center and its squared distance to that, where a build would make
    /// `buckets` buckets.
    pub(crate) fn new(
        kernel: Kernel,
        space: Space<'a>,
        (vectors, placed): (Panel<T>, Vec<(u32, f64)>),
        centers: &Panel<T>,
        (rows, buckets): (u64, u64),
    ) -> Self {
        let (of_buckets, own) = placed.into_iter().unzip();
        let placed = Placed { vectors, buckets: of_buckets, own };
        let own_pairs = pairs_of(rows.div_ceil(buckets.max(1))).saturating_mul(buckets).min(pairs_of(rows));
        let pairs = PairSample::new(kernel, placed, centers, (own_pairs, Meetings::within((rows, buckets))));
        Self { pairs, space }
    }

    /// How pairs would be found within a threshold, what each way is expected to cost, and how many vectors a calibration
    /// would draw.
    pub(crate) fn choice(&self, threshold: &Threshold, aim: Aim) -> (Choice, Costs, u64) {
        let weights = Weights::of(!T::is_float(), self.space.vectors.dimensions);
        let (recall, patience) = (aim.target(), aim.patience());
        let facts = self.pairs.facts(threshold, self.space.residual_seen(), recall);
        let costs = Costs::of(&facts, &weights);
        if recall >= 1.0 || threshold.distance == 0.0 {
            return (Choice::Exact(Rule::MarginSum), costs, 0);
        }
        let sample = vectors_foreseen(facts.meets.rows, facts.results, recall);
        (choose(&facts, Wanted { recall, patience, sample }, &weights), costs, sample)
    }
}

/// The least that a join needs, where a store would have so many buckets, the largest of so many rows; about.
pub(crate) fn least_of_unbuilt<T: Coordinate>(
    vectors: VectorType,
    metric: Metric,
    (rows_max, buckets): (u64, u64),
    ids: IdKind,
) -> u64 {
    let (dimensions, rows) = (vectors.dimensions, rows_max as usize);
    let centers = Panel::<T>::bytes_for(buckets as usize, dimensions);
    let bucket = Members::<T>::memory_bytes(rows_max, Space::plain(vectors, metric)) + rows_max * BYTES_A_MEMBER;
    let stored = rows_max * vectors.bytes() as u64;
    let worker = Verifier::<T>::memory_bytes(rows, dimensions).max(Comparison::<T>::memory_bytes(rows, dimensions));
    let writer = PairWriter::memory_bytes(ids != IdKind::None);
    centers + Cache::<T>::table_bytes(buckets as usize) + writer + worker + Queue::least(true) + stored + 2 * bucket
}

/// Row number, id and distances of a loaded member, about.
const BYTES_A_MEMBER: u64 = 24;
