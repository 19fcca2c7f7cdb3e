//! `adjoin search`: hits by query and rank in every format, and refusals.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::inputs::{fbin, npy, sample, write_parquet};
use crate::options::least_budget;
use crate::place::Place;

/// Counts the queries whose first hit is the query itself, in a table with `k` hits per query.
pub(crate) fn find_themselves(hits: &str, k: usize) -> usize {
    let is_itself = |line: &&str| {
        let fields: Vec<&str> = line.split(',').collect();
        fields[0] == fields[2]
    };
    hits.lines().skip(1).step_by(k).filter(is_itself).count()
}

/// Creates a store of 8 points in the plane, and queries.
fn small() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 3., 0., 0., 4., 5., 5., 1., 0., 9., 9., -2., 0.]));
    place.write("queries.fbin", &fbin(2, &[0., 0., 9., 8.]));
    place.done("build set.fbin -o set.store --quiet");
    place
}

#[test]
fn hits_are_ordered_by_query_rank_and_row() {
    let place = small();
    let hits = "query,rank,id,distance\n0,1,0,0.0\n0,2,1,1.0\n0,3,5,1.0\n1,1,6,1.0\n1,2,4,5.0\n1,3,3,9.848858\n";
    assert_eq!(place.done("search set.store --queries queries.fbin -k 3 --quiet").out, hits);
    place.done("search set.store --queries queries.fbin -k 3 -o hits.csv --quiet");
    assert_eq!(place.text("hits.csv"), hits);
    let within = place.done("search set.store --queries queries.fbin --radius 1 --exact --quiet").out;
    assert_eq!(within, "query,rank,id,distance\n0,1,0,0.0\n0,2,1,1.0\n0,3,5,1.0\n1,1,6,1.0\n");
    let lines = "search set.store --queries queries.fbin -k 1 -o hits.jsonl --quiet";
    place.done(lines);
    let first: Value = serde_json::from_str(place.text("hits.jsonl").lines().next().unwrap()).unwrap();
    assert_eq!(first, serde_json::json!({"query": 0, "rank": 1, "id": 0, "distance": 0.0}));
    place.refused(lines, &["hits.jsonl", "--force"]);
    let twice = place.done("search --queries queries.fbin --queries queries.fbin set.store -k 1 --quiet").out;
    assert_eq!(twice, "query,rank,id,distance\n0,1,0,0.0\n1,1,6,1.0\n2,1,0,0.0\n3,1,6,1.0\n", "one set of two files");
    let more = place.done("search set.store --queries queries.fbin -k 100 --quiet").out;
    assert_eq!(more.lines().count(), 1 + 2 * 8, "fewer than k where there are fewer");
}

#[test]
fn searches_a_real_set_with_text_ids_and_reports_the_run() {
    let place = Place::new();
    place.done(&format!("build {} --id-column name --metric cosine -o set.store --quiet", sample()));
    write_parquet(&place.path("one.parquet"), &[("a", Some([1.0, 2.0]))]);
    place.refused("search set.store --queries one.parquet -k 3", &["one.parquet: queries have 2 dimensions"]);
    let line = format!("search set.store --queries {} --id-column name -k 3 --recall 0.9 -o hits.csv", sample());
    let said = place.done(&format!("{line} --stats stats.json --memory 100MB")).said;
    for words in ["queries: 24,000; 72,000 hits", "buckets on average", "at least 90 % requested", "memory: "] {
        assert!(said.contains(words), "{said}");
    }
    let text = place.text("hits.csv");
    assert_eq!(text.lines().next(), Some("query,rank,id,similarity"));
    assert!(find_themselves(&text, 3) > 22_000, "each row is its own nearest, but for equal ones");
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["version"], &statistics["command"]), (&2.into(), &"search".into()));
    assert_eq!(statistics["search"]["queries"], 24_000);
    assert!(statistics["search"]["probes_per_query"].as_f64().unwrap() < 100.0);
    assert!(statistics["recall"]["at_k"]["estimate"].as_f64().unwrap() > 0.9);
    assert_eq!(statistics["recall"]["queries"], "rows of the store");
    assert_eq!(statistics["memory"]["kept"], true);
}

