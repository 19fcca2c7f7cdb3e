//! Product quantization: each chunk of a vector is encoded as the number of its nearest centroid (Jégou, Douze, Schmid,
//! "Product quantization for nearest neighbor search", TPAMI 2011). Before that, vectors are rotated to axes for which
//! all chunks have about equal variance (`rotation.rs`), if this reduces the error.

use adjoin_kernels::{Centroids, Kernel, Panel, TABLE_ENTRIES};

use super::Table;
use super::chunks::Chunks;
use super::rotation::{Axes, PRINCIPAL_DIMENSIONS_MAX, Principal};
use super::saved::{Fields, put_count, put_rows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{copy_row, move_to_means};
use crate::base::random::Random;
use crate::base::workers::map_items;

/// Number of rounds of k-means per chunk.
const ROUNDS: usize = 12;
/// Number of rounds of k-means in the trial that decides whether to rotate.
const TRIAL_ROUNDS: usize = 4;
/// Largest number of rows in this trial.
const TRIAL_ROWS: usize = 8_192;

/// Codebooks of up to 256 centroids, one per chunk.
pub(super) struct ProductQuantizer {
    chunks: Chunks,
    axes: Option<Axes>,
    codebooks: Vec<Panel<f32>>,
}

impl ProductQuantizer {
    /// Trains codebooks of `count` chunks on the rows of a sample, which must have at least one row.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub(super) fn train(context: &Context, sample: &Panel<f32>, count: usize, seed: u64) -> Result<Self> {
        let chunks = Chunks { count, dimensions: sample.dimensions() };
        let learning = Learning { context, chunks, seed };
        let balanced = match chunks.dimensions <= PRINCIPAL_DIMENSIONS_MAX {
            true => Some(Principal::of(context, sample)?.balanced(chunks)),
            false => None,
        };
        let _memory = context.reserve(training_bytes(context.threads, sample, chunks), "training codes")?;
        if let Some(axes) = balanced {
            let mut turned = Panel::zeroed(0, 0);
            axes.turn(context.kernel, sample, &mut turned);
            // Vectors are rotated only if this lowers the error on the sample. It raises the error of sets with few
            // distinct values.
            if learning.error(&turned)? < learning.error(sample)? {
                return Ok(Self { chunks, axes: Some(axes), codebooks: learning.codebooks(&turned)? });
            }
        }
        Ok(Self { chunks, axes: None, codebooks: learning.codebooks(sample)? })
    }

    /// Returns whether vectors are rotated.
    pub(super) fn is_rotated(&self) -> bool {
        self.axes.is_some()
    }

    /// Returns the bytes of the codebooks and axes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.codebooks.iter().chain(self.axes.iter().map(|axes| &axes.0)).map(Panel::bytes).sum()
    }

    /// Returns the largest number of bytes of the codebooks and axes of codes of `count` bytes, in memory.
    pub(super) fn bytes_max(dimensions: usize, count: usize) -> u64 {
        let chunks = Chunks { count, dimensions };
        let of_chunk = |chunk| Panel::<f32>::bytes_for(TABLE_ENTRIES, chunks.range(chunk).len());
        let axes =
            if dimensions <= PRINCIPAL_DIMENSIONS_MAX { Panel::<f32>::bytes_for(dimensions, dimensions) } else { 0 };
        axes + (0..count).map(of_chunk).sum::<u64>() + (count * size_of::<Panel<f32>>()) as u64
    }

    pub(super) fn dimensions(&self) -> usize {
        self.chunks.dimensions
    }

    pub(super) fn code_bytes(&self) -> usize {
        self.chunks.count
    }

    /// Returns the codebooks in the layout of the kernel.
    pub(super) fn packed(&self) -> Vec<Centroids> {
        self.codebooks.iter().map(Centroids::new).collect()
    }

    /// Encodes the vectors of a block.
    pub(super) fn encode(&self, kernel: Kernel, packed: &[Centroids], vectors: &Panel<f32>) -> Vec<u8> {
        let mut turned = Panel::zeroed(0, 0);
        let vectors = self.turned(kernel, vectors, &mut turned);
        let (rows, count) = (vectors.rows(), self.chunks.count);
        let (mut codes, mut nearest) = (vec![0; rows * count], vec![(0, 0.0); rows]);
        for (chunk, centroids) in packed.iter().enumerate() {
            kernel.nearest_centroids(vectors, self.chunks.range(chunk).start, centroids, &mut nearest);
            let codes = codes[chunk..].iter_mut().step_by(count);
            codes.zip(&nearest).for_each(|(code, &(centroid, _))| *code = centroid as u8);
        }
        codes
    }

    /// Fills a table with the squared distances of each chunk of a query to its centroids.
    pub(super) fn fill(&self, kernel: Kernel, query: &Panel<f32>, table: &mut Table) {
        let mut turned = Panel::zeroed(0, 0);
        let query = self.turned(kernel, query, &mut turned);
        let mut part = Panel::zeroed(0, 0);
        // Byte values that have no centroid get an infinite distance, so a damaged code does no harm.
        table.entries.resize(self.chunks.count, [f32::INFINITY; TABLE_ENTRIES]);
        for (chunk, (codebook, entries)) in self.codebooks.iter().zip(&mut table.entries).enumerate() {
            self.chunks.cut(chunk, query, 1, &mut part);
            kernel.one_to_many(part.row(0), codebook, &mut entries[..codebook.rows()]);
        }
    }

    fn turned<'a>(&self, kernel: Kernel, vectors: &'a Panel<f32>, turned: &'a mut Panel<f32>) -> &'a Panel<f32> {
        match &self.axes {
            None => vectors,
            Some(axes) => {
                axes.turn(kernel, vectors, turned);
                turned
            }
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        put_count(bytes, self.chunks.dimensions);
        put_count(bytes, self.chunks.count);
        put_count(bytes, self.codebooks[0].rows());
        put_count(bytes, self.axes.is_some().into());
        self.axes.iter().for_each(|axes| put_rows(bytes, &axes.0));
        self.codebooks.iter().for_each(|codebook| put_rows(bytes, codebook));
    }

    /// Reads a quantizer.
    ///
    /// # Errors
    /// If the bytes are not valid.
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let dimensions = fields.dimensions()?;
        let chunks = Chunks { count: fields.count(1..=dimensions, "chunks")?, dimensions };
        let centroids = fields.count(1..=TABLE_ENTRIES, "centroids")?;
        let axes = match fields.count(0..=1, "rotations")? {
            0 => None,
            _ => Some(Axes(fields.rows(dimensions, dimensions)?)),
        };
        let codebooks = (0..chunks.count).map(|chunk| fields.rows(centroids, chunks.range(chunk).len()));
        Ok(Self { chunks, axes, codebooks: codebooks.collect::<Result<_>>()? })
    }
}

