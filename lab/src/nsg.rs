//! Builds an NSG in memory: "Fast Approximate Nearest Neighbor Search With The Navigating Spreading-out Graph" (Fu, Xiang,
//! Wang, Cai; VLDB 2019), Algorithm 2. FreshDiskANN's Figure 1 shows what updates do to it.
//!
//! Each vertex searches for its own vector in a graph of nearest neighbors, from the vertex in the middle of the set. The
//! vertices that the search expands and the nearest neighbors are the candidates for its out-neighbors, which
//! RobustPrune chooses with an alpha of 1. Back edges are appended, and a list that is then too long is pruned again.
//!
//! The authors' program also has the vertices that a search only compares as candidates. Instead of its tree, the engine's
//! repair links vertices that no path reaches, in both graphs.

use adjoin::{
    Context, GraphOptions, Result,
    kernels::Panel,
    lab::{
        Pruner, Vectors,
        geometry::Coordinate,
        graph::{Graph, GreedySearch},
        workers::map_items,
    },
};

/// Number of nearest neighbors of a vertex in the first graph, and length of the list that finds them.
const NEAREST: usize = 50;
const LIST: usize = 100;

/// Builds the graph over all vectors of a panel, with the degree and the list length of `options`.
///
/// # Errors
/// If an option is out of range, if memory does not suffice, or if the work is cancelled.
pub(crate) fn build<T: Coordinate>(context: &Context, panel: &Panel<T>, options: &GraphOptions) -> Result<Graph> {
    let options = GraphOptions { alpha: 1.0, ..*options };
    let vectors = Vectors { kernel: context.kernel, panel };
    let mut near = Graph::build(context, panel, &GraphOptions { degree: NEAREST, build_list: LIST, ..options })?;
    let nearest = map_items(
        context.threads,
        panel.rows(),
        &context.cancel,
        || GreedySearch::new(&near),
        |search, vertex| {
            search.run(context.kernel, &near, panel, panel.row(vertex), LIST);
            let others = search.nearest(NEAREST + 1).map(|near| near.vertex).filter(|&near| near != vertex as u32);
            Ok((vertex as u32, others.take(NEAREST).collect::<Vec<u32>>()))
        },
    )?;
    near.replace(context, panel, &[], &nearest)?;

    let working = || (GreedySearch::new(&near), Pruner::new(&options));
    let lists = map_items(context.threads, panel.rows(), &context.cancel, working, |(search, pruner), vertex| {
        search.run(context.kernel, &near, panel, panel.row(vertex), options.build_list);
        let visited = search.visited().map(|near| near.vertex).chain(nearest[vertex].1.iter().copied());
        Ok(pruned(pruner, vectors, vertex as u32, visited.collect()))
    })?;
    let mut back = vec![Vec::new(); panel.rows()];
    (0..).zip(&lists).for_each(|(vertex, list)| list.iter().for_each(|&to| back[to as usize].push(vertex)));
    let with_back = map_items(
        context.threads,
        panel.rows(),
        &context.cancel,
        || Pruner::new(&options),
        |pruner, vertex| {
            let mut both = lists[vertex].clone();
            both.extend(back[vertex].iter().filter(|from| !lists[vertex].contains(from)));
            let is_long = both.len() > options.degree;
            Ok((vertex as u32, if is_long { pruned(pruner, vectors, vertex as u32, both) } else { both }))
        },
    )?;
    drop(near);
    // Lists can be replaced only in a graph that has all vertices, so one is built first.
    let mut graph = Graph::build(context, panel, &options)?;
    graph.replace(context, panel, &[], &with_back)?;
    Ok(graph)
}

/// Returns the out-neighbors that a vertex gets from candidates. If a candidate is there twice, its distance is computed
/// once.
fn pruned<T: Coordinate>(
    pruner: &mut Pruner<T>,
    vectors: Vectors<'_, T>,
    vertex: u32,
    mut candidates: Vec<u32>,
) -> Vec<u32> {
    candidates.sort_unstable();
    candidates.dedup();
    pruner.begin(vertex);
    pruner.add_vertices(vectors, &candidates);
    pruner.prune(vectors).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletes::tests::{found, vectors};

    #[test]
    fn an_nsg_is_valid_on_any_threads_and_finds_its_vectors() {
        let panel = vectors(1_500, 4);
        let options = GraphOptions { degree: 16, build_list: 40, ..GraphOptions::default() };
        let of = |threads| {
            let mut context = Context::default();
            context.threads = threads;
            build(&context, &panel, &options).unwrap()
        };
        let graph = of(1);
        graph.verify().unwrap();
        // The groups of these vectors are apart in the graph of nearest neighbors.
        let found = found(&graph, &panel);
        assert!(found > 0.9, "{found}");
        // With an alpha of 1, no neighbor that was chosen is nearer to another one than to the vertex.
        let context = Context::default();
        let distance = |x: u32, y: u32| context.kernel.distance(panel.row(x as usize), panel.row(y as usize));
        let (mut spread, mut pairs) = (0, 0);
        for vertex in 0..1_500 {
            let neighbors = graph.neighbors(vertex);
            for (at, &far) in neighbors.iter().enumerate() {
                pairs += at;
                spread += neighbors[..at].iter().filter(|&&near| distance(near, far) > distance(vertex, far)).count();
            }
        }
        // Back edges and the repair are exceptions.
        assert!(spread as f64 > 0.5 * pairs as f64, "{spread} of {pairs}");
        let again = of(3);
        assert!((0..1_500).all(|vertex| graph.neighbors(vertex) == again.neighbors(vertex)));
    }
}
