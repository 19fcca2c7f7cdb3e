//! Measures how updates affect a graph in memory. This is FreshDiskANN's experiment of sections 3.3 and 4.3.
//!
//! `updates FILE [NAME=VALUE ...]` uses the last 1,000 vectors of a file as queries, and builds a graph over
//! the others. Each cycle samples a fraction of the vectors, deletes them, and inserts them again. Prints one JSON
//! record for the graph after the build, and then one per cycle. Names and their defaults:
//!
//! - `cycles=50`, `share=0.05`
//! - `rule=neighbors`: how deleted out-neighbors are replaced; other values are `drop`, `connect`, `nearest`
//!   and `replace`
//! - `graph=vamana`; other values are `nsg` (`nsg.rs`) and `hnsw` (`hnsw.rs`). Both are built with an alpha of 1; give
//!   `alpha=1` for the updates of an NSG. An HNSW has only the rules `drop` and `connect`, and one pass
//! - `codes=0`: bytes of the product codes from which deletes and inserts compute distances, as in FreshDiskANN's merges; 0
//!   for vectors. The build and the searches always use vectors
//! - `alpha=1.2`, for the build and all updates; `list=75`, length of the candidate list of the build and of inserts
//! - `passes=1` of the build; each further pass inserts all vectors again
//! - `rows=0`: number of vectors to use, 0 for all; `threads=2`
//!
//! A recall of the k nearest is always measured with the same list length of the searches. It is the shortest one that
//! reaches 0.95 before the first cycle (`lists`); `list` and `distances` are for k = 5. A record has the number of
//! vertices whose out-neighbors a step changed (`lists` of a step), the number of out-neighbors that these vertices
//! gained (`edges`), and the number of candidates from which Algorithm 4 chooses, per changed vertex (`candidates`).

use crate::deletes::DeleteRule;
use crate::held_out::{FIVE, HeldOut, KS, RECALL, is_of_bytes};
use crate::product_codes::decoded;
use crate::updated_graph::{GraphKind, UpdatedGraph, policy_of};
use adjoin::{
    Context, Error, GraphOptions, Random, Result,
    kernels::Panel,
    lab::{geometry::Coordinate, report::Stopwatch},
};
use serde_json::{Value, json};

/// List lengths with which the graph is measured after the build.
const LISTS: [usize; 13] = [5, 10, 15, 20, 30, 40, 75, 100, 120, 150, 200, 300, 400];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (file, named) = arguments.split_first().ok_or_else(|| Error::input("give a file of vectors"))?;
    if is_of_bytes(&Context::default(), file)? {
        Study::<u8>::of(file, named)?.run()
    } else {
        Study::<f32>::of(file, named)?.run()
    }
}

/// Options of the experiment, and the vectors.
struct Study<T> {
    kind: GraphKind,
    cycles: usize,
    share: f64,
    rule: DeleteRule,
    passes: usize,
    options: GraphOptions,
    context: Context,
    held: HeldOut<T>,
    /// The vectors that codes represent, if updates compute distances from codes.
    coded: Option<Panel<T>>,
}

/// Out-neighbors of each vertex; `None` for a vertex that was not in the graph.
struct Snapshot(Vec<Option<Vec<u32>>>);

impl<T: Coordinate> Study<T> {
    fn of(file: &str, named: &[String]) -> Result<Self> {
        let (mut cycles, mut share, mut rule, mut passes) = (50, 0.05, DeleteRule::default(), 1);
        let (mut rows, mut threads, mut codes) = (0, 2, 0);
        let (mut kind, mut options) = (GraphKind::default(), GraphOptions::default());
        for argument in named {
            match argument.split_once('=').ok_or_else(|| Error::option(format!("{argument}: give NAME=VALUE")))? {
                ("cycles", value) => cycles = number(value)?,
                ("share", value) => share = number(value)?,
                ("rule", value) => rule = value.parse()?,
                ("graph", value) => kind = value.parse()?,
                ("codes", value) => codes = number(value)?,
                ("alpha", value) => options.alpha = number(value)?,
                ("list", value) => options.build_list = number(value)?,
                ("passes", value) => passes = number(value)?,
                ("rows", value) => rows = number(value)?,
                ("threads", value) => threads = number(value)?,
                (name, _) => return Err(Error::option(format!("there is nothing named {name}"))),
            }
        }
        if !(0.0..=1.0).contains(&share) || passes == 0 {
            return Err(Error::option("give a share of 0 to 1 and at least one pass"));
        }
        if kind == GraphKind::Hnsw {
            policy_of(rule)?;
            if passes > 1 || codes > 0 {
                return Err(Error::option("graph=hnsw: give passes=1 and codes=0"));
            }
        }
        let context = Context::default().with_resources(Some("8GiB"), Some(threads))?;
        let held = HeldOut::read(&context, file, rows)?;
        let coded = (codes > 0).then(|| decoded(&context, &held.base, codes)).transpose()?;
        Ok(Self { kind, cycles, share, rule, passes, options, context, held, coded })
    }

