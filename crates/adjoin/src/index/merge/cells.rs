//! Divides the vertices of an index into cells, and finds the vertices near inserted rows in these.
//!
//! A *cell* is all vertices that are nearest to the same vertex of the navigation graph, its *center*. An inserted row is
//! compared with all vertices of the cells that are nearest to it, as in an inverted file (Jégou et al. 2011, section
//! IV). One pass over the pages serves as many rows as memory holds, and compares many of them with many vertices at once.
//! FreshDiskANN takes a walk for each row instead (section 5.3), which costs several times as much per row.

use std::sync::{Mutex, PoisonError};

use adjoin_device::Reservation;
use adjoin_kernels::{Kernel, PackedColumns, Panel, TILE_ROWS};

use super::pages::{OnPage, PIECE_BYTES_MIN, over_pages, pages_of};
use super::{PURPOSE, list_of};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space};
use crate::base::mutex::lock;
use crate::base::row_numbers::RowSet;
use crate::base::workers::map_items;
use crate::index::navigation::Navigator;
use crate::index::{Index, IndexManifest};
use crate::load::Members;

/// Number of cells that an inserted row is compared with. A cell has about a hundred vertices, and more in an index of
/// more than a million.
const PROBES: usize = 32;
/// Number of candidates in the search for the cells nearest to a row.
const LIST: usize = 2 * PROBES;
/// Number of cells from which the cell of a vertex is chosen. They are nearest to one vertex of its page.
const CELLS_OF_PAGE: usize = 16;
/// Number of centers that become candidates of a row. They are farther from the row and from each other than its nearest
/// vertices, so that the row gets edges of all lengths.
pub(super) const CENTERS: usize = 8;
/// Largest number of bytes of pages that a thread works on. It needs that many to find all vertices of a cell together,
/// which are on pages near each other, and finds equal vertices with [`PIECE_BYTES_MIN`] bytes.
const PIECE_BYTES_MAX: u64 = 16 << 20;
/// Number of inserted rows that are compared with a cell at once.
const ROWS_TOGETHER: usize = 8 * TILE_ROWS;
/// Number of inserted rows of a cell that other inserted rows are compared with at once.
const OTHERS_TOGETHER: usize = 256;
/// Largest number of other inserted rows that an inserted row is compared with, on average.
const COMPARED_MAX: u64 = 1_024;
/// Number of inserted rows whose cells a thread finds at once.
const PROBING_TOGETHER: usize = 64;

/// Cells of an index.
pub(super) struct Cells<'a, T: Coordinate> {
    context: &'a Context,
    index: &'a Index,
    navigator: Navigator<'a, T>,
    /// Vertices that are not deleted.
    kept: &'a RowSet,
    /// Cells of the vertices of each piece of [`PIECE_BYTES_MIN`] bytes.
    of_pieces: Vec<Vec<u32>>,
    _memory: Reservation,
}

/// Inserted rows by cell.
struct Probing {
    /// End of the rows of each cell in `rows`.
    ends: Vec<u32>,
    rows: Vec<u32>,
}

impl Probing {
    /// Arranges rows by cell, given at most `most` cells of each row.
    fn of(cells: u32, of_rows: &[Vec<u32>], most: usize) -> Self {
        let of_rows = || of_rows.iter().map(|cells| &cells[..most.min(cells.len())]);
        let mut ends = vec![0; cells as usize];
        of_rows().flatten().for_each(|&cell| ends[cell as usize] += 1);
        let mut starts = 0;
        for end in &mut ends {
            starts += std::mem::replace(end, starts);
        }
        let mut rows = vec![0; starts as usize];
        for (row, cells) in (0..).zip(of_rows()) {
            for &cell in cells {
                let end = &mut ends[cell as usize];
                rows[*end as usize] = row;
                *end += 1;
            }
        }
        Self { ends, rows }
    }

    /// Returns the rows that are compared with a cell, ascending.
    fn of_cell(&self, cell: u32) -> &[u32] {
        list_of(&self.ends, &self.rows, cell as usize)
    }
}

/// Vertices near a row so far.
#[derive(Default)]
struct NearVertices {
    /// Distance key of each vertex in the upper half, and its number in the lower half.
    found: Vec<u64>,
    /// Values of at least this are not among the nearest.
    limit: Option<u64>,
}

