//! `adjoin collection snapshot` and `adjoin collection backup`: the current rows, as a file and as a separate collection.

use std::process::Stdio;

use crate::collection::{by_distance, small};
use crate::place::Place;

fn told(place: &Place, live: &str) -> serde_json::Value {
    serde_json::from_str(&place.done(&format!("info {live} --json")).out).unwrap()
}

#[test]
fn snapshots_and_backups_have_the_current_rows() {
    let place = small();
    place.done("collection merge set.live --quiet");
    place.write("gone", b"0\n6\n");
    place.write("new.jsonl", b"{\"id\": 3, \"v\": [1, 0.5]}\n");
    place.done("collection write set.live --delete gone --upsert new.jsonl --quiet");
    let hits = |live: &str| by_distance(&place.done(&format!("search {live} --queries queries.fbin -k 9 --quiet")).out);
    let wanted = hits("set.live");
    let said = place.done("collection backup set.live copy.live").said;
    assert!(said.contains("copy.live: 7 rows as of write 4") && said.contains("copied and verified"), "{said}");
    assert_eq!(hits("copy.live"), wanted);
    assert!(place.done("verify copy.live").out.starts_with("sound: all checksums match, 7 rows"));
    let said = place.done("collection snapshot set.live -o rows.parquet").said;
    assert!(said.contains("rows.parquet: 7 rows as of write 4"), "{said}");
    place.done("collection create other.live --dimensions 2");
    place.done("collection write other.live --insert rows.parquet --quiet");
    assert_eq!(hits("other.live"), wanted);
    // The copy is independent of the original, and a later copy can replace it.
    place.done("collection write copy.live --delete gone --upsert set.fbin --quiet");
    assert_eq!(hits("set.live"), wanted);
    assert_eq!(told(&place, "copy.live")["stats"]["rows"], 9);
    place.done("collection backup set.live copy.live --force --quiet");
    assert_eq!(hits("copy.live"), wanted);
    place.done("collection snapshot set.live -o rows.parquet --force --quiet");
    std::fs::create_dir(place.path("empty")).unwrap();
    place.done("collection backup set.live empty --quiet");
    assert_eq!(hits("empty"), wanted);
    for (line, words) in [
        ("collection backup set.live copy.live", &["copy.live is already a collection", "--force"][..]),
        ("collection backup set.live set.live --force", &["set.live is an input, so the backup cannot write set.live"]),
        (
            "collection backup set.live set.live/copy",
            &["set.live is a collection and an input", "choose another folder"],
        ),
        ("collection backup set.live gone", &["gone is a file, but a collection is a folder"]),
        ("collection backup none copy", &["none is not a collection", "adjoin collection create"]),
        ("collection snapshot set.live -o rows.parquet", &["rows.parquet exists already", "--force"]),
        ("collection snapshot set.live -o rows.csv", &["rows.csv: vectors are written as Parquet", ".parquet"]),
        ("collection snapshot set.live -o -", &["-o writes to a file"]),
        ("collection snapshot set.live -o set.live/rows.parquet", &["set.live is a collection and an input"]),
    ] {
        place.refused(line, words);
    }
}

#[test]
fn info_reports_the_resources_of_a_collection() {
    let place = small();
    place.write("gone", b"0\n1\n2\n");
    place.done("collection merge set.live --quiet");
    place.done("collection write set.live --delete gone --quiet");
    let all = told(&place, "set.live");
    let stats = &all["stats"];
    for (key, wanted) in [("rows", 6), ("unmerged", 0), ("deleted", 3), ("sequence", 4), ("log_files", 1)] {
        assert_eq!(stats[key], wanted, "{key}: {all}");
    }
    assert_eq!((&all["kind"], &all["degree"], &all["page_bytes"]), (&"live".into(), &32.into(), &4_096.into()));
    let (index, dead) = (stats["index_bytes"].as_u64().unwrap(), stats["dead_bytes"].as_u64().unwrap());
    assert!(index > 4_096 && dead == index / 3, "{all}");
    assert!(stats["unmerged_bytes"] == 0 && stats["log_bytes"].as_u64().unwrap() > 64, "{all}");
    assert!(stats["last_merge"].is_null() && stats["write_amplification"].is_null(), "{all}");
    let info = place.done("info set.live").out;
    for words in [
        "vectors      6 of 2 x f32",
        "unmerged     0 rows, ",
        "deleted      3 rows deleted or replaced, about ",
        "graph        32 neighbors at most, of 75 candidates, alpha 1.2",
        "pages        of 4.1 kB",
        "codes        2 bytes of a vector, in memory",
    ] {
        assert!(info.contains(words), "{words}: {info}");
    }
}

/// Checks copies that are made while another process writes. Each has all acknowledged rows, and the first rows of
/// the write in progress.
#[test]
fn backups_made_during_writes_are_consistent() {
    let place = Place::on_disk();
    place.done("collection create set.live --dimensions 16 --degree 8 --build-list 10 --code-bytes 4");
    place.done("gen --rows 120000 --dimensions 16 -o set.fbin --quiet");
    place.write("one.jsonl", format!("{{\"id\": -1, \"v\": [{}9]}}\n", "9, ".repeat(15)).as_bytes());
    place.done("collection write set.live --insert one.jsonl --quiet");
    let words = ["collection", "write", "set.live", "--upsert", "set.fbin", "--quiet"];
    let mut child = place.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let mut counts = Vec::new();
    while child.try_wait().unwrap().is_none() {
        place.done("collection backup set.live copy.live --force --quiet");
        assert!(place.done("verify copy.live").out.starts_with("sound: "));
        let hit = place.done("search copy.live --queries one.jsonl -k 1 --no-ids --quiet").out;
        assert!(hit.contains("\n0,1,-1,0.0\n"), "{hit}");
        counts.push(told(&place, "copy.live")["stats"]["rows"].as_u64().unwrap());
    }
    assert!(child.wait().unwrap().success());
    assert!(counts.is_sorted() && counts.iter().all(|&rows| rows >= 1), "{counts:?}");
    place.done("collection backup set.live copy.live --force --quiet");
    assert_eq!(told(&place, "copy.live")["stats"]["rows"], 120_001);
}
