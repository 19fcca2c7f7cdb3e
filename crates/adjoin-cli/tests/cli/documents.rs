//! Documents show commands with their output, and messages of the program. Both must match what the program prints.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use adjoin::Random;
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, StringArray};
use arrow_schema::{DataType, Field};

use crate::inputs::{sample, write_columns};
use crate::place::{Place, skip};

/// Units of numbers that differ from run to run.
const UNITS: [&str; 5] = ["s", "ms", "kB", "MB", "GB"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the fenced blocks of a page. Each has its language and its text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap()).collect()
}

/// Replaces the numbers of times and sizes by `#`.
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

/// Line that is printed after the output of each block.
const END: &str = "===== end of a block";

/// Runs the shell blocks of a page in one shell, so that later blocks can use the servers that earlier blocks start.
/// Returns the output of each block.
fn outputs(blocks: &[(&str, &str)], place: &Place) -> Vec<String> {
    let mut script = "exec 2>&1\nset -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
    for (_, lines) in blocks.iter().filter(|(language, _)| *language == "sh") {
        script += &format!("{lines}\nprintf '\\n{END}\\n'\n");
    }
    // The default port, which the page uses, may be taken on this machine.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let script = script.replace("127.0.0.1:7700", &free.to_string());
    let programs = Path::new(env!("CARGO_BIN_EXE_adjoin")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("PATH", &path).env("LC_ALL", "C").current_dir(place.path(""));
    let ran = bash.output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    // A phase that takes long on a busy machine prints its progress.
    let is_progress = |line: &&str| line.contains(" per second, ") && line.ends_with(" s left");
    let printed = printed.split('\n').filter(|line| !is_progress(line)).collect::<Vec<_>>().join("\n");
    assert!(ran.status.success(), "{:?}: {printed}", ran.status);
    printed.split(&format!("\n{END}\n")).map(str::to_owned).collect()
}

fn check_tutorial(page: &str, compared: usize) {
    let place = Place::new();
    fs::copy(sample(), place.path("sample.parquet")).unwrap();
    let text = fs::read_to_string(root().join("docs/tutorials").join(page)).unwrap();
    let blocks = blocks(&text);
    let mut outputs = outputs(&blocks, &place).into_iter();
    let (mut printed, mut count) = (String::new(), 0);
    for (language, lines) in blocks {
        match language {
            "sh" => printed = outputs.next().unwrap(),
            "text" => {
                assert_eq!(masked(&printed), masked(lines));
                count += 1;
            }
            _ => panic!("a block of {language}"),
        }
    }
    assert_eq!(count, compared);
}

#[test]
fn the_tutorial_about_a_training_set_prints_what_it_shows() {
    check_tutorial("clean-a-training-set.md", 7);
}

#[test]
fn the_tutorial_about_filters_prints_what_it_shows() {
    check_tutorial("search-with-filters.md", 4);
}

#[test]
fn the_tutorial_about_a_crash_prints_what_it_shows() {
    if !Command::new("curl").arg("--help").output().is_ok_and(|output| output.status.success()) {
        return skip("curl", "curl is not there");
    }
    check_tutorial("survive-a-crash.md", 6);
}

#[test]
fn the_readme_prints_what_it_shows_first() {
    let place = Place::new();
    fs::create_dir(place.path("fixtures")).unwrap();
    fs::copy(sample(), place.path("fixtures/sample.parquet")).unwrap();
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let [(_, install), command, (language, printed), ..] = blocks(&text)[..] else {
        panic!("the README has fewer blocks")
    };
    assert!(install.starts_with("pip install ") && language == "text");
    assert_eq!(masked(&outputs(&[command], &place)[0]), masked(printed));
}

/// Writes the sources that the section "Use it" of the README names.
fn write_sources(place: &Place) {
    const DIMENSIONS: usize = 384;
    let mut random = Random::new(1, "readme");
    let centers: Vec<f64> = (0..50 * DIMENSIONS).map(|_| random.uniform() - 0.5).collect();
    let mut write = |name: &str, rows: usize| {
        let near = |row: usize| &centers[row % 50 * DIMENSIONS..][..DIMENSIONS];
        let values = (0..rows).flat_map(near).map(|value| (value + 0.1 * random.uniform()) as f32);
        let vectors = Float32Array::from_iter_values(values);
        let item = Arc::new(Field::new("item", DataType::Float32, false));
        let vectors = FixedSizeListArray::new(item, DIMENSIONS as i32, Arc::new(vectors), None);
        let texts = |kind: &str| -> ArrayRef {
            Arc::new((0..rows).map(|row| Some(format!("{kind} {row} of {name}"))).collect::<StringArray>())
        };
        let columns = [("id", texts("id")), ("text", texts("text")), ("embedding", Arc::new(vectors) as ArrayRef)];
        write_columns(&place.path(name), &columns);
    };
    fs::create_dir(place.path("embeddings")).unwrap();
    write("embeddings/part-0.parquet", 1500);
    write("embeddings/part-1.parquet", 500);
    write("queries.parquet", 20);
    write("today.parquet", 300);
    place.write("deleted.txt", b"id 1 of today.parquet\n");
    place.done("gen --rows 20 --dimensions 384 -o queries.npy --quiet");
}

#[test]
fn the_commands_of_the_readme_run() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Use it\n")).unwrap();
    let blocks: Vec<_> = blocks(section).into_iter().filter(|(language, _)| *language == "sh").collect();
    let place = Place::new();
    write_sources(&place);
    assert_eq!(outputs(&blocks, &place).len(), blocks.len() + 1);
    let results = ["deduped", "removed.parquet", "pairs.csv", "hits.parquet", "index-hits.parquet"];
    for written in results.iter().chain(&["collection-hits.parquet"]) {
        assert!(place.path(written).exists(), "{written}");
    }
}

/// Returns the code of a source file without comments and unit tests. Strings that span several lines are joined.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let joined = lines.join("\n");
    let mut pieces = joined.split("\\\n");
    let first = pieces.next().unwrap_or_default();
    first.to_owned() + &pieces.map(str::trim_start).collect::<String>()
}

#[test]
fn code_has_neither_comments_nor_unit_tests() {
    let text = "// is null\nfault(\"a \\\n    b\");\n#[cfg(test)]\nmod tests { \"c\" }\n";
    assert_eq!(code(text), "fault(\"a b\");");
}

/// Appends the code of all crates in a folder to `all`.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        } else if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&code(&fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_program_has_the_messages_of_the_troubleshooting_page() {
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let titles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    for title in &titles {
        let parts = || title.split('…').map(str::trim);
        assert!(parts().any(|part| part.len() >= 12), "{title:?} has no part that only this message has");
        for part in parts() {
            assert!(all.contains(part), "no source has the message {part:?}; write the current message");
        }
    }
    assert!(titles.len() > 20);
}
