//! Graph searches on a device. Answers the question: *how long would these queries take on that machine?*
//!
//! A batch of queries advances in steps (NDSearch, Algorithm 1). Allocating determines which vertices each query
//! needs. Searching reads pages and compares vectors. Gathering returns distances to the queries. The results of a
//! batch are sorted while the next batch begins. A walk advances only with the distances that the simulated device
//! delivers. If the model lost a comparison, the hits would change.

mod allocate;
mod shards;
mod speculate;
mod walk;

use std::collections::HashMap;
use std::ops::Range;

use self::allocate::{Allocating, Allocation, Group};
use self::shards::Shards;
use self::speculate::speculate;
pub use self::walk::Hit;
use self::walk::Walk;
use crate::device::{Device, Ps, seconds};
use crate::error::FlashError;
use crate::layout::LunCsr;
use crate::machine::{Machine, PageRead, Usage};
use crate::place::Place;
use crate::platform::Platform;
use crate::report::{Counts, Energy, Use};
use crate::timeline::{Span, Timeline, Track};

/// Bit that marks tokens of speculative reads. Such a token holds its step from bit `STEP_BIT` on.
const SPECULATIVE: u64 = 1 << 63;
const STEP_BIT: u32 = 32;
/// Bytes of an offset in the array of offsets.
const OFFSET_BYTES: u64 = 8;
/// Bytes of a number in the array of neighbors.
const NEIGHBOR_BYTES: u64 = 4;
/// Bytes of the LUN and block of a vertex.
const PLACE_BYTES: u64 = 4;

/// Distances between queries and vertices. The caller implements them.
pub trait Distances {
    /// Returns the distance between a query and a vertex.
    fn distance(&self, query: u32, vertex: u32) -> f64;

    /// Returns a number that is unique for each vertex. Vertices with equal distances are ordered by it.
    fn rank(&self, vertex: u32) -> u32 {
        vertex
    }

    /// Returns the start of the search for a query, or `None` if it is the entry of the graph. The distances that
    /// were computed to find the start are counted as distances in memory.
    fn start(&self, _query: u32) -> Option<Start> {
        None
    }
}

/// Start of the search for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The first vertex.
    pub vertex: u32,
    /// Number of distances that were computed to find this vertex.
    pub distances: u64,
}

/// Options of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions {
    /// Platform that runs the search.
    pub platform: Platform,
    /// Maximum length of a walk's candidate list.
    pub list: usize,
    /// Number of nearest vertices to return per query.
    pub k: usize,
    /// Number of queries per batch.
    pub batch: usize,
    /// Number of elements per vector.
    pub dimensions: u32,
    /// Whether planes of a LUN sense pages together if the addresses allow it.
    pub multi_plane: bool,
    /// Whether queries share pages (batch-wise dynamic allocating). Ignored on platforms that do not support it.
    pub allocating: bool,
    /// Whether the vertices of the next step are predicted and read early (speculative searching). Ignored unless
    /// LUNs compare.
    pub speculating: bool,
    /// Fraction of the vertices that are held in the platform's memory. If the platform compares on the host, it is
    /// the memory of its processors. Otherwise it is the DRAM of the device.
    pub memory_share: f64,
    /// Maximum number of timeline spans to keep.
    pub spans: usize,
}

/// Duration of each stage, summed over batches, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Transfer of queries, results and shards over links.
    pub io: Ps,
    /// Determining which vertices are needed, and their addresses.
    pub allocating: Ps,
    /// Reading pages and comparing vectors.
    pub searching: Ps,
    /// Returning distances to queries.
    pub gathering: Ps,
    /// Sorting lists. Except for the last batch, this overlaps with the next batch.
    pub sorting: Ps,
}

