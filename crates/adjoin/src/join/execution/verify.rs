//! Finds the result pairs between the members of two buckets. The rule selects candidates. The kernel excludes most
//! pairs that are too far apart. The predicate decides the remaining pairs exactly.

use adjoin_kernels::{Kernel, Panel, TILE_ROWS, rounded_reach};
use serde::{Deserialize, Serialize};

use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::predicate::Predicate;
use crate::execute::{Loaded, Ordered, Tiles, Visitor};
use crate::join::prepared::Admission;
use crate::join::selection::{Side, most_within, select};
use crate::load::{LoadedBucket, PairFilter};
use crate::plan::{Gap, Measure, Task};
use crate::sink::PairBatch;

use super::found::{FoundPairs, Member};
use super::views::Views;

/// Counts of the work of a worker, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::join) struct Counts {
    pub(super) pairs: u64,
    pub(super) candidate_pairs: u64,
    pub(super) verified_pairs: u64,
    pub(super) exact_checks: u64,
    pub(super) center_distances: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.candidate_pairs += other.candidate_pairs;
        self.verified_pairs += other.verified_pairs;
        self.exact_checks += other.exact_checks;
        self.center_distances += other.center_distances;
    }
}

/// State of a worker.
pub(in crate::join) struct Verifier<'a, T: Coordinate> {
    kernel: Kernel,
    centers: &'a Panel<T>,
    threshold: &'a Threshold,
    admission: Admission,
    /// Filter on pairs, if any.
    pair_filter: Option<&'a PairFilter>,
    tiles: Tiles<'a, T>,
    views: Views<T>,
    rows: Side<T>,
    others: Side<T>,
    reach: Vec<u32>,
    /// Pairs whose distances were computed for the first part of the rule.
    computed: Computed,
    found: FoundPairs<'a>,
    counts: Counts,
}

/// Condition that selects the pairs of an edge: the measures of both members add up to at most `limit`.
#[derive(Debug, Clone, Copy)]
struct Selection {
    measure: Measure,
    limit: f64,
}

/// Pairs whose distances the kernel computed. For each row, these are the pairs with the columns before its reach.
#[derive(Default)]
struct Computed {
    reach: Vec<u32>,
    place: Vec<u32>,
}

impl Computed {
    /// Records the pairs that were computed for `rows` and `columns`, in these orders. `reach` is the number of
    /// selected columns of each row; whole tiles are computed, so it is rounded up. `members` are the sizes of the two
    /// buckets.
    fn note(&mut self, rows: &[u32], columns: &[u32], reach: &[u32], members: [usize; 2]) {
        self.reach.clear();
        self.reach.resize(members[0], 0);
        for (rows, reach) in rows.chunks(TILE_ROWS).zip(reach.chunks(TILE_ROWS)) {
            let rounded = rounded_reach(reach, columns.len()) as u32;
            rows.iter().for_each(|&x| self.reach[x as usize] = rounded);
        }
        self.place.clear();
        self.place.resize(members[1], u32::MAX);
        columns.iter().zip(0..).for_each(|(&y, at)| self.place[y as usize] = at);
    }

    fn holds(&self, x: u32, y: u32) -> bool {
        self.place[y as usize] < self.reach[x as usize]
    }
}

