//! Stores the out-neighbors of all vertices by windows of vertices. Lists that do not fit in the given memory are
//! stored in a temporary file.

use std::ops::Range;
use std::path::Path;

use adjoin_device::Reservation;

use super::PURPOSE;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::graph::Graph;
use crate::store::{BLOCK_BYTES_MAX, PartitionSizes, Partitions, Records};

/// Smallest number of vertices in a window, unless there are too many windows.
const WINDOW_MIN: u64 = 1 << 14;
/// Largest number of windows.
const WINDOWS_MAX: u64 = 256;
const NUMBER_BYTES: usize = size_of::<u32>();

/// Division of the vertices into windows of equal size.
#[derive(Debug, Clone, Copy)]
pub(in crate::index) struct Windows {
    vertices: u32,
    of_window: u32,
    sizes: PartitionSizes,
}

impl Windows {
    /// Divides vertices into windows. Their contents may take `memory` bytes in addition to the least bytes.
    pub(in crate::index) fn within(memory: u64, vertices: u32) -> Self {
        // With more windows, reading a window takes less memory. But each window needs a buffer while lists are
        // written.
        let windows = u64::from(vertices).div_ceil(WINDOW_MIN).min(WINDOWS_MAX);
        let sizes = PartitionSizes::within(memory + PartitionSizes::least_for(windows), windows);
        Self { vertices, of_window: vertices.div_ceil(sizes.partitions as u32).max(1), sizes }
    }

    /// Divides vertices into windows of `of_window` vertices.
    #[cfg(test)]
    pub(in crate::index) fn of_size(vertices: u32, of_window: u32) -> Self {
        let windows = u64::from(vertices.div_ceil(of_window));
        let sizes = PartitionSizes::within(PartitionSizes::least_for(windows), windows);
        Self { vertices, of_window, sizes }
    }

    /// Returns the largest number of bytes that the contents of the windows take in memory.
    pub(in crate::index) fn bytes(self) -> u64 {
        self.sizes.memory_bytes()
    }

    /// Returns the approximate bytes of the lists of a window and of the edges back to its vertices, if both have
    /// `degree` edges per vertex.
    pub(in crate::index) fn window_bytes(self, degree: usize) -> u64 {
        u64::from(self.of_window) * (4 * degree as u64 + 4) * NUMBER_BYTES as u64 + BLOCK_BYTES_MAX
    }

    /// Returns the bytes of the lists of `vertices` consecutive vertices in memory, including the buffer for reading
    /// them.
    pub(in crate::index) fn range_bytes(self, vertices: u64, degree: usize) -> u64 {
        // The first and the last window may extend beyond the range.
        let vertices = (vertices + 2 * u64::from(self.of_window)).min(self.vertices.into());
        list_bytes(vertices, vertices * (degree as u64 + 1) * NUMBER_BYTES as u64) + BLOCK_BYTES_MAX
    }

    pub(in crate::index) fn count(self) -> u32 {
        self.vertices.div_ceil(self.of_window)
    }

    pub(in crate::index) fn vertices(self, window: u32) -> Range<u32> {
        let start = window * self.of_window;
        start..start.saturating_add(self.of_window).min(self.vertices)
    }

    /// Returns the window of a vertex.
    pub(in crate::index) fn of(self, vertex: u32) -> u32 {
        vertex / self.of_window
    }
}

/// Writer of lists. The lists of a window must be written in the order of its vertices.
pub(in crate::index) struct ListWriter {
    windows: Windows,
    partitions: Partitions,
    /// Buffer for the record that is appended.
    record: Vec<u8>,
    _memory: Reservation,
}

impl ListWriter {
    /// Creates a writer for the lists of `windows`.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(in crate::index) fn new(context: &Context, temporary: &Path, windows: Windows) -> Result<Self> {
        let memory = context.reserve(windows.bytes(), PURPOSE)?;
        let partitions = Partitions::new(context, temporary, "adjoin-graph", windows.sizes);
        Ok(Self { windows, partitions, record: Vec::new(), _memory: memory })
    }

    /// Appends the list of a vertex to its window.
    ///
    /// # Errors
    /// If the temporary file cannot be written.
    pub(in crate::index) fn push(&mut self, vertex: u32, neighbors: &[u32]) -> Result<()> {
        let numbers = std::iter::once(neighbors.len() as u32).chain(neighbors.iter().copied());
        self.record.clear();
        numbers.for_each(|number| self.record.extend_from_slice(&number.to_le_bytes()));
        self.partitions.push(self.windows.of(vertex) as usize, &[&self.record])
    }

    /// Completes the lists.
    ///
    /// # Errors
    /// If the temporary file cannot be written.
    pub(in crate::index) fn finish(self) -> Result<Lists> {
        Ok(Lists { windows: self.windows, records: self.partitions.finish()?, _memory: self._memory })
    }
}

/// Out-neighbors of all vertices.
pub(in crate::index) struct Lists {
    windows: Windows,
    records: Records,
    _memory: Reservation,
}

impl Lists {
    /// Stores the lists of a graph that is in memory.
    ///
    /// # Errors
    /// If memory does not suffice, or if the temporary file cannot be written.
    pub(in crate::index) fn of_graph(context: &Context, temporary: &Path, graph: &Graph, memory: u64) -> Result<Self> {
        let vertices = graph.vertices() as u32;
        let mut writer = ListWriter::new(context, temporary, Windows::within(memory, vertices))?;
        (0..vertices).try_for_each(|vertex| writer.push(vertex, graph.neighbors(vertex)))?;
        writer.finish()
    }

    pub(in crate::index) fn windows(&self) -> Windows {
        self.windows
    }

