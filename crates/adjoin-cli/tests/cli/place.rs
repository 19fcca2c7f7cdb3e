//! A temporary folder, and the command run in it.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder of files that a test makes.
pub(crate) struct Place(tempfile::TempDir);

/// What a run of the command left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) said: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// One whose files are surely not held in memory, as where temporary files lie they may be.
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

    /// All files of this name or within a folder of this name, with their bytes; none where nothing is there.
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

    /// The names of all files and folders in the place.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The files of a folder, by their names in it.
    pub(crate) fn names_and_bytes(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let of = |(path, bytes): (PathBuf, Vec<u8>)| (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes);
        self.tree(name).into_iter().map(of).collect()
    }

    /// Removes a file or folder, where it is there.
    pub(crate) fn removed(&self, name: &str) {
        let path = self.path(name);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }

    /// The command with arguments, not yet started.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adjoin"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.env("TMPDIR", self.0.path()); // where stores are built that have no result to lie beside
        command
    }

    /// Runs the command with arguments that are parted by single spaces.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_words(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs the command with these arguments.
    pub(crate) fn run_words(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments))
    }

    /// The command as a user runs it who may write nothing here, if such a user can be had: root gives up its rights.
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

    /// The command as a user whom the system gives so many threads in all, if such a user can be had: one with no other
    /// process, who may write here.
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

    /// Runs the command, which must succeed. Returns what it printed.
    pub(crate) fn done(&self, line: &str) -> Ran {
        let ran = self.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.said);
        ran
    }

    /// Runs the command, which must refuse: with exit code 2, nothing on standard output, one line that contains all
    /// of `words`, and every file as before.
    pub(crate) fn refused(&self, line: &str, words: &[&str]) {
        self.refused_words(&line.split(' ').collect::<Vec<_>>(), words);
    }

    /// The same for arguments with spaces in them.
    pub(crate) fn refused_words(&self, arguments: &[&str], words: &[&str]) {
        self.refuses(self.command(arguments), arguments, words);
    }

    /// The same for a command that is made already.
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

    /// Every file and folder, hidden ones too, with the length of files.
    pub(crate) fn listing(&self) -> Vec<(PathBuf, Option<u64>)> {
        let mut found = Vec::new();
        list(self.0.path(), &mut found);
        found.sort();
        found
    }
}

/// A small disk, until this is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes the folder `disk` of a place a disk of so many bytes, where this user may do that.
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
        let _ = Command::new("umount").arg(&self.0).output(); // best effort: a test cannot do more
    }
}

/// Says that a test lacks something; fails where `ADJOIN_REQUIRE` lists it.
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

/// Lines that depend on the machine.
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
            found.push((path, Some(bytes)));
        }
    }
}