/// Result of a search.
#[derive(Debug, Clone)]
pub struct SearchReport {
    /// The nearest vertices of each query.
    pub hits: Vec<Vec<Hit>>,
    /// Seconds from the start of the first batch to the end of the last one.
    pub seconds: f64,
    /// Time by stage.
    pub stages: Stages,
    /// Number of distances that walks requested. It is the sum of the lengths of their traces.
    pub wanted: u64,
    /// Number of requested distances to vertices in memory.
    pub in_memory: u64,
    /// Number of requested distances that speculation had computed already.
    pub speculated: u64,
    /// Number of distances that speculation computed.
    pub speculations: u64,
    /// Number of steps of all batches.
    pub steps: u64,
    /// Number of rounds in these steps. A step has several rounds if queues were full.
    pub rounds: u64,
    /// Fraction of the LUNs that were used in a batch, averaged over the batches.
    pub luns_touched: f64,
    /// Counts of the device's operations.
    pub counts: Counts,
    /// Busy times of resources.
    pub uses: Vec<Use>,
    /// Energy that the search takes.
    pub energy: Energy,
    /// The first spans of the timeline.
    pub spans: Vec<Span>,
}

impl SearchReport {
    /// Returns the number of queries per second.
    pub fn queries_per_second(&self) -> f64 {
        self.hits.len() as f64 / self.seconds
    }

    /// Returns the number of pages read per requested distance (NDSearch, section VII-B: page access ratio).
    pub fn page_access_ratio(&self) -> f64 {
        self.counts.page_reads as f64 / self.wanted.max(1) as f64
    }
}

/// Simulates the search for the queries with the numbers `0..queries`.
pub fn search(
    device: &Device,
    layout: &LunCsr,
    distances: &dyn Distances,
    queries: u32,
    options: &SearchOptions,
) -> Result<SearchReport, FlashError> {
    check(device, layout, queries, options)?;
    let mut run = Run::new(device, layout, distances, options);
    let mut hits = Vec::with_capacity(queries as usize);
    let (mut sorted, mut touched) = (0, 0.0);
    let batches: Vec<Range<u32>> = (0..queries)
        .step_by(options.batch)
        .map(|from| from..queries.min(from.saturating_add(options.batch as u32)))
        .collect();
    for batch in &batches {
        hits.extend(run.batch(batch.clone()));
        let sort = run.sorting(batch.len() as u64);
        run.stages.sorting += sort;
        // The sorter begins when it has finished earlier batches and this batch has ended. The next batch runs at the
        // same time.
        sorted = run.now.max(sorted) + sort;
        touched += run.touched.iter().filter(|touched| **touched).count() as f64 / run.touched.len() as f64;
        run.touched.fill(false);
    }
    let elapsed = run.now.max(sorted);
    let counts = run.machine.counts;
    Ok(SearchReport {
        hits,
        seconds: seconds(elapsed),
        stages: run.stages,
        wanted: run.wanted,
        in_memory: run.in_memory,
        speculated: run.speculated,
        speculations: run.speculations,
        steps: run.steps,
        rounds: run.rounds,
        luns_touched: touched / batches.len().max(1) as f64,
        counts,
        uses: run.machine.uses(),
        energy: Energy::of(device, &counts, elapsed, options.platform.watts(device)),
        spans: [run.timeline.into_spans(), run.machine.into_spans()].concat(),
    })
}

fn check(device: &Device, layout: &LunCsr, queries: u32, options: &SearchOptions) -> Result<(), FlashError> {
    let refuse = |said: String| Err(FlashError::Input(said));
    let SearchOptions { list, k, batch, memory_share, dimensions, .. } = *options;
    if list == 0 || k == 0 || k > list {
        return refuse(format!("a list of {list} is shorter than the {k} nearest; give a list of at least {k}"));
    }
    if batch == 0 || queries == 0 || dimensions == 0 {
        return refuse(format!(
            "{queries} queries of {dimensions} elements in batches of {batch}; give at least 1 each"
        ));
    }
    if !(0.0..=1.0).contains(&memory_share) {
        return refuse(format!("a fraction of {memory_share} in memory; give 0 to 1"));
    }
    if layout.geometry() != device.geometry() {
        return refuse("the graph was laid out for another device; lay it out for this one".into());
    }
    Ok(())
}

/// Query and hit of each distance that a step computed.
type Found = Vec<(u32, Hit)>;

