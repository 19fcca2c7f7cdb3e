//! One pass over the store that finds, for the rules that need a threshold, from which threshold on each pair of
//! buckets is compared.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::PLAN_PURPOSE;
use super::edge_sides::{EdgeSides, Gathered, room_for_edges};
use super::margins::{CHUNK_CENTERS, CHUNK_ROWS};
use super::neighbours::NeighbourSearch;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::load::{self, Buckets, LoadedBucket};
use crate::plan::{
    Gap, Measure, Nearness, Place, Rule, RulePart, Task, ThresholdGraph, bucket_thresholds, excess_limits,
};
use crate::workers::map_items;

/// The least memory for edges on their way.
const EDGES_BYTES_MIN: u64 = 2 << 20;
/// Memory for edges is asked for by so many.
const GROWN_AT_ONCE: usize = 1024;
/// Ranks that are noted.
const RANK_MAX: usize = 4;

/// How far to look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Horizon {
    /// The largest threshold that may be wanted.
    pub(super) t: f64,
    /// So many nearest centers of each are looked at, beside all within eps.
    pub(super) centers: usize,
}

/// What buckets know of each other, of which edges are made as often as they are asked for: there may be more than memory
/// holds.
pub(super) struct NearGraph {
    sides: Gathered<Nearness>,
    horizon: Horizon,
    /// The edges whose thresholds are known at once.
    known: ThresholdGraph,
    /// Of all that.
    _memory: Reservation,
}

impl NearGraph {
    /// The least threshold of an edge that was asked for when this was made; infinite where there is none.
    pub(super) fn edge_t(&self, i: u32, j: u32) -> f64 {
        self.known.edge_t(i, j)
    }

