//! Requirements that every device must meet.

use std::io::ErrorKind;
use std::path::Path;

use adjoin_device::{AlignedBuffer, DeviceError, FileKind, HeldLock, Lock, Operation, WRITE_BUFFER_BYTES};

use crate::harness::{Bench, benches, pattern};

#[track_caller]
fn fails<T>(bench: &Bench, result: Result<T, DeviceError>, operation: Operation, kind: ErrorKind) {
    let error = result.err().unwrap_or_else(|| panic!("{}: {operation:?} succeeds", bench.what));
    assert_eq!((error.operation, error.source.kind()), (operation, kind), "{}: {error}", bench.what);
}

#[test]
fn device_names_are_the_documented_ones() {
    for bench in benches() {
        assert!(["pread", "io_uring", "simulated"].contains(&bench.device.name()));
    }
}

#[test]
fn reads_any_range_and_fails_past_the_end() {
    for bench in benches() {
        let bytes = pattern(20_000);
        bench.write("file", &bytes);
        let file = bench.device.open(&bench.path("file")).unwrap();
        assert_eq!((file.len(), file.is_empty()), (20_000, false));
        assert!(file.alignment().is_power_of_two() && (512..=4096).contains(&file.alignment()));
        for (offset, len) in
            [(0, 20_000), (1, 19_999), (4_095, 2), (19_999, 1), (12_288, 4_096), (20_000, 0), (512, 512)]
        {
            let mut read = vec![0; len];
            file.read_at(offset as u64, &mut read).unwrap();
            assert_eq!(read, bytes[offset..offset + len], "{}", bench.what);
        }
        assert_eq!(file.read_at(30_001, &mut []).unwrap(), 0, "{}: nothing can be read anywhere", bench.what);
        let mut aligned = AlignedBuffer::zeroed(8_192);
        assert_eq!(file.read_at(4_096, &mut aligned).unwrap(), 8_192);
        assert_eq!(*aligned, bytes[4_096..12_288]);
        let mut beyond = AlignedBuffer::zeroed(4_096);
        fails(&bench, file.read_at(16_384, &mut beyond), Operation::Read, ErrorKind::UnexpectedEof);
        for offset in [19_999, 20_000, 1 << 40, u64::MAX, u64::MAX - 1] {
            fails(&bench, file.read_at(offset, &mut [0; 2]), Operation::Read, ErrorKind::UnexpectedEof);
        }
        assert_eq!(file.read_at(19_999, &mut [0; 2]).unwrap_err().offset, Some(19_999));
    }
}

#[test]
fn the_stamp_of_an_open_file_changes_on_writes() {
    for bench in benches() {
        bench.write("file", &pattern(5_000));
        let file = bench.device.open(&bench.path("file")).unwrap();
        let before = file.stamp().unwrap();
        assert_eq!((before.len, before), (5_000, file.stamp().unwrap()), "{}", bench.what);
        assert_eq!(before, bench.device.open(&bench.path("file")).unwrap().stamp().unwrap(), "{}", bench.what);
        std::thread::sleep(std::time::Duration::from_millis(30)); // longer than a tick of any clock of files
        bench.write("file", &pattern(5_000));
        let after = file.stamp().unwrap();
        assert!(after.len == 5_000 && after != before, "{}", bench.what);
    }
}

#[test]
fn files_contain_the_appended_bytes() {
    for bench in benches() {
        let mut file = bench.device.create(&bench.path("file")).unwrap();
        let mut expected = Vec::new();
        for (step, len) in [7, 4_096, 0, WRITE_BUFFER_BYTES + 1, 511, 100].into_iter().enumerate() {
            let bytes = pattern(len);
            file.append(&bytes).unwrap();
            expected.extend(bytes);
            match step % 3 {
                0 => file.flush().unwrap(),
                1 => file.sync().unwrap(),
                _ => continue,
            }
            assert!(bench.read("file") == expected, "{} after step {step}", bench.what);
        }
        file.append(b"the end").unwrap();
        drop(file);
        expected.extend(b"the end");
        assert!(bench.read("file") == expected, "{}", bench.what);
        drop(bench.device.create(&bench.path("file")).unwrap());
        assert!(bench.read("file").is_empty(), "{}: creation empties", bench.what);
    }
}

