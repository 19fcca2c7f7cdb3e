use std::collections::BTreeSet;

use super::*;
use crate::config::Config;
use crate::ecc::mixed;
use crate::layout::{Mapping, RefreshTo};

const VERTICES: u32 = 1_500;
const QUERIES: u32 = 60;
const LIST: usize = 12;
const K: usize = 5;

/// Points in a plane.
struct Points;

impl Points {
    fn of(number: u64) -> [f64; 2] {
        let number = mixed(number);
        [(number >> 40) as f64, (number & 0xff_ffff) as f64]
    }
}

fn squared([a, b]: [f64; 2], [c, d]: [f64; 2]) -> f64 {
    (a - c).powi(2) + (b - d).powi(2)
}

/// Points in a plane, with a start vertex per query.
struct Begun;

impl Distances for Begun {
    fn distance(&self, query: u32, vertex: u32) -> f64 {
        Points.distance(query, vertex)
    }

    fn start(&self, query: u32) -> Option<Start> {
        Some(Start { vertex: query * 7, distances: 3 })
    }
}

impl Distances for Points {
    fn distance(&self, query: u32, vertex: u32) -> f64 {
        // Rounding makes many distances equal.
        (squared(Self::of(1 << 40 | u64::from(query)), Self::of(vertex.into())) / 1e12).round()
    }

    fn rank(&self, vertex: u32) -> u32 {
        VERTICES - vertex
    }
}

/// Returns a graph in which each vertex has eight neighbors: the six nearest vertices, a random one, and the next
/// one.
fn graph() -> Vec<Vec<u32>> {
    let near = |vertex: u32| {
        let mut others: Vec<u32> = (0..VERTICES).filter(|&other| other != vertex).collect();
        let distance = |&other: &u32| squared(Points::of(vertex.into()), Points::of(other.into())) as u64;
        others.sort_by_key(distance);
        others.truncate(6);
        others.extend([mixed(vertex.into()) as u32 % VERTICES, (vertex + 1) % VERTICES]);
        others
    };
    (0..VERTICES).map(near).collect()
}

/// Returns the hits of a query by a search that is as simple as possible.
fn oracle(graph: &[Vec<u32>], query: u32) -> Vec<(u64, u32)> {
    let key = |vertex: u32| (Points.distance(query, vertex).to_bits(), VERTICES - vertex);
    let (mut seen, mut expanded) = (BTreeSet::from([key(0)]), BTreeSet::new());
    while let Some(&next) = seen.iter().take(LIST).find(|&candidate| !expanded.contains(candidate)) {
        expanded.insert(next);
        seen.extend(graph[(VERTICES - next.1) as usize].iter().map(|&neighbor| key(neighbor)));
    }
    seen.into_iter().take(K).map(|(distance, rank)| (distance, VERTICES - rank)).collect()
}

fn device(changes: &[(&str, f64)]) -> Device {
    let mut config = Config::preset("ndsearch").unwrap();
    let small = [("geometry.channels", 2.0), ("geometry.chips_per_channel", 2.0), ("geometry.page", 4_096.0)];
    small.iter().chain(changes).for_each(|(name, value)| config.set(name, *value, "test").unwrap());
    Device::new(&config).unwrap()
}

fn laid(device: &Device, graph: &[Vec<u32>], mapping: Mapping) -> LunCsr {
    LunCsr::new(device.geometry(), VERTICES, 0, |vertex| &graph[vertex as usize], 128, mapping).unwrap()
}

fn options(platform: Platform) -> SearchOptions {
    SearchOptions {
        platform,
        list: LIST,
        k: K,
        batch: 25,
        dimensions: 128,
        multi_plane: true,
        allocating: true,
        speculating: false,
        memory_share: 0.0,
        spans: 0,
    }
}

