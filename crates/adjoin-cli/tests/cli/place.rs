//! A temporary folder in which a test runs the program.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A temporary folder with the files of a test.
pub(crate) struct Place(tempfile::TempDir);

/// Exit code and output of a run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) said: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Creates a folder that is on disk. The default folder for temporary files may be in memory.
    pub(crate) fn on_disk() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// Returns the file with this name, or all files below the folder with this name, with their bytes. Returns
    /// nothing if neither exists.
    pub(crate) fn tree(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let (path, mut all) = (self.path(name), Vec::new());
        if path.is_dir() {
            let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names.iter().for_each(|inner| all.extend(self.tree(&format!("{name}/{}", inner.to_str().unwrap()))));
        } else if path.exists() {
            all.push((path.clone(), fs::read(path).unwrap()));
        }
        all
    }

    /// Returns the names of all files and folders in this folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Returns the files of a folder with their names and bytes.
    pub(crate) fn names_and_bytes(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let of = |(path, bytes): (PathBuf, Vec<u8>)| (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes);
        self.tree(name).into_iter().map(of).collect()
    }

    /// Removes a file or folder if it exists.
    pub(crate) fn removed(&self, name: &str) {
        let path = self.path(name);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }

    /// Returns a command that runs the program with these arguments in this folder.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adjoin"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("TMPDIR", self.0.path()); // a store is built here if its result is not in a folder
        command
    }

    /// Runs the program with the arguments in `line`, which are separated by spaces.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_words(&line.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Runs the program with these arguments.
    pub(crate) fn run_words(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments))
    }

    /// Returns a command for a user that may not write to this folder. Root drops its privileges for that. Returns
    /// `None` if this is not possible.
    pub(crate) fn powerless(&self, arguments: &[&str]) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            return Some(self.command(arguments));
        }
        fs::set_permissions(self.0.path(), Permissions::from_mode(0o755)).unwrap();
        let rights = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let program = env!("CARGO_BIN_EXE_adjoin");
        let probe = Command::new("setpriv").args(rights).args([program, "--version"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skip("root", "rights cannot be given up here");
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args(rights).arg(program).args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        Some(command)
    }

    /// Returns a command for a user with a limit of `threads` threads. The user has no other processes, and may write
    /// to this folder. Returns `None` if this is not possible.
    pub(crate) fn with_threads(&self, threads: usize, arguments: &[&str]) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            skip("root", "processes of this user are not known, so no limit can be set");
            return None;
        }
        fs::set_permissions(self.0.path(), Permissions::from_mode(0o777)).unwrap();
        let user = 1_000_000 + std::process::id();
        let limited = |arguments: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups", "prlimit"]);
            command.arg(format!("--nproc={threads}")).arg(env!("CARGO_BIN_EXE_adjoin")).args(arguments);
            command.current_dir(self.0.path()).stdin(Stdio::null()).env("TMPDIR", self.0.path());
            command
        };
        let probe = limited(&["--version"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skip("root", "threads cannot be limited here");
            return None;
        }
        Some(limited(arguments))
    }

    /// Runs the program, which must succeed. Returns its output.
    pub(crate) fn done(&self, line: &str) -> Ran {
        let ran = self.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.said);
        ran
    }

    /// Runs the program, which must refuse: it must end with exit code 2, print nothing to standard output and one
    /// line with all of `words` to standard error, and change no file.
    pub(crate) fn refused(&self, line: &str, words: &[&str]) {
        self.refused_words(&line.split_ascii_whitespace().collect::<Vec<_>>(), words);
    }

    /// Runs the program like [`Place::refused`]. Its arguments may contain spaces.
    pub(crate) fn refused_words(&self, arguments: &[&str], words: &[&str]) {
        self.refuses(self.command(arguments), arguments, words);
    }

    /// Runs a given command like [`Place::refused`].
    pub(crate) fn refuses(&self, command: Command, arguments: &[&str], words: &[&str]) {
        let before = self.listing();
        let Ran { code, out, said } = ran(command);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| !is_note(line)).collect();
        assert_eq!(lines.len(), 1, "{arguments:?}: {said}");
        assert!(lines[0].starts_with("adjoin: ") && said.ends_with('\n'), "{arguments:?}: {said}");
        for word in words {
            assert!(lines[0].contains(word), "{arguments:?} does not say {word}: {said}");
        }
        assert_eq!(self.listing(), before, "{arguments:?}");
    }

    /// Returns all files and folders, including hidden ones. Each file has its length, except locks.
    pub(crate) fn listing(&self) -> Vec<(PathBuf, Option<u64>)> {
        let mut found = Vec::new();
        list(self.0.path(), &mut found);
        found.sort();
        found
    }
}

/// A small disk, which is unmounted when this is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a disk of `bytes` bytes at the folder `disk`. Returns `None` if this user may not mount disks.
    pub(crate) fn new(place: &Place, bytes: u64) -> Option<Self> {
        let at = place.path("disk");
        fs::create_dir(&at).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(&at).output();
        if !mount.is_ok_and(|output| output.status.success()) {
            skip("root", "this user may not mount a small disk");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output(); // best effort: a failure cannot be handled here
    }
}

/// Reports that a test is skipped because it lacks a requirement. Panics if `ADJOIN_REQUIRE` lists the requirement.
pub(crate) fn skip(need: &str, why: &str) {
    let required = std::env::var("ADJOIN_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|required| required == need), "ADJOIN_REQUIRE={required}, but {why}");
    println!("skipped: {why}");
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), said: text(output.stderr) }
}

/// Returns whether a line is a note that depends on the machine.
fn is_note(line: &str) -> bool {
    ["refuses direct reads", "refuses io_uring", "are rounded to f32"].iter().any(|note| line.contains(note))
}

fn list(folder: &Path, found: &mut Vec<(PathBuf, Option<u64>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, found);
            found.push((path, None));
        } else {
            let bytes = fs::metadata(&path).unwrap().len();
            // A lock file contains the number of the last process that took the lock, so its length varies.
            let bytes = (!path.ends_with("owner.lock")).then_some(bytes);
            found.push((path, bytes));
        }
    }
}
