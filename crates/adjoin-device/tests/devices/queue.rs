//! Tests of queues with many reads in flight.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, Cause, ReadFile, ReadQueue};
use proptest::prelude::*;

use crate::harness::{Bench, benches, pattern};

const FILE_BYTES: usize = 3 << 20;

fn bench_with_file(bench: &Bench) -> (Vec<u8>, Arc<dyn ReadFile>) {
    let bytes = pattern(FILE_BYTES + 1_234);
    bench.write("file", &bytes);
    (bytes, bench.device.open(&bench.path("file")).unwrap())
}

struct Randoms(u64);

impl Randoms {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// Waits for a completion, and checks its bytes.
#[track_caller]
fn check_one(queue: &mut dyn ReadQueue, asked: &mut HashMap<u64, (usize, usize)>, bytes: &[u8], what: &str) {
    let done = queue.wait().expect("reads are in flight");
    let (offset, len) = asked.remove(&done.token).expect("each read ends once");
    assert_eq!(done.buffer.len(), len);
    assert!(done.result.unwrap() >= len as u64, "{what}");
    assert!(done.buffer[..] == bytes[offset..offset + len], "{what}: {len} bytes at {offset}");
}

#[test]
fn thousands_of_random_reads_return_the_right_bytes() {
    for bench in benches() {
        let (bytes, file) = bench_with_file(&bench);
        for depth in [1, 3, 64] {
            let mut random = Randoms(depth as u64);
            let mut queue = bench.device.read_queue(depth).unwrap();
            let mut asked = HashMap::new();
            for token in 0..3_000 {
                let len = 4_096 * (1 + random.below(6));
                let offset = 4_096 * random.below((FILE_BYTES - len) / 4_096);
                asked.insert(token, (offset, len));
                queue.submit(token, Cause::UNKNOWN, &file, offset as u64, AlignedBuffer::zeroed(len)).unwrap();
                assert_eq!(queue.in_flight(), asked.len());
                while queue.in_flight() > 2 * depth {
                    check_one(&mut *queue, &mut asked, &bytes, bench.what);
                }
            }
            while !asked.is_empty() {
                check_one(&mut *queue, &mut asked, &bytes, bench.what);
            }
            assert!(queue.wait().is_none() && queue.in_flight() == 0);
        }
    }
}

#[test]
fn a_read_past_the_end_fails_without_affecting_others() {
    for bench in benches() {
        let (bytes, file) = bench_with_file(&bench);
        let mut queue = bench.device.read_queue(8).unwrap();
        let reads = [
            (0, FILE_BYTES - 4_096, 4_096, true),
            (1, FILE_BYTES, 1_234, true), // not aligned, but within the file
            (2, FILE_BYTES, 4_096, false),
            (3, FILE_BYTES - 4_096, 8_192, false),
            (4, FILE_BYTES + 8_192, 4_096, false),
            (5, 1_000, 3_000, true),
            (6, 0, 0, true),
            (7, usize::MAX, 2, false),
        ];
        for (token, offset, len, _) in reads {
            queue.submit(token, Cause::UNKNOWN, &file, offset as u64, AlignedBuffer::zeroed(len)).unwrap();
        }
        let mut ends: Vec<_> = std::iter::from_fn(|| queue.wait()).collect();
        ends.sort_by_key(|end| end.token);
        assert_eq!(ends.len(), reads.len());
        for (end, (_, offset, len, within)) in ends.into_iter().zip(reads) {
            assert_eq!(end.buffer.len(), len);
            match end.result {
                Ok(_) => assert!(within && end.buffer[..] == bytes[offset..offset + len], "{}", bench.what),
                Err(error) => {
                    assert!(!within, "{}: {error}", bench.what);
                    assert_eq!((error.source.kind(), error.offset), (ErrorKind::UnexpectedEof, Some(offset as u64)));
                }
            }
        }
    }
}

#[test]
fn a_dropped_queue_waits_for_its_reads() {
    for bench in benches() {
        let (bytes, file) = bench_with_file(&bench);
        for _ in 0..50 {
            let mut queue = bench.device.read_queue(32).unwrap();
            for token in 0..32 {
                let submit = if token < 24 { <dyn ReadQueue>::submit } else { <dyn ReadQueue>::submit_later };
                let (offset, buffer) = (65_536 * (token % 8), AlignedBuffer::zeroed(65_536));
                submit(&mut *queue, token, Cause::UNKNOWN, &file, offset, buffer).unwrap();
            }
        }
        // If the kernel wrote to freed memory, the new buffers that reuse this memory would not be zero.
        let fresh: Vec<_> = (0..32).map(|_| AlignedBuffer::zeroed(65_536)).collect();
        assert!(fresh.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0)), "{}", bench.what);
        drop((bytes, file));
    }
}

