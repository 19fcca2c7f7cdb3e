//! A pass over the store that finds, for each pair of buckets, the least threshold of the union rule at which the pair
//! is compared.

use std::ops::Range;

use adjoin_device::Reservation;
use adjoin_kernels::{LEAST_RANKS, LeastOfColumn, PackedColumns};

use super::PLAN_PURPOSE;
use super::edge_sides::{EdgeSides, Gathered, room_for_edges};
use super::margins::CHUNK_CENTERS;
use super::near_rows::{NearRows, larger};
use super::neighbors::NeighborSearch;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;
use crate::load::{self, Buckets, LoadedBucket};
use crate::plan::{Gap, Measure, Nearness, Rule, RulePart, Task, ThresholdGraph, excess_limits};

/// Minimum memory for edges that are being collected.
const EDGES_BYTES_MIN: u64 = 2 << 20;
/// Number of edges for which memory is reserved in one step.
const GROWN_AT_ONCE: usize = 1024;
/// Ranks whose measures are recorded: the member with the least measure has rank 1.
const RANKS: [usize; 3] = [1, 2, LEAST_RANKS];

/// Limits of the search for edges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    /// The largest threshold that may be needed.
    pub(super) t: f64,
    /// Number of nearest centers to examine for each center, in addition to all within eps.
    pub(super) centers: usize,
}

/// The edges within a horizon. If the edges do not fit in memory, only their sides are stored, and edges are computed
/// from the sides on each request.
pub(super) struct NearGraph {
    sides: Option<Gathered<Nearness>>,
    horizon: Horizon,
    /// All edges, or only the edges that were requested when the graph was built.
    known: ThresholdGraph,
    /// Memory of the sides and the edges.
    memory: Reservation,
}

impl NearGraph {
    /// Returns the least threshold at which an edge exists. Infinite if there is no such edge, or if only some edges
    /// are in memory and this one is not among them.
    pub(super) fn edge_t(&self, i: u32, j: u32) -> f64 {
        self.known.edge_t(i, j)
    }

    /// Returns the edges that a threshold admits, in ascending order, and the reservation for their memory.
    pub(super) fn edges<T: Coordinate>(
        &self,
        search: &NeighborSearch<'_, T>,
        t: f64,
    ) -> Result<(Vec<Task>, Reservation)> {
        let context = search.context;
        let most = self.sides.as_ref().map_or(self.known.edges.len(), Gathered::count);
        let mut edges: Vec<Task> = room_for_edges(context, most);
        let mut memory = context.reserve(0, PLAN_PURPOSE)?;
        self.each_edge(search, |(i, j, edge_t)| {
            if f64::from(edge_t) > t {
                return Ok(());
            }
            edges.push((i, j));
            // Memory is reserved in steps, not for each edge.
            match edges.len().is_multiple_of(GROWN_AT_ONCE) {
                true => context.grow(&mut memory, size_of_val(&*edges) as u64, PLAN_PURPOSE),
                false => Ok(()),
            }
        })?;
        context.grow(&mut memory, size_of_val(&*edges) as u64, PLAN_PURPOSE)?;
        edges.shrink_to_fit();
        edges.sort_unstable();
        Ok((edges, memory))
    }

    /// Computes all edges if they fit in memory together with their sides. Returns whether they do. There is at most
    /// one edge per side.
    fn make_all<T: Coordinate>(&mut self, search: &NeighborSearch<'_, T>) -> Result<bool> {
        let (context, sides) =
            (search.context, self.sides.as_ref().expect("the sides are kept until all edges are computed"));
        let (free, of_all) = (context.budget().free(), (sides.count() * size_of::<(u32, u32, f32)>()) as u64);
        let bytes = of_all + sides.bytes_of_map(context.threads);
        // The edges are computed only if they leave half of the memory to the rest of the plan.
        if of_all > free / 2 || bytes > free {
            return Ok(false);
        }
        let mut memory = context.reserve(bytes, PLAN_PURPOSE)?;
        let parts = sides.map(context.threads, |sides| {
            let mut some = ThresholdGraph::default();
            edges_of(search, sides, self.horizon, &mut some);
            some.edges
        })?;
        // Each part is freed once it is copied, and unused capacity takes no memory. So the edges are not held twice.
        let mut edges = Vec::with_capacity(parts.iter().map(Vec::len).sum());
        parts.into_iter().for_each(|part| edges.extend(part));
        self.known.edges = edges;
        self.known.edges.sort_unstable_by_key(|&(i, j, _)| (i, j));
        memory.shrink(size_of_val(&*self.known.edges) as u64);
        (self.sides, self.memory) = (None, memory);
        Ok(true)
    }

