//! Style rules that a machine can check. Every finding states the place, the problem and the remedy.
//!
//! The tables below define the rules. Each submodule checks one kind of text. It also has canaries, which are texts
//! with a known fault that the check must find.

mod api;
mod documents;
mod language;
mod licences;
mod manifests;
mod mentions;
mod modules;
mod scan;
mod tree;

use std::fmt;

use tree::Tree;

/// Modules of the engine, highest layer first. With `use crate::`, a layer may use only lower layers. The last layer
/// is the vocabulary. Its modules may also use one another, without cycles.
const LAYERS: &[&[&str]] = &[
    &["lab"],
    &["dedupe", "estimate", "flash"],
    &["job"],
    &["folder"],
    &["serve"],
    &["collection"],
    &["index"],
    &["graph", "join"],
    &["quantize"],
    &["buckets"],
    &["query"],
    &["truth"],
    &["sink"],
    &["execute"],
    &["load"],
    &["store"],
    &["source"],
    &["plan"],
    &["sql", "text"],
    &["base"],
];

/// Modules that only compute. They may use the vocabulary and themselves.
const PURE_MODULES: &[&str] = &["plan"];

/// Folders of modules. Their parts must not depend on each other in a cycle. The root of the engine has layers
/// instead.
const WITHOUT_CIRCLES: &[&str] = &[
    "crates/adjoin-cli/src",
    "crates/adjoin-cli/src/args",
    "crates/adjoin-cli/src/commands",
    "crates/adjoin-cli/src/commands/flash",
    "crates/adjoin-cli/src/report",
    "crates/adjoin-device/src",
    "crates/adjoin-device/src/simulated",
    "crates/adjoin-device/src/trace",
    "crates/adjoin-flash/src",
    "crates/adjoin-flash/src/search",
    "crates/adjoin-kernels/src",
    "crates/adjoin-kernels/src/aarch64",
    "crates/adjoin-kernels/src/block_levels",
    "crates/adjoin-kernels/src/x86",
    "crates/adjoin-object/src",
    "crates/adjoin-server/src",
    "crates/adjoin-server/src/load",
    "crates/adjoin/src/base",
    "crates/adjoin/src/buckets",
    "crates/adjoin/src/collection",
    "crates/adjoin/src/dedupe",
    "crates/adjoin/src/estimate",
    "crates/adjoin/src/execute",
    "crates/adjoin/src/base/geometry",
    "crates/adjoin/src/graph",
    "crates/adjoin/src/index",
    "crates/adjoin/src/job",
    "crates/adjoin/src/join",
    "crates/adjoin/src/load",
    "crates/adjoin/src/plan",
    "crates/adjoin/src/quantize",
    "crates/adjoin/src/query",
    "crates/adjoin/src/serve",
    "crates/adjoin/src/sink",
    "crates/adjoin/src/source",
    "crates/adjoin/src/sql",
    "crates/adjoin/src/store",
    "crates/adjoin/src/truth",
    "lab/src",
    "python/src",
];

/// Names that a pure module must not use: a crate or module, and names in it.
const IMPURE: &[(&str, &[&str])] = &[
    ("std", &["env", "fs", "io", "net", "process", "thread", "time"]),
    ("crate", &["device"]),
    ("base", &["context", "workers"]),
    ("adjoin_device", &["Device", "FileSystem", "ReadFile", "ReadQueue", "Recorder", "SimulatedDevice", "WriteFile"]),
];

/// Words that a pure module must not contain, even if they are imported in another way.
const IMPURE_WORDS: &[&str] = &["Instant", "SystemTime"];

/// Independent crates. None of them may use the engine or another crate of this list.
const LEAVES: &[&str] = &["adjoin-device", "adjoin-flash", "adjoin-kernels"];

/// Dependencies that only crates in certain folders may have.
const RESERVED: &[(&str, &[&str])] = &[
    ("adjoin-lab", &["lab/"]),
    ("axum", &["crates/adjoin-server/"]),
    ("clap", &["crates/adjoin-cli/"]),
    ("hyper", &["crates/adjoin-object/", "crates/adjoin-server/"]),
    ("indicatif", &["crates/adjoin-cli/"]),
    ("object_store", &["crates/adjoin-object/"]),
    ("pyo3", &["python/"]),
    ("reqwest", &["crates/adjoin-object/"]),
    ("tokio", &["crates/adjoin-object/", "crates/adjoin-server/"]),
    ("tracing", &["crates/adjoin-server/"]),
];

/// Folders of the programs and packages that are published. They may use only the public interface of the engine.
const PRODUCTS: &[&str] = &["crates/adjoin-cli/src/", "crates/adjoin-server/src/", "python/src/"];

/// Maximum number of public names of the engine.
const PUBLIC_NAMES_MAX: usize = 120;

/// Folders that may contain `unsafe`.
const UNSAFE_HOMES: &[&str] = &["crates/adjoin-device/", "crates/adjoin-kernels/"];

/// Maximum number of lines of a function, including signature and closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Maximum number of lines of a file, without in-file tests.
const FILE_LINES_MAX: usize = 600;

/// Maximum number of lines of a file of tests only.
const TEST_FILE_LINES_MAX: usize = 800;

/// Maximum number of lines of the architecture document.
const ARCHITECTURE_LINES_MAX: usize = 200;

/// Licenses that are accepted for a dependency.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    line: usize,
    what: String,
    instead: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into(), instead: instead.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}\n    instead: {}", self.file, self.line, self.what, self.instead)
    }
}

/// Fails with all findings, if there are any.
#[track_caller]
fn none_of(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "rules broken: {}\n{}", lines.len(), lines.join("\n"));
}

