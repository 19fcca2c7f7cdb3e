//! The devices under test, each with a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin_device::{Device, FaultPlan, FileSystem, Recorder, SimulatedDevice};

/// A device and a folder on it for one test.
pub(crate) struct Bench {
    pub(crate) what: &'static str,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) root: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Bench {
    fn on_disk(what: &'static str, device: Arc<dyn Device>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { what, device, root: folder.path().to_owned(), _folder: Some(folder) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file and syncs it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let mut file = self.device.create(&self.path(name)).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }

    /// Reads a whole file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let file = self.device.open(&self.path(name)).unwrap();
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }
}

/// Returns whether `ADJOIN_REQUIRE` lists `what`. A test must then fail, not be skipped, if `what` is missing.
pub(crate) fn is_required(what: &str) -> bool {
    std::env::var("ADJOIN_REQUIRE").is_ok_and(|list| list.split(',').any(|item| item.trim() == what))
}

/// Reports that a test is skipped because `what` is missing. Panics if the environment requires `what`.
pub(crate) fn skip(what: &str, why: &str) {
    assert!(!is_required(what), "ADJOIN_REQUIRE has {what}, but {why}");
    eprintln!("skipped: {why}");
}

/// Returns all devices. The device with io_uring is included only if the system allows it.
pub(crate) fn benches() -> Vec<Bench> {
    let mut benches = vec![Bench::on_disk("pread", Arc::new(FileSystem::pread()))];
    match FileSystem::io_uring() {
        Ok(device) => benches.push(Bench::on_disk("io_uring", Arc::new(device))),
        Err(error) => skip("io_uring", &format!("io_uring is refused: {error}")),
    }
    let simulated = Arc::new(SimulatedDevice::new(FaultPlan::None));
    simulated.create_folder("bench".as_ref()).unwrap();
    benches.push(Bench { what: "simulated", device: simulated, root: "bench".into(), _folder: None });
    let recorded = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(Arc::new(FileSystem::detect().0), &recorded.path().join("trace")).unwrap();
    let root = recorded.path().join("files");
    std::fs::create_dir(&root).unwrap();
    benches.push(Bench { what: "recorded", device: Arc::new(recorder), root, _folder: Some(recorded) });
    benches
}

/// Returns `len` pseudorandom bytes that are the same in each call.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
