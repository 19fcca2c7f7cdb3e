//! `--stats`. Every run must write every key.

use adjoin::device::{FileSystem, Operation, Trace, TracedOperation};
use serde_json::{Value, json};

use crate::inputs::fbin;
use crate::place::Place;

/// Returns the keys of a join's statistics. A leaf is `true` if this version must fill it.
fn keys() -> Value {
    let interval = || json!({"estimate": true, "low": true, "high": true});
    json!({
        "version": true, "command": true, "rows": true, "dimensions": true, "element": true, "metric": true,
        "seed": true, "skipped_rows": true, "duplicate_ids": true,
        "recall": {
            "target": true, "of_pairs_only": true, "kept": true, "at_k": false, "p5": false, "queries": false, "sample_queries": false,
            "pair": interval(), "per_vector": interval(), "per_right_vector": false,
            "sample_vectors": false, "sample_vectors_with_neighbors": false, "sample_pairs": false,
        },
        "memory": {
            "budget_bytes": true, "share": false, "share_of_bytes": false, "share_of": false, "peak_bytes": true, "before_bytes": false, "kept": true, "over_time": true,
        },
        "io": {
            "bytes_read": true, "bytes_requested": true, "read_amplification": true, "passes": true,
            "bytes_written": true, "spill_bytes": true, "reads": true, "cache_hit_rate": true, "device": true,
            "direct": true,
        },
        "seconds": {
            "total": true, "build": false, "calibrate": false, "plan": true, "execute": true, "write": true,
            "compute_waited_for_disk": true, "compute_waited_for_sink": true,
        },
        "predicted": {"bytes_read": true, "verified_pairs": true, "center_distances": true, "seconds": false},
        "strategy": {
            "rule": true, "probes": false, "t": false, "per_margin": false, "sample_seed": true,
            "sample_distances": true, "order": true, "lead": false, "cache": true, "centers": true,
        },
        "threads": true, "kernel": true,
        "join": {
            "eps": false, "min_similarity": false, "pairs": true, "candidate_pairs": true, "verified_pairs": true,
            "exact_checks": true, "center_distances": true, "edges": true, "buckets": true,
            "with_rows": false, "passing_rows": false, "with_passing_rows": false, "new_rows": false, "new_passing_rows": false, "skipped_buckets": false,
            "skipped_bytes": false, "largest_cluster": false, "removed_beyond_threshold": false,
        },
    })
}

/// Checks that both values have equal keys at every depth, and that required values are not null.
fn check(at: &str, wanted: &Value, found: &Value) {
    let Some(wanted) = wanted.as_object() else {
        assert!(!found.is_object(), "{at} is an object");
        assert!(!found.is_null() || wanted == &json!(false), "{at} is null");
        return;
    };
    let found = found.as_object().unwrap_or_else(|| panic!("{at} is no object"));
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "keys of {at}");
    wanted.iter().for_each(|(key, wanted)| check(&format!("{at}.{key}"), wanted, &found[key]));
}

fn told(place: &Place, line: &str) -> Value {
    place.done(&format!("{line} --stats stats.json --force"));
    serde_json::from_str(&place.text("stats.json")).unwrap()
}

/// Runs a join. Returns its statistics after checking their keys.
fn statistics(place: &Place, line: &str) -> Value {
    let statistics = told(place, line);
    check("statistics", &keys(), &statistics);
    statistics
}

/// Returns the statistics that all commands have. Removes the rest, which is an object with the name of the command.
fn common(mut told: Value, command: &str) -> Value {
    let all = told.as_object_mut().unwrap();
    assert!(all["command"] == command && all["version"] == 2, "{all:?}");
    let own = all.remove(command);
    assert!(own.is_some_and(|own| own.is_object()), "{all:?}");
    told
}

/// Checks that two values have equal keys, at every depth at which both are objects.
fn assert_same_keys(at: &str, one: &Value, other: &Value) {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return };
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "keys of {at}");
    one.iter().for_each(|(key, one)| assert_same_keys(&format!("{at}.{key}"), one, &other[key]));
}