impl NearVertices {
    /// Adds a vertex unless `count` vertices are nearer. Vertices with equal distances are ordered by number.
    fn offer(&mut self, key: u32, vertex: u32, count: usize) {
        let value = u64::from(key) << u32::BITS | u64::from(vertex);
        if self.limit.is_some_and(|limit| value >= limit) {
            return;
        }
        if self.found.is_empty() {
            self.found.reserve_exact(2 * count);
        }
        self.found.push(value);
        if self.found.len() == 2 * count {
            self.limit = Some(*self.found.select_nth_unstable(count - 1).1);
            self.found.truncate(count);
        }
    }

    /// Returns the `count` nearest vertices, nearest first.
    fn into_sorted(mut self, count: usize) -> Vec<u32> {
        self.found.sort_unstable();
        self.found.truncate(count);
        self.found.into_iter().map(|value| value as u32).collect()
    }
}

/// Returns the `count` nearest vertices, nearest first.
fn sorted(near: Mutex<NearVertices>, count: usize) -> Vec<u32> {
    near.into_inner().unwrap_or_else(PoisonError::into_inner).into_sorted(count)
}

/// Compares some rows of a panel with all columns. Passes each row and its distances to the columns to `take`.
fn compare<T: Coordinate>(
    kernel: Kernel,
    (panel, rows): (&Panel<T>, &[u32]),
    columns: &PackedColumns<T>,
    distances: &mut Vec<T::Distance>,
    mut take: impl FnMut(u32, &[T::Distance]),
) {
    for some in rows.chunks(ROWS_TOGETHER) {
        distances.resize(some.len() * columns.len(), T::Distance::default());
        kernel.many_to_many(panel, some, columns, distances);
        some.iter().zip(distances.chunks_exact(columns.len())).for_each(|(&row, of_row)| take(row, of_row));
    }
}

/// Returns some stored vectors end to end.
pub(super) fn concatenated<'v>(space: Space<'_>, vectors: impl Iterator<Item = &'v [u8]>) -> Vec<u8> {
    let vectors: Vec<&[u8]> = vectors.collect();
    let mut stored = Vec::with_capacity(vectors.len() * space.vectors.bytes());
    vectors.into_iter().for_each(|vector| stored.extend_from_slice(vector));
    stored
}

/// Returns the bytes of the cells of all vertices.
pub(super) fn held_bytes(facts: &IndexManifest) -> u64 {
    u64::from(facts.vertices) * size_of::<u32>() as u64
}

/// Returns the least bytes of all threads while they work on cells.
pub(super) fn least_working_bytes<T: Coordinate>(context: &Context, facts: &IndexManifest) -> u64 {
    working_bytes::<T>(context, facts, PIECE_BYTES_MIN)
}

/// Returns the bytes of all threads while each of them works on pages of `piece` bytes.
fn working_bytes<T: Coordinate>(context: &Context, facts: &IndexManifest, piece: u64) -> u64 {
    let (shape, space) = (facts.shape(), facts.space());
    let rows = pages_of(facts, piece) * shape.records();
    let numbers = size_of::<(u32, u32, &[u8])>() + size_of::<u32>();
    // In the worst case, all vertices are in one cell, and are held as stored bytes, as coordinates and packed.
    let of_rows = rows * (facts.vectors.bytes() + numbers + ROWS_TOGETHER * size_of::<T::Distance>());
    let packed = PackedColumns::<T>::bytes_for(rows, space.dimensions());
    let a_worker = piece + of_rows as u64 + Members::<T>::memory_bytes(rows as u64, space) + packed;
    context.threads as u64 * a_worker
}

/// Returns the bytes of an inserted row for the cells that it is compared with.
pub(super) fn probed_bytes() -> u64 {
    (PROBES * size_of::<u32>() + size_of::<Vec<u32>>()) as u64
}

/// Returns the bytes of an inserted row while the `count` vertices nearest to it are found.
pub(super) fn bytes_of_row(count: usize) -> u64 {
    (PROBES * size_of::<u32>() + size_of::<Mutex<NearVertices>>() + 2 * count * size_of::<u64>()) as u64
}

/// Returns the bytes for comparing `rows` inserted rows with each other.
pub(super) fn comparing_bytes<T: Coordinate>(context: &Context, space: Space<'_>, rows: u64, count: usize) -> u64 {
    let others = OTHERS_TOGETHER.min(rows as usize);
    let packed = PackedColumns::<T>::bytes_for(others, space.dimensions());
    let a_worker = packed + (ROWS_TOGETHER * others * size_of::<T::Distance>()) as u64;
    let of_row = size_of::<Mutex<NearVertices>>() + 2 * count * size_of::<u64>() + (PROBES + 1) * size_of::<u32>();
    context.threads as u64 * a_worker + rows * of_row as u64
}