    /// Computes the edges `wanted`, which must be in ascending order.
    fn make_some<T: Coordinate>(&mut self, search: &NeighborSearch<'_, T>, wanted: &[Task]) -> Result<()> {
        let mut known = Vec::with_capacity(wanted.len());
        self.each_edge(search, |edge| {
            if wanted.binary_search(&(edge.0, edge.1)).is_ok() {
                known.push(edge);
            }
            Ok(())
        })?;
        known.sort_unstable_by_key(|&(i, j, _)| (i, j));
        self.known.edges = known;
        Ok(())
    }

    fn each_edge<T: Coordinate>(
        &self,
        search: &NeighborSearch<'_, T>,
        mut take: impl FnMut((u32, u32, f32)) -> Result<()>,
    ) -> Result<()> {
        match &self.sides {
            Some(sides) => {
                let mut some = ThresholdGraph::default();
                sides.each(|sides| {
                    some.edges.clear();
                    edges_of(search, sides, self.horizon, &mut some);
                    some.edges.iter().try_for_each(|&edge| take(edge))
                })
            }
            None => self.known.edges.iter().try_for_each(|&edge| take(edge)),
        }
    }
}

/// Computes the edges of some sides, and adds them to `edges`.
fn edges_of<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    sides: &[Nearness],
    horizon: Horizon,
    edges: &mut ThresholdGraph,
) {
    let NeighborSearch { buckets, threshold, .. } = *search;
    let rows = |bucket: u32| buckets.members(bucket);
    edges.add(sides, horizon.t, rows, |i, j| Rule::Union.parts(threshold.distance, gap_of(search, i, j)));
}

/// Finds the edges. Returns the graph, and the number of distances to centers that were computed. The thresholds of
/// the edges `wanted`, which must be in ascending order, are in memory in any case.
pub(super) fn near_graph<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    horizon: Horizon,
    wanted: &[Task],
) -> Result<(NearGraph, u64)> {
    let NeighborSearch { context, buckets, centers, read_ahead, .. } = *search;
    let of_known = size_of_val(wanted) as u64 / 2 * 3; // an edge with its threshold takes 1.5 times an edge
    let of_pass = read_ahead + pass_bytes::<T>(buckets, context.threads) + of_known;
    // Only a quarter of the remaining memory is for sides; the edges get the rest.
    let on_their_way = (context.budget().free().saturating_sub(of_pass) / 4).max(EDGES_BYTES_MIN);
    let mut memory = context.reserve(of_pass + on_their_way, PLAN_PURPOSE)?;
    let sides = EdgeSides::new(context, buckets.count(), on_their_way);
    let pass = NearnessPass { search, horizon, reach: candidate_reach(search, horizon.centers)?, sides: &sides };
    let count = centers.rows();
    let distances = pass.run()?;
    let computed = distances.iter().sum::<u64>() + (count * count) as u64;
    drop(pass);
    let sides = sides.gather()?;
    memory.shrink(sides.bytes() + of_known);
    let mut graph = NearGraph { sides: Some(sides), horizon, known: ThresholdGraph::default(), memory };
    if !graph.make_all(search)? {
        graph.make_some(search, wanted)?;
    }
    Ok((graph, computed))
}

fn gap_of<T: Coordinate>(search: &NeighborSearch<'_, T>, i: u32, j: u32) -> Gap {
    let centers = search.centers;
    let squared = search.context.kernel.distance(centers.row(i as usize), centers.row(j as usize));
    Gap { squared: T::at_most(squared, centers.dimensions()) }
}

/// Maximum number of nearest centers to examine for each center, unless all are examined.
pub(super) const CENTERS_MAX: usize = 512;
/// Number of centers that are compared with all others at once.
const BLOCK_CENTERS: usize = 32;