    /// The edges that a threshold admits, ascending, in memory that is reserved for them.
    pub(super) fn edges<T: Coordinate>(
        &self,
        search: &NeighbourSearch<'_, T>,
        t: f64,
    ) -> Result<(Vec<Task>, Reservation)> {
        let context = search.context;
        let mut edges: Vec<Task> = room_for_edges(context, self.sides.count());
        let mut memory = context.reserve(0, PLAN_PURPOSE)?;
        self.each_edge(search, |(i, j, edge_t)| {
            if f64::from(edge_t) > t {
                return Ok(());
            }
            edges.push((i, j));
            // Not for each alone.
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

    fn each_edge<T: Coordinate>(
        &self,
        search: &NeighbourSearch<'_, T>,
        mut take: impl FnMut((u32, u32, f32)) -> Result<()>,
    ) -> Result<()> {
        let NeighbourSearch { buckets, threshold, rule, .. } = *search;
        let rows = |bucket: u32| buckets.extent(bucket).rows;
        let parts = |i: u32, j: u32| rule.parts(threshold.distance, gap_of(search, i, j));
        let mut some = ThresholdGraph::default();
        self.sides.each(|sides| {
            some.edges.clear();
            some.add(sides, self.horizon.t, rows, parts);
            some.edges.iter().try_for_each(|&edge| take(edge))
        })
    }
}

/// Finds the edges, and how many distances to centers that took. The thresholds of the edges `wanted`, which ascend, are
/// known at once.
pub(super) fn near_graph<T: Coordinate>(
    search: &NeighbourSearch<'_, T>,
    horizon: Horizon,
    wanted: &[Task],
) -> Result<(NearGraph, u64)> {
    let NeighbourSearch { context, buckets, centers, rule, read_ahead, .. } = *search;
    let of_known = size_of_val(wanted) as u64 / 2 * 3; // with a threshold each
    let of_pass = read_ahead + pass_bytes::<T>(rule, buckets, context.threads) + of_known;
    // The rest is for the edges, once they are known.
    let on_their_way = (context.budget().free().saturating_sub(of_pass) / 4).max(EDGES_BYTES_MIN);
    let mut memory = context.reserve(of_pass + on_their_way, PLAN_PURPOSE)?;
    let sides = EdgeSides::new(context, buckets.count(), on_their_way);
    let pass = NearnessPass { search, horizon, reach: candidate_reach(search, horizon.centers)?, sides: &sides };
    let count = centers.rows();
    let distances = if rule.takes_whole() {
        context.progress.begin("plan", "centers", count as u64);
        map_items(context.threads, count, &context.cancel, || (), |(), bucket| pass.whole(bucket as u32))?
    } else {
        pass.run()?
    };
    let computed = distances.iter().sum::<u64>() + (count * count) as u64;
    drop(pass);
    let sides = sides.gather()?;
    memory.shrink(sides.bytes() + of_known);
    let mut graph = NearGraph { sides, horizon, known: ThresholdGraph::default(), _memory: memory };
    let mut known = Vec::with_capacity(wanted.len());
    graph.each_edge(search, |edge| {
        if wanted.binary_search(&(edge.0, edge.1)).is_ok() {
            known.push(edge);
        }
        Ok(())
    })?;
    known.sort_unstable_by_key(|&(i, j, _)| (i, j));
    graph.known.edges = known;
    Ok((graph, computed))
}

fn gap_of<T: Coordinate>(search: &NeighbourSearch<'_, T>, i: u32, j: u32) -> Gap {
    let centers = search.centers;
    let squared = search.context.kernel.distance(centers.row(i as usize), centers.row(j as usize));
    Gap { squared: T::at_most(squared, centers.dimensions()) }
}

/// For each center, the squared distance within which others are looked at: that of the `count`-th nearest, at least
/// that of eps.
fn candidate_reach<T: Coordinate>(search: &NeighbourSearch<'_, T>, count: usize) -> Result<Vec<f64>> {
    let NeighbourSearch { context, centers, threshold, .. } = *search;
    let least = threshold.distance.powi(2);
    let state = || vec![T::Distance::default(); centers.rows()];
    map_items(context.threads, centers.rows(), &context.cancel, state, |squared, center| {
        context.kernel.one_to_many(centers.row(center), centers, squared);
        let mut squared: Vec<f64> = squared.iter().map(|&x| T::at_most(x, centers.dimensions())).collect();
        if count >= squared.len() {
            return Ok(f64::INFINITY);
        }
        // At rank 0 lies the center itself.
        Ok(squared.select_nth_unstable_by(count, f64::total_cmp).1.max(least))
    })
}

struct NearnessPass<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    horizon: Horizon,
    reach: Vec<f64>,
    sides: &'a EdgeSides<'a, Nearness>,
}

/// Another bucket that is looked at.
struct Candidate {
    bucket: u32,
    /// Parts of the rule, each with the excess beyond which nobody can take part.
    parts: [Option<(RulePart, f64)>; 2],
    /// The least excesses of members so far, ascending.
    least: [[f32; RANK_MAX]; 2],
}

/// The other buckets that are looked at.
struct Candidates {
    all: Vec<Candidate>,
    /// For each, the largest squared distance and the largest margin of a member that still counts, rounded up.
    distance_reach: Vec<f32>,
    margin_reach: Vec<f32>,
}

/// A worker's state.
#[derive(Default)]
struct Looking<D> {
    distances: Vec<D>,
    /// For each candidate, whether the member at hand may count.
    near: Vec<u8>,
}

impl<T: Coordinate> NearnessPass<'_, T> {
    fn run(&self) -> Result<Vec<u64>> {
        let NeighbourSearch { context, buckets, centers, read_ahead, .. } = *self.search;
        let pass = load::BucketPass { context, buckets, centers, phase: "plan", read_ahead };
        pass.run(Looking::default, |looking, number, bucket| self.look_around(number, bucket, looking))
    }

    /// Notes the least measures of a bucket's members towards all candidates; returns the distances computed.
    fn look_around(&self, number: u32, bucket: &LoadedBucket<T>, looking: &mut Looking<T::Distance>) -> Result<u64> {
        let NeighbourSearch { context, buckets, centers, threshold, rule, .. } = *self.search;
        let own_radius = f64::from(buckets.extent(number).radius);
        let candidate = |(other, squared): (u32, f64)| {
            let gap = Gap { squared };
            let parts = rule.parts(threshold.distance, gap);
            let radius = f64::from(buckets.extent(other).radius);
            let [first, second] = excess_limits(&parts, self.horizon.t, gap, radius);
            let parts = [parts[0].map(|part| (part, first)), parts[1].map(|part| (part, second))];
            // Where even the nearest a member could be is too far, nothing needs to be computed.
            let reached = |(part, limit): &(RulePart, f64)| part.excess(gap.least(part.measure, own_radius)) <= *limit;
            let near = parts.iter().flatten().any(reached);
            near.then_some(Candidate { bucket: other, parts, least: [[f32::INFINITY; RANK_MAX]; 2] })
        };
        let all: Vec<Candidate> = self.around(number).into_iter().filter_map(candidate).collect();
        let mut candidates = Candidates::new(all);
        let members: Vec<u32> = (0..bucket.len() as u32).collect();
        for start in (0..candidates.all.len()).step_by(CHUNK_CENTERS) {
            let chunk = start..candidates.all.len().min(start + CHUNK_CENTERS);
            let others: Vec<u32> = candidates.all[chunk.clone()].iter().map(|candidate| candidate.bucket).collect();
            let columns = context.kernel.pack(centers, &others);
            for members in members.chunks(CHUNK_ROWS) {
                looking.distances.resize(members.len() * others.len(), T::Distance::default());
                context.kernel.many_to_many(&bucket.members.panel, members, &columns, &mut looking.distances);
                for (row, &member) in looking.distances.chunks_exact(others.len()).zip(members) {
                    let own = bucket.own_at_most(member);
                    candidates.note::<T>(chunk.clone(), (row, own), centers.dimensions(), &mut looking.near);
                }
            }
        }
        let computed = candidates.all.len() * bucket.len();
        self.sides.take(candidates.all.iter().filter_map(|candidate| candidate.nearness(number, bucket.len())))?;
        Ok(computed as u64)
    }

    /// Candidates of a bucket, ascending, with the squared distances of their centers.
    fn around(&self, number: u32) -> Vec<(u32, f64)> {
        let NeighbourSearch { context, centers, .. } = *self.search;
        let mut squared = vec![T::Distance::default(); centers.rows()];
        context.kernel.one_to_many(centers.row(number as usize), centers, &mut squared);
        let at_most = squared.iter().map(|&squared| T::at_most(squared, centers.dimensions()));
        let all = (0..).zip(at_most).filter(|&(other, _)| other != number);
        all.filter(|&(other, at)| at <= self.reach[number as usize].max(self.reach[other as usize])).collect()
    }

    /// For a rule that takes buckets whole: the thresholds at which a bucket asks for others.
    fn whole(&self, number: u32) -> Result<u64> {
        let NeighbourSearch { threshold, rule, .. } = *self.search;
        let mut around = self.around(number);
        around.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let squared: Vec<f64> = around.iter().map(|&(_, squared)| squared).collect();
        let thresholds = bucket_thresholds(rule, threshold.distance, &squared);
        let sides = around.iter().zip(&thresholds).map(|(&(towards, _), &t)| Nearness {
            from: number,
            towards,
            least: [[t as f32; 3], [f32::INFINITY; 3]],
        });
        self.sides.take(sides.filter(|side| f64::from(side.least[0][0]) <= self.horizon.t))?;
        Ok(0)
    }
}

impl Candidates {
    fn new(all: Vec<Candidate>) -> Self {
        let [distance_reach, margin_reach] = [(); 2].map(|()| vec![f32::NEG_INFINITY; all.len()]);
        let mut candidates = Self { all, distance_reach, margin_reach };
        (0..candidates.all.len()).for_each(|at| candidates.set_reach(at));
        candidates
    }

