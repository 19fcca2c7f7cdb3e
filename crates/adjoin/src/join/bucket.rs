//! A bucket in memory, ready for the kernels.

use adjoin_kernels::{Kernel, Panel};

use crate::geometry::Coordinate;
use crate::options::{Metric, VectorType};
use crate::predicate::{Predicate, dot, squared_norm};
use crate::source::Ids;
use crate::store::format::Extent;
use crate::store::{BucketBytes, Store};

/// A bucket's members as coordinates, and what the last decision needs beside them.
pub(super) struct LoadedBucket<T> {
    pub(super) panel: Panel<T>,
    /// For each member, a bound that its squared distance to the bucket's center does not pass.
    pub(super) own_at_most: Vec<f64>,
    rows: Vec<u64>,
    ids: Ids,
    /// Under cosine, whose coordinates are rounded to unit length.
    exact: Option<Exact>,
    vectors: VectorType,
}

/// Members as they are stored.
struct Exact {
    stored: Vec<u8>,
    squared_norms: Vec<f64>,
}

impl<T: Coordinate> LoadedBucket<T> {
    /// Takes what was read; the bucket's center is the row of its number in `centers`.
    pub(super) fn new(store: &Store, kernel: Kernel, centers: &Panel<T>, read: BucketBytes<'_>) -> Self {
        let manifest = store.manifest();
        let vectors = manifest.vectors;
        let mut panel = Panel::zeroed(read.bucket.rows.len(), vectors.dimensions);
        T::load(vectors, manifest.metric, read.vectors, &mut panel);
        let mut own = vec![T::Distance::default(); panel.rows()];
        kernel.one_to_many(centers.row(read.number as usize), &panel, &mut own);
        let own_at_most = own.iter().map(|&squared| T::at_most(squared, vectors.dimensions)).collect();
        let exact = (manifest.metric == Metric::Cosine).then(|| Exact {
            stored: read.vectors.to_vec(),
            squared_norms: read
                .vectors
                .chunks_exact(vectors.bytes())
                .map(|vector| squared_norm(vectors.element, vector))
                .collect(),
        });
        Self { panel, own_at_most, rows: read.bucket.rows, ids: read.bucket.ids, exact, vectors }
    }

    /// Bytes that the bucket of an extent takes in memory.
    pub(super) fn memory_bytes(extent: &Extent, vectors: VectorType, metric: Metric, with_ids: bool) -> u64 {
        let rows = u64::from(extent.rows);
        let ids = if with_ids { extent.id_bytes } else { 0 };
        let exact = if metric == Metric::Cosine { rows * (vectors.bytes() + size_of::<f64>()) as u64 } else { 0 };
        // 16: a row number and a bound for each member.
        Panel::<T>::bytes_for(extent.rows as usize, vectors.dimensions) + 16 * rows + ids + exact
    }

    pub(super) fn len(&self) -> usize {
        self.panel.rows()
    }

    pub(super) fn row(&self, member: u32) -> u64 {
        self.rows[member as usize]
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The value of a pair of the result. Under L2, coordinates are the stored elements, or as far from each other.
    pub(super) fn decide(&self, predicate: Predicate, member: u32, other: &Self, other_member: u32) -> Option<f32> {
        let (x, y) = (member as usize, other_member as usize);
        match (&self.exact, &other.exact) {
            (Some(a), Some(b)) => {
                let bytes = self.vectors.bytes();
                let dot = dot(self.vectors.element, &a.stored[x * bytes..][..bytes], &b.stored[y * bytes..][..bytes]);
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
