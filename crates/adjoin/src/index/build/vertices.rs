//! Assigns the rows of a store to vertices. Rows with equal vectors share a vertex. If they had vertices of their own,
//! pruning would remove all but one of them from every list, and searches would fill their lists with equal candidates.

use std::ops::Range;
use std::path::Path;

use adjoin_device::Reservation;
use adjoin_kernels::Panel;
use xxhash_rust::xxh3::xxh3_128;

use super::PURPOSE;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::row_numbers::{ROW_BYTES, RankedSet, RowSet, packed, unpacked};
use crate::base::workers::map_stream;
use crate::load::{Buckets, ReadAhead, StoredBucket, Subset, least_read_ahead, read_ahead_bytes, starts};
use crate::plan::Load;
use crate::store::{PartitionSizes, Partitions, Records};

/// Bytes of a record, which has a hash, a row and a place.
const RECORD_BYTES: usize = size_of::<u128>() + ROW_BYTES + size_of::<u32>();
/// Approximate number of records in a partition. A partition is sorted in memory.
const SORTED_AT_ONCE: u64 = 1 << 16;

/// Vertices of an index before they are ordered on pages. They are numbered in the order of the buckets.
///
/// A *place* is the position of a row in the order of the buckets. Of all rows with equal vectors, the row with the
/// smallest row number represents the vertex. Vectors count as equal if their 128-bit hashes are equal. The probability
/// that any two of 2^31 distinct vectors have equal hashes is below 2^-66.
pub(super) struct VertexMap {
    /// Places of the rows that represent vertices. The rank of a place is the number of the vertex.
    places: RankedSet,
    /// All other places, ascending, with the vertex of each.
    others: Vec<(u32, u32)>,
    /// First place of each bucket, and the end of the last one.
    starts: Vec<u32>,
    /// For each bucket, the vertex of the member nearest to its center; `None` for an empty bucket.
    pub(super) representatives: Vec<Option<u32>>,
    _memory: Reservation,
}

/// Result of a pass over a bucket.
struct BucketVertices {
    /// Hash and row of each member.
    hashes: Vec<(u128, u64)>,
    /// Member nearest to the center.
    nearest: Option<u32>,
}

/// Returns the least bytes that [`VertexMap::find`] needs, including the map.
pub(super) fn least_bytes(buckets: &Buckets<'_>, threads: usize) -> u64 {
    let rows = buckets.rows();
    let largest = buckets.rows_max() as u64;
    let of_bucket = largest * (buckets.vectors().bytes() as u64 * 2 + 48);
    VertexMap::memory_bytes(buckets)
        + 2 * PartitionSizes::least()
        + 4 * SORTED_AT_ONCE.min(rows) * 48
        + 2 * threads as u64 * of_bucket
        + 2 * least_read_ahead(buckets.extents(), false)
}

impl VertexMap {
    /// Returns the bytes of a map of a store without equal vectors.
    pub(super) fn memory_bytes(buckets: &Buckets<'_>) -> u64 {
        let rows = buckets.rows();
        RankedSet::memory_bytes(rows) + 12 * u64::from(buckets.count() + 1)
    }

    /// Finds the vertices of a store.
    ///
    /// # Errors
    /// If the store cannot be read, if a temporary file cannot be written, or if memory does not suffice.
    pub(super) fn find<T: Coordinate>(
        context: &Context,
        buckets: &Buckets<'_>,
        centers: &Panel<T>,
        temporary: &Path,
    ) -> Result<Self> {
        let (rows, held) = (buckets.rows(), Self::memory_bytes(buckets));
        let mut memory = context.reserve(held, PURPOSE)?;
        let starts = starts(buckets.extents());
        let free = context.budget().free();
        let sizes = PartitionSizes::within(free / 4, rows.div_ceil(SORTED_AT_ONCE));
        let of_partitions = context.reserve(sizes.memory_bytes(), PURPOSE)?;
        let mut partitions = Partitions::new(context, temporary, "adjoin-vertices", sizes);
        let nearest = hash_all(context, buckets, centers, free / 8, &mut |number, seen| {
            let place = starts[number as usize];
            (place..).zip(&seen.hashes).try_for_each(|(place, &(hash, row))| {
                // Equal vectors have equal hashes, so they are in the same partition.
                let partition = (hash >> 64) as u64 % sizes.partitions as u64;
                partitions.push(partition as usize, &[&hash.to_le_bytes(), &packed(row), &place.to_le_bytes()])
            })
        })?;
        let records = partitions.finish()?;
        let mut places = RowSet::new(rows);
        let mut others = Vec::new();
        for partition in 0..sizes.partitions {
            context.cancel.check()?;
            let (mut some, _of_some) = read(context, &records, partition)?;
            // Records are sorted by hash and then by row. The first of several records with equal hashes represents the
            // vertex.
            some.sort_unstable();
            for equal in some.chunk_by(|a, b| a.0 == b.0) {
                let first = equal[0].2;
                places.insert(first.into());
                others.extend(equal[1..].iter().map(|&(_, _, place)| (place, first)));
            }
            context.grow(&mut memory, held + (others.capacity() * size_of::<(u32, u32)>()) as u64, PURPOSE)?;
        }
        drop((records, of_partitions));
        let places = RankedSet::new(places);
        others.sort_unstable();
        // Vertices are numbered by place, which is known only once all partitions are read.
        others.iter_mut().for_each(|other| other.1 = places.rank(other.1));
        let mut map = Self { places, others, starts, representatives: Vec::new(), _memory: memory };
        let vertex = |(&start, member): (&u32, Option<u32>)| member.map(|member| map.vertex_at(start + member));
        map.representatives = map.starts.iter().zip(nearest).map(vertex).collect();
        Ok(map)
    }

