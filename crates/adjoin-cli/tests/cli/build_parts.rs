//! Builds in parts as users run them: with one process per part, started by a shell.

use std::fs::File;

use crate::place::Place;

const PARTS: u32 = 3;

/// Creates a folder with a source and a plan for a build of it.
fn planned() -> Place {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 32 -o set.fbin");
    place.done(&format!("plan-build set.fbin --parts {PARTS} -o set.plan --stats plan.json"));
    place
}

fn run_parts(place: &Place) {
    (1..=2 * PARTS).for_each(|part| drop(place.done(&format!("run-part set.plan --part {part}/6 -o parts"))));
}

#[test]
fn parts_give_the_store_of_one_machine() {
    let place = planned();
    let plan: serde_json::Value = serde_json::from_str(&place.text("plan.json")).unwrap();
    let parts = plan["plan"]["parts"].as_array().unwrap();
    let phases: Vec<&str> = parts.iter().map(|part| part["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["read", "read", "read", "write", "write", "write"]);
    run_parts(&place);
    let again = place.done("run-part set.plan --part 5/6 -o parts");
    assert!(again.said.contains("part 5/6 is in parts already"), "{}", again.said);
    let merged = place.done("merge set.plan parts -o merged.store --stats merged.json");
    assert!(merged.said.contains("merged.store: 3,000 vectors of 32 x f32 in"), "{}", merged.said);
    place.done("build set.fbin -o one.store");
    assert!(place.names_and_bytes("merged.store") == place.names_and_bytes("one.store"));
    place.done("verify merged.store");
    let merged: serde_json::Value = serde_json::from_str(&place.text("merged.json")).unwrap();
    assert_eq!((&merged["command"], &merged["build_part"]["rows"]), (&"merge".into(), &3_000.into()));
}

#[test]
fn wrong_parts_are_refused_in_one_line() {
    let place = planned();
    place.refused("run-part set.plan --part 7/6 -o parts", &["give 1/6 to 6/6"]);
    place.refused("run-part set.plan --part 4/6 -o parts", &["part 4 of 6 writes rows", "missing in parts: 1, 2, 3"]);
    place.refused(
        "run-part set.plan --part 1/6 --store a -o parts",
        &["--store can be used only with the plan of a join"],
    );
    run_parts(&place);
    place.refused("merge set.plan parts", &["-o is missing; give the folder of the store"]);
    place.refused(
        "merge set.plan parts --result counts -o a.store",
        &["--result can be used only with the plan of a join"],
    );
    let whole = place.read("parts/part-00005-of-00006");
    place.write("parts/part-00005-of-00006", &whole[..whole.len() - 3]);
    place.refused("merge set.plan parts -o a.store", &["part-00005-of-00006 is damaged (it is cut off)"]);
    place.removed("parts/part-00005-of-00006");
    place.refused("merge set.plan parts -o a.store", &["1 of 6 parts missing in parts: 5; run them first"]);
    place.write("parts/part-00005-of-00006", &whole);
    let lock = File::create(place.path("parts/writer.lock")).unwrap();
    lock.lock().unwrap();
    place.refused("merge set.plan parts -o a.store", &["parts is being merged by"]);
    drop(lock);
    assert!(!place.path("a.store").exists());
    place.done("merge set.plan parts -o a.store");
    place.refused("merge set.plan parts -o a.store", &["is already a store; give --force to replace it"]);
    place.done("gen --rows 3000 --dimensions 32 --seed 2 --force -o set.fbin");
    place.refused("run-part set.plan --part 1/6 --force -o parts", &["set.fbin has changed since", "plan again"]);
}

#[test]
fn collections_and_too_many_parts_are_refused() {
    let place = planned();
    place.done("collection create rows.collection --dimensions 32");
    place.refused("plan-build rows.collection --parts 2 -o a.plan", &["rows.collection is a collection"]);
    place.refused(
        "plan-build set.fbin --parts 2 --sort-by a -o a.plan",
        &["--sort-by is not supported for a build in parts"],
    );
    place.refused("plan-build set.fbin --parts 10001 -o a.plan", &["--parts is 10001; give 1 to 10000"]);
}
