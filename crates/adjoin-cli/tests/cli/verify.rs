//! `adjoin verify`, which reports that a folder is sound, or which part is damaged.

use adjoin::{lab::store::StoreManifest, lab::store::format::checksum};

use crate::place::{Place, Ran};

fn store() -> (Place, String) {
    let place = Place::new();
    place.done("gen --rows 600 --dimensions 4 -o set.fbin --quiet");
    place.done("build set.fbin --buckets 40 -o store --quiet");
    let mut names = std::fs::read_dir(place.path("store")).unwrap().map(|file| file.unwrap().file_name());
    let vectors = names.find_map(|name| name.into_string().ok().filter(|name| name.starts_with("vectors-"))).unwrap();
    (place, format!("store/{vectors}"))
}

/// Checks a store of a later version. Its manifest is valid and has version 3.
#[test]
fn refuses_a_store_of_a_newer_version() {
    let (place, _) = store();
    let path = place.path("store");
    let mut manifest = StoreManifest::decode(&path, &place.read("store/manifest.json")).unwrap();
    manifest.format_version = 3;
    place.write("store/manifest.json", &manifest.encode());
    for line in ["verify store", "info store", "join store --eps 1 -o pairs.csv", "explain store --eps 1"] {
        place.refused(line, &["store has format version 3", "reads versions up to 2", "upgrade adjoin"]);
    }
}

/// Inserts text into the manifest of the store, and corrects the checksum.
fn edit(place: &Place, before: &str, more: &str) {
    let text = place.text("store/manifest.json");
    let digits = StoreManifest::decode(&place.path("store"), text.as_bytes()).unwrap().manifest_xxh3;
    let blank = text.replace(&digits, &"0".repeat(16)).replacen(before, &format!("{more}{before}"), 1);
    let digits = format!("{:016x}", checksum(blank.as_bytes()));
    let at = blank.find(r#""manifest_xxh3": "0000"#).unwrap() + r#""manifest_xxh3": ""#.len();
    place.write("store/manifest.json", [&blank[..at], &digits, &blank[at + 16..]].concat().as_bytes());
}

/// Checks folders that state another kind. They must not be accepted or replaced as a store.
#[test]
fn refuses_folders_of_other_kinds() {
    for (kind, words) in [
        ("index", ["store is a graph index, not a store", "adjoin build"]),
        ("live", ["store is a collection, not a store", "choose another folder"]),
        ("tree\\u001b", ["store is of the kind tree\\u{1b}, which this adjoin does not know", "upgrade adjoin"]),
    ] {
        let (place, _) = store();
        edit(&place, r#""format_version""#, &format!(r#""kind": "{kind}", "#));
        // These commands accept an index, and a collection as a source. But here the index has no pages, and the
        // collection no log.
        let no_pages = ["no file for the role pages", "build the index again"];
        let no_log = ["missing field `salt`", "restore the folder from a backup"];
        for line in ["join store --eps 1 -o pairs.csv", "explain store --eps 1"] {
            place.refused(line, if kind == "live" { &no_log } else { &words });
        }
        match kind {
            "index" => {
                place.refused("info store", &no_pages);
                let said = damaged(&place, "verify store");
                assert!(no_pages.iter().all(|word| said[0].contains(word)) && said.len() == 2, "{said:?}");
            }
            "live" => ["verify store", "info store"].iter().for_each(|line| place.refused(line, &no_log)),
            _ => ["verify store", "info store"].iter().for_each(|line| place.refused(line, &words)),
        }
        for line in ["build set.fbin -o store", "build set.fbin -o store --force"] {
            place.refused(line, &words[..1]);
        }
    }
}

/// Checks files that a later version has added. They must not be reported as damage or deleted as leftovers. When the
/// store is replaced, they are replaced too.
#[test]
fn files_of_a_later_version_are_neither_damage_nor_leftovers() {
    let (place, _) = store();
    let digits = format!("{:016x}", checksum(b"codes"));
    let facts = format!(r#""codes": {{"name": "codes.bin", "bytes": 5, "xxh3": "{digits}"}}, "notes": "later", "#);
    edit(&place, r#""centers": {"#, &facts);
    place.write("store/codes.bin", b"codes");
    place.write("store/mine.txt", b"dear");
    assert!(place.done("join store --eps 0.5").said.contains(" pairs"));
    let said = place.done("verify store").out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("sound: "), "{said}");
    assert_eq!(lines[1], "of a role unknown to this version: codes.bin, codes; it belongs to the store");
    assert_eq!(lines[2..], ["not part of the store: mine.txt"]);
    for bytes in [&b"coder"[..], b"cod"] {
        place.write("store/codes.bin", bytes);
        let said = damaged(&place, "verify store --quiet");
        assert!(said[0].starts_with("codes.bin") && said.len() == 2, "{said:?}");
        assert!(said[1].contains("joins still give correct results"), "{said:?}");
    }
    place.done("build set.fbin -o store --force --quiet");
    assert!(!place.path("store/codes.bin").exists() && place.path("store/mine.txt").exists());
}

/// Checks names in a folder or a manifest, which are untrusted. They must not be able to forge a line or control the
/// terminal.
#[test]
fn names_are_printed_without_their_control_characters() {
    let (place, _) = store();
    let name = "x\u{1b}[2J\u{9b}1m\nsound: all";
    place.write(&format!("store/{name}"), b"");
    let is_plain = |text: &str| assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    let sound = place.done("verify store").out;
    is_plain(&sound);
    assert_eq!(sound.lines().count(), 2, "{sound}");
    assert!(sound.contains(r"not part of the store: x\u{1b}[2J\u{9b}1m\nsound: all"), "{sound}");
    let escaped = serde_json::to_string(name).unwrap();
    edit(&place, r#""centers": {"#, &format!(r#""c\u001b\n": {{"name": {escaped}, "bytes": 7}}, "#));
    let ran = place.run("verify store");
    is_plain(&ran.out);
    is_plain(&ran.said);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(2), 1), "{}", ran.out);
    assert!(ran.said.lines().count() == 2 && ran.said.contains("has 0 bytes instead of 7"), "{}", ran.said);
    let json = place.done("info store --json").out;
    is_plain(&json);
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["files"]["c\u{1b}\n"]["name"], name);
    is_plain(&place.done("info store").out);
}

/// Verifies a damaged store. Returns the lines that were printed. The last one is the error.
fn damaged(place: &Place, line: &str) -> Vec<String> {
    let before = place.listing();
    let Ran { code, out, said } = place.run(line);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
    assert_eq!(place.listing(), before);
    said.lines().filter(|line| !line.contains("refuses direct reads")).map(str::to_owned).collect()
}

#[test]
fn verify_accepts_a_sound_store_and_lists_leftovers() {
    let (place, _) = store();
    let ran = place.done("verify store");
    assert!(ran.out.starts_with("sound: all ") && ran.out.ends_with(" buckets\n"), "{}", ran.out);
    assert_eq!(place.done("verify store --quiet --memory 40MB").out, "");
    place.write("store/vectors-00112233445566ff.bin", b"of a build that was killed");
    let ran = place.done("verify store");
    assert!(ran.out.contains("left over: vectors-00112233445566ff.bin, "), "{}", ran.out);
    assert!(ran.out.contains("delete it"), "{}", ran.out);
}

/// Checks that `verify` reports files of editors, sync tools and network file systems, in every kind of folder.
#[test]
fn verify_lists_foreign_files_in_every_folder() {
    let (place, _) = store();
    place.done("index build store -o set.index --quiet");
    place.done("collection create set.live --dimensions 2");
    for (folder, whole) in [("store", "the store"), ("set.index", "the index"), ("set.live", "the collection")] {
        let names = [".DS_Store", ".manifest.json.swp", ".nfs0001", "manifest.json (conflicted copy)", "vectors.bin~"];
        names.iter().for_each(|name| place.write(&format!("{folder}/{name}"), b""));
        let said = place.done(&format!("verify {folder}")).out;
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("sound: "), "{said}");
        assert_eq!(lines[1..], names.map(|name| format!("not part of {whole}: {name}")), "{said}");
    }
}

