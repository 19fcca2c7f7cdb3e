//! Documents show commands with their output, and messages of the program: both must match the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::sample;
use crate::place::Place;

/// Units of figures that differ from run to run.
const UNITS: [&str; 5] = ["s", "ms", "kB", "MB", "GB"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the fenced blocks of a page, each with its language.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// Replaces times and sizes by `#`.
fn masked(text: &str) -> String {
    let mask_line = |line: &str| {
        let mut words: Vec<&str> = line.trim_end().split(' ').collect();
        for at in 1..words.len() {
            let unit = words[at].trim_end_matches([',', ';']);
            if UNITS.contains(&unit) && words[at - 1].starts_with(|letter: char| letter.is_ascii_digit()) {
                words[at - 1] = "#";
            }
        }
        words.join(" ")
    };
    text.trim().lines().map(mask_line).collect::<Vec<_>>().join("\n")
}

#[test]
fn only_times_and_sizes_are_masked() {
    let line = "35,159 pairs found in 1.1 s; memory: 79.0 MB, 24,000 rows of 9 sets";
    assert_eq!(masked(line), "35,159 pairs found in # s; memory: # MB, 24,000 rows of 9 sets");
}

#[test]
fn the_tutorials_run_and_print_what_they_show() {
    let programs = Path::new(env!("CARGO_BIN_EXE_adjoin")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let pages = fs::read_dir(root().join("docs/tutorials")).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")).collect();
    assert!(!pages.is_empty());
    for page in pages {
        let place = Place::new();
        fs::copy(sample(), place.path("sample.parquet")).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        let mut printed = String::new();
        let mut compared = 0;
        for (language, lines) in blocks(&text) {
            match language {
                "sh" => {
                    let script = format!("exec 2>&1\nset -e\n{lines}");
                    let mut bash = Command::new("bash");
                    bash.args(["-c", &script]).env("PATH", &path).env("LC_ALL", "C").current_dir(place.path(""));
                    let ran = bash.output().unwrap();
                    printed = String::from_utf8(ran.stdout).unwrap();
                    assert!(ran.status.success(), "{}: {lines}\n{printed}", page.display());
                }
                "text" => {
                    assert_eq!(masked(&printed), masked(lines), "{}", page.display());
                    compared += 1;
                }
                _ => panic!("{}: a block of {language}", page.display()),
            }
        }
        assert!(compared >= 3, "{}: {compared} outputs were compared", page.display());
    }
}

/// Returns the sources of all crates in a folder, without the breaks of long strings.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut pieces = text.split("\\\n");
            all.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| all.push_str(piece.trim_start()));
        }
    }
}

#[test]
fn the_program_has_the_messages_of_the_troubleshooting_page() {
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let titles = text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    let mut count = 0;
    for part in titles.flat_map(|title| title.split('…')) {
        assert!(all.contains(part), "no source has the message {part:?}; write what it is now");
        count += 1;
    }
    assert!(count > 20);
}
