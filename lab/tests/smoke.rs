//! Runs each experiment once on a tiny set. Checks that it ends and prints plausible figures.

#![allow(clippy::unwrap_used, reason = "a test that cannot run fails")]

use std::path::PathBuf;
use std::process::Command;

use adjoin::{Context, Element, Generated, Index, IndexOptions, Store, Target, VectorType, lab::load, lab::source};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with 3,000 vectors of 16 bytes, 200 similar queries, and the files that experiments write.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        for (name, rows, seed) in [("set.u8bin", 3_000, 1), ("queries.u8bin", 200, 2)] {
            let what =
                Generated { rows, vectors: VectorType { element: Element::U8, dimensions: 16 }, hardness: 1.0, seed };
            let target = Target::File { path: place.path(name), force: false };
            what.write(&Context::default(), &target).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a store of the vectors.
    fn store(&self) -> Store {
        let context = Context::default().with_memory(256 << 20);
        let source =
            source::open(&context, &[self.path("set.u8bin").display().to_string()], &Default::default()).unwrap();
        Store::build(&context, &*source, &self.path("store"), &Default::default()).unwrap();
        Store::open(&context, &self.path("store")).unwrap()
    }

    /// Builds an index from a store of the vectors.
    fn index(&self) {
        let context = Context::default().with_memory(256 << 20);
        let options = IndexOptions { code_bytes: Some(8), ..IndexOptions::default() };
        Index::build(&context, &self.store(), &self.path("index"), &options, false).unwrap();
    }

    fn run(&self, line: &str) -> (bool, String, String) {
        let words = line.split_whitespace();
        let mut command = Command::new(env!("CARGO_BIN_EXE_adjoin-lab"));
        let done = command.args(words).current_dir(self.folder.path()).output().unwrap();
        let [out, err] = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (done.status.success(), out, err)
    }

    /// Runs an experiment, which must succeed. Returns its output.
    #[track_caller]
    fn done(&self, line: &str) -> String {
        let (succeeded, out, err) = self.run(line);
        assert!(succeeded, "{line}: {err}");
        out
    }

    /// Runs an experiment, which must succeed. Returns the records that it prints.
    #[track_caller]
    fn records(&self, line: &str) -> Vec<Value> {
        self.done(line).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn an_unknown_experiment_is_refused_with_the_known_names() {
    let (succeeded, _, said) = Place::new().run("table-of-elements");
    assert!(!succeeded && said.contains("codes, flash-tables, growth, index"), "{said}");
}

#[test]
fn graphs_in_memory_are_built_and_updated() {
    let place = Place::new();
    let built = place.done("vamana set.u8bin 2 12 24");
    let recall = built.lines().last().and_then(|line| line.split("recall@10 ").nth(1)).unwrap();
    assert!(recall[..6].parse::<f64>().unwrap() > 0.9, "{built}");
    for rule in ["neighbors", "drop", "nearest", "replace"] {
        let cycles = place.records(&format!("updates set.u8bin cycles=1 share=0.1 rule={rule}"));
        assert_eq!(cycles.len(), 2, "{rule}: the graph as built, and after a cycle");
    }
    for (graph, rule) in [("nsg", "connect"), ("hnsw", "connect"), ("hnsw", "drop")] {
        let cycles = place.records(&format!("updates set.u8bin cycles=1 share=0.1 rule={rule} alpha=1 graph={graph}"));
        assert!(
            cycles.len() == 2 && cycles.iter().all(|record| record["recall_at_5"].as_f64().unwrap() > 0.94),
            "{graph}: {cycles:?}"
        );
    }
    let exact = place.records("updates set.u8bin cycles=1 share=0.5");
    let coded = place.records("updates set.u8bin cycles=1 share=0.5 codes=1");
    assert_eq!(exact[0]["recall_at_5"], coded[0]["recall_at_5"], "graphs are built with vectors");
    assert!(exact[1]["recall_at_5"].as_f64() > coded[1]["recall_at_5"].as_f64(), "{exact:?} {coded:?}");
    let (succeeded, _, said) = place.run("updates set.u8bin cycles=1 rule=nearest graph=hnsw");
    assert!(!succeeded && said.contains("give rule=drop or rule=connect"), "{said}");
}

#[test]
fn graphs_grow_by_inserts_and_deletes() {
    let grown = Place::new().records("growth set.u8bin first=0.2 inserts=0.1 deletes=0.05 cycles=16 every=8");
    let rows: Vec<u64> = grown.iter().map(|record| record["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [2_000, 400 + 8 * 100, 2_000], "all at once, after 8 cycles, and after 16");
    for record in &grown {
        let recall = record["recall_at_5"].as_f64().unwrap();
        assert!(recall > 0.93, "a graph that grew is nearly as good as one that was built at once: {grown:?}");
    }
}

#[test]
fn both_kinds_of_codes_are_evaluated() {
    let judged = Place::new().done("codes set.u8bin l2 8");
    assert_eq!(judged.lines().count(), 4, "{judged}");
}

#[test]
fn indexes_are_searched_and_relaid() {
    let place = Place::new();
    place.index();
    for options in ["layout=bnf", "graph=vamana strategy=entry=vertex,beam=4"] {
        let searched = place.done(&format!("index set.u8bin queries.u8bin . lists=20 recalls= code-bytes=8 {options}"));
        assert!(searched.lines().count() >= 4, "{searched}");
    }
    let reads = |strategy: &str| {
        place.done(&format!("search index queries.u8bin hits.csv k=5 list=20 stats=stats.json strategy={strategy}"));
        assert_eq!(std::fs::read_to_string(place.path("hits.csv")).unwrap().lines().count(), 1 + 5 * 200);
        let stats = std::fs::read_to_string(place.path("stats.json")).unwrap();
        serde_json::from_str::<Value>(&stats).unwrap()["search"]["reads_per_query"].as_f64().unwrap()
    };
    assert!(reads("beam=8") > reads(""), "a beam reads pages that it does not need");
    // OR(G) for each number of rounds of each order, and OR(G) of an index in each order.
    let of_lines = |text: &str, columns: [usize; 2]| -> Vec<(String, String)> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        text.lines().skip(1).map(words).map(|words| (words[columns[0]].clone(), words[columns[1]].clone())).collect()
    };
    let by_rounds = place.done("layouts index");
    let tried = of_lines(&by_rounds, [0, 2]);
    let ratios = |order: &str| -> Vec<f64> {
        tried.iter().filter(|(name, _)| name == order).map(|(_, ratio)| ratio.parse().unwrap()).collect()
    };
    assert!(ratios("bns").is_sorted(), "more rounds of swaps are not worse: {:?}", ratios("bns"));
    for order in ["bnf", "bns", "gp3"] {
        let (padded, ratios) = (ratios("bnp")[0], ratios(order));
        assert!(ratios.len() == 5 && ratios[3] > padded, "rounds improve {padded}: {order} {ratios:?}");
    }
    let laid = place.done("layouts index laid queries.u8bin");
    let written = of_lines(&laid, [0, 1]);
    assert_eq!(written.len(), 13, "the index as it was, and in each order: {laid}");
    for (name, ratio) in &written[1..] {
        let near = |(order, tried): &(String, String)| {
            order == name && (tried.parse::<f64>().unwrap() - ratio.parse::<f64>().unwrap()).abs() < 0.001
        };
        assert!(tried.iter().any(near), "{name} {ratio}: {by_rounds}");
    }
    let (succeeded, _, said) = place.run("relayout index other best");
    assert!(!succeeded && said.contains("rows, bnp, bnf"), "{said}");
    assert!(place.run("relayout index other margo threads=2").2.contains("of a vector's page are neighbors"));
}

#[test]
fn rules_for_whole_buckets_join_from_disk() {
    let place = Place::new();
    place.done("build set.u8bin store centers=random buckets=60");
    let stats = |named: &str| -> Value {
        place.done(&format!("join store eps=100 recall=1 rule=triangle cache=30000 stats=stats.json {named}"));
        serde_json::from_str(&std::fs::read_to_string(place.path("stats.json")).unwrap()).unwrap()
    };
    let counts = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let in_memory = stats("counts=memory.csv");
    for caching in ["belady", "lru", "fifo"] {
        let from_disk = stats(&format!("order=gorder-out caching={caching} counts=disk.csv"));
        assert_eq!(counts("disk.csv"), counts("memory.csv"), "{caching}");
        assert_eq!(from_disk["join"], in_memory["join"], "{caching}");
        let [read, least] = ["bytes_read", "bytes_read_min"].map(|name| from_disk["predicted"][name].as_u64().unwrap());
        assert!(read > least && least > 3_000 * 16, "{caching}: {read} and {least} bytes");
        assert_eq!(from_disk["predicted"]["bytes_read"], from_disk["io"]["bytes_requested"]);
    }
    let pairs_only = place.done("join store eps=100 recall=0.8 recall-of=pairs rule=arc order=gorder-out cache=30000");
    let found: Value = serde_json::from_str(&pairs_only).unwrap();
    assert!(found["recall"]["pair"]["estimate"].as_f64() >= Some(0.8), "{found}");
    let edges = |candidates: u32| {
        let line = format!("join store eps=100 rule=arc threshold=0.99 candidates={candidates} order=id cache=30000");
        serde_json::from_str::<Value>(&place.done(&line)).unwrap()["join"]["edges"].as_u64().unwrap()
    };
    let [own, some, all] = [1, 6, 60].map(edges);
    assert!(own == 0 && (30..=300).contains(&some) && all > some, "{own}, {some} and {all} edges");
    for (named, reason) in [("cache=100", "need"), ("", "give cache=BYTES")] {
        let (succeeded, _, said) = place.run(&format!("join store eps=100 rule=arc order=id {named}"));
        assert!(!succeeded && said.contains(reason), "{said}");
    }
    let (succeeded, _, said) = place.run("join store eps=100 rule=triangle candidates=6 order=id cache=30000");
    assert!(!succeeded && said.contains("leave out candidates="), "{said}");
    let (succeeded, _, said) = place.run("join store eps=100 rule=distance order=id cache=30000");
    assert!(!succeeded && said.contains("leave out order="), "{said}");
    let loads = place.done("loads store eps=100 recall=0.9 cache=30000");
    let over: Vec<f64> =
        loads.lines().skip(1).map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    assert!(over.len() == 7 && over.iter().all(|&over| over >= 1.0), "{loads}");
}

#[test]
fn stores_assigned_by_an_hnsw_join_to_the_same_pairs() {
    let place = Place::new();
    let joined = |assign: &str| -> (Value, Vec<u64>) {
        let store = format!("store-{assign}");
        place.done(&format!("build set.u8bin {store} centers=random buckets=60 assign={assign}"));
        place.done(&format!("join {store} eps=100 recall=1 rule=triangle stats=stats.json"));
        let stats: Value = serde_json::from_str(&std::fs::read_to_string(place.path("stats.json")).unwrap()).unwrap();
        let context = Context::default();
        let store = Store::open(&context, &place.path(&store)).unwrap();
        let mut sizes: Vec<u64> = load::Buckets::of(&store).extents().iter().map(|extent| extent.rows.into()).collect();
        assert_eq!(sizes.iter().sum::<u64>(), 3_000, "{assign}");
        sizes.sort_unstable();
        (stats["join"]["pairs"].clone(), sizes)
    };
    let [levels, hnsw, two] = ["levels", "hnsw", "hnsw-two"].map(joined);
    assert!(levels.0.as_u64() > Some(1_000), "{levels:?}");
    assert_eq!([&hnsw.0, &two.0], [&levels.0; 2], "pairs do not depend on the assignment");
    // With few centers, all searches find the nearest one, and the engine compares a row with all of them.
    assert_eq!(hnsw.1, levels.1);
    let largest = |sizes: &[u64]| sizes.last().copied();
    assert!(largest(&two.1) < largest(&hnsw.1), "the rule of two centers evens the buckets: {two:?}");
    for (named, reason) in
        [("assign=hnsw", "give centers=random"), ("centers=random assign=best", "levels, hnsw, hnsw-two")]
    {
        let (succeeded, _, said) = place.run(&format!("build set.u8bin store {named}"));
        assert!(!succeeded && said.contains(reason), "{said}");
    }
}

#[test]
fn joins_by_every_order_and_cache_find_the_same_pairs() {
    let place = Place::new();
    place.done("build set.u8bin store centers=random buckets=60");
    place.done("build queries.u8bin others buckets=10");
    let stats = |named: &str| -> Value {
        place.done(&format!("join store eps=100 cache=30000 stats=stats.json {named}"));
        serde_json::from_str(&std::fs::read_to_string(place.path("stats.json")).unwrap()).unwrap()
    };
    let plain = stats("recall=1");
    assert!(plain["join"]["pairs"].as_u64() > Some(1_000), "{plain}");
    for order in ["tree", "block-nested", "id", "gorder", "gorder-out", "rcm"] {
        for caching in ["belady", "lru", "lfu", "fifo"] {
            let other = stats(&format!("recall=1 order={order} caching={caching}"));
            assert_eq!(other["join"]["pairs"], plain["join"]["pairs"], "{order} {caching}");
            assert_eq!(other["strategy"]["order"], order);
            let cache = if caching == "belady" { caching } else { "listed" };
            assert_eq!(other["strategy"]["cache"], cache);
            // The bytes that are read equal the prediction of the plan, or exceed it.
            let [read, predicted] = [&other["io"]["bytes_requested"], &other["predicted"]["bytes_read"]];
            assert!(read.as_u64() >= predicted.as_u64() && predicted.as_u64() > Some(0), "{order} {caching}: {other}");
        }
    }
    let reads =
        |order: &str| stats(&format!("recall=1 order={order} caching=belady"))["predicted"]["bytes_read"].as_u64();
    assert!(reads("block-nested") < reads("id"), "an order without meaning reads more");
    for rule in ["union", "distance", "margin", "nearest", "arc", "arc-mu", "arc-radius", "arc-radius-mu"] {
        let of = stats(&format!("recall=0.8 rule={rule}"));
        assert_eq!(of["strategy"]["rule"], rule);
        assert!(of["join"]["pairs"].as_f64() >= plain["join"]["pairs"].as_f64().map(|pairs| 0.7 * pairs), "{of}");
    }
    assert_eq!(stats("recall=1 rule=triangle")["join"]["pairs"], plain["join"]["pairs"]);
    for lead in ["left", "right"] {
        let of = stats(&format!("with=others recall=1 lead={lead} trace={lead}.trace counts={lead}.csv"));
        assert_eq!(of["strategy"]["lead"], lead);
    }
    let counts = |lead: &str| std::fs::read_to_string(place.path(&format!("{lead}.csv"))).unwrap();
    assert!(counts("left") == counts("right") && counts("left").lines().count() == 3_001);
    assert!(std::fs::read_to_string(place.path("left.trace")).unwrap().starts_with("adjoin-trace"));
    let (succeeded, _, said) = place.run("join store eps=100 order=best");
    assert!(!succeeded && said.contains("tree, block-nested, id, gorder, gorder-out, rcm"), "{said}");
}

#[test]
fn joins_of_other_algorithms_find_pairs() {
    let place = Place::new();
    let of = |join: &str| {
        place.records(&format!("other-joins {join} set.u8bin 60 2000")).remove(0)["pairs"].as_u64().unwrap()
    };
    let (exact, by_hashes) = (of("cluster-join"), of("rshj"));
    assert!(exact > 0 && by_hashes <= exact, "{by_hashes} of {exact} pairs");
}

#[test]
fn batches_are_planned_and_served() {
    let place = Place::new();
    place.store();
    let planned = place.records("serve plans store queries.u8bin nprobe=3 batch=50 entries=5");
    let with = |what: &str| planned.iter().filter(|record| record["what"] == what).count();
    // Five orders with eight caches of two sizes.
    assert_eq!((with("overlap"), with("loading"), with("orders"), with("borders")), (1, 4, 80, 4));
    let hits = |order: &str, cache: &str| {
        let line = format!("serve batches store queries.u8bin {order} {cache} nprobe=3 batch=20 batches=2 hits=hits");
        assert_eq!(place.records(&line).len(), 2, "{order} {cache}");
        std::fs::read(place.path("hits")).unwrap()
    };
    let expected = hits("bucket-major", "foreseen");
    assert_eq!(expected.len(), 2 * 20 * 10 * 4);
    for (order, cache) in [
        ("arrival", "fifo"),
        ("arrival", "lru"),
        ("grouped", "wlru"),
        ("call", "wlru-prefetch"),
        ("call", "clru"),
        ("call-distance", "clru-prefetch"),
        ("bucket-major", "s3-fifo"),
    ] {
        assert!(hits(order, cache) == expected, "{order} {cache}");
    }
    let line = "serve simulated store queries.u8bin nprobe=3 entries=5 warm=2 seconds=4 most=2000";
    let simulated = place.records(line);
    assert_eq!(simulated.len(), 6 * 4 * 2 + 5 + 1);
    for record in &simulated {
        let [p50, p99] = ["p50", "p99"].map(|key| record["latency_ms"][key].as_f64().unwrap());
        let own = record["own_ms"]["p99"].as_f64().unwrap();
        assert!(0.0 < p50 && p50 <= p99 && own <= p99 && record["hit_rate"].as_f64() <= Some(1.0), "{record}");
    }
    assert_eq!(place.records("serve lone store queries.u8bin nprobe=3 queries=5").len(), 1);
}

#[test]
fn writes_of_one_row_are_timed() {
    let place = Place::new();
    let written = place.records("live writes collection rows=400");
    place.done("live merge collection threads=1");
    assert!(written.iter().any(|record| record["what"] == "open" && record["rows"].as_u64() > Some(0)), "{written:?}");
}

#[test]
fn searches_after_a_burst_are_timed() {
    let place = Place::new();
    let [burst] = &place.records("live burst collection set.u8bin merged=500 rows=1500")[..] else {
        panic!("one line")
    };
    assert!(burst["unmerged"] == 1_500 && burst["recall"].as_f64() >= Some(0.95), "{burst}");
}

#[test]
fn flash_tables_are_printed() {
    let place = Place::new();
    let tables = place.done("flash-tables set.u8bin queries.u8bin list=16 degree=12 batch=32");
    for title in [
        "Figures 1 and 2(a)",
        "Figure 4",
        "Figure 13",
        "Figure 13, processors that load shards",
        "Claims over the time of sensing a page",
        "What makes each claim true",
        "Figure 14",
        "Figure 15",
        "Figure 16",
        "Figure 17",
        "Figure 18",
        "Figure 19",
        "Figure 20",
        "Table I",
    ] {
        assert!(tables.contains(&format!("## {title}")), "{title}");
    }
    assert!(tables.contains("graph vamana, lists of 16: recall@10") && tables.contains("5.64"), "{tables}");
    let trace = "adjoin-trace 2\nfile 0 a\nread 0 0 4096 0 1 ok - - -\nread 0 8192 4096 9 1 ok - - -\n";
    ["one.trace", "two.trace"].iter().for_each(|name| std::fs::write(place.path(name), trace).unwrap());
    let jobs = place.done("flash-tables trace=one.trace trace=two.trace");
    assert_eq!(jobs.lines().filter(|line| line.contains(".trace | ")).count(), 12, "{jobs}");
}
