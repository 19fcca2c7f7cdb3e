//! Files with large pages or record batches. The memory for their decoded form must be reserved before they are
//! decoded.

use std::fs::File;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::options::least_budget;
use crate::place::Place;

const ROWS: usize = 12_000;
const DIMENSIONS: usize = 512;
/// Size of the only page of the vectors after decompression, in bytes.
const PAGE_BYTES: usize = ROWS * DIMENSIONS * 4;

/// Writes a file as DuckDB does: all vectors are in one page, as lists without a declared length.
fn write_large_page(place: &Place, name: &str) {
    let mut state = 1u32;
    let mut element = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((state >> 8) as f32)
    };
    let vectors = (0..ROWS).map(|_| Some((0..DIMENSIONS).map(|_| element()).collect::<Vec<_>>()));
    let vectors = ListArray::from_iter_primitive::<Float32Type, _, _>(vectors);
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int64Array::from_iter_values(0..ROWS as i64))), ("v", Arc::new(vectors))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(usize::MAX)
        .set_write_batch_size(1 << 24)
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(place.path(name)).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Checks a calibration on equal vectors. Every sampled vector has all other vectors as neighbors.
#[test]
fn a_calibration_of_equal_vectors_keeps_its_budget() {
    let place = Place::new();
    let header = [4_000_u32, 32].map(u32::to_le_bytes).concat();
    std::fs::write(place.path("set.u8bin"), [header, vec![7; 4_000 * 32]].concat()).unwrap();
    place.done("join set.u8bin --eps 1 --recall 0.9 --result counts -o counts.csv --memory 64MB --threads 1");
    assert!(place.text("counts.csv").ends_with("3999,3999\n"));
}

#[test]
fn the_least_budget_counts_decompressed_page_sizes() {
    let place = Place::new();
    write_large_page(&place, "set.parquet");
    for line in ["build set.parquet -o store", "join set.parquet --eps 1 -o pairs.parquet"] {
        place.refused(&format!("{line} --memory 36MB --threads 1"), &["give --memory"]);
        let said = place.run(&format!("{line} --memory 36MB --threads 1")).said;
        let budget = least_budget(&said);
        let bytes = budget.trim_end_matches("MB").parse::<usize>().unwrap() * 1_000_000;
        assert!((2 * PAGE_BYTES..4 * PAGE_BYTES).contains(&bytes), "{line}: {said}");
        let ran = place.done(&format!("{line} --memory {budget} --threads 1"));
        assert!(ran.said.contains("memory: "), "{}", ran.said);
    }
}

/// Checks that the budget that the first refusal names suffices for every phase of a command. Exit code 1 is
/// accepted, because the code of an unoptimized program takes more memory.
#[test]
fn a_suggested_budget_is_never_refused() {
    let place = Place::new();
    let shapes = [("6000", "16", "f32"), ("1500", "300", "f32"), ("9000", "24", "u8")];
    for (shape, (rows, dimensions, element)) in shapes.into_iter().enumerate() {
        let ending = if element == "f32" { "fbin" } else { "u8bin" };
        for (name, rows, seed) in [("set", rows, 1), ("more", "700", 2)] {
            let of = format!("--rows {rows} --dimensions {dimensions} --element {element} --seed {seed}");
            place.done(&format!("gen {of} -o {name}{shape}.{ending}"));
        }
        let [set, more] = ["set", "more"].map(|name| format!("{name}{shape}.{ending}"));
        let (store, grown) = (format!("store{shape}"), format!("grown{shape}"));
        place.done(&format!("build {set} -o {store}"));
        place.done(&format!("build {set} -o {grown}"));
        let [index, unmerged, merged] = ["index", "unmerged", "merged"].map(|name| format!("{name}{shape}"));
        place.done(&format!("index build {set} -o {index}"));
        for collection in [&unmerged, &merged] {
            let of = format!("--dimensions {dimensions} --element {element} --metric l2");
            place.done(&format!("collection create {collection} {of}"));
            place.done(&format!("collection write {collection} --insert {set}"));
        }
        place.done(&format!("collection merge {merged}"));
        let eps = if element == "u8" { "40" } else { "1.2" };
        for line in [
            format!("build {set} -o built{shape}"),
            format!("join {set} --eps {eps} -o a{shape}.parquet"),
            format!("join {set} --eps {eps}"),
            format!("join {set} --eps {eps} --result counts -o b{shape}.csv"),
            format!("join {store} --eps {eps} --result clusters -o c{shape}.csv"),
            format!("join {store} --eps {eps} --exact --result removed -o d{shape}.csv"),
            format!("join {set} --with {more} --eps {eps} -o e{shape}.csv"),
            format!("join {store} --new {more} --eps {eps} -o f{shape}.csv"),
            format!("explain {store} --eps {eps}"),
            format!("explain {set} --eps {eps}"),
            format!("append {grown} --new {more}"),
            format!("join {set} --neighbors 10 -o m{shape}.parquet"),
            format!("join {set} --neighbors 1000 --exact -o n{shape}.parquet"),
            // Every row is a hit.
            format!("search {store} --queries {more} --radius 99999 -o g{shape}.parquet"),
            format!("search {index} --queries {more} --radius 99999 -o h{shape}.parquet"),
            format!("search {unmerged} --queries {more} --radius 99999 -o i{shape}.parquet"),
            format!("search {merged} --queries {more} --radius 99999 -o j{shape}.parquet"),
            format!("join {unmerged} --eps {eps} -o k{shape}.parquet"),
            format!("join {merged} --eps {eps} -o l{shape}.parquet"),
        ] {
            let refused = place.run(&format!("{line} --memory 19MB --threads 1"));
            if refused.code == Some(2) {
                let ran = place.run(&format!("{line} --memory {} --threads 1", least_budget(&refused.said)));
                assert_ne!(ran.code, Some(2), "{line}: {} then {}", refused.said, ran.said);
            }
        }
    }
}
