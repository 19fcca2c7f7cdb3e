//! What a rule is going to cost, from the pairs among some drawn vectors.

use adjoin_kernels::{HitMask, Panel};

use super::neighbours::NeighbourSearch;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::load::{Buckets, Drawn, draw_places};
use crate::plan::{Gap, Place};

/// Vectors whose pairs are looked at.
const VECTORS: u64 = 1_000;
/// Vectors that are compared with all others at once.
const BLOCK: usize = 32;

/// Drawn vectors, and the centers of their buckets in the same order.
pub(super) struct PairSample<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    drawn: Drawn<T>,
    centers: Panel<T>,
    /// Pairs within buckets, and all there are.
    own_pairs: u64,
    all_pairs: u64,
}

/// A pair of drawn vectors of different buckets.
pub(super) struct DrawnPair {
    /// Their buckets.
    pub(super) buckets: (u32, u32),
    pub(super) gap: Gap,
    pub(super) x: Place,
    pub(super) y: Place,
}

impl<'a, T: Coordinate> PairSample<'a, T> {
    pub(super) fn draw(search: &'a NeighbourSearch<'a, T>, seed: u64) -> Result<Self> {
        let buckets = search.buckets;
        let places = draw_places(buckets, VECTORS, seed, "estimate");
        let drawn = Drawn::read(search.context, buckets, search.centers, &places)?;
        let mut centers = Panel::zeroed(drawn.len(), search.centers.dimensions());
        for (k, &(bucket, _)) in drawn.places.iter().enumerate() {
            centers.row_mut(k).copy_from_slice(&search.centers.row(bucket as usize)[..search.centers.dimensions()]);
        }
        let pairs_of = |n: u64| n * n.saturating_sub(1) / 2;
        let own_pairs = buckets.extents().iter().map(|extent| pairs_of(extent.rows.into())).sum();
        Ok(Self { search, drawn, centers, own_pairs, all_pairs: pairs_of(buckets.rows()) })
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(buckets: &Buckets<'_>) -> u64 {
        let (dimensions, vectors) = (buckets.vectors().dimensions, VECTORS.min(buckets.rows()));
        Drawn::<T>::memory_bytes(buckets, vectors)
            + 2 * Panel::<T>::bytes_for(vectors as usize, dimensions)
            + 3 * (BLOCK as u64) * vectors * size_of::<T::Distance>() as u64
    }

    /// Pairs within buckets, which every rule compares.
    pub(super) fn own_pairs(&self) -> u64 {
        self.own_pairs
    }

    /// How many pairs are within the threshold: of few, no more than their order of magnitude.
    pub(super) fn expect_results(&self) -> u64 {
        let (kernel, count) = (self.search.context.kernel, self.drawn.len());
        let all: Vec<u32> = (0..count as u32).collect();
        let vectors = &self.drawn.members.panel;
        let limit = T::tile_limit(self.search.threshold);
        let mut within = 0u64;
        let (columns, mut hits) = (kernel.pack(vectors, &all), Vec::new());
        for block in all.chunks(BLOCK) {
            let reach: Vec<u32> = block.to_vec(); // each with those before it
            hits.clear();
            kernel.within(vectors, block, &columns, &reach, limit, &mut hits);
            let before = |mask: &HitMask| {
                let row = block[mask.row as usize];
                mask.columns().take_while(|&column| column < row).count() as u64
            };
            within += hits.iter().map(before).sum::<u64>();
        }
        let pairs = (count * count.saturating_sub(1) / 2).max(1) as f64;
        (within as f64 / pairs * self.all_pairs as f64) as u64
    }

    /// How many pairs of different buckets each of some conditions is expected to hold for.
    pub(super) fn expect<const N: usize>(&self, holds: impl Fn(&DrawnPair) -> [bool; N]) -> [u64; N] {
        let (kernel, count) = (self.search.context.kernel, self.drawn.len());
        let all: Vec<u32> = (0..count as u32).collect();
        let vectors = &self.drawn.members.panel;
        let (center_columns, mut held, mut seen) = (kernel.pack(&self.centers, &all), [0u64; N], 0u64);
        let [mut to_others, mut from_others, mut gaps] = [(); 3].map(|()| Vec::new());
        for block in all.chunks(BLOCK) {
            let block_centers = kernel.pack(&self.centers, block);
            for out in [&mut to_others, &mut from_others, &mut gaps] {
                out.resize(block.len() * count, T::Distance::default());
            }
            kernel.many_to_many(vectors, block, &center_columns, &mut to_others);
            kernel.many_to_many(&self.centers, block, &center_columns, &mut gaps);
            kernel.many_to_many(vectors, &all, &block_centers, &mut from_others);
            for (row, &a) in block.iter().enumerate() {
                for b in a as usize + 1..count {
                    let at = row * count + b;
                    let others = (to_others[at], from_others[b * block.len() + row], gaps[at]);
                    let Some(pair) = self.pair(a as usize, b, others) else { continue };
                    seen += 1;
                    held.iter_mut().zip(holds(&pair)).for_each(|(held, holds)| *held += u64::from(holds));
                }
            }
        }
        let cross = (self.all_pairs - self.own_pairs) as f64;
        held.map(|held| (held as f64 / seen.max(1) as f64 * cross) as u64)
    }

    fn pair(&self, a: usize, b: usize, others: (T::Distance, T::Distance, T::Distance)) -> Option<DrawnPair> {
        let dimensions = self.centers.dimensions();
        let buckets = (self.drawn.places[a].0, self.drawn.places[b].0);
        (buckets.0 != buckets.1).then(|| DrawnPair {
            buckets,
            gap: Gap { squared: T::at_most(others.2, dimensions) },
            x: Place { own: self.drawn.own[a], other: T::at_least(others.0, dimensions) },
            y: Place { own: self.drawn.own[b], other: T::at_least(others.1, dimensions) },
        })
    }
}
