//! Fuzz tests of source files.

use std::path::Path;

use adjoin::{Context, Element, Random, Result, SourceOptions, VectorType, lab::source::open};

use crate::files::Files;
use crate::mutate::mutate;
use crate::{MEMORY_MAX, check_error, corpus, fuzz};

/// Opens and scans files. Checks that the number of rows and their row numbers are as announced. Returns the number
/// of rows.
fn read(files: &Files, names: &[&str]) -> Result<u64> {
    let names: Vec<String> = names.iter().map(|name| format!("nowhere/{name}")).collect();
    let mut context = Context::default();
    context.device = files.device(Path::new("nowhere"));
    let source = open(&context, &names, &SourceOptions::default())?;
    let info = source.info();
    let mut rows = 0;
    let mut scan = source.scan(1_000)?;
    while let Some(batch) = scan.next_batch()? {
        assert_eq!((batch.first_row, batch.bytes.len()), (rows, batch.rows * info.vectors.bytes()));
        assert!(batch.faults.iter().all(|&(row, _)| row < batch.rows) && batch.ids.kind() == info.ids);
        rows += batch.rows as u64;
    }
    assert_eq!(rows, info.rows);
    Ok(rows)
}

/// Mutates each file of a corpus under one file name, and reads it.
fn damaged(target: &str, name: &str, memory_max: usize, corpus: &[Vec<u8>]) {
    let whole = |bytes: &Vec<u8>| {
        let mut files = Files::default();
        files.put(name, bytes.clone());
        assert_eq!(read(&files, &[name]).unwrap(), 12, "the corpus is as it should be");
    };
    corpus.iter().for_each(whole);
    let mut survivors = 0;
    fuzz(target, memory_max, |random| {
        let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
        mutate(random, &mut bytes, corpus);
        let mut files = Files::default();
        files.put(name, bytes);
        match read(&files, &[name]) {
            Ok(_) => survivors += 1,
            Err(error) => check_error(&error, name),
        }
    });
    eprintln!("{target}: {survivors} cases were read");
}

fn vectors(element: Element) -> VectorType {
    VectorType { element, dimensions: 5 }
}

#[test]
fn numpy_files() {
    let kinds = [("<f4", Element::F32), ("<f2", Element::F16), ("|u1", Element::U8), ("|i1", Element::I8)];
    let corpus: Vec<_> = kinds
        .iter()
        .flat_map(|&(kind, element)| (1..=3).map(move |version| corpus::npy(version, kind, vectors(element))))
        .collect();
    damaged("numpy", "a.npy", MEMORY_MAX, &corpus);
}

#[test]
fn safetensors_files() {
    let kinds = [("F32", 4), ("BF16", 2), ("F64", 8), ("I8", 1)];
    let corpus: Vec<_> = kinds.iter().map(|&(dtype, bytes)| corpus::safetensors(dtype, bytes)).collect();
    damaged("safetensors", "a.safetensors", MEMORY_MAX, &corpus);
}

#[test]
fn files_of_counts_and_rows() {
    for (name, element) in [("a.fbin", Element::F32), ("a.u8bin", Element::U8), ("a.i8bin", Element::I8)] {
        damaged(name, name, MEMORY_MAX, &[corpus::counted_file(vectors(element))]);
    }
}

#[test]
fn files_of_counted_rows() {
    for (name, element) in [("a.fvecs", Element::F32), ("a.bvecs", Element::U8)] {
        damaged(name, name, MEMORY_MAX, &[corpus::counted_rows(vectors(element))]);
    }
}

#[test]
fn parquet_files() {
    damaged("parquet", "a.parquet", MEMORY_MAX, &corpus::parquet());
}

#[test]
fn arrow_files() {
    damaged("arrow", "a.arrow", MEMORY_MAX, &corpus::arrow());
}

#[test]
fn numpy_zips() {
    damaged("npz", "a.npz", MEMORY_MAX, &corpus::npz(vectors(Element::F32)));
}

#[test]
fn json_lines() {
    damaged("json lines", "a.jsonl", MEMORY_MAX, &corpus::json_lines());
}

/// Checks sets of shards in different formats, some of which are damaged. The row numbers must still be consecutive
/// across all shards.
#[test]
fn sets_of_shards() {
    let parquet = corpus::parquet();
    let shards: [(&str, &[Vec<u8>]); 4] = [
        ("a.fbin", &[corpus::counted_file(vectors(Element::F32))]),
        ("b.fvecs", &[corpus::counted_rows(vectors(Element::F32))]),
        ("c.npy", &[corpus::npy(1, "<f4", vectors(Element::F32))]),
        ("d.parquet", &parquet),
    ];
    fuzz("shards", MEMORY_MAX, |random| {
        let mut files = Files::default();
        let mut names = Vec::new();
        for _ in 0..1 + random.below(5) {
            let (name, corpus) = shards[random.below(shards.len() as u64) as usize];
            files.put(name, pick(random, corpus));
            names.push(name);
        }
        if let Err(error) = read(&files, &names) {
            check_error(&error, "nowhere/");
        }
    });
}

fn pick(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len() as u64) as usize].clone();
    if random.below(3) == 0 {
        mutate(random, &mut bytes, corpus);
    }
    bytes
}
