//! Compares the simulated device with a real folder: any sequence of operations has the same results on both.

use std::path::{Path, PathBuf};

use adjoin_device::{Device, DeviceError, FaultPlan, FileSystem, Keep, SimulatedDevice, WriteFile};
use proptest::prelude::*;

use crate::harness::pattern;

/// An operation on one of a few names. There are few so that operations often concern the same file.
#[derive(Debug, Clone)]
enum Step {
    Create(String),
    Append(usize),
    Flush,
    Sync,
    Close,
    Read(String, u64, usize),
    CreateFolder(String),
    Rename(String, String),
    Remove(String),
    RemoveFolder(String),
    SyncFolder(String),
    Kind(String),
    List(String),
}

fn name() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => name().prop_map(Step::Create),
        4 => (0..9_000usize).prop_map(Step::Append),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        2 => Just(Step::Close),
        4 => (name(), 0..10_000u64, 0..5_000usize).prop_map(|(name, offset, len)| Step::Read(name, offset, len)),
        4 => name().prop_map(Step::CreateFolder),
        4 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name().prop_map(Step::Remove),
        1 => name().prop_map(Step::RemoveFolder),
        2 => name().prop_map(Step::SyncFolder),
        2 => name().prop_map(Step::Kind),
        2 => name().prop_map(Step::List),
    ]
}

/// A device, and the one file on it that is being written.
struct Side<'a> {
    device: &'a dyn Device,
    root: PathBuf,
    writer: Option<Box<dyn WriteFile>>,
}

impl Side<'_> {
    /// Performs a step. Returns everything observable about it.
    fn act(&mut self, step: &Step) -> Result<String, String> {
        let at = |name: &str| self.root.join(name);
        let device = self.device;
        let seen = |seen: Result<String, DeviceError>| {
            seen.map_err(|error| format!("{:?} {:?} {:?}", error.operation, error.source.kind(), error.offset))
        };
        seen(match step {
            Step::Create(name) => {
                self.writer = None; // two writers of one file are unspecified
                device.create(&at(name)).map(|file| self.writer = Some(file)).map(|()| String::new())
            }
            Step::Append(len) => self.write(|file, len| file.append(&pattern(len)), *len),
            Step::Flush => self.write(|file, _| file.flush(), 0),
            Step::Sync => self.write(|file, _| file.sync(), 0),
            Step::Close => {
                self.writer = None;
                Ok(String::new())
            }
            Step::Read(name, offset, len) => device.open(&at(name)).and_then(|file| {
                let mut buffer = vec![0; *len];
                file.read_at(*offset, &mut buffer)?;
                Ok(format!("{} {buffer:?}", file.len()))
            }),
            Step::CreateFolder(name) => device.create_folder(&at(name)).map(|()| String::new()),
            Step::Rename(from, to) => device.rename(&at(from), &at(to)).map(|()| String::new()),
            Step::Remove(name) => device.remove(&at(name)).map(|()| String::new()),
            Step::RemoveFolder(name) => device.remove_folder(&at(name)).map(|()| String::new()),
            Step::SyncFolder(name) => device.sync_folder(&at(name)).map(|()| String::new()),
            Step::Kind(name) => device.kind(&at(name)).map(|kind| format!("{kind:?}")),
            Step::List(name) => device.list(&at(name)).map(|names| format!("{names:?}")),
        })
    }

    fn write(
        &mut self,
        work: fn(&mut Box<dyn WriteFile>, usize) -> Result<(), DeviceError>,
        len: usize,
    ) -> Result<String, DeviceError> {
        self.writer.as_mut().map_or(Ok(()), |file| work(file, len)).map(|()| String::new())
    }
}

/// Lists all files below a folder of the machine with their bytes, and all folders.
fn tree(folder: &Path, found: &mut Vec<(PathBuf, Option<Vec<u8>>)>, root: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_owned();
        if path.is_dir() {
            found.push((name, None));
            tree(&path, found, root);
        } else {
            found.push((name, Some(std::fs::read(&path).unwrap())));
        }
    }
    found.sort();
}

fn whole(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    tree(folder, &mut found, folder);
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_simulator_behaves_like_the_file_system(steps in prop::collection::vec(step(), 1..60)) {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let simulated = SimulatedDevice::new(FaultPlan::None);
        let files = FileSystem::pread();
        let mut real = Side { device: &files, root: folder.path().to_owned(), writer: None };
        let mut model = Side { device: &simulated, root: PathBuf::new(), writer: None };
        for (number, step) in steps.iter().enumerate() {
            prop_assert_eq!(model.act(step), real.act(step), "step {}: {:?}", number, step);
        }
        (real.writer, model.writer) = (None, None);
        simulated.export(Path::new(""), copy.path()).unwrap();
        prop_assert_eq!(whole(copy.path()), whole(folder.path()));

        // As if the program had died and the machine had not. The second device shows that the result is durable
        // without a sync.
        let found = simulated.after_crash(Keep::Everything);
        let again = found.after_crash(Keep::Nothing);
        for device in [found, again] {
            let copy = tempfile::tempdir().unwrap();
            device.export(Path::new(""), copy.path()).unwrap();
            prop_assert_eq!(whole(copy.path()), whole(folder.path()));
        }
    }

    #[test]
    fn synced_bytes_are_never_lost(
        steps in prop::collection::vec(step(), 1..40), seed in any::<u64>(), sizes in prop::collection::vec(1..5_000usize, 1..5),
    ) {
        let device = SimulatedDevice::new(FaultPlan::None);
        let mut side = Side { device: &device, root: "noise".into(), writer: None };
        device.create_folder("noise".as_ref()).unwrap();
        let mut file = device.create("kept".as_ref()).unwrap();
        let mut expected = Vec::new();
        let mut steps = steps.iter();
        for size in sizes {
            steps.by_ref().take(10).for_each(|step| drop(side.act(step)));
            file.append(&pattern(size)).unwrap();
            expected.extend(pattern(size));
            file.sync().unwrap();
            device.sync_folder("".as_ref()).unwrap();
            file.append(b"never synced").unwrap();
            expected.extend(b"never synced");
            let durable = expected.len() - 12;
            for keep in [Keep::Nothing, Keep::Names, Keep::Seeded { seed, pieces: adjoin_device::Pieces::Sectors }] {
                let found = device.after_crash(keep).bytes("kept").unwrap();
                prop_assert_eq!(&found[..durable], &expected[..durable]);
            }
        }
    }
}