#[test]
fn continue_file_appends_after_the_kept_bytes() {
    for bench in benches() {
        let path = bench.path("file");
        for kept in [0, 1, 4_095, 4_096, 70_000, 100_000] {
            bench.write("file", &pattern(100_000));
            let mut file = match bench.device.continue_file(&path, kept) {
                Err(error) if error.source.kind() == ErrorKind::Unsupported => break,
                file => file.unwrap(),
            };
            file.append(b"more").unwrap();
            file.sync().unwrap();
            file.append(&pattern(5_000)).unwrap();
            drop(file);
            let expected = [&pattern(kept as usize)[..], b"more", &pattern(5_000)].concat();
            assert!(bench.read("file") == expected, "{} behind {kept} bytes", bench.what);
        }
        if !matches!(bench.device.continue_file(&path, 0), Err(error) if error.source.kind() == ErrorKind::Unsupported)
        {
            bench.write("file", b"short");
            fails(&bench, bench.device.continue_file(&path, 6), Operation::Create, ErrorKind::UnexpectedEof);
            fails(&bench, bench.device.continue_file(&bench.path("none"), 0), Operation::Create, ErrorKind::NotFound);
        }
    }
}

#[test]
fn unflushed_bytes_are_not_visible() {
    for bench in benches() {
        let mut file = bench.device.create(&bench.path("file")).unwrap();
        file.append(b"gathered").unwrap();
        assert_eq!(bench.read("file"), b"", "{}", bench.what);
        file.flush().unwrap();
        assert_eq!(bench.read("file"), b"gathered", "{}", bench.what);
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    for bench in benches() {
        bench.write("file", b"still here");
        let file = bench.device.open(&bench.path("file")).unwrap();
        bench.device.remove(&bench.path("file")).unwrap();
        let mut bytes = [0; 10];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"still here", "{}", bench.what);
    }
}

#[test]
fn names_are_created_moved_listed_and_removed() {
    for bench in benches() {
        let Bench { what, device, .. } = &bench;
        let at = |name: &str| bench.path(name);
        device.create_folder(&at("a")).unwrap();
        device.create_folder(&at("a/inner")).unwrap();
        bench.write("a/z", b"z");
        bench.write("a/b", b"b");
        assert_eq!(device.list(&at("a")).unwrap(), ["b", "inner", "z"], "{what}");
        assert_eq!(device.kind(&at("a")).unwrap(), Some(FileKind::Folder));
        assert_eq!(device.kind(&at("a/z")).unwrap(), Some(FileKind::File));
        assert_eq!(device.kind(&at("a/none")).unwrap(), None);
        assert_eq!(device.kind(&at("a/z/none")).unwrap(), None);
        device.rename(&at("a/z"), &at("a/b")).unwrap();
        assert_eq!(bench.read("a/b"), b"z", "{what}: replaced");
        device.rename(&at("a"), &at("c")).unwrap();
        assert_eq!(bench.read("c/b"), b"z");
        device.rename(&at("c/b"), &at("b")).unwrap();
        device.sync_folder(&bench.root).unwrap();
        device.remove(&at("b")).unwrap();
        bench.write("c/inner/deep", b"deep");
        device.remove_folder(&at("c")).unwrap();
        device.create_folder(&at("empty")).unwrap();
        device.remove_empty_folder(&at("empty")).unwrap();
        assert!(device.list(&bench.root).unwrap().is_empty(), "{what}");
        assert!(device.free_bytes(&bench.root).unwrap() > 0);
    }
}

/// Takes the lock of a file. Panics if it is not free.
#[track_caller]
fn locked(bench: &Bench, name: &str) -> HeldLock {
    match bench.device.lock(&bench.path(name)).unwrap() {
        Lock::Ours(held) => held,
        Lock::Others(holder) => panic!("{}: {holder} has the lock", bench.what),
        Lock::Unsupported => panic!("{}: there are no locks", bench.what),
    }
}

#[track_caller]
fn is_locked(bench: &Bench, name: &str) {
    match bench.device.lock(&bench.path(name)).unwrap() {
        Lock::Others(holder) => assert!(holder.starts_with("process "), "{}: {holder}", bench.what),
        _ => panic!("{}: nobody has the lock", bench.what),
    }
}

#[test]
fn a_lock_has_one_holder() {
    for bench in benches() {
        let held = locked(&bench, "lock");
        is_locked(&bench, "lock");
        let other = locked(&bench, "other");
        drop(held);
        let again = locked(&bench, "lock");
        drop(other);
        is_locked(&bench, "lock");
        // A new file with the same name has a lock of its own.
        bench.device.remove(&bench.path("lock")).unwrap();
        let new = locked(&bench, "lock");
        drop(again);
        is_locked(&bench, "lock");
        drop(new);
        bench.device.remove(&bench.path("lock")).unwrap();
        bench.device.remove(&bench.path("other")).unwrap();
        assert!(bench.device.list(&bench.root).unwrap().is_empty(), "{}", bench.what);
    }
}

