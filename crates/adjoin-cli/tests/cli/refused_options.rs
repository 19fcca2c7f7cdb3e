//! Invalid options, and paths that cannot be written.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::inputs::fbin;
use crate::place::Place;

fn with_set_and_store() -> Place {
    let place = Place::new();
    place.done("gen --rows 500 --dimensions 4 -o set.fbin");
    place.done("build set.fbin -o store");
    place
}

#[test]
fn thresholds() {
    let place = with_set_and_store();
    for command in
        ["join store -o pairs.csv", "join set.fbin -o pairs.csv", "explain store", "groundtruth set.fbin -o t.csv"]
    {
        for (threshold, words) in [
            ("--eps -1", &["eps is -1", "at least 0"][..]),
            ("--eps nan", &["eps is NaN"]),
            ("--eps inf", &["eps is inf"]),
            ("--eps wide", &["wide", "--eps"]),
            ("--min-similarity 1.1", &["1.1", "between -1 and 1"]),
            ("--min-similarity -2", &["-2", "between -1 and 1"]),
            ("--min-similarity nan", &["NaN"]),
            ("--eps 1 --min-similarity 0.9", &["--eps", "--min-similarity", "cannot be used with"]),
        ] {
            place.refused(&format!("{command} {threshold}"), words);
        }
        let missing = if command.starts_with("join") { "required" } else { "give a threshold" };
        place.refused(command, &["--eps", "--min-similarity", missing]);
    }
}

#[test]
fn recalls() {
    let place = with_set_and_store();
    for recall in ["0", "1.5", "-1", "nan", "inf"] {
        place.refused(&format!("join store --eps 1 --recall {recall}"), &["recall is", "above 0 and at most 1"]);
    }
    place.refused("join store --eps 1 --recall 0.9 --exact", &["--recall", "--exact", "cannot be used with"]);
}

#[test]
fn refuses_invalid_numbers_sizes_and_names() {
    let place = with_set_and_store();
    for (line, words) in [
        ("join store --eps 1 --threads 0", &["--threads is 0", "give 1 to"][..]),
        ("join store --eps 1 --threads 1000000", &["--threads is 1000000"]),
        ("join store --eps 1 --threads two", &["two", "--threads"]),
        ("build set.fbin -o other --buckets 0", &["--buckets is 0", "at least 1"]),
        ("join set.fbin --eps 1 --buckets 0", &["--buckets is 0", "at least 1"]),
        ("join store --eps 1 --memory lots", &["lots is not a size", "512MiB"]),
        ("join store --eps 1 --memory 0", &["0 is not a size"]),
        ("join store --eps 1 --memory 1MB", &["the budget is 1.0 MB; give --memory ", "MB or more"]),
        ("join store --eps 1 --cache 1", &["1 bytes", "at least"]),
        ("join store --eps 1 --kernel gpu", &["gpu", "reference"]),
        ("build set.fbin -o other --metric dot", &["dot", "cosine"]),
        ("build set.fbin -o other --on-bad ignore", &["ignore", "skip"]),
        ("groundtruth set.fbin --eps 1 --sample 0 -o t.csv", &["sample of 0"]),
        ("join store --epz 1", &["--epz", "--eps"]),
        ("join store --eps 1 --stats -", &["--stats", "file"]),
        ("build set.fbin -o other --no-ids --id-column key", &["--no-ids", "--id-column"]),
        ("join", &["required"]),
        ("explode", &["explode"]),
    ] {
        place.refused(line, words);
    }
}