/// Returns for each center the squared distance within which other centers are examined. It is the squared distance of
/// the `count`-th nearest center, but at least eps squared. Buckets without members have a reach of 0.
fn candidate_reach<T: Coordinate>(search: &NeighborSearch<'_, T>, count: usize) -> Result<Vec<T::Distance>> {
    let NeighborSearch { context, buckets, centers, threshold, .. } = *search;
    let mut reach = vec![T::Distance::default(); centers.rows()];
    for part in buckets.parts() {
        let with_members = |numbers: Range<u32>| numbers.filter(|&number| buckets.members(number) > 0);
        let partners: Vec<u32> = with_members(buckets.partners(part.start)).collect();
        let numbers: Vec<u32> = with_members(part).collect();
        // If there are fewer centers than `count`, all of them are examined.
        if count >= partners.len() {
            numbers.iter().for_each(|&number| reach[number as usize] = T::FARTHEST);
            continue;
        }
        let blocks: Vec<&[u32]> = numbers.chunks(BLOCK_CENTERS).collect();
        let state = || NearestCenters::new(search, count);
        let squared = map_items(context.threads, blocks.len(), &context.cancel, state, |nearest, block| {
            // The partners in the order of the tree that are near the block are compared first.
            let first = partners.partition_point(|&partner| partner < blocks[block][0]);
            Ok(nearest.farthest(blocks[block], [&partners[first..], &partners[..first]]))
        })?;
        let least = T::tile_limit(threshold);
        for (&number, squared) in numbers.iter().zip(squared.into_iter().flatten()) {
            reach[number as usize] = larger(squared, least);
        }
    }
    Ok(reach)
}

/// Finds the nearest centers of a block of centers.
struct NearestCenters<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    /// A center's nearest center has the index 0. The one with this index is the last one to find.
    last: usize,
    block: PackedColumns<T>,
    /// For each center of the block, the distances of some centers. They include the nearest ones.
    nearest: Vec<Vec<T::Distance>>,
    /// Distances of others to all centers of the block.
    distances: Vec<T::Distance>,
}

impl<'a, T: Coordinate> NearestCenters<'a, T> {
    fn new(search: &'a NeighborSearch<'a, T>, count: usize) -> Self {
        let block = search.context.kernel.pack(search.centers, &[]);
        Self { search, last: count, block, nearest: vec![Vec::new(); BLOCK_CENTERS], distances: Vec::new() }
    }

    /// Returns the memory in bytes.
    fn memory_bytes(centers: usize, dimensions: usize) -> u64 {
        let nearest = centers.min(Self::distances_max(CENTERS_MAX)) * BLOCK_CENTERS * size_of::<T::Distance>();
        let distances = CHUNK_CENTERS.min(centers) * BLOCK_CENTERS * size_of::<T::Distance>();
        PackedColumns::<T>::bytes_for(BLOCK_CENTERS, dimensions) + (nearest + distances) as u64
    }

    /// Returns the number of distances after which only the nearest ones are kept.
    fn distances_max(last: usize) -> usize {
        2 * last + 2
    }

    /// Returns for each center of `block` the squared distance of the last one of its nearest centers among `others`.
    /// There must be enough others.
    fn farthest(&mut self, block: &[u32], others: [&[u32]; 2]) -> Vec<T::Distance> {
        let NeighborSearch { context, centers, .. } = *self.search;
        context.kernel.pack_into(centers, block, &mut self.block);
        self.nearest.iter_mut().for_each(Vec::clear);
        let mut limits = vec![T::FARTHEST; block.len()];
        for others in others.iter().flat_map(|others| others.chunks(CHUNK_CENTERS)) {
            self.distances.resize(others.len() * block.len(), T::Distance::default());
            context.kernel.many_to_many(centers, others, &self.block, &mut self.distances);
            for distances in self.distances.chunks_exact(block.len()) {
                // Most centers are far from the whole block. The compiler vectorizes this loop.
                let is_near = distances.iter().zip(&limits).fold(false, |any, (one, limit)| any | (one <= limit));
                if is_near {
                    add_near::<T>(distances, &mut limits, &mut self.nearest, self.last);
                }
            }
        }
        self.nearest[..block.len()].iter_mut().map(|nearest| nth_least::<T>(nearest, self.last)).collect()
    }
}