/// Vertices that the queries of a batch expand in a step.
struct Expansions<'a> {
    /// Pairs of a query and the vertex that it expands.
    vertices: &'a [(u32, u32)],
    /// Walks of the batch. The first one is of query `first`, the next one of the next query.
    walks: &'a [Walk],
    first: u32,
}

impl Expansions<'_> {
    fn walk(&self, query: u32) -> &Walk {
        &self.walks[(query - self.first) as usize]
    }
}

struct Run<'a> {
    device: &'a Device,
    layout: &'a LunCsr,
    distances: &'a dyn Distances,
    options: SearchOptions,
    machine: Machine<'a>,
    /// Simulated time that the batch has reached.
    now: Ps,
    stages: Stages,
    is_in_memory: Vec<bool>,
    shards: Option<Shards>,
    comparison: Ps,
    /// Tasks and groups of the speculative reads in progress.
    speculation: Allocation,
    touched: Vec<bool>,
    wanted: u64,
    in_memory: u64,
    speculated: u64,
    speculations: u64,
    steps: u64,
    rounds: u64,
    timeline: Timeline,
}

impl<'a> Run<'a> {
    fn new(device: &'a Device, layout: &'a LunCsr, distances: &'a dyn Distances, options: &SearchOptions) -> Self {
        let platform = options.platform;
        let place = platform.place();
        let usage =
            Usage { place, multi_plane: options.multi_plane && place < Place::Fpga, units: platform.units(device) };
        // Shards are loaded before their vertices are compared, so all comparisons are in memory.
        let is_all = platform == Platform::CpuDram || platform.loads_shards();
        let share = if is_all { 1.0 } else { options.memory_share };
        let mut is_in_memory = vec![false; layout.vertices() as usize];
        let held = (share * f64::from(layout.vertices())).floor() as usize;
        // `hottest` omits vertices that cannot be reached from the entry. Therefore "all vertices" is a separate
        // case.
        match held == is_in_memory.len() {
            true => is_in_memory.fill(true),
            false => layout.hottest(held).into_iter().for_each(|vertex| is_in_memory[vertex as usize] = true),
        }
        Self {
            device,
            layout,
            distances,
            options: *options,
            machine: Machine::new(device, usage, Timeline::of(options.spans)),
            now: 0,
            stages: Stages::default(),
            is_in_memory,
            shards: Shards::of(device, layout, options),
            comparison: platform.comparison(device, options.dimensions),
            speculation: Allocation::default(),
            touched: vec![false; device.geometry.luns() as usize],
            wanted: 0,
            in_memory: 0,
            speculated: 0,
            speculations: 0,
            steps: 0,
            rounds: 0,
            timeline: Timeline::of(options.spans),
        }
    }

    /// Searches for a batch of queries.
    fn batch(&mut self, queries: Range<u32>) -> Vec<Vec<Hit>> {
        let first = queries.start;
        self.io(queries.len() as u64 * u64::from(self.layout.vector_bytes()));
        let mut walks = self.begin_walks(queries.clone());
        let mut wanted = Vec::new();
        self.shards.iter_mut().for_each(Shards::begin_batch);
        loop {
            // All queries advance by one step, so that their pages can be requested together (NDSearch, Algorithm 1).
            wanted.clear();
            let mut leading = Vec::new();
            let mut vertices = Vec::new();
            for (query, walk) in queries.clone().zip(&mut walks) {
                vertices.clear();
                if let Some(vertex) = walk.next(self.layout, &mut vertices) {
                    leading.push((query, vertex));
                    wanted.extend(vertices.iter().map(|&vertex| (query, vertex)));
                }
            }
            if leading.is_empty() {
                break;
            }
            self.steps += 1;
            self.allocating(&leading);
            self.load_shards(&wanted);
            let found = self.searching(&wanted, &Expansions { vertices: &leading, walks: &walks, first });
            self.gathering(found.len() as u64);
            for (query, hit) in found {
                walks[(query - first) as usize].take(hit, self.distances.rank(hit.vertex));
            }
        }
        // No step is left that could use speculative reads.
        self.machine.give_up_waiting();
        self.io(queries.len() as u64 * self.options.k as u64 * self.device.config.count("search.result"));
        walks.iter().map(|walk| walk.hits(self.options.k)).collect()
    }

