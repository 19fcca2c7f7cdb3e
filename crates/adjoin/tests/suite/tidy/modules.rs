//! Dependencies between modules of the engine.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{blank, heads, inline_modules, line_of, without_tests, words};
use super::{Finding, IMPURE, IMPURE_WORDS, LAYERS, PURE_MODULES};

/// Folder of the engine's modules.
pub(crate) const ENGINE: &str = "crates/adjoin/src/";

/// Returns findings for uses of a module that is not in a lower layer or not in the table.
pub(crate) fn edges_that_go_up(path: &str, source: &str) -> Vec<Finding> {
    let Some(module) = module_of(path) else {
        return Vec::new();
    };
    if layer_of(module).is_none() {
        let what = format!("module `{module}` is not in the table of layers");
        return vec![Finding::new(path, 1, what, "add it to LAYERS in crates/adjoin/tests/suite/tidy.rs")];
    }
    let code = without_tests(&blank(source));
    let mut edges: Vec<_> = words(&code, "crate").flat_map(|at| heads(&code, at + "crate".len())).collect();
    edges.extend(heads_in(0, path, &code));
    let wrong = edges.into_iter().filter_map(|(at, to)| {
        let (what, instead) = objection(module, to)?;
        Some(Finding::new(path, line_of(&code, at), what, instead))
    });
    wrong.collect()
}

/// Returns findings for uses of I/O, clocks and threads in a pure module.
pub(crate) fn impurities(path: &str, source: &str) -> Vec<Finding> {
    let Some(module) = module_of(path).filter(|module| PURE_MODULES.contains(module)) else {
        return Vec::new();
    };
    let code = without_tests(&blank(source));
    let named = IMPURE.iter().flat_map(|(krate, names)| {
        let heads = words(&code, krate).flat_map(|at| heads(&code, at + krate.len()));
        heads.filter(|(_, name)| names.contains(name)).map(move |(at, name)| (at, format!("{krate}::{name}")))
    });
    let said = IMPURE_WORDS.iter().flat_map(|word| words(&code, word).map(|at| (at, (*word).to_owned())));
    let instead = "take what is needed as data; the passes that read or time belong to `truth` and `join`";
    let finding = |(at, name)| Finding::new(path, line_of(&code, at), format!("`{module}` names `{name}`"), instead);
    named.chain(said).map(finding).collect()
}

/// Returns the module of the engine that a file belongs to. Returns `None` for the root, and for files of tests.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(ENGINE)?;
    let module = inside.split('/').next()?.trim_end_matches(".rs");
    let is_test = inside.ends_with("/tests.rs") || inside.contains("/tests/");
    (module != "lib" && !is_test).then_some(module)
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the problem and the remedy if module `from` must not use module `to`.
fn objection(from: &str, to: &str) -> Option<(String, String)> {
    let vocabulary = LAYERS.len() - 1;
    let what = format!("`{from}` uses `crate::{to}`");
    let Some(below) = layer_of(to) else {
        let instead = "name the module it lies in; a new module goes into LAYERS in crates/adjoin/tests/suite/tidy.rs";
        return Some((format!("{what}, which is no module of the table"), instead.to_owned()));
    };
    let above = layer_of(from)?;
    if from == to || below == vocabulary {
        return None;
    }
    if PURE_MODULES.contains(&from) {
        let instead = "take it as data, or move the words that both need into the vocabulary";
        return Some((format!("{what}, but may use the vocabulary only"), instead.to_owned()));
    }
    let order: Vec<_> = LAYERS.iter().map(|layer| layer.join(", ")).collect();
    let instead = format!("let a higher module join the two; arrows go down only: {}", order.join(" -> "));
    (below <= above).then(|| (format!("{what}, which does not lie below it"), instead))
}

