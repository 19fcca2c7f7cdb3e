//! Which members of two buckets form pairs of the result? The rule picks candidates, the kernel leaves out what is
//! surely too far, the predicate decides the rest.

use adjoin_kernels::{Kernel, Panel, TILE_ROWS, rounded_reach};

use super::bucket::LoadedBucket;
use super::codes::{Coding, Filter, Ordered};
use super::prepare::Admission;
use crate::error::Result;
use crate::geometry::{Coordinate, Threshold};
use crate::plan::{Combine, Gap, Measure, Place, within};
use crate::predicate::Predicate;
use crate::sink::PairBatch;

/// Rows that go to the kernel at once; bounds the hits that are held.
const BLOCK_ROWS: usize = 64;
/// Hits whose values are computed at once.
pub(super) const DECIDED_AT_ONCE: usize = 256;
/// Pairs of a batch, at most.
const BATCH_PAIRS: usize = 16 * 1024;

/// What was compared so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
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

/// One worker's state.
pub(super) struct Verifier<'a, T: Coordinate> {
    kernel: Kernel,
    centers: &'a Panel<T>,
    predicate: Predicate,
    threshold: &'a Threshold,
    admission: Admission,
    filter: Filter<'a, T>,
    rows: Side<T>,
    others: Side<T>,
    reach: Vec<u32>,
    hits: Vec<(u32, u32)>,
    /// Of the hits, the members of those that are to be decided, and what became of them.
    pairs: Vec<(u32, u32)>,
    decided: Vec<Option<f32>>,
    batch: PairBatch,
    batch_bytes: u64,
    pub(super) counts: Counts,
}

/// The members of one bucket.
struct Side<T: Coordinate> {
    distances: Vec<T::Distance>,
    /// Where each lies, seen from the other bucket.
    places: Vec<Place>,
    /// Those that take part, by ascending measure.
    measures: Vec<(f64, u32)>,
    order: Vec<u32>,
}

impl<T: Coordinate> Default for Side<T> {
    fn default() -> Self {
        Self { distances: Vec::new(), places: Vec::new(), measures: Vec::new(), order: Vec::new() }
    }
}

/// Which pairs of an edge are compared: those whose combined measure is within a limit.
#[derive(Debug, Clone, Copy)]
struct Selection {
    measure: Measure,
    combine: Combine,
    limit: f64,
}

impl Selection {
    fn admits(&self, x: Place, y: Place) -> bool {
        within(self.combine.of(self.measure.of(x), self.measure.of(y)), self.limit)
    }
}

/// Pairs that the kernel computed: of each row, those with the columns before its reach.
struct Computed {
    reach: Vec<u32>,
    place: Vec<u32>,
}

impl Computed {
    fn holds(&self, x: u32, y: u32) -> bool {
        self.place[y as usize] < self.reach[x as usize]
    }
}