    /// Notes how far a candidate reaches: to its limit, and no farther than where its ranks are taken.
    fn set_reach(&mut self, at: usize) {
        let Candidate { parts, least, .. } = &self.all[at];
        for ((part, limit), least) in parts.iter().flatten().zip(least) {
            let reach = part.measure_of(limit.min(least[RANK_MAX - 1].into())) as f32;
            match part.measure {
                Measure::Distance => self.distance_reach[at] = reach.next_up(),
                Measure::Margin => self.margin_reach[at] = reach.next_up(),
            }
        }
    }

    /// Takes a member into account, given its squared distances to some candidates and to its own center: a quick look
    /// tells which may count, as after the first few members hardly any do.
    fn note<T: Coordinate>(
        &mut self,
        chunk: std::ops::Range<usize>,
        (squared, own): (&[T::Distance], f64),
        dimensions: usize,
        near: &mut Vec<u8>,
    ) {
        let start = chunk.start;
        near.clear();
        let reaches = self.distance_reach[chunk.clone()].iter().zip(&self.margin_reach[chunk]);
        let (own_up, widened) = ((own as f32).next_up(), T::widened(dimensions));
        near.extend(squared.iter().zip(reaches).map(|(&squared, (&distance, &margin))| {
            let by_margin = margin + own_up;
            let reach = if by_margin > distance { by_margin } else { distance };
            u8::from(T::rough(squared) <= reach * widened.0 + widened.1)
        }));
        for (near, at) in near.chunks(8).zip((0..).step_by(8)) {
            if near.iter().fold(0, |any, near| any | near) == 0 {
                continue;
            }
            for (k, _) in near.iter().enumerate().filter(|(_, near)| **near != 0) {
                let place = Place { own, other: T::at_least(squared[at + k], dimensions) };
                if self.all[start + at + k].note(place) {
                    self.set_reach(start + at + k);
                }
            }
        }
    }
}

/// Inserts into an ascending list; the largest falls out.
fn insert(least: &mut [f32; RANK_MAX], excess: f32) {
    let mut at = RANK_MAX - 1;
    while at > 0 && least[at - 1] > excess {
        least[at] = least[at - 1];
        at -= 1;
    }
    least[at] = excess;
}

impl Candidate {
    /// Takes a member into account; whether it counts.
    fn note(&mut self, place: Place) -> bool {
        let mut counts = false;
        for ((part, limit), least) in self.parts.iter().flatten().zip(&mut self.least) {
            let excess = part.excess(part.measure.of(place));
            if excess <= *limit && excess < f64::from(least[RANK_MAX - 1]) {
                insert(least, (excess as f32).next_up());
                counts = true;
            }
        }
        counts
    }