#[test]
fn common_statistics_have_the_same_keys_for_every_command() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 8 -o set.fbin");
    place.write("bad.fbin", &fbin(2, &[f32::NAN; 4]));
    place.done("build set.fbin -o store");
    let joined = common(statistics(&place, "join store --eps 0.8 --recall 0.9"), "join");
    let explained = place.done("explain set.fbin --eps 0.8 --json").out;
    let explained = common(serde_json::from_str(&explained).unwrap(), "explain");
    assert!(explained["predicted"]["seconds"].as_f64() > Some(0.0) && explained["recall"].is_null(), "{explained}");
    let searched = common(told(&place, "search store --queries store -k 3 --recall 0.9 -o hits.csv"), "search");
    assert!(searched["recall"]["at_k"].is_object() && searched["predicted"].is_null(), "{searched}");
    assert!(searched["recall"]["pair"].is_null() && joined["recall"]["at_k"].is_null(), "{searched} {joined}");
    let deduped = common(told(&place, "dedupe set.fbin --eps 0.8 -o out.fbin"), "dedupe");
    let unusable = common(told(&place, "dedupe bad.fbin --eps 0.8 --on-bad skip -o out.fbin"), "dedupe");
    assert_eq!((&unusable["element"], &unusable["dimensions"]), (&json!("f32"), &json!(2)));
    for (name, told) in
        [("explain", explained), ("search", searched), ("dedupe", deduped), ("dedupe of nothing", unusable)]
    {
        assert_same_keys(name, &joined, &told);
    }
}

/// Checks that a join of a source counts the bytes that its build spills. A join of a store serves as comparison.
#[test]
fn spilled_bytes_include_those_of_the_build() {
    let place = Place::new();
    place.done("gen --rows 200000 --dimensions 128 --element u8 -o set.u8bin --quiet");
    let spilled = |line: &str| statistics(&place, line)["io"]["spill_bytes"].as_u64().unwrap();
    let join = "--eps 0 --exact --result counts -o counts.csv --memory 32MB --quiet";
    let of_source = spilled(&format!("join set.u8bin {join}"));
    place.done("build set.u8bin -o store --quiet");
    let of_store = spilled(&format!("join store {join}"));
    // Most of the 25.6 MB of vectors do not fit in the budget of 32 MB.
    assert!(of_source > of_store + (10 << 20), "{of_source} {of_store}");
}

#[test]
fn statistics_have_every_key_with_null_if_not_applicable() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin");
    place.done("build set.fbin --seed 3 -o store");
    let of_store = statistics(&place, "join store --eps 0.8 -o pairs.csv --threads 2 --memory 200MB");
    assert_eq!(of_store["join"]["pairs"], json!(place.text("pairs.csv").lines().count() - 1));
    assert_eq!(of_store["io"]["bytes_written"], json!(place.text("pairs.csv").len()));
    for (key, value) in [
        ("version", json!(2)),
        ("command", json!("join")),
        ("rows", json!(2000)),
        ("dimensions", json!(8)),
        ("element", json!("f32")),
        ("metric", json!("l2")),
        ("seed", json!(3)),
        ("threads", json!(2)),
    ] {
        assert_eq!(of_store[key], value, "{key}");
    }
    assert_eq!((&of_store["join"]["eps"], &of_store["join"]["min_similarity"]), (&json!(0.8), &Value::Null));
    let memory = ["budget_bytes", "share", "share_of_bytes", "share_of"].map(|key| of_store["memory"][key].clone());
    assert_eq!(memory, [json!(200_000_000), Value::Null, Value::Null, Value::Null]);
    assert_eq!((&of_store["seconds"]["build"], &of_store["recall"]["target"]), (&Value::Null, &json!(0.95)));

    let of_source = statistics(&place, "join set.fbin --min-similarity 0.9 --exact");
    assert!(of_source["seconds"]["build"].is_number());
    assert_eq!((&of_source["join"]["eps"], &of_source["join"]["min_similarity"]), (&Value::Null, &json!(0.9)));
    assert_eq!((&of_source["metric"], &of_source["recall"]["target"]), (&json!("cosine"), &json!(1.0)));
    assert_eq!((&of_source["strategy"]["rule"], &of_source["io"]["bytes_written"]), (&json!("margin-sum"), &json!(0)));
}