/// Checks that flags of other tools get useful advice, not just the flag with the most similar name.
#[test]
fn flags_of_other_tools_get_advice() {
    let place = with_set_and_store();
    let threshold = &["--eps for a distance (L2)", "--min-similarity for a similarity (cosine)"][..];
    let metric = &["the threshold decides the metric", "--eps", "--min-similarity"];
    for (line, words) in [
        ("join store --eps 1 --metric cosine", &metric[..]),
        ("explain store --eps 1 --metric=l2", metric),
        ("groundtruth set.fbin --metric l2 --eps 1 -o t.csv", metric),
        ("join store --threshold 1", threshold),
        ("join store --similarity 0.9", threshold),
        ("join store --cosine 0.9", threshold),
        ("join store --eps 1 --k 5", &["--neighbors K"]),
        ("join store --eps 1 -k 5", &["--eps", "--neighbors"]),
        ("dedupe set.fbin -o out --eps 1 -k 5", &["all pairs within a threshold", "explain"]),
        ("join store --eps 1 --output-file a.csv", &["-o FILE"]),
        ("join store --eps 1 --result a.csv", &["'a.csv'", "pairs, counts, clusters, removed, kept", "-o FILE"]),
        ("join store --eps 1 --mem 1GB", &["'--memory'"]),
        ("join store --eps 1 --jobs 2", &["--threads"]),
        ("join store --eps 1 -q", &["--quiet"]),
        ("build set.fbin -o other --overwrite", &["--force"]),
        ("build set.fbin -o other --eps 1", &["a store serves every threshold", "join"]),
        ("build set.fbin -o other --output-file x", &["'--output'"]),
    ] {
        place.refused(line, words);
    }
    for line in ["join store --eps 1 --metric cosine", "join store --eps 1 --verbose", "join store --eps 1 --tmp x"] {
        let said = place.run(line).said;
        assert!(!said.contains("as a value") && !said.contains("--trace"), "{said}");
    }
}

#[test]
fn messages_use_the_singular_for_one() {
    let place = Place::new();
    place.write("set.fbin", &fbin(1, &[0.0, 1.0, 9.0]));
    let said = place.done("join set.fbin --eps 1 -o pairs.csv").said;
    assert!(said.starts_with("1 pair found in ") && said.contains("\n1 pair written to pairs.csv\n"), "{said}");
    let said = place.done("groundtruth set.fbin --eps 1 --sample 1 -o truth.csv").said;
    assert!(said.contains(": 1 row compared with all, "), "{said}");
    assert!(place.done("build set.fbin --buckets 1 -o store").said.contains("3 vectors of 1 x f32 in 1 bucket, "));
}

#[test]
fn refuses_build_options_for_a_store() {
    let place = with_set_and_store();
    for option in [
        "--id-column key",
        "--no-ids",
        "--vector-column v",
        "--split train",
        "--buckets 3",
        "--on-bad skip",
        "--on-duplicate-id keep",
    ] {
        let name = option.split(' ').next().unwrap();
        place.refused(&format!("join store --eps 1 {option}"), &["store is a store", name, "build the store again"]);
    }
}

#[test]
fn refuses_to_generate_invalid_sets() {
    let place = Place::new();
    for (line, words) in [
        ("gen --rows 5 --dimensions 0 -o a.fbin", &["0 dimensions", "1 to 8192"][..]),
        ("gen --rows 5 --dimensions 9000 -o a.fbin", &["9000 dimensions"]),
        ("gen --rows 5 --dimensions 4 --hardness nan -o a.fbin", &["hardness is NaN"]),
        ("gen --rows 5 --dimensions 4 --hardness -1 -o a.fbin", &["hardness is -1"]),
        ("gen --rows 5 --dimensions 4 -o a.u8bin", &["f32", ".fbin", ".npy"]),
        ("gen --rows 5 --dimensions 4 --element f16 -o a.fbin", &["f16", ".npy"]),
        ("gen --rows 5 --dimensions 4 --element f64 -o a.npy", &["f64", "f32"]),
        ("gen --rows 5 --dimensions 4 -o nowhere/a.npy", &["nowhere does not exist", "create that folder"]),
        ("gen --rows 1000000000000 --dimensions 8000 -o a.npy", &["a.npy needs", "disk has", "fewer --rows"]),
        ("gen --rows many --dimensions 8000 -o a.npy", &["many", "--rows"]),
    ] {
        place.refused(line, words);
    }
}

#[test]
fn refuses_non_stores_and_stores_of_another_metric() {
    let place = with_set_and_store();
    place.done("build set.fbin --metric cosine -o cosine");
    let to_cosine = ["store was built for the metric l2", "--eps", "--metric cosine"];
    let to_l2 = ["cosine was built for the metric cosine", "--min-similarity", "--metric l2"];
    place.refused("join store --min-similarity 0.9 -o pairs.csv", &to_cosine);
    place.refused("explain store --min-similarity 0.9", &to_cosine);
    place.refused("join cosine --eps 1 -o pairs.csv", &to_l2);
    place.refused("explain cosine --eps 1", &to_l2);
    for line in ["info nowhere", "info set.fbin"] {
        place.refused(line, &["is not a store", "adjoin build"]);
    }
    place.refused("join store set.fbin --eps 1", &["store is a store, which cannot be combined with other inputs"]);
}

