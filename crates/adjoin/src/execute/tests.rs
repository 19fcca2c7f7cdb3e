//! Tests that execute schedules over small stores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use adjoin_device::{FileSystem, MemoryBudget, Operation, Recorder, Trace, TracedOperation};

use super::*;
use crate::base::context::Context;
use crate::base::output::Target;
use crate::plan::{BucketGraph, CacheStart, Lead, Policy, schedule, tasks_of};
use crate::source::{self, Generated};
use crate::store::{BuildOptions, Store};

const ROWS: u64 = 600;

/// Builds a store of 20 buckets.
pub(crate) fn store(folder: &std::path::Path) -> Store {
    let context = Context::default();
    let vectors = crate::base::options::VectorType { element: crate::base::options::Element::U8, dimensions: 8 };
    let file = folder.join("vectors.u8bin");
    let what = Generated { rows: ROWS, vectors, hardness: 1.0, seed: 1 };
    what.write(&context, &Target::File { path: file.clone(), force: false }).unwrap();
    let opened = source::open(&context, &[file.display().to_string()], &Default::default()).unwrap();
    let options = BuildOptions { buckets: Some(20), ..BuildOptions::default() };
    Store::build(&context, &*opened, &folder.join("store"), &options).unwrap();
    Store::open(&context, &folder.join("store")).unwrap()
}

/// Visitor that emits the number of row pairs of each pair of buckets.
struct Meetings<'a> {
    /// Whether to panic at the first visit.
    panics: &'a AtomicBool,
}

impl Visitor<u8> for Meetings<'_> {
    type Batch = (Task, usize);
    type Report = usize;

    fn visit(&mut self, visits: &[Loaded<'_, u8>], emit: &mut dyn FnMut(Self::Batch)) -> Result<()> {
        assert!(!self.panics.load(Ordering::Relaxed), "a visitor panics");
        visits.iter().for_each(|Loaded { task, a, b }| emit((*task, a.len() * b.len())));
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
    read_ahead: u64,
}

impl<'a> Setting<'a> {
    fn new(buckets: &'a Buckets<'a>) -> Self {
        let memory = |number| LoadedBucket::<u8>::memory_bytes(buckets, number, false);
        let sizes = BucketSizes {
            extents: buckets.extents().iter().map(|extent| extent.bytes(false)).collect(),
            memory: (0..buckets.count()).map(memory).collect(),
        };
        let mut context = Context::default();
        context.threads = 2;
        let read_ahead = crate::load::least_read_ahead(buckets.extents(), false);
        Self { context, buckets, centers: buckets.centers().unwrap(), sizes, read_ahead }
    }

    /// Returns a schedule that compares every bucket with every other, for a cache of `capacity` bytes.
    fn all_pairs(&self, capacity: u64, policy: Policy) -> Schedule {
        let start = CacheStart { capacity, policy };
        let buckets = self.buckets.count();
        let edges = (0..buckets).flat_map(|i| (i + 1..buckets).map(move |j| (i, j))).collect();
        let graph = BucketGraph { buckets: buckets as usize, edges };
        schedule(tasks_of(graph, &Vec::from_iter(0..buckets)), &self.sizes, start, &[Lead::Left])
    }

    fn execution<'s>(&'s self, schedule: &'s Schedule) -> Execution<'s, u8> {
        let Self { ref context, buckets, ref centers, ref sizes, read_ahead } = *self;
        let (done_before, with_ids, phase) = (0, false, "test");
        Execution { context, buckets, centers, sizes, schedule, done_before, with_ids, read_ahead, phase }
    }

    /// Executes the schedule. Returns the number of row pairs of different buckets.
    fn run(&self, schedule: &Schedule, cache: &mut Cache<u8>, panics: bool) -> Result<usize> {
        let execution = self.execution(schedule);
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
fn a_small_cache_visits_what_a_large_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::of(&store);
    let setting = Setting::new(&buckets);
    let all: u64 = setting.sizes.memory.iter().sum();
    for capacity in [setting.sizes.two_largest(), all] {
        let before = buckets.read_counts().bytes_requested;
        let schedule = setting.all_pairs(capacity, Policy::Lru);
        let mut cache = Cache::new(MemoryBudget::new(capacity), setting.sizes.memory.len());
        assert_eq!(setting.run(&schedule, &mut cache, false).unwrap(), setting.pairs_of_different_buckets());
        assert_eq!(buckets.read_counts().bytes_requested - before, schedule.counts.bytes, "as planned");
    }
}

#[test]
fn buckets_of_two_stores_are_numbered_consecutively() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let buckets = Buckets::over(&[&store, &store]).unwrap();
    let count = store.extents().len() as u32;
    assert_eq!((buckets.count(), buckets.rows(), buckets.at(count).1), (2 * count, 2 * ROWS, 0));
    let setting = Setting::new(&buckets);
    let schedule = setting.all_pairs(setting.sizes.two_largest(), Policy::Lru);
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
    let schedule = setting.all_pairs(setting.sizes.two_largest(), Policy::Lru);
    let mut cache = Cache::new(MemoryBudget::new(schedule.capacity), setting.sizes.memory.len());
    let _ = setting.run(&schedule, &mut cache, true);
}

/// Visitor that blocks its first visit until every worker has begun one.
struct Together<'a> {
    begun: &'a AtomicUsize,
    has_begun: bool,
}