/// Returns names that are reached through a chain of `super` which leads to a module at depth `depth`. Depth 0 is the
/// root of the crate.
fn heads_in<'a>(depth: usize, path: &str, code: &'a str) -> Vec<(usize, &'a str)> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside).trim_end_matches("/mod.rs");
    let file_depth = 1 + inside.matches('/').count() - depth.min(1 + inside.matches('/').count());
    let modules = inline_modules(code);
    let mut found = Vec::new();
    for first in words(code, "super").filter(|&at| !code[..at].trim_end().ends_with("super::")) {
        let mut depth = file_depth + modules.iter().filter(|module| module.contains(&first)).count();
        let mut named = vec![(first, "super")];
        while let (true, [(at, "super")]) = (depth > 0, named.as_slice()) {
            named = heads(code, at + "super".len());
            depth -= 1;
        }
        if depth == 0 {
            found.extend(named);
        }
    }
    found
}

/// Dependencies between the parts of modules. The keys are the folder of the module and the part. The values are the
/// parts that it uses.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Records which parts of the module in `folder` a file uses. The file of the module itself may use all parts and is
/// skipped.
pub(crate) fn note_uses(folder: &str, path: &str, source: &str, uses: &mut Uses) {
    let Some(inside) = path.strip_prefix(folder).and_then(|inside| inside.strip_prefix('/')) else { return };
    let part = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
    if matches!(part, "lib" | "main" | "mod" | "tests") || inside.ends_with("/tests.rs") {
        return;
    }
    let module = folder.split_once("/src/").map_or("", |(_, module)| module);
    let names: Vec<&str> = module.split('/').filter(|name| !name.is_empty()).collect();
    let code = without_tests(&blank(source));
    let mut below_crate: Vec<_> = words(&code, "crate").flat_map(|at| heads(&code, at + "crate".len())).collect();
    for name in &names {
        let of_module = below_crate.into_iter().filter(|(_, head)| head == name);
        below_crate = of_module.flat_map(|(at, head)| heads(&code, at + head.len())).collect();
    }
    let named = below_crate.into_iter().chain(heads_in(names.len(), path, &code));
    let used = named.map(|(_, name)| name.to_owned()).filter(|name| name != part);
    uses.entry(folder.to_owned()).or_default().entry(part.to_owned()).or_default().extend(used);
}

/// Returns findings for parts of a module that depend on each other in a cycle.
pub(crate) fn circles(uses: &Uses) -> Vec<Finding> {
    let of_module = |(folder, parts): (&String, &BTreeMap<String, BTreeSet<String>>)| {
        let mut left = parts.clone();
        // A part is in no cycle if it uses none of the remaining parts.
        loop {
            let names: BTreeSet<String> = left.keys().cloned().collect();
            let before = left.len();
            left.retain(|_, used| !used.is_disjoint(&names));
            if left.len() == before {
                break;
            }
        }
        let names: Vec<String> = left.into_keys().collect();
        let what = format!("modules that use one another in a circle, or one that does: {}", names.join(", "));
        let instead = "move what both need into a module below both";
        (!names.is_empty()).then(|| Finding::new(folder, 1, what, instead))
    };
    uses.iter().filter_map(of_module).collect()
}

/// Expected result without findings.
const NONE: [usize; 0] = [];

/// Returns the lines of the findings in a file.
fn lines_found(file: &str, source: &str) -> Vec<usize> {
    edges_that_go_up(&format!("{ENGINE}{file}"), source).iter().map(|finding| finding.line).collect()
}

#[test]
fn canary_uses_of_higher_modules_are_found_in_any_notation() {
    let up = "use crate::base::error::Error;\nuse crate::load::Buckets;\n";
    assert_eq!(lines_found("store/reader.rs", up), [2]);
    assert_eq!(lines_found("join/mod.rs", up), NONE);
    assert_eq!(lines_found("load/pass.rs", up), NONE);
    assert_eq!(lines_found("store/reader.rs", "use crate::{\n    base::error::{Error},\n    join,\n};\n"), [3]);
    assert_eq!(lines_found("store/reader.rs", "fn f() -> crate :: join::Run { todo }"), [1]);
    assert_eq!(lines_found("store/reader.rs", "use super::super::join;\nuse super::format;\n"), [1]);
    assert_eq!(lines_found("store/mod.rs", "mod inner { use super::X;\nuse super::super::join; }"), [2]);
    assert_eq!(lines_found("base/error.rs", "use crate::base::options::Metric;\nuse super::super::source;\n"), [2]);
    assert_eq!(lines_found("graph/build.rs", "use crate::join::Run;\n"), [1]);
}