impl<'a, T: Coordinate> Verifier<'a, T> {
    /// Creates a worker that passes pairs to `found` if `predicate` and `pair_filter` accept them. `threshold` is the
    /// threshold of the predicate, for distances between coordinates.
    pub(super) fn new(
        kernel: Kernel,
        centers: &'a Panel<T>,
        predicate: Predicate,
        threshold: &'a Threshold,
        admission: Admission,
        pair_filter: Option<&'a PairFilter>,
        found: FoundPairs<'a>,
    ) -> Self {
        let tiles = Tiles::new(kernel, predicate, threshold);
        let (views, rows, others, reach) =
            (Views::new(kernel, threshold.dimensions), Side::default(), Side::default(), Vec::new());
        let (computed, counts) = (Computed::default(), Counts::default());
        Self {
            kernel,
            centers,
            threshold,
            admission,
            pair_filter,
            tiles,
            views,
            rows,
            others,
            reach,
            computed,
            found,
            counts,
        }
    }

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members.
    pub(in crate::join) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        // This counts two sides, the reach of each row, and the pairs computed for the first part of a rule.
        let a_member = 2 * (4 + 8 + 4) + 4 + 8;
        Tiles::<T>::memory_bytes(rows, dimensions)
            + Views::<T>::memory_bytes(rows, dimensions)
            + (rows * a_member) as u64
            + FoundPairs::members_bytes(rows)
    }

    /// Compares a bucket with itself, or two buckets that have an edge.
    fn verify(&mut self, visit: &Loaded<'_, T>, emit: &mut dyn FnMut(PairBatch)) -> Result<()> {
        let Loaded { task, a, b } = *visit;
        if task.0 == task.1 {
            self.select_own(a);
            return self.compare(a, b, |x, y| y < x, emit); // tiles are square and extend beyond the diagonal
        }
        let [first, second] = self.selections(task, a.members.residual_max() + b.members.residual_max());
        let Some(first) = first else { return Ok(()) };
        self.select(first, visit);
        let Some(second) = second else { return self.compare(a, b, |_, _| true, emit) };
        self.computed.note(&self.rows.order, &self.others.order, &self.reach, [a.len(), b.len()]);
        self.compare(a, b, |_, _| true, emit)?;
        self.select(second, visit);
        // A pair that both parts of the rule admit is counted as one candidate.
        self.counts.candidate_pairs -= self.admitted_by(first, visit);
        // The distances of some pairs were already computed for the first part, even of pairs that are not admitted
        // but in a computed tile. These pairs must not be reported again.
        let computed = std::mem::take(&mut self.computed);
        let compared = self.compare(a, b, |x, y| !computed.holds(x, y), emit);
        self.computed = computed;
        compared
    }

    /// Returns the conditions by which the rule selects pairs of an edge. `residuals` is the sum of the residuals of
    /// both buckets.
    fn selections(&self, edge: Task, residuals: f64) -> [Option<Selection>; 2] {
        let (i, j) = edge;
        let squared = self.kernel.distance(self.centers.row(i as usize), self.centers.row(j as usize));
        let gap = Gap { squared: T::at_most(squared, self.centers.dimensions()) };
        let Admission { rule, t } = self.admission;
        match t {
            None => {
                // Rounding moves a member by at most the residual of its bucket, so the threshold is widened by both
                // residuals.
                let limit = T::margin_limit(&self.threshold.widened(residuals), gap.squared);
                [Some(Selection { measure: Measure::Margin, limit }), None]
            }
            Some(t) => rule
                .parts(self.threshold.distance, gap)
                .map(|part| part.map(|part| Selection { measure: part.measure, limit: part.limit(t) })),
        }
    }

    /// Computes the distances of the selected pairs, and reports the result pairs for which `is_new` returns true.
    fn compare(
        &mut self,
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        is_new: impl Fn(u32, u32) -> bool,
        emit: &mut dyn FnMut(PairBatch),
    ) -> Result<()> {
        if self.reach.is_empty() {
            return Ok(());
        }
        self.counts.candidate_pairs += self.reach.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        let rows = Ordered { members: &a.members, order: &self.rows.order };
        let columns = Ordered { members: &b.members, order: &self.others.order };
        let filter = self.pair_filter;
        // The filter is evaluated only for the few pairs that the kernel does not exclude, before they are decided
        // exactly.
        let is_new = |x, y| is_new(x, y) && filter.is_none_or(|filter| a.is_accepted(x, b, y, filter));
        let compared = match &mut self.found {
            FoundPairs::Pairs(batch) => self.tiles.compare(rows, columns, &self.reach, is_new, |x, y, value| {
                self.counts.pairs += 1;
                batch.push(Member { bucket: a, number: x }, Member { bucket: b, number: y }, value, emit);
                Ok(())
            })?,
            FoundPairs::Counts(of_rows) => {
                of_rows.begin(a.len(), b.len());
                let compared = self.tiles.find(rows, columns, &self.reach, is_new, |x, y| {
                    of_rows.add(x, y);
                    Ok(())
                })?;
                self.counts.pairs += of_rows.end(a, b)?;
                compared
            }
        };
        self.counts.verified_pairs += compared.verified_pairs;
        self.counts.exact_checks += if a.members.are_exact() { 0 } else { compared.decided_pairs };
        Ok(())
    }

    /// Returns the number of selected pairs that another selection also admits.
    fn admitted_by(&mut self, other: Selection, visit: &Loaded<'_, T>) -> u64 {
        if self.reach.is_empty() {
            return 0;
        }
        self.measure(other.measure, visit);
        let columns: Vec<u32> = self.others.order.iter().map(|&y| self.others.keys[y as usize]).collect();
        let of = |(&x, &reach): (&u32, &u32)| {
            let most = T::key_up_to(most_within(other.limit, T::measure_of(self.rows.keys[x as usize])));
            self.kernel.count_at_most(&columns[..reach as usize], most)
        };
        self.rows.order.iter().zip(&self.reach).map(of).sum()
    }

    /// Selects all pairs within a bucket: each member with all members before it.
    fn select_own(&mut self, a: &LoadedBucket<T>) {
        let all = 0..a.len() as u32;
        self.reach.clear();
        self.reach.extend(all.clone());
        for side in [&mut self.rows, &mut self.others] {
            side.order.clear();
            side.order.extend(all.clone());
        }
    }

    /// Selects the pairs that `selection` admits. For each row, they are a prefix of the ordered columns.
    fn select(&mut self, selection: Selection, visit: &Loaded<'_, T>) {
        self.measure(selection.measure, visit);
        select(self.kernel, selection.limit, &mut self.rows, &mut self.others, &mut self.reach);
    }

    /// Computes the keys of a measure for all members of both buckets.
    fn measure(&mut self, measure: Measure, visit: &Loaded<'_, T>) {
        let dimensions = self.centers.dimensions();
        self.rows.measure(measure, &visit.a.own, dimensions);
        self.others.measure(measure, &visit.b.own, dimensions);
    }
}

impl<T: Coordinate> Visitor<T> for Verifier<'_, T> {
    type Batch = PairBatch;
    type Report = Counts;

    fn visit(&mut self, visits: &[Loaded<'_, T>], emit: &mut dyn FnMut(PairBatch)) -> Result<()> {
        self.counts.center_distances += self.views.look(self.centers, visits);
        visits.iter().enumerate().try_for_each(|(number, visit)| {
            let sides = [&mut self.rows.distances, &mut self.others.distances];
            // The vectors are swapped instead of copied; the next visits overwrite their contents.
            sides.into_iter().zip(self.views.of(number)).for_each(|(side, view)| std::mem::swap(side, view));
            self.verify(visit, emit)
        })
    }

    /// Emits the last batch, which may be short.
    fn finish(self, emit: &mut dyn FnMut(PairBatch)) -> Counts {
        self.found.finish(emit);
        self.counts
    }
}
