//! Common layouts of data sets: splits of Hugging Face, and partitions of Hive.

use std::fs;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array};

use crate::inputs::write_columns;
use crate::place::Place;

/// Writes a Parquet file with one vector for each id.
fn write(place: &Place, name: &str, ids: std::ops::Range<i64>) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let vectors = ids.clone().map(|id| Some([Some((id / 2) as f32), Some((id % 2) as f32 / 10.0)]));
    let vectors: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2));
    write_columns(&path, &[("id", Arc::new(Int64Array::from_iter_values(ids))), ("v", vectors)]);
}

#[test]
fn every_command_can_read_one_split() {
    let place = Place::new();
    write(&place, "set/data/train-00000-of-00002.parquet", 0..6);
    write(&place, "set/data/train-00001-of-00002.parquet", 6..10);
    write(&place, "set/data/test-00000-of-00001.parquet", 10..14);
    let said = place.done("join set --eps 0.5 -o whole.csv").said;
    assert!(
        said.contains("all splits are read as one set: test, train; the option split selects one of them"),
        "{said}"
    );
    let said = place.done("join set --split train --eps 0.5 -o pairs.csv").said;
    assert!(said.starts_with("5 pairs found") && !said.contains("one set"), "{said}");
    assert!(place.done("build set --split test -o store").said.contains("4 vectors"));
    place.done("explain store --eps 0.5");
    place.done("dedupe set --split train --eps 0.5 -o kept");
    assert!(place.path("kept/data/train-00001-of-00002.parquet").exists());
    assert!(!place.path("kept/data/test-00000-of-00001.parquet").exists());
    let words = ["set: there is no split dev; the splits are test, train; give one of these to --split"];
    place.refused("join set --split dev --eps 1", &words);
    place.refused("dedupe set --split dev --eps 1 -o other", &words);
    place.refused("join set/data/* --split train --eps 1", &["is not a folder", "leave out --split"]);
}

#[test]
fn hive_partitions_are_read_as_plain_files_and_keep_their_paths() {
    let place = Place::new();
    for (part, ids) in [("year=2023", 0..6), ("year=2024", 6..10)] {
        write(&place, &format!("hive/{part}/part-0.parquet"), ids.clone());
        write(&place, &format!("plain/{part}.parquet"), ids);
    }
    let pairs = |source: &str| place.done(&format!("join {source} --eps 1.5 -o -")).out;
    assert!(pairs("hive").lines().count() > 10);
    assert_eq!(pairs("hive"), pairs("plain"));
    place.done("dedupe hive --eps 0.5 -o kept");
    let rows = |name: &str| place.done(&format!("join {name} --eps 100 --result counts -o -")).out.lines().count() - 1;
    assert_eq!(rows("kept/year=2023/part-0.parquet"), 3);
    assert_eq!(rows("kept/year=2024/part-0.parquet"), 2);
    assert_eq!(pairs("kept").lines().count() - 1, 4);
    let words = ["no column year in the files, only in names of folders such as year=2023"];
    place.refused("dedupe hive --eps 0.5 -o other --keep-by year", &words);
    place.refused("dedupe hive --eps 0.5 -o other --keep-by month", &["there is no column month; choose from id, v"]);
}