#[test]
fn canary_cyclic_uses_in_a_module_are_found_in_any_notation() {
    let found = |files: &[(&str, &str)]| {
        let mut uses = Uses::new();
        let folder = format!("{ENGINE}join");
        files.iter().for_each(|(file, source)| note_uses(&folder, &format!("{ENGINE}{file}"), source, &mut uses));
        circles(&uses).len()
    };
    let down = [("join/a.rs", "use super::b::B;"), ("join/b/c.rs", "use crate::join::{d, e::E};"), ("join/d.rs", "")];
    assert_eq!(found(&down), 0);
    assert_eq!(found(&[down[0], ("join/b/c.rs", "use super::super::a::A;")]), 1);
    assert_eq!(found(&[down[0], ("join/b/mod.rs", "use super::a::A;")]), 1);
    assert_eq!(found(&[down[0], ("join/b.rs", "use crate::join::{c, a};")]), 1);
    assert_eq!(
        found(&[down[0], ("join/b.rs", "use crate::store::a;"), ("join/mod.rs", "use self::a; use self::b;")]),
        0
    );
}

#[test]
fn canary_a_circle_at_the_root_of_a_crate_is_found() {
    let found = |files: &[(&str, &str)]| {
        let mut uses = Uses::new();
        let path = |file: &str| format!("crates/other/src/{file}");
        files.iter().for_each(|(file, source)| note_uses("crates/other/src", &path(file), source, &mut uses));
        circles(&uses).len()
    };
    let up = ("a.rs", "use crate::b::{B, c};");
    assert_eq!(found(&[up, ("b/mod.rs", "use super::a::A;")]), 1);
    assert_eq!(found(&[up, ("b/c.rs", "use super::super::a::A;")]), 1);
    assert_eq!(found(&[up, ("b/c.rs", "use crate::d::A; use super::a;"), ("lib.rs", "mod a; use b::B;")]), 0);
}

#[test]
fn canary_planning_may_use_the_vocabulary_only() {
    assert_eq!(lines_found("plan/mod.rs", "use crate::base::geometry::X;\nuse crate::store::Reader;\n"), [2]);
    assert_eq!(lines_found("plan/mod.rs", "pub(in crate::plan) fn f() {}\nuse crate::source::Ids;\n"), [2]);
}

#[test]
fn comments_strings_and_tests_are_no_uses() {
    let source = "// use crate::join;\n//! [`crate::join`]\nlet a = \"crate::join\";\n#[cfg(test)]\nmod tests {\n    use \
                  super::*;\n    use crate::join::Run;\n}\n";
    assert_eq!(lines_found("store/reader.rs", source), NONE);
    assert_eq!(lines_found("store/tests.rs", "use crate::join::Run;"), NONE);
    assert_eq!(lines_found("lib.rs", "pub use crate::join::Run;"), NONE);
}

#[test]
fn canary_modules_missing_in_the_table_are_found() {
    let found = edges_that_go_up("crates/adjoin/src/misc/mod.rs", "");
    assert!(found[0].to_string().contains("`misc` is not in the table"), "{}", found[0]);
    assert_eq!(lines_found("store/mod.rs", "use crate::*;\nuse crate::Error;\nuse crate::base::error::Error;"), [1, 2]);
}

#[test]
fn canary_io_and_clock_in_planning_are_found() {
    let source = "use std::collections::BTreeMap;\nuse std::{cmp, fs, time::Duration};\nfn f() { std::thread::spawn(g) }\n\
                  let t = Instant::now(); // std::io\nuse adjoin_device::{MemoryBudget, Device};\nuse crate::base::workers::scope;\n#[cfg(test)]\nmod t { \
                  use std::io; }\n";
    let found = impurities("crates/adjoin/src/plan/order.rs", source);
    let mut lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
    lines.sort_unstable();
    assert_eq!(lines, [2, 2, 3, 4, 5, 6]);
    assert_eq!(impurities("crates/adjoin/src/truth/sample.rs", source), []);
}
