//! Numbers the buckets of one or more stores consecutively, as one run reads them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::ReadFile;
use adjoin_kernels::Panel;

use serde::{Deserialize, Serialize};

use super::pair_filter::PairFilter;
use super::part::Part;
use super::subset::Subset;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coding, Coordinate, Space};
use crate::base::options::{Metric, VectorType};
use crate::base::report::{IoStatistics, Written};
use crate::plan::{BucketPairsToVisit, SetSize};
use crate::source::IdKind;
use crate::sql::Rank;
use crate::store::Store;
use crate::store::format::Extent;

/// Buckets of stores with the same vector type and metric. Their *filtered members* are the members that pass the
/// filter of their store, or all members if there is no filter. Reads are counted here and not by the store, since
/// several runs may use one open store.
pub struct Buckets<'a> {
    stores: Vec<&'a Store>,
    /// Number of the first bucket of each store.
    firsts: Vec<u32>,
    extents: Cow<'a, [Extent]>,
    metric: Metric,
    /// For each store, its filtered members if it has a filter. Empty if no store has one.
    subsets: Vec<Option<Subset<'a>>>,
    /// Members that the caller looks for, if there is one store. Other members still belong to their buckets, but need
    /// not be loaded.
    sought: Option<Subset<'a>>,
    /// Filter on pairs, if any.
    pairs: Option<&'a PairFilter>,
    /// Which pairs of buckets may be compared.
    joined: Joined,
    /// Rounding of floats to bytes, if they are rounded.
    coding: Option<Coding>,
    reads: AtomicU64,
    bytes_requested: AtomicU64,
    bytes_read: AtomicU64,
}

/// Pairs of buckets that may be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joined {
    /// All pairs.
    OneSet,
    /// Pairs of a bucket of the first store and a bucket of the second. The number is that of the second store's first
    /// bucket.
    TwoSets(u32),
    /// All pairs except pairs of two buckets of old rows. The number belongs to the first bucket of new rows.
    Grown(u32),
}

