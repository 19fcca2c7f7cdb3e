//! Dependencies in Cargo.toml and Cargo.lock.

use std::collections::BTreeMap;

use super::{Finding, LEAVES, RESERVED};

/// Returns findings for dependencies that the crate of a Cargo.toml must not have.
pub(crate) fn foreign_dependencies(path: &str, manifest: &str) -> Vec<Finding> {
    let package = package_name(manifest).unwrap_or_default();
    let objection = |name: &str| {
        if LEAVES.contains(&package) && (name == "adjoin" || LEAVES.contains(&name)) {
            return Some(format!("stands alone: let the engine bring {package} and {name} together"));
        }
        let (_, homes) = RESERVED.iter().find(|(reserved, _)| *reserved == name)?;
        let is_home = homes.iter().any(|home| path.starts_with(home));
        (!is_home).then(|| format!("belongs to {}: keep what needs it there", homes.join(" and ")))
    };
    let finding = |(line, name): (usize, &str)| {
        Some(Finding::new(path, line, format!("{package} depends on {name}"), objection(name)?))
    };
    dependencies(manifest).into_iter().filter_map(finding).collect()
}

/// Returns a finding if a crate does not inherit the lints of the workspace.
pub(crate) fn lints_of_its_own(path: &str, manifest: &str) -> Option<Finding> {
    let in_lints = sections(manifest).any(|(_, section, line)| section == "lints" && key(line) == "workspace");
    let instead = "write `[lints]` and `workspace = true`, and allow single lints where they are broken";
    (!in_lints).then(|| Finding::new(path, 1, "the workspace's lints are not inherited", instead))
}

/// Returns findings for packages of the Arrow family that are in a Cargo.lock with several versions.
pub(crate) fn doubled_packages(path: &str, lock: &str) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    let mut lines = lock.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let version = lines.peek().and_then(|(_, next)| quoted_value(next, "version"));
        if let (Some(name), Some(version)) = (quoted_value(line, "name"), version) {
            versions.entry(name).or_default().push((number + 1, version));
        }
    }
    let family = |name: &str| name == "arrow" || name.starts_with("arrow-") || name == "parquet" || name == "half";
    let doubled = versions.into_iter().filter(|(name, found)| family(name) && found.len() > 1);
    doubled
        .map(|(name, found)| {
            let numbers: Vec<_> = found.iter().map(|(_, version)| *version).collect();
            let what = format!("{name} in versions {}", numbers.join(" and "));
            let instead =
                "bring all users of Arrow to one version; `cargo tree -i` with name@version says who they are";
            Finding::new(path, found[1].0, what, instead)
        })
        .collect()
}

fn package_name(manifest: &str) -> Option<&str> {
    sections(manifest).find_map(|(_, section, line)| (section == "package").then(|| quoted_value(line, "name"))?)
}

/// Returns the names of the direct dependencies in a Cargo.toml, with their line numbers. Dependencies of the
/// workspace are left out.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, section, line) in sections(manifest) {
        let (kind, single) = split_section(section);
        if section.starts_with("workspace") || !kind.ends_with("dependencies") {
            continue;
        }
        let named = if line.starts_with('[') { single } else { (single.is_none()).then(|| key(line)) };
        let renamed = line.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
        found.extend(renamed.or(named).filter(|name| !name.is_empty()).map(|name| (number, name)));
    }
    found
}

/// Splits the name of a section into the kind of dependencies and the name of a dependency. `dependencies.clap` is
/// the section of one dependency. `target.'cfg(unix)'.dependencies` is a section of several and is not split.
fn split_section(section: &str) -> (&str, Option<&str>) {
    match section.rsplit_once('.') {
        Some((kind, name)) if kind.ends_with("dependencies") => (kind, Some(name)),
        _ => (section, None),
    }
}

/// Returns each line that is neither empty nor a comment, with its number and its section. A header is in its own
/// section.
fn sections(manifest: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    let lines = manifest.lines().map(str::trim).enumerate();
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(move |(number, line)| {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        (number + 1, section, line)
    })
}

/// Returns the name that a line sets: `clap` for `clap.workspace = true` and for `"clap" = "4"`.
fn key(line: &str) -> &str {
    line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"')
}

fn quoted_value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
    value.strip_prefix('"')?.strip_suffix('"')
}

#[test]
fn canary_foreign_dependencies_are_found_in_any_notation() {
    let manifest = "[package]\nname = \"adjoin-device\"\n\n[dependencies]\nrustix.workspace = true\nadjoin-kernels = { path \
                    = \"../adjoin-kernels\" }\n[dev-dependencies.adjoin]\nworkspace = true\n[target.'cfg(unix)'.\
                    dependencies]\nterminal = { package = \"clap\", version = \"4\" }\n[features]\nadjoin = []\n";
    let found = foreign_dependencies("crates/adjoin-device/Cargo.toml", manifest);
    let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
    assert_eq!(
        found,
        [
            (6, "adjoin-device depends on adjoin-kernels"),
            (7, "adjoin-device depends on adjoin"),
            (10, "adjoin-device depends on clap")
        ]
    );
    let cli = "[package]\nname = \"adjoin-cli\"\n[dependencies]\nclap = \"4\"\nadjoin-device.workspace = true\n";
    assert_eq!(foreign_dependencies("crates/adjoin-cli/Cargo.toml", cli), []);
    assert_eq!(foreign_dependencies("Cargo.toml", "[workspace.dependencies]\nclap = \"4\"\n"), []);
}

#[test]
fn canary_missing_lints_are_found() {
    assert!(lints_of_its_own("a/Cargo.toml", "[lints.rust]\nunsafe_code = \"allow\"\n").is_some());
    assert!(lints_of_its_own("a/Cargo.toml", "[lints]\nworkspace = true\n").is_none());
}

#[test]
fn canary_a_second_arrow_is_found() {
    let package = |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n");
    let once = [package("arrow-array", "59.3.2"), package("half", "2.7.1"), package("syn", "1.0.0")].concat();
    let lock = [once.as_str(), &package("syn", "2.0.0")].concat();
    assert_eq!(doubled_packages("Cargo.lock", &lock), []);
    let found = doubled_packages("Cargo.lock", &(lock + &package("half", "1.8.0")));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].what.as_str()), (18, "half in versions 2.7.1 and 1.8.0"));
}
