//! A bucket in memory, ready for the kernels.

use std::sync::OnceLock;

use adjoin_kernels::{Kernel, Panel};

use super::codes::{Codes, Coding};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::{Element, Metric, VectorType};
use crate::predicate::{dot, halves_as_floats, squared_norms, sums};
use crate::source::Ids;
use crate::store::format::Extent;
use crate::store::{BucketBytes, ReadAhead, Store};
use crate::workers::map_stream;

/// Vectors as coordinates, and what the last decision needs beside them.
pub(super) struct Members<T> {
    pub(super) panel: Panel<T>,
    /// Under cosine, whose coordinates are rounded to unit length.
    exact: Option<Exact>,
    /// Made when they are first asked for.
    codes: OnceLock<Codes>,
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
        let (element, stored) = match vectors.element {
            Element::F16 => (Element::F32, halves_as_floats(stored).into_iter().flat_map(f32::to_le_bytes).collect()),
            element => (element, stored.to_vec()),
        };
        let squared_norms = squared_norms(VectorType { element, ..vectors }, &stored);
        Self { element, stored, squared_norms }
    }

    /// Bytes that so many vectors take, and as many again while halves become floats.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        let wider = if vectors.element == Element::F16 { 4 } else { 1 };
        rows * (wider * vectors.bytes() + size_of::<f64>()) as u64
    }

    fn cosines<const N: usize>(&self, dimensions: usize, pairs: [(u32, u32); N], other: &Self) -> [f64; N] {
        let vectors = pairs.map(|(x, y)| (self.vector(dimensions, x as usize), other.vector(dimensions, y as usize)));
        let dots = match self.element {
            Element::F32 => {
                let floats = vectors.map(|(x, y)| (x.as_chunks::<4>().0, y.as_chunks::<4>().0));
                sums(floats, |&bytes| f32::from_le_bytes(bytes).into(), |x, y| x * y)
            }
            element => vectors.map(|(x, y)| dot(element, x, y)),
        };
        let norms = pairs.map(|(x, y)| self.squared_norms[x as usize] * other.squared_norms[y as usize]);
        std::array::from_fn(|k| dots[k] / norms[k].sqrt())
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
        let exact = (manifest.metric == Metric::Cosine).then(|| Exact::new(vectors, stored));
        // Halves are converted once.
        let (element, stored) =
            exact.as_ref().map_or((vectors.element, stored), |exact| (exact.element, &exact.stored));
        T::load(VectorType { element, ..vectors }, manifest.metric, stored, &mut panel);
        Self { panel, exact, codes: OnceLock::new(), vectors }
    }

    /// Bytes that so many vectors take in memory.
    pub(super) fn memory_bytes(rows: u64, vectors: VectorType, metric: Metric) -> u64 {
        let exact = if metric == Metric::Cosine { Exact::memory_bytes(rows, vectors) } else { 0 };
        let codes = if T::is_float() { Codes::memory_bytes(rows as usize, vectors.dimensions) } else { 0 };
        Panel::<T>::bytes_for(rows as usize, vectors.dimensions) + exact + codes
    }

    /// The vectors rounded; always with the same coding.
    pub(super) fn codes(&self, coding: &Coding) -> &Codes {
        self.codes.get_or_init(|| coding.codes(&self.panel))
    }

    pub(super) fn len(&self) -> usize {
        self.panel.rows()
    }

    /// The squared distances (L2) or cosines of pairs (member, member of `other`). Under L2, coordinates are the stored
    /// elements, or as far from each other.
    pub(super) fn values(&self, kernel: Kernel, pairs: &[(u32, u32)], other: &Self, values: &mut Vec<f64>) {
        values.clear();
        let (four, rest) = pairs.as_chunks::<4>();
        values.extend(four.iter().flat_map(|&pairs| self.values_of(kernel, pairs, other)));
        values.extend(rest.iter().flat_map(|&pair| self.values_of(kernel, [pair], other)));
    }

    fn values_of<const N: usize>(&self, kernel: Kernel, pairs: [(u32, u32); N], other: &Self) -> [f64; N] {
        let dimensions = self.vectors.dimensions;
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.cosines(dimensions, pairs, b),
            _ => {
                let rows = |(x, y): (u32, u32)| (self.panel.row(x as usize), other.panel.row(y as usize));
                T::squared_exactly(kernel, dimensions, pairs.map(rows))
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