    /// Starts the walk of each query at its first vertex. Layers above the graph may have been searched to find
    /// it; they are in memory.
    fn begin_walks(&mut self, queries: Range<u32>) -> Vec<Walk> {
        let at_entry = Start { vertex: self.layout.entry(), distances: 0 };
        let starts: Vec<Start> = queries.map(|query| self.distances.start(query).unwrap_or(at_entry)).collect();
        let distances = starts.iter().map(|start| start.distances).sum();
        let takes = self.of_memory(distances);
        (self.wanted, self.in_memory) = (self.wanted + distances, self.in_memory + distances);
        self.stages.searching += takes;
        self.spend("layers above", takes);
        starts.into_iter().map(|start| Walk::new(self.options.list, start.vertex)).collect()
    }

    /// Returns how long a step takes for `vertices` vertices in memory.
    fn of_memory(&self, vertices: u64) -> Ps {
        let bytes = vertices * u64::from(self.layout.vector_bytes());
        self.options.platform.in_memory(self.device, self.options.dimensions, vertices, bytes)
    }

    fn spend(&mut self, name: &'static str, takes: Ps) {
        self.timeline.add(Track::Batch, name, self.now, self.now + takes);
        self.now += takes;
    }

    /// Adds the time to transfer bytes between host and device. It is 0 if the host compares, since it already has
    /// the queries.
    fn io(&mut self, bytes: u64) {
        if self.options.platform.place() != Place::Host {
            let takes = self.device.host_link.time(bytes) + self.device.latency;
            self.stages.io += takes;
            self.spend("host", takes);
        }
    }

    /// Adds the time to load the shards that this step needs. It is 0 if the platform loads no shards.
    fn load_shards(&mut self, wanted: &[(u32, u32)]) {
        let Some(shards) = &mut self.shards else { return };
        let loads = shards.load(wanted);
        let (takes, bytes) = shards.cost(loads);
        if loads > 0 {
            let ends = self.machine.transfer(self.now, takes, bytes) + self.device.latency;
            self.stages.io += ends - self.now;
            self.spend("shards", ends - self.now);
        }
    }

    /// Adds the time of the vertex generator, a pipeline that reads neighbors from DRAM and processes one per cycle
    /// (NDSearch, section IV-C2). Only platforms within the device have one.
    fn allocating(&mut self, leading: &[(u32, u32)]) {
        if self.options.platform.place() > Place::Channel {
            return;
        }
        let neighbors: u64 = leading.iter().map(|&(_, vertex)| self.layout.neighbors(vertex).len() as u64).sum();
        let bytes = leading.len() as u64 * OFFSET_BYTES + neighbors * (NEIGHBOR_BYTES + PLACE_BYTES);
        let cycles = neighbors as f64 * 1e6 / self.device.config.value("search.clock");
        // The pipeline reads a list while it processes earlier ones, so only the slower of both counts.
        let takes = (cycles.round() as Ps).max(self.device.dram.time(bytes));
        self.stages.allocating += takes;
        self.spend("allocating", takes);
    }

