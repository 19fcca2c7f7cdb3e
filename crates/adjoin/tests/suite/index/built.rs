//! Graphs of sets that are difficult for a graph of nearest rows: all neighbors of a row are equal, in one cluster,
//! or far away.

use adjoin::{
    Element, Index, IndexOptions, Metric, QueryTarget, Random, Store,
    kernels::Panel,
    lab::{VertexVectors, build_with_graph, graph::Graph, vertex_vectors},
};

use super::{Indexed, options, recall};
use crate::harness::{Set, Setup, error_of, files_of};
use crate::search::{assert_same, true_hits};

const DIMENSIONS: usize = 8;

/// Returns vectors around distant centers, outliers, and copies of some of them.
fn hard(clusters: usize, of_cluster: usize, outliers: usize, copies: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed, "hard vectors");
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for _ in 0..clusters {
        let center: Vec<u64> = (0..DIMENSIONS).map(|_| 20 + random.below(210)).collect();
        for _ in 0..of_cluster {
            vectors.push(center.iter().map(|&x| (x + random.below(9)) as f64 - 4.0).collect());
        }
    }
    for _ in 0..outliers {
        vectors.push((0..DIMENSIONS).map(|_| random.below(256) as f64).collect());
    }
    for _ in 0..copies {
        vectors.push(vectors[random.below(vectors.len() as u64) as usize].clone());
    }
    vectors
}

fn set_of(vectors: &[Vec<f64>]) -> Set {
    Set::of(Element::U8, DIMENSIONS, &vectors.concat())
}

/// Builds an index with a graph that was built in memory, by inserting one vertex after the other.
fn built_by_inserts(setup: &Setup, set: &Set, options: &IndexOptions) -> Indexed {
    let (context, indexed) = (setup.context(), Indexed::build(setup, set, options));
    let store = Store::open(&context, &indexed.beside("store")).unwrap();
    let of_graph = options.graph(store.manifest().vectors);
    let graph = match vertex_vectors(&context, &store).unwrap() {
        VertexVectors::Bytes(vectors) => Graph::build(&context, &vectors, &of_graph),
        VertexVectors::Floats(vectors) => Graph::build(&context, &vectors, &of_graph),
    };
    std::fs::remove_dir_all(indexed.path()).unwrap();
    build_with_graph(&context, &store, &indexed.path(), options, &graph.unwrap(), "inserts").unwrap();
    let other = Graph::build(&context, &Panel::<u8>::zeroed(1, DIMENSIONS), &of_graph).unwrap();
    let another = build_with_graph(&context, &store, &indexed.beside("another"), options, &other, "none");
    assert!(error_of(another).to_string().contains("not one of"));
    indexed
}

#[test]
fn built_indexes_match_the_recall_of_inserts_on_hard_sets() {
    let setup = Setup::default();
    for (name, vectors) in [
        ("clusters of fewer than a list", hard(150, 30, 0, 0, 1)),
        ("large clusters", hard(6, 900, 0, 0, 2)),
        ("outliers", hard(3, 1_500, 60, 0, 3)),
        ("a third of copies", hard(20, 150, 30, 1_500, 4)),
        ("one vector 3,000 times", [hard(3, 300, 0, 0, 5), vec![vec![9.0; DIMENSIONS]; 3_000]].concat()),
        ("outliers alone", hard(0, 0, 4_000, 0, 6)),
    ] {
        let set = set_of(&vectors);
        let step = vectors.len() / 120;
        let queries: Vec<Vec<f64>> = vectors.iter().step_by(step).cloned().collect();
        let queries = set_of(&queries);
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(10), Metric::L2);
        let options = IndexOptions { code_bytes: Some(8), ..options() };
        let found_in = |indexed: &Indexed| {
            let report = Index::verify(&setup.context(), &indexed.path()).unwrap();
            assert!(report.is_sound(), "{name}: {:?}", report.damages);
            assert_same(&indexed.search(&setup, &queries, 10, vectors.len()).hits, &wanted, name);
            recall(&indexed.search(&setup, &queries, 10, 60).hits, &wanted)
        };
        let near = found_in(&Indexed::build(&setup, &set, &options));
        let inserted = found_in(&built_by_inserts(&setup, &set, &options));
        // A graph that is bad for such a set would miss whole clusters or all outliers.
        assert!(near > inserted - 0.05 && near > 0.85, "{name}: {near}, by inserts {inserted}");
    }
}

#[test]
fn index_files_do_not_depend_on_memory_or_threads() {
    let set = set_of(&hard(40, 900, 100, 2_000, 7)).with_text_ids(&names(38_100));
    let options = IndexOptions { code_bytes: Some(8), ..options() };
    let setup = Setup::default();
    let wanted = files_of(&Indexed::build(&setup, &set, &options).path());
    let indexed = Indexed::build(&Setup { threads: 3, ..setup.clone() }, &set, &options);
    assert!(files_of(&indexed.path()) == wanted, "three threads");
    let context = Setup { memory: 15_100_000, ..setup.clone() }.context();
    let store = adjoin::Store::open(&setup.context(), &indexed.beside("store")).unwrap();
    let at = indexed.beside("again");
    let said = error_of(Index::build(&context, &store, &at, &options, false)).to_string();
    let (_, least) = said.split_once("give memory ").unwrap_or_else(|| panic!("{said}"));
    let memory = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    let built = Index::build(&Setup { memory, ..setup }.context(), &store, &at, &options, false).unwrap();
    assert!(built.io.spill_bytes > 0, "some lists were written: {:?}", built.io);
    for (name, bytes) in files_of(&at).iter().filter(|(name, _)| *name != "manifest.json") {
        assert!(wanted.get(name) == Some(bytes), "{name} with {memory} bytes");
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|row| format!("{}-{row}", "name".repeat(row % 4))).collect()
}