    fn run(&self) -> Result<()> {
        let watch = Stopwatch::start();
        let mut graph = UpdatedGraph::build(&self.context, &self.held.base, self.kind, &self.options)?;
        for pass in 1..self.passes {
            let mut order: Vec<u32> = (0..self.held.base.rows() as u32).collect();
            Random::new(pass as u64, "order of a pass").shuffle(&mut order);
            graph.insert(&self.context, &self.held.base, &order)?;
        }
        let seconds = watch.seconds();
        graph.verify()?;
        let curve = LISTS.map(|list| {
            let mut record = graph.search(&self.context, &self.held, list).record();
            record["list"] = json!(list);
            record
        });
        let search = |list| graph.search(&self.context, &self.held, list);
        let lists = std::array::from_fn(|at| self.held.shortest_list(at, RECALL, search));
        self.print(&graph, 0, &lists, json!({ "build_seconds": seconds, "curve": curve }));
        for cycle in 1..=self.cycles {
            let changes = self.cycle(&mut graph, cycle)?;
            self.print(&graph, cycle, &lists, changes);
        }
        graph.verify()
    }

    /// Deletes vectors and inserts them again. Returns the cost and the changes.
    fn cycle(&self, graph: &mut UpdatedGraph<'_, T>, cycle: usize) -> Result<Value> {
        let rows = self.held.base.rows() as u64;
        let mut random = Random::new(cycle as u64, "a cycle");
        let drawn = random.ascending_sample((self.share * rows as f64).round() as u64, rows);
        let mut drawn: Vec<u32> = drawn.into_iter().map(|vertex| vertex as u32).collect();
        random.shuffle(&mut drawn);

        let vectors = self.coded.as_ref().unwrap_or(&self.held.base);
        let before = Snapshot::of(graph);
        let watch = Stopwatch::start();
        let candidates = candidates(graph, &drawn);
        let counted = watch.seconds();
        graph.delete(&self.context, vectors, &drawn, self.rule)?;
        let delete_seconds = watch.seconds() - counted;
        let between = Snapshot::of(graph);
        let watch = Stopwatch::start();
        graph.insert(&self.context, vectors, &drawn)?;
        let insert_seconds = watch.seconds();
        let after = Snapshot::of(graph);
        let (deleted, inserted) = (between.changes_from(&before), after.changes_from(&between));
        Ok(json!({
            "delete_seconds": delete_seconds, "delete_lists": deleted.0, "delete_edges": deleted.1,
            "delete_candidates": candidates,
            "insert_seconds": insert_seconds, "insert_lists": inserted.0, "insert_edges": inserted.1,
        }))
    }

    /// Prints the record of a cycle. It has the state of the graph, and the fields of `rest`. `lists` has a list length for
    /// each of [`KS`].
    fn print(&self, graph: &UpdatedGraph<'_, T>, cycle: usize, lists: &[usize; KS.len()], rest: Value) {
        let found = lists.map(|list| graph.search(&self.context, &self.held, list));
        let live = (0..graph.rows()).filter(|&row| graph.is_live(row));
        let (vertices, edges) =
            live.fold((0_u32, 0), |(vertices, edges), vertex| (vertices + 1, edges + graph.neighbors(vertex).len()));
        let mut record = json!({
            "cycle": cycle, "list": lists[FIVE], "lists": lists, "distances": found[FIVE].distances,
            "degree": edges as f64 / f64::from(vertices.max(1)),
        });
        for (at, k) in KS.iter().enumerate() {
            record[format!("recall_at_{k}")] = json!(found[at].recalls[at]);
        }
        if let (Value::Object(record), Value::Object(rest)) = (&mut record, rest) {
            record.extend(rest);
        }
        println!("{record}");
    }
}

impl Snapshot {
    fn of<T: Coordinate>(graph: &UpdatedGraph<'_, T>) -> Self {
        Self((0..graph.rows()).map(|vertex| graph.is_live(vertex).then(|| graph.neighbors(vertex).to_vec())).collect())
    }

    /// Compares vertices that are in the graph before and now. Returns the number of vertices with changed
    /// out-neighbors, and the number of new out-neighbors.
    fn changes_from(&self, before: &Self) -> (usize, usize) {
        let both = before.0.iter().zip(&self.0).filter_map(|(before, now)| before.as_ref().zip(now.as_ref()));
        both.filter(|(before, now)| before != now).fold((0, 0), |(lists, edges), (before, now)| {
            (lists + 1, edges + now.iter().filter(|neighbor| !before.contains(neighbor)).count())
        })
    }
}

/// Returns the mean number of candidates of Algorithm 4, for vertices with an out-neighbor that is deleted.
fn candidates<T: Coordinate>(graph: &UpdatedGraph<'_, T>, deleted: &[u32]) -> f64 {
    let mut is_live: Vec<bool> = (0..graph.rows()).map(|row| graph.is_live(row)).collect();
    deleted.iter().for_each(|&vertex| is_live[vertex as usize] = false);
    let live = |vertex: u32| graph.neighbors(vertex).iter().filter(|&&next| is_live[next as usize]).count();
    let (mut vertices, mut candidates) = (0_usize, 0);
    for vertex in (0..graph.rows()).filter(|&vertex| is_live[vertex as usize]) {
        if live(vertex) < graph.neighbors(vertex).len() {
            let of = |&next: &u32| if is_live[next as usize] { 1 } else { live(next) };
            candidates += graph.neighbors(vertex).iter().map(of).sum::<usize>();
            vertices += 1;
        }
    }
    candidates as f64 / vertices.max(1) as f64
}

pub(crate) fn number<N: std::str::FromStr>(text: &str) -> Result<N> {
    text.parse().map_err(|_| Error::option(format!("{text} is no number that fits")))
}
