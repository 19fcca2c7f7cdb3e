//! A bucket in memory, ready for the kernels.

use adjoin_kernels::{Kernel, Panel};
use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::{Element, Metric, VectorType};
use crate::predicate::{Predicate, dot, squared_norm};
use crate::source::Ids;
use crate::store::format::Extent;
use crate::store::{BucketBytes, ReadAhead, Store};
use crate::workers::map_stream;

/// Vectors as coordinates, and what the last decision needs beside them.
pub(super) struct Members<T> {
    pub(super) panel: Panel<T>,
    /// Under cosine, whose coordinates are rounded to unit length.
    exact: Option<Exact>,
    vectors: VectorType,
}

/// Vectors as they are stored; halves as the equal floats, since decisions would convert them again and again.
struct Exact {
    element: Element,
    stored: Vec<u8>,
    squared_norms: Vec<f64>,
}

impl Exact {
    fn new(vectors: VectorType, stored: &[u8]) -> Self {
        let norm = |vector| squared_norm(vectors.element, vector);
        let squared_norms = stored.chunks_exact(vectors.bytes()).map(norm).collect();
        if vectors.element != Element::F16 {
            return Self { element: vectors.element, stored: stored.to_vec(), squared_norms };
        }
        let halves: Vec<f16> = stored.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect();
        let floats = halves.to_f32_vec().into_iter().flat_map(f32::to_le_bytes).collect();
        Self { element: Element::F32, stored: floats, squared_norms }
    }

    /// Bytes that so many vectors take, and as many again while halves become floats.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        let wider = if vectors.element == Element::F16 { 4 } else { 1 };
        rows * (wider * vectors.bytes() + size_of::<f64>()) as u64
    }

    fn vector(&self, dimensions: usize, member: usize) -> &[u8] {
        let bytes = self.element.bytes() * dimensions;
        &self.stored[member * bytes..][..bytes]
    }
}

impl<T: Coordinate> Members<T> {
    /// Takes vectors as stored, end to end.
    pub(super) fn new(store: &Store, stored: &[u8]) -> Self {
        let manifest = store.manifest();
        let vectors = manifest.vectors;
        let mut panel = Panel::zeroed(stored.len() / vectors.bytes(), vectors.dimensions);
        T::load(vectors, manifest.metric, stored, &mut panel);
        let exact = (manifest.metric == Metric::Cosine).then(|| Exact::new(vectors, stored));
        Self { panel, exact, vectors }
    }

    /// Bytes that so many vectors take in memory.
    pub(super) fn memory_bytes(rows: u64, vectors: VectorType, metric: Metric) -> u64 {
        let exact = if metric == Metric::Cosine { Exact::memory_bytes(rows, vectors) } else { 0 };
        Panel::<T>::bytes_for(rows as usize, vectors.dimensions) + exact
    }

    pub(super) fn len(&self) -> usize {
        self.panel.rows()
    }

    /// The value of a pair of the result. Under L2, coordinates are the stored elements, or as far from each other.
    pub(super) fn decide(&self, predicate: Predicate, member: u32, other: &Self, other_member: u32) -> Option<f32> {
        let (x, y) = (member as usize, other_member as usize);
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => {
                let dimensions = self.vectors.dimensions;
                let dot = dot(a.element, a.vector(dimensions, x), b.vector(dimensions, y));
                predicate.accept(dot / (a.squared_norms[x] * b.squared_norms[y]).sqrt())
            }
            _ => {
                let dimensions = self.vectors.dimensions;
                let (x, y) = (&self.panel.row(x)[..dimensions], &other.panel.row(y)[..dimensions]);
                predicate.accept(T::squared_exactly(x, y))
            }
        }
    }
}

/// One pass over the store: hands every bucket, with its number, to a worker. `read_ahead` bytes are for reading ahead;
/// the results come in the order of the buckets.
pub(super) fn map_buckets<T: Coordinate, S, R: Send>(
    context: &Context,
    store: &Store,
    centers: &Panel<T>,
    (phase, read_ahead): (&str, u64),
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u32, &LoadedBucket<T>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let buckets = centers.rows() as u32;
    context.progress.begin(phase, "buckets", buckets.into());
    let mut ahead = ReadAhead::new(context, store, false, read_ahead, 0..buckets)?;
    let next = || {
        context.cancel.check()?;
        ahead.next(|read| {
            context.progress.advance(read.number.into());
            (read.number, LoadedBucket::new(store, context.kernel, centers, read))
        })
    };
    map_stream(context.threads, next, state, |state, (number, bucket)| work(state, number, &bucket))
}

/// A bucket's members, and where they lie.
pub(super) struct LoadedBucket<T> {
    pub(super) members: Members<T>,
    /// For each member, a bound that its squared distance to the bucket's center does not pass.
    pub(super) own_at_most: Vec<f64>,
    rows: Vec<u64>,
    ids: Ids,
}

impl<T: Coordinate> LoadedBucket<T> {
    /// Takes what was read; the bucket's center is the row of its number in `centers`.
    pub(super) fn new(store: &Store, kernel: Kernel, centers: &Panel<T>, read: BucketBytes<'_>) -> Self {
        let members = Members::new(store, read.vectors);
        let mut own = vec![T::Distance::default(); members.len()];
        kernel.one_to_many(centers.row(read.number as usize), &members.panel, &mut own);
        let dimensions = members.panel.dimensions();
        let own_at_most = own.iter().map(|&squared| T::at_most(squared, dimensions)).collect();
        Self { members, own_at_most, rows: read.bucket.rows, ids: read.bucket.ids }
    }

    /// Bytes that the bucket of an extent takes in memory.
    pub(super) fn memory_bytes(extent: &Extent, vectors: VectorType, metric: Metric, with_ids: bool) -> u64 {
        let rows = u64::from(extent.rows);
        let ids = if with_ids { extent.id_bytes } else { 0 };
        // 16: a row number and a bound for each member.
        Members::<T>::memory_bytes(rows, vectors, metric) + 16 * rows + ids
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn row(&self, member: u32) -> u64 {
        self.rows[member as usize]
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }
}
