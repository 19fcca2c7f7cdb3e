//! Finds the nearest center of each vector in two levels. A vector is first compared with the means of groups of
//! centers, and then with the centers of the nearest few groups.
//!
//! For `M` centers, this takes about `sqrt(M)` distances instead of `M`. A few vectors are assigned to a center that
//! is not quite the nearest. No rule relies on it being the nearest.

use std::ops::Range;

use adjoin_kernels::{Kernel, PackedColumns, Panel, TILE_COLUMNS};

use super::tree::groups;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Converted, Coordinate, Space, move_to_means};
use crate::base::workers::map_items;

/// Number of groups to search for the nearest center of a vector.
const GROUPS_SEARCHED: usize = 4;
/// Maximum number of centers in a single group. With at most this many, all centers are compared with each vector.
const CENTERS_IN_ONE_GROUP: usize = 128;
/// Size of the chunk of vectors that a worker takes at once, in bytes of coordinates and in rows. A chunk is large
/// enough that several of its vectors search the same group.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_ROWS_MIN: usize = 16;
const CHUNK_ROWS_MAX: usize = 512;

/// Nearest center of a vector among those that were compared. If several are equally near, it is the one with the
/// lowest number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nearest<D> {
    /// Number of the center.
    pub(crate) center: u32,
    /// Computed squared distance to the center.
    pub(crate) squared: D,
    /// Upper bound on the distance between the vector and its rounded form, in coordinates.
    pub(crate) residual: f32,
}

/// Centers in groups, packed for the kernels.
pub(crate) struct TwoLevel<T: Coordinate> {
    kernel: Kernel,
    means: PackedColumns<T>,
    groups: Vec<Group<T>>,
    dimensions: usize,
    /// Number of distances computed per vector, on average, if all groups have the same size.
    searched: usize,
}

struct Group<T: Coordinate> {
    /// Numbers of the centers, ascending.
    centers: Vec<u32>,
    columns: PackedColumns<T>,
}

fn chunk_rows<T>(dimensions: usize) -> usize {
    (CHUNK_BYTES / (dimensions * size_of::<T>()).max(1)).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX)
}

/// Returns the bytes of the two levels over `centers` centers, and of comparing vectors with them on `threads`
/// threads.
pub(crate) fn memory_bytes<T: Coordinate>(threads: usize, centers: usize, dimensions: usize) -> u64 {
    // A split may separate few centers from many. So this allows for twice as many groups as equal splits would give.
    let groups = if centers <= CENTERS_IN_ONE_GROUP { 1 } else { 2 * centers.isqrt() };
    // The members of groups are held twice while centers are trained.
    let members = (2 * (centers * size_of::<u32>() + groups * size_of::<Vec<u32>>())) as u64;
    let packed = members
        + PackedColumns::<T>::bytes_for(centers + TILE_COLUMNS * groups, dimensions)
        + PackedColumns::<T>::bytes_for(groups, dimensions);
    let rows = chunk_rows::<T>(dimensions);
    let a_row = groups * size_of::<T::Distance>() + size_of::<(u32, T::Distance)>();
    let a_worker = Panel::<T>::bytes_for(rows, dimensions) + (rows * a_row) as u64;
    packed + threads as u64 * a_worker
}

/// Returns the maximum number of centers in a group.
fn group_size(centers: usize) -> usize {
    if centers <= CENTERS_IN_ONE_GROUP { centers } else { 2 * centers.isqrt() }
}

/// Groups centers by the tree of [`groups`].
pub(super) fn center_groups<T: Coordinate>(kernel: Kernel, centers: &Panel<T>) -> Vec<Vec<u32>> {
    groups(kernel, centers, group_size(centers.rows()))
}

impl<T: Coordinate> TwoLevel<T> {
    /// Groups the centers by their tree and builds both levels.
    pub(crate) fn new(kernel: Kernel, centers: &Panel<T>) -> Self {
        Self::of_groups(kernel, centers, &center_groups(kernel, centers))
    }

    /// Builds both levels from existing groups. The groups may be outdated: the centers may have moved a little since.
    pub(super) fn of_groups(kernel: Kernel, centers: &Panel<T>, members: &[Vec<u32>]) -> Self {
        let mut of = vec![0; centers.rows()];
        members.iter().zip(0u32..).for_each(|(group, k)| group.iter().for_each(|&center| of[center as usize] = k));
        let mut means = Panel::zeroed(members.len(), centers.dimensions());
        move_to_means(centers, &of, &mut means);
        let all: Vec<u32> = (0..members.len() as u32).collect();
        let pack = |members: &Vec<u32>| Group { columns: kernel.pack(centers, members), centers: members.clone() };
        let groups: Vec<Group<T>> = members.iter().map(pack).collect();
        // Counts the means of all groups and the centers of the searched groups.
        let searched = groups.len() + centers.rows() * GROUPS_SEARCHED.min(groups.len()) / groups.len();
        Self { kernel, means: kernel.pack(&means, &all), groups, dimensions: centers.dimensions(), searched }
    }

    /// Returns the number of distances computed per vector, on average, if all groups have the same size.
    pub(crate) fn distances_a_vector(&self) -> usize {
        self.searched
    }

