//! Deletes of vertices of a graph (FreshDiskANN, section 4.2). Several rules replace deleted out-neighbors.

use std::str::FromStr;

use adjoin::{
    Context, Error, Result,
    kernels::Panel,
    lab::{
        Pruner, Vectors,
        geometry::Coordinate,
        graph::{Graph, GreedySearch},
        workers::map_items,
    },
};

/// Number of live vertices that are searched for around each deleted vertex (IP-DiskANN's k).
const NEAREST: usize = 50;
/// Number of these vertices that an in-neighbor of the deleted vertex is linked to (IP-DiskANN's c).
const LINKS: usize = 3;
/// Number of vertices that a thread processes at a time.
const TOGETHER: usize = 1 << 10;

/// How a vertex replaces its deleted out-neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DeleteRule {
    /// Deleted out-neighbors are not replaced (FreshDiskANN's Delete Policy A). The graph gradually loses its paths,
    /// so this is only for comparison.
    Drop,
    /// The remaining out-neighbors are pruned together with the out-neighbors of the deleted ones (FreshDiskANN,
    /// Algorithm 4).
    #[default]
    Neighbors,
    /// The vertex is linked to the out-neighbors of its deleted ones. A list is pruned only if it is longer than the
    /// degree (FreshDiskANN's Delete Policy B, section 3.3). With an alpha above 1, this is Algorithm 4 as section 4.2
    /// describes it in words.
    Connect,
    /// For each deleted out-neighbor, the vertex is linked to 3 others. These are the nearest to the vertex among 50
    /// live vertices found around the deleted one. This takes a search for each deleted vertex. It is Algorithm 5 of
    /// "In-Place Updates of a Graph Index for Streaming Approximate Nearest Neighbor Search" (Xu et al., 2025). That
    /// algorithm also adds edges from the 3 vertices to the out-neighbors of the deleted one, which are left out
    /// here.
    Nearest,
    /// For each deleted out-neighbor, the vertex is linked to the first live out-neighbor of the deleted one that it
    /// is not linked to yet. Pruned lists are ordered by distance, so this vertex is near. No distance is computed.
    Replace,
}

impl FromStr for DeleteRule {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "drop" => Ok(Self::Drop),
            "neighbors" => Ok(Self::Neighbors),
            "connect" => Ok(Self::Connect),
            "nearest" => Ok(Self::Nearest),
            "replace" => Ok(Self::Replace),
            _ => Err(Error::option(format!("{name} is no rule; give drop, neighbors, connect, nearest or replace"))),
        }
    }
}

/// Deletes vertices from a graph.
///
/// # Errors
/// If memory does not suffice, or the work is canceled.
pub(crate) fn delete<T: Coordinate>(
    context: &Context,
    graph: &mut Graph,
    panel: &Panel<T>,
    removed: &[u32],
    rule: DeleteRule,
) -> Result<()> {
    let mut is_deleted = vec![false; graph.vertices()];
    removed.iter().for_each(|&vertex| is_deleted[vertex as usize] = true);
    let around = if rule == DeleteRule::Nearest { around(context, graph, panel, &is_deleted)? } else { Vec::new() };
    let mending = Mending { rule, graph, panel, is_deleted: &is_deleted, around: &around };
    let chunks = graph.vertices().div_ceil(TOGETHER);
    let mender = || Pruner::new(graph.options());
    let lists = map_items(context.threads, chunks, &context.cancel, mender, |pruner, chunk| {
        let end = graph.vertices().min((chunk + 1) * TOGETHER);
        let live = ((chunk * TOGETHER) as u32..end as u32).filter(|&vertex| mending.is_live(vertex));
        let mended = live.filter_map(|vertex| Some((vertex, mending.mended(context, pruner, vertex)?)));
        Ok(mended.collect::<Vec<_>>())
    })?;
    graph.replace(context, panel, removed, &lists.concat())
}

/// Returns, for each deleted vertex, the live vertices around it in the graph before the deletes, nearest first. For
/// a live vertex, the list is empty.
fn around<T: Coordinate>(
    context: &Context,
    graph: &Graph,
    panel: &Panel<T>,
    is_deleted: &[bool],
) -> Result<Vec<Vec<u32>>> {
    let list = graph.options().build_list;
    let find = |search: &mut GreedySearch<T>, vertex: usize| {
        if !is_deleted[vertex] {
            return Ok(Vec::new());
        }
        search.run(context.kernel, graph, panel, panel.row(vertex), list);
        let live = search.nearest(list).map(|near| near.vertex).filter(|&near| !is_deleted[near as usize]);
        Ok(live.take(NEAREST).collect())
    };
    map_items(context.threads, graph.vertices(), &context.cancel, || GreedySearch::new(graph), find)
}

/// Computes the out-neighbors of vertices after the deletes.
struct Mending<'a, T> {
    rule: DeleteRule,
    graph: &'a Graph,
    panel: &'a Panel<T>,
    is_deleted: &'a [bool],
    around: &'a [Vec<u32>],
}