/// Counts of the reads of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Requests to the device.
    pub reads: u64,
    /// Bytes of buckets that were requested.
    pub bytes_requested: u64,
    /// Bytes that were transferred for these requests.
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
    /// Returns the I/O statistics of a run. `store_bytes` is the number of bytes of the store that the run needs.
    /// `is_direct` states whether reads bypass the page cache.
    pub(crate) fn statistics(
        self,
        context: &Context,
        store_bytes: u64,
        is_direct: bool,
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
    /// Creates the buckets of one store. They have the numbers that they have in the store.
    pub fn of(store: &'a Store) -> Self {
        Self::numbered(vec![store], vec![0], Cow::Borrowed(store.extents()))
    }

    /// Creates the buckets of several stores, numbered in this order.
    ///
    /// # Errors
    /// Fails if vector types or metrics differ, or there are 2^32 buckets.
    ///
    /// # Panics
    /// Panics if there is no store.
    pub fn over(stores: &[&'a Store]) -> Result<Self> {
        assert!(!stores.is_empty(), "buckets are of at least one store");
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
        // The loop checks the number of the first bucket of each store. This checks the last bucket of the last store.
        u32::try_from(extents.len()).map_err(|_| Error::option("too many buckets for one run"))?;
        Ok(Self::numbered(stores.to_vec(), firsts, Cow::Owned(extents)))
    }

    /// Creates the buckets of two stores that are joined with each other. A bucket may be compared with any bucket of
    /// the other store.
    ///
    /// # Errors
    /// Fails if their vectors cannot be compared, or there are 2^32 buckets.
    pub fn between(left: &'a Store, right: &'a Store) -> Result<Self> {
        let [named, other_named] = [left, right].map(|store| store.folder().display().to_string());
        let [vectors, other] = [left, right].map(|store| store.manifest().vectors);
        check_comparable(&named, vectors, &other_named, other)?;
        let buckets = Self::over(&[left, right])?;
        let joined = Joined::TwoSets(buckets.firsts[1]);
        Ok(Self { joined, ..buckets })
    }

    /// Creates the buckets of a set that has grown. A bucket of new rows may be compared with all buckets, a bucket of
    /// old rows only with buckets of new rows.
    ///
    /// # Errors
    /// Fails as [`Self::between`] does.
    pub fn grown(old: &'a Store, new: &'a Store) -> Result<Self> {
        let buckets = Self::between(old, new)?;
        let joined = Joined::Grown(buckets.firsts[1]);
        Ok(Self { joined, ..buckets })
    }

    fn numbered(stores: Vec<&'a Store>, firsts: Vec<u32>, extents: Cow<'a, [Extent]>) -> Self {
        let [reads, bytes_requested, bytes_read] = [(); 3].map(|()| AtomicU64::new(0));
        let metric = stores[0].manifest().metric;
        let (subsets, sought, pairs, joined, coding) = (Vec::new(), None, None, Joined::OneSet, None);
        Self {
            stores,
            firsts,
            extents,
            metric,
            subsets,
            sought,
            pairs,
            joined,
            coding,
            reads,
            bytes_requested,
            bytes_read,
        }
    }

    /// Restricts the buckets of each store to filtered members. A bucket without filtered members is not read.
    #[must_use]
    pub(super) fn among(self, subsets: Vec<Option<Subset<'a>>>, pairs: Option<&'a PairFilter>) -> Self {
        assert_eq!(subsets.len(), self.stores.len(), "one subset per store");
        Self { subsets, pairs, ..self }
    }

    /// Sets the members that the caller looks for. Other members of a bucket may then not be loaded; nothing else
    /// changes. There must be one store.
    #[must_use]
    pub(crate) fn seeking(self, sought: Option<Subset<'a>>) -> Self {
        assert!(
            self.stores.len() == 1 && self.subsets.is_empty(),
            "only buckets of one store without subsets can be sought in"
        );
        Self { sought, ..self }
    }

    /// Returns the filter on pairs, if any.
    pub(crate) fn pairs(&self) -> Option<&'a PairFilter> {
        self.pairs
    }

    /// Returns the ranks of a filtered member for the pair filter; empty if there is no filter.
    pub(crate) fn ranks(&self, number: u32, member: u32) -> &'a [Rank] {
        let of = |pairs: &'a PairFilter| {
            let own = self.at(number).1;
            pairs.ranks(self.part_of(number), own, self.member_at(number, member))
        };
        self.pairs.map_or(&[], of)
    }

    /// Returns the bytes of the ranks of one member.
    pub(super) fn rank_bytes(&self, number: u32) -> u64 {
        self.pairs.map_or(0, |pairs| pairs.row_bytes(self.part_of(number)))
    }

    /// Replaces the metric by the one for distances between rows.
    #[must_use]
    pub(crate) fn between_rows(self) -> Self {
        Self { metric: Space::metric_of_rows(self.metric), ..self }
    }

    /// Sets the rounding of floats to bytes. `None` keeps floats.
    #[must_use]
    pub(crate) fn rounded(self, coding: Option<Coding>) -> Self {
        Self { coding, ..self }
    }

    /// Returns the range of buckets of each part. The parts are one set, two sets, or old and new rows.
    pub fn parts(&self) -> Vec<Range<u32>> {
        match self.joined {
            Joined::TwoSets(second) | Joined::Grown(second) => vec![0..second, second..self.count()],
            Joined::OneSet => std::iter::once(0..self.count()).collect(),
        }
    }

    /// Returns the index of a bucket's part.
    pub fn part_of(&self, number: u32) -> usize {
        match self.joined {
            Joined::TwoSets(second) | Joined::Grown(second) => usize::from(number >= second),
            Joined::OneSet => 0,
        }
    }

    /// Returns the parts whose rows have a promised recall. If a set has grown, these are only the new rows, since
    /// each pair has a new row. Otherwise these are all parts.
    pub fn promised(&self) -> Vec<Range<u32>> {
        match self.joined {
            Joined::Grown(new) => std::iter::once(new..self.count()).collect(),
            _ => self.parts(),
        }
    }

    /// Returns the weight of a pair for its row in a promised part, if its other row is in bucket `number`. If a set
    /// has grown, a pair of two new rows counts once for each of them. A pair with an old row has weight 2 for its new
    /// row.
    pub(crate) fn pair_weight(&self, number: u32) -> u64 {
        if matches!(self.joined, Joined::Grown(new) if number < new) { 2 } else { 1 }
    }

    /// Returns the largest weight of a pair ([`Self::pair_weight`]).
    pub(crate) fn pair_weight_max(&self) -> u64 {
        if matches!(self.joined, Joined::Grown(_)) { 2 } else { 1 }
    }

    /// Returns whether two sets are joined with each other. In that case, no bucket is compared with itself.
    pub fn are_of_two_sets(&self) -> bool {
        matches!(self.joined, Joined::TwoSets(_))
    }

    /// Returns the buckets with which a bucket may be compared.
    pub fn partners(&self, number: u32) -> Range<u32> {
        match self.joined {
            Joined::TwoSets(second) if number >= second => 0..second,
            Joined::TwoSets(later) | Joined::Grown(later) if number < later => later..self.count(),
            _ => 0..self.count(),
        }
    }

    /// Returns the number that is added to the row numbers of a bucket: new rows are numbered after old ones.
    pub(crate) fn first_row(&self, number: u32) -> u64 {
        match self.joined {
            Joined::Grown(new) if number >= new => self.first_new_row(),
            _ => 0,
        }
    }

    /// Returns the number of the first new row if the set has grown, otherwise 0. If a pair has a row before this one,
    /// only one of its rows has a promised recall; otherwise both have.
    pub(crate) fn first_new_row(&self) -> u64 {
        match self.joined {
            Joined::Grown(_) => self.stores[0].manifest().source_rows,
            _ => 0,
        }
    }

    /// Returns whether two buckets may have an edge.
    pub fn may_meet(&self, bucket: u32, other: u32) -> bool {
        bucket != other && self.partners(bucket).contains(&other) && self.members(bucket) > 0 && self.members(other) > 0
    }

    /// Returns the buckets that are compared with themselves, in ascending order.
    pub fn meeting_themselves(&self) -> Vec<u32> {
        self.taking_part().filter(|number| self.partners(*number).contains(number)).collect()
    }

    /// Returns the number of filtered members of a bucket.
    pub fn members(&self, number: u32) -> u32 {
        match self.subset(number) {
            Some((subset, own)) => subset.rows(own) as u32,
            None => self.extent(number).rows,
        }
    }

    /// Returns the positions of a bucket's filtered members among all of its members, in ascending order. `None` if
    /// there is no filter.
    pub(super) fn members_at(&self, number: u32) -> Option<impl Iterator<Item = u32>> {
        self.subset(number).map(|(subset, own)| subset.members(own))
    }

    /// Returns the position of a filtered member among all members of the bucket.
    pub(super) fn member_at(&self, number: u32, member: u32) -> u32 {
        // If there is no filter, all members are filtered members, and the positions are equal.
        self.subset(number).map_or(member, |(subset, own)| subset.member(own, member))
    }

    /// Returns the part of a bucket to read; `None` to read all of it.
    pub(super) fn part(&self, number: u32, with_ids: bool) -> Option<Part> {
        let (subset, own) = self.subset(number).or_else(|| self.sought.map(|sought| (sought, number)))?;
        let store = self.at(number).0;
        // The checksum of a bucket covers all of it, so partial reads need the checksums of blocks.
        let last = (subset.rows(own) as u32).checked_sub(1).filter(|_| store.has_parts())?;
        let members = subset.member(own, 0)..subset.member(own, last) + 1;
        Part::of(self.extent(number), self.vectors(), self.ids(number), members, with_ids)
    }

    /// Returns the number of bytes to request for reading a bucket.
    pub(crate) fn read_bytes(&self, number: u32, with_ids: bool) -> u64 {
        let part = self.part(number, with_ids);
        part.map_or_else(|| self.extent(number).bytes(with_ids), |part| part.wanted())
    }

    /// Returns whether a filter applies to a bucket.
    pub(super) fn is_part(&self, number: u32) -> bool {
        self.subset(number).is_some()
    }

    /// Returns the buckets that have filtered members, in ascending order.
    pub fn taking_part(&self) -> impl Iterator<Item = u32> {
        (0..self.count()).filter(|&number| self.members(number) > 0)
    }

    /// Returns the filter of a bucket's store, and the number of the bucket in that store. `None` if there is no
    /// filter.
    fn subset(&self, number: u32) -> Option<(Subset<'a>, u32)> {
        let store = if self.subsets.is_empty() { return None } else { self.store_of(number) };
        self.subsets[store].map(|subset| (subset, number - self.firsts[store]))
    }

    /// Returns the number of filtered members of a range of buckets.
    pub fn rows_of(&self, buckets: Range<u32>) -> u64 {
        buckets.map(|number| u64::from(self.members(number))).sum()
    }

    /// Returns the numbers of vectors, buckets and pairs to join.
    pub fn meetings(&self) -> BucketPairsToVisit {
        let of = |set: &Range<u32>| {
            let buckets = set.clone().filter(|&number| self.members(number) > 0).count();
            SetSize { rows: self.rows_of(set.clone()), buckets: buckets as u64 }
        };
        let parts: Vec<SetSize> = self.parts().iter().map(of).collect();
        match self.joined {
            Joined::OneSet => BucketPairsToVisit::within(parts[0]),
            Joined::TwoSets(_) => BucketPairsToVisit::between(parts[0], parts[1]),
            Joined::Grown(_) => BucketPairsToVisit::grown(parts[0], parts[1]),
        }
    }

    /// Returns the number of buckets.
    pub fn count(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Returns the extent of each bucket in the file of its store.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns the extent of a bucket in the file of its store.
    pub fn extent(&self, number: u32) -> &Extent {
        &self.extents[number as usize]
    }

    /// Returns the type of the vectors.
    pub fn vectors(&self) -> VectorType {
        self.stores[0].manifest().vectors
    }

    /// Returns the metric of the stores, or the metric between rows if `between_rows` was called.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the rounding of floats to bytes, if they are rounded.
    pub(crate) fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// Returns the space that maps vectors to coordinates.
    pub fn space(&self) -> Space<'_> {
        Space { metric: self.metric, coding: self.coding.as_ref(), ..self.stores[0].manifest().space() }
    }

    /// Returns the radius of a bucket, measured in coordinates. It is approximate if floats were rounded to bytes.
    pub(crate) fn radius(&self, number: u32) -> f64 {
        self.space().rough_length(self.extent(number).radius.into())
    }

    /// Returns the number of filtered members of all buckets.
    pub fn rows(&self) -> u64 {
        self.rows_of(0..self.count())
    }

    /// Returns the largest number of filtered members of a bucket.
    pub fn rows_max(&self) -> usize {
        (0..self.count()).map(|number| self.members(number) as usize).max().unwrap_or(0)
    }

    /// Returns the number of buckets without filtered members, and the total bytes of these buckets, with or without
    /// ids.
    pub fn skipped(&self, with_ids: bool) -> (u64, u64) {
        let skipped = (0..self.count()).filter(|&number| self.members(number) == 0);
        skipped.fold((0, 0), |(buckets, bytes), number| (buckets + 1, bytes + self.extent(number).bytes(with_ids)))
    }

    /// Returns the kind of the ids of a bucket.
    pub fn ids(&self, number: u32) -> IdKind {
        self.at(number).0.manifest().ids
    }

    /// Returns the store of a bucket, and the number of the bucket in that store.
    pub fn at(&self, number: u32) -> (&'a Store, u32) {
        let store = self.store_of(number);
        (self.stores[store], number - self.firsts[store])
    }

    fn store_of(&self, number: u32) -> usize {
        // Finds the last store that starts at or before the number.
        self.firsts.partition_point(|&first| first <= number) - 1
    }

    /// Returns the file that contains a bucket.
    pub(super) fn file(&self, number: u32) -> &'a Arc<dyn ReadFile> {
        self.at(number).0.file()
    }

    /// Reads the centers, in bucket order.
    ///
    /// # Errors
    /// Fails if they do not match the manifest of their store.
    pub fn centers<T: Coordinate>(&self) -> Result<Panel<T>> {
        let mut panel = Panel::zeroed(self.extents.len(), self.space().dimensions());
        for (store, &first) in self.stores.iter().zip(&self.firsts) {
            store.read_centers(self.space(), &mut panel, first as usize)?;
        }
        Ok(panel)
    }

    /// Returns the bytes of all buckets, with or without ids.
    pub fn bytes(&self, with_ids: bool) -> u64 {
        self.extents.iter().map(|extent| extent.bytes(with_ids)).sum()
    }

    /// Returns whether all reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.stores.iter().all(|store| store.file().is_direct())
    }

    /// Counts a read.
    pub(super) fn count_read(&self, requested: u64, transferred: u64) {
        assert!(transferred >= requested, "a read transfers the requested bytes");
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_requested.fetch_add(requested, Ordering::Relaxed);
        self.bytes_read.fetch_add(transferred, Ordering::Relaxed);
    }

    /// Returns the counts of reads so far.
    pub fn read_counts(&self) -> ReadCounts {
        ReadCounts {
            reads: self.reads.load(Ordering::Relaxed),
            bytes_requested: self.bytes_requested.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
        }
    }
}

/// Checks that the vectors of two sets, called `name` and `other_name`, can be compared.
///
/// # Errors
/// Fails if they cannot. The error states both types.
pub(crate) fn check_comparable(name: &str, vectors: VectorType, other_name: &str, other: VectorType) -> Result<()> {
    if vectors == other {
        return Ok(());
    }
    let words = |of: VectorType| format!("{} x {}", of.dimensions, of.element);
    // If the dimensions differ, the vectors are of different models. If they are equal, perhaps only the element types
    // differ.
    let remedy = match vectors.dimensions == other.dimensions {
        true => "convert one to the element type of the other",
        false => "create both with one model",
    };
    Err(Error::input(format!(
        "the vectors of {name} are {}, but those of {other_name} are {}, so they cannot be joined; {remedy}",
        words(vectors),
        words(other)
    )))
}