#[test]
fn refuses_damaged_stores() {
    let files = |place: &Place| -> Vec<_> {
        std::fs::read_dir(place.path("store")).unwrap().map(|file| file.unwrap().path()).collect()
    };
    for number in 0..4 {
        let place = with_set_and_store();
        let file = files(&place).remove(number);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        place.refused("join store --eps 1 -o pairs.csv", &["store"]);
        std::fs::write(&file, b"").unwrap();
        place.refused("join store --eps 1 -o pairs.csv", &["store"]);
    }
}

#[test]
fn refuses_existing_and_invalid_output_names() {
    let place = with_set_and_store();
    place.write("pairs.csv", b"mine");
    place.write("stats.json", b"mine");
    std::fs::create_dir(place.path("folder.csv")).unwrap();
    for input in ["store", "set.fbin"] {
        for (rest, words) in [
            ("-o pairs.csv", &["pairs.csv exists already", "--force"][..]),
            ("--stats stats.json", &["stats.json exists already", "--force"]),
            ("-o folder.csv", &["folder.csv is a folder"]),
            ("--stats folder.csv", &["folder.csv is a folder"]),
            ("-o pairs.txt", &["pairs.txt", ".parquet, .csv or .jsonl"]),
            ("-o pairs", &["pairs", ".parquet, .csv or .jsonl"]),
            ("-o nowhere/pairs.csv", &["nowhere does not exist"]),
            ("-o set.fbin/pairs.csv", &["set.fbin is not a folder"]),
            ("--stats nowhere/stats.json", &["nowhere does not exist"]),
            ("-o one.csv --stats one.csv", &["one.csv", "two files"]),
            ("-o one.csv --stats ./one.csv", &["one.csv", "two files"]),
            ("--stats one.json --trace ./one.json", &["one.json", "--stats", "--trace", "two files"]),
            ("--trace stats.json", &["stats.json exists already", "--force"]),
            ("--trace -", &["--trace", "file"]),
        ] {
            place.refused(&format!("join {input} --eps 1 {rest}"), words);
        }
    }
    place.refused_words(&["join", "", "--eps", "1"], &["STORE|SOURCE", "value is required"]);
    place.refused_words(&["join", "store", "--eps", "1", "-o", ""], &["--output <FILE>", "value is required"]);
    place.refused("groundtruth set.fbin --eps 1 -o pairs.csv", &["pairs.csv exists already"]);
    place.refused("gen --rows 5 --dimensions 4 -o set.fbin", &["set.fbin exists already", "--force"]);
    place.refused("build set.fbin -o store", &["store is already a store", "--force"]);
    place.refused("build set.fbin -o pairs.csv", &["pairs.csv is a file"]);
    place.refused("build set.fbin -o nowhere/store", &["nowhere does not exist"]);
    place.refused("build set.fbin -o .", &["set.fbin is an input inside ."]);
    assert_eq!((place.text("pairs.csv"), place.text("stats.json")), ("mine".into(), "mine".into()));
}

