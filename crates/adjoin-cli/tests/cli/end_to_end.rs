//! Joins from source files to a file of pairs.

use std::collections::HashSet;

use crate::inputs::{fbin, sample};
use crate::pairs::{of_csv, pairs_of};
use crate::place::Place;

/// Number of pairs of the sample with a cosine of at least 0.9.
const SAMPLE_PAIRS: usize = 35_159;

#[test]
fn the_sample_joins_to_its_known_pairs_in_every_format() {
    let place = Place::new();
    let join = format!("join {} --id-column name --min-similarity 0.9", sample());
    let said = place.done(&format!("{join} -o pairs.parquet")).said;
    assert!(said.lines().any(|line| line == "35,159 pairs written to pairs.parquet"), "{said}");
    let (columns, pairs) = pairs_of(&place, "pairs.parquet");
    assert_eq!(
        (columns.as_slice(), pairs.len()),
        (&["left_id", "right_id", "similarity"].map(String::from)[..], SAMPLE_PAIRS)
    );
    assert!(pairs.iter().all(|pair| pair.0.parse::<u64>().is_err()), "names are text, not row numbers");
    assert!(pairs.iter().all(|pair| (0.9..1.01).contains(&f32::from_bits(pair.2))));

    place.done(&format!("build {} --id-column name --metric cosine -o store", sample()));
    for name in ["again.parquet", "pairs.csv", "pairs.jsonl"] {
        place.done(&format!("join store --min-similarity 0.9 -o {name}"));
        assert!(pairs_of(&place, name) == (columns.clone(), pairs.clone()), "{name}");
    }
    let ran = place.done("join store --min-similarity 0.9 -o -");
    assert!(of_csv(&ran.out) == (columns, pairs));
    assert!(ran.said.starts_with("35,159 pairs found in "), "{}", ran.said);
}

#[test]
fn ground_truth_equals_an_exact_join() {
    let place = Place::new();
    for (element, ending) in [("f32", "fbin"), ("u8", "u8bin"), ("i8", "i8bin"), ("f16", "npy")] {
        let file = format!("set.{ending}");
        place.done(&format!("gen --rows 3000 --dimensions 12 --element {element} -o {file}"));
        let thresholds = match element {
            "u8" => ["--eps 50", "--min-similarity 0.993"],
            "i8" => ["--eps 50", "--min-similarity 0.9"],
            _ => ["--eps 1.5", "--min-similarity 0.9"],
        };
        for (number, threshold) in thresholds.iter().enumerate() {
            let name = |kind: &str| format!("{kind}-{element}-{number}.parquet");
            place.done(&format!("join {file} {threshold} --exact -o {}", name("join")));
            place.done(&format!("groundtruth {file} {threshold} -o {}", name("truth")));
            let (columns, found) = pairs_of(&place, &name("join"));
            assert!(found.len() > 1000, "{element} {threshold}: {} pairs", found.len());
            assert_eq!(columns[2], ["distance", "similarity"][number]);
            assert!((columns, found) == pairs_of(&place, &name("truth")), "{element} {threshold}");
        }
    }
}

#[test]
fn a_sampled_ground_truth_is_a_subset_of_the_full_one() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin");
    place.done("groundtruth set.fbin --eps 0.7 -o all.csv");
    place.done("groundtruth set.fbin --eps 0.7 --sample 100 --seed 3 -o some.csv");
    let (all, some) = (pairs_of(&place, "all.csv").1, pairs_of(&place, "some.csv").1);
    let all: HashSet<_> = all.into_iter().collect();
    assert!(!some.is_empty() && some.len() < all.len() && some.iter().all(|pair| all.contains(pair)));
}

#[test]
fn skipped_rows_without_a_usable_vector_keep_row_numbers() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[f32::NAN, 0.0, 1.0, 1.0, f32::INFINITY, 0.0, 1.0, 1.5]));
    let ran = place.done("join set.fbin --eps 1 --on-bad skip -o -");
    assert_eq!(ran.out, "left_id,right_id,distance\n1,3,0.5\n");
    let said = place.done("build set.fbin --on-bad skip -o store").said;
    assert!(said.contains("2 rows without a usable vector skipped"), "{said}");
}

