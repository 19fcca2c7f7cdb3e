//! `adjoin index`: builds from a store or from sources, searches, descriptions, and refusals.

use serde_json::Value;

use crate::inputs::{fbin, sample};
use crate::place::Place;
use crate::search::find_themselves;

/// Creates an index of 9 points in the plane, two of which are equal, and queries.
fn small() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 3., 0., 0., 4., 5., 5., 1., 0., 9., 9., -2., 0., 0., -1.]));
    place.write("queries.fbin", &fbin(2, &[0., 0., 9., 8.]));
    place.done("build set.fbin -o set.store --quiet");
    place.done("index build set.store -o set.index --quiet");
    place
}

#[test]
fn index_hits_equal_store_hits_if_all_vertices_are_visited() {
    let place = small();
    for k in [1, 3, 4, 9, 100] {
        let hits = place.done(&format!("search set.index --queries queries.fbin -k {k} --quiet")).out;
        let of_store = place.done(&format!("search set.store --queries queries.fbin -k {k} --exact --quiet")).out;
        assert_eq!(hits, of_store, "{k}");
    }
    place.done("search set.index --queries queries.fbin -k 3 -L 5 -o hits.csv --quiet");
    assert_eq!(place.text("hits.csv").lines().count(), 1 + 2 * 3);
    place.refused("search set.index --queries queries.fbin -k 3 -o hits.csv", &["hits.csv", "--force"]);
}

#[test]
fn range_search_of_an_index_equals_that_of_its_store() {
    let place = small();
    for radius in ["0", "1", "3.5", "100"] {
        let hits = place.done(&format!("search set.index --queries queries.fbin --radius {radius} --quiet")).out;
        let of_store = place.done(&format!("search set.store --queries queries.fbin --radius {radius} --quiet")).out;
        assert_eq!(hits, of_store, "{radius}");
        let by_walk = place.done(&format!("search set.index --queries queries.fbin --radius {radius} -L 4 --quiet"));
        assert_eq!(by_walk.out, of_store, "{radius}");
    }
    let said = place.done("search set.index --queries queries.fbin --radius 3 -o near.csv").said;
    assert!(said.contains("recall: 100 % (exact)"), "{said}");
    for (wrong, words) in [
        ("--min-similarity 0.9", "give --radius"),
        ("--radius -1", "at least 0"),
        ("-k 3 --radius 1", "--radius"),
        ("", "--neighbors"),
    ] {
        place.refused(format!("search set.index --queries queries.fbin {wrong}").trim_end(), &[words]);
    }
    place.done("search set.index --queries queries.fbin -k 3 -L 9 -o 3.csv --quiet");
    assert_eq!(place.text("3.csv").lines().count(), 1 + 2 * 3);
}

#[test]
fn index_traces_record_page_reads_and_dependencies() {
    let place = Place::new();
    place.done("gen --rows 5000 --dimensions 8 -o set.fbin --quiet");
    place.done("gen --rows 40 --dimensions 8 --seed 2 -o queries.fbin --quiet");
    place.done("index build set.fbin -o set.index --quiet");
    let line = "search set.index --queries queries.fbin -k 3 -L 20 -o hits.csv --quiet --force";
    place.done(&format!("{line} --trace trace.txt --stats stats.json"));
    let hits = place.text("hits.csv");
    let mut reads: Vec<(u64, u64, Option<u64>)> = Vec::new();
    for line in place.text("trace.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["read", _, offset, _, _, _, "ok", "index", step, after] = words[..] {
            reads.push((step.parse().unwrap(), offset.parse().unwrap(), after.parse().ok()));
        }
    }
    reads.sort_unstable();
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    let needed = statistics["search"]["reads_per_query"].as_f64().unwrap() * 40.0;
    assert!((reads.len() as f64 - needed).abs() < 1e-6, "{} of {needed}", reads.len());
    for pair in reads.windows(2) {
        let ((before, first, _), (step, offset, after)) = (pair[0], pair[1]);
        match step >> 20 == before >> 20 {
            true => assert!(step == before + 1 && after == Some(before) && offset != first, "{pair:?}"),
            false => assert!(step == ((before >> 20) + 1) << 20 && after.is_none(), "{pair:?}"),
        }
    }
    assert!(reads.iter().all(|(_, offset, _)| offset % 4_096 == 0));
    place.done(line);
    assert_eq!(place.text("hits.csv"), hits, "hits do not depend on what is shared");
    place.refused(&format!("{line} --trace queries.fbin"), &["queries.fbin"]);
}

