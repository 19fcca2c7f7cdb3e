//! Schedules carried out over small stores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use adjoin_device::MemoryBudget;

use super::*;
use crate::context::Context;
use crate::output::Target;
use crate::plan::{BucketGraph, CacheStart, Policy, schedule};
use crate::source::{self, Generated};
use crate::store::{BuildOptions, Store, build};

const ROWS: u64 = 600;

fn store(folder: &std::path::Path) -> Store {
    let context = Context::default();
    let vectors = crate::options::VectorType { element: crate::options::Element::U8, dimensions: 8 };
    let file = folder.join("vectors.u8bin");
    let what = Generated { rows: ROWS, vectors, hardness: 1.0, seed: 1 };
    source::generate(&context, &what, &Target::File { path: file.clone(), force: false }).unwrap();
    let opened = source::open(&context, &[file.display().to_string()], &Default::default()).unwrap();
    let options = BuildOptions { buckets: Some(20), ..BuildOptions::default() };
    build(&context, &*opened, &folder.join("store"), &options).unwrap();
    Store::open(&context, &folder.join("store")).unwrap()
}

/// Hands over the rows of each pair of buckets.
struct Meetings<'a> {
    /// Whether to panic at the first.
    panics: &'a AtomicBool,
}

impl Visitor<u8> for Meetings<'_> {
    type Batch = (Task, usize);
    type Report = usize;

    fn visit(
        &mut self,
        task: Task,
        (a, b): (&LoadedBucket<u8>, &LoadedBucket<u8>),
        emit: &mut dyn FnMut(Self::Batch),
    ) -> Result<()> {
        assert!(!self.panics.load(Ordering::Relaxed), "a visitor panics");
        emit((task, a.len() * b.len()));
        Ok(())
    }

    fn finish(self, _emit: &mut dyn FnMut(Self::Batch)) -> usize {
        1
    }
}

struct Setting<'a> {
    context: Context,
    buckets: &'a Buckets<'a>,
    centers: Panel<u8>,
    sizes: BucketSizes,
}

impl<'a> Setting<'a> {
    fn new(buckets: &'a Buckets<'a>) -> Self {
        let memory = |extent| LoadedBucket::<u8>::memory_bytes(extent, buckets.vectors(), buckets.metric(), false);
        let sizes = BucketSizes {
            extents: buckets.extents().iter().map(|extent| extent.bytes(false)).collect(),
            memory: buckets.extents().iter().map(memory).collect(),
        };
        let mut context = Context::default();
        context.threads = 2;
        Self { context, buckets, centers: buckets.centers().unwrap(), sizes }
    }

    /// Every bucket with every other, by a cache of these bytes that holds some already.
    fn all_pairs(&self, capacity: u64, resident: &[u32]) -> Schedule {
        let buckets = self.buckets.count();
        let edges = (0..buckets).flat_map(|i| (i + 1..buckets).map(move |j| (i, j))).collect();
        let graph = BucketGraph { buckets: buckets as usize, edges };
        schedule(graph, &self.sizes, CacheStart { capacity, policy: Policy::Lru, resident }, None)
    }

    /// The pairs of rows that meet.
    fn run(&self, schedule: &Schedule, cache: &mut Cache<u8>, panics: bool) -> Result<usize> {
        let Self { context, buckets, centers, sizes } = self;
        let read_ahead = crate::load::least_read_ahead(buckets.extents(), false);
        let execution =
            Execution { context, buckets, centers, sizes, schedule, with_ids: false, read_ahead, phase: "test" };
        let (panics, mut met) = (AtomicBool::new(panics), 0);
        let visitor = || Meetings { panics: &panics };
        let take = |(task, pairs): (Task, usize)| {
            met += if task.0 == task.1 { 0 } else { pairs };
            Ok(())
        };
        let reports = execution.run(cache, visitor, take, &Waits::default())?;
        assert_eq!(reports.len(), 2, "one of each worker");
        Ok(met)
    }

