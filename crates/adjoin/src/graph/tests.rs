//! Compares the graph with plain code in f64, and checks invariants.

mod updates;

use std::collections::BTreeSet;
use std::sync::Arc;

use adjoin_kernels::{Kernel, Panel};

use super::adjacency::Graph;
use super::candidate::Candidate;
use super::options::GraphOptions;
use super::prune::{Pruner, Vectors};
use super::reach::repair;
use super::search::GreedySearch;
use crate::base::context::Context;
use crate::base::error::ErrorKind;
use crate::base::geometry::{Coordinate, Space};
use crate::base::options::{Element, Metric, VectorType};
use crate::base::random::Random;
use crate::base::report::Notes;

/// Vectors of small integers. Bytes and floats represent them and their distances exactly.
type Values = Vec<Vec<u8>>;

fn panel<T: Coordinate>(values: &Values) -> Panel<T> {
    let mut panel = Panel::zeroed(values.len(), values.first().map_or(1, Vec::len));
    for (row, vector) in values.iter().enumerate() {
        panel.row_mut(row).iter_mut().zip(vector).for_each(|(to, &x)| *to = T::from_mean(x.into()));
    }
    panel
}

/// Returns random values below `end`. If `end` is small, many distances are equal.
fn random_values(random: &mut Random, rows: usize, dimensions: usize, end: u64) -> Values {
    (0..rows).map(|_| (0..dimensions).map(|_| random.below(end) as u8).collect()).collect()
}

/// Returns values around `clusters` centers.
fn clustered(seed: u64, rows: usize, dimensions: usize, clusters: usize, spread: f64) -> Values {
    let mut random = Random::new(seed, "clusters");
    let centers = random_values(&mut random, clusters, dimensions, 256);
    let around = |random: &mut Random, x: u8| (f64::from(x) + spread * random.normal()).clamp(0.0, 255.0) as u8;
    (0..rows).map(|row| centers[row % clusters].iter().map(|&x| around(&mut random, x)).collect()).collect()
}

fn squared(x: &[u8], y: &[u8]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum()
}

fn options(degree: usize, build_list: usize, alpha: f64) -> GraphOptions {
    GraphOptions { degree, build_list, alpha, seed: 5 }
}

fn on(kernel: Kernel, threads: usize) -> Context {
    let mut context = Context::default().with_threads(threads);
    context.kernel = kernel;
    context
}

fn built<T: Coordinate>(panel: &Panel<T>, options: &GraphOptions) -> Graph {
    let graph = Graph::build(&Context::default(), panel, options).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.live(), panel.rows() as u64);
    graph
}

fn edges(graph: &Graph) -> Vec<Vec<u32>> {
    (0..graph.vertices() as u32).map(|vertex| graph.neighbors(vertex).to_vec()).collect()
}

/// Implements Algorithm 1 with sets, as in the paper: returns the final list, the visited vertices in order, and the
/// number of vertices seen.
fn naive_search(graph: &Graph, values: &Values, query: &[u8], list: usize) -> (Vec<u32>, Vec<u32>, usize) {
    let key = |vertex: u32| (squared(query, &values[vertex as usize]) as u64, vertex);
    let mut nearest: BTreeSet<(u64, u32)> = graph.entry().into_iter().map(key).collect();
    let mut seen: BTreeSet<u32> = graph.entry().into_iter().collect();
    let mut visited = Vec::new();
    while let Some(&(_, vertex)) = nearest.iter().find(|(_, vertex)| !visited.contains(vertex)) {
        visited.push(vertex);
        nearest.extend(graph.neighbors(vertex).iter().map(|&neighbor| key(neighbor)));
        seen.extend(graph.neighbors(vertex));
        while nearest.len() > list {
            nearest.pop_last();
        }
    }
    (nearest.into_iter().map(|(_, vertex)| vertex).collect(), visited, seen.len())
}

