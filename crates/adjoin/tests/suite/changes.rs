//! Sources that change while a store is built from them. The store must not mix old and new rows.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use adjoin::{BuildOptions, ErrorKind, Progress, SourceOptions, Store, lab::source::open};

use crate::harness::{Setup, error_of};

/// Modification time of the file after it is rewritten.
#[derive(Debug, Clone, Copy)]
enum Clock {
    GoesOn,
    /// The time is unchanged, as between two ticks of the clock, or in a copy that preserves times.
    Stands,
}

/// Progress that rewrites a file when a given phase of the build begins.
struct WritesAt {
    phase: &'static str,
    path: PathBuf,
    clock: Clock,
}

impl Progress for WritesAt {
    fn begin(&self, phase: &str, _unit: &str, _total: u64) {
        if phase == self.phase {
            write(&self.path, 2, self.clock);
        }
    }

    fn advance(&self, _done: u64) {}

    fn note(&self, _line: &str) {}
}

/// Writes 300 vectors as `.u8bin`. The last byte is `version`.
fn write(path: &Path, version: u8, clock: Clock) {
    let mut bytes = [300u32, 4].map(u32::to_le_bytes).concat();
    bytes.extend((0..1_200).map(|k| (k * 7 % 251) as u8));
    *bytes.last_mut().unwrap() = version;
    fs::write(path, bytes).unwrap();
    if matches!(clock, Clock::Stands) {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
}

#[test]
fn stores_have_rows_of_one_moment_if_a_source_changes_during_a_build() {
    for clock in [Clock::GoesOn, Clock::Stands] {
        for phase in ["check", "train", "assign", "none"] {
            // With checkpoints, a build scans the source twice. Without, it holds the rows of the first scan.
            for scans_twice in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let names = ["a.u8bin", "b.u8bin"].map(|name| folder.path().join(name));
                names.iter().for_each(|path| write(path, 1, clock));
                let path = names[1].clone();
                let setup = Setup { progress: Arc::new(WritesAt { phase, path, clock }), ..Setup::default() };
                let sources = names.map(|path| path.to_str().unwrap().to_owned());
                let source = open(&setup.context(), &sources, &SourceOptions::default()).unwrap();
                let store = folder.path().join("store");
                let resume = scans_twice.then(SourceOptions::default);
                let options = BuildOptions { resume, ..setup.build.clone() };
                let built = Store::build(&setup.context(), &*source, &store, &options);
                // The build reads only the new rows if the file changes before the first read and the modification
                // time does not show it.
                let is_unseen = phase == "check" && matches!(clock, Clock::Stands);
                if phase == "none" || is_unseen || (phase != "check" && !scans_twice) {
                    built.unwrap();
                    continue;
                }
                let error = error_of(built);
                let said = error.to_string();
                assert!(error.kind() == ErrorKind::Input && said.contains("b.u8bin: it has changed"), "{said}");
                assert!(
                    said.contains("run again when nothing writes to it") && !store.exists(),
                    "{phase} {clock:?}: {said}"
                );
            }
        }
    }
}