/// Adds the distances of a center that are within the limits to the lists of a block. If a list is full, it is cut, and
/// its limit is lowered.
fn add_near<T: Coordinate>(
    distances: &[T::Distance],
    limits: &mut [T::Distance],
    nearest: &mut [Vec<T::Distance>],
    last: usize,
) {
    for ((&distance, limit), nearest) in distances.iter().zip(limits).zip(nearest) {
        if distance > *limit {
            continue;
        }
        nearest.push(distance);
        if nearest.len() == NearestCenters::<T>::distances_max(last) {
            *limit = nth_least::<T>(nearest, last);
            nearest.truncate(last + 1);
        }
    }
}

/// Returns the distance with the index `nth` in ascending order. The distances up to `nth` are moved to the front.
fn nth_least<T: Coordinate>(distances: &mut [T::Distance], nth: usize) -> T::Distance {
    // A computation that overflows may return NaN, which is nowhere near.
    let order = |a: &T::Distance, b: &T::Distance| T::distance_key(*a).cmp(&T::distance_key(*b));
    if nth < distances.len() { *distances.select_nth_unstable_by(nth, order).1 } else { T::FARTHEST }
}

struct NearnessPass<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    horizon: Horizon,
    /// For each center, the squared distance within which it examines others.
    reach: Vec<T::Distance>,
    sides: &'a EdgeSides<'a, Nearness>,
}

/// State of a worker of a pass.
struct Around<T: Coordinate> {
    near_rows: NearRows<T>,
    numbers: Vec<u32>,
    squared: Vec<T::Distance>,
    members: Vec<u32>,
    columns: PackedColumns<T>,
    least: Vec<LeastOfColumn<T>>,
}

/// Another bucket to examine.
struct Candidate {
    bucket: u32,
    /// Parts of the rule. For each part, the excess above which no member can be part of a pair.
    parts: [Option<(RulePart, f64)>; 2],
    /// Dimensions of the vectors.
    dimensions: usize,
}

impl<T: Coordinate> NearnessPass<'_, T> {
    fn run(&self) -> Result<Vec<u64>> {
        let NeighborSearch { context, buckets, centers, kept, read_ahead, .. } = *self.search;
        let pass = load::BucketPass { context, buckets, centers, phase: "plan", read_ahead };
        let state = || Around {
            near_rows: NearRows::new(context.kernel, centers.dimensions()),
            numbers: Vec::new(),
            squared: Vec::new(),
            members: Vec::new(),
            columns: context.kernel.pack(centers, &[]),
            least: Vec::new(),
        };
        pass.run_keeping(kept, state, |around, number, bucket| self.look_around(number, bucket, around))
    }

    /// Records the least measures of a bucket's members towards all candidates. Returns the number of distances
    /// computed.
    fn look_around(&self, number: u32, bucket: &LoadedBucket<T>, around: &mut Around<T>) -> Result<u64> {
        let NeighborSearch { context, buckets, centers, threshold, .. } = *self.search;
        let own_radius = buckets.radius(number);
        let candidate = |(other, squared): (u32, f64)| {
            let gap = Gap { squared };
            let parts = Rule::Union.parts(threshold.distance, gap);
            let radius = buckets.radius(other);
            let [first, second] = excess_limits(&parts, self.horizon.t, gap, radius);
            let parts = [parts[0].map(|part| (part, first)), parts[1].map(|part| (part, second))];
            // If even the nearest possible member is too far away, nothing needs to be computed.
            let reached = |(part, limit): &(RulePart, f64)| part.excess(gap.least(part.measure, own_radius)) <= *limit;
            let near = parts.iter().flatten().any(reached);
            near.then_some(Candidate { bucket: other, parts, dimensions: centers.dimensions() })
        };
        let all: Vec<Candidate> = self.around(number, around).into_iter().filter_map(candidate).collect();
        let Around { numbers, members, columns, least, .. } = around;
        members.clear();
        members.extend(0..bucket.len() as u32);
        for candidates in all.chunks(CHUNK_CENTERS) {
            numbers.clear();
            numbers.extend(candidates.iter().map(|candidate| candidate.bucket));
            context.kernel.pack_into(centers, numbers, columns);
            least.resize(numbers.len(), LeastOfColumn::NONE);
            context.kernel.least_of_columns(&bucket.members.panel, members, &bucket.own, columns, least);
            let near = candidates.iter().zip(&*least);
            let near = near.filter_map(|(candidate, least)| candidate.nearness(number, members.len(), least));
            self.sides.take(near)?;
        }
        Ok((all.len() * bucket.len()) as u64)
    }

    /// Returns the candidates of a bucket in ascending order, with the squared distances between the centers.
    fn around(&self, number: u32, around: &mut Around<T>) -> Vec<(u32, f64)> {
        let NeighborSearch { context, buckets, centers, .. } = *self.search;
        let Around { near_rows, numbers, squared, .. } = around;
        let (kernel, reach) = (context.kernel, |center: u32| self.reach[center as usize]);
        numbers.clear();
        near_rows.find(
            kernel,
            (centers, number),
            centers,
            reach,
            |row| self.reach[row],
            |other| {
                if buckets.may_meet(number, other) {
                    numbers.push(other);
                }
            },
        );
        squared.resize(numbers.len(), T::Distance::default());
        kernel.one_to_some(centers.row(number as usize), centers, numbers, squared);
        let near = numbers.iter().zip(&*squared);
        let near = near.filter(|&(&other, &squared)| squared <= larger(reach(number), reach(other)));
        near.map(|(&other, &squared)| (other, T::at_most(squared, centers.dimensions()))).collect()
    }
}