impl<'a, T: Coordinate> Verifier<'a, T> {
    pub(super) fn new(
        kernel: Kernel,
        centers: &'a Panel<T>,
        predicate: Predicate,
        threshold: &'a Threshold,
        coding: Option<&'a Coding>,
        admission: Admission,
        (batch, batch_bytes): (PairBatch, u64),
    ) -> Self {
        let filter = Filter::new(kernel, threshold, coding);
        let (rows, others) = (Side::default(), Side::default());
        let counts = Counts::default();
        let (reach, hits, pairs, decided) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            kernel,
            centers,
            predicate,
            threshold,
            admission,
            filter,
            rows,
            others,
            reach,
            hits,
            pairs,
            decided,
            batch,
            batch_bytes,
            counts,
        }
    }

    /// Bytes that a worker holds for buckets of at most `rows` members.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let a_member = 2 * (size_of::<T::Distance>() + size_of::<Place>() + 16 + 4) + 4;
        let hits = BLOCK_ROWS * rows.next_multiple_of(16) * 8;
        Filter::<T>::memory_bytes(rows, dimensions) + (rows * a_member + 2 * hits) as u64
    }

    /// Compares a bucket with itself, or two buckets that have an edge; full batches go to `emit`.
    pub(super) fn verify(
        &mut self,
        task: (u32, u32),
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        emit: &mut dyn FnMut(PairBatch) -> Result<()>,
    ) -> Result<()> {
        if task.0 == task.1 {
            self.select_own(a);
            return self.compare(a, b, |x, y| y < x, emit); // tiles are square and reach beyond
        }
        if self.admission.rule.takes_whole() {
            self.select_all(a, b);
            return self.compare(a, b, |_, _| true, emit);
        }
        let (center_i, center_j) = (self.centers.row(task.0 as usize), self.centers.row(task.1 as usize));
        self.rows.look(self.kernel, a, center_j);
        self.others.look(self.kernel, b, center_i);
        self.counts.center_distances += (a.len() + b.len()) as u64;
        let [first, second] = self.selections(task);
        let Some(first) = first else { return Ok(()) };
        self.select(first);
        let Some(second) = second else { return self.compare(a, b, |_, _| true, emit) };
        let computed = self.computed();
        self.compare(a, b, |_, _| true, emit)?;
        self.select(second);
        self.counts.candidate_pairs -= self.admitted_by(first);
        // What was computed for the first, admitted or in its tiles, is reported once.
        self.compare(a, b, |x, y| !computed.holds(x, y), emit)
    }

    /// What the rule admits on an edge.
    fn selections(&self, (i, j): (u32, u32)) -> [Option<Selection>; 2] {
        let squared = self.kernel.distance(self.centers.row(i as usize), self.centers.row(j as usize));
        let gap = Gap { squared: T::at_most(squared, self.centers.dimensions()) };
        let Admission { rule, threshold } = self.admission;
        let limit = T::margin_limit(self.threshold, gap.squared);
        match threshold {
            None => [Some(Selection { measure: Measure::Margin, combine: Combine::Sum, limit }), None],
            Some(t) => rule.parts(self.threshold.distance, gap).map(|part| {
                part.map(|part| Selection { measure: part.measure, combine: part.combine, limit: part.limit(t) })
            }),
        }
    }

    /// Computes the distances of what is selected and decides the hits of which `is_new` says so.
    fn compare(
        &mut self,
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        is_new: impl Fn(u32, u32) -> bool,
        emit: &mut dyn FnMut(PairBatch) -> Result<()>,
    ) -> Result<()> {
        self.counts.candidate_pairs += self.reach.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        self.filter.pack(Ordered { members: &b.members, order: &self.others.order });
        for start in (0..self.reach.len()).step_by(BLOCK_ROWS) {
            let block = start..self.reach.len().min(start + BLOCK_ROWS);
            let columns = Ordered { members: &b.members, order: &self.others.order };
            let rows = Ordered { members: &a.members, order: &self.rows.order[block.clone()] };
            self.counts.verified_pairs += self.filter.within(rows, columns, &self.reach[block], &mut self.hits);
            self.decide(start, a, b, &is_new, emit)?;
        }
        Ok(())
    }

    /// Selected pairs that another selection admits too.
    fn admitted_by(&self, other: Selection) -> u64 {
        let place = |side: &Side<T>, member: u32| side.places[member as usize];
        let of = |(&x, &reach): (&u32, &u32)| {
            let x = place(&self.rows, x);
            let partners = self.others.order[..reach as usize].iter();
            partners.filter(|&&y| other.admits(x, place(&self.others, y))).count() as u64
        };
        self.rows.order.iter().zip(&self.reach).map(of).sum()
    }

    /// What the kernel computes of the present selection, tiles included.
    fn computed(&self) -> Computed {
        let columns = self.others.order.len();
        let rounded = |group: &[u32]| rounded_reach(group, columns) as u32;
        let reach: Vec<u32> = self.reach.chunks(TILE_ROWS).map(rounded).collect();
        let mut of_row = vec![0; self.rows.places.len()];
        self.rows.order.iter().enumerate().for_each(|(at, &x)| of_row[x as usize] = reach[at / TILE_ROWS]);
        let mut place_of = vec![u32::MAX; self.others.places.len()];
        self.others.order.iter().zip(0..).for_each(|(&y, at)| place_of[y as usize] = at);
        Computed { reach: of_row, place: place_of }
    }

    /// The last batch, which may be short.
    pub(super) fn finish(self, emit: &mut dyn FnMut(PairBatch) -> Result<()>) -> Result<Counts> {
        if !self.batch.is_empty() {
            emit(self.batch)?;
        }
        Ok(self.counts)
    }

    /// Each member with those before it.
    fn select_own(&mut self, a: &LoadedBucket<T>) {
        let all = 0..a.len() as u32;
        self.reach.clear();
        self.reach.extend(all.clone());
        for side in [&mut self.rows, &mut self.others] {
            side.order.clear();
            side.order.extend(all.clone());
        }
    }

    /// Each member with all of the other bucket.
    fn select_all(&mut self, a: &LoadedBucket<T>, b: &LoadedBucket<T>) {
        self.reach.clear();
        self.reach.resize(a.len(), b.len() as u32);
        for (side, bucket) in [(&mut self.rows, a), (&mut self.others, b)] {
            side.order.clear();
            side.order.extend(0..bucket.len() as u32);
        }
    }

    /// Each member with those that the selection admits: with both sides in ascending order, a prefix that gets shorter
    /// from row to row.
    fn select(&mut self, selection: Selection) {
        let (rows, others) = (self.rows.least(selection.measure), self.others.least(selection.measure));
        self.rows.sort(selection, others);
        self.others.sort(selection, rows);
        let mut reach = self.others.measures.len();
        self.reach.clear();
        for &(measure, _) in &self.rows.measures {
            let admits = |other: f64| within(selection.combine.of(measure, other), selection.limit);
            while reach > 0 && !admits(self.others.measures[reach - 1].0) {
                reach -= 1;
            }
            if reach == 0 {
                break;
            }
            self.reach.push(reach as u32);
        }
        let widest = self.reach.first().map_or(0, |&reach| reach as usize);
        self.rows.keep(self.reach.len());
        self.others.keep(widest);
    }

    /// Decides the hits of rows from `start` on.
    fn decide(
        &mut self,
        start: usize,
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        is_new: &impl Fn(u32, u32) -> bool,
        emit: &mut dyn FnMut(PairBatch) -> Result<()>,
    ) -> Result<()> {
        let members =
            |&(row, column): &(u32, u32)| (self.rows.order[start + row as usize], self.others.order[column as usize]);
        for hits in self.hits.chunks(DECIDED_AT_ONCE) {
            self.pairs.clear();
            self.pairs.extend(hits.iter().map(members).filter(|&(x, y)| is_new(x, y)));
            self.counts.exact_checks += if T::is_float() { self.pairs.len() as u64 } else { 0 };
            a.members.decide(self.kernel, self.predicate, &self.pairs, &b.members, &mut self.decided);
            for (&(x, y), &decided) in self.pairs.iter().zip(&self.decided) {
                let Some(value) = decided else { continue };
                self.counts.pairs += 1;
                push(&mut self.batch, (a, x), (b, y), value);
                if self.batch.len() >= BATCH_PAIRS || self.batch.bytes() >= self.batch_bytes {
                    let ids = self.batch.left_ids.kind();
                    emit(std::mem::replace(&mut self.batch, PairBatch::new(ids)))?;
                }
            }
        }
        Ok(())
    }
}

