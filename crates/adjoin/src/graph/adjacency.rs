//! Stores a graph in memory, with a slot of fixed size per vertex.

use adjoin_device::Reservation;

use super::options::GraphOptions;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::row_numbers::RowSet;

/// Largest number of vertices of a graph.
pub(crate) const VERTICES_MAX: usize = 1 << 31;

/// Capacity of a slot while vertices are inserted, in percent of the degree (DiskANN's slack). A list is pruned only
/// once it is full, not for each new edge.
const ROOM_PERCENT: usize = 130;

/// A directed graph over the rows of a panel.
pub struct Graph {
    /// Slots of all vertices. A slot has the out-degree, the out-neighbors, and free space for more.
    slots: Vec<u32>,
    /// Number of out-neighbors that fit in a slot. It is larger than the degree while vertices are inserted.
    room: usize,
    options: GraphOptions,
    /// Vertex at which searches start; `None` if the graph is empty.
    pub(super) entry: Option<u32>,
    /// Vertices in the graph.
    pub(super) present: RowSet,
    reservation: Reservation,
}

impl Graph {
    /// Creates an empty graph, into which `vertices` vertices can be inserted. Its slots are larger than the degree.
    ///
    /// # Errors
    /// If there are more than 2^31 vertices, or if memory does not suffice.
    pub fn empty(context: &Context, vertices: usize, options: &GraphOptions) -> Result<Self> {
        if vertices > VERTICES_MAX {
            let said = format!("{vertices} vectors, but a graph in memory has at most {VERTICES_MAX}; split the set");
            return Err(Error::input(said));
        }
        Self::with_room(context, vertices, options, building_room(options))
    }

    /// Creates a graph without edges, whose slots have room for `room` out-neighbors.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn with_room(context: &Context, vertices: usize, options: &GraphOptions, room: usize) -> Result<Self> {
        let purpose = format!("a graph of {vertices} vectors");
        let reservation = context.reserve_between_runs(Self::memory_bytes(vertices, room), &purpose)?;
        let present = RowSet::new(vertices as u64);
        // The first number of a slot is the degree, so an empty list is all zeros.
        let slots = vec![0; vertices * (room + 1)];
        Ok(Self { slots, room, options: *options, entry: None, present, reservation })
    }

    /// Returns the bytes of a graph of `vertices` vertices with at most `degree` out-neighbors each.
    pub fn memory_bytes(vertices: usize, degree: usize) -> u64 {
        vertices as u64 * (degree as u64 + 1) * size_of::<u32>() as u64 + RowSet::memory_bytes(vertices as u64)
    }

    /// Returns the bytes of a graph while vertices are inserted.
    pub(crate) fn building_bytes(vertices: usize, options: &GraphOptions) -> u64 {
        Self::memory_bytes(vertices, building_room(options))
    }

    /// Returns the number of rows of the panel, including rows that are not in the graph.
    pub fn vertices(&self) -> usize {
        self.slots.len() / (self.room + 1)
    }

    /// Returns the options that the graph was built with.
    pub fn options(&self) -> &GraphOptions {
        &self.options
    }

    /// Returns the vertex at which searches start, or `None` if the graph is empty. A build uses the medoid, which is
    /// the vertex nearest to the mean.
    pub fn entry(&self) -> Option<u32> {
        self.entry
    }

    /// Returns the out-neighbors of a vertex. Returns an empty list if it is not in the graph.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn neighbors(&self, vertex: u32) -> &[u32] {
        neighbors_in(self.slot(vertex))
    }

    /// Returns whether a vertex is in the graph.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn is_live(&self, vertex: u32) -> bool {
        self.present.contains(vertex.into())
    }

    /// Returns the number of vertices in the graph.
    pub fn live(&self) -> u64 {
        self.present.len()
    }

    /// Returns the slot of a vertex: its degree, its out-neighbors, and free space.
    pub(super) fn slot(&self, vertex: u32) -> &[u32] {
        let size = self.room + 1;
        &self.slots[vertex as usize * size..][..size]
    }

    /// Replaces the out-neighbors of a vertex.
    ///
    /// # Panics
    /// If they do not fit in the slot.
    pub(super) fn set_neighbors(&mut self, vertex: u32, neighbors: &[u32]) {
        let size = self.room + 1;
        set_neighbors_in(&mut self.slots[vertex as usize * size..][..size], neighbors);
    }

    /// Splits the slots into parts of `vertices` vertices.
    pub(super) fn parts(&mut self, vertices: usize) -> impl Iterator<Item = Part<'_>> {
        let size = self.room + 1;
        let parts = self.slots.chunks_mut(vertices * size).zip((0..).step_by(vertices));
        parts.map(move |(slots, first)| Part { slots, size, first })
    }

    /// Enlarges the slots beyond the degree, so that vertices can be inserted.
    ///
    /// # Errors
    /// If memory does not suffice. The graph is then unchanged.
    pub(super) fn widen(&mut self, context: &Context) -> Result<()> {
        let room = building_room(&self.options);
        let (from, to) = (self.room + 1, room + 1);
        let vertices = self.vertices();
        let purpose = format!("room in a graph of {vertices} vectors");
        let reservation = context.reserve(Self::memory_bytes(vertices, room), &purpose)?;
        let mut slots = vec![0; vertices * to];
        for (wide, slot) in slots.chunks_exact_mut(to).zip(self.slots.chunks_exact(from)) {
            wide[..from].copy_from_slice(slot);
        }
        (self.slots, self.room, self.reservation) = (slots, room, reservation);
        Ok(())
    }

    /// Shrinks the slots to the degree.
    pub(super) fn narrow(&mut self) {
        let room = self.options.degree;
        let (from, to) = (self.room + 1, room + 1);
        let vertices = self.vertices();
        for vertex in 0..vertices {
            let start = vertex * from;
            assert!(self.slots[start] as usize <= room, "vertex {vertex} has more than {room} out-neighbors");
            // Slots shrink, so each is copied to a lower position and does not overwrite a slot that is not copied yet.
            self.slots.copy_within(start..start + to, vertex * to);
        }
        self.slots.truncate(vertices * to);
        self.slots.shrink_to_fit();
        self.room = room;
        self.reservation.shrink(Self::memory_bytes(vertices, room));
    }
}