#[test]
fn indexes_a_real_set_with_text_ids_and_reports_the_run() {
    let place = Place::new();
    let build = format!("index build {} --id-column name --metric cosine -o names.index", sample());
    let said = place.done(&build).said;
    for words in ["names.index: 24,000 vectors", "graph in", "neighbors", "memory: "] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(place.listing().iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "store")).count(), 0);
    place.refused(&build, &["names.index", "--force"]);
    let line = format!("search names.index --queries {} --id-column name -k 3 -L 60 -o hits.csv", sample());
    let said = place.done(&format!("{line} --stats stats.json --memory 100MB")).said;
    for words in ["queries: 24,000; 72,000 hits", "reads", "queries per second", "no target with", "memory: "] {
        assert!(said.contains(words), "{said}");
    }
    let text = place.text("hits.csv");
    assert_eq!(text.lines().next(), Some("query,rank,id,similarity"));
    assert!(find_themselves(&text, 3) > 22_000, "each row is its own nearest, but for equal ones");
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["version"], &statistics["command"]), (&2.into(), &"search".into()));
    assert_eq!((&statistics["recall"], &statistics["memory"]["kept"]), (&Value::Null, &true.into()));
    let search = &statistics["search"];
    assert!((5.0..100.0).contains(&search["reads_per_query"].as_f64().unwrap()), "{search}");
    assert!(search["latency_ms"]["p99"].as_f64() >= search["latency_ms"]["p50"].as_f64(), "{search}");
    let described = place.done("info names.index").out;
    assert_eq!(place.done("info names.index").out, described);
    for words in
        ["24,000 of 384 x f16", "ids          utf8", "metric       cosine", "48 neighbors", "96 bytes of a vector"]
    {
        assert!(described.contains(words), "{described}");
    }
    let told: Value = serde_json::from_str(&place.done("info names.index --json").out).unwrap();
    assert_eq!((&told["kind"], &told["rows"]), (&"index".into(), &24_000.into()));
}

#[test]
fn relayout_rewrites_an_index_in_place_or_to_another_folder() {
    let place = small();
    let search = |index: &str| place.done(&format!("search {index} --queries queries.fbin -k 9 --quiet")).out;
    let before = search("set.index");
    let said = place.done("index relayout set.index -o other.index").said;
    for words in ["other.index: ", "in the order grown", "are neighbors", "places away", "memory: "] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(search("other.index"), before);
    place.refused("index relayout set.index -o other.index", &["other.index", "--force"]);
    place.done("index relayout set.index --quiet");
    assert_eq!(search("set.index"), before);
    assert!(place.done("info set.index").out.contains("in the order grown"));
    place.refused("index relayout set.store", &["set.store", "adjoin index build"]);
}

#[test]
fn index_search_reports_the_recall_or_that_it_is_not_reached() {
    let place = Place::new();
    place.done("gen --rows 6000 --dimensions 8 -o set.fbin --quiet");
    place.done("gen --rows 100 --dimensions 8 --seed 2 -o queries.fbin --quiet");
    place.done("index build set.fbin -o set.index --degree 8 --build-list 16 --quiet");
    let line = "search set.index --queries queries.fbin -k 3 -o hits.csv --force --stats stats.json";
    let run = |options: &str, code: i32, words: &[&str]| {
        let run = place.run(format!("{line} {options}").trim_end());
        assert_eq!(run.code, Some(code), "{options}: {}", run.said);
        words.iter().for_each(|word| assert!(run.said.contains(word), "{options}: {}", run.said));
        serde_json::from_str::<Value>(&place.text("stats.json")).unwrap()
    };
    let measured = "measured with 1,000 rows of the index as queries";
    let statistics = run("", 0, &["recall: ", measured, "at least 95 % requested"]);
    assert_eq!((&statistics["recall"]["target"], &statistics["recall"]["kept"]), (&0.95.into(), &true.into()));
    assert_eq!(statistics["seconds"]["calibrate"], Value::Null);
    let statistics = run("--recall 0.8 --seed 3", 0, &[measured, "at least 80 % requested"]);
    assert!(statistics["strategy"]["t"].as_f64() >= Some(4.0), "{statistics}");
    let statistics = run("--recall 0.5 --calibrate-with queries.fbin", 0, &["with 100 rows of --calibrate-with"]);
    assert!(statistics["seconds"]["calibrate"].as_f64() > Some(0.0), "{statistics}");
    for exact in ["--exact", "--recall 1"] {
        let statistics = run(exact, 0, &["recall: 100 % (exact)"]);
        assert_eq!(
            (&statistics["recall"]["at_k"]["low"], &statistics["strategy"]["probes"]),
            (&1.0.into(), &"whole".into())
        );
    }
    let words = ["at least 99.99 % requested", "adjoin: no reasonable search reaches a recall of 99.99 %"];
    assert_eq!(run("--recall 0.9999", 1, &words)["recall"]["kept"], Value::Bool(false));
}