impl<T: Coordinate> Side<T> {
    /// Finds out where the members of a bucket lie, seen from another center.
    fn look(&mut self, kernel: Kernel, bucket: &LoadedBucket<T>, center: &[T]) {
        self.distances.clear();
        self.distances.resize(bucket.len(), T::Distance::default());
        kernel.one_to_many(center, &bucket.members.panel, &mut self.distances);
        let dimensions = bucket.members.panel.dimensions();
        let other = self.distances.iter().map(|&squared| T::at_least(squared, dimensions));
        self.places.clear();
        self.places.extend(other.zip(&bucket.own_at_most).map(|(other, &own)| Place { own, other }));
    }

    /// The least of a measure.
    fn least(&self, measure: Measure) -> f64 {
        self.places.iter().map(|&place| measure.of(place)).fold(f64::INFINITY, f64::min)
    }

    /// Orders by the measure, ties by place, those who can take part: mostly few, so that sorting costs little.
    /// `least_other` is the least measure of the other side.
    fn sort(&mut self, selection: Selection, least_other: f64) {
        let Selection { measure, combine, limit } = selection;
        let all = self.places.iter().map(|&place| measure.of(place)).zip(0..);
        self.measures.clear();
        self.measures.extend(all.filter(|&(measure, _)| within(combine.of(measure, least_other), limit)));
        self.measures.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    fn keep(&mut self, count: usize) {
        self.order.clear();
        self.order.extend(self.measures[..count].iter().map(|&(_, member)| member));
    }
}

/// Adds a pair, the earlier row on the left.
fn push<T: Coordinate>(
    batch: &mut PairBatch,
    (a, x): (&LoadedBucket<T>, u32),
    (b, y): (&LoadedBucket<T>, u32),
    value: f32,
) {
    let a_first = a.row(x) < b.row(y);
    let ((left, l), (right, r)) = if a_first { ((a, x), (b, y)) } else { ((b, y), (a, x)) };
    batch.left_rows.push(left.row(l));
    batch.right_rows.push(right.row(r));
    batch.left_ids.push_from(left.ids(), l as usize);
    batch.right_ids.push_from(right.ids(), r as usize);
    batch.values.push(value);
}