#[test]
fn refuses_invalid_searches_in_one_line() {
    let place = small();
    place.write("empty.npy", &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }", &[]));
    place.write("nan.fbin", &fbin(2, &[0., 0., 1., f32::NAN]));
    place.write("three.fbin", &fbin(3, &[0., 0., 1.]));
    place.write("away.fbin", &fbin(2, &[1., 2., 3., 4., 5., 5.]));
    place.done("build away.fbin --metric cosine -o turned.store --quiet");
    for (line, words) in [
        ("search set.store --queries queries.fbin -k 0", &["-k 0", "at least 1"][..]),
        ("search set.store --queries queries.fbin", &["--neighbors"]),
        ("search set.store --queries queries.fbin -k 3 --radius 2", &["--radius"]),
        ("search set.store --queries queries.fbin -k 3 --recall 1.5", &["recall is 1.5"]),
        ("search set.store --queries queries.fbin -k 3 --nprobe 0", &["--nprobe 0"]),
        ("search set.store --queries queries.fbin --radius -1", &["radius is -1"]),
        ("search set.store --queries queries.fbin --min-similarity 0.5", &["metric l2", "--radius"]),
        ("search set.store --queries nan.fbin -k 3", &["nan.fbin", "row 1"]),
        ("search set.store --queries three.fbin -k 3", &["three.fbin: queries have 3 dimensions", "set.store have 2"]),
        ("search turned.store --queries queries.fbin -k 3 --exact", &["queries.fbin", "row 0", "zeros"]),
        ("search set.store --queries empty.npy -k 3", &["empty.npy"]),
        ("search set.store --queries nothing.npy -k 3", &["nothing.npy"]),
        ("search set.fbin --queries queries.fbin -k 3", &["set.fbin", "adjoin build"]),
        ("search set.store --queries queries.fbin -k 3 -o hits.txt", &["hits.txt", ".parquet"]),
        ("search set.store --queries queries.fbin -k 3 -o queries.fbin", &["queries.fbin"]),
    ] {
        place.refused(line, words);
    }
}

#[test]
fn an_exact_search_fits_the_suggested_least_budget() {
    let place = Place::new();
    place.done("gen --rows 60000 --dimensions 64 --element u8 --seed 1 -o set.u8bin --quiet");
    place.done("gen --rows 10000 --dimensions 64 --element u8 --seed 2 -o queries.u8bin --quiet");
    place.done("build set.u8bin -o set.store --quiet");
    let search = "search set.store --queries queries.u8bin -k 10 --exact -o hits.csv --stats stats.json --quiet";
    let mut budget = "15.1MB".to_owned();
    let mut refusals = 0;
    loop {
        let ran = place.run(&format!("{search} --memory {budget}"));
        if ran.code == Some(0) {
            break;
        }
        budget = least_budget(&ran.said);
        refusals += 1;
        assert!(refusals < 5, "{}", ran.said);
    }
    assert!(refusals > 0, "a budget that is too small is refused");
    let hits = place.text("hits.csv");
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["memory"]["kept"], &statistics["recall"]["kept"]), (&true.into(), &true.into()));
    place.done(&format!("{search} --memory 1GB --force"));
    assert!(hits == place.text("hits.csv"), "the same hits in any memory");
}

#[test]
fn search_reports_a_damaged_bucket() {
    let place = small();
    let vectors = std::fs::read_dir(place.path("set.store")).unwrap().map(|entry| entry.unwrap().path());
    let vectors = vectors.into_iter().find(|path| path.to_string_lossy().contains("vectors-")).unwrap();
    OpenOptions::new().write(true).open(&vectors).unwrap().write_all_at(&[0xff; 3], 70).unwrap();
    place.refused("search set.store --queries queries.fbin -k 3 -o hits.csv", &["vectors-", "bucket"]);
}

#[test]
fn inner_products_are_searched_and_not_joined() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 3., 4., 1., 0., -2., 0., 3., 4.]));
    place.write("queries.fbin", &fbin(2, &[2., 0., 0., 0.]));
    place.done("build set.fbin --metric ip -o set.store --quiet");
    place.done("search set.store --queries queries.fbin -k 3 -o hits.csv --quiet");
    let wanted = "query,rank,id,score\n0,1,1,6.0\n0,2,4,6.0\n0,3,2,2.0\n1,1,0,0.0\n1,2,1,0.0\n1,3,2,0.0\n";
    assert_eq!(place.text("hits.csv"), wanted);
    place.done("index build set.fbin --metric ip -o set.index --quiet");
    place.done("search set.index --queries queries.fbin -k 3 -o walked.csv --quiet");
    assert_eq!(place.text("walked.csv"), wanted);
    for what in ["join set.store --eps 1 -o pairs.csv", "explain set.store --min-similarity 0.9"] {
        place.refused(
            what,
            &["set.store has the metric ip", "a join needs a distance", "--metric l2 or --metric cosine"],
        );
    }
    for threshold in ["--radius 1", "--min-similarity 0.5"] {
        place.refused(&format!("search set.store --queries queries.fbin {threshold}"), &["metric ip; give -k"]);
    }
    place.refused("explain set.fbin --metric ip", &["--metric", "l2, cosine"]);
}