impl<T: Coordinate> Mending<'_, T> {
    fn is_live(&self, vertex: u32) -> bool {
        self.graph.is_live(vertex) && !self.is_deleted[vertex as usize]
    }

    /// Returns the new out-neighbors of a live vertex, or `None` if none of its out-neighbors is deleted.
    fn mended(&self, context: &Context, pruner: &mut Pruner<T>, vertex: u32) -> Option<Vec<u32>> {
        let neighbors = self.graph.neighbors(vertex);
        if neighbors.iter().all(|&neighbor| self.is_live(neighbor)) {
            return None;
        }
        let candidates = match self.rule {
            DeleteRule::Drop => self.live_neighbors(vertex).collect(),
            DeleteRule::Neighbors | DeleteRule::Connect => self.with_theirs(vertex, neighbors),
            DeleteRule::Nearest => self.with_nearest(context, vertex),
            DeleteRule::Replace => self.with_replaced(vertex, neighbors),
        };
        if self.rule != DeleteRule::Neighbors && candidates.len() <= self.graph.options().degree {
            return Some(candidates);
        }
        let vectors = Vectors { kernel: context.kernel, panel: self.panel };
        pruner.begin(vertex);
        pruner.add_vertices(vectors, &candidates);
        Some(pruner.prune(vectors).to_vec())
    }

    fn live_neighbors(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.graph.neighbors(vertex).iter().copied().filter(|&neighbor| self.is_live(neighbor))
    }

    /// Returns the live out-neighbors and the live out-neighbors of the deleted ones, each once. In Algorithm 4 of the
    /// paper, the candidates include the old out-neighbors that are deleted, so Algorithm 3 may choose them again.
    fn with_theirs(&self, vertex: u32, neighbors: &[u32]) -> Vec<u32> {
        let deleted = neighbors.iter().filter(|&&neighbor| !self.is_live(neighbor));
        let theirs = deleted.flat_map(|&neighbor| self.live_neighbors(neighbor)).filter(|&next| next != vertex);
        let mut candidates: Vec<u32> = self.live_neighbors(vertex).chain(theirs).collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    fn with_nearest(&self, context: &Context, vertex: u32) -> Vec<u32> {
        let mut candidates: Vec<u32> = self.live_neighbors(vertex).collect();
        let x = self.panel.row(vertex as usize);
        for &deleted in self.graph.neighbors(vertex).iter().filter(|&&neighbor| !self.is_live(neighbor)) {
            let others = self.around[deleted as usize].iter().filter(|&&other| other != vertex);
            let key = |other: u32| T::distance_key(context.kernel.distance(x, self.panel.row(other as usize)));
            let mut others: Vec<(u32, u32)> = others.map(|&other| (key(other), other)).collect();
            others.sort_unstable();
            for (_, link) in others.into_iter().take(LINKS) {
                if !candidates.contains(&link) {
                    candidates.push(link);
                }
            }
        }
        candidates
    }

    fn with_replaced(&self, vertex: u32, neighbors: &[u32]) -> Vec<u32> {
        let mut candidates: Vec<u32> = Vec::new();
        for &neighbor in neighbors {
            let is_new = |next: &u32| *next != vertex && !neighbors.contains(next) && !candidates.contains(next);
            let instead = match self.is_live(neighbor) {
                true => Some(neighbor),
                false => self.live_neighbors(neighbor).find(is_new),
            };
            candidates.extend(instead);
        }
        candidates
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use adjoin::{GraphOptions, Random};

    use super::*;

    const RULES: [DeleteRule; 5] =
        [DeleteRule::Drop, DeleteRule::Neighbors, DeleteRule::Connect, DeleteRule::Nearest, DeleteRule::Replace];

    /// Returns vectors that form 15 groups.
    pub(crate) fn vectors(rows: usize, seed: u64) -> Panel<u8> {
        let mut random = Random::new(seed, "vectors");
        let centers: Vec<u8> = (0..15 * 8).map(|_| 30 + random.below(190) as u8).collect();
        let mut panel = Panel::zeroed(rows, 8);
        for row in 0..rows {
            let center = &centers[row % 15 * 8..][..8];
            panel.row_mut(row).iter_mut().zip(center).for_each(|(to, &x)| *to = x - 25 + random.below(50) as u8);
        }
        panel
    }

    fn edges(graph: &Graph) -> Vec<Vec<u32>> {
        (0..graph.vertices() as u32).map(|vertex| graph.neighbors(vertex).to_vec()).collect()
    }

    /// Returns the fraction of the live vertices that a search for their own vectors finds first. Equal vectors count
    /// as found.
    pub(crate) fn found(graph: &Graph, panel: &Panel<u8>) -> f64 {
        let (context, mut search) = (Context::default(), GreedySearch::new(graph));
        let live: Vec<u32> = (0..graph.vertices() as u32).filter(|&vertex| graph.is_live(vertex)).collect();
        let is_found = |&&vertex: &&u32| {
            search.run(context.kernel, graph, panel, panel.row(vertex as usize), 30);
            search.nearest(1).all(|near| near.squared_distance == 0.0)
        };
        live.iter().filter(is_found).count() as f64 / live.len() as f64
    }

    #[test]
    fn each_delete_rule_repairs_lists_as_documented() {
        let (context, panel, mut random) = (Context::default(), vectors(600, 1), Random::new(2, "deletes"));
        let options = GraphOptions { degree: 8, build_list: 20, ..GraphOptions::default() };
        let graph = Graph::build(&context, &panel, &options).unwrap();
        let mut is_deleted = vec![false; 600];
        random.ascending_sample(200, 600).into_iter().for_each(|vertex| is_deleted[vertex as usize] = true);
        let around = around(&context, &graph, &panel, &is_deleted).unwrap();
        for rule in RULES {
            let mending = Mending { rule, graph: &graph, panel: &panel, is_deleted: &is_deleted, around: &around };
            let (mut pruner, mut mended, mut unpruned) = (Pruner::new(&options), 0, 0);
            for vertex in (0..600).filter(|&vertex| mending.is_live(vertex)) {
                let neighbors = graph.neighbors(vertex);
                let (live, gone): (Vec<u32>, Vec<u32>) =
                    neighbors.iter().copied().partition(|&neighbor| !is_deleted[neighbor as usize]);
                let Some(new) = mending.mended(&context, &mut pruner, vertex) else {
                    assert!(gone.is_empty());
                    continue;
                };
                mended += 1;
                assert!(!gone.is_empty() && new.len() <= 8 && new.iter().all(|&next| !is_deleted[next as usize]));
                let of_gone = |next: &u32| gone.iter().any(|&gone| graph.neighbors(gone).contains(next));
                match rule {
                    DeleteRule::Drop => assert_eq!(new, live),
                    DeleteRule::Neighbors => assert!(new.iter().all(|next| live.contains(next) || of_gone(next))),
                    DeleteRule::Connect => {
                        let all = (0..600).filter(|next| *next != vertex && !is_deleted[*next as usize]);
                        let all: Vec<u32> = all.filter(|next| live.contains(next) || of_gone(next)).collect();
                        assert!(new.iter().all(|next| all.contains(next)));
                        // A list that fits is not pruned.
                        assert!(all.len() > 8 || new == all);
                        unpruned += usize::from(all.len() <= 8);
                    }
                    DeleteRule::Nearest => {
                        let near = |next: &u32| gone.iter().any(|&gone| around[gone as usize].contains(next));
                        assert!(new.iter().all(|next| live.contains(next) || near(next)));
                    }
                    DeleteRule::Replace => {
                        assert!(live.iter().all(|live| new.contains(live)) && new.len() <= neighbors.len());
                        assert!(new.iter().all(|next| live.contains(next) || of_gone(next)));
                    }
                }
            }
            assert!(mended > 200, "{rule:?}: {mended} lists had deleted vertices");
            assert!(rule != DeleteRule::Connect || (1..mended).contains(&unpruned), "{unpruned} lists fit");
        }
    }

    #[test]
    fn each_update_rule_keeps_the_graph_valid_on_any_threads() {
        let panel = vectors(1_200, 3);
        let options = GraphOptions { degree: 12, build_list: 30, ..GraphOptions::default() };
        for rule in RULES {
            let mut seen: Option<Vec<Vec<u32>>> = None;
            for threads in [1, 3] {
                let mut context = Context::default();
                context.threads = threads;
                let mut graph = Graph::build(&context, &panel, &options).unwrap();
                let (before, mut random) = (found(&graph, &panel), Random::new(13, "updates"));
                for percent in [5, 50, 20] {
                    let drawn = random.ascending_sample(12 * percent, 1_200);
                    let mut drawn: Vec<u32> = drawn.into_iter().map(|vertex| vertex as u32).collect();
                    random.shuffle(&mut drawn);
                    delete(&context, &mut graph, &panel, &drawn, rule).unwrap();
                    graph.verify().unwrap();
                    assert_eq!(graph.live() as usize, 1_200 - drawn.len());
                    assert!(drawn.iter().all(|&vertex| graph.neighbors(vertex).is_empty()));
                    graph.insert(&context, &panel, &drawn).unwrap();
                    graph.verify().unwrap();
                    assert_eq!(graph.live(), 1_200);
                }
                let after = found(&graph, &panel);
                assert!(rule == DeleteRule::Drop || after > before - 0.03, "{rule:?}: {after} from {before}");
                let edges = edges(&graph);
                assert!(*seen.get_or_insert(edges.clone()) == edges, "{rule:?} on {threads} threads");
            }
        }
    }
}