#[test]
fn verify_reports_the_damaged_page_of_an_index() {
    let place = small();
    let sound = place.done("verify set.index").out;
    assert_eq!(place.done("verify set.index").out, sound);
    assert!(sound.starts_with("sound: ") && sound.contains("1 page"), "{sound}");
    let (pages, _) = place.listing().into_iter().find(|(path, _)| path.to_string_lossy().contains("pages-")).unwrap();
    let mut bytes = std::fs::read(&pages).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&pages, bytes).unwrap();
    place.refused("search set.index --queries queries.fbin -k 3 -o hits.csv --quiet", &["pages-", "page 0"]);
    let found = place.run("verify set.index");
    assert!(found.code == Some(2) && found.said.contains("1 part; build it again"), "{}", found.said);
}

#[test]
fn refuses_invalid_index_builds_and_searches_in_one_line() {
    let place = small();
    place.write("three.fbin", &fbin(3, &[0., 0., 1.]));
    place.write("nan.fbin", &fbin(2, &[0., 0., 1., f32::NAN]));
    for (line, words) in [
        ("index build set.store -o new.index --degree 1", &["degree is 1"][..]),
        ("index build set.store -o new.index --degree 6 --build-list 5", &["build-list is 5"]),
        ("index build set.store -o new.index --alpha 0.5", &["alpha is 0.5"]),
        ("index build set.store -o new.index --code-bytes 0", &["code-bytes is 0"]),
        ("index build set.store -o new.index --navigation 0", &["navigation is 0; give 1 or more"]),
        ("index build set.store -o new.index --page 5KiB", &["page is 5120 bytes", "4KiB"]),
        ("index build set.store -o new.index --metric l2", &["--metric", "set.store is a store"]),
        ("index build set.store -o set.store --force", &["set.store"]),
        ("index build set.index -o new.index", &["set.index", "not a store"]),
        ("index build nan.fbin -o new.index", &["nan.fbin", "row 1"]),
        ("search set.store --queries queries.fbin -k 3 -L 9", &["--list 9 is for graph indexes", "--nprobe"]),
        ("search set.index --queries queries.fbin -k 3 --nprobe 9", &["--nprobe 9 is for stores", "--list"]),
        ("search set.index --queries queries.fbin -k 0", &["-k 0", "at least 1"]),
        ("search set.index --queries queries.fbin -k 3 -L 0", &["list is 0"]),
        ("search set.index --queries three.fbin -k 3", &["three.fbin: queries have 3 dimensions"]),
        ("search set.index --queries nan.fbin -k 3", &["nan.fbin", "row 1"]),
        ("search nothing --queries queries.fbin -k 3", &["nothing"]),
        ("search set.index --queries queries.fbin -k 3 --recall 1.5", &["recall is 1.5"]),
        ("search set.index --queries queries.fbin -k 3 --recall 0.9 -L 9", &["--recall", "--list"]),
        ("search set.index --queries queries.fbin -k 3 --exact -L 9", &["--exact", "--list"]),
        ("search set.index --queries queries.fbin -k 3 -L 9 --calibrate-with queries.fbin", &["--calibrate-with"]),
        ("join set.index --eps 1", &["set.index", "not a store"]),
    ] {
        place.refused(line, words);
    }
}