#[test]
fn every_platform_and_option_finds_the_hits_of_a_plain_search() {
    let graph = graph();
    let expected: Vec<Vec<(u64, u32)>> = (0..QUERIES).map(|query| oracle(&graph, query)).collect();
    let device = device(&[("search.query_queue", 640.0), ("ecc.hard_fails", 0.2)]);
    let mut layouts = [Mapping::MultiPlane, Mapping::Linear].map(|mapping| laid(&device, &graph, mapping));
    let moved = (0..40).filter(|&k| layouts[1].refresh(k * 37, RefreshTo::Anywhere, mixed(k.into()))).count();
    assert!(moved > 20);
    for platform in Platform::ALL {
        for switches in 0..32 {
            let on = |bit: u32| switches & 1 << bit != 0;
            let options = SearchOptions {
                multi_plane: on(0),
                allocating: on(1),
                speculating: on(2),
                memory_share: if on(3) { 0.3 } else { 0.0 },
                ..options(platform)
            };
            let report = search(&device, &layouts[usize::from(on(4))], &Points, QUERIES, &options).unwrap();
            let found: Vec<Vec<(u64, u32)>> = report
                .hits
                .iter()
                .map(|hits| hits.iter().map(|hit| (hit.distance.to_bits(), hit.vertex)).collect())
                .collect();
            assert_eq!(found, expected, "{platform:?} {options:?}");
            let elapsed = (report.seconds * 1e12).round() as u64;
            assert!(report.uses.iter().all(|of| of.busiest <= elapsed), "{:?}", report.uses);
            // Stages do not overlap, except that sorting overlaps with the next batch.
            let Stages { io, allocating, searching, gathering, sorting } = report.stages;
            let unsorted = io + allocating + searching + gathering;
            assert!((unsorted..=unsorted + sorting + 1).contains(&(elapsed + 1)), "{elapsed} {:?}", report.stages);
        }
    }
}

