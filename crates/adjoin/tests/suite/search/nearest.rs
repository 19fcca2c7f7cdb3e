//! Nearest neighbors of each row of a store. Are they the nearest rows by the formula, without the row itself?

use adjoin::{
    Collect, Element, Metric, NearestStatistics, QueryTarget, Result, SearchEffort, Store,
    kernels::Kernel,
    lab::buckets::{NearestOptions, nearest},
};

use super::{ELEMENTS, Hits, METRICS, assert_same, large, query_rows, true_hits, values};
use crate::harness::{Set, Setup, error_of};

/// Returns the neighbors of each row, ordered by row number.
fn neighbors(setup: &Setup, store: &Store, options: &NearestOptions) -> Result<(Vec<Hits>, NearestStatistics)> {
    let sink = Collect::default();
    let statistics = nearest(&setup.context(), store, options, Box::new(sink.clone()))?;
    let rows: Vec<u64> = query_rows(&sink.batches());
    let mut found: Vec<(u64, Hits)> = rows.into_iter().zip(sink.hits()).collect();
    found.sort_by_key(|(row, _)| *row);
    assert!(found.iter().zip(0..).all(|((row, _), wanted)| *row == wanted), "each row comes once");
    let found: Vec<Hits> = found.into_iter().map(|(_, hits)| hits).collect();
    assert_eq!(statistics.nearest.neighbors, found.iter().map(Vec::len).sum::<usize>() as u64);
    Ok((found, statistics))
}

fn exact(k: u64, within: Option<f64>) -> NearestOptions {
    NearestOptions { k, within, effort: SearchEffort::Exact, seed: 1 }
}

/// Returns the true `k` nearest neighbors of each row, nearest first. If `within` is set, neighbors beyond it are
/// left out.
fn true_neighbors(set: &Set, metric: Metric, k: u64, within: Option<f64>) -> Vec<Hits> {
    let all = true_hits(set, set, QueryTarget::Nearest(u64::MAX), metric);
    let counts = |value: f32| match metric {
        Metric::L2 => within.is_none_or(|within| f64::from(value) <= within),
        _ => within.is_none_or(|within| f64::from(value) >= within),
    };
    let others = |(row, hits): (u64, Hits)| -> Hits {
        hits.into_iter().filter(|&(other, value)| other != row && counts(value)).take(k as usize).collect()
    };
    (0..).zip(all).map(others).collect()
}

#[test]
fn neighbors_equal_brute_force_without_the_row_itself() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|element| METRICS.map(|metric| (element, metric))) {
        // Equal rows are neighbors at distance 0.
        let set = Set::of(element, 12, &values(120, 12, 6));
        let setup = Setup::default().with_metric(metric).with_buckets(13);
        let built = setup.build(&set).unwrap();
        let within = match metric {
            // No pair has exactly such a value, so rounding does not matter.
            Metric::L2 => [None, Some(0.0), Some(31.234_567), Some(1e9)].to_vec(),
            Metric::Cosine => [None, Some(0.983_456_7), Some(-1.0)].to_vec(),
            Metric::Ip => vec![None],
        };
        for (k, within) in [1, 10, 119, 1_000].into_iter().flat_map(|k| within.iter().map(move |&within| (k, within))) {
            let what = format!("{element} {metric} {k} {within:?}");
            let wanted = true_neighbors(&set, metric, k, within);
            let (found, statistics) = neighbors(&setup, &built.store, &exact(k, within)).unwrap();
            assert_same(&found, &wanted, &what);
            assert!(wanted.iter().any(|hits| !hits.is_empty()), "{what}: a test that finds nothing shows nothing");
            assert_eq!((statistics.common.command, statistics.nearest.k), ("join", k));
        }
    }
}

#[test]
fn neighbors_reach_the_recall_on_any_threads_kernels_and_budgets() {
    for (element, metric, within) in [(Element::U8, Metric::L2, Some(35.0)), (Element::F16, Metric::Cosine, None)] {
        let (set, _) = large(element);
        let setup = Setup::default().with_metric(metric).with_buckets(60);
        let built = setup.build(&set).unwrap();
        let (truth, _) = neighbors(&setup, &built.store, &exact(10, within)).unwrap();
        let options = NearestOptions { effort: SearchEffort::Recall(0.9), ..exact(10, within) };
        let (found, statistics) = neighbors(&setup, &built.store, &options).unwrap();
        let recall = statistics.common.recall.unwrap();
        assert!(recall.kept && recall.target == 0.9 && recall.sample_queries.is_some());
        let shares = found.iter().zip(&truth).filter(|(_, truth)| !truth.is_empty()).map(|(found, truth)| {
            truth.iter().filter(|(row, _)| found.iter().any(|(other, _)| other == row)).count() as f64
                / truth.len() as f64
        });
        let shares: Vec<f64> = shares.collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((0.9..1.0).contains(&mean), "{element} {metric}: {mean}: all or too few");
        assert!(statistics.nearest.distances_share < 0.9, "it looked nearly everywhere");
        let reference = Kernel::named("reference").unwrap();
        let others = [
            Setup { threads: 1, memory: 31_000_000, ..setup.clone() },
            Setup { threads: 3, kernel: reference, ..setup },
        ];
        for setup in others {
            assert_same(&neighbors(&setup, &built.store, &options).unwrap().0, &found, &format!("{element} {metric}"));
        }
    }
}

#[test]
fn a_single_row_has_no_neighbor_and_equal_rows_are_neighbors() {
    let setup = Setup::default();
    let alone = setup.build(&Set::of(Element::F32, 2, &[1.0, 2.0])).unwrap();
    assert_eq!(neighbors(&setup, &alone.store, &exact(3, None)).unwrap().0, [vec![]]);
    let equal = setup.build(&Set::of(Element::U8, 2, &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0])).unwrap();
    let wanted = [vec![(1, 0.0), (2, 0.0)], vec![(0, 0.0), (2, 0.0)], vec![(0, 0.0), (1, 0.0)]];
    assert_eq!(neighbors(&setup, &equal.store, &exact(3, Some(0.0))).unwrap().0, wanted);
}

#[test]
fn refuses_invalid_requests() {
    for (metric, options, words) in [
        (Metric::L2, exact(0, None), "asks for nothing"),
        (Metric::L2, exact(1, Some(-1.0)), "within -1 is not a distance"),
        (Metric::L2, exact(1, Some(f64::NAN)), "within NaN is not a distance"),
        (Metric::Cosine, exact(1, Some(1.5)), "within 1.5 is not a cosine"),
        (Metric::Ip, exact(1, Some(1.0)), "leave out within 1"),
    ] {
        let setup = Setup::default().with_metric(metric);
        let built = setup.build(&Set::of(Element::F32, 2, &[1.0, 2.0, 3.0, 4.0])).unwrap();
        let message = error_of(neighbors(&setup, &built.store, &options)).to_string();
        assert!(message.contains(words), "{message}");
    }
}
