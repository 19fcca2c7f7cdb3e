//! Bounds the memory that building an index of a source needs, before the source is read.
//!
//! The memory depends on clusters, which are unknown before the build. Therefore this is an upper bound that uses only
//! a few facts about the source.

use adjoin_kernels::Panel;

use crate::base::context::Context;
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::index::{IndexOptions, IndexParameters};
use crate::source::{IdKind, VectorSource};
use crate::store::{BuildInput, BuildMemory, BuildOptions, columns_bytes, default_buckets};

/// Bytes for each of the first rows, up to [`FEW_ROWS_BYTES_MAX`] in total.
const FEW_ROWS_BYTES: u64 = 2 << 10;
const FEW_ROWS_BYTES_MAX: u64 = 4 << 20;
/// Bytes for each row, in addition.
const ROW_BYTES: u64 = 32;
/// Number of rows whose lists of neighbors are laid out together.
const WINDOW_ROWS: u64 = 1 << 16;
/// Bytes of a neighbor in such a list.
const NEIGHBOR_BYTES: u64 = 6;
/// Largest number of rows in the training sample of codes.
const CODE_SAMPLE: u64 = 16 << 10;
/// Number of rows that a thread encodes at once.
const ENCODED_ROWS: u64 = 1 << 10;
/// Number of extents in memory at once while the index is built.
const EXTENTS: u64 = 6;
/// Number of extents in memory at once while the store is built.
const STORE_EXTENTS: u64 = 3;
/// Bound on the bytes of ids in an extent, as a multiple of the ids of a mean bucket.
const IDS_TIMES_MEAN: u64 = 16;
/// Least value of this bound. It covers the ids of skewed buckets in small stores.
const EXTENT_IDS_MIN: u64 = 256 << 10;
/// Bytes that a build holds in addition, independent of its rows.
const FIXED_BYTES: u64 = 15 << 20;
/// Least value of the bound.
const LEAST_BYTES: u64 = 17_300_000;

impl IndexOptions {
    /// Returns an upper bound on the bytes for building a store of a source, and for building an index of this store.
    pub fn building_bytes(&self, context: &Context, source: &dyn VectorSource, of_store: &BuildOptions) -> u64 {
        let parameters = self.parameters(source.info().vectors);
        building_bytes_of(context, BuildInput::of(context, source, of_store), &parameters, 0)
    }
}

/// Returns an upper bound on the bytes for building a store of `input`, and for building an index of this store.
/// `reading` is a bound on the bytes for reading the columns of such an index, or 0 if none is known.
pub(crate) fn building_bytes_of(
    context: &Context,
    input: BuildInput<'_>,
    options: &IndexParameters,
    reading: u64,
) -> u64 {
    let space = Space::plain(input.source.info().vectors, input.options.metric);
    with_coordinates!(space, T => bytes_of::<T>(context, input, options, reading, space.dimensions()))
}

/// Returns an upper bound on the bytes of text ids in the largest extent. It may be too small if one bucket has most of
/// the rows.
fn extent_ids(source: &dyn VectorSource, of_store: &BuildOptions) -> u64 {
    let rows = source.info().rows;
    let id_bytes = match source.info().ids {
        // These ids have few bytes compared with the vectors, and the bound on the vectors of an extent is generous.
        IdKind::None | IdKind::Int64 => 0,
        IdKind::Utf8 => source.id_bytes().unwrap_or(0) + size_of::<u64>() as u64,
    };
    let mean = rows.div_ceil(u64::from(of_store.buckets.unwrap_or(default_buckets(rows)).max(1)));
    (IDS_TIMES_MEAN * mean * id_bytes).max(EXTENT_IDS_MIN).min(rows * id_bytes)
}

fn bytes_of<T: Coordinate>(
    context: &Context,
    input: BuildInput<'_>,
    options: &IndexParameters,
    reading: u64,
    dimensions: usize,
) -> u64 {
    let BuildInput { source, options: of_store, .. } = input;
    let (rows, vectors) = (source.info().rows, source.info().vectors);
    if rows == 0 {
        return LEAST_BYTES;
    }
    let (degree, threads) = (options.graph.degree as u64, context.threads as u64);
    let store = BuildMemory::foresee::<T>(context.threads, input, 0, 0).least;
    let panel = |rows: u64| Panel::<f32>::bytes_for(rows as usize, dimensions);
    let coding = (4 * panel(rows.min(CODE_SAMPLE))).max((threads * 3 + 1) * panel(ENCODED_ROWS));
    let ids = extent_ids(source, of_store);
    let extents = EXTENTS * (BuildMemory::largest_extent(rows, vectors, of_store) + ids);
    let lists = rows.min(WINDOW_ROWS) * degree * NEIGHBOR_BYTES;
    let columns = match of_store.kept_columns().len() {
        0 => 0,
        columns => {
            let of_vector = vectors.bytes() as u64 + source.id_bytes().unwrap_or(0);
            let of_columns = source.row_bytes().map_or(0, |bytes| bytes.saturating_sub(of_vector));
            columns_bytes(rows, columns, of_columns, reading)
        }
    };
    let of_rows = (rows * FEW_ROWS_BYTES).min(FEW_ROWS_BYTES_MAX) + rows * (ROW_BYTES + degree / 2);
    // The store is complete before the index is built, so the maximum of both counts.
    ((FIXED_BYTES + of_rows + coding + extents + lists).max(LEAST_BYTES) + columns).max(store + STORE_EXTENTS * ids)
}
