//! Plans and counts of joins of a small set, compared with files under `tests/golden`. The files change with every
//! change of an algorithm. Run the tests with `ADJOIN_TEST=overwrite` to accept the change.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use adjoin::{
    Element, JoinEffort, JoinStatistics, Metric, Predicate, Random,
    kernels::Kernel,
    lab::store::StoreManifest,
    lab::{plan::Rule, store::Role},
};

use crate::harness::{Built, Set, Setup};

const DIMENSIONS: usize = 4;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares text with a golden file.
#[track_caller]
fn assert_golden(name: &str, found: &str) {
    let golden = std::fs::read_to_string(golden(name)).unwrap_or_default();
    assert!(found == golden, "{name} has changed\n--- found\n{found}\n--- golden\n{golden}");
}

/// Returns three clusters of 200 vectors. Consecutive rows are in different clusters.
fn three_clusters(element: Element) -> Set {
    let mut random = Random::new(1, "three clusters");
    let centers: Vec<f64> = (0..3 * DIMENSIONS).map(|_| 60.0 + 136.0 * random.uniform()).collect();
    let mut values = Vec::new();
    for row in 0..600 {
        let cluster = row % 3;
        let spread = [4.0, 8.0, 16.0][cluster];
        values.extend(
            centers[cluster * DIMENSIONS..][..DIMENSIONS]
                .iter()
                .map(|c| (c + spread * random.normal()).clamp(0.0, 255.0)),
        );
    }
    Set::of(element, DIMENSIONS, &values)
}

fn describe_store(manifest: &StoreManifest, built: &Built) -> String {
    let rows: Vec<u32> = built.store.extents().iter().map(|extent| extent.rows).collect();
    let radii: Vec<f32> = built.store.extents().iter().map(|extent| extent.radius).collect();
    let files = &manifest.files;
    format!(
        "{} x {} {} by {}, seed {}\nrows of the buckets  {rows:?}\nradii                {radii:?}\n{} {} {}\n",
        manifest.rows,
        manifest.vectors.dimensions,
        manifest.vectors.element,
        manifest.metric,
        manifest.seed,
        files[Role::Centers].name,
        files[Role::Table].name,
        files[Role::Vectors].name,
    )
}

/// Describes the plan and the counts of a join. The size of the cache is fixed, so that the text does not depend on a
/// budget.
fn describe_join(built: &Built, setup: &Setup, predicate: Predicate) -> String {
    let explanation = built.prepare(setup, predicate).unwrap().explain(&built.store);
    let JoinStatistics { common, join: counts, .. } = built.join(setup, predicate).unwrap().statistics;
    let candidates = counts.candidate_pairs;
    let predicted = explanation.candidate_pairs as f64;
    assert!(
        candidates as f64 <= 1.5 * predicted && predicted <= 1.5 * candidates as f64,
        "{candidates}: {explanation}"
    );
    let mut text = format!("\n{predicate:?}\n{explanation}");
    for (name, count) in [
        ("edges", counts.edges),
        ("candidates", counts.candidate_pairs),
        ("verified", counts.verified_pairs),
        ("exact checks", counts.exact_checks),
        ("centers", counts.center_distances),
        ("pairs", counts.pairs),
        ("predicted", common.predicted.and_then(|predicted| predicted.verified_pairs).unwrap()),
    ] {
        writeln!(text, "{name:<13}{count}").unwrap();
    }
    text
}

fn check(name: &str, element: Element, metric: Metric, predicates: &[Predicate]) {
    let set = three_clusters(element);
    let mut overwrite = std::env::var_os("ADJOIN_TEST").is_some_and(|value| value == "overwrite");
    for kernel in Kernel::available() {
        for threads in [1, 2] {
            let setup = Setup { kernel, threads, ..Setup::default() }.with_metric(metric).with_buckets(30);
            let built = setup.build(&set).unwrap();
            let mut text = describe_store(built.store.manifest(), &built);
            for &predicate in predicates {
                let aims = [(Rule::MarginSum, JoinEffort::Every), (Rule::Union, JoinEffort::Recall(0.9))];
                for (rule, aim) in aims {
                    for cache_bytes in [1 << 20, 36 << 10] {
                        let setup = Setup { rule, aim, cache_bytes: Some(cache_bytes), ..setup.clone() };
                        text += &describe_join(&built, &setup, predicate);
                    }
                }
            }
            if overwrite {
                std::fs::write(golden(name), &text).unwrap();
                overwrite = false; // other CPU levels and threads must agree
            }
            assert_golden(name, &text);
        }
    }
}

#[test]
fn golden_plan_of_bytes_by_distance() {
    check("u8-l2.txt", Element::U8, Metric::L2, &[Predicate::L2 { eps: 4.0 }, Predicate::L2 { eps: 16.0 }]);
}

#[test]
fn golden_plan_of_floats_by_distance() {
    check("f32-l2.txt", Element::F32, Metric::L2, &[Predicate::L2 { eps: 6.0 }]);
}

#[test]
fn golden_plan_of_halves_by_cosine() {
    check("f16-cosine.txt", Element::F16, Metric::Cosine, &[Predicate::Cosine { min_similarity: 0.9998 }]);
}

#[test]
#[should_panic(expected = "has changed")]
fn canary_a_changed_plan_is_noticed() {
    assert_golden("u8-l2.txt", "another plan\n");
}