fn check_search<T: Coordinate>(random: &mut Random, values: &Values, list: usize) {
    let panel = panel::<T>(values);
    let graph = built(&panel, &options(2 + random.below(5) as usize, 10, 1.25));
    let mut search = GreedySearch::new(&graph);
    for _ in 0..10 {
        let query = random_values(random, 1, values[0].len(), 10);
        search.run(Kernel::detect(), &graph, &panel, self::panel::<T>(&query).row(0), list);
        let (nearest, visited, seen) = naive_search(&graph, values, &query[0], list);
        let found: Vec<_> = search.nearest(list).collect();
        assert_eq!(found.iter().map(|near| near.vertex).collect::<Vec<_>>(), nearest);
        assert_eq!(search.visited().map(|near| near.vertex).collect::<Vec<_>>(), visited);
        assert_eq!((search.distances(), search.hops()), (seen as u64, visited.len() as u64));
        for near in found.into_iter().chain(search.visited()) {
            assert_eq!(near.squared_distance, squared(&query[0], &values[near.vertex as usize]));
        }
    }
}

#[test]
fn greedy_search_equals_the_algorithm_of_the_paper() {
    let mut random = Random::new(1, "searches");
    for trial in 0..60 {
        let (rows, dimensions) = (1 + random.below(120) as usize, 1 + random.below(5) as usize);
        let values = random_values(&mut random, rows, dimensions, [3, 10, 100][trial % 3]);
        let list = 1 + random.below(20) as usize;
        check_search::<u8>(&mut random, &values, list);
        check_search::<f32>(&mut random, &values, list);
    }
}

/// Implements Algorithm 3 as in the paper: each kept vertex removes others from the set.
fn naive_prune(values: &Values, vertex: u32, candidates: &[u32], degree: usize, alpha: f64) -> Vec<u32> {
    let distance = |a: u32, b: u32| squared(&values[a as usize], &values[b as usize]);
    let mut set: BTreeSet<(u64, u32)> = candidates.iter().map(|&c| (distance(vertex, c) as u64, c)).collect();
    set.retain(|&(_, candidate)| candidate != vertex);
    let mut kept = Vec::new();
    while let Some((_, nearest)) = set.pop_first() {
        kept.push(nearest);
        if kept.len() == degree {
            break;
        }
        set.retain(|&(_, c)| alpha * alpha * distance(nearest, c) > distance(vertex, c));
    }
    kept
}

/// Implements both rounds: the algorithm of the paper with an alpha of 1, then the remaining candidates that no nearer
/// candidate excludes.
fn naive_rounds(values: &Values, vertex: u32, candidates: &[u32], degree: usize, alpha: f64) -> Vec<u32> {
    let distance = |a: u32, b: u32| squared(&values[a as usize], &values[b as usize]);
    let key = |candidate: u32| (distance(vertex, candidate) as u64, candidate);
    let mut kept: BTreeSet<(u64, u32)> =
        naive_prune(values, vertex, candidates, degree, 1.0).into_iter().map(key).collect();
    let mut others: Vec<_> = candidates.iter().filter(|&&c| c != vertex).map(|&c| key(c)).collect();
    others.sort_unstable();
    for other in others.into_iter().filter(|_| alpha > 1.0) {
        let removes = |kept: &&(u64, u32)| {
            **kept < other && alpha * alpha * distance(kept.1, other.1) <= distance(vertex, other.1)
        };
        if kept.len() < degree && !kept.iter().any(|kept| removes(&kept)) {
            kept.insert(other);
        }
    }
    kept.into_iter().map(|(_, candidate)| candidate).collect()
}

fn check_prune<T: Coordinate>(values: &Values, vertex: u32, candidates: &[u32], options: &GraphOptions) {
    let panel = panel::<T>(values);
    let vectors = Vectors { kernel: Kernel::detect(), panel: &panel };
    let mut pruner = Pruner::new(options);
    pruner.begin(vertex);
    let (known, unknown) = candidates.split_at(candidates.len() / 2);
    let distance = |c: u32| vectors.kernel.distance(panel.row(vertex as usize), panel.row(c as usize));
    pruner.add(known.iter().map(|&c| Candidate::new::<T>(distance(c), c)));
    pruner.add_vertices(vectors, unknown);
    let kept = pruner.prune(vectors).to_vec();
    assert_eq!(kept, naive_rounds(values, vertex, candidates, options.degree, options.alpha));
    if options.alpha == 1.0 {
        assert_eq!(kept, naive_prune(values, vertex, candidates, options.degree, 1.0));
    }
}