#[test]
fn every_distance_is_served_from_memory_or_by_a_comparison() {
    let (graph, device) = (graph(), device(&[]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    for platform in Platform::ALL {
        let options = SearchOptions { memory_share: 0.2, ..options(platform) };
        let report = search(&device, &layout, &Points, QUERIES, &options).unwrap();
        let comparisons = report.counts.compute / platform.comparison(&device, 128);
        assert_eq!(report.wanted, report.in_memory + comparisons, "{platform:?}");
        assert!(report.speculations == 0 && (report.in_memory > 0), "{platform:?}");
    }
}

#[test]
fn queries_start_at_the_given_vertex_and_count_its_costs() {
    let (graph, device) = (graph(), device(&[]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    for platform in Platform::ALL {
        let options = SearchOptions { list: 1, k: 1, ..options(platform) };
        let report = search(&device, &layout, &Begun, QUERIES, &options).unwrap();
        let comparisons = report.counts.compute / platform.comparison(&device, 128);
        assert_eq!(report.wanted, report.in_memory + comparisons, "{platform:?}");
        assert!(report.in_memory >= 3 * u64::from(QUERIES), "{platform:?}");
        for (query, hits) in (0..).zip(&report.hits) {
            let mut at = query * 7;
            let far = |vertex: &u32| (Begun.distance(query, *vertex).to_bits(), *vertex);
            loop {
                let next = graph[at as usize].iter().copied().chain([at]).min_by_key(far).unwrap();
                if std::mem::replace(&mut at, next) == next {
                    break;
                }
            }
            assert_eq!(hits[0].vertex, at, "{platform:?} {query}");
        }
    }
}

#[test]
fn page_sharing_and_queue_limits_affect_page_reads() {
    let (graph, device) = (graph(), device(&[]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    let run = |device: &Device, options| search(device, &layout, &Points, QUERIES, &options).unwrap();
    let (with, without) =
        (options(Platform::NdSearch), SearchOptions { allocating: false, ..options(Platform::NdSearch) });
    let [with, without] = [with, without].map(|options| run(&device, options));
    assert!(4 * with.counts.page_reads < 3 * without.counts.page_reads, "{:?} {:?}", with.counts, without.counts);
    assert!(with.seconds < without.seconds);
    assert_eq!((with.wanted, with.rounds), (without.wanted, with.steps));
    let mut config = device.config().clone();
    config.set("search.query_queue", 256.0, "test").unwrap();
    let narrow = run(&Device::new(&config).unwrap(), options(Platform::NdSearch));
    assert!(narrow.rounds > 2 * narrow.steps && narrow.counts.page_reads > with.counts.page_reads);
}

#[test]
fn speculation_reads_more_pages_and_shortens_searching() {
    let graph = graph();
    // Gathering is slow here, which leaves time for speculation.
    let device = device(&[("controller.gather", 20_000.0), ("ecc.hard_fails", 0.0)]);
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    let [with, without] = [true, false].map(|speculating| {
        let options = SearchOptions { speculating, ..options(Platform::NdSearch) };
        search(&device, &layout, &Points, QUERIES, &options).unwrap()
    });
    assert!(with.speculated > 0 && with.speculated < with.speculations, "{} {}", with.speculated, with.speculations);
    assert!(with.counts.page_reads > without.counts.page_reads);
    assert!(with.stages.searching < without.stages.searching, "{:?} {:?}", with.stages, without.stages);
}

/// Returns the number of comparisons of a bitonic sorting network with `inputs` inputs, a power of two.
fn bitonic_comparisons(inputs: usize) -> u64 {
    let (mut comparisons, mut merged) = (0, 2);
    while merged <= inputs {
        let mut apart = merged / 2;
        while apart > 0 {
            comparisons += (0..inputs).filter(|at| at & apart == 0).count() as u64;
            apart /= 2;
        }
        merged *= 2;
    }
    comparisons
}

#[test]
fn sorting_takes_the_comparisons_of_a_bitonic_network() {
    let graph = graph();
    let laid = laid(&device(&[]), &graph, Mapping::MultiPlane);
    for (list, inputs) in [(1, 1), (2, 2), (12, 16), (16, 16), (33, 64)] {
        let sorting = |comparators: f64| {
            let device = device(&[("sorter.comparators", comparators), ("sorter.clock", 100.0)]);
            let options = SearchOptions { list, k: 1, ..options(Platform::NdSearch) };
            search(&device, &laid, &Points, QUERIES, &options).unwrap().stages.sorting
        };
        // Lists are also transferred, which takes equally long in both cases.
        let comparisons = 2 * (sorting(1.0) - sorting(2.0)) / 10_000;
        assert_eq!(comparisons, u64::from(QUERIES) * bitonic_comparisons(inputs), "lists of {list}");
    }
}

#[test]
fn the_vertex_generator_takes_a_cycle_per_neighbor_unless_dram_is_slower() {
    let graph = graph();
    let laid = laid(&device(&[]), &graph, Mapping::MultiPlane);
    let allocating = |clock: f64, dram: f64| {
        let device = device(&[("search.clock", clock), ("controller.dram", dram)]);
        let report = search(&device, &laid, &Points, QUERIES, &options(Platform::NdSearch)).unwrap();
        report.stages.allocating
    };
    // Each vertex has eight neighbors, and a cycle takes a nanosecond.
    let pipeline = allocating(1_000.0, 1e7);
    assert!(pipeline.is_multiple_of(8 * 1_000) && pipeline > 0, "{pipeline}");
    assert_eq!(allocating(500.0, 1e7), 2 * pipeline);
    // With slow memory, the clock does not matter.
    let memory = allocating(1_000.0, 10.0);
    assert!(memory > 2 * pipeline, "{memory} {pipeline}");
    assert_eq!(allocating(500.0, 10.0), memory);
}

#[test]
fn simulated_searches_are_deterministic() {
    let (graph, device) = (graph(), device(&[("ecc.hard_fails", 0.1)]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    let options = SearchOptions { speculating: true, spans: 1_000, ..options(Platform::NdSearch) };
    let [first, second] = [0, 1].map(|_| format!("{:?}", search(&device, &layout, &Points, QUERIES, &options)));
    assert!(first == second && first.contains("Lun(0)"));
}

#[test]
fn refuses_invalid_simulation_options() {
    let (graph, device) = (graph(), device(&[]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    let refused = |options| search(&device, &layout, &Points, 3, &options).unwrap_err().to_string();
    let usual = options(Platform::NdSearch);
    assert!(refused(SearchOptions { k: 13, ..usual }).contains("a list of 12 is shorter than the 13 nearest"));
    assert!(refused(SearchOptions { batch: 0, ..usual }).contains("in batches of 0"));
    assert!(refused(SearchOptions { memory_share: 1.5, ..usual }).contains("a fraction of 1.5 in memory"));
    let other = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
    assert!(search(&other, &layout, &Points, 3, &usual).unwrap_err().to_string().contains("another device"));
}

#[test]
fn processors_load_each_shard_once_a_batch_in_addition_to_a_search_in_memory() {
    let (graph, device) = (graph(), device(&[("shards.count", 10.0), ("shards.scale", 1_000.0)]));
    let layout = laid(&device, &graph, Mapping::MultiPlane);
    let run = |platform, memory_share| {
        search(&device, &layout, &Points, QUERIES, &SearchOptions { memory_share, ..options(platform) }).unwrap()
    };
    let (in_memory, shards) = (run(Platform::CpuDram, 0.0), run(Platform::CpuShards, 0.3));
    let edges: usize = graph.iter().map(Vec::len).sum();
    let set = 1_000 * (u64::from(VERTICES) * (128 + 8) + 4 * edges as u64);
    // Three batches, each of which visits all shards.
    assert_eq!(shards.counts.link_bytes, 3 * set);
    let loading = shards.stages.io as f64 / 1e12;
    assert!((shards.seconds - in_memory.seconds - loading).abs() < 1e-9, "{} {loading}", shards.seconds);
    assert!(loading > 3.0 * set as f64 / 12.8e9 && shards.stages.searching == in_memory.stages.searching);
    // A set that fits in memory is not loaded again.
    assert_eq!(run(Platform::CpuShards, 1.0).seconds, in_memory.seconds);
    assert_eq!(run(Platform::GpuShards, 0.3).counts.link_bytes, 3 * set);
}