#[test]
fn concurrent_threads_never_hold_the_same_lock() {
    for bench in benches() {
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Lock::Ours(held) = bench.device.lock(&bench.path("lock")).unwrap() else { continue };
                        assert_eq!(taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "{}", bench.what);
                        taken.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        bench.device.remove(&bench.path("lock")).unwrap();
                        drop(held);
                    }
                });
            }
        });
    }
}

#[test]
fn list_only_returns_matching_names() {
    for bench in benches() {
        for name in ["ab", "b", "aa"] {
            bench.write(name, b"");
        }
        let starts_with_a = |name: &std::ffi::OsStr| name.to_str().unwrap().starts_with('a');
        assert_eq!(bench.device.list_only(&bench.root, &starts_with_a).unwrap(), ["aa", "ab"], "{}", bench.what);
    }
}

#[test]
fn failed_operations_report_the_cause() {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, InvalidInput, IsADirectory, NotADirectory, NotFound};
    for bench in benches() {
        let device = &bench.device;
        let at = |name: &str| bench.path(name);
        device.create_folder(&at("full")).unwrap();
        device.create_folder(&at("full/inner")).unwrap();
        device.create_folder(&at("folder")).unwrap();
        bench.write("file", b"bytes");
        for missing in ["none", "none/deeper"] {
            let missing = at(missing);
            fails(&bench, device.open(&missing), Operation::Open, NotFound);
            fails(&bench, device.rename(&missing, &at("x")), Operation::Rename, NotFound);
            fails(&bench, device.remove(&missing), Operation::Remove, NotFound);
            fails(&bench, device.remove_folder(&missing), Operation::RemoveFolder, NotFound);
            fails(&bench, device.remove_empty_folder(&missing), Operation::RemoveFolder, NotFound);
            fails(&bench, device.sync_folder(&missing), Operation::SyncFolder, NotFound);
            fails(&bench, device.list(&missing), Operation::List, NotFound);
        }
        fails(&bench, device.create(&at("none/file")), Operation::Create, NotFound);
        fails(&bench, device.lock(&at("none/lock")), Operation::Lock, NotFound);
        fails(&bench, device.lock(&at("folder")), Operation::Lock, IsADirectory);
        fails(&bench, device.create_folder(&at("none/folder")), Operation::CreateFolder, NotFound);
        fails(&bench, device.open(&at("folder")), Operation::Open, IsADirectory);
        fails(&bench, device.create(&at("folder")), Operation::Create, IsADirectory);
        fails(&bench, device.remove(&at("folder")), Operation::Remove, IsADirectory);
        fails(&bench, device.open(&at("file/x")), Operation::Open, NotADirectory);
        fails(&bench, device.create(&at("file/x")), Operation::Create, NotADirectory);
        fails(&bench, device.list(&at("file")), Operation::List, NotADirectory);
        fails(&bench, device.sync_folder(&at("file")), Operation::SyncFolder, NotADirectory);
        fails(&bench, device.remove_folder(&at("file")), Operation::RemoveFolder, NotADirectory);
        fails(&bench, device.remove_empty_folder(&at("file")), Operation::RemoveFolder, NotADirectory);
        fails(&bench, device.remove_empty_folder(&at("full")), Operation::RemoveFolder, DirectoryNotEmpty);
        for there in ["folder", "file"] {
            fails(&bench, device.create_folder(&at(there)), Operation::CreateFolder, AlreadyExists);
        }
        fails(&bench, device.rename(&at("file"), &at("folder")), Operation::Rename, IsADirectory);
        fails(&bench, device.rename(&at("folder"), &at("file")), Operation::Rename, NotADirectory);
        fails(&bench, device.rename(&at("folder"), &at("full")), Operation::Rename, DirectoryNotEmpty);
        fails(&bench, device.rename(&at("full"), &at("full/inner/x")), Operation::Rename, InvalidInput);
        device.rename(&at("folder"), &at("full/inner")).unwrap();
        device.rename(&at("file"), &at("file")).unwrap();
    }
}

#[test]
fn relative_and_dotted_paths_are_resolved() {
    for bench in benches() {
        bench.device.create_folder(&bench.path("folder")).unwrap();
        bench.write("folder/../file", b"bytes");
        assert_eq!(bench.read("./file"), b"bytes", "{}", bench.what);
        let dotted = bench.path("folder").join(Path::new("."));
        assert!(bench.device.list(&dotted).unwrap().is_empty());
    }
}
