//! Checks the invariants of a graph after deletions and reinsertions.

use super::*;
/// Returns the lists of the vertices that are not removed, without the removed out-neighbors.
fn left(graph: &Graph, removed: &[u32]) -> Vec<(u32, Vec<u32>)> {
    let is_left = |vertex: &u32| !removed.contains(vertex);
    let all = (0..graph.vertices() as u32).filter(is_left);
    all.map(|vertex| (vertex, graph.neighbors(vertex).iter().copied().filter(is_left).collect())).collect()
}
#[test]
fn deleted_vertices_are_not_found_and_others_are_reachable() {
    let values = clustered(8, 2_000, 12, 25, 25.0);
    let panel = panel::<u8>(&values);
    let mut graph = built(&panel, &options(16, 40, 1.2));
    let before = recall(&graph, &panel, 40);
    let mut random = Random::new(9, "deletes");
    let mut gone: Vec<u32> = random.ascending_sample(300, 2_000).into_iter().map(|v| v as u32).collect();
    gone.extend(graph.entry().filter(|entry| !gone.contains(entry)));
    let lists = left(&graph, &gone);
    graph.replace(&Context::default(), &panel, &gone, &lists).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.live() as usize, 2_000 - gone.len());
    assert!(gone.iter().all(|&vertex| !graph.is_live(vertex) && graph.neighbors(vertex).is_empty()));
    assert!(edges(&graph).iter().flatten().all(|&neighbor| graph.is_live(neighbor)));
    graph.insert(&Context::default(), &panel, &gone).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.live(), 2_000);
    assert!(recall(&graph, &panel, 40) > before - 0.03, "{} from {before}", recall(&graph, &panel, 40));
    let all: Vec<u32> = (0..2_000).collect();
    graph.replace(&Context::default(), &panel, &all, &[]).unwrap();
    graph.verify().unwrap();
    assert_eq!((graph.entry(), graph.live()), (None, 0));
    let mut search = GreedySearch::new(&graph);
    search.run(Kernel::detect(), &graph, &panel, panel.row(0), 10);
    assert_eq!(search.nearest(10).count(), 0);
}

#[test]
fn inserts_build_a_graph_from_nothing_and_can_be_repeated() {
    let values = clustered(14, 1_000, 8, 15, 25.0);
    let panel = panel::<f32>(&values);
    let context = Context::default();
    let mut graph = built(&panel, &options(12, 30, 1.2));
    let whole = recall(&graph, &panel, 30);
    graph.replace(&context, &panel, &Vec::from_iter(0..1_000), &[]).unwrap();
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
fn inserts_beyond_the_budget_do_not_change_the_graph() {
    let values = clustered(15, 2_000, 4, 10, 25.0);
    let panel = panel::<u8>(&values);
    let mut graph = built(&panel, &options(16, 40, 1.2));
    let before = edges(&graph);
    let little = Context::default().with_memory(100_000);
    assert_eq!(graph.insert(&little, &panel, &[3, 4]).unwrap_err().kind(), ErrorKind::Budget);
    assert!(edges(&graph) == before);
    graph.verify().unwrap();
}

/// A third of the vectors is replaced, in one case also the entry.
#[test]
fn a_changed_graph_finds_the_vectors_that_it_has_now() {
    let values = clustered(16, 2_000, 12, 25, 25.0);
    let graph = built(&panel::<u8>(&values[..1_500].to_vec()), &options(16, 40, 1.2));
    let whole = recall(&graph, &panel::<u8>(&values[..1_500].to_vec()), 40);
    let entry = graph.entry().unwrap();
    for keeps_entry in [true, false] {
        let is_kept = |&vertex: &u32| if vertex == entry { keeps_entry } else { vertex % 3 > 0 };
        let kept: Vec<u32> = (0..1_500).filter(is_kept).collect();
        let now = kept.iter().map(|&vertex| values[vertex as usize].clone()).chain(values[1_500..].iter().cloned());
        let now = panel::<u8>(&now.collect());
        let was: Vec<Option<u32>> = kept.iter().copied().map(Some).chain([None; 500]).collect();
        let changed = |threads| {
            let changed =
                graph.changed(&Context::default().with_threads(threads), &now, &was, graph.options()).unwrap();
            changed.verify().unwrap();
            changed
        };
        let (one, three) = (changed(1), changed(3));
        assert!(edges(&one) == edges(&three) && one.entry() == three.entry());
        // A graph that was read has forgotten some of its options.
        let (read, other) = (Graph::from_bytes(&Context::default(), &graph.to_bytes()).unwrap(), options(16, 60, 1.5));
        let changed = |graph: &Graph| edges(&graph.changed(&Context::default(), &now, &was, &other).unwrap());
        assert!(changed(&read) == changed(&graph) && changed(&read) != edges(&one));
        assert_eq!(one.live() as usize, now.rows());
        assert_eq!(reached(&one).len(), now.rows());
        assert_eq!(one.entry().and_then(|row| was[row as usize]) == Some(entry), keeps_entry);
        assert!(recall(&one, &now, 40) > whole - 0.03, "{} from {whole}", recall(&one, &now, 40));
    }
}

#[test]
fn a_graph_that_does_not_change_stays_as_it_is() {
    let panel = panel::<f32>(&clustered(17, 500, 6, 9, 25.0));
    let graph = built(&panel, &options(12, 30, 1.2));
    let all: Vec<Option<u32>> = (0..500).map(Some).collect();
    let same = graph.changed(&Context::default(), &panel, &all, graph.options()).unwrap();
    assert!(edges(&same) == edges(&graph) && same.entry() == graph.entry());
}
