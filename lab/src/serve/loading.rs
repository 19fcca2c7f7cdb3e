//! Loads the buckets of queries with several loaders, and measures their balance in bytes and in seconds.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use adjoin::{
    Context, Error, Result, Store,
    device::{AlignedBuffer, ReadFile},
};
use serde_json::json;

use crate::batches::{Assignment, finish_times, greedy_packing};

/// Number of loaders in the paper's setup.
const LOADERS: usize = 8;
/// Number of queries whose buckets are loaded.
const LOADED: usize = 100;
/// Ways to load: their names, whether buckets are ordered by greedy packing, and how loaders get them.
const WAYS: [(&str, bool, Assignment); 4] = [
    ("round-robin", false, Assignment::RoundRobin),
    ("greedy-packing", true, Assignment::RoundRobin),
    ("shared", false, Assignment::Shared),
    ("greedy-packing-shared", true, Assignment::Shared),
];

/// The open file of a store's buckets, and the place of each bucket in it.
struct Loads {
    file: Arc<dyn ReadFile>,
    /// First byte and number of bytes of each bucket, both rounded to the alignment of reads.
    places: Vec<(u64, usize)>,
}

/// Sums over the queries: bytes of the last loader, mean bytes of a loader, and seconds until the last loader ends.
#[derive(Clone, Copy, Default)]
struct Balance {
    last: u64,
    mean: u64,
    seconds: f64,
}

/// Prints Figures 6 and 14: for each way, the bytes that the last loader of a query reads, their mean over all loaders, and
/// the milliseconds until the last loader ends. All figures are means over the queries. The reads bypass the page cache, and
/// no bucket is kept. A query is loaded once before it is measured, and the first way changes from query to query, so that
/// caches of the device favor no way.
pub(super) fn print(context: &Context, store: &Store, lists: &[Vec<u32>]) -> Result<()> {
    let (loads, lists) = (Loads::open(context, store)?, &lists[..LOADED.min(lists.len())]);
    let extents: Vec<u64> = store.extents().iter().map(|extent| extent.bytes(false)).collect();
    let size = |bucket: u32| extents[bucket as usize];
    let mut balances = [Balance::default(); WAYS.len()];
    for (query, list) in lists.iter().enumerate() {
        let mut by_number = list.clone();
        by_number.sort_unstable();
        let packed = greedy_packing(&by_number, size, LOADERS);
        loads.load(&by_number, Assignment::Shared)?;
        for way in (0..WAYS.len()).map(|way| (way + query) % WAYS.len()) {
            let (_, packs, assignment) = WAYS[way];
            let order = if packs { &packed } else { &by_number };
            let sizes: Vec<u64> = order.iter().map(|&bucket| size(bucket)).collect();
            let ends = finish_times(&sizes, LOADERS, assignment);
            balances[way].last += ends.iter().max().unwrap();
            balances[way].mean += ends.iter().sum::<u64>() / ends.len() as u64;
            balances[way].seconds += loads.load(order, assignment)?;
        }
    }
    for ((name, ..), Balance { last, mean, seconds }) in WAYS.iter().zip(balances) {
        let of_query = |sum: f64| sum / lists.len() as f64;
        let (last, mean, ms) = (of_query(last as f64), of_query(mean as f64), of_query(1e3 * seconds));
        println!("{}", json!({"what": "loading", "order": name, "last": last, "mean": mean, "ms": ms}));
    }
    Ok(())
}

impl Loads {
    fn open(context: &Context, store: &Store) -> Result<Self> {
        let entries = std::fs::read_dir(store.folder()).map_err(|error| Error::input(error.to_string()))?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_vectors =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vectors-"));
        let path = paths.find(is_vectors).ok_or_else(|| Error::input("the store has no file of buckets"))?;
        let file = context.device.open(&path)?;
        let block = file.alignment() as u64;
        let places = store.extents().iter().map(|extent| {
            let start = extent.offset / block * block;
            let end = (extent.offset + extent.bytes(false)).next_multiple_of(block).min(file.len());
            (start, (end - start) as usize)
        });
        Ok(Self { places: places.collect(), file })
    }

    /// Loads buckets in an order. Returns the seconds from the moment at which all loaders are ready to the end of the last.
    fn load(&self, order: &[u32], assignment: Assignment) -> Result<f64> {
        let (next, ready) = (AtomicUsize::new(0), Barrier::new(LOADERS));
        let largest = order.iter().map(|&bucket| self.places[bucket as usize].1).max().unwrap_or(0);
        let loader = |number: usize| -> Result<(Instant, Instant)> {
            let mut buffer = AlignedBuffer::zeroed(largest);
            // Writes to each page, so that the system provides its memory now.
            buffer.fill(1);
            ready.wait();
            let begun = Instant::now();
            for turn in 0.. {
                let at = match assignment {
                    Assignment::RoundRobin => turn * LOADERS + number,
                    Assignment::Shared => next.fetch_add(1, Ordering::Relaxed),
                };
                let Some(&bucket) = order.get(at) else { break };
                let (offset, bytes) = self.places[bucket as usize];
                self.file.read_at(offset, &mut buffer[..bytes])?;
            }
            Ok((begun, Instant::now()))
        };
        let times = std::thread::scope(|scope| {
            let loader = &loader;
            let loaders: Vec<_> = (0..LOADERS).map(|number| scope.spawn(move || loader(number))).collect();
            let times = loaders.into_iter().map(|loader| loader.join().expect("the thread does not panic"));
            times.collect::<Result<Vec<_>>>()
        })?;
        let first = times.iter().map(|(begun, _)| *begun).min().unwrap();
        let last = times.iter().map(|(_, ended)| *ended).max().unwrap();
        Ok((last - first).as_secs_f64())
    }
}
