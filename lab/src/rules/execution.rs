//! Compares the pairs that a rule admits.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU32, Ordering};

use adjoin::{
    Context, Result,
    kernels::{HitMask, PackedColumns},
    lab::{
        geometry::{Coordinate, Threshold},
        workers::map_items,
    },
};

use super::Rule;
use super::edges::EdgeThresholds;
use super::rows::Rows;

/// Parameters of a run.
pub(super) struct Execution<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) rows: &'a Rows<T>,
    pub(super) edges: &'a EdgeThresholds,
    pub(super) rule: Rule,
    pub(super) threshold: &'a Threshold,
    /// Threshold of the rule for this run.
    pub(super) t: f64,
}

/// Result of a run: the pairs that were found, and the work that it took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// For each row of the source, the number of its pairs.
    pub(crate) of_rows: Vec<u32>,
    pub(crate) pairs: u64,
    /// Number of pairs of buckets that were compared.
    pub(crate) edges: u64,
    /// Number of pairs that the rule admits.
    pub(crate) candidate_pairs: u64,
    /// Number of pairs that were computed. It includes the rest of each tile.
    pub(crate) verified_pairs: u64,
    pub(crate) center_distances: u64,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.edges += other.edges;
        self.candidate_pairs += other.candidate_pairs;
        self.verified_pairs += other.verified_pairs;
        self.center_distances += other.center_distances;
    }
}

impl<T: Coordinate> Execution<'_, T> {
    /// Compares each bucket with itself, and with the later buckets that it has an edge to.
    pub(super) fn run(&self) -> Result<Found> {
        let Self { context, rows, .. } = *self;
        let of_rows: Vec<AtomicU32> = (0..rows.source_rows).map(|_| AtomicU32::new(0)).collect();
        let parts = map_items(context.threads, rows.buckets() as usize, &context.cancel, Vec::new, |hits, bucket| {
            let mut worker = Worker { run: self, of_rows: &of_rows, hits, found: Found::default() };
            worker.compare_with_itself(bucket as u32);
            for other in bucket as u32 + 1..rows.buckets() {
                if self.edges.of(bucket as u32, other) <= self.t {
                    worker.compare(bucket as u32, other);
                }
            }
            Ok(worker.found)
        })?;
        let mut all = Found::default();
        parts.into_iter().for_each(|part| all += part);
        Ok(Found { of_rows: of_rows.into_iter().map(AtomicU32::into_inner).collect(), ..all })
    }
}

struct Worker<'a, T: Coordinate> {
    run: &'a Execution<'a, T>,
    of_rows: &'a [AtomicU32],
    hits: &'a mut Vec<HitMask>,
    found: Found,
}

impl<T: Coordinate> Worker<'_, T> {
    fn compare_with_itself(&mut self, bucket: u32) {
        let members = self.run.rows.members(bucket);
        let columns = self.run.context.kernel.pack(&self.run.rows.panel, &members);
        let before: Vec<u32> = (0..members.len() as u32).collect();
        self.find((&members, &before), (&members, &columns), |row, column| column < row);
    }

    fn compare(&mut self, i: u32, j: u32) {
        let Execution { context, rows, rule, .. } = *self.run;
        let (members, others) = (rows.members(i), rows.members(j));
        self.found.edges += 1;
        if rule.takes_whole() {
            let columns = context.kernel.pack(&rows.panel, &others);
            self.find((&members, &vec![others.len() as u32; members.len()]), (&others, &columns), |_, _| true);
            return;
        }
        // Members that are near the other center are compared with all others. The remaining members are compared
        // only with the near members of the other bucket.
        let (near, rest) = self.split(members, (i, j));
        let (near_others, mut all) = self.split(others, (j, i));
        let all_near = near_others.len() as u32;
        all.splice(0..0, near_others);
        let columns = context.kernel.pack(&rows.panel, &all);
        let reach = [vec![all.len() as u32; near.len()], vec![all_near; rest.len()]].concat();
        let mut order = [near, rest].concat();
        if all_near == 0 {
            order.truncate(reach.iter().filter(|&&reach| reach > 0).count());
        }
        let reach = &reach[..order.len()];
        self.find((&order, reach), (&all, &columns), |_, _| true);
    }

    /// Splits the members of a bucket into members that are near the other center, and the rest. `between` has the
    /// bucket and the other one.
    fn split(&mut self, members: Vec<u32>, between: (u32, u32)) -> (Vec<u32>, Vec<u32>) {
        let Execution { context, rows, rule, threshold, t, .. } = *self.run;
        let [center, other] = [between.0, between.1].map(|bucket| rows.centers.row(bucket as usize));
        let mut squared = vec![T::Distance::default(); members.len()];
        context.kernel.one_to_some(other, &rows.panel, &members, &mut squared);
        self.found.center_distances += members.len() as u64;
        let unit = match rule {
            Rule::Margin => 2.0 * rows.squared(context.kernel.distance(center, other)).sqrt() * threshold.distance,
            _ => threshold.distance.powi(2),
        };
        let own = |row: u32| if rule == Rule::Margin { rows.squared(rows.own[row as usize]) } else { 0.0 };
        let is_near = |row: u32, squared: T::Distance| rows.squared(squared) - own(row) <= t * unit;
        let (near, rest): (Vec<_>, Vec<_>) =
            members.into_iter().zip(squared).partition(|&(row, squared)| is_near(row, squared));
        let rows_of = |some: Vec<(u32, T::Distance)>| some.into_iter().map(|(row, _)| row).collect();
        (rows_of(near), rows_of(rest))
    }

    /// Compares each row with the columns below its reach. Pairs that tiles compute beyond the reach count too.
    fn find(
        &mut self,
        rows: (&[u32], &[u32]),
        columns: (&[u32], &PackedColumns<T>),
        is_new: impl Fn(u32, u32) -> bool,
    ) {
        let Execution { context, rows: all, threshold, .. } = *self.run;
        self.found.candidate_pairs += rows.1.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        self.hits.clear();
        let limit = T::tile_limit(threshold);
        self.found.verified_pairs += context.kernel.within(&all.panel, rows.0, columns.1, rows.1, limit, self.hits);
        let count = |row: u32| self.of_rows[all.numbers[row as usize] as usize].fetch_add(1, Ordering::Relaxed);
        for mask in self.hits.iter() {
            for column in mask.columns().filter(|&column| is_new(mask.row, column)) {
                count(rows.0[mask.row as usize]);
                count(columns.0[column as usize]);
                self.found.pairs += 1;
            }
        }
    }
}
