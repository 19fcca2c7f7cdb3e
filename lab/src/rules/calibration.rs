//! Finds the threshold of a rule that reaches a recall. It compares sampled rows with all others, and certifies
//! thresholds as the engine does for its own rule.

use adjoin::{
    Context, Random, Result,
    kernels::HitMask,
    lab::{
        Certification, PairSample, ROWS_MIN, RowSample,
        geometry::{Coordinate, Threshold},
        rows_to_draw,
        truth::NeighborSample,
        workers::map_items,
    },
};

use super::Rule;
use super::edges::{EdgeThresholds, scaled};
use super::rows::Rows;

/// Maximum number of samples that are tested, and the factor by which the second one is larger. Both are as in the
/// engine.
const TESTS: u32 = 2;
const GROWTH: (u64, u64) = (9, 4);
/// If a sample would have more than this part of all rows, all rows are sampled instead. The number is the divisor.
const PARTS_MAX: u64 = 3;
/// Number of sampled rows that are compared with others at once.
const TOGETHER: usize = 32;
/// Number of rows that they are compared with at once.
const COLUMNS: usize = 4_096;

/// Parameters of a calibration.
pub(super) struct Calibration<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) rows: &'a Rows<T>,
    pub(super) edges: &'a EdgeThresholds,
    pub(super) rule: Rule,
    pub(super) threshold: &'a Threshold,
}

/// Sampled rows. For each of their neighbors, the sample has the smallest threshold at which the rule finds the pair,
/// and `partners` has the row of the neighbor.
pub(super) struct Drawn {
    pub(super) sample: NeighborSample,
    partners: Vec<u32>,
    population: u64,
}

impl Drawn {
    /// Returns the smallest threshold that certainly reaches a recall, of pairs only or also of a vector's neighbors.
    /// Returns `None` if the rows do not support one.
    fn certified(&self, recall: f64, of_pairs_only: bool) -> Option<f64> {
        let (mut rows, mut start) = (RowSample::new(self.sample.whole), 0);
        for &(neighbors, end) in &self.sample.neighbors {
            rows.push(neighbors, self.sample.pair_ts[start..end as usize].iter().copied());
            start = end as usize;
        }
        let mut others = self.partners.clone();
        others.sort_unstable();
        others.dedup();
        let number = |row: &u32| others.binary_search(row).expect("all partners are listed") as u32;
        let pairs = PairSample {
            sample: rows.clone(),
            partners: self.partners.iter().map(number).collect(),
            partner_count: others.len(),
            population: self.population,
            drawn: self.sample.vectors,
        };
        Certification { of_pairs_only, sets: vec![rows], pairs }.least_threshold(recall, f64::INFINITY)
    }
}

impl<T: Coordinate> Calibration<'_, T> {
    /// Samples rows until they support a threshold that reaches a recall. Returns that threshold, if there is one,
    /// and the sample.
    pub(super) fn threshold(&self, recall: f64, of_pairs_only: bool, seed: u64) -> Result<(Option<f64>, Drawn)> {
        let all = self.rows.numbers.len() as u64;
        let mut drawn = self.draw(ROWS_MIN.min(all), seed)?;
        let neighbors = drawn.sample.pairs() as f64 / drawn.sample.vectors.max(1) as f64;
        let mut count = rows_to_draw(all, neighbors, recall);
        for _ in 0..TESTS {
            drawn = self.draw(if count > all / PARTS_MAX { all } else { count }, seed)?;
            let found = drawn.certified(recall, of_pairs_only);
            if found.is_some() || drawn.sample.whole {
                return Ok((found, drawn));
            }
            count = count * GROWTH.0 / GROWTH.1;
        }
        Ok((None, drawn))
    }

    /// Samples rows, and finds for each of their neighbors the smallest threshold at which the rule finds the pair.
    pub(super) fn draw(&self, count: u64, seed: u64) -> Result<Drawn> {
        let Self { context, rows, .. } = *self;
        let all = rows.numbers.len() as u64;
        let drawn = Random::new(seed, "calibration of a rule").ascending_sample(count.min(all), all);
        let drawn: Vec<u32> = drawn.into_iter().map(|row| row as u32).collect();
        let groups: Vec<&[u32]> = drawn.chunks(TOGETHER).collect();
        let found = map_items(context.threads, groups.len(), &context.cancel, Vec::new, |hits, group| {
            Ok(self.neighbors(groups[group], hits))
        })?;
        let sample = NeighborSample { vectors: drawn.len() as u64, whole: count >= all, ..NeighborSample::default() };
        let mut drawn = Drawn { sample, partners: Vec::new(), population: all };
        for neighbors in found.into_iter().flatten().filter(|neighbors| !neighbors.is_empty()) {
            drawn.sample.pair_ts.extend(neighbors.iter().map(|&(_, t)| t));
            drawn.partners.extend(neighbors.iter().map(|&(row, _)| row));
            drawn.sample.neighbors.push((neighbors.len() as u64, drawn.sample.pair_ts.len() as u32));
        }
        Ok(drawn)
    }

    /// Returns the neighbors of some rows, each with the smallest threshold at which the rule finds the pair.
    fn neighbors(&self, drawn: &[u32], hits: &mut Vec<HitMask>) -> Vec<Vec<(u32, f32)>> {
        let Self { context, rows, threshold, .. } = *self;
        let mut found = vec![Vec::new(); drawn.len()];
        let all: Vec<u32> = (0..rows.numbers.len() as u32).collect();
        for others in all.chunks(COLUMNS) {
            let columns = context.kernel.pack(&rows.panel, others);
            let reach = vec![others.len() as u32; drawn.len()];
            hits.clear();
            context.kernel.within(&rows.panel, drawn, &columns, &reach, T::tile_limit(threshold), hits);
            for mask in hits.iter() {
                let row = drawn[mask.row as usize];
                let near = mask.columns().map(|column| others[column as usize]).filter(|&other| other != row);
                found[mask.row as usize].extend(near.map(|other| (other, self.threshold_of(row, other))));
            }
        }
        found
    }

    /// Returns the smallest threshold at which the rule finds a pair.
    fn threshold_of(&self, x: u32, y: u32) -> f32 {
        let Self { context, rows, edges, rule, threshold } = *self;
        let (i, j) = (rows.bucket_of(x), rows.bucket_of(y));
        if i == j {
            return f32::NEG_INFINITY;
        }
        let of_edge = edges.of(i, j) as f32;
        if rule.takes_whole() {
            return of_edge;
        }
        let center = |bucket: u32| rows.centers.row(bucket as usize);
        let squared =
            |row: u32, bucket: u32| rows.squared(context.kernel.distance(center(bucket), rows.panel.row(row as usize)));
        let [of_x, of_y] = [(x, j), (y, i)].map(|(row, other)| match rule {
            Rule::Margin => squared(row, other) - rows.squared(rows.own[row as usize]),
            _ => squared(row, other),
        });
        let unit = match rule {
            Rule::Margin => {
                2.0 * rows.squared(context.kernel.distance(center(i), center(j))).sqrt() * threshold.distance
            }
            _ => threshold.distance.powi(2),
        };
        (scaled(of_x.min(of_y), unit) as f32).next_up().max(of_edge)
    }
}