    /// What is noted of it, for a bucket of so many members; none where nobody can take part.
    fn nearness(&self, from: u32, members: usize) -> Option<Nearness> {
        let rank = |least: &[f32; RANK_MAX], rank: usize| least[rank.min(members) - 1];
        let least = [0, 1].map(|part| [1, 2, RANK_MAX].map(|wanted| rank(&self.least[part], wanted)));
        let near = self.least.iter().any(|least| least[0] < f32::INFINITY);
        near.then_some(Nearness { from, towards: self.bucket, least })
    }
}

/// The least bytes with which edges are found, beside the centers and those for reading ahead.
pub(super) fn least_bytes<T: Coordinate>(rule: Rule, buckets: &Buckets<'_>, threads: usize) -> u64 {
    EDGES_BYTES_MIN + pass_bytes::<T>(rule, buckets, threads)
}

/// Bytes that a pass holds beside edges on their way.
fn pass_bytes<T: Coordinate>(rule: Rule, buckets: &Buckets<'_>, threads: usize) -> u64 {
    let (centers, dimensions) = (buckets.extents().len(), buckets.vectors().dimensions);
    let columns = adjoin_kernels::PackedColumns::<T>::bytes_for(CHUNK_CENTERS.min(centers), dimensions);
    let chunk = CHUNK_ROWS * CHUNK_CENTERS * size_of::<T::Distance>();
    let a_center = size_of::<T::Distance>() + 32 + if rule.takes_whole() { 24 } else { size_of::<Candidate>() + 9 };
    load::BucketPass::<T>::bytes(threads, buckets)
        + (centers * 8) as u64
        + threads as u64 * (columns + (chunk + centers * a_center) as u64)
        + Panel::<T>::bytes_for(1, dimensions)
}
