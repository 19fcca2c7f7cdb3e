//! Causes of reads in the trace of a join: the consumer, the step, and the step that had to end before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adjoin::{
    Collect, Element, JoinEffort, JoinOptions, Predicate, Store,
    device::{FileSystem, Operation, Recorder, Trace, TracedOperation},
    lab::{
        join::resume,
        load::{Buckets, ReadAhead, least_read_ahead},
        plan::{Lead, Load, Order, Rule, Task, sort_tasks},
    },
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Setup, assert_same};

const BUCKETS: u32 = 40;

/// Trace of a join.
struct Recorded {
    /// Offsets of start and end of each bucket in the file of vectors.
    extents: Vec<(u64, u64)>,
    /// Tasks in the order in which they ran.
    tasks: Vec<Task>,
    trace: Trace,
}

/// Joins a store in tree order, with and without a recorder. Checks that the pairs are equal. Returns the trace.
fn recorded(built: &Built, setup: &Setup, options: &JoinOptions) -> Recorded {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace");
    let recorder = Arc::new(Recorder::create(Arc::new(FileSystem::detect().0), &path).unwrap());
    let context = setup.context_on(recorder.clone());
    let store = Store::open(&context, &built.path()).unwrap();
    let (sink, mut ordered) = (Collect::default(), Vec::new());
    let prepared = options.prepare(&context, &store, false).unwrap();
    let (capacity, sizes) = prepared.cache();
    let sort = |tasks: &mut [Task]| {
        sort_tasks(tasks, &sizes.memory, capacity, Order::Tree, Lead::Left);
        ordered = tasks.to_vec();
    };
    let plan = prepared.plan(&store).reordered(Order::Tree.name(), Lead::Left, sort, |_| None);
    let prepared = resume(&context, &store, plan).unwrap();
    prepared.run(&context, &store, Box::new(sink.clone())).unwrap();
    recorder.finish().unwrap();
    assert_same(&sink.pairs(), &built.join_with(setup, options).unwrap().pairs, "with a recorder");
    let extents = store.extents().iter().map(|extent| (extent.offset, extent.offset + extent.bytes(false))).collect();
    Recorded { extents, tasks: ordered, trace: Trace::parse(&std::fs::read(path).unwrap()).unwrap() }
}

/// Returns the reads of the store's vectors for each consumer, in the order in which they ended.
fn reads_of(trace: &Trace) -> BTreeMap<&str, Vec<&TracedOperation>> {
    let mut reads: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let of_vectors = |read: &&TracedOperation| {
        read.operation == Operation::Read && trace.name(read.file).to_string_lossy().contains("vectors")
    };
    for read in trace.operations().iter().filter(of_vectors) {
        assert!(read.ok && read.step.is_some(), "{read:?}");
        reads.entry(trace.consumer(read.consumer.expect("somebody asked"))).or_default().push(read);
    }
    reads
}

fn end(read: &TracedOperation) -> u64 {
    read.start_ns + read.duration_ns
}

/// Checks that no read began before the step that it depends on had ended. Returns the number of reads that depend on
/// a step.
fn count_dependent(reads: &[&TracedOperation]) -> usize {
    let mut ends = BTreeMap::new();
    let mut dependent = 0;
    for read in reads {
        if let Some(after) = read.after {
            assert!(Some(after) < read.step && ends[&after] <= read.start_ns, "{read:?}");
            dependent += 1;
        }
        ends.insert(read.step.unwrap(), end(read));
    }
    dependent
}

