//! Assigns vertices to pages one by one.

/// Page number of a vertex that has no page yet.
const NO_PAGE: u32 = u32::MAX;

/// Capacity of the pages. Each page except the last has `records` vertices.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    vertices: usize,
    records: usize,
}

impl Room {
    /// Creates the capacity for `vertices` vertices on pages of `records` vertices each.
    pub fn new(vertices: usize, records: usize) -> Self {
        Self { vertices, records }
    }

    /// Returns the number of vertices of a page, except perhaps the last.
    pub fn records(self) -> usize {
        self.records
    }

    /// Returns the number of pages.
    pub fn pages(self) -> usize {
        self.vertices.div_ceil(self.records)
    }

    /// Returns the number of vertices of a page.
    pub fn of(self, page: usize) -> usize {
        self.records.min(self.vertices - page * self.records)
    }

    /// Returns the page of each vertex if pages are filled in the order `order`.
    pub fn pages_of(self, order: &[u32]) -> Vec<u32> {
        let mut pages = vec![0; order.len()];
        for (page, on_page) in (0..).zip(order.chunks(self.records)) {
            on_page.iter().for_each(|&vertex| pages[vertex as usize] = page);
        }
        pages
    }
}

/// Pages to which vertices are being assigned.
pub struct Filling {
    room: Room,
    /// Page of each vertex, or [`NO_PAGE`].
    of_vertex: Vec<u32>,
    /// Number of vertices on each page.
    filled: Vec<u32>,
}

impl Filling {
    /// Creates pages without vertices.
    pub fn new(room: Room) -> Self {
        Self { room, of_vertex: vec![NO_PAGE; room.vertices], filled: vec![0; room.pages()] }
    }

    /// Returns whether a page has room for another vertex.
    pub fn has_room(&self, page: u32) -> bool {
        self.free(page) > 0
    }

    /// Returns the number of vertices that a page still has room for.
    pub fn free(&self, page: u32) -> usize {
        self.room.of(page as usize) - self.filled[page as usize] as usize
    }

    /// Returns the page of a vertex, if it has one.
    pub fn page_of(&self, vertex: u32) -> Option<u32> {
        Some(self.of_vertex[vertex as usize]).filter(|&page| page != NO_PAGE)
    }

    /// Assigns a vertex without a page to a page with room.
    pub fn put(&mut self, vertex: u32, page: u32) {
        self.of_vertex[vertex as usize] = page;
        self.filled[page as usize] += 1;
    }

    /// Assigns the remaining vertices to pages with room, in the order `order`. Returns all vertices sorted by page
    /// and, within a page, in the order `order`.
    pub fn finish(mut self, order: &[u32]) -> Vec<u32> {
        // A page that is full stays full, so the search for room continues at the last page found.
        let mut free = 0;
        for &vertex in order {
            if self.page_of(vertex).is_none() {
                while !self.has_room(free) {
                    free += 1;
                }
                self.put(vertex, free);
            }
        }
        // A counting sort by page. It keeps `order` within a page.
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