/// Runs `check` on every Rust file with a path that starts with `folder`.
fn in_rust(folder: &str, check: impl Fn(&str, &str) -> Vec<Finding>) -> Vec<Finding> {
    let tree = Tree::of_repository();
    let files = tree.files().filter(|path| path.starts_with(folder) && path.ends_with(".rs"));
    let findings: Vec<_> = files.map(|path| check(path, &tree.read(path))).collect();
    assert!(!findings.is_empty(), "no Rust files under {folder}: the check looks at nothing");
    findings.into_iter().flatten().collect()
}

#[test]
fn modules_use_only_lower_modules() {
    none_of(&in_rust(modules::ENGINE, modules::edges_that_go_up));
}

#[test]
fn modules_within_a_module_have_no_cyclic_uses() {
    let tree = Tree::of_repository();
    let mut uses = Default::default();
    for path in tree.files().filter(|path| path.contains("/src/") && path.ends_with(".rs")) {
        let folders = WITHOUT_CIRCLES.iter().filter(|folder| path.starts_with(**folder));
        folders.for_each(|folder| modules::note_uses(folder, path, &tree.read(path), &mut uses));
    }
    assert_eq!(uses.len(), WITHOUT_CIRCLES.len(), "a module is gone");
    none_of(&modules::circles(&uses));
}

#[test]
fn the_public_interface_is_small() {
    none_of(&api::oversized(&Tree::of_repository().read(api::ROOT)));
}

#[test]
fn every_public_name_has_a_user() {
    let tree = Tree::of_repository();
    let is_user = |path: &&str| {
        let mut folders = PRODUCTS.iter().chain(&["crates/adjoin/examples/"]);
        path.ends_with(".rs") && folders.any(|folder| path.starts_with(folder))
    };
    let users: Vec<String> = tree.files().filter(is_user).map(|path| scan::blank(&tree.read(path))).collect();
    let names = api::public_names(&tree.read(api::ROOT));
    assert_eq!(api::unused(&names, &users), [""; 0], "no product or example uses these: make them private");
}

#[test]
fn products_do_not_use_what_serves_experiments() {
    none_of(&in_rust("", api::uses_of_lab));
}

#[test]
fn planning_does_no_io_and_reads_no_clock() {
    none_of(&in_rust(modules::ENGINE, modules::impurities));
}

#[test]
fn unsafe_code_is_only_in_two_crates() {
    none_of(&in_rust("", scan::unsafe_outside_its_homes));
}

#[test]
fn crates_have_only_allowed_dependencies() {
    let tree = Tree::of_repository();
    let manifests = tree.files().filter(|path| path.ends_with("Cargo.toml"));
    none_of(&manifests.flat_map(|path| manifests::foreign_dependencies(path, &tree.read(path))).collect::<Vec<_>>());
}

#[test]
fn every_crate_uses_the_workspace_lints() {
    let tree = Tree::of_repository();
    let manifests = tree.files().filter(|path| path.ends_with("/Cargo.toml"));
    none_of(&manifests.filter_map(|path| manifests::lints_of_its_own(path, &tree.read(path))).collect::<Vec<_>>());
}

#[test]
fn functions_are_short() {
    none_of(&scan::worst_first(in_rust("", scan::long_functions)));
}

#[test]
fn files_are_short() {
    none_of(&scan::worst_first(in_rust("", |path, text| scan::long_file(path, text).into_iter().collect())));
}

#[test]
fn documents_name_files_that_exist() {
    let tree = Tree::of_repository();
    let documents = tree.files().filter(|path| documents::is_document(path));
    none_of(&documents.flat_map(|path| documents::dead_paths(&tree, path, &tree.read(path))).collect::<Vec<_>>());
}

#[test]
fn the_architecture_document_is_short() {
    let tree = Tree::of_repository();
    if !tree.has("ARCHITECTURE.md") {
        return; // the document does not exist yet
    }
    let lines = tree.read("ARCHITECTURE.md").lines().count();
    assert!(
        lines <= ARCHITECTURE_LINES_MAX,
        "ARCHITECTURE.md:{lines}: longer than {ARCHITECTURE_LINES_MAX} lines\n    instead: move detail into docs/ or \
         beside the code"
    );
}

#[test]
fn there_is_one_version_of_arrow() {
    let tree = Tree::of_repository();
    let locks = tree.files().filter(|path| path.ends_with("Cargo.lock"));
    none_of(&locks.flat_map(|path| manifests::doubled_packages(path, &tree.read(path))).collect::<Vec<_>>());
}

#[test]
fn dependencies_are_permissive() {
    none_of(&licences::unwelcome(&licences::metadata(Tree::of_repository().root())));
}

#[test]
fn files_mention_nothing_outside_the_project() {
    let tree = Tree::of_repository();
    none_of(&tree.files().flat_map(|path| mentions::of_elsewhere(path, &tree.read_bytes(path))).collect::<Vec<_>>());
}

#[test]
fn text_has_no_banned_phrases() {
    let tree = Tree::of_repository();
    let is_prose =
        |path: &&str| [".rs", ".md", ".py", ".pyi"].iter().any(|end| path.ends_with(end)) && *path != "CHANGELOG.md";
    // The tables of habits quote them.
    let files = tree.files().filter(is_prose).filter(|path| !path.ends_with("tidy/language.rs"));
    let mut counts = language::Counts::default();
    let mut findings = Vec::new();
    for path in files {
        let text = tree.read(path);
        counts.add(path, &text);
        findings.extend(language::banned(path, &text));
        findings.extend(language::dependent_starts(path, &text));
    }
    none_of(&[findings, counts.findings()].concat());
}
