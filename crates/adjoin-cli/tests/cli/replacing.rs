//! `--force`. Existing files must be replaced as a whole or be unchanged.

use crate::inputs::fbin;
use crate::place::Place;

#[test]
fn force_replaces_a_store_completely() {
    let place = Place::new();
    place.done("gen --rows 1000 --dimensions 4 -o old.fbin");
    place.done("gen --rows 700 --dimensions 6 --seed 2 -o new.fbin");
    place.done("build new.fbin -o fresh");
    place.done("build old.fbin -o store");
    place.done("build new.fbin -o store --force");
    assert!(place.done("info store").out.contains("700 of 6 x f32"));
    let names = |store: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(place.path(store)).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("store"), names("fresh"));
    place.done("build new.fbin -o store --force");
    assert_eq!(names("store"), names("fresh"), "built again from the same source");
    place.done("join store --eps 1");
}

#[test]
fn a_forced_build_that_fails_leaves_the_old_store_readable() {
    let place = Place::new();
    place.done("gen --rows 1000 --dimensions 4 -o old.fbin");
    place.done("build old.fbin -o store");
    let expected = place.done("join store --eps 0.5 -o - --threads 1").out;
    place.write("bad.fbin", &fbin(2, &[1.0, 2.0, 3.0, f32::NAN]));
    place.write("short.fbin", &fbin(2, &[1.0, 2.0, 3.0])[..15]);
    place.refused("build bad.fbin -o store --force", &["bad.fbin", "row 1 "]);
    place.refused("build short.fbin -o store --force", &["short.fbin"]);
    place.refused("build nowhere.fbin -o store --force", &["nowhere.fbin"]);
    place.refused("build old.fbin -o store --force --memory 18MB", &["--memory"]);
    assert_eq!(place.done("join store --eps 0.5 -o - --threads 1").out, expected);
}

#[test]
fn build_refuses_a_folder_with_other_files() {
    let place = Place::new();
    place.write("set.fbin", &fbin(1, &[0.0, 1.0]));
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", b"dear");
    place.refused("build set.fbin -o mine", &["mine", "files that are not a store"]);
    place.refused("build set.fbin -o mine --force", &["mine", "files that are not a store"]);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.done("build set.fbin -o empty");
    place.done("join empty --eps 1");
}

/// Checks that builds at the same time leave one complete store. It does not matter which of them ends last.
#[test]
fn two_builds_at_once_leave_one_sound_store() {
    for _ in 0..10 {
        let place = Place::new();
        place.done("gen --rows 20000 --dimensions 16 -o one.fbin --quiet");
        place.done("gen --rows 30000 --dimensions 8 -o other.fbin --quiet");
        let build = |set: &str| place.command(&["build", set, "-o", "store", "--quiet"]).spawn().unwrap();
        let mut builds = ["one.fbin", "other.fbin"].map(build);
        let codes = builds.each_mut().map(|build| build.wait().unwrap().code());
        assert!(codes.contains(&Some(0)) && codes.iter().all(|code| matches!(code, Some(0 | 2))), "{codes:?}");
        let sound = place.done("verify store").out;
        assert!(sound.starts_with("sound") && !sound.contains("left over"), "{sound}");
    }
}

#[test]
fn results_are_replaced_by_force() {
    let place = Place::new();
    place.write("set.fbin", &fbin(1, &[0.0, 1.0]));
    place.write("pairs.csv", b"mine");
    place.write("stats.json", b"mine");
    place.refused("join set.fbin --eps -1 -o pairs.csv --stats stats.json --force", &["eps"]);
    assert_eq!(place.text("pairs.csv"), "mine");
    place.done("join set.fbin --eps 1 -o pairs.csv --stats stats.json --force");
    assert_eq!(place.text("pairs.csv"), "left_id,right_id,distance\n0,1,1.0\n");
    assert!(place.text("stats.json").starts_with('{'));
    place.done("groundtruth set.fbin --eps 0.5 -o pairs.csv --force");
    assert_eq!(place.text("pairs.csv"), "left_id,right_id,distance\n");
    place.done("gen --rows 5 --dimensions 1 -o set.fbin --force");
    assert_eq!(place.read("set.fbin").len(), 28);
}

#[test]
fn joins_leave_no_temporary_files() {
    let place = Place::new();
    place.done("gen --rows 500 --dimensions 4 -o set.fbin");
    let mut expected = place.listing();
    place.done("join set.fbin --eps 0.5");
    place.done("join set.fbin --eps 0.5 -o -");
    assert_eq!(place.listing(), expected);
    place.done("join set.fbin --eps 0.5 -o pairs.parquet");
    expected = place.listing().into_iter().filter(|(path, _)| !path.ends_with("pairs.parquet")).collect();
    assert_eq!(expected.len(), 1);
}

#[test]
fn a_file_url_of_an_input_is_not_replaced() {
    let place = Place::new();
    place.write("set.jsonl", b"{\"v\": [0, 0]}\n{\"v\": [0, 1]}\n");
    place.write("pairs.csv", b"left_id,right_id,distance\n0,1,1\n");
    place.done("build set.jsonl -o set.store");
    let before = place.listing();
    let url = |name: &str| format!("file://{}", place.path(name).display());
    let [set, pairs, store] = ["set.jsonl", "pairs.csv", "set.store"].map(url);
    for line in [
        format!("dedupe {set} --eps 1 -o {set}"),
        format!("dedupe set.jsonl --eps 1 -o {set}"),
        format!("join {set} --eps 1 -o {set}"),
        format!("report pairs.csv -o {pairs}"),
        format!("join {store} --eps 1 -o {store}/pairs.csv"),
    ] {
        place.refused(&format!("{line} --force"), &["an input, so -o cannot write"]);
        assert!(place.listing() == before, "{line}");
    }
    place.refused(&format!("join set.jsonl --eps 1 -o new.csv --stats {}", url("new.csv")), &["name two files"]);
    assert_eq!(place.text("set.jsonl").lines().count(), 2);
}