impl Visitor<u8> for Together<'_> {
    type Batch = ();
    type Report = bool;

    fn visit(&mut self, _visits: &[Loaded<'_, u8>], _emit: &mut dyn FnMut(())) -> Result<()> {
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
    let schedule = &setting.all_pairs(setting.sizes.memory.iter().sum(), Policy::Lru);
    let mut cache = Cache::new(MemoryBudget::new(schedule.capacity), setting.sizes.memory.len());
    let execution = setting.execution(schedule);
    let begun = AtomicUsize::new(0);
    let visitor = || Together { begun: &begun, has_begun: false };
    let reports = execution.run(&mut cache, visitor, |()| Ok(()), &Waits::default()).unwrap();
    assert_eq!(reports, [true, true]);
}

/// Records the reads of an execution, in the order of submission, with their causes from the trace.
fn reads_of(store: &std::path::Path, policy: Policy, buckets_held: usize, read_ahead: u64) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Arc::new(Recorder::create(Arc::new(FileSystem::detect().0), &path).unwrap());
    let mut context = Context::default();
    context.device = recorder.clone();
    let store = Store::open(&context, store).unwrap();
    let buckets = Buckets::of(&store);
    let mut setting = Setting::new(&buckets);
    setting.context.device = context.device;
    setting.read_ahead = setting.read_ahead.max(read_ahead);
    let capacity = setting.sizes.memory.iter().max().unwrap() * buckets_held as u64;
    let schedule = setting.all_pairs(capacity, policy);
    let mut cache = Cache::new(MemoryBudget::new(capacity), setting.sizes.memory.len());
    setting.run(&schedule, &mut cache, false).unwrap();
    recorder.finish().unwrap();
    let trace = Trace::parse(&std::fs::read(path).unwrap()).unwrap();
    let queued = trace.operations().iter().filter(|read| read.consumer.map(|who| trace.consumer(who)) == Some("test"));
    let mut reads: Vec<TracedOperation> = queued.copied().collect();
    assert!(reads.iter().all(|read| read.ok && read.operation == Operation::Read));
    reads.sort_by_key(|read| read.start_ns);
    let mut task = 0;
    let mut loads = Vec::new();
    for step in schedule.steps(&setting.sizes) {
        match step {
            Step::Load(bucket) => loads.push((bucket, task)),
            Step::Verify(_) => task += 1,
            Step::Evict(_) => {}
        }
    }
    let within = |read: &TracedOperation| -> Vec<u32> {
        let lies_in = |at: u64| (read.offset..read.offset + read.bytes).contains(&at);
        let numbered = (0..).zip(buckets.extents());
        numbered.filter(|(_, extent)| lies_in(extent.offset)).map(|(number, _)| number).collect()
    };
    let reads = reads.into_iter().map(|read| (within(&read), read)).collect();
    Recorded { reads, loads }
}

struct Recorded {
    /// The buckets of each read.
    reads: Vec<(Vec<u32>, TracedOperation)>,
    /// Each bucket that the schedule loads, with the number of the task that needs it.
    loads: Vec<(u32, u64)>,
}

#[test]
fn traces_record_the_task_and_dependency_of_each_read() {
    let folder = tempfile::tempdir().unwrap();
    drop(store(folder.path()));
    let path = folder.path().join("store");
    for (policy, held, read_ahead) in
        [(Policy::Belady, 2, 0), (Policy::Belady, 5, 16 << 10), (Policy::Lru, 3, 0), (Policy::Lru, 7, 1 << 20)]
    {
        let Recorded { reads, loads } = reads_of(&path, policy, held, read_ahead);
        let what = format!("{policy:?}, {held} held, {read_ahead} ahead");
        let mut upcoming = loads.iter();
        for (buckets, read) in &reads {
            let needed: Vec<(u32, u64)> = upcoming.by_ref().take(buckets.len()).copied().collect();
            assert_eq!(*buckets, needed.iter().map(|load| load.0).collect::<Vec<_>>(), "{what}");
            assert_eq!(read.step, Some(needed[0].1), "{what}: the first of {needed:?}");
        }
        assert_eq!(upcoming.next(), None, "{what}");
        for (_, read) in reads.iter().filter(|(_, read)| read.after.is_some()) {
            let before = || reads.iter().filter(|(_, earlier)| earlier.step <= read.after);
            assert!(read.after < read.step && before().any(|(_, earlier)| earlier.step == read.after), "{what}");
            let ended = |earlier: &TracedOperation| earlier.start_ns + earlier.duration_ns <= read.start_ns;
            assert!(before().all(|(_, earlier)| ended(earlier)), "{what}: {read:?}");
        }
        let waiting = reads.iter().filter(|(_, read)| read.after.is_some()).count();
        if read_ahead == 0 {
            assert!(waiting > 2 * reads.len() / 3, "{what}: {waiting} of {} wait", reads.len());
        }
        if read_ahead >= 1 << 20 {
            assert!(reads.iter().take(8).all(|(_, read)| read.after.is_none()), "{what}: nothing is in the way");
        }
    }
}
