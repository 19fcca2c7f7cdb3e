//! Remedies in messages about inputs. If a user follows a remedy once, the command must work.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Float64Array, Int64Array, RecordBatch, StringArray, StructArray};

use crate::inputs::{fbin, write_columns};
use crate::place::Place;

fn vectors(rows: &[Option<[f32; 2]>]) -> ArrayRef {
    let rows = rows.iter().map(|row| row.map(|vector| vector.map(Some)));
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 2))
}

/// Creates a file for every kind of advice.
fn place() -> Place {
    let place = Place::new();
    let plain = || vectors(&[Some([1.0, 0.0]), Some([0.0, 1.0]), Some([1.0, 1.0])]);
    let texts = |texts: [&str; 3]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let ids = || Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    let column = |name: &str, columns: &[(&str, ArrayRef)]| write_columns(&place.path(name), columns);
    column(
        "plain.parquet",
        &[("id", ids()), ("v", plain()), ("lang", texts(["en", "de", "x"])), ("code", texts(["1", "2", "1"]))],
    );
    column("two.parquet", &[("a", plain()), ("b", plain())]);
    column("twice.parquet", &[("id", Arc::new(Int64Array::from(vec![1, 1, 2])) as ArrayRef), ("v", plain())]);
    column("null.parquet", &[("v", vectors(&[Some([1.0, 0.0]), None, Some([0.0, 1.0])]))]);
    let inner = RecordBatch::try_from_iter([("v", plain())]).unwrap();
    column("nested.parquet", &[("s", Arc::new(StructArray::from(inner)) as ArrayRef)]);
    column(
        "float-id.parquet",
        &[("id", Arc::new(Float64Array::from(vec![1.0, 2.5, 3.0])) as ArrayRef), ("v", plain())],
    );
    place.write("set.fbin", &fbin(2, &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
    place.write("long.fbin", &fbin(2, &[1.0, 0.0, 3e38, 0.0, 0.0, 1.0]));
    for (folder, files) in [
        ("mixed", &["a.fbin", "b.u8bin"][..]),
        ("splits", &["train.fbin", "test.fbin"]),
        ("table", &["part-0.fbin"]),
        ("names", &[]),
    ] {
        fs::create_dir(place.path(folder)).unwrap();
        files.iter().for_each(|name| place.write(&format!("{folder}/{name}"), &fbin(2, &[1.0, 0.0, 0.0, 1.0])));
    }
    fs::create_dir(place.path("table/_delta_log")).unwrap();
    for name in [&b"a"[..], b"\xff"] {
        let folder = place.path("names").join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("v.fbin"), fbin(2, &[1.0, 0.0])).unwrap();
    }
    place.write("set.jsonl", b"{\"v\": [1, 0], \"id\": 1}\n{\"v\": [0, 1], \"id\": \"b\"}\n");
    place.done("build plain.parquet -o l2.store --quiet");
    place.done("build plain.parquet -o columns.store --columns lang,code --quiet");
    place.write("there.csv", b"");
    place.write("empty.key", b"");
    place
}

/// A command that fails, the remedy in its message, and the command that follows the remedy. The latter is empty if
/// the remedy needs another program.
const REMEDIES: &[(&str, &str, &str)] = &[
    // About files and folders.
    ("join mixed --eps 2 -o -", "name those to read by a glob such as mixed/*.fbin", "join mixed/*.fbin --eps 2 -o -"),
    ("join names/*/v.fbin --eps 0 -o -", "name the folder instead of the glob", "join names --eps 0 -o -"),
    ("join splits --split dev --eps 2 -o -", "train", "join splits --split train --eps 2 -o -"),
    ("join set.fbin --split train --eps 2 -o -", "leave out --split", "join set.fbin --eps 2 -o -"),
    ("join table/part-0.fbin --eps 2 -o -", "read only the current rows in Python", ""),
    // About columns.
    (
        "join two.parquet --eps 0 -o -",
        "pass --vector-column NAME (one of: a, b)",
        "join two.parquet --vector-column a --eps 0 -o -",
    ),
    (
        "join nested.parquet --eps 0 -o -",
        "pass --vector-column NAME (one of: s.v)",
        "join nested.parquet --vector-column s.v --eps 0 -o -",
    ),
    (
        "join plain.parquet --vector-column w --eps 0 -o -",
        "id (Int64), v (",
        "join plain.parquet --vector-column v --eps 0 -o -",
    ),
    ("join plain.parquet --id-column key --eps 0 -o -", "lang", "join plain.parquet --id-column lang --eps 0 -o -"),
    ("join set.fbin --id-column id --eps 0 -o -", "leave out --id-column", "join set.fbin --eps 0 -o -"),
    ("join float-id.parquet --eps 0 -o -", "--no-ids", "join float-id.parquet --no-ids --eps 0 -o -"),
    ("join set.jsonl --eps 2 -o -", "--no-ids", "join set.jsonl --no-ids --eps 2 -o -"),
    // About rows.
    (
        "join null.parquet --eps 2 -o -",
        "give --on-bad skip to leave them out",
        "join null.parquet --on-bad skip --eps 2 -o -",
    ),
    (
        "join set.fbin --min-similarity 0 -o -",
        "give --on-bad skip to leave them out",
        "join set.fbin --on-bad skip --min-similarity 0 -o -",
    ),
    ("join long.fbin --eps 2 -o -", "has length 3.000e38", "join long.fbin --on-bad skip --eps 2 -o -"),
    (
        "join twice.parquet --eps 2 -o -",
        "--on-duplicate-id keep",
        "join twice.parquet --on-duplicate-id keep --eps 2 -o -",
    ),
    // About stores.
    ("join l2.store --min-similarity 0.5 -o -", "--eps", "join l2.store --eps 0.5 -o -"),
    (
        "join l2.store --where lang='en' --eps 2 -o -",
        "build it again with --columns",
        "join columns.store --where lang='en' --eps 2 -o -",
    ),
    (
        "join columns.store --where lang=1 --eps 2 -o -",
        "columns.store: cannot filter rows by lang=1",
        "join columns.store --where lang='1' --eps 2 -o -",
    ),
    (
        "join columns.store --where lang=1 --eps 2 -o -",
        "put the number in quotes to compare texts",
        "join columns.store --where lang='1' --eps 2 -o -",
    ),
    ("build plain.parquet -o l2.store", "--force", "build plain.parquet -o l2.store --force --quiet"),
    ("join set.fbin --eps 2 -o there.csv", "--force", "join set.fbin --eps 2 -o there.csv --force --quiet"),
    // About numbers.
    ("join set.fbin --neighbors -1 -o -", "give a whole number, such as 10", "join set.fbin --neighbors 1 -o -"),
    (
        "search l2.store --queries set.fbin -k -1 -o -",
        "give a whole number, such as 10",
        "search l2.store --queries set.fbin -k 1 -o -",
    ),
    ("serve l2.store --key-file empty.key", "empty.key: its first line is not a key", ""),
];

#[test]
fn remedies_in_input_errors_work() {
    let place = place();
    for &(fails, says, works) in REMEDIES {
        place.refused(fails, &[says]);
        if !works.is_empty() {
            place.done(works);
        }
    }
}

#[test]
fn non_utf8_file_names_are_handled_or_refused() {
    let place = place();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let run = |words: &[&OsStr]| {
        let output = place.command(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let word = OsStr::new;
    let (code, said) = run(&[word("join"), &name(b"a\xff.npy"), word("--eps"), word("1"), word("-o"), word("-")]);
    assert!(code == Some(2) && said.contains("\"a\\xFF.npy\" is not UTF-8; rename the file or folder"), "{said}");
    let store = name(b"s\xff");
    let (code, said) = run(&[word("build"), word("plain.parquet"), word("-o"), &store, word("--quiet")]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(&[word("verify"), &store]);
    assert_eq!(code, Some(0), "{said}");
    // A folder that contains files with such names can be read. A result in a folder keeps the names.
    place.done("dedupe names -o without --eps 0 --quiet");
    for folder in [&b"a"[..], b"\xff"] {
        assert!(place.path("without").join(name(folder)).join("v.fbin").is_file());
    }
}