    /// Returns the bytes written to the temporary file.
    pub(in crate::index) fn spilled(&self) -> u64 {
        self.records.spilled()
    }

    /// Reads the lists of a window.
    ///
    /// # Errors
    /// If memory does not suffice, or if they cannot be read.
    pub(in crate::index) fn window(&self, context: &Context, window: u32) -> Result<WindowLists> {
        let bytes = self.records.bytes(window as usize);
        let vertices = self.windows.vertices(window);
        let memory = context.reserve(list_bytes(vertices.len() as u64, bytes), PURPOSE)?;
        // This memory is needed only for reading, so it is released at the end of this function.
        let _of_block = context.reserve(BLOCK_BYTES_MAX, PURPOSE)?;
        let mut numbers: Vec<u32> = Vec::with_capacity(bytes as usize / NUMBER_BYTES);
        self.records.read(window as usize, |block| {
            numbers.extend(block.as_chunks::<NUMBER_BYTES>().0.iter().map(|&number| u32::from_le_bytes(number)));
            Ok(())
        })?;
        // Records are in the order of the vertices, so the start of each follows from the lengths of the records before
        // it.
        let mut starts = Vec::with_capacity(vertices.len());
        let mut at = 0;
        for _ in vertices.clone() {
            starts.push(at as u32);
            at += 1 + numbers[at] as usize;
        }
        Ok(WindowLists { first: vertices.start, starts, numbers, _memory: memory })
    }
}

/// Returns the bytes that the lists of `vertices` vertices take in memory, if their records have `records` bytes.
fn list_bytes(vertices: u64, records: u64) -> u64 {
    records + vertices * NUMBER_BYTES as u64
}

/// Lists of a window in memory.
pub(in crate::index) struct WindowLists {
    first: u32,
    /// Start of each list in `numbers`. A list begins with its length.
    starts: Vec<u32>,
    numbers: Vec<u32>,
    _memory: Reservation,
}

impl WindowLists {
    /// Returns the out-neighbors of a vertex of the window.
    pub(in crate::index) fn of(&self, vertex: u32) -> &[u32] {
        let start = self.starts[(vertex - self.first) as usize] as usize;
        &self.numbers[start + 1..][..self.numbers[start] as usize]
    }
}

/// Writer of edges, grouped by the window of their target.
pub(in crate::index) struct Edges {
    windows: Windows,
    partitions: Partitions,
    _memory: Reservation,
}

impl Edges {
    /// Creates a writer for edges to the vertices of `windows`.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(in crate::index) fn new(context: &Context, temporary: &Path, windows: Windows) -> Result<Self> {
        let memory = context.reserve(windows.bytes(), PURPOSE)?;
        let partitions = Partitions::new(context, temporary, "adjoin-edges", windows.sizes);
        Ok(Self { windows, partitions, _memory: memory })
    }

    /// Appends the edge from `from` to `to`.
    ///
    /// # Errors
    /// If the temporary file cannot be written.
    pub(in crate::index) fn push(&mut self, from: u32, to: u32) -> Result<()> {
        self.partitions.push(self.windows.of(to) as usize, &[&to.to_le_bytes(), &from.to_le_bytes()])
    }

    /// Completes the edges.
    ///
    /// # Errors
    /// If the temporary file cannot be written.
    pub(in crate::index) fn finish(self) -> Result<Sources> {
        Ok(Sources { windows: self.windows, records: self.partitions.finish()?, _memory: self._memory })
    }
}

/// Sources of the edges to each vertex.
pub(in crate::index) struct Sources {
    windows: Windows,
    records: Records,
    _memory: Reservation,
}

impl Sources {
    /// Returns the bytes written to the temporary file.
    pub(in crate::index) fn spilled(&self) -> u64 {
        self.records.spilled()
    }

    /// Returns the sources of the edges to the vertices of a window, with the reservation of their memory. The first
    /// list has, for each vertex, the end of its sources in the second list. The sources of a vertex are in the order
    /// in which its edges were pushed.
    ///
    /// # Errors
    /// If memory does not suffice, or if they cannot be read.
    pub(in crate::index) fn window(&self, context: &Context, window: u32) -> Result<(Vec<u32>, Vec<u32>, Reservation)> {
        const EDGE_BYTES: usize = 2 * NUMBER_BYTES;
        let vertices = self.windows.vertices(window);
        let count = self.records.bytes(window as usize) as usize / EDGE_BYTES;
        let memory = context.reserve(((count + vertices.len()) * NUMBER_BYTES) as u64, PURPOSE)?;
        let mut ends = vec![0; vertices.len()];
        let edge = |edge: &[u8; EDGE_BYTES]| {
            let [a, b, c, d, e, f, g, h] = *edge;
            ((u32::from_le_bytes([a, b, c, d]) - vertices.start) as usize, u32::from_le_bytes([e, f, g, h]))
        };
        let each = |take: &mut dyn FnMut(usize, u32)| {
            self.records.read(window as usize, |block| {
                block.as_chunks::<EDGE_BYTES>().0.iter().map(edge).for_each(|(to, from)| take(to, from));
                Ok(())
            })
        };
        // This is a counting sort by target, in two passes over the records: the first counts, the second stores. It
        // keeps the order in which edges were pushed, so the result does not depend on memory.
        each(&mut |to, _| ends[to] += 1)?;
        let mut end = 0;
        ends.iter_mut().for_each(|count| {
            let start = end;
            end += *count;
            *count = start;
        });
        let mut sources = vec![0; count];
        each(&mut |to, from| {
            sources[ends[to] as usize] = from;
            ends[to] += 1;
        })?;
        Ok((ends, sources, memory))
    }
}