/// Slots of consecutive vertices.
pub(super) struct Part<'a> {
    slots: &'a mut [u32],
    size: usize,
    first: u32,
}

impl Part<'_> {
    /// Returns the vertices of the part.
    pub(super) fn vertices(&self) -> std::ops::Range<u32> {
        self.first..self.first + (self.slots.len() / self.size) as u32
    }

    pub(super) fn neighbors(&self, vertex: u32) -> &[u32] {
        neighbors_in(&self.slots[(vertex - self.first) as usize * self.size..][..self.size])
    }

    pub(super) fn set_neighbors(&mut self, vertex: u32, neighbors: &[u32]) {
        set_neighbors_in(&mut self.slots[(vertex - self.first) as usize * self.size..][..self.size], neighbors);
    }

    /// Appends `more` to the out-neighbors of a vertex if all of them fit. Returns whether they do.
    pub(super) fn try_append(&mut self, vertex: u32, more: &[u32]) -> bool {
        let slot = &mut self.slots[(vertex - self.first) as usize * self.size..][..self.size];
        let degree = slot[0] as usize;
        let Some(free) = slot[1 + degree..].get_mut(..more.len()) else { return false };
        free.copy_from_slice(more);
        slot[0] += more.len() as u32;
        true
    }
}

/// Returns the number of out-neighbors that fit in a slot while vertices are inserted.
fn building_room(options: &GraphOptions) -> usize {
    options.degree * ROOM_PERCENT / 100
}

fn neighbors_in(slot: &[u32]) -> &[u32] {
    &slot[1..][..slot[0] as usize]
}

fn set_neighbors_in(slot: &mut [u32], neighbors: &[u32]) {
    slot[0] = neighbors.len() as u32;
    slot[1..][..neighbors.len()].copy_from_slice(neighbors);
}
