//! `adjoin verify`: silence is not enough; it says that a store is sound, or which part of it is not.

use adjoin::store::Manifest;

use crate::place::{Place, Ran};

fn store() -> (Place, String) {
    let place = Place::new();
    place.done("gen --rows 600 --dimensions 4 -o set.fbin --quiet");
    place.done("build set.fbin --buckets 40 -o store --quiet");
    let mut names = std::fs::read_dir(place.path("store")).unwrap().map(|file| file.unwrap().file_name());
    let vectors = names.find_map(|name| name.into_string().ok().filter(|name| name.starts_with("vectors-"))).unwrap();
    (place, format!("store/{vectors}"))
}

/// A store as a later version may write it: its manifest is whole, its version is 2.
#[test]
fn a_store_of_a_newer_version() {
    let (place, _) = store();
    let path = place.path("store");
    let mut manifest = Manifest::decode(&path, &place.read("store/manifest.json")).unwrap();
    manifest.format_version = 2;
    place.write("store/manifest.json", &manifest.encode());
    for line in ["verify store", "info store", "join store --eps 1 -o pairs.csv", "explain store --eps 1"] {
        place.refused(line, &["store has format version 2", "reads up to 1", "use a newer adjoin"]);
    }
}

/// Verifies what is damaged: the lines that it says, the last of which is the error.
fn damaged(place: &Place, line: &str) -> Vec<String> {
    let before = place.listing();
    let Ran { code, out, said } = place.run(line);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{said}");
    assert_eq!(place.listing(), before);
    said.lines().filter(|line| !line.contains("refuses direct reads")).map(str::to_owned).collect()
}

#[test]
fn a_sound_store() {
    let (place, _) = store();
    let ran = place.done("verify store");
    assert!(ran.out.starts_with("sound: all ") && ran.out.ends_with(" buckets\n"), "{}", ran.out);
    assert_eq!(place.done("verify store --quiet --memory 40MB").out, "");
    place.write("store/vectors.bin.partial", b"of a build that was killed");
    let ran = place.done("verify store");
    assert!(ran.out.contains("left over: vectors.bin.partial") && ran.out.contains("delete it"), "{}", ran.out);
}

#[test]
fn a_flipped_byte_is_named_with_its_bucket() {
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
        assert!(said[1].starts_with("adjoin: store is damaged, 1 part of it; "), "{said:?}");
        assert!(said[1].contains("build the store again from its source"), "{said:?}");
    }
}

#[test]
fn many_damages_are_counted_after_the_first_twenty() {
    let (place, vectors) = store();
    let zeros = vec![0; place.read(&vectors).len() + 1];
    place.write(&vectors, &zeros);
    let said = damaged(&place, "verify store");
    assert_eq!(said.len(), 22, "{said:?}");
    assert!(said[0].contains("something follows what was written"), "{said:?}");
    assert!(said[20].starts_with("and ") && said[20].ends_with(" more"), "{said:?}");
}

#[test]
fn what_is_no_store_or_a_newer_one() {
    let (place, _) = store();
    place.refused("verify set.fbin", &["set.fbin is no store", "adjoin build"]);
    place.refused("verify nowhere", &["nowhere is no store"]);
    place.refused("verify store --memory 1MB", &["--memory"]);
    let text = place.text("store/manifest.json");
    let newer = text.replace("\"format_version\": 1", "\"format_version\": 2");
    place.write("store/manifest.json", newer.as_bytes());
    let said = damaged(&place, "verify store"); // changed by hand: its checksum says so
    assert!(said[0].starts_with("manifest.json: the manifest is not as written"), "{said:?}");
}