#[test]
fn verify_reports_the_bucket_of_a_flipped_byte() {
    let (place, vectors) = store();
    let mut bytes = place.read(&vectors);
    bytes[64] ^= 4;
    place.write(&vectors, &bytes);
    for line in ["verify store", "verify store --quiet"] {
        let said = damaged(&place, line);
        assert_eq!(said.len(), 2, "{said:?}");
        for word in [vectors.trim_start_matches("store/"), "bucket 0, bytes 64 to ", "of the source", "checksum"] {
            assert!(said[0].contains(word), "{said:?}");
        }
        assert!(said[1].starts_with("adjoin: store is damaged in 1 part; "), "{said:?}");
        assert!(said[1].contains("build the store again from its source"), "{said:?}");
    }
}

#[test]
fn verify_lists_twenty_damages_and_counts_the_rest() {
    let (place, vectors) = store();
    let zeros = vec![0; place.read(&vectors).len() + 1];
    place.write(&vectors, &zeros);
    let said = damaged(&place, "verify store");
    assert_eq!(said.len(), 22, "{said:?}");
    assert!(said[0].contains("extra bytes follow the end"), "{said:?}");
    assert!(said[20].starts_with("and ") && said[20].ends_with(" more"), "{said:?}");
}

#[test]
fn verify_refuses_non_stores_and_newer_versions() {
    let (place, _) = store();
    place.refused("verify set.fbin", &["set.fbin is not a store", "adjoin build"]);
    place.refused("verify nowhere", &["nowhere is not a store"]);
    place.refused("verify store --memory 1MB", &["--memory"]);
    let text = place.text("store/manifest.json");
    let newer = text.replace("\"format_version\": 1", "\"format_version\": 2");
    place.write("store/manifest.json", newer.as_bytes());
    let said = damaged(&place, "verify store"); // changed by hand: its checksum says so
    assert!(said[0].starts_with("manifest.json: checksum mismatch"), "{said:?}");
}