/// Reads a folder in the layout that `hf download` creates.
#[test]
fn reads_nested_folders_of_a_download() {
    let place = Place::new();
    for folder in ["set/data", "set/.cache"] {
        std::fs::create_dir_all(place.path(folder)).unwrap();
    }
    place.write("set/README.md", b"about the data");
    place.write("set/.cache/lock", b"");
    place.write("set/data/train-00001-of-00002.fbin", &fbin(1, &[1.5, 9.0]));
    place.write("blob", &fbin(1, &[1.0]));
    std::os::unix::fs::symlink(place.path("blob"), place.path("set/data/train-00000-of-00002.fbin")).unwrap();
    let ran = place.done("join set --eps 1 -o -");
    assert_eq!(ran.out, "left_id,right_id,distance\n0,1,0.5\n");
    assert!(ran.said.contains("ignored files of other types: .cache, README.md"), "{}", ran.said);
}

#[test]
fn joins_write_empty_results() {
    let place = Place::new();
    place.write("set.fbin", &fbin(1, &[0.0, 5.0]));
    for name in ["none.parquet", "none.csv", "none.jsonl"] {
        place.done(&format!("join set.fbin --eps 1 -o {name}"));
        assert!(pairs_of(&place, name).1.is_empty(), "{name}");
    }
    assert_eq!(place.text("none.csv"), "left_id,right_id,distance\n");
    place.write("one.fbin", &fbin(1, &[7.0]));
    assert_eq!(place.done("join one.fbin --eps 1e300 -o -").out, "left_id,right_id,distance\n");
}

#[test]
fn generated_sets_depend_on_the_seed_and_can_be_loaded() {
    let place = Place::new();
    for (element, endings) in
        [("f32", &["fbin", "npy"][..]), ("u8", &["u8bin", "npy"]), ("i8", &["i8bin", "npy"]), ("f16", &["npy"])]
    {
        for ending in endings {
            let make = |seed: u32, name: &str| {
                let name = format!("{name}-{element}.{ending}");
                place.done(&format!(
                    "gen --rows 500 --dimensions 6 --element {element} --seed {seed} -o {name} --quiet"
                ));
                name
            };
            let (one, again, other) = (make(7, "one"), make(7, "again"), make(8, "other"));
            assert_eq!(place.read(&one), place.read(&again), "{one}");
            assert_ne!(place.read(&one), place.read(&other), "{one}");
            let store = format!("{one}.store");
            place.done(&format!("build {one} -o {store}"));
            let info = place.done(&format!("info {store}")).out;
            assert!(info.contains(&format!("500 of 6 x {element}\n")), "{info}");
        }
    }
}

#[test]
fn explain_and_info_describe_a_store() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin");
    place.done("build set.fbin --seed 5 --buckets 30 -o store");
    let before = place.listing();
    let plan = place.done("explain store --eps 0.5").out;
    for line in
        ["rule         margin-sum", "vectors      2,000 in 30 buckets", "edges  ", "pairs  ", "order  ", "reads  "]
    {
        assert!(plan.contains(line), "{plan}");
    }
    let info = place.done("info store").out;
    for line in [
        "vectors      2,000 of 8 x f32",
        "metric       l2",
        "buckets      30, of 66",
        "seed         5",
        "ids          none",
    ] {
        assert!(info.contains(line), "{info}");
    }
    let manifest: serde_json::Value = serde_json::from_str(&place.done("info store --json").out).unwrap();
    assert_eq!((&manifest["rows"], &manifest["metric"]), (&2000.into(), &"l2".into()));
    assert_eq!(place.listing(), before);
}

#[test]
fn paths_with_spaces_and_unicode_letters_work() {
    let place = Place::new();
    std::fs::create_dir(place.path("Größe ☃")).unwrap();
    let run = |arguments: &[&str]| {
        let ran = place.run_words(arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.said);
    };
    run(&["gen", "--rows", "100", "--dimensions", "4", "-o", "Größe ☃/a b.fbin"]);
    run(&["build", "Größe ☃", "-o", "mein Lager"]);
    run(&["join", "mein Lager", "--eps", "1", "-o", "Größe ☃/Paare [1].csv", "--stats", "Größe ☃/s t.json"]);
    assert!(place.text("Größe ☃/Paare [1].csv").starts_with("left_id,right_id,distance\n"));
}