#[test]
fn pruning_equals_the_algorithm_of_the_paper() {
    let mut random = Random::new(2, "pruning");
    let mut longest = 0;
    for trial in 0..300 {
        let (rows, dimensions) = (1 + random.below(120) as usize, 1 + random.below(20) as usize);
        let values = random_values(&mut random, rows, dimensions, [2, 10, 200][trial % 3]);
        let candidates: Vec<u32> = (0..random.below(150)).map(|_| random.below(rows as u64) as u32).collect();
        // The square of 1.25 is exact, so both sides of a tie are exact too.
        let options = options(2 + random.below(40) as usize, 75, [1.0, 1.25, 1.5][trial / 3 % 3]);
        let vertex = random.below(rows as u64) as u32;
        check_prune::<u8>(&values, vertex, &candidates, &options);
        check_prune::<f32>(&values, vertex, &candidates, &options);
        longest = longest.max(naive_rounds(&values, vertex, &candidates, 40, options.alpha).len());
    }
    assert!(longest > 16, "no list was longer than what is compared at once");
}

/// Returns the recall of the 10 nearest live vertices by searches with `list` candidates.
fn recall<T: Coordinate>(graph: &Graph, panel: &Panel<T>, list: usize) -> f64 {
    let mut search = GreedySearch::new(graph);
    let (mut found, mut wanted) = (0, 0);
    for query in (0..panel.rows()).step_by(panel.rows().div_ceil(100)) {
        let x = panel.row(query);
        let live = (0..panel.rows() as u32).filter(|&vertex| graph.is_live(vertex));
        let mut truth: Vec<f64> = live.map(|vertex| distance_wide(x, panel.row(vertex as usize))).collect();
        truth.sort_by(f64::total_cmp);
        truth.truncate(10);
        search.run(Kernel::detect(), graph, panel, x, list);
        let nearest: Vec<_> = search.nearest(truth.len()).map(|near| near.vertex).collect();
        assert!(nearest.iter().all(|&vertex| graph.is_live(vertex)));
        let is_near = |vertex: &&u32| distance_wide(x, panel.row(**vertex as usize)) <= truth[truth.len() - 1];
        (found, wanted) = (found + nearest.iter().filter(is_near).count(), wanted + truth.len());
    }
    found as f64 / wanted as f64
}

fn distance_wide<T: Coordinate>(x: &[T], y: &[T]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x.value() - y.value()).powi(2)).sum()
}

#[test]
fn graphs_do_not_depend_on_threads_or_kernels_and_have_high_recall() {
    let values = clustered(3, 3_000, 16, 40, 30.0);
    let (bytes, floats) = (panel::<u8>(&values), panel::<f32>(&values));
    let mut seen: Option<(Option<u32>, Vec<Vec<u32>>)> = None;
    for kernel in Kernel::available() {
        for threads in [1, 2, 3] {
            let context = on(kernel, threads);
            // Integers have identical distances as floats.
            for graph in [
                Graph::build(&context, &bytes, &options(16, 40, 1.2)).unwrap(),
                Graph::build(&context, &floats, &options(16, 40, 1.2)).unwrap(),
            ] {
                let graph = (graph.entry(), edges(&graph));
                assert!(*seen.get_or_insert(graph.clone()) == graph, "{} on {threads} threads", kernel.name());
            }
        }
    }
    let graph = built(&bytes, &options(16, 40, 1.2));
    assert!(recall(&graph, &bytes, 40) > 0.97, "{}", recall(&graph, &bytes, 40));
    let other = built(&bytes, &GraphOptions { seed: 6, ..options(16, 40, 1.2) });
    assert!(edges(&graph) != edges(&other), "the seed has an effect");
}

#[test]
fn unit_vectors_of_halves_are_found_by_cosine() {
    let mut random = Random::new(4, "halves");
    let (rows, dimensions) = (2_000, 24);
    let values: Vec<half::f16> = (0..rows * dimensions).map(|_| half::f16::from_f64(random.normal())).collect();
    let stored: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let space = Space::plain(VectorType { element: Element::F16, dimensions }, Metric::Cosine);
    let mut panel = Panel::<f32>::zeroed(rows, dimensions);
    f32::load(space, Kernel::detect(), &stored, &mut panel);
    let graph = built(&panel, &GraphOptions::default());
    assert!(recall(&graph, &panel, 75) > 0.95, "{}", recall(&graph, &panel, 75));
    let again = Graph::build(&on(Kernel::named("reference").unwrap(), 1), &panel, &GraphOptions::default()).unwrap();
    assert!(edges(&graph) == edges(&again), "levels agree about floats that are no whole numbers");
}

