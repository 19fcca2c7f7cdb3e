//! Which members of two buckets form pairs of the result? The rule picks candidates, the kernel leaves out what is
//! surely too far, the predicate decides the rest.

use adjoin_kernels::{Kernel, Panel, TILE_ROWS, rounded_reach};

use crate::error::Result;
use crate::execute::{Ordered, Tiles, Visitor};
use crate::geometry::{Coordinate, Threshold};
use crate::join::prepared::Admission;
use crate::load::{Coding, LoadedBucket};
use crate::plan::{Combine, Gap, Measure, Place, Task, within};
use crate::predicate::Predicate;
use crate::sink::PairBatch;
use crate::source::IdKind;

/// Pairs of a batch, at most.
const BATCH_PAIRS: usize = 16 * 1024;

/// What was compared so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

/// One worker's state.
pub(in crate::join) struct Verifier<'a, T: Coordinate> {
    kernel: Kernel,
    centers: &'a Panel<T>,
    threshold: &'a Threshold,
    admission: Admission,
    tiles: Tiles<'a, T>,
    rows: Side<T>,
    others: Side<T>,
    reach: Vec<u32>,
    batch: Batch,
    counts: Counts,
}

/// The pairs that go to the sink next.
struct Batch {
    pairs: PairBatch,
    /// Bytes from which on it is handed over.
    bytes: u64,
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
    /// Batches have ids of a kind, and are handed over once they have so many bytes.
    pub(super) fn new(
        kernel: Kernel,
        centers: &'a Panel<T>,
        (predicate, threshold): (Predicate, &'a Threshold),
        coding: Option<&'a Coding>,
        admission: Admission,
        (ids, bytes): (IdKind, u64),
    ) -> Self {
        let tiles = Tiles::new(kernel, predicate, threshold, coding);
        let (rows, others, reach) = (Side::default(), Side::default(), Vec::new());
        let (batch, counts) = (Batch { pairs: PairBatch::new(ids), bytes }, Counts::default());
        Self { kernel, centers, threshold, admission, tiles, rows, others, reach, batch, counts }
    }

    /// Bytes that a worker holds for buckets of at most `rows` members.
    pub(in crate::join) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let a_member = 2 * (size_of::<T::Distance>() + size_of::<Place>() + 16 + 4) + 4;
        Tiles::<T>::memory_bytes(rows, dimensions) + (rows * a_member) as u64
    }

    /// Compares a bucket with itself, or two buckets that have an edge; full batches go to `emit`.
    fn verify(
        &mut self,
        task: Task,
        (a, b): (&LoadedBucket<T>, &LoadedBucket<T>),
        emit: &mut dyn FnMut(PairBatch),
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
        let Admission { rule, t } = self.admission;
        let limit = T::margin_limit(self.threshold, gap.squared);
        match t {
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
        emit: &mut dyn FnMut(PairBatch),
    ) -> Result<()> {
        self.counts.candidate_pairs += self.reach.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        let rows = Ordered { members: &a.members, order: &self.rows.order };
        let columns = Ordered { members: &b.members, order: &self.others.order };
        let (batch, mut pairs) = (&mut self.batch, 0);
        let compared = self.tiles.compare(rows, columns, &self.reach, is_new, |x, y, value| {
            pairs += 1;
            batch.push((a, x), (b, y), value, emit);
            Ok(())
        })?;
        self.counts.pairs += pairs;
        self.counts.verified_pairs += compared.verified_pairs;
        self.counts.exact_checks += if T::is_float() { compared.decided_pairs } else { 0 };
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
}

impl<T: Coordinate> Visitor<T> for Verifier<'_, T> {
    type Batch = PairBatch;
    type Report = Counts;

    fn visit(
        &mut self,
        task: Task,
        buckets: (&LoadedBucket<T>, &LoadedBucket<T>),
        emit: &mut dyn FnMut(PairBatch),
    ) -> Result<()> {
        self.verify(task, buckets, emit)
    }

    /// Hands over the last batch, which may be short.
    fn finish(self, emit: &mut dyn FnMut(PairBatch)) -> Counts {
        if !self.batch.pairs.is_empty() {
            emit(self.batch.pairs);
        }
        self.counts
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

impl Batch {
    /// Adds a pair, the earlier row on the left; a full batch goes to `emit`.
    fn push<T: Coordinate>(
        &mut self,
        (a, x): (&LoadedBucket<T>, u32),
        (b, y): (&LoadedBucket<T>, u32),
        value: f32,
        emit: &mut dyn FnMut(PairBatch),
    ) {
        let pairs = &mut self.pairs;
        let a_first = a.row(x) < b.row(y);
        let ((left, l), (right, r)) = if a_first { ((a, x), (b, y)) } else { ((b, y), (a, x)) };
        pairs.left_rows.push(left.row(l));
        pairs.right_rows.push(right.row(r));
        pairs.left_ids.push_from(left.ids(), l as usize);
        pairs.right_ids.push_from(right.ids(), r as usize);
        pairs.values.push(value);
        if pairs.len() >= BATCH_PAIRS || pairs.bytes() >= self.bytes {
            let ids = pairs.left_ids.kind();
            emit(std::mem::replace(pairs, PairBatch::new(ids)));
        }
    }
}
