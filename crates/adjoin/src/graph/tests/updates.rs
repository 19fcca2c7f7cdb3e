//! Compares deletion by each rule, and reinsertion, with plain code in f64, and checks invariants afterward.

use std::collections::BTreeSet;

use super::*;
use crate::graph::mend::{DeleteRule, LiveNeighborhoods, Mender};

const RULES: [DeleteRule; 4] = [DeleteRule::Drop, DeleteRule::Neighbors, DeleteRule::Nearest, DeleteRule::Replace];

/// Returns the new out-neighbors of a vertex by the rule's definition.
fn naive_mended(rule: DeleteRule, graph: &Graph, values: &Values, vertex: u32) -> Vec<u32> {
    let GraphOptions { degree, build_list, alpha, .. } = *graph.options();
    let live = |vertex: &u32| graph.is_live(*vertex);
    let neighbors = graph.neighbors(vertex);
    let (mut kept, gone): (Vec<u32>, Vec<u32>) = neighbors.iter().copied().partition(live);
    let order = |from: u32, mut others: Vec<u32>| {
        others.sort_by_key(|&other| (squared(&values[from as usize], &values[other as usize]) as u64, other));
        others
    };
    match rule {
        DeleteRule::Drop => kept,
        DeleteRule::Neighbors => {
            gone.iter().for_each(|&gone| kept.extend(graph.neighbors(gone).iter().copied().filter(live)));
            naive_rounds(values, vertex, &kept, degree, alpha)
        }
        DeleteRule::Nearest => {
            for &gone in &gone {
                let (found, _, _) = naive_search(graph, values, &values[gone as usize], build_list);
                let around: Vec<u32> =
                    found.into_iter().filter(live).take(50).filter(|&other| other != vertex).collect();
                let links: Vec<u32> = order(vertex, around).into_iter().take(3).collect();
                kept.extend(links);
            }
            let once: BTreeSet<u32> = kept.iter().copied().collect();
            let once: Vec<u32> = once.into_iter().collect();
            if once.len() > degree { naive_rounds(values, vertex, &once, degree, alpha) } else { once }
        }
        DeleteRule::Replace => {
            let mut mended: Vec<u32> = Vec::new();
            for &neighbor in neighbors {
                let new = |next: &&u32| {
                    live(next) && **next != vertex && !neighbors.contains(*next) && !mended.contains(*next)
                };
                let instead = graph.neighbors(neighbor).iter().find(new);
                mended.extend(if live(&neighbor) { Some(&neighbor) } else { instead });
            }
            mended
        }
    }
}

fn check_mended<T: Coordinate>(rule: DeleteRule, graph: &Graph, values: &Values) -> usize {
    let (panel, context) = (panel::<T>(values), Context::default());
    let around = LiveNeighborhoods::find(&context, &panel, graph, rule).unwrap();
    let mut mender = Mender::new(rule, graph, Vectors { kernel: context.kernel, panel: &panel }, &around);
    let mut mended = 0;
    for vertex in (0..values.len() as u32).filter(|&vertex| graph.is_live(vertex)) {
        let neighbors = graph.neighbors(vertex);
        match mender.mended(vertex) {
            None => assert!(neighbors.iter().all(|&neighbor| graph.is_live(neighbor))),
            Some(new) => {
                let mut naive = naive_mended(rule, graph, values, vertex);
                let mut new = new.to_vec();
                if rule == DeleteRule::Nearest {
                    // The order of links follows the deleted out-neighbors; only the set matters.
                    naive.sort_unstable();
                    new.sort_unstable();
                }
                assert_eq!(new, naive, "{rule:?}, vertex {vertex} with {neighbors:?}");
                mended += 1;
            }
        }
    }
    mended
}

#[test]
fn each_rule_mends_as_its_words_say() {
    let mut random = Random::new(11, "mending");
    for rule in RULES {
        let mut mended = 0;
        for trial in 0..60 {
            let (rows, degree) = (8 + random.below(80) as usize, 2 + random.below(6) as usize);
            let mut graph = random_graph(&mut random, rows, degree);
            let values = random_values(&mut random, rows, 1 + trial % 4, [3, 20, 200][trial % 3]);
            (0..random.below(rows as u64)).for_each(|_| graph.delete(random.below(rows as u64) as u32));
            mended += check_mended::<u8>(rule, &graph, &values);
            check_mended::<f32>(rule, &graph, &values);
        }
        assert!(mended > 500, "{mended} lists had deleted vertices");
    }
}