/// Returns the bytes that training needs in addition to the sample.
fn training_bytes(threads: usize, sample: &Panel<f32>, chunks: Chunks) -> u64 {
    let (rows, widest) = (sample.rows(), chunks.dimensions.div_ceil(chunks.count));
    let codebook = Centroids::bytes_for(TABLE_ENTRIES, widest);
    let of_thread = Panel::<f32>::bytes_for(rows, widest) + 4 * codebook + 16 * rows as u64;
    let turned = Panel::<f32>::bytes_for(rows, chunks.dimensions);
    turned + threads as u64 * of_thread + chunks.count as u64 * codebook
}

/// Parameters of training.
struct Learning<'a> {
    context: &'a Context,
    chunks: Chunks,
    seed: u64,
}

impl Learning<'_> {
    /// Trains the codebook of each chunk on a sample.
    fn codebooks(&self, sample: &Panel<f32>) -> Result<Vec<Panel<f32>>> {
        self.of_chunks(sample, sample.rows(), |points, first| centroids(self.context.kernel, points, first, ROUNDS).0)
    }

    /// Estimates the sum of squared errors with trained codebooks, for some rows of a sample.
    fn error(&self, sample: &Panel<f32>) -> Result<f64> {
        let of_chunk = |points: &_, first: &_| centroids(self.context.kernel, points, first, TRIAL_ROUNDS).1;
        Ok(self.of_chunks(sample, sample.rows().min(TRIAL_ROWS), of_chunk)?.iter().sum())
    }

    /// Calls `learn` for each chunk, with the chunk of the first `rows` rows as points, and with the numbers of the
    /// points that are the initial centroids. Returns the results by chunk.
    fn of_chunks<R: Send>(
        &self,
        sample: &Panel<f32>,
        rows: usize,
        learn: impl Fn(&Panel<f32>, &[u64]) -> R + Sync,
    ) -> Result<Vec<R>> {
        let count = rows.min(TABLE_ENTRIES) as u64;
        let first = Random::new(self.seed, "first centroids").ascending_sample(count, rows as u64);
        let of_chunk = |points: &mut Panel<f32>, chunk: usize| {
            self.chunks.cut(chunk, sample, rows, points);
            Ok(learn(points, &first))
        };
        let Context { threads, cancel, .. } = self.context;
        map_items(*threads, self.chunks.count, cancel, || Panel::zeroed(0, 0), of_chunk)
    }
}

