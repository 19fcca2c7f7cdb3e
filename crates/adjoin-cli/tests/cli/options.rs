//! Options that affect how a result is computed, but not the result.

use crate::inputs::fbin;
use crate::pairs::{Pairs, pairs_of};
use crate::place::Place;

fn set_and_store() -> (Place, Pairs) {
    let place = Place::new();
    place.done("gen --rows 5000 --dimensions 16 --seed 4 -o set.fbin");
    place.done("build set.fbin -o store");
    place.done("join store --exact --eps 1.5 -o expected.parquet");
    let expected = pairs_of(&place, "expected.parquet").1;
    assert!(expected.len() > 1000, "{} pairs", expected.len());
    (place, expected)
}

#[test]
fn threads_kernels_seeds_and_budgets_find_the_same_pairs() {
    let (place, expected) = set_and_store();
    let ways = [
        "store --threads 1",
        "store --threads 2",
        "store --kernel reference",
        "store --device pread",
        "store --trace trace.txt",
        "store --cache 1MB",
        "set.fbin",
        "set.fbin --kernel reference --threads 1",
        "set.fbin --seed 99",
        "set.fbin --buckets 1",
        "set.fbin --buckets 4000000000",
    ];
    for (number, way) in ways.iter().enumerate() {
        let name = format!("{number}.parquet");
        place.done(&format!("join {way} --exact --eps 1.5 -o {name}"));
        assert!(pairs_of(&place, &name).1 == expected, "{way}");
    }
}

#[test]
fn store_bytes_do_not_depend_on_threads_kernels_or_memory() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 16 -o set.fbin");
    let contents = |options: &str, store: &str| {
        place.done(&format!("build set.fbin {options} -o {store}"));
        let mut files: Vec<_> =
            std::fs::read_dir(place.path(store)).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files
            .iter()
            .map(|file| (file.file_name().unwrap().to_owned(), std::fs::read(file).unwrap()))
            .collect::<Vec<_>>()
    };
    let expected = contents("--threads 1", "one");
    assert!(contents("--threads 2", "two") == expected);
    assert!(contents("--threads 2 --kernel reference --memory 512MiB", "three") == expected);
    assert!(contents("--seed 2", "four") != expected);
}

/// Returns the budget that a refusal advises to give.
pub(crate) fn least_budget(said: &str) -> String {
    let from = said.split("give --memory ").nth(1).unwrap_or_else(|| panic!("no remedy: {said}"));
    from.split([' ', ',']).next().unwrap().into()
}

#[test]
fn the_suggested_least_budget_works() {
    let (place, expected) = set_and_store();
    for line in [
        "build set.fbin -o small",
        "join store --eps 1.5 -o small.parquet",
        "join store --eps 1.5 --result counts -o counts.parquet",
        "join store --eps 1.5 --result clusters -o clusters.parquet",
        "join store --eps 1.5 --result removed -o keep.parquet",
        "groundtruth set.fbin --eps 1.5 -o truth.parquet",
    ] {
        let mut budget = "1MB".to_owned();
        let mut refusals = 0;
        loop {
            let before = place.listing();
            let ran = place.run(&format!("{line} --memory {budget} --threads 1"));
            if ran.code == Some(0) {
                break;
            }
            assert_eq!((ran.code, ran.said.lines().count()), (Some(2), 1), "{line}: {}", ran.said);
            assert_eq!(place.listing(), before);
            budget = least_budget(&ran.said);
            refusals += 1;
            assert!(refusals < 3, "{line}: each budget is refused for a larger one: {}", ran.said);
        }
        assert!(refusals > 0, "{line}");
    }
    assert!(pairs_of(&place, "small.parquet").1 == expected && pairs_of(&place, "truth.parquet").1 == expected);
}

#[test]
fn columns_are_chosen_by_name() {
    let place = Place::new();
    crate::inputs::write_parquet(&place.path("set.parquet"), &[("a", Some([0.0, 1.0])), ("b", Some([0.0, 1.5]))]);
    let ran = place.done("join set.parquet --eps 1 --vector-column embedding --id-column key -o -");
    assert_eq!(ran.out, "left_id,right_id,distance\na,b,0.5\n");
    assert_eq!(place.done("join set.parquet --eps 1 -o -").out, "left_id,right_id,distance\n0,1,0.5\n");
}

#[test]
fn duplicate_ids_are_kept_on_demand() {
    let place = Place::new();
    crate::inputs::write_parquet(&place.path("set.parquet"), &[("a", Some([0.0, 1.0])), ("a", Some([0.0, 1.5]))]);
    let ran = place.done("join set.parquet --eps 1 --id-column key --on-duplicate-id keep -o -");
    assert_eq!(ran.out, "left_id,right_id,distance\na,a,0.5\n");
}

#[test]
fn extreme_thresholds_find_the_right_pairs() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 1.0, 0.0]));
    let count =
        |threshold: &str| place.done(&format!("join set.fbin {threshold} -o - --quiet")).out.lines().count() - 1;
    assert_eq!(["--eps 1e300", "--eps 1e-300", "--eps 0", "--eps -0"].map(count), [6, 1, 1, 1]);
    assert_eq!(["--min-similarity -1", "--min-similarity 0", "--min-similarity 1"].map(count), [6, 4, 1]);
}

#[test]
fn joins_report_the_requested_and_reached_recall() {
    let (place, expected) = set_and_store();
    place.done("join store --eps 1.5 --recall 1 -o all.parquet");
    assert!(pairs_of(&place, "all.parquet").1 == expected);
    let said = place.done("join store --eps 1.5 --recall 0.8 -o part.parquet").said;
    assert!(said.contains("at least 80 % requested"), "{said}");
    let found = pairs_of(&place, "part.parquet").1;
    assert!(found.len() as f64 >= 0.8 * expected.len() as f64, "{} of {}", found.len(), expected.len());
    assert!(found.iter().all(|pair| expected.contains(pair)));
    place.done("join store --eps 1.5 --recall 0.8 --recall-of pairs --stats stats.json --force -o part.parquet");
    let (found, statistics) = (pairs_of(&place, "part.parquet").1, std::fs::read(place.path("stats.json")).unwrap());
    assert!(found.len() as f64 >= 0.8 * expected.len() as f64, "{} of {}", found.len(), expected.len());
    let recall = serde_json::from_slice::<serde_json::Value>(&statistics).unwrap()["recall"].clone();
    assert_eq!((&recall["of_pairs_only"], &recall["kept"]), (&true.into(), &true.into()), "{recall}");
    place.refused("join store --eps 1.5 --recall-of pairs -o none.csv", &["--recall <R>"]);
    let plan = place.done("explain store --eps 1.5 --no-calibrate").out;
    assert!(plan.contains("margin-sum, which finds every pair") && plan.contains("100 % (exact)"), "{plan}");
}