#[test]
fn traced_reads_before_a_task_include_its_buckets() {
    let set = make(Shape::Uniform, Element::U8, 1_200, 64, 1);
    let setup = Setup { cache_bytes: Some(24 << 10), ..Setup::default() }.with_buckets(BUCKETS);
    let built = setup.build(&set).unwrap();
    let options = setup.join_options(Predicate::L2 { eps: 10_000.0 });
    let Recorded { extents, tasks, trace } = recorded(&built, &setup, &options);
    assert_eq!(tasks.len() as u32, BUCKETS * (BUCKETS + 1) / 2, "all buckets are near each other");

    let reads = reads_of(&trace);
    assert_eq!(reads.keys().copied().collect::<Vec<_>>(), ["join", "plan", "sample"]);
    let mut reads: Vec<&TracedOperation> = reads["join"].clone();
    assert!(count_dependent(&reads) > 0);
    reads.sort_by_key(|read| read.start_ns);
    assert!(reads.is_sorted_by_key(|read| read.step), "asked for in the order of their steps");
    assert!(reads.len() > 2 * BUCKETS as usize, "some buckets are read several times");
    let mut upcoming = reads.into_iter().peekable();
    let mut there = BTreeSet::new();
    for (&(a, b), task) in tasks.iter().zip(0..) {
        while let Some(read) = upcoming.next_if(|read| read.step == Some(task)) {
            let within = |&(start, end): &(u64, u64)| read.offset <= start && end <= read.offset + read.bytes;
            let buckets: Vec<u32> = (0..).zip(&extents).filter(|(_, extent)| within(extent)).map(|(k, _)| k).collect();
            assert!(buckets.contains(&a) || buckets.contains(&b), "task {task} needs none of {buckets:?}");
            there.extend(buckets);
        }
        assert!(there.contains(&a) && there.contains(&b), "task {task} of buckets {a} and {b}");
    }
    assert_eq!((there.len(), upcoming.next()), (BUCKETS as usize, None));
}

#[test]
fn traces_name_planning_passes_and_samples() {
    let set = make(Shape::Clustered, Element::F32, 6_000, 16, 1);
    let setup = Setup { rule: Rule::Union, aim: JoinEffort::Recall(0.9), ..Setup::default() }.with_buckets(BUCKETS);
    let built = setup.build(&set).unwrap();
    let Recorded { trace, .. } = recorded(&built, &setup, &setup.join_options(Predicate::L2 { eps: 0.5 }));
    let reads = reads_of(&trace);
    // The pass that plans reads nothing, since the buckets are kept.
    assert_eq!(reads.keys().copied().collect::<Vec<_>>(), ["calibrate", "join", "sample"]);
    assert!(reads["sample"].iter().all(|read| read.after.is_none()), "any of them at the same time");
    for reads in reads.values() {
        count_dependent(reads);
    }
}

/// Checks tasks for which two buckets are missing. The step of such a task ends when both requests have ended.
#[test]
fn traced_reads_depend_only_on_completed_steps() {
    let set = make(Shape::Uniform, Element::U8, 1_200, 64, 1);
    let built = Setup::default().with_buckets(BUCKETS).build(&set).unwrap();
    for requests_ahead in 1..5 {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("trace");
        let recorder = Arc::new(Recorder::create(Arc::new(FileSystem::detect().0), &path).unwrap());
        let context = Setup::default().context_on(recorder.clone());
        let store = Store::open(&context, &built.path()).unwrap();
        let buckets = &Buckets::of(&store);
        let memory = requests_ahead * least_read_ahead(store.extents(), false);
        // Consecutive loads are never adjacent on disk, so each is a separate request.
        let loads = (0..BUCKETS).map(|k| Load { bucket: 7 * k % BUCKETS, step: u64::from(k / 2) });
        let mut ahead = ReadAhead::new(&context, "pairs", buckets, false, memory, loads, &context.cancel).unwrap();
        while let Some(bucket) = ahead.next_bucket().unwrap() {
            drop(bucket);
        }
        recorder.finish().unwrap();
        let trace = Trace::parse(&std::fs::read(path).unwrap()).unwrap();
        let reads = &reads_of(&trace)["pairs"];
        assert_eq!(reads.len(), BUCKETS as usize);
        let dependent = reads.iter().filter(|read| read.after.is_some());
        assert!(2 * dependent.clone().count() > reads.len(), "{requests_ahead} at least fit into the memory");
        for read in dependent {
            let mut earlier = reads.iter().filter(|earlier| earlier.step <= read.after);
            assert!(read.after < read.step && earlier.all(|earlier| end(earlier) <= read.start_ns), "{read:?}");
        }
    }
}