impl Candidate {
    /// Returns the side of the edge from a bucket of `members` members towards this candidate. `None` if no member can
    /// be part of a pair.
    fn nearness<T: Coordinate>(&self, from: u32, members: usize, of: &LeastOfColumn<T>) -> Option<Nearness> {
        let mut least = [[f32::INFINITY; RANKS.len()]; 2];
        for ((part, limit), least) in self.parts.iter().flatten().zip(&mut least) {
            for (least, wanted) in least.iter_mut().zip(RANKS) {
                // If a bucket has fewer members than ranks, the later ranks use the last member.
                let rank = wanted.min(members) - 1;
                let measure = match part.measure {
                    Measure::Distance => T::at_least(of.distances[rank], self.dimensions),
                    Measure::Margin => of.margins[rank].into(),
                };
                let excess = part.excess(measure);
                if excess <= *limit {
                    // The excess is rounded up: a threshold that is slightly too small would not admit the edge.
                    *least = (excess as f32).next_up();
                }
            }
        }
        let near = least.iter().any(|least| least[0] < f32::INFINITY);
        near.then_some(Nearness { from, towards: self.bucket, least })
    }
}

/// Returns the least memory in bytes for finding edges, without the centers and the read-ahead.
pub(super) fn least_bytes<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    EDGES_BYTES_MIN + pass_bytes::<T>(buckets, threads)
}

/// Returns the memory in bytes of a pass, without the edges that are being collected.
fn pass_bytes<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    let (centers, dimensions) = (buckets.extents().len(), buckets.vectors().dimensions);
    let columns = adjoin_kernels::PackedColumns::<T>::bytes_for(CHUNK_CENTERS.min(centers), dimensions);
    let chunk = CHUNK_CENTERS.min(centers) * (size_of::<LeastOfColumn<T>>() + 4) + 4 * buckets.rows_max();
    let a_center = size_of::<T::Distance>() + 32 + size_of::<Candidate>() + NearRows::<T>::BYTES_A_ROW as usize;
    let a_worker = columns + NearRows::<T>::memory_bytes(dimensions) + (chunk + centers * a_center) as u64;
    let in_pass = load::BucketPass::<T>::bytes(threads, buckets) + threads as u64 * a_worker;
    // The numbers of the buckets with members exist only while the reach is computed, twice.
    let in_reach = (centers * 8) as u64 + threads as u64 * NearestCenters::<T>::memory_bytes(centers, dimensions);
    (centers * size_of::<T::Distance>()) as u64 + in_pass.max(in_reach)
}