    /// Computes the distances that this step requests. Then starts to speculate on the distances of the next step.
    fn searching(&mut self, wanted: &[(u32, u32)], expansions: &Expansions<'_>) -> Found {
        self.wanted += wanted.len() as u64;
        let mut found = Found::with_capacity(wanted.len());
        let known = self.speculated_until_now();
        let begins = self.now;
        let (mut in_memory, mut on_flash) = (0, Vec::with_capacity(wanted.len()));
        for &(query, vertex) in wanted {
            if let Some(&distance) = known.get(&(query, vertex)) {
                found.push((query, Hit { distance, vertex }));
                self.speculated += 1;
            } else if self.is_in_memory[vertex as usize] {
                found.push((query, self.compared(query, vertex)));
                in_memory += 1;
            } else {
                on_flash.push((query, vertex));
            }
        }
        self.in_memory += in_memory;
        let allocation = Allocation::of(self.layout, &on_flash, self.allocating_rule());
        self.rounds += allocation.rounds.len() as u64;
        for round in &allocation.rounds {
            self.read(&allocation, round.clone(), 0);
            self.finish(&allocation, round.len(), &mut found);
        }
        let platform = self.options.platform;
        let of_memory = self.of_memory(in_memory);
        let launch = if platform.launches() { self.device.config.value("gpu.launch") * 1e6 } else { 0.0 } as Ps;
        // Vertices in memory are compared while pages are read. On a GPU, each step takes one launch of a kernel.
        self.now = self.now.max(begins + of_memory) + launch;
        self.timeline.add(Track::Batch, "searching", begins, self.now);
        self.stages.searching += self.now - begins;
        if self.options.speculating && platform.place() == Place::Lun {
            self.begin_speculation(expansions, self.now - begins);
        }
        found
    }

    fn compared(&self, query: u32, vertex: u32) -> Hit {
        Hit { distance: self.distances.distance(query, vertex), vertex }
    }

    fn allocating_rule(&self) -> Allocating {
        let platform = self.options.platform;
        let queue = match platform.place() {
            Place::Lun => {
                let bytes = self.device.config.count("search.query_queue") as usize;
                (bytes / self.layout.vector_bytes() as usize).max(1)
            }
            // At other places, vectors of queries are not sent to LUNs, so no queue limits a round.
            _ => usize::MAX,
        };
        Allocating { together: self.options.allocating && platform.can_allocate(), queue }
    }

    /// Submits the page reads of some groups to the device.
    fn read(&mut self, allocation: &Allocation, groups: Range<usize>, token: u64) {
        for number in groups {
            let group = &allocation.groups[number];
            self.touched[group.address.lun as usize] = true;
            let page = self.page_of(allocation, group);
            self.machine.submit(self.now, number as u64 | token, [page]);
        }
    }

    fn page_of(&self, allocation: &Allocation, group: &Group) -> PageRead {
        let figure = |name: &str| self.device.config.count(name) as u32;
        let tasks = group.tasks.len() as u32;
        let place = self.options.platform.place();
        let (in_bytes, out_bytes) = match place {
            Place::Lun | Place::Chip => {
                let vectors = group.queries * self.layout.vector_bytes();
                (vectors + tasks * figure("search.address"), tasks * figure("search.result"))
            }
            _ => (0, 0),
        };
        // A disk transfers only the sectors with needed vectors. Logic within the device receives whole pages.
        let page_bytes = match place {
            Place::Lun | Place::Chip | Place::Channel => self.device.geometry.page_bytes,
            _ => self.sector_bytes(allocation, group),
        };
        let compute = u64::from(tasks) * self.comparison;
        PageRead { address: group.address, in_bytes, page_bytes, out_bytes, compute }
    }

    /// Returns the size of the sectors that contain vectors of a group, in bytes.
    fn sector_bytes(&self, allocation: &Allocation, group: &Group) -> u32 {
        let (vector_bytes, sector) = (self.layout.vector_bytes(), self.device.sector_bytes);
        let per_page = self.device.geometry.page_bytes / vector_bytes;
        let sectors = allocation.tasks[group.tasks.clone()].iter().flat_map(|task| {
            let first = task.vertex % per_page * vector_bytes;
            first / sector..(first + vector_bytes).div_ceil(sector)
        });
        let mut sectors: Vec<u32> = sectors.collect();
        sectors.sort_unstable();
        sectors.dedup();
        sectors.len() as u32 * sector
    }

    /// Waits until `groups` groups have ended, and collects the distances of their tasks.
    fn finish(&mut self, allocation: &Allocation, mut groups: usize, found: &mut Found) {
        while groups > 0 {
            let (end, token) = self.machine.next_end().expect("groups are in progress");
            // Speculative reads that end now are too late and are ignored. Any distance that is needed was requested
            // again.
            if token & SPECULATIVE == 0 {
                groups -= 1;
                self.now = self.now.max(end);
                let tasks = &allocation.tasks[allocation.groups[token as usize].tasks.clone()];
                found.extend(tasks.iter().map(|task| (task.query, self.compared(task.query, task.vertex))));
            }
        }
    }