/// Runs k-means on the points of a chunk. The points `first` are the initial centroids. Returns the final centroids,
/// and the sum of squared distances to the centroids before the last round moved them.
fn centroids(kernel: Kernel, points: &Panel<f32>, first: &[u64], rounds: usize) -> (Panel<f32>, f64) {
    let mut centroids = Panel::zeroed(first.len(), points.dimensions());
    first.iter().enumerate().for_each(|(at, &row)| copy_row(points, row as usize, &mut centroids, at));
    let mut nearest = vec![(0, 0.0); points.rows()];
    for round in 1..=rounds {
        kernel.nearest_centroids(points, 0, &Centroids::new(&centroids), &mut nearest);
        let of: Vec<u32> = nearest.iter().map(|&(centroid, _)| centroid).collect();
        move_to_means(points, &of, &mut centroids);
        // Idle centroids are not moved after the last round, since they would not be improved by another round.
        if round < rounds {
            move_idle(points, &mut nearest, &mut centroids);
        }
    }
    (centroids, nearest.iter().map(|&(_, distance)| f64::from(distance)).sum())
}

/// Moves each centroid without points to another point: in the cluster with the largest error, the point that is
/// farthest from its centroid.
fn move_idle(points: &Panel<f32>, nearest: &mut [(u32, f32)], centroids: &mut Panel<f32>) {
    let mut errors = vec![0.0_f64; centroids.rows()];
    let mut idle = vec![true; centroids.rows()];
    for &(centroid, distance) in &*nearest {
        errors[centroid as usize] += f64::from(distance);
        idle[centroid as usize] = false;
    }
    for (centroid, _) in idle.iter().enumerate().filter(|(_, idle)| **idle) {
        let largest = last_largest(errors.iter().copied());
        let of_largest = |&(own, distance): &(u32, f32)| if own as usize == largest { distance.into() } else { -1.0 };
        let farthest = last_largest(nearest.iter().map(of_largest));
        copy_row(points, farthest, centroids, centroid);
        // The point is a centroid now, so the next idle centroid is moved to another point.
        nearest[farthest].1 = 0.0;
        errors[largest] /= 2.0; // about the error that a second centroid leaves
    }
}

/// Returns the position of the largest value. If several are equal, returns the last position.
fn last_largest(values: impl Iterator<Item = f64>) -> usize {
    values.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
}
