//! Which members of two buckets form pairs of the result? The rule picks candidates, the kernel leaves out what is
//! surely too far, the predicate decides the rest.

use adjoin_kernels::{Columns, Kernel, Panel};

use super::bucket::LoadedBucket;
use super::options::Rule;
use crate::error::Result;
use crate::geometry::{Coordinate, Threshold};
use crate::plan::within;
use crate::predicate::Predicate;
use crate::sink::PairBatch;

/// Rows that go to the kernel at once; bounds the hits that are held.
const BLOCK_ROWS: usize = 64;
/// Pairs of a batch.
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
    rule: Rule,
    /// Hits are decided in f64; integers decide in integers.
    floats: bool,
    columns: Columns<T>,
    rows: Side<T>,
    others: Side<T>,
    reach: Vec<u32>,
    hits: Vec<(u32, u32)>,
    batch: PairBatch,
    pub(super) counts: Counts,
}

/// The members of one bucket that take part, by ascending margin towards the other's center.
struct Side<T: Coordinate> {
    distances: Vec<T::Distance>,
    margins: Vec<(f64, u32)>,
    order: Vec<u32>,
}

impl<T: Coordinate> Default for Side<T> {
    fn default() -> Self {
        Self { distances: Vec::new(), margins: Vec::new(), order: Vec::new() }
    }
}

impl<'a, T: Coordinate> Verifier<'a, T> {
    pub(super) fn new(
        kernel: Kernel,
        centers: &'a Panel<T>,
        predicate: Predicate,
        threshold: &'a Threshold,
        rule: Rule,
        batch: PairBatch,
    ) -> Self {
        let columns = kernel.pack(&Panel::zeroed(0, centers.dimensions()), &[]);
        let floats = size_of::<T>() > 1;
        let (rows, others) = (Side::default(), Side::default());
        let counts = Counts::default();
        let (reach, hits) = (Vec::new(), Vec::new());
        Self { kernel, centers, predicate, threshold, rule, floats, columns, rows, others, reach, hits, batch, counts }
    }

    /// Bytes that a worker holds for buckets of at most `rows` members.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let a_member = 2 * (size_of::<T::Distance>() + 16 + 4) + 4;
        let hits = BLOCK_ROWS * rows.next_multiple_of(16) * 8;
        Columns::<T>::bytes_for(rows, dimensions) + (rows * a_member + 2 * hits) as u64
    }

    /// Compares a bucket with itself, or two buckets that have an edge; full batches go to `emit`.
    pub(super) fn verify(
        &mut self,
        task: (u32, u32),
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        emit: &mut dyn FnMut(PairBatch) -> Result<()>,
    ) -> Result<()> {
        let own = task.0 == task.1;
        match self.rule {
            _ if own => self.select_own(a),
            Rule::MarginSum => self.select_by_margins(task, a, b),
            Rule::Triangle => self.select_all(a, b),
        }
        self.counts.candidate_pairs += self.reach.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        self.kernel.pack_into(&b.panel, &self.others.order, &mut self.columns);
        let limit = T::tile_limit(self.threshold);
        for start in (0..self.reach.len()).step_by(BLOCK_ROWS) {
            let block = start..self.reach.len().min(start + BLOCK_ROWS);
            let order = &self.rows.order[block.clone()];
            self.hits.clear();
            self.counts.verified_pairs +=
                self.kernel.within(&a.panel, order, &self.columns, &self.reach[block], limit, &mut self.hits);
            self.decide(start, own, a, b, emit)?;
        }
        Ok(())
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

    /// Each member with those whose margins and its own add up to no more than the limit of the edge: with both sides
    /// sorted by margin, a prefix that gets shorter from row to row.
    fn select_by_margins(&mut self, (i, j): (u32, u32), a: &LoadedBucket<T>, b: &LoadedBucket<T>) {
        let (center_i, center_j) = (self.centers.row(i as usize), self.centers.row(j as usize));
        self.rows.sort(self.kernel, a, center_j);
        self.others.sort(self.kernel, b, center_i);
        self.counts.center_distances += (a.len() + b.len()) as u64;
        let limit = self.limit(center_i, j);
        let mut reach = self.others.margins.len();
        self.reach.clear();
        for &(margin, _) in &self.rows.margins {
            while reach > 0 && !within(margin + self.others.margins[reach - 1].0, limit) {
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

    fn limit(&self, center_i: &[T], j: u32) -> f64 {
        let squared = self.kernel.distance(center_i, self.centers.row(j as usize));
        T::margin_limit(self.threshold, T::at_most(squared, self.centers.dimensions()))
    }

    /// Decides the hits of rows from `start` on.
    fn decide(
        &mut self,
        start: usize,
        own: bool,
        a: &LoadedBucket<T>,
        b: &LoadedBucket<T>,
        emit: &mut dyn FnMut(PairBatch) -> Result<()>,
    ) -> Result<()> {
        for &(row, column) in &self.hits {
            let (x, y) = (self.rows.order[start + row as usize], self.others.order[column as usize]);
            if own && y >= x {
                continue; // computed only because tiles are square
            }
            self.counts.exact_checks += u64::from(self.floats);
            let Some(value) = a.decide(self.predicate, x, b, y) else { continue };
            self.counts.pairs += 1;
            push(&mut self.batch, (a, x), (b, y), value);
            if self.batch.len() >= BATCH_PAIRS {
                let ids = self.batch.left_ids.kind();
                emit(std::mem::replace(&mut self.batch, PairBatch::new(ids)))?;
            }
        }
        Ok(())
    }
}

impl<T: Coordinate> Side<T> {
    /// Members of a bucket by ascending margin towards another center, ties by place.
    fn sort(&mut self, kernel: Kernel, bucket: &LoadedBucket<T>, center: &[T]) {
        self.distances.clear();
        self.distances.resize(bucket.len(), T::Distance::default());
        kernel.one_to_many(center, &bucket.panel, &mut self.distances);
        let dimensions = bucket.panel.dimensions();
        let bounds = self.distances.iter().zip(&bucket.own_at_most).zip(0u32..);
        self.margins.clear();
        self.margins.extend(bounds.map(|((&squared, own), member)| (T::at_least(squared, dimensions) - own, member)));
        self.margins.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    fn keep(&mut self, count: usize) {
        self.order.clear();
        self.order.extend(self.margins[..count].iter().map(|&(_, member)| member));
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
