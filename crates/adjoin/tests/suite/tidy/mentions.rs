//! Text that no file may contain: paths on a machine, and hosts of package registries.
//!
//! This file assembles the forbidden words from pieces, so that it does not contain them itself.

use super::Finding;

/// Lock files, which tools generate. They contain the names of registries.
const WRITTEN_BY_TOOLS: &[&str] = &["Cargo.lock", "uv.lock"];

/// The only file that may refer to folders next to the checkout.
const LOOKS_BESIDE: &str = ".ci/run";

/// Returns findings for mentions of paths on a machine, of folders next to the checkout, and of registries.
pub(crate) fn of_elsewhere(path: &str, bytes: &[u8]) -> Vec<Finding> {
    let is_binary = bytes[..bytes.len().min(8192)].contains(&0);
    if is_binary || WRITTEN_BY_TOOLS.iter().any(|name| path.ends_with(name)) {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().enumerate();
    lines.flat_map(|(number, line)| in_line(path, number + 1, line)).collect()
}

fn in_line(path: &str, number: usize, line: &str) -> Vec<Finding> {
    let places = ["work", "home", "root", "Users"].map(|name| format!("/{name}/"));
    let registries = [["crates", "io"], ["pypi", "org"], ["npmjs", "com"], ["npmjs", "org"], ["pythonhosted", "org"]];
    let registries = registries.map(|parts| parts.join("."));
    let beside = ["..", "shared"].join("/");
    let mut found = Vec::new();
    for place in places.iter().filter(|place| starts_a_path(line, place)) {
        found.push((place, "name it from the root of the repository, or take it as an option"));
    }
    for registry in registries.iter().filter(|host| line.contains(host.as_str())) {
        found.push((registry, "name the package; where it comes from is the reader's business"));
    }
    if path != LOOKS_BESIDE && line.contains(&beside) {
        found.push((&beside, "find larger data through ADJOIN_DATA, which .ci/run sets"));
    }
    found.into_iter().map(|(what, instead)| Finding::new(path, number, format!("mentions {what}"), instead)).collect()
}

/// Returns whether `place` starts a path in the line. After `./`, `$X` or a host, it is only a part of a path.
fn starts_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-/*)}>".contains(letter))
    })
}

#[test]
fn canary_mentions_are_found() {
    let canaries = [
        ["see /wo", "rk/main/x"],
        ["\"/ho", "me/me/x\""],
        ["https://pypi", ".org/project"],
        ["crates", ".io"],
        ["cat ../sha", "red/data"],
    ];
    for canary in canaries.map(|parts| parts.concat()) {
        let found = of_elsewhere("docs/a.md", format!("fine\n{canary}\n").as_bytes());
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{canary}");
        assert_eq!(of_elsewhere("Cargo.lock", canary.as_bytes()), []);
    }
}

#[test]
fn parts_of_paths_and_binary_files_are_ignored() {
    let place = ["/wo", "rk/"].concat();
    for line in [format!("$OUT{place}x"), format!("./{place}"), format!("https://host{place}")] {
        assert_eq!(of_elsewhere("a.md", line.as_bytes()), [], "{line}");
    }
    assert_eq!(of_elsewhere("a.parquet", format!("PAR1\0{place}").as_bytes()), []);
    assert_eq!(of_elsewhere(".ci/run", ["../", "shared"].concat().as_bytes()), []);
}
