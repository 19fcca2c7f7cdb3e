//! Stores, indexes, pairs and hits of real sets, compared with the digests in `tests/golden`. They are equal on all
//! processors and with any number of threads. Run the tests with `ADJOIN_TEST=overwrite` to accept a change.

use std::fmt::Write;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::place::Place;

/// Builds, joins and searches a set, and compares digests of all files.
fn check(file: &str, eps: &str) {
    let Some(data) = std::env::var_os("ADJOIN_DATA").map(|folder| Path::new(&folder).join(file)) else {
        println!("skipped: ADJOIN_DATA names no folder with {file}");
        return;
    };
    let place = Place::on_disk();
    std::os::unix::fs::symlink(&data, place.path(file)).unwrap();
    place.write("ids", (0..100).map(|id| format!("{id}\n")).collect::<String>().as_bytes());
    for line in [
        format!("build {file} -o set.store --memory 256MB"),
        format!("join set.store --eps {eps} --exact -o exact.csv --memory 256MB"),
        format!("join set.store --eps {eps} --recall 0.9 -o found.csv --memory 256MB"),
        "index build set.store -o set.index --memory 256MB".to_owned(),
        "get set.store --ids ids -o queries.parquet --memory 256MB".to_owned(),
        "search set.index --queries queries.parquet -k 10 --list 50 -o hits.csv --memory 256MB".to_owned(),
    ] {
        place.done(&format!("{line} --quiet"));
    }
    let mut found = String::new();
    for name in ["set.store", "set.index", "exact.csv", "found.csv", "hits.csv"] {
        for (path, bytes) in place.tree(name) {
            let name = path.strip_prefix(place.path("")).unwrap().display();
            writeln!(found, "{:016x} {name}", xxh3_64(&sorted_lines(&path, bytes))).unwrap();
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{file}.txt"));
    if std::env::var_os("ADJOIN_TEST").is_some_and(|value| value == "overwrite") {
        std::fs::write(&golden, &found).unwrap();
    }
    let golden = std::fs::read_to_string(golden).unwrap_or_default();
    assert!(found == golden, "{file} gives other results\n--- found\n{found}\n--- golden\n{golden}");
}

/// Sorts the lines of a CSV file, since pairs are written in any order if there are several threads.
fn sorted_lines(path: &Path, bytes: Vec<u8>) -> Vec<u8> {
    if path.extension().is_none_or(|extension| extension != "csv") {
        return bytes;
    }
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines.join(&b'\n')
}

#[test]
fn descriptors_give_the_golden_results() {
    check("sift-200k.u8bin", "100");
}

#[test]
fn descriptors_of_star_fields_give_the_golden_results() {
    check("sift-stars-50k.u8bin", "80");
}

#[test]
fn package_descriptions_give_the_golden_results() {
    check("debdesc.f16.npy", "0.6");
}

#[test]
fn glosses_give_the_golden_results() {
    check("wordnet-20k.f16.npy", "0.8");
}
