//! Which center is a vector's nearest?

use std::ops::Range;

use adjoin_kernels::{Columns, Kernel, Panel};

use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::{Metric, VectorType};
use crate::workers::map_items;

/// Vectors that a worker takes at once.
const CHUNK_ROWS: usize = 64;

/// A vector's nearest center; the first of equally near ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nearest<D> {
    /// Number of the center.
    pub(crate) center: u32,
    /// Its computed squared distance.
    pub(crate) squared: D,
}

/// Bytes that [`nearest_of_stored`] holds beside its input and output.
pub(crate) fn working_bytes<T: Coordinate>(threads: usize, centers: usize, vectors: VectorType) -> u64 {
    let distances = (CHUNK_ROWS * centers * size_of::<T::Distance>()) as u64;
    let chunk = Panel::<T>::bytes_for(CHUNK_ROWS, vectors.dimensions);
    2 * Panel::<T>::bytes_for(centers + CHUNK_ROWS, vectors.dimensions) + threads as u64 * (distances + chunk)
}

/// The nearest center of each row of a panel, by comparison with all of them.
///
/// # Errors
/// Where the work is cancelled.
pub(crate) fn nearest<T: Coordinate>(
    context: &Context,
    vectors: &Panel<T>,
    centers: &Panel<T>,
) -> Result<Vec<Nearest<T::Distance>>> {
    in_chunks(
        context,
        vectors.rows(),
        centers,
        || (),
        |(), rows, search| {
            let order: Vec<u32> = rows.map(|row| row as u32).collect();
            search.run(vectors, &order)
        },
    )
}

/// The same for vectors as stored, end to end.
///
/// # Errors
/// Where the work is cancelled.
pub(crate) fn nearest_of_stored<T: Coordinate>(
    context: &Context,
    vectors: VectorType,
    metric: Metric,
    stored: &[u8],
    centers: &Panel<T>,
) -> Result<Vec<Nearest<T::Distance>>> {
    let state = || Panel::<T>::zeroed(CHUNK_ROWS, vectors.dimensions);
    in_chunks(context, stored.len() / vectors.bytes(), centers, state, |panel, rows, search| {
        let order: Vec<u32> = (0..rows.len() as u32).collect();
        T::load(vectors, metric, &stored[rows.start * vectors.bytes()..rows.end * vectors.bytes()], panel);
        search.run(panel, &order)
    })
}

/// Compares vectors with packed centers.
struct Search<'a, T: Coordinate> {
    kernel: Kernel,
    centers: &'a Columns<T>,
    distances: Vec<T::Distance>,
}

impl<T: Coordinate> Search<'_, T> {
    fn run(&mut self, vectors: &Panel<T>, order: &[u32]) -> Vec<Nearest<T::Distance>> {
        let distances = &mut self.distances[..order.len() * self.centers.len()];
        self.kernel.many_to_many(vectors, order, self.centers, distances);
        distances.chunks_exact(self.centers.len()).map(least::<T>).collect()
    }
}

fn in_chunks<T: Coordinate, S>(
    context: &Context,
    rows: usize,
    centers: &Panel<T>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, Range<usize>, &mut Search<'_, T>) -> Vec<Nearest<T::Distance>> + Sync,
) -> Result<Vec<Nearest<T::Distance>>> {
    let all: Vec<u32> = (0..centers.rows() as u32).collect();
    let columns = context.kernel.pack(centers, &all);
    let search = || Search {
        kernel: context.kernel,
        centers: &columns,
        distances: vec![T::Distance::default(); CHUNK_ROWS * centers.rows()],
    };
    let chunks = rows.div_ceil(CHUNK_ROWS);
    let found = map_items(
        context.threads,
        chunks,
        &context.cancel,
        || (state(), search()),
        |(state, search), chunk| {
            let start = chunk * CHUNK_ROWS;
            Ok(work(state, start..rows.min(start + CHUNK_ROWS), search))
        },
    )?;
    Ok(found.into_iter().flatten().collect())
}

fn least<T: Coordinate>(distances: &[T::Distance]) -> Nearest<T::Distance> {
    let mut best = Nearest { center: 0, squared: distances[0] };
    for (center, &squared) in distances.iter().enumerate() {
        if squared < best.squared {
            best = Nearest { center: center as u32, squared };
        }
    }
    best
}