#[test]
fn a_queue_reads_several_files_closed_by_the_caller() {
    for bench in benches() {
        bench.write("a", &[1; 8_192]);
        bench.write("b", &[2; 8_192]);
        let mut queue = bench.device.read_queue(0).unwrap();
        for (token, name) in [(1, "a"), (2, "b"), (1, "a")] {
            let file = bench.device.open(&bench.path(name)).unwrap();
            queue.submit(token, Cause::UNKNOWN, &file, 4_096, AlignedBuffer::zeroed(4_096)).unwrap();
        }
        let ends: Vec<_> = std::iter::from_fn(|| queue.wait()).collect();
        assert!(
            ends.iter().all(|end| end.result.is_ok() && end.buffer.iter().all(|byte| u64::from(*byte) == end.token))
        );
        assert_eq!(ends.iter().map(|end| end.token).sum::<u64>(), 4);
    }
}

#[test]
fn a_queue_reads_files_of_other_devices() {
    let benches = benches();
    for of_file in &benches {
        of_file.write("file", &pattern(8_192));
        let file = of_file.device.open(&of_file.path("file")).unwrap();
        for of_queue in &benches {
            let mut queue = of_queue.device.read_queue(2).unwrap();
            queue.submit(5, Cause::UNKNOWN, &file, 4_096, AlignedBuffer::zeroed(4_096)).unwrap();
            let done = queue.wait().unwrap();
            assert!(done.result.is_ok() && done.buffer[..] == pattern(8_192)[4_096..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_mix_of_submissions_and_waits_ends_each_read_once(
        steps in prop::collection::vec((0..3, 0..FILE_BYTES + 9_000, 0..20_000usize), 1..60), depth in 1..9usize,
    ) {
        for bench in benches() {
            let (bytes, file) = bench_with_file(&bench);
            let mut queue = bench.device.read_queue(depth).unwrap();
            let mut asked = HashMap::new();
            let check = |done: adjoin_device::Completion, asked: &mut HashMap<u64, (usize, usize)>| {
                let (offset, len) = asked.remove(&done.token).unwrap();
                let within = bytes.get(offset..offset + len);
                assert_eq!(done.result.is_ok(), within.is_some() || len == 0);
                assert!(done.result.is_err() || done.buffer[..] == *within.unwrap_or(&[]));
            };
            for (token, (way, offset, len)) in steps.iter().copied().enumerate() {
                if way > 0 {
                    asked.insert(token as u64, (offset, len));
                    let submit = if way == 1 { <dyn ReadQueue>::submit } else { <dyn ReadQueue>::submit_later };
                    let buffer = AlignedBuffer::zeroed(len);
                    submit(&mut *queue, token as u64, Cause::UNKNOWN, &file, offset as u64, buffer).unwrap();
                } else if let Some(done) = queue.wait() {
                    check(done, &mut asked);
                }
                prop_assert_eq!(queue.in_flight(), asked.len());
            }
            while let Some(done) = queue.wait() {
                check(done, &mut asked);
            }
            prop_assert!(asked.is_empty());
        }
    }
}