/// Checks a budget of 90 MB, which is too small to hold the next uses of millions of edges.
#[test]
fn the_cache_uses_belady_if_memory_suffices() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 2 -o set.fbin");
    place.done("build set.fbin --buckets 3000 -o store");
    let cache = |memory: &str| {
        let join = format!("join store --eps 100 --exact --threads 1 --memory {memory}");
        statistics(&place, &join)["strategy"]["cache"].clone()
    };
    assert_eq!([cache("90MB"), cache("200MB")], ["lru", "belady"]);
}

#[test]
fn statistics_counters_are_consistent() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 8 -o set.fbin");
    let counts = statistics(&place, "join set.fbin --eps 0.8");
    let count = |key: &str| counts["join"][key].as_u64().unwrap();
    assert!(count("pairs") <= count("exact_checks") && count("exact_checks") <= count("verified_pairs"));
    assert!(count("pairs") <= count("candidate_pairs") && count("candidate_pairs") <= count("verified_pairs"));
    let io = &counts["io"];
    assert!(io["bytes_read"].as_u64() >= io["bytes_requested"].as_u64() && io["passes"].as_f64() >= Some(1.0));
}

/// Checks that a large join stays within a small budget, as measured by the system. It reads more bytes instead.
#[test]
fn a_join_with_a_small_budget_reads_more() {
    let place = Place::new();
    place.done("gen --rows 40000 --dimensions 128 -o set.fbin");
    place.done("build set.fbin -o store");
    let with = |memory: &str| statistics(&place, &format!("join store --eps 1 --exact --threads 2 --memory {memory}"));
    let [small, large] = ["29MB", "200MB"].map(with);
    let of = |counts: &Value, group: &str, key: &str| counts[group][key].as_u64().unwrap();
    assert!(of(&large, "memory", "peak_bytes") > 29_000_000, "there is something to keep: {large}");
    assert!(of(&small, "memory", "peak_bytes") <= 29_000_000, "{small}");
    assert!(of(&small, "io", "bytes_read") > of(&large, "io", "bytes_read"), "{small}");
    for key in ["pairs", "candidate_pairs"] {
        assert_eq!(small["join"][key], large["join"][key], "{key}");
    }
}

/// Checks that a failed join does not write any part of a trace.
#[test]
fn a_failed_join_writes_no_trace() {
    let place = Place::new();
    place.done("gen --rows 500 --dimensions 4 -o set.fbin");
    place.write("trace.txt", b"of old");
    place.refused("join missing.fbin --eps 1 --trace new.txt", &["missing.fbin"]);
    place.refused("join set.fbin --eps 1 --trace trace.txt --force --memory 18MB", &["--memory"]);
    assert_eq!(place.text("trace.txt"), "of old");
    place.done("join set.fbin --eps 1 --trace trace.txt --force");
    assert!(Trace::parse(&place.read("trace.txt")).is_ok() && place.listing().len() == 2);
}

#[test]
fn statistics_name_the_device_and_traces_list_every_read() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin");
    place.done("build set.fbin -o store");
    let by_pread = statistics(&place, "join store --eps 0.8 --device pread -o pairs.csv --trace trace.txt");
    assert_eq!(by_pread["io"]["device"], json!("pread"));
    let trace = Trace::parse(&place.read("trace.txt")).unwrap();
    let buckets = |read: &&TracedOperation| {
        read.operation == Operation::Read && trace.name(read.file).to_str().unwrap().contains("vectors")
    };
    // The reads of the planning pass count too.
    assert_eq!(trace.operations().iter().filter(buckets).count() as u64, by_pread["io"]["reads"].as_u64().unwrap());
    let written = |asked: &&TracedOperation| asked.operation == Operation::Write;
    assert!(trace.operations().iter().filter(written).map(|asked| asked.bytes).sum::<u64>() > 0);

    let by_choice = statistics(&place, "join store --eps 0.8");
    match FileSystem::io_uring() {
        Ok(_) => {
            assert_eq!(by_choice["io"]["device"], json!("io_uring"));
            place.done("join store --eps 0.8 --device io_uring");
        }
        Err(error) => {
            assert!(!std::env::var("ADJOIN_REQUIRE").is_ok_and(|list| list.contains("io_uring")), "{error}");
            eprintln!("skipped: io_uring is refused: {error}");
            place.refused("join store --eps 0.8 --device io_uring", &["refuses io_uring", "leave out"]);
        }
    }
}
