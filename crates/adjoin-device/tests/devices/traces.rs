//! Tests that a trace records operations, and replays them.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{
    AlignedBuffer, Cause, Device, FaultPlan, FileSystem, Operation, Recorder, SimulatedDevice, Trace, TracedOperation,
    replay,
};

use crate::harness::pattern;

/// Writes and reads files in `root` under a recorder. Returns its trace.
fn recorded(device: Arc<dyn Device>, root: &Path) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Recorder::create(device, &path).unwrap();
    let (draft, name) = (root.join("a draft"), root.join("file"));
    let mut file = recorder.create(&draft).unwrap();
    file.append(&pattern(40_000)).unwrap();
    file.append(&pattern(25_536)).unwrap();
    file.sync().unwrap();
    recorder.rename(&draft, &name).unwrap();
    assert!(recorder.open(&root.join("missing")).is_err());
    let file = recorder.open(&name).unwrap();
    file.read_at(100, &mut [0; 50]).unwrap();
    let mut queue = recorder.read_queue(4).unwrap();
    for token in 0..16 {
        let cause = Cause { consumer: "test", step: Some(token + 1), after: token.checked_sub(4) };
        queue.submit(7, cause, &file, token * 4_096, AlignedBuffer::zeroed(4_096)).unwrap();
    }
    while let Some(done) = queue.wait() {
        assert!(done.token == 7 && done.result.is_ok());
    }
    recorder.finish().unwrap();
    Trace::parse(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_trace_records_operations_and_times() {
    let device = SimulatedDevice::new(FaultPlan::None);
    let trace = recorded(Arc::new(device), Path::new(""));
    let of = |operation: Operation| -> Vec<&TracedOperation> {
        trace.operations().iter().filter(|asked| asked.operation == operation).collect()
    };
    let ranges =
        |operation| -> Vec<(u64, u64)> { of(operation).iter().map(|asked| (asked.offset, asked.bytes)).collect() };
    assert_eq!(ranges(Operation::Write), [(0, 40_000), (40_000, 25_536)]);
    let mut reads = ranges(Operation::Read);
    assert_eq!(reads.remove(0), (100, 50));
    reads.sort_unstable();
    assert_eq!(reads, (0..16).map(|i| (i * 4_096, 4_096)).collect::<Vec<_>>());
    let (single, queued): (Vec<&TracedOperation>, Vec<&TracedOperation>) =
        of(Operation::Read).into_iter().partition(|read| read.bytes == 50);
    assert_eq!((single.len(), single[0].consumer, single[0].step), (1, None, None));
    for read in queued {
        let number = read.offset / 4_096;
        assert_eq!(read.consumer.map(|consumer| trace.consumer(consumer)), Some("test"));
        assert_eq!((read.step, read.after), (Some(number + 1), number.checked_sub(4)));
    }
    let rename = of(Operation::Rename)[0];
    assert_eq!(
        (trace.name(rename.file), rename.to.map(|to| trace.name(to))),
        (Path::new("a draft"), Some(Path::new("file")))
    );
    assert_eq!(
        of(Operation::Open).iter().map(|open| (trace.name(open.file), open.ok)).collect::<Vec<_>>(),
        [(Path::new("missing"), false), (Path::new("file"), true)]
    );
    let ends: Vec<u64> = trace.operations().iter().map(|asked| asked.start_ns + asked.duration_ns).collect();
    assert!(ends.is_sorted(), "one thread's operations end in the order of their lines");
}

#[test]
fn a_replay_reads_the_same_ranges_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recorded(Arc::new(FileSystem::detect().0), folder.path());
    let moved = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(folder.path().join("file")).unwrap();
    std::fs::write(moved.path().join("file"), &bytes).unwrap();
    let there = |name: &Path| moved.path().join(name.strip_prefix(folder.path()).unwrap());
    for device in [FileSystem::pread(), FileSystem::detect().0] {
        let report = replay(&trace, &device, 8, there).unwrap();
        assert_eq!((report.reads, report.errors, report.first_error), (17, 0, None));
        assert!(report.bytes >= 16 * 4_096 + 50 && report.seconds > 0.0);
    }
    let simulated = SimulatedDevice::new(FaultPlan::None);
    simulated.put("file", &bytes[..4_000]);
    let report = replay(&trace, &simulated, 8, |_| "file".into()).unwrap();
    assert_eq!((report.reads, report.errors, report.bytes), (17, 16, 50));
    assert!(report.first_error.unwrap().starts_with("cannot read file at byte"));
    let report = replay(&trace, &simulated, 8, |_| "missing".into()).unwrap();
    assert_eq!((report.reads, report.errors), (17, 17));
}

#[test]
fn replay_reports_errors_for_out_of_range_reads() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("a", &[0; 100]);
    let reads = [(1, u64::MAX), (0, 1 << 50)].map(|(at, bytes)| format!("read 0 {at} {bytes} 0 0 ok - - -\n"));
    let text = format!("adjoin-trace 2\nfile 0 a\n{}", reads.concat());
    let report = replay(&Trace::parse(text.as_bytes()).unwrap(), &device, 1 << 40, Path::to_owned).unwrap();
    assert_eq!((report.reads, report.errors), (2, 2));
}

#[test]
fn finishing_a_trace_on_a_full_disk_fails() {
    if !Path::new("/dev/full").exists() {
        return eprintln!("skipped: no /dev/full");
    }
    let device = SimulatedDevice::new(FaultPlan::None);
    let recorder = Recorder::create(Arc::new(device), Path::new("/dev/full")).unwrap();
    recorder.create_folder(Path::new("folder")).unwrap();
    assert!(recorder.finish().is_err());
}