    fn pairs_of_different_buckets(&self) -> usize {
        let rows = || self.buckets.extents().iter().map(|extent| extent.rows as usize);
        (rows().sum::<usize>().pow(2) - rows().map(|rows| rows * rows).sum::<usize>()) / 2
    }
}

#[test]
fn a_small_cache_visits_what_a_large_one_does_and_a_warm_one_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::of(&store);
    let setting = Setting::new(&buckets);
    let all: u64 = setting.sizes.memory.iter().sum();
    let mut warm = Cache::new(MemoryBudget::new(all), setting.sizes.memory.len());
    for capacity in [setting.sizes.two_largest(), all] {
        let before = buckets.read_counts().bytes_requested;
        let schedule = setting.all_pairs(capacity, &[]);
        let mut cache = Cache::new(MemoryBudget::new(capacity), setting.sizes.memory.len());
        assert_eq!(setting.run(&schedule, &mut cache, false).unwrap(), setting.pairs_of_different_buckets());
        assert_eq!(buckets.read_counts().bytes_requested - before, schedule.counts.bytes, "as planned");
        warm = cache;
    }
    let schedule = setting.all_pairs(all, &warm.resident());
    let before = buckets.read_counts();
    assert_eq!(setting.run(&schedule, &mut warm, false).unwrap(), setting.pairs_of_different_buckets());
    assert_eq!((schedule.counts.loads, buckets.read_counts()), (0, before));
}

#[test]
fn buckets_of_two_stores_are_numbered_one_behind_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::over(&[&store, &store]).unwrap();
    let count = store.extents().len() as u32;
    assert_eq!((buckets.count(), buckets.rows(), buckets.at(count).1), (2 * count, 2 * ROWS, 0));
    let setting = Setting::new(&buckets);
    let schedule = setting.all_pairs(setting.sizes.two_largest(), &[]);
    let mut cache = Cache::new(MemoryBudget::new(schedule.capacity), setting.sizes.memory.len());
    assert_eq!(setting.run(&schedule, &mut cache, false).unwrap(), setting.pairs_of_different_buckets());
}

#[test]
#[should_panic(expected = "a scoped thread panicked")]
fn a_panic_of_a_worker_ends_the_execution() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::of(&store);
    let setting = Setting::new(&buckets);
    let schedule = setting.all_pairs(setting.sizes.two_largest(), &[]);
    let mut cache = Cache::new(MemoryBudget::new(schedule.capacity), setting.sizes.memory.len());
    let _ = setting.run(&schedule, &mut cache, true);
}

/// Waits in its first visit until as many workers as there are have begun one.
struct Together<'a> {
    begun: &'a AtomicUsize,
    has_begun: bool,
}

impl Visitor<u8> for Together<'_> {
    type Batch = ();
    type Report = bool;

    fn visit(
        &mut self,
        _task: Task,
        _buckets: (&LoadedBucket<u8>, &LoadedBucket<u8>),
        _emit: &mut dyn FnMut(()),
    ) -> Result<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begun.fetch_add(1, Ordering::Relaxed);
            let since = Instant::now();
            while self.begun.load(Ordering::Relaxed) < 2 {
                assert!(since.elapsed() < Duration::from_secs(60), "the other worker has not begun");
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn finish(self, _emit: &mut dyn FnMut(())) -> bool {
        self.has_begun
    }
}

#[test]
fn workers_work_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::of(&store);
    let setting = Setting::new(&buckets);
    let schedule = &setting.all_pairs(setting.sizes.memory.iter().sum(), &[]);
    let mut cache = Cache::new(MemoryBudget::new(schedule.capacity), setting.sizes.memory.len());
    let Setting { context, buckets, centers, sizes } = &setting;
    let read_ahead = crate::load::least_read_ahead(buckets.extents(), false);
    let execution =
        Execution { context, buckets, centers, sizes, schedule, with_ids: false, read_ahead, phase: "test" };
    let begun = AtomicUsize::new(0);
    let visitor = || Together { begun: &begun, has_begun: false };
    let reports = execution.run(&mut cache, visitor, |()| Ok(()), &Waits::default()).unwrap();
    assert_eq!(reports, [true, true]);
}
