//! Full disks, real and simulated.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use adjoin_device::{AlignedBuffer, Cause, Device, FaultPlan, FileSystem, SimulatedDevice, WRITE_BUFFER_BYTES};

use crate::harness::{pattern, skip};

/// A small file system in memory. It is unmounted when this is dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(megabytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(folder.path());
        let done = mount.output().is_ok_and(|output| output.status.success());
        done.then(|| Self(folder))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Writes until the disk is full. Returns the number of bytes that were accepted.
#[track_caller]
fn fill(device: &dyn Device, path: &Path) -> u64 {
    let mut file = device.create(path).unwrap();
    let piece = pattern(300_000);
    for taken in 0..1_000 {
        let done = file.append(&piece).and_then(|()| file.flush());
        if let Err(error) = done {
            assert_eq!(error.source.kind(), ErrorKind::StorageFull, "{error}");
            assert_eq!(error.path, path);
            let again = file.append(b"more").unwrap_err();
            assert!(again.to_string().contains("earlier write"), "{again}");
            return taken * piece.len() as u64;
        }
    }
    panic!("the disk is never full");
}

#[test]
fn a_full_disk_is_an_error_and_freed_space_can_be_used() {
    let Some(mount) = Mount::new(8) else { return skip("root", "no tmpfs can be mounted") };
    for device in [FileSystem::pread(), FileSystem::detect().0] {
        let path = mount.0.path().join("large");
        let free = device.free_bytes(mount.0.path()).unwrap();
        assert!((7 << 20..=8 << 20).contains(&free), "{free}");
        let taken = fill(&device, &path);
        assert!(taken > free - 600_000 && taken <= free, "{taken} of {free}");
        device.remove(&path).unwrap();
        // A RAM disk reports no alignment or refuses direct access. Files must work nevertheless.
        let bytes = pattern(2 * WRITE_BUFFER_BYTES + 77);
        let mut file = device.create(&path).unwrap();
        file.append(&bytes).unwrap();
        file.sync().unwrap();
        let file = device.open(&path).unwrap();
        let mut queue = device.read_queue(4).unwrap();
        queue.submit(0, Cause::UNKNOWN, &file, 4_096, AlignedBuffer::zeroed(WRITE_BUFFER_BYTES)).unwrap();
        let done = queue.wait().unwrap();
        assert!(done.result.is_ok() && done.buffer[..] == bytes[4_096..][..WRITE_BUFFER_BYTES]);
        device.remove(&path).unwrap();
    }
}

#[test]
fn a_simulated_disk_can_be_full() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("before", &[1; 1_000]);
    device.set_free_bytes(1_000_000);
    assert_eq!(fill(&device, Path::new("large")), 900_000);
    assert_eq!(device.free_bytes(Path::new("")).unwrap(), 0);
    device.remove(Path::new("large")).unwrap();
    assert_eq!(device.free_bytes(Path::new("")).unwrap(), 1_000_000);
}
