//! The buckets of one or several stores, numbered one behind the other, as one run reads them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::ReadFile;
use adjoin_kernels::Panel;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coding, Coordinate, Space};
use crate::options::{Metric, VectorType};
use crate::report::{IoStatistics, Written};
use crate::source::IdKind;
use crate::store::Store;
use crate::store::format::Extent;

/// Buckets of stores whose vectors are of one type and metric. Counts what is read of them: a store may be open for
/// several runs, and each tells its own reads.
pub struct Buckets<'a> {
    stores: Vec<&'a Store>,
    /// The number of the first bucket of each store.
    firsts: Vec<u32>,
    extents: Cow<'a, [Extent]>,
    metric: Metric,
    /// How floats are rounded to bytes, where they are.
    coding: Option<Coding>,
    reads: AtomicU64,
    bytes_requested: AtomicU64,
    bytes_read: AtomicU64,
}

/// What was read of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Requests to the device.
    pub reads: u64,
    /// Bytes of the extents that were asked for.
    pub bytes_requested: u64,
    /// Bytes transferred for them.
    pub bytes_read: u64,
}

impl std::ops::AddAssign for ReadCounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.bytes_requested += other.bytes_requested;
        self.bytes_read += other.bytes_read;
    }
}

impl ReadCounts {
    /// What a run tells of its reads, of a store that has `store_bytes` of what it reads, and of what it wrote.
    pub(crate) fn statistics(
        self,
        context: &Context,
        (store_bytes, is_direct): (u64, bool),
        written: Written,
    ) -> IoStatistics {
        let Self { reads, bytes_requested, bytes_read } = self;
        IoStatistics {
            bytes_read: Some(bytes_read),
            bytes_requested: Some(bytes_requested),
            read_amplification: Some(bytes_read as f64 / bytes_requested.max(1) as f64),
            passes: Some(bytes_requested as f64 / store_bytes.max(1) as f64),
            bytes_written: Some(written.bytes),
            spill_bytes: Some(written.spill_bytes),
            reads: Some(reads),
            cache_hit_rate: None,
            device: context.device.name().into(),
            direct: Some(is_direct),
        }
    }
}

impl<'a> Buckets<'a> {
    /// Those of one store, by their own numbers.
    pub fn of(store: &'a Store) -> Self {
        Self::numbered(vec![store], vec![0], Cow::Borrowed(store.extents()))
    }

    /// Those of several stores, in their order.
    ///
    /// # Errors
    /// Where vectors or metrics differ, or there are 2^32 buckets.
    ///
    /// # Panics
    /// Without a store.
    pub fn over(stores: &[&'a Store]) -> Result<Self> {
        assert!(!stores.is_empty(), "there is a store");
        let kind = |store: &Store| (store.manifest().vectors, store.manifest().metric);
        if let Some(other) = stores.iter().find(|store| kind(store) != kind(stores[0])) {
            let (one, other) = (stores[0].folder().display(), other.folder().display());
            return Err(Error::option(format!(
                "{one} and {other} differ in element type, dimensions or metric; build both with the same"
            )));
        }
        let mut firsts = Vec::with_capacity(stores.len());
        let mut extents = Vec::new();
        for store in stores {
            firsts.push(u32::try_from(extents.len()).map_err(|_| Error::option("too many buckets for one run"))?);
            extents.extend_from_slice(store.extents());
        }
        u32::try_from(extents.len()).map_err(|_| Error::option("too many buckets for one run"))?;
        Ok(Self::numbered(stores.to_vec(), firsts, Cow::Owned(extents)))
    }

    fn numbered(stores: Vec<&'a Store>, firsts: Vec<u32>, extents: Cow<'a, [Extent]>) -> Self {
        let [reads, bytes_requested, bytes_read] = [(); 3].map(|()| AtomicU64::new(0));
        let metric = stores[0].manifest().metric;
        Self { stores, firsts, extents, metric, coding: None, reads, bytes_requested, bytes_read }
    }

    /// The same for distances between their rows.
    #[must_use]
    pub(crate) fn between_rows(self) -> Self {
        Self { metric: Space::metric_of_rows(self.metric), ..self }
    }

    /// The same with floats rounded to bytes.
    #[must_use]
    pub(crate) fn rounded(self, coding: Option<Coding>) -> Self {
        Self { coding, ..self }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Where each lies in the file of its store.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Where a bucket lies in the file of its store.
    pub fn extent(&self, number: u32) -> &Extent {
        &self.extents[number as usize]
    }

    /// Type of the vectors.
    pub fn vectors(&self) -> VectorType {
        self.stores[0].manifest().vectors
    }

    /// Metric of the stores, or of distances between their rows where these are looked for.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// How floats are rounded to bytes, where they are.
    pub(crate) fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// How their vectors become coordinates.
    pub fn space(&self) -> Space<'_> {
        Space { metric: self.metric, coding: self.coding.as_ref(), ..self.stores[0].manifest().space() }
    }

    /// The radius of a bucket in coordinates; where floats were rounded to bytes, about.
    pub(crate) fn radius(&self, number: u32) -> f64 {
        self.space().rough_length(self.extent(number).radius.into())
    }

    /// Vectors in all of them.
    pub fn rows(&self) -> u64 {
        self.stores.iter().map(|store| store.manifest().rows).sum()
    }

    /// Vectors of the largest bucket.
    pub fn rows_max(&self) -> usize {
        self.extents.iter().map(|extent| extent.rows as usize).max().unwrap_or(0)
    }

    /// Kind of the ids of a bucket.
    pub fn ids(&self, number: u32) -> IdKind {
        self.at(number).0.manifest().ids
    }

    /// The store of a bucket, and the bucket's number there.
    pub fn at(&self, number: u32) -> (&'a Store, u32) {
        let store = self.firsts.partition_point(|&first| first <= number) - 1;
        (self.stores[store], number - self.firsts[store])
    }

    /// The file that a bucket lies in.
    pub(super) fn file(&self, number: u32) -> &'a Arc<dyn ReadFile> {
        self.at(number).0.file()
    }

    /// The centers, in the order of the buckets.
    ///
    /// # Errors
    /// Where they are not what the manifest of their store says.
    pub fn centers<T: Coordinate>(&self) -> Result<Panel<T>> {
        let mut panel = Panel::zeroed(self.extents.len(), self.space().dimensions());
        for (store, &first) in self.stores.iter().zip(&self.firsts) {
            store.read_centers(self.space(), &mut panel, first as usize)?;
        }
        Ok(panel)
    }

    /// Bytes of the buckets in all, with or without ids.
    pub fn bytes(&self, with_ids: bool) -> u64 {
        self.extents.iter().map(|extent| extent.bytes(with_ids)).sum()
    }

    /// Whether all are read past the page cache.
    pub fn is_direct(&self) -> bool {
        self.stores.iter().all(|store| store.file().is_direct())
    }

    /// Counts a read.
    pub(super) fn count_read(&self, requested: u64, transferred: u64) {
        assert!(transferred >= requested, "a read transfers what it is asked for");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_requested.fetch_add(requested, Ordering::Relaxed);
        self.bytes_read.fetch_add(transferred, Ordering::Relaxed);
    }

    /// What was read so far.
    pub fn read_counts(&self) -> ReadCounts {
        ReadCounts {
            reads: self.reads.load(Ordering::Relaxed),
            bytes_requested: self.bytes_requested.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
        }
    }
}