/// Checks that no command overwrites its input, even if the input is named differently or through a link.
#[test]
fn refuses_to_overwrite_inputs() {
    let place = with_set_and_store();
    std::fs::create_dir(place.path("shards")).unwrap();
    for name in ["shards/a.parquet", "shards/b.parquet"] {
        crate::inputs::write_parquet(&place.path(name), &[(name, Some([0.0, 1.0])), ("b", Some([1.0, 1.0]))]);
    }
    place.done("join store --eps 1 -o pairs.csv --stats stats.json");
    std::os::unix::fs::symlink("store", place.path("link")).unwrap();
    std::os::unix::fs::symlink("shards/a.parquet", place.path("a.parquet")).unwrap();
    std::fs::hard_link(place.path("shards/b.parquet"), place.path("b.parquet")).unwrap();
    std::fs::hard_link(place.path("store/manifest.json"), place.path("manifest.json")).unwrap();
    std::fs::create_dir(place.path("store/deeper")).unwrap();
    let is_read = ["is an input, so", "another name"];
    let into_store = ["is a store and an input, so", "into it; choose another folder"];
    let into_folder = ["shards is a folder of sources and an input, so", "into it; choose another folder"];
    for output in ["--stats", "--trace", "-o", "--result removed --kept"] {
        place.refused(&format!("join store --eps 1 {output} store/manifest.json --force"), &is_read);
        place.refused(&format!("join store --eps 1 {output} link/manifest.json --force"), &is_read);
        place.refused(&format!("join link --eps 1 {output} store/manifest.json --force"), &is_read);
        place.refused(&format!("join store --eps 1 {output} manifest.json --force"), &is_read);
        place.refused(&format!("join store --eps 1 {output} store/new.csv"), &into_store);
        place.refused(&format!("join store --eps 1 {output} link/../store/deeper/new.csv"), &into_store);
        for source in ["shards", "shards/*.parquet", "shards/a.parquet shards/b.parquet"] {
            place.refused(&format!("join {source} --eps 1 {output} shards/a.parquet --force"), &is_read);
            place.refused(&format!("join {source} --eps 1 {output} a.parquet --force"), &is_read);
            place.refused(&format!("join {source} --eps 1 {output} ./b.parquet --force"), &is_read);
        }
        place.refused(&format!("join shards --eps 1 {output} shards/new.csv"), &into_folder);
    }
    place.refused("groundtruth shards --eps 1 -o b.parquet --force", &is_read);
    place.refused("groundtruth shards --eps 1 -o shards/new.csv --force", &into_folder);
    place.refused("build shards -o shards --force", &is_read);
    place.refused("build shards -o shards/store", &into_folder);
    std::fs::copy(place.path("set.fbin"), place.path("store/mine.fbin")).unwrap();
    place.refused("build store/mine.fbin -o store --force", &["store/mine.fbin is an input inside store"]);
    place.refused("build store/*.fbin -o link --force", &["store/*.fbin is an input inside link"]);
    for written in ["pairs.csv", "stats.json", "a.parquet"] {
        let report = "report pairs.csv --stats stats.json --names a.parquet --id-column key";
        place.refused(&format!("{report} -o {written} --force"), &is_read);
    }
    place.done("join shards/*.parquet --eps 1 -o shards/pairs.csv"); // the glob of the inputs does not match this file
}

#[test]
fn refuses_files_and_folders_without_permission() {
    let place = with_set_and_store();
    let folder = place.path("locked");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
    place.write("secret.fbin", &fbin(2, &[1.0, 2.0]));
    std::fs::set_permissions(place.path("secret.fbin"), Permissions::from_mode(0o000)).unwrap();
    for line in [
        "join secret.fbin --eps 1 -o secret.csv",
        "join store --eps 1 --stats locked/stats.json",
        "build set.fbin -o locked/store",
        "join store --eps 1 -o locked/pairs.csv",
        "join set.fbin --eps 1 -o locked/pairs.csv",
        "groundtruth set.fbin --eps 1 -o locked/pairs.csv",
        "gen --rows 5 --dimensions 4 -o locked/a.fbin",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(command) = place.powerless(&words) else { return };
        let name = if line.contains("secret") { "secret.fbin" } else { "locked" };
        place.refuses(command, &words, &[name, "denied"]);
    }
}

#[test]
fn refuses_budgets_that_are_too_small() {
    let place = Place::new();
    place.done("gen --rows 50000 --dimensions 64 -o set.fbin");
    place.write("small.fbin", &fbin(1, &[0.0, 1.0]));
    for line in
        ["build set.fbin -o store", "join set.fbin --eps 1 -o pairs.csv", "groundtruth set.fbin --eps 1 -o t.csv"]
    {
        place.refused(&format!("{line} --memory 21MB"), &["the budget is 21.0 MB", "give --memory", "MB or more"]);
    }
}

#[test]
fn refuses_results_larger_than_the_free_disk_space() {
    let place = Place::new();
    place.done("gen --rows 1000000 --dimensions 2 --element u8 -o many.u8bin --quiet");
    // The join has half a trillion pairs, which would take ten terabytes.
    let join = "join many.u8bin --buckets 10 --eps 1000 --exact -o pairs.csv --quiet";
    place.refused(join, &["pairs.csv needs about", "the disk has", "stricter threshold", "--yes"]);
    place.done("gen --rows 2000 --dimensions 2 --element u8 -o few.u8bin --quiet");
    let said = place.done("join few.u8bin --buckets 3 --eps 1000 --exact -o pairs.csv").said;
    assert!(said.contains("about 1,999,000 pairs expected"), "{said}");
}
