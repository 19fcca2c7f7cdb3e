//! Invalid inputs. One line must name the file, the row, the value and a remedy, and no files may be left behind.

use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, ListArray};
use rustix::fs::{FileType, Mode};

use crate::inputs::{fbin, npy, write_columns, write_parquet};
use crate::place::Place;

/// Checks that every command that reads sources refuses these sources.
fn refused_by_all(place: &Place, sources: &str, threshold: &str, words: &[&str]) {
    let metric = if threshold.starts_with("--eps") { "l2" } else { "cosine" };
    place.refused(&format!("build {sources} --metric {metric} -o store"), words);
    place.refused(&format!("join {sources} {threshold} -o pairs.parquet"), words);
    place.refused(&format!("join {sources} {threshold}"), words);
    // A ground truth never skips rows, so it must not advise to skip them.
    let words: Vec<&str> = words.iter().filter(|word| !word.starts_with("--on-bad")).copied().collect();
    place.refused(&format!("groundtruth {sources} {threshold} -o pairs.csv"), &words);
}

fn lists(rows: &[&[Option<f64>]]) -> ArrayRef {
    let rows = rows.iter().map(|row| Some(row.iter().copied()));
    Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows))
}

#[test]
fn refuses_lists_of_the_wrong_length() {
    let place = Place::new();
    let good: &[Option<f64>] = &[Some(1.0), Some(2.0)];
    let write = |rows: &[&[Option<f64>]]| write_columns(&place.path("set.parquet"), &[("v", lists(rows))]);
    for (bad, words) in [
        (&[][..], "the vector of row 2 is an empty list; 2 elements are expected"),
        (&[Some(1.0)], "the vector of row 2 has 1 element; 2 are expected"),
        (&[Some(1.0), Some(2.0), Some(3.0)], "the vector of row 2 has 3 elements; 2 are expected"),
        (&[Some(1.0), None], "the vector of row 2 has a null element (element 1)"),
        (&[Some(1e300), Some(0.0)], "the vector of row 2 has 1e300 at element 0, which does not fit into f32"),
    ] {
        write(&[good, good, bad]);
        refused_by_all(&place, "set.parquet", "--eps 1", &["set.parquet", words, "fix the rows", "--on-bad skip"]);
        let ran = place.done("join set.parquet --eps 1 --on-bad skip -o -");
        assert_eq!(ran.out, "left_id,right_id,distance\n0,1,0.0\n");
        assert!(ran.said.contains("skipped: 1 row without a usable vector"), "{}", ran.said);
    }
    write(&[&[], good, good]);
    assert_eq!(place.done("join set.parquet --eps 1 --on-bad skip -o -").out, "left_id,right_id,distance\n1,2,0.0\n");
}

#[test]
fn reports_a_first_row_of_unusual_length() {
    let place = Place::new();
    let good: &[Option<f64>] = &[Some(1.0), Some(2.0)];
    write_columns(&place.path("set.parquet"), &[("v", lists(&[&[], &[Some(0.5)], good, good, good]))]);
    let words = [
        "5 rows checked, 3 have 2, 1 has 1",
        "row 1 of set.parquet seems to be the exception; remove that \
                                                         row",
    ];
    refused_by_all(&place, "set.parquet", "--eps 1", &words);
    place.refused("join set.parquet --eps 1 --on-bad skip", &words);
}

#[test]
fn refuses_nan_and_infinite_values() {
    for (value, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let place = Place::new();
        place.write("set.fbin", &fbin(2, &[0.0, 0.0, 1.0, value]));
        refused_by_all(&place, "set.fbin", "--eps 1", &["set.fbin", "row 1 ", word, "element 1", "--on-bad skip"]);
    }
}

#[test]
fn lists_the_first_bad_rows() {
    let place = Place::new();
    let mut elements = vec![0.0; 200];
    (3..200).for_each(|row| elements[row] = f32::NAN);
    place.write("set.fbin", &fbin(1, &elements));
    refused_by_all(&place, "set.fbin", "--eps 1", &["row 3 ", "row 4 ", "row 7 ", "and more"]);
}

#[test]
fn bad_rows_are_numbered_within_their_shard() {
    let place = Place::new();
    place.write("a.fbin", &fbin(1, &[0.0, 1.0]));
    place.write("b.fbin", &fbin(1, &[2.0, f32::NAN]));
    refused_by_all(&place, "a.fbin b.fbin", "--eps 1", &["b.fbin", "row 1 "]);
}

#[test]
fn refuses_null_vectors_and_duplicate_ids() {
    let place = Place::new();
    write_parquet(&place.path("set.parquet"), &[("a", Some([0.0, 1.0])), ("b", None)]);
    refused_by_all(&place, "set.parquet", "--eps 1", &["set.parquet", "row 1 ", "null", "--on-bad skip"]);
    write_parquet(&place.path("set.parquet"), &[("a", Some([0.0, 1.0])), ("a", Some([1.0, 1.0]))]);
    let words = ["set.parquet", "the id a of row 1", "--on-duplicate-id keep"];
    place.refused("build set.parquet --id-column key -o store", &words);
    place.refused("join set.parquet --id-column key --eps 1 -o pairs.csv", &words);
    place.done("build set.parquet -o store"); // without ids, no id can occur twice
}

#[test]
fn refuses_zero_vectors_for_cosine() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[1.0, 0.0, 0.0, 0.0]));
    let words = ["set.fbin", "row 1 ", "zero", "--on-bad skip"];
    refused_by_all(&place, "set.fbin", "--min-similarity 0.5", &words);
    assert_eq!(place.done("join set.fbin --eps 1 -o -").out, "left_id,right_id,distance\n0,1,1.0\n");
}