    pub(super) fn len(&self) -> u32 {
        self.places.len()
    }

    /// Returns the vertex of the row at a place.
    pub(super) fn vertex_at(&self, place: u32) -> u32 {
        if self.places.contains(place) {
            return self.places.rank(place);
        }
        let at = self.others.binary_search_by_key(&place, |other| other.0).expect("each place has a vertex");
        self.others[at].1
    }

    /// Returns the vertex of a member of a bucket, and whether the member represents it.
    pub(super) fn vertex_of(&self, bucket: u32, member: u32) -> (u32, bool) {
        let place = self.starts[bucket as usize] + member;
        (self.vertex_at(place), self.places.contains(place))
    }

    /// Returns the vertices of a bucket, which are the vertices that its members represent.
    pub(super) fn of_bucket(&self, bucket: u32) -> Range<u32> {
        let [start, end] = [bucket, bucket + 1].map(|bucket| self.places.rank(self.starts[bucket as usize]));
        start..end
    }

    /// Returns the members of a bucket that represent vertices, each with its vertex.
    pub(super) fn standing(&self, bucket: u32) -> impl Iterator<Item = (u32, u32)> {
        let [start, end] = [bucket, bucket + 1].map(|bucket| self.starts[bucket as usize]);
        (start..end)
            .filter(|&place| self.places.contains(place))
            .map(move |place| place - start)
            .zip(self.of_bucket(bucket))
    }

    /// Returns the position of a place in `others`, or `None` if the row at this place represents a vertex.
    pub(super) fn other_at(&self, place: u32) -> Option<usize> {
        self.others.binary_search_by_key(&place, |other| other.0).ok()
    }

    /// Returns whether several rows share a vertex.
    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the subset of all members that represent vertices.
    pub(super) fn subset(&self) -> Subset<'_> {
        Subset { places: &self.places, starts: &self.starts }
    }
}

/// Hashes the members of all buckets and passes the results to `take`, in order. Returns the member of each bucket that
/// is nearest to the center.
fn hash_all<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    centers: &Panel<T>,
    free: u64,
    take: &mut dyn FnMut(u32, &BucketVertices) -> Result<()>,
) -> Result<Vec<Option<u32>>> {
    let memory = read_ahead_bytes(buckets.extents(), false, free);
    let _reading = context.reserve(memory, PURPOSE)?;
    context.progress.begin("load", "buckets", buckets.count().into());
    let loads = Load::each(buckets.count());
    let mut ahead = ReadAhead::new(context, "index", buckets, false, memory, loads, &context.cancel)?;
    // A few buckets are processed at a time, so that few results are in memory.
    let mut nearest = Vec::with_capacity(buckets.count() as usize);
    loop {
        let mut left = 4 * context.threads;
        let next = || {
            context.cancel.check()?;
            if left == 0 {
                return Ok(None);
            }
            left -= 1;
            ahead.next_bucket()
        };
        let seen = map_stream(context.threads, next, || (), |(), stored| see(context, buckets, centers, &stored))?;
        if seen.is_empty() {
            return Ok(nearest);
        }
        for seen in seen {
            take(nearest.len() as u32, &seen)?;
            nearest.push(seen.nearest);
            context.progress.advance(nearest.len() as u64);
        }
    }
}

fn see<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    centers: &Panel<T>,
    stored: &StoredBucket,
) -> Result<BucketVertices> {
    let decoded = stored.decode(buckets)?;
    let vectors = &stored.bytes()[decoded.vectors];
    let bytes = buckets.vectors().bytes();
    let hashes: Vec<(u128, u64)> = vectors.chunks_exact(bytes).map(xxh3_128).zip(decoded.rows).collect();
    let mut panel = Panel::zeroed(hashes.len(), buckets.space().dimensions());
    T::load(buckets.space(), context.kernel, vectors, &mut panel);
    let mut distances = vec![T::Distance::default(); hashes.len()];
    context.kernel.one_to_many(centers.row(stored.number() as usize), &panel, &mut distances);
    let nearest = (0..).zip(distances).min_by_key(|&(_, distance)| T::distance_key(distance));
    Ok(BucketVertices { hashes, nearest: nearest.map(|(member, _)| member) })
}

/// Hash of a row's vector, the row, and its place.
type Hashed = (u128, u64, u32);

/// Reads the records of a partition.
fn read(context: &Context, records: &Records, partition: usize) -> Result<(Vec<Hashed>, Reservation)> {
    let count = records.bytes(partition) as usize / RECORD_BYTES;
    let memory = context.reserve((count * size_of::<Hashed>()) as u64, PURPOSE)?;
    let mut all: Vec<Hashed> = Vec::with_capacity(count);
    records.read(partition, |block| {
        all.extend(block.as_chunks::<RECORD_BYTES>().0.iter().map(|record| {
            let (hash, rest) = record.split_first_chunk::<16>().expect("a record begins with a hash");
            let (row, place) = rest.split_at(ROW_BYTES);
            let place = place.iter().rev().fold(0, |place, &byte| place << 8 | u32::from(byte));
            (u128::from_le_bytes(*hash), unpacked(row), place)
        }));
        Ok(())
    })?;
    Ok((all, memory))
}
