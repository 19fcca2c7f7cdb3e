//! Orders of the queries of a batch, or of the buckets that the queries probe.

use std::str::FromStr;

use super::grouping::{Reading, group};
use super::loaders::greedy_packing;
use super::overlap::Bitmaps;
use super::residency::Residency;
use adjoin::{Error, Result};

/// Default threshold of a group in CALL (section V-A).
pub(crate) const THETA: f64 = 0.3;
/// Number of concurrent loaders in the paper's setup.
const LOADERS: usize = 8;
/// Minimum size of a bucket that reaches the full rate of a disk on its own, in bytes. Smaller neighbors are read
/// together.
const ALONE_BYTES: u64 = 256 << 10;

/// How a batch is executed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BatchOrder {
    /// Query by query, in their order of arrival.
    Arrival,
    /// Query by query, with queries that probe similar buckets next to each other (CALL, section IV).
    Grouped {
        /// Threshold of a group.
        theta: f64,
        /// Meaning of the threshold.
        reading: Reading,
        /// Whether the buckets of the first query of a group are loaded right after the last query of the previous
        /// group (equation 6).
        prefetches: bool,
    },
    /// Bucket by bucket. Each bucket is compared with all of its queries at once. Buckets in memory are first. While
    /// they are compared, the others are read: first the large ones in descending order of size, then the rest in the
    /// order on disk.
    BucketMajor,
}

impl BatchOrder {
    /// All orders, with the paper's threshold.
    pub(crate) const ALL: [Self; 5] = [
        Self::Arrival,
        Self::Grouped { theta: THETA, reading: Reading::Similarity, prefetches: false },
        Self::Grouped { theta: THETA, reading: Reading::Similarity, prefetches: true },
        Self::Grouped { theta: THETA, reading: Reading::Distance, prefetches: true },
        Self::BucketMajor,
    ];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Grouped { prefetches: false, .. } => "grouped",
            Self::Grouped { reading: Reading::Similarity, .. } => "call",
            Self::Grouped { reading: Reading::Distance, .. } => "call-distance",
            Self::BucketMajor => "bucket-major",
        }
    }
}

impl FromStr for BatchOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|order| order.name()).collect();
            Error::option(format!("no such order of a batch: {name}; choose one of {}", names.join(", ")))
        })
    }
}

/// Buckets that are compared together when all of them are in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Buckets to compare. Missing buckets are loaded in this order.
    pub(super) buckets: Vec<u32>,
    /// Query to compare the buckets with. `None` stands for all queries that probe the bucket.
    pub(super) query: Option<u32>,
    /// Buckets to load after the comparison.
    pub(super) prefetch: Vec<u32>,
}

/// Returns the pieces of a batch, and the number of groups of queries. `lists` has the buckets that each query
/// probes.
pub(super) fn pieces(order: BatchOrder, lists: &[Vec<u32>], cache: &Residency) -> Vec<Piece> {
    let size = |bucket| cache.size(bucket);
    let of_query = |query: u32, buckets: Vec<u32>| Piece { buckets, query: Some(query), prefetch: Vec::new() };
    match order {
        BatchOrder::Arrival => {
            let ascending = |list: &Vec<u32>| {
                let mut buckets = list.clone();
                buckets.sort_unstable();
                buckets
            };
            (0..).zip(lists).map(|(query, list)| of_query(query, ascending(list))).collect()
        }
        BatchOrder::Grouped { theta, reading, prefetches } => {
            let packed = |query: u32| greedy_packing(&lists[query as usize], size, LOADERS);
            let groups = group(&Bitmaps::new(lists, cache.buckets() as u32), theta, reading);
            let mut pieces: Vec<Piece> = Vec::new();
            for group in &groups {
                if let Some(last) = pieces.last_mut().filter(|_| prefetches) {
                    last.prefetch = packed(group[0]);
                }
                pieces.extend(group.iter().map(|&query| of_query(query, packed(query))));
            }
            pieces
        }
        BatchOrder::BucketMajor => {
            let of_bucket = |bucket| Piece { buckets: vec![bucket], query: None, prefetch: Vec::new() };
            bucket_major(lists, cache).into_iter().map(of_bucket).collect()
        }
    }
}

/// Returns all buckets that queries of the batch probe, each once.
fn bucket_major(lists: &[Vec<u32>], cache: &Residency) -> Vec<u32> {
    let mut wanted = vec![false; cache.buckets()];
    lists.iter().flatten().for_each(|&bucket| wanted[bucket as usize] = true);
    let mut buckets: Vec<u32> = (0..wanted.len() as u32).filter(|&bucket| wanted[bucket as usize]).collect();
    let largest_first = |bucket: u32| std::cmp::Reverse(cache.size(bucket));
    buckets.sort_by_key(|&bucket| match (cache.holds(bucket), cache.size(bucket) >= ALONE_BYTES) {
        (true, _) => (0, largest_first(bucket)),
        (false, true) => (1, largest_first(bucket)),
        (false, false) => (2, std::cmp::Reverse(0)),
    });
    buckets
}