#[test]
fn refuses_shards_of_different_dimensions_or_elements() {
    let place = Place::new();
    place.write("a.fbin", &fbin(2, &[1.0, 2.0]));
    place.write("b.fbin", &fbin(3, &[1.0, 2.0, 3.0]));
    place.write("c.u8bin", &[1, 0, 0, 0, 2, 0, 0, 0, 7, 8]);
    refused_by_all(&place, "a.fbin b.fbin", "--eps 1", &["a.fbin", "b.fbin", "2", "3"]);
    refused_by_all(&place, "a.fbin c.u8bin", "--eps 1", &["a.fbin", "c.u8bin", "f32", "u8"]);
    std::fs::create_dir(place.path("shards")).unwrap();
    for name in ["a.fbin", "c.u8bin"] {
        std::fs::copy(place.path(name), place.path("shards").join(name)).unwrap();
    }
    refused_by_all(&place, "shards", "--eps 1", &["several formats", "a.fbin", "c.u8bin", "glob"]);
}

#[test]
fn refuses_raw_files_of_a_wrong_length() {
    let place = Place::new();
    let whole = fbin(2, &[1.0, 2.0, 3.0, 4.0]);
    for bytes in [&whole[..whole.len() - 1], &whole[..12], &whole[..5], &[whole.clone(), vec![0]].concat(), b""] {
        place.write("set.fbin", bytes);
        refused_by_all(&place, "set.fbin", "--eps 1", &["set.fbin"]);
    }
}

#[test]
fn refuses_headers_with_wrong_counts() {
    let place = Place::new();
    for counts in [[1 << 31, 2], [u32::MAX, 2], [2, u32::MAX], [u32::MAX, u32::MAX], [1, 0], [1, 8193]] {
        place.write("set.fbin", &[&counts.map(u32::to_le_bytes).concat()[..], &[0; 16]].concat());
        refused_by_all(&place, "set.fbin", "--eps 1", &["set.fbin"]);
    }
    for shape in [
        "(2147483648, 2)",
        "(999999999999, 2)",
        "(18446744073709551616, 2)",
        "(2, 0)",
        "(2, 8193)",
        "(-1, 2)",
        "(2.0, 2)",
    ] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        place.write("set.npy", &npy(&header, &[0; 16]));
        refused_by_all(&place, "set.npy", "--eps 1", &["set.npy"]);
    }
}

#[test]
fn refuses_unsupported_numpy_files() {
    let place = Place::new();
    let header = |kind: &str, fortran: &str, shape: &str| {
        format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
    };
    for (header, words) in [
        (header("<f4", "False", "(1, 2, 2)"), &["set.npy", "3"][..]),
        (header("<f4", "True", "(2, 2)"), &["set.npy", "Fortran"]),
        (header("|O", "False", "(2, 2)"), &["set.npy", "|O"]),
        (header("<c8", "False", "(1, 2)"), &["set.npy", "<c8"]),
        ("{'no': 1}".to_owned(), &["set.npy"]),
    ] {
        place.write("set.npy", &npy(&header, &[0; 16]));
        refused_by_all(&place, "set.npy", "--eps 1", words);
    }
    let mut bytes = npy(&header("<f4", "False", "(2, 2)"), &[0; 16]);
    bytes[0] = b'X';
    place.write("set.npy", &bytes);
    refused_by_all(&place, "set.npy", "--eps 1", &["set.npy"]);
}

#[test]
fn refuses_sets_without_rows() {
    let place = Place::new();
    place.done("gen --rows 0 --dimensions 4 -o set.fbin");
    place.done("gen --rows 0 --dimensions 4 -o set.npy");
    refused_by_all(&place, "set.fbin", "--eps 1", &["set.fbin", "no rows"]);
    refused_by_all(&place, "set.npy", "--eps 1", &["set.npy", "no rows"]);
    write_parquet(&place.path("set.parquet"), &[]);
    refused_by_all(&place, "set.parquet", "--eps 1", &["set.parquet", "no rows"]);
    place.write("bad.fbin", &fbin(1, &[f32::NAN]));
    place.refused("build bad.fbin --on-bad skip -o store", &["usable"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    refused_by_all(&place, "empty", "--eps 1", &["empty", "no files"]);
}

#[test]
fn refuses_missing_files_and_columns() {
    let place = Place::new();
    write_parquet(&place.path("set.parquet"), &[("a", Some([0.0, 1.0]))]);
    refused_by_all(&place, "nowhere.npy", "--eps 1", &["nowhere.npy", "No such file"]);
    refused_by_all(&place, "*.npy", "--eps 1", &["*.npy", "no file matches"]);
    for option in ["--vector-column", "--id-column"] {
        let words = ["set.parquet", "wrong", "embedding"];
        refused_by_all(&place, &format!("set.parquet {option} wrong"), "--eps 1", &words);
    }
    place.write("set.fbin", &fbin(1, &[0.0]));
    refused_by_all(&place, "set.fbin --id-column key", "--eps 1", &["set.fbin", "key", "no columns"]);
    place.write("set.txt", b"1 2 3");
    refused_by_all(&place, "set.txt", "--eps 1", &["set.txt", ".txt", ".parquet"]);
    rustix::fs::mknodat(rustix::fs::CWD, place.path("pipe.fbin"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    refused_by_all(&place, "pipe.fbin", "--eps 1", &["pipe.fbin", "a pipe"]);
    place.write("set.parquet", b"PAR1 but no more");
    refused_by_all(&place, "set.parquet", "--eps 1", &["set.parquet"]);
}

#[test]
fn a_missing_input_is_reported_as_missing() {
    let place = Place::new();
    refused_by_all(&place, "embedings", "--eps 1", &["embedings: there is no such file or folder; check the path"]);
    place.refused("dedupe embedings/ --eps 1 -o out", &["embedings/: there is no such file or folder"]);
}