    /// Starts to read vertices that queries may request in the next step. Choosing them overlaps with the search of
    /// this step, which took `searched`, and stops after that time.
    fn begin_speculation(&mut self, expansions: &Expansions<'_>, searched: Ps) {
        let most = self.device.config.count("search.speculated") as usize;
        let (mut wanted, mut vertices, mut looked_at) = (Vec::new(), Vec::new(), 0);
        for &(query, vertex) in expansions.vertices {
            vertices.clear();
            looked_at += speculate(self.layout, expansions.walk(query), vertex, most, &mut vertices);
            if self.device.dram.time(looked_at * NEIGHBOR_BYTES) > searched {
                break;
            }
            let on_flash = vertices.iter().filter(|&&vertex| !self.is_in_memory[vertex as usize]);
            wanted.extend(on_flash.map(|&vertex| (query, vertex)));
        }
        let mut speculation = Allocation::of(self.layout, &wanted, self.allocating_rule());
        // Only the first round is read. Tasks that do not fit in the queues are dropped.
        speculation.rounds.truncate(1);
        let groups = speculation.rounds.first().map_or(0, |round| round.end);
        self.read(&speculation, 0..groups, self.speculation_token(self.steps));
        self.speculation = speculation;
    }

    fn speculation_token(&self, step: u64) -> u64 {
        SPECULATIVE | step << STEP_BIT
    }

    /// Returns the distances of speculative reads that have ended. Drops speculative reads that have not begun.
    fn speculated_until_now(&mut self) -> HashMap<(u32, u32), f64> {
        let mut known = HashMap::new();
        // `self.steps` already counts the current step. The last speculation belongs to the step before.
        let ours = self.speculation_token(self.steps - 1);
        while let Some((_, token)) = self.machine.next_end_by(self.now) {
            if token >> STEP_BIT != ours >> STEP_BIT {
                continue; // a read of an earlier step; its results are no longer used
            }
            let group = &self.speculation.groups[token as u32 as usize];
            for task in &self.speculation.tasks[group.tasks.clone()] {
                known.insert((task.query, task.vertex), self.distances.distance(task.query, task.vertex));
            }
        }
        // Speculative reads must not delay the reads of this step.
        self.machine.give_up_waiting();
        self.speculations += known.len() as u64;
        known
    }

    /// Adds the time to insert distances into the lists of their queries. On the host, its threads insert them;
    /// otherwise, the cores of the controller.
    fn gathering(&mut self, results: u64) {
        let platform = self.options.platform;
        let takes = match platform.place() {
            Place::Host => self.device.gather * results / u64::from(platform.units(self.device)),
            _ => {
                let bytes = results * self.device.config.count("search.result");
                (self.device.gather * results / u64::from(self.device.cores)).max(self.device.dram.time(bytes))
            }
        };
        self.stages.gathering += takes;
        self.spend("gathering", takes);
    }

    /// Returns how long the FPGA takes to sort the lists of a batch. It uses a bitonic network of log2(n) (log2(n) +
    /// 1) / 2 levels for lists of length n. The lists are transferred over the link of the FPGA.
    fn sorting(&self, queries: u64) -> Ps {
        if self.options.platform.place() == Place::Host {
            return 0;
        }
        // The number of inputs of a bitonic network is a power of two.
        let list = (self.options.list as u64).next_power_of_two();
        let levels = u64::from(list.ilog2()) * (u64::from(list.ilog2()) + 1) / 2;
        let figure = |name: &str| self.device.config.value(name);
        // Each level compares the elements in pairs.
        let cycles = (queries * levels * (list / 2)) as f64 / figure("sorter.comparators");
        let bytes = queries * self.options.list as u64 * self.device.config.count("search.result");
        (cycles * 1e6 / figure("sorter.clock")).round() as Ps + self.device.fpga_link.time(bytes)
    }
}

#[cfg(test)]
mod tests;
