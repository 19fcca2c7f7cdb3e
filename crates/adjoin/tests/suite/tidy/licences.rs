//! Licenses of dependencies.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Finding, LICENCES};

/// Returns cargo's metadata of all packages for any platform. If not all of them are available offline, returns the
/// metadata for this platform.
pub(crate) fn metadata(root: &Path) -> Value {
    // With `--locked`, the test does not rewrite the lock file.
    let metadata = ["metadata", "--format-version", "1", "--offline", "--locked"];
    let mut output = cargo(root, &metadata);
    if !output.status.success() {
        let version = cargo(root, &["-vV"]);
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        println!("not every platform's packages are at hand: only those of {host} are checked");
        output = cargo(root, &[metadata.as_slice(), &["--filter-platform", host]].concat());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo metadata failed; run `cargo fetch` first, which also renews a stale lock file\n{complaint}"
    );
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Returns findings for packages without an accepted license.
pub(crate) fn unwelcome(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert!(!packages.is_empty(), "cargo metadata names no package");
    packages.iter().filter_map(objection).collect()
}

fn cargo(root: &Path, arguments: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(cargo).current_dir(root).args(arguments).output().expect("cargo starts")
}

fn objection(package: &Value) -> Option<Finding> {
    let text = |key: &str| package[key].as_str();
    let name = format!("{} {}", text("name")?, text("version")?);
    let problem = match text("license").map(|expression| (expression, is_welcome(expression))) {
        Some((_, Ok(true))) => return None,
        Some((expression, Ok(false))) => format!("is under {expression}"),
        Some((expression, Err(error))) => format!("has a licence that cannot be read, {expression}: {error}"),
        None => "states no licence".to_owned(),
    };
    let instead = format!("use a package under one of: {}; `cargo tree -i` says who wants it", LICENCES.join(", "));
    Some(Finding::new("Cargo.lock", 1, format!("{name} {problem}"), instead))
}

/// Returns whether an SPDX expression allows an accepted license. `/` is the old form of OR.
fn is_welcome(expression: &str) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().collect(), at: 0 };
    let welcome = parser.alternatives()?;
    match parser.next() {
        None => Ok(welcome),
        Some(word) => Err(format!("{word} is out of place")),
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn alternatives(&mut self) -> Result<bool, String> {
        let mut welcome = self.conjunction()?;
        while self.take("OR") {
            welcome |= self.conjunction()?;
        }
        Ok(welcome)
    }

    fn conjunction(&mut self) -> Result<bool, String> {
        let mut welcome = self.licence()?;
        while self.take("AND") {
            welcome &= self.licence()?;
        }
        Ok(welcome)
    }

    fn licence(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let welcome = self.alternatives()?;
            return if self.take(")") { Ok(welcome) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let name = self.name()?;
        let full = if self.take("WITH") { format!("{name} WITH {}", self.name()?) } else { name.to_owned() };
        Ok(LICENCES.contains(&full.as_str()))
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let is_name = |word: &&str| !["(", ")", "AND", "OR", "WITH"].contains(word);
        self.next().filter(is_name).ok_or_else(|| "a licence is missing".to_owned())
    }

    fn take(&mut self, word: &str) -> bool {
        let taken = self.words.get(self.at) == Some(&word);
        self.at += usize::from(taken);
        taken
    }

    fn next(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.words.get(self.at - 1).copied()
    }
}

#[test]
fn license_expressions_follow_spdx() {
    let welcome = [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "GPL-3.0 AND MIT OR ISC",
        "((Zlib))",
    ];
    for expression in welcome {
        assert_eq!(is_welcome(expression), Ok(true), "{expression}");
    }
    for expression in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR MPL-2.0)", "MIT WITH LLVM-exception"] {
        assert_eq!(is_welcome(expression), Ok(false), "{expression}");
    }
    for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT ISC", "AND", "MIT WITH"] {
        assert!(is_welcome(expression).is_err(), "{expression}");
    }
}

#[test]
fn canary_packages_without_an_allowed_license_are_found() {
    let package = |licence: Value| serde_json::json!({"name": "x", "version": "1.0.0", "license": licence});
    let packages = [package("MIT".into()), package("GPL-3.0".into()), package(Value::Null), package("MIT OR".into())];
    let found = unwelcome(&serde_json::json!({ "packages": packages }));
    let found: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(found[..2], ["x 1.0.0 is under GPL-3.0", "x 1.0.0 states no licence"]);
    assert!(found.len() == 3 && found[2].contains("cannot be read"), "{found:?}");
}
