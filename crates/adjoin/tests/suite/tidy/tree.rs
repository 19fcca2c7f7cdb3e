//! The files of the repository and their content.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that are skipped if git is not available, since they have no sources.
const NOT_SOURCES: &[&str] = &[".git", ".venv", "__pycache__", "demo", "node_modules", "target", "venv"];

/// Paths of files and folders, relative to the root and separated by `/`.
pub(crate) struct Tree {
    root: PathBuf,
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl Tree {
    /// Lists the files that git tracks or would track. Without git, lists all files outside of folders such as
    /// `target`.
    pub(crate) fn of_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().expect("the crate lies two folders below the root");
        let files = listed_by_git(&root).unwrap_or_else(|| walked(&root));
        assert!(files.iter().any(|path| path == "Cargo.toml"), "{} is no root", root.display());
        Self::new(root, files)
    }

    /// Creates a tree with these files.
    pub(crate) fn new(root: PathBuf, files: impl IntoIterator<Item = String>) -> Self {
        let files: BTreeSet<String> = files.into_iter().collect();
        let slashes = |path: &str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        let folders = files.iter().flat_map(|path| slashes(path).into_iter().map(|at| path[..at].to_owned())).collect();
        Self { root, files, folders }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of every file, in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Returns whether a file or folder has this path. If the path ends in a slash, only a folder counts.
    pub(crate) fn has(&self, path: &str) -> bool {
        match path.strip_suffix('/') {
            Some(folder) => self.folders.contains(folder),
            None => self.files.contains(path) || self.folders.contains(path),
        }
    }

    /// Returns whether `path` is the path of a file or folder, or its end after a slash.
    pub(crate) fn has_ending(&self, path: &str) -> bool {
        let (name, folder_only) = path.strip_suffix('/').map_or((path, false), |name| (name, true));
        let ends = |whole: &String| whole.strip_suffix(name).is_some_and(|head| head.is_empty() || head.ends_with('/'));
        self.folders.iter().any(ends) || (!folder_only && self.files.iter().any(ends))
    }

    pub(crate) fn read_bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.root.join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8(self.read_bytes(path)).unwrap_or_else(|error| panic!("{path} is not UTF-8: {error}"))
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(listing).output().ok()?;
    let paths = String::from_utf8(output.stdout).ok()?;
    // Git still lists a file that was removed without committing the removal.
    let files = paths.split('\0').filter(|path| root.join(path).is_file()).map(str::to_owned);
    let files: Vec<String> = files.collect();
    (output.status.success() && files.iter().any(|path| path == "Cargo.toml")).then_some(files)
}

fn walked(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("a folder can be listed").path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !NOT_SOURCES.contains(&name) {
                folders.push(path);
            } else if path.is_file() {
                let inside = path.strip_prefix(root).expect("it was found there");
                files.push(inside.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    files
}

#[test]
fn walking_finds_what_git_lists() {
    let tree = Tree::of_repository();
    let walked = Tree::new(tree.root().to_owned(), walked(tree.root()));
    for path in tree.files() {
        assert!(walked.has(path), "{path} is in git but was not found by walking");
    }
}

#[test]
fn path_endings_start_at_a_component() {
    let tree = Tree::new(PathBuf::new(), ["crates/adjoin/src/plan/order.rs".to_owned()]);
    for present in ["plan/order.rs", "order.rs", "plan/", "crates", "crates/adjoin/src/plan/order.rs"] {
        assert!(tree.has_ending(present), "{present}");
    }
    for absent in ["rder.rs", "an/order.rs", "order.rs/", "plan/cache.rs"] {
        assert!(!tree.has_ending(absent), "{absent}");
    }
    assert!(tree.has("crates/adjoin/") && !tree.has("plan/order.rs"));
}