#[test]
fn builds_a_graph_of_ten_thousand_equal_vectors() {
    // Different stored vectors may have equal coordinates, for example under cosine.
    let panel = panel::<u8>(&vec![vec![7, 7, 7]; 10_000]);
    let graph = built(&panel, &options(4, 8, 1.2));
    let mut search = GreedySearch::new(&graph);
    search.run(Kernel::detect(), &graph, &panel, panel.row(0), 8);
    assert_eq!(search.nearest(8).count(), 8);
}

#[test]
fn searches_find_far_clusters_and_outliers_with_a_long_list() {
    let clusters = clustered(5, 2_000, 8, 20, 1.0);
    let graph = built(&panel::<u8>(&clusters), &options(8, 20, 1.2));
    assert!(recall(&graph, &panel::<u8>(&clusters), 100) > 0.9, "{}", recall(&graph, &panel::<u8>(&clusters), 100));
    let mut outliers = clustered(6, 1_500, 8, 1, 3.0);
    outliers.extend(random_values(&mut Random::new(7, "outliers"), 20, 8, 256));
    let panel = panel::<u8>(&outliers);
    let graph = built(&panel, &options(8, 20, 1.2));
    let mut search = GreedySearch::new(&graph);
    for outlier in 1_500..1_520 {
        search.run(Kernel::detect(), &graph, &panel, panel.row(outlier), panel.rows());
        assert_eq!(search.nearest(1).map(|near| near.squared_distance).collect::<Vec<_>>(), [0.0]);
    }
}

#[test]
fn builds_graphs_of_small_sets() {
    for rows in [0_usize, 1, 2, 3, 4, 5, 17] {
        let values: Values = (0..rows).map(|row| vec![10 * row as u8]).collect();
        let panel = panel::<u8>(&values);
        let graph = built(&panel, &options(4, 10, 1.2));
        assert_eq!(graph.entry(), (rows > 0).then(|| rows.saturating_sub(1) as u32 / 2), "of {rows}");
        let mut search = GreedySearch::new(&graph);
        for query in 0..rows {
            search.run(Kernel::detect(), &graph, &panel, panel.row(query), 10);
            let mut nearest: Vec<u32> = (0..rows as u32).collect();
            nearest.sort_by_key(|&vertex| (vertex.abs_diff(query as u32), vertex));
            nearest.truncate(3);
            assert_eq!(search.nearest(3).map(|near| near.vertex).collect::<Vec<_>>(), nearest);
        }
    }
}

#[test]
fn a_graph_is_read_after_a_run_that_holds_the_memory() {
    let saved = random_graph(&mut Random::new(5, "saved"), 20, 4).to_bytes();
    let notes = Arc::new(Notes::default());
    let mut context = Context::default();
    context.progress = notes.clone();
    let run = context.for_run(1, "another run").unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| Graph::from_bytes(&context, &saved));
        while notes.lines().is_empty() {
            assert!(!reading.is_finished(), "it waits");
            std::thread::yield_now();
        }
        drop(run);
        assert_eq!(reading.join().unwrap().unwrap().vertices(), 20);
    });
}

/// Returns a graph with distinct random out-neighbors.
fn random_graph(random: &mut Random, rows: usize, degree: usize) -> Graph {
    let mut graph = Graph::empty(&Context::default(), rows, &options(degree, 8, 1.25)).unwrap();
    graph.entry = Some(random.below(rows as u64) as u32);
    for vertex in 0..rows as u32 {
        graph.present.insert(vertex.into());
        let count = random.below(degree as u64 + 1).min(rows as u64 - 1);
        let others = random.ascending_sample(count, rows as u64 - 1);
        let others: Vec<u32> = others.into_iter().map(|v| v as u32 + u32::from(v as u32 >= vertex)).collect();
        graph.set_neighbors(vertex, &others);
    }
    graph
}