    /// Finds the nearest center of each stored vector. `stored` holds the vectors end to end.
    ///
    /// # Errors
    /// Fails if the work is canceled.
    pub(crate) fn nearest(
        &self,
        context: &Context,
        space: Space<'_>,
        stored: &[u8],
    ) -> Result<Vec<Nearest<T::Distance>>> {
        let bytes = space.vectors.bytes();
        let chunk_rows = self.chunk_rows(context, stored.len() / bytes);
        let chunks: Vec<&[u8]> = stored.chunks(chunk_rows * bytes).collect();
        let state = || (CenterSearch::new(self), Panel::zeroed(chunk_rows, self.dimensions));
        let found = map_items(context.threads, chunks.len(), &context.cancel, state, |(search, panel), k| {
            let Converted { residuals, .. } = T::load(space, context.kernel, chunks[k], panel);
            let mut nearest = search.run(panel, 0..chunks[k].len() / bytes);
            nearest.iter_mut().zip(residuals).for_each(|(nearest, residual)| nearest.residual = residual);
            Ok(nearest)
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Finds the nearest center of each vector. `panel` holds the vectors as coordinates.
    ///
    /// # Errors
    /// Fails if the work is canceled.
    pub(crate) fn nearest_of(&self, context: &Context, panel: &Panel<T>) -> Result<Vec<Nearest<T::Distance>>> {
        let rows = panel.rows();
        let chunk_rows = self.chunk_rows(context, rows);
        let state = || CenterSearch::new(self);
        let found = map_items(context.threads, rows.div_ceil(chunk_rows), &context.cancel, state, |search, k| {
            Ok(search.run(panel, k * chunk_rows..rows.min((k + 1) * chunk_rows)))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns how many of `rows` vectors a worker takes at once.
    fn chunk_rows(&self, context: &Context, rows: usize) -> usize {
        // There are at least two chunks per thread. So a slow thread delays the end by at most half of its work.
        let even = rows.div_ceil(2 * context.threads.max(1));
        chunk_rows::<T>(self.dimensions).min(even.max(CHUNK_ROWS_MIN))
    }
}

/// Returns the distance of each stored vector to a center that was chosen for it. `chosen` has the number of that
/// center for each vector.
///
/// # Errors
/// Fails if the work is canceled.
pub(super) fn distances_to_chosen<T: Coordinate>(
    context: &Context,
    space: Space<'_>,
    centers: &Panel<T>,
    chosen: &[u32],
    stored: &[u8],
) -> Result<Vec<Nearest<T::Distance>>> {
    let (bytes, chunk_rows) = (space.vectors.bytes(), chunk_rows::<T>(space.dimensions()));
    let chunks: Vec<(&[u32], &[u8])> = chosen.chunks(chunk_rows).zip(stored.chunks(chunk_rows * bytes)).collect();
    let state = || Panel::zeroed(chunk_rows, space.dimensions());
    let found = map_items(context.threads, chunks.len(), &context.cancel, state, |panel, k| {
        let (chosen, stored) = chunks[k];
        let Converted { residuals, .. } = T::load(space, context.kernel, stored, panel);
        let distance = |(row, &center): (usize, &u32)| {
            let squared = context.kernel.distance(panel.row(row), centers.row(center as usize));
            Nearest { center, squared, residual: residuals.get(row).copied().unwrap_or(0.0) }
        };
        Ok(chosen.iter().enumerate().map(distance).collect::<Vec<_>>())
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// A worker's search of the two levels, with its buffers.
struct CenterSearch<'a, T: Coordinate> {
    levels: &'a TwoLevel<T>,
    /// Distances of each vector to the means of groups.
    distances: Vec<T::Distance>,
    /// For each group, the vectors to compare with its centers.
    searching: Vec<Vec<u32>>,
    /// For each vector of the current group: the position of its nearest center in the group, and the distance to it.
    found: Vec<(u32, T::Distance)>,
}

impl<'a, T: Coordinate> CenterSearch<'a, T> {
    fn new(levels: &'a TwoLevel<T>) -> Self {
        Self { levels, distances: Vec::new(), searching: vec![Vec::new(); levels.groups.len()], found: Vec::new() }
    }

    /// Finds the nearest center of each vector in `rows`, a range of the panel.
    fn run(&mut self, panel: &Panel<T>, rows: Range<usize>) -> Vec<Nearest<T::Distance>> {
        self.choose_groups(panel, rows.clone());
        let mut nearest = vec![Nearest { center: u32::MAX, squared: T::FARTHEST, residual: 0.0 }; rows.len()];
        for (group, searching) in self.levels.groups.iter().zip(&self.searching) {
            self.found.resize(searching.len(), (0, T::FARTHEST));
            self.levels.kernel.nearest(panel, searching, &group.columns, &mut self.found);
            for (&row, &(place, squared)) in searching.iter().zip(&self.found) {
                let (best, center) = (&mut nearest[row as usize - rows.start], group.centers[place as usize]);
                // Of equally near centers, the one with the lower number is chosen. So the result does not depend on
                // the order of the groups.
                if (squared, center) < (best.squared, best.center) {
                    *best = Nearest { center, squared, residual: 0.0 };
                }
            }
        }
        nearest
    }

    fn choose_groups(&mut self, panel: &Panel<T>, rows: Range<usize>) {
        self.searching.iter_mut().for_each(Vec::clear);
        let groups = self.levels.groups.len();
        let order: Vec<u32> = (rows.start as u32..rows.end as u32).collect();
        self.distances.resize(rows.len() * groups, T::Distance::default());
        self.levels.kernel.many_to_many(panel, &order, &self.levels.means, &mut self.distances);
        // Makes one pass over the distances per searched group. For four groups, this is less work than a sort.
        for (row, distances) in order.iter().zip(self.distances.chunks_exact_mut(groups)) {
            for _ in 0..GROUPS_SEARCHED.min(groups) {
                let group = self.levels.kernel.first_least::<T>(distances);
                self.searching[group].push(*row);
                distances[group] = T::FARTHEST;
            }
        }
    }
}