/// Draws a percentage of the vertices, in random order.
fn drawn(random: &mut Random, rows: usize, percent: usize) -> Vec<u32> {
    let drawn = random.ascending_sample((rows * percent / 100) as u64, rows as u64);
    let mut drawn: Vec<u32> = drawn.into_iter().map(|vertex| vertex as u32).collect();
    random.shuffle(&mut drawn);
    drawn
}

#[test]
fn updates_by_each_rule_leave_a_whole_graph_that_is_the_same_on_all_threads() {
    let values = clustered(12, 1_200, 8, 15, 25.0);
    let panel = panel::<u8>(&values);
    for rule in RULES {
        let mut seen: Option<Vec<Vec<u32>>> = None;
        for threads in [1, 3] {
            let context = on(Kernel::detect(), threads);
            let mut graph = built(&panel, &options(12, 30, 1.2));
            let before = recall(&graph, &panel, 30);
            let mut random = Random::new(13, "updates");
            for percent in [5, 50, 20] {
                let drawn = drawn(&mut random, values.len(), percent);
                drawn.iter().for_each(|&vertex| graph.delete(vertex));
                graph.consolidate(&context, &panel, rule).unwrap();
                graph.verify().unwrap();
                assert_eq!(graph.live() as usize, values.len() - drawn.len());
                assert!(drawn.iter().all(|&vertex| graph.neighbors(vertex).is_empty()));
                graph.insert(&context, &panel, &drawn).unwrap();
                graph.verify().unwrap();
                assert_eq!(graph.live() as usize, values.len());
            }
            let after = recall(&graph, &panel, 30);
            assert!(rule == DeleteRule::Drop || after > before - 0.03, "{rule:?}: {after} from {before}");
            let edges = edges(&graph);
            assert!(*seen.get_or_insert(edges.clone()) == edges, "{rule:?} on {threads} threads");
        }
    }
}

#[test]
fn inserts_begin_with_nothing_and_a_second_pass_is_no_harm() {
    let values = clustered(14, 1_000, 8, 15, 25.0);
    let panel = panel::<f32>(&values);
    let context = Context::default();
    let mut graph = built(&panel, &options(12, 30, 1.2));
    let whole = recall(&graph, &panel, 30);
    (0..1_000).for_each(|vertex| graph.delete(vertex));
    graph.consolidate(&context, &panel, DeleteRule::Drop).unwrap();
    assert_eq!(graph.entry(), None);
    graph.insert(&context, &panel, &[]).unwrap();
    assert_eq!(graph.entry(), None);

    let all: Vec<u32> = (0..1_000).rev().collect();
    graph.insert(&context, &panel, &all).unwrap();
    graph.verify().unwrap();
    assert_eq!((graph.entry(), graph.live()), (Some(999), 1_000));
    assert!(recall(&graph, &panel, 30) > whole - 0.03, "{} from {whole}", recall(&graph, &panel, 30));

    let twice: Vec<u32> = all.iter().flat_map(|&vertex| [vertex, vertex]).collect();
    graph.insert(&context, &panel, &twice).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.live(), 1_000);
    assert!(recall(&graph, &panel, 30) > whole - 0.01, "{} from {whole}", recall(&graph, &panel, 30));
}

#[test]
fn updates_beyond_the_memory_leave_the_graph_as_it_was() {
    let values = clustered(15, 2_000, 4, 10, 25.0);
    let panel = panel::<u8>(&values);
    let mut graph = built(&panel, &options(16, 40, 1.2));
    let before = edges(&graph);
    let little = Context::default().with_memory(100_000);
    (0..50).for_each(|vertex| graph.delete(vertex));
    for rule in RULES {
        assert_eq!(graph.consolidate(&little, &panel, rule).unwrap_err().kind(), ErrorKind::Budget);
        assert!(edges(&graph) == before && graph.live() == 1_950);
    }
    graph.consolidate(&Context::default(), &panel, DeleteRule::Replace).unwrap();
    let without = edges(&graph);
    assert_eq!(graph.insert(&little, &panel, &[3, 4]).unwrap_err().kind(), ErrorKind::Budget);
    assert!(edges(&graph) == without);
    graph.verify().unwrap();
}

#[test]
#[should_panic(expected = "deleted vertices are taken out before they are inserted again")]
fn what_is_on_the_delete_list_is_not_inserted() {
    let panel = panel::<u8>(&clustered(16, 50, 4, 5, 25.0));
    let mut graph = built(&panel, &options(4, 8, 1.2));
    graph.delete(7);
    let _ = graph.insert(&Context::default(), &panel, &[6, 7]);
}
