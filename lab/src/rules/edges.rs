//! For each pair of buckets, the smallest threshold at which a rule compares them.

use adjoin::{
    Context, Result,
    kernels::LeastOfColumn,
    lab::{geometry::Coordinate, workers::map_items},
};

use super::Rule;
use super::rows::Rows;
use super::thresholds::{Neighborhood, bucket_thresholds};

/// Minimum number of pairs of an edge. For fewer pairs, it is not worth holding two buckets in memory.
const EDGE_PAIRS_MIN: usize = 4;
/// Ranks of the members that may decide on an edge. From this rank on, the member's pairs reach [`EDGE_PAIRS_MIN`].
const RANKS: [usize; 3] = [1, 2, 4];

/// The threshold of each pair of buckets. It is infinite if they are never compared.
pub(super) struct EdgeThresholds {
    buckets: usize,
    all: Vec<f32>,
}

impl EdgeThresholds {
    /// Computes the thresholds for a rule. If `candidates` is given, an arc rule considers this number of nearest
    /// buckets for each bucket, which counts itself.
    pub(super) fn find<T: Coordinate>(
        context: &Context,
        rows: &Rows<T>,
        rule: Rule,
        eps: f64,
        candidates: Option<usize>,
    ) -> Result<Self> {
        let buckets = rows.buckets() as usize;
        let seeker = Seeker { context, rows, rule, eps, candidates: candidates.unwrap_or(buckets) };
        let sides = map_items(
            context.threads,
            buckets,
            &context.cancel,
            || (),
            |(), bucket| Ok(if rule.takes_whole() { seeker.whole(bucket) } else { seeker.by_members(bucket) }),
        )?;
        let mut all = vec![f32::INFINITY; buckets * buckets];
        for (from, towards) in sides.iter().enumerate() {
            for (other, &t) in towards.iter().enumerate().filter(|&(other, _)| other != from) {
                // One side is enough. Thresholds are rounded up, so that a rule really admits the pairs that are
                // counted for it.
                let t = (t as f32).next_up();
                for at in [from * buckets + other, other * buckets + from] {
                    all[at] = all[at].min(t);
                }
            }
        }
        Ok(Self { buckets, all })
    }

    pub(super) fn of(&self, i: u32, j: u32) -> f64 {
        self.all[i as usize * self.buckets + j as usize].into()
    }
}

struct Seeker<'a, T: Coordinate> {
    context: &'a Context,
    rows: &'a Rows<T>,
    rule: Rule,
    eps: f64,
    candidates: usize,
}

impl<T: Coordinate> Seeker<'_, T> {
    /// Returns the squared distances of the center of a bucket to all centers.
    fn gaps(&self, bucket: usize) -> Vec<f64> {
        let centers = &self.rows.centers;
        let mut squared = vec![T::Distance::default(); centers.rows()];
        self.context.kernel.one_to_many(centers.row(bucket), centers, &mut squared);
        squared.into_iter().map(|squared| self.rows.squared(squared)).collect()
    }

    /// Returns the thresholds at which a bucket selects each other bucket, for rules that compare whole buckets.
    fn whole(&self, bucket: usize) -> Vec<f64> {
        let (gaps, radii) = (self.gaps(bucket), &self.rows.radii);
        let mut thresholds = vec![f64::INFINITY; gaps.len()];
        if self.rule == Rule::Triangle {
            let reached = |other: usize| gaps[other].sqrt() - radii[bucket] - radii[other] <= self.eps * (1.0 + 1e-9);
            (0..gaps.len()).filter(|&other| reached(other)).for_each(|other| thresholds[other] = f64::NEG_INFINITY);
            return thresholds;
        }
        let mut around: Vec<usize> = (0..gaps.len()).filter(|&other| other != bucket).collect();
        around.sort_by(|&a, &b| gaps[a].total_cmp(&gaps[b]).then(a.cmp(&b)));
        around.truncate(self.candidates.saturating_sub(1));
        let squared: Vec<f64> = around.iter().map(|&other| gaps[other]).collect();
        let dimensions = self.rows.panel.dimensions();
        let of = Neighborhood { eps: self.eps, radius: radii[bucket], dimensions };
        let found = bucket_thresholds(self.rule, of, &squared);
        around.into_iter().zip(found).for_each(|(other, t)| thresholds[other] = t);
        thresholds
    }

    /// Returns the thresholds at which enough members of a bucket are compared with all members of each other bucket.
    fn by_members(&self, bucket: usize) -> Vec<f64> {
        let Self { context, rows, rule, eps, .. } = *self;
        let (members, own) = (rows.members(bucket as u32), &rows.own[rows.range(bucket as u32)]);
        let centers: Vec<u32> = (0..rows.buckets()).collect();
        let columns = context.kernel.pack(&rows.centers, &centers);
        let mut least = vec![LeastOfColumn::<T>::NONE; centers.len()];
        context.kernel.least_of_columns(&rows.panel, &members, own, &columns, &mut least);
        let gaps = self.gaps(bucket);
        let of = |other: usize| {
            let others = rows.range(other as u32).len();
            let enough = EDGE_PAIRS_MIN.min(members.len() * others);
            let rank = RANKS.into_iter().find(|rank| rank * others >= enough).filter(|rank| *rank <= members.len());
            rank.map_or(f64::INFINITY, |rank| match rule {
                Rule::Margin => scaled(least[other].margins[rank - 1].into(), 2.0 * gaps[other].sqrt() * eps),
                _ => scaled(rows.squared(least[other].distances[rank - 1]), eps * eps),
            })
        };
        (0..centers.len()).map(of).collect()
    }
}

/// Returns a measure divided by its unit. If the unit is 0, returns an infinite value.
pub(super) fn scaled(measure: f64, unit: f64) -> f64 {
    match unit > 0.0 {
        true => measure / unit,
        false if measure <= 0.0 => f64::NEG_INFINITY,
        false => f64::INFINITY,
    }
}