fn reached(graph: &Graph) -> BTreeSet<u32> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<u32> = graph.entry().into_iter().collect();
    while let Some(vertex) = open.pop() {
        if reached.insert(vertex) {
            open.extend(graph.neighbors(vertex));
        }
    }
    reached
}

#[test]
fn repair_makes_all_vertices_reachable() {
    let mut random = Random::new(10, "repair");
    let mut broken = 0;
    for _ in 0..300 {
        let rows = 1 + random.below(60) as usize;
        let mut graph = random_graph(&mut random, rows, 2);
        let values = random_values(&mut random, rows, 2, 20);
        broken += u32::from(reached(&graph).len() < rows);
        repair(&Context::default(), &panel::<u8>(&values), &mut graph).unwrap();
        assert_eq!(reached(&graph).len(), rows);
        graph.verify().unwrap();
        let repaired = edges(&graph);
        repair(&Context::default(), &panel::<u8>(&values), &mut graph).unwrap();
        assert!(repaired == edges(&graph), "nothing is left to repair");
    }
    assert!(broken > 100, "graphs were whole before");
}

#[test]
fn canary_faults_of_a_graph_are_named() {
    let values: Values = (0..10).map(|row| vec![20 * row]).collect();
    let broken = |vertex: u32, neighbors: &[u32]| {
        let mut graph = Graph::empty(&Context::default(), 10, &options(4, 8, 1.2)).unwrap();
        graph.entry = Some(0);
        (0..10).for_each(|vertex| graph.present.insert(vertex));
        repair(&Context::default(), &panel::<u8>(&values), &mut graph).unwrap();
        graph.verify().unwrap();
        graph.set_neighbors(vertex, neighbors);
        graph
    };
    let fault = |graph: &Graph| graph.verify().unwrap_err().to_string();
    assert!(fault(&broken(3, &[3])).contains("vertex 3 of a graph has the invalid out-neighbor 3"));
    assert!(fault(&broken(3, &[10])).contains("has the invalid out-neighbor 10"));
    assert!(fault(&broken(3, &[4, 4])).contains("has the out-neighbor 4 twice"));
    assert!(fault(&broken(3, &[4, 5, 6, 7, 8])).contains("has 5 out-neighbors, more than 4"));
    assert!(fault(&broken(0, &[])).contains("cannot be reached by a search"));
    let mut graph = broken(3, &[5]);
    graph.present.remove(5);
    assert!(fault(&graph).contains("5"));
}

#[test]
fn refuses_invalid_graph_builds() {
    let context = Context::default();
    let panel = Panel::<u8>::zeroed(20_000, 1);
    let kind = |context: &Context, options: &GraphOptions| {
        Graph::build(context, &panel, options).err().map(|error| error.kind())
    };
    assert_eq!(kind(&context, &options(1, 10, 1.2)), Some(ErrorKind::Option));
    assert_eq!(kind(&context.clone().with_memory(19_000_000), &GraphOptions::default()), Some(ErrorKind::Budget));
    context.cancel.cancel();
    assert_eq!(kind(&context, &GraphOptions::default()), Some(ErrorKind::Cancelled));
}

#[test]
fn graphs_round_trip_and_damaged_bytes_do_not_panic() {
    let mut panel = Panel::<u8>::zeroed(60, 2);
    (0..60).for_each(|row| panel.row_mut(row).copy_from_slice(&[row as u8, (7 * row % 60) as u8]));
    let context = Context::default();
    let options = GraphOptions { degree: 4, build_list: 8, ..GraphOptions::default() };
    let graph = Graph::build(&context, &panel, &options).unwrap();
    let bytes = graph.to_bytes();
    let read = Graph::from_bytes(&context, &bytes).unwrap();
    assert_eq!((read.vertices(), read.entry(), read.live()), (60, graph.entry(), 60));
    assert!((0..60).all(|vertex| read.neighbors(vertex) == graph.neighbors(vertex)));
    for len in 0..bytes.len() {
        assert!(Graph::from_bytes(&context, &bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(Graph::from_bytes(&context, &[&bytes[..], &[0]].concat()).is_err());
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x80;
        // If the bytes are still a valid graph, its neighbors exist.
        if let Ok(other) = Graph::from_bytes(&context, &other) {
            assert!((0..60).all(|vertex| other.neighbors(vertex).iter().all(|&neighbor| neighbor < 60)));
        }
    }
}
