//! A bucket in memory, ready for the kernels.

use std::sync::OnceLock;

use adjoin_kernels::{Kernel, Panel, wide_error};

use super::codes::{Codes, Coding};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::{Element, Metric, VectorType};
use crate::predicate::{Predicate, cosine_of_floats, dot, halves_as_floats, squared_norms};
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
enum Exact {
    Floats { values: Vec<f32>, squared_norms: Vec<f64> },
    Integers { element: Element, stored: Vec<u8>, squared_norms: Vec<f64> },
}

impl Exact {
    fn new(kernel: Kernel, vectors: VectorType, stored: &[u8]) -> Self {
        let values = match vectors.element {
            Element::F16 => halves_as_floats(stored),
            Element::F32 => stored.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            element => {
                let squared_norms = squared_norms(vectors, stored);
                return Self::Integers { element, stored: stored.to_vec(), squared_norms };
            }
        };
        let squared_norms =
            values.chunks_exact(vectors.dimensions).map(|vector| kernel.dot_wide(vector, vector)).collect();
        Self::Floats { values, squared_norms }
    }

    /// Bytes that so many vectors take, and as many again while halves become floats.
    fn memory_bytes(rows: u64, vectors: VectorType) -> u64 {
        let wider = if vectors.element == Element::F16 { 4 } else { 1 };
        rows * (wider * vectors.bytes() + size_of::<f64>()) as u64
    }

    /// Writes the vectors, divided by their lengths, to the rows of a panel.
    fn load<T: Coordinate>(&self, vectors: VectorType, panel: &mut Panel<T>) {
        match self {
            Self::Floats { values, squared_norms } => {
                let vectors = values.chunks_exact(vectors.dimensions).zip(squared_norms);
                for (row, (vector, squared_norm)) in vectors.enumerate() {
                    let length = squared_norm.sqrt();
                    let to = panel.row_mut(row).iter_mut().zip(vector);
                    to.for_each(|(to, &x)| *to = T::from_mean(f64::from(x) / length));
                }
            }
            Self::Integers { stored, .. } => T::load(vectors, Metric::Cosine, stored, panel),
        }
    }

    /// Decides a member and one of others by their cosine.
    fn decide(
        &self,
        kernel: Kernel,
        predicate: Predicate,
        dimensions: usize,
        (x, y): (u32, u32),
        other: &Self,
    ) -> Option<f32> {
        let (x, y) = (x as usize, y as usize);
        let at = |member: usize| member * dimensions..(member + 1) * dimensions;
        match (self, other) {
            (
                Self::Floats { values: a, squared_norms: a_norms },
                Self::Floats { values: b, squared_norms: b_norms },
            ) => {
                let (a, b, length) = (&a[at(x)], &b[at(y)], (a_norms[x] * b_norms[y]).sqrt());
                // The terms of the inner product add up to one length at most, and the lengths are off by half as much.
                let nearly = (kernel.dot_wide(a, b) / length, 2.0 * wide_error(dimensions));
                predicate.accept_near(nearly, || cosine_of_floats(a, b))
            }
            (
                Self::Integers { element, stored: a, squared_norms: a_norms },
                Self::Integers { stored: b, squared_norms: b_norms, .. },
            ) => predicate.accept(dot(*element, &a[at(x)], &b[at(y)]) / (a_norms[x] * b_norms[y]).sqrt()),
            _ => unreachable!("both are of one store"),
        }
    }
}

impl<T: Coordinate> Members<T> {
    /// Takes vectors as stored, end to end.
    pub(super) fn new(store: &Store, kernel: Kernel, stored: &[u8]) -> Self {
        let manifest = store.manifest();
        let vectors = manifest.vectors;
        let mut panel = Panel::zeroed(stored.len() / vectors.bytes(), vectors.dimensions);
        let exact = (manifest.metric == Metric::Cosine).then(|| Exact::new(kernel, vectors, stored));
        match &exact {
            Some(exact) => exact.load(vectors, &mut panel),
            None => T::load(vectors, manifest.metric, stored, &mut panel),
        }
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

    /// Decides pairs (member, member of `other`): the distances or similarities of those that belong to the result. Under
    /// L2, coordinates are the stored elements, or as far from each other.
    pub(super) fn decide(
        &self,
        kernel: Kernel,
        predicate: Predicate,
        pairs: &[(u32, u32)],
        other: &Self,
        decided: &mut Vec<Option<f32>>,
    ) {
        decided.clear();
        decided.extend(pairs.iter().map(|&pair| match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => a.decide(kernel, predicate, self.vectors.dimensions, pair, b),
            _ => {
                let (x, y) = (self.panel.row(pair.0 as usize), other.panel.row(pair.1 as usize));
                T::decide(kernel, predicate, x, y)
            }
        }));
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
        let members = Members::new(store, kernel, read.vectors);
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
