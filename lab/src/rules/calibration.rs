//! Finds the threshold of a rule that reaches a recall, by drawn rows that are compared with all others.

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::geometry::{Coordinate, Threshold};
use adjoin::random::Random;
use adjoin::truth::NeighborSample;
use adjoin::workers::map_items;

use super::Rule;
use super::edges::{EdgeThresholds, scaled};
use super::rows::Rows;

/// Rows to draw.
const DRAWN: u64 = 4_000;
/// Drawn rows that are compared with all others at once.
const TOGETHER: usize = 32;
/// Rows with which they are compared at once.
const COLUMNS: usize = 4_096;

/// Parameters of a calibration.
pub(super) struct Calibration<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) rows: &'a Rows<T>,
    pub(super) edges: &'a EdgeThresholds,
    pub(super) rule: Rule,
    pub(super) threshold: &'a Threshold,
}

impl<T: Coordinate> Calibration<'_, T> {
    /// Draws rows, and finds the least threshold at which each of their neighbors is found.
    pub(super) fn sample(&self, seed: u64) -> Result<NeighborSample> {
        let Self { context, rows, .. } = *self;
        let all = rows.numbers.len() as u64;
        let drawn = Random::new(seed, "calibration of a rule").ascending_sample(DRAWN.min(all), all);
        let drawn: Vec<u32> = drawn.into_iter().map(|row| row as u32).collect();
        let groups: Vec<&[u32]> = drawn.chunks(TOGETHER).collect();
        let found = map_items(context.threads, groups.len(), &context.cancel, Vec::new, |hits, group| {
            Ok(self.neighbors(groups[group], hits))
        })?;
        let mut sample =
            NeighborSample { vectors: drawn.len() as u64, whole: DRAWN >= all, ..NeighborSample::default() };
        for thresholds in found.into_iter().flatten().filter(|thresholds| !thresholds.is_empty()) {
            sample.pair_ts.extend(&thresholds);
            sample.neighbors.push((thresholds.len() as u64, sample.pair_ts.len() as u32));
        }
        Ok(sample)
    }

    /// Returns the thresholds of the neighbors of some rows.
    fn neighbors(&self, drawn: &[u32], hits: &mut Vec<adjoin::kernels::HitMask>) -> Vec<Vec<f32>> {
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
                found[mask.row as usize].extend(near.map(|other| self.threshold_of(row, other)));
            }
        }
        found
    }

    /// Returns the least threshold at which a pair is found.
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