impl<'a, T: Coordinate> Cells<'a, T> {
    /// Finds the cell of each vertex in one pass over the pages.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn find(context: &'a Context, index: &'a Index, kept: &'a RowSet) -> Result<Self> {
        let facts = index.facts();
        let memory = context.reserve(held_bytes(facts), PURPOSE)?;
        let _working = context.reserve(least_working_bytes::<T>(context, facts), PURPOSE)?;
        let navigator = Navigator::<T>::new(context.kernel, facts.space(), &index.navigation);
        let mut cells = Self { context, index, navigator, kept, of_pieces: Vec::new(), _memory: memory };
        let navigator = &cells.navigator;
        cells.of_pieces = over_pages(
            context,
            index,
            PIECE_BYTES_MIN,
            || (navigator.search(), Vec::new()),
            |(search, near), piece| {
                let stored = concatenated(facts.space(), piece.vertices().map(|found| found.vector));
                let panel = Members::<T>::new(context.kernel, facts.space(), &stored).panel;
                let (mut cells, all) = (Vec::with_capacity(panel.rows()), (0..panel.rows()).collect::<Vec<usize>>());
                // The result must not depend on the piece that the thread had before.
                near.clear();
                for of_page in all.chunks(facts.shape().records()) {
                    // Only one vertex of the page takes a search. A search for each would take several times as long.
                    let middle = panel.row(of_page[of_page.len() / 2]);
                    let from = near.first().copied();
                    near.clear();
                    near.extend(navigator.nearest(search, (from, middle), CELLS_OF_PAGE, CELLS_OF_PAGE));
                    cells.extend(of_page.iter().map(|&row| navigator.nearest_among(panel.row(row), near)));
                }
                Ok(cells)
            },
        )?;
        Ok(cells)
    }

    /// Returns the kept vertices near each of the rows `queries`: at most `count`, nearest first, and then up to
    /// [`CENTERS`] centers of cells. `probed` has the cells that each row is compared with.
    ///
    /// # Errors
    /// If pages cannot be read, or if the work is cancelled.
    pub(super) fn nearest(&self, queries: &Members<T>, probed: &[Vec<u32>], count: usize) -> Result<Vec<Vec<u32>>> {
        let Self { context, index, .. } = *self;
        let (facts, kept) = (index.facts(), self.kept);
        let probing = &Probing::of(self.navigator.len(), probed, PROBES);
        let found: Vec<Mutex<NearVertices>> = (0..queries.len()).map(|_| Mutex::default()).collect();
        let (piece_bytes, memory) = self.piece_bytes()?;
        over_pages(context, index, piece_bytes, Vec::new, |distances, piece| {
            let left = piece.vertices().filter(|found| kept.contains(found.vertex.into()));
            let of_vertex = |OnPage { vertex, vector, .. }| (self.of(vertex), vertex, vector);
            let mut order: Vec<(u32, u32, &[u8])> = left.map(of_vertex).collect();
            order.sort_unstable_by_key(|&(cell, vertex, _)| (cell, vertex));
            for of_cell in order.chunk_by(|a, b| a.0 == b.0) {
                let rows = probing.of_cell(of_cell[0].0);
                if rows.is_empty() {
                    continue;
                }
                let stored = concatenated(facts.space(), of_cell.iter().map(|&(_, _, vector)| vector));
                let members = Members::<T>::new(context.kernel, facts.space(), &stored);
                let all: Vec<u32> = (0..members.len() as u32).collect();
                let columns = context.kernel.pack(&members.panel, &all);
                compare(context.kernel, (&queries.panel, rows), &columns, distances, |row, of_row| {
                    let near = &mut lock(&found[row as usize]);
                    let keys = of_row.iter().map(|&distance| T::distance_key(distance));
                    of_cell.iter().zip(keys).for_each(|(&(_, vertex, _), key)| near.offer(key, vertex, count));
                });
            }
            Ok(())
        })?;
        drop(memory);
        let with_centers = |(near, cells): (Mutex<NearVertices>, &Vec<u32>)| {
            let mut all = sorted(near, count);
            let centers = cells.iter().take(CENTERS).map(|&cell| self.navigator.vertex(cell));
            for center in centers.filter(|&vertex| kept.contains(vertex.into())) {
                if !all.contains(&center) {
                    all.push(center);
                }
            }
            all
        };
        Ok(found.into_iter().zip(probed).map(with_centers).collect())
    }

    /// Returns the rows of a panel near each of them: at most `count`, nearest first. A row is compared with all rows
    /// whose nearest cell is among its own cells in `probed`. Returns `None` if many rows are in one cell, because that
    /// would be many comparisons.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(super) fn near_each_other(
        &self,
        panel: &Panel<T>,
        probed: &[Vec<u32>],
        count: usize,
    ) -> Result<Option<Vec<Vec<u32>>>> {
        let (context, cells) = (self.context, self.navigator.len());
        let (own, probing) = (&Probing::of(cells, probed, 1), &Probing::of(cells, probed, PROBES));
        let comparisons: u64 =
            (0..cells).map(|cell| own.of_cell(cell).len() as u64 * probing.of_cell(cell).len() as u64).sum();
        if comparisons > COMPARED_MAX * panel.rows() as u64 {
            return Ok(None);
        }
        let found: Vec<Mutex<NearVertices>> = (0..panel.rows()).map(|_| Mutex::default()).collect();
        map_items(context.threads, cells as usize, &context.cancel, Vec::new, |distances, cell| {
            for others in own.of_cell(cell as u32).chunks(OTHERS_TOGETHER) {
                let columns = context.kernel.pack(panel, others);
                let rows = probing.of_cell(cell as u32);
                compare(context.kernel, (panel, rows), &columns, distances, |row, of_row| {
                    let near = &mut lock(&found[row as usize]);
                    let others = others.iter().zip(of_row).filter(|&(&other, _)| other != row);
                    others.for_each(|(&other, &distance)| near.offer(T::distance_key(distance), other, count));
                });
            }
            Ok(())
        })?;
        Ok(Some(found.into_iter().map(|near| sorted(near, count)).collect()))
    }

    pub(super) fn space(&self) -> Space<'static> {
        self.index.facts().space()
    }

    /// Returns the cell of a vertex.
    fn of(&self, vertex: u32) -> u32 {
        let facts = self.index.facts();
        let of_piece = pages_of(facts, PIECE_BYTES_MIN) * facts.shape().records();
        self.of_pieces[vertex as usize / of_piece][vertex as usize % of_piece]
    }

    /// Returns the bytes of pages that each thread works on, and the reservation for this work.
    fn piece_bytes(&self) -> Result<(u64, Reservation)> {
        let Self { context, index, .. } = *self;
        let bytes = |piece| working_bytes::<T>(context, index.facts(), piece);
        let fits = |&piece: &u64| bytes(piece) <= context.budget().free() / 2;
        let sizes = std::iter::successors(Some(PIECE_BYTES_MAX), |&piece| Some(piece / 2));
        let piece = sizes.take_while(|&piece| piece > PIECE_BYTES_MIN).find(fits).unwrap_or(PIECE_BYTES_MIN);
        Ok((piece, context.reserve(bytes(piece), PURPOSE)?))
    }

    /// Returns the [`PROBES`] cells nearest to each row of a panel, nearest first.
    ///
    /// # Errors
    /// If the work is cancelled.
    pub(super) fn probed(&self, panel: &Panel<T>) -> Result<Vec<Vec<u32>>> {
        let Self { context, ref navigator, .. } = *self;
        let rows: Vec<usize> = (0..panel.rows()).collect();
        let chunks: Vec<&[usize]> = rows.chunks(PROBING_TOGETHER).collect();
        let found = map_items(
            context.threads,
            chunks.len(),
            &context.cancel,
            || navigator.search(),
            |search, chunk| {
                let cells = |&row: &usize| navigator.nearest(search, (None, panel.row(row)), LIST, PROBES).collect();
                Ok(chunks[chunk].iter().map(cells).collect::<Vec<Vec<u32>>>())
            },
        )?;
        Ok(found.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn the_nearest_vertices_are_kept_in_any_order() {
        let mut random = Random::new(1, "near");
        for count in [1, 3, 40] {
            let mut all: Vec<(u32, u32)> = (0..300).map(|vertex| (random.below(50) as u32, vertex)).collect();
            random.shuffle(&mut all);
            let mut near = NearVertices::default();
            all.iter().for_each(|&(key, vertex)| near.offer(key, vertex, count));
            all.sort_unstable();
            let expected: Vec<u32> = all[..count].iter().map(|&(_, vertex)| vertex).collect();
            assert_eq!(near.into_sorted(count), expected);
        }
    }

    #[test]
    fn rows_are_arranged_by_cell() {
        let probing = Probing::of(4, &[vec![2, 0, 1], vec![], vec![2, 3], vec![0]], 2);
        let of_cells: Vec<&[u32]> = (0..4).map(|cell| probing.of_cell(cell)).collect();
        assert_eq!(of_cells, [&[0, 3][..], &[], &[0, 2], &[2]]);
    }
}
