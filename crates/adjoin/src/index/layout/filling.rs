//! Pages that vertices are put on, one vertex after the other.

/// What no page has.
const NO_PAGE: u32 = u32::MAX;

/// How many vertices lie on each page: as many as fit, on the last what is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    vertices: usize,
    records: usize,
}

impl Room {
    pub(super) fn new(vertices: usize, records: usize) -> Self {
        Self { vertices, records }
    }

    /// Vertices of a page, but perhaps the last.
    pub(super) fn records(self) -> usize {
        self.records
    }

    pub(super) fn pages(self) -> usize {
        self.vertices.div_ceil(self.records)
    }

    /// How many vertices lie on a page.
    pub(super) fn of(self, page: usize) -> usize {
        self.records.min(self.vertices - page * self.records)
    }

    /// The page of each vertex in this order.
    pub(super) fn pages_of(self, order: &[u32]) -> Vec<u32> {
        let mut pages = vec![0; order.len()];
        for (page, on_page) in (0..).zip(order.chunks(self.records)) {
            on_page.iter().for_each(|&vertex| pages[vertex as usize] = page);
        }
        pages
    }
}

/// Pages on which vertices are put.
pub(super) struct Filling {
    room: Room,
    of_vertex: Vec<u32>,
    filled: Vec<u32>,
}

impl Filling {
    pub(super) fn new(room: Room) -> Self {
        Self { room, of_vertex: vec![NO_PAGE; room.vertices], filled: vec![0; room.pages()] }
    }

    pub(super) fn has_room(&self, page: u32) -> bool {
        self.free(page) > 0
    }

    /// How many more a page has room for.
    pub(super) fn free(&self, page: u32) -> usize {
        self.room.of(page as usize) - self.filled[page as usize] as usize
    }

    /// The page of a vertex, where it has one.
    pub(super) fn page_of(&self, vertex: u32) -> Option<u32> {
        Some(self.of_vertex[vertex as usize]).filter(|&page| page != NO_PAGE)
    }

    /// Puts a vertex that has no page on one with room.
    pub(super) fn put(&mut self, vertex: u32, page: u32) {
        self.of_vertex[vertex as usize] = page;
        self.filled[page as usize] += 1;
    }

    /// Fills up the pages, and returns the vertices in the order of their pages; both in this order.
    pub(super) fn finish(mut self, order: &[u32]) -> Vec<u32> {
        let mut free = 0;
        for &vertex in order {
            if self.page_of(vertex).is_none() {
                while !self.has_room(free) {
                    free += 1;
                }
                self.put(vertex, free);
            }
        }
        let mut sorted = vec![0; order.len()];
        let mut ends: Vec<usize> = (0..self.filled.len()).map(|page| page * self.room.records).collect();
        for &vertex in order {
            let end = &mut ends[self.of_vertex[vertex as usize] as usize];
            sorted[*end] = vertex;
            *end += 1;
        }
        sorted
    }
}
