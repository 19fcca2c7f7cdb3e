//! Layout of a graph and its vectors on a device, called LUNCSR (NDSearch, section IV-B).
//!
//! Pages hold only vectors. Arrays in the device's DRAM hold the offsets of the neighbor lists, the neighbors, and
//! the LUN and block of each vertex. The page of a vertex and its position on the page follow from the number of the
//! vertex. A refresh moves a block, which changes only the arrays of LUNs and blocks.

use std::ops::Range;

use crate::device::Geometry;
use crate::error::FlashError;
use crate::machine::PageAddress;

/// How the pages of consecutive vertices are assigned to planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Consecutive pages are on the planes of one LUN, with the same page number in their blocks, and then on the
    /// next LUN (NDSearch, Figure 11).
    MultiPlane,
    /// Each plane has an equal part of the pages. A plane's pages are consecutive.
    Linear,
}

/// Where a refresh may move a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshTo {
    /// A block stays in its plane. This preserves the alignment that multi-plane commands need (NDSearch, section
    /// VI-A).
    SamePlane,
    /// A block may move to any plane.
    Anywhere,
}

/// A graph and the locations of its vertices on a device.
#[derive(Debug, Clone)]
pub struct LunCsr {
    offsets: Vec<u64>,
    neighbors: Vec<u32>,
    entry: u32,
    lun: Vec<u16>,
    /// For each vertex, its block within the LUN: the block's number in its plane, times the number of planes, plus
    /// the plane.
    block: Vec<u32>,
    per_page: u32,
    vector_bytes: u32,
    mapping: Mapping,
    geometry: Geometry,
    /// Unused blocks of each plane.
    free: Vec<Vec<u32>>,
}

impl LunCsr {
    /// Lays out a graph. Its vertices are numbered in storage order, and `neighbors` returns the neighbors of each. A
    /// vector takes `vector_bytes` bytes and is never split across pages.
    ///
    /// # Errors
    /// If a page is smaller than a vector, the vectors do not fit on the device, there are no vertices, or a neighbor
    /// or the entry is not a vertex.
    pub fn new<'g>(
        geometry: &Geometry,
        vertices: u32,
        entry: u32,
        neighbors: impl Fn(u32) -> &'g [u32],
        vector_bytes: u32,
        mapping: Mapping,
    ) -> Result<Self, FlashError> {
        let page_bytes = geometry.page_bytes;
        if vector_bytes > page_bytes || vector_bytes == 0 {
            return Err(FlashError::Page { vector_bytes: vector_bytes.into(), page_bytes: page_bytes.into() });
        }
        let per_page = page_bytes / vector_bytes;
        let mut offsets = Vec::with_capacity(vertices as usize + 1);
        let mut all = Vec::new();
        // There is one more offset than there are vertices, so that the last list has an end too.
        offsets.push(0);
        for vertex in 0..vertices {
            all.extend_from_slice(neighbors(vertex));
            offsets.push(all.len() as u64);
        }
        // A search would panic at a number that is not a vertex, so it is refused here.
        if entry >= vertices || all.iter().any(|&neighbor| neighbor >= vertices) {
            let said = format!("the graph has {vertices} vertices, but names another one; give a complete graph");
            return Err(FlashError::Input(said));
        }
        let mut layout = Self {
            offsets,
            neighbors: all,
            entry,
            lun: Vec::with_capacity(vertices as usize),
            block: Vec::with_capacity(vertices as usize),
            per_page,
            vector_bytes,
            mapping,
            geometry: *geometry,
            free: Vec::new(),
        };
        layout.place(vertices)?;
        Ok(layout)
    }

    fn place(&mut self, vertices: u32) -> Result<(), FlashError> {
        let (geometry, pages) = (self.geometry, self.pages_of(vertices));
        // Both mappings divide pages equally among planes. No plane has more than the mean number, rounded up.
        let of_plane = pages.div_ceil(geometry.planes());
        let blocks = of_plane.div_ceil(geometry.pages_per_block.into());
        if blocks > geometry.blocks_per_plane.into() {
            let needed_bytes = pages * u64::from(geometry.page_bytes);
            return Err(FlashError::Capacity { needed_bytes, bytes: geometry.bytes() });
        }
        for vertex in 0..vertices {
            let (plane, page) = self.plane_and_page(vertex);
            let planes = u64::from(geometry.planes_per_lun);
            // The cast is lossless, since `Device::new` accepts at most 65,535 LUNs.
            self.lun.push((plane / planes) as u16);
            let block = page / u64::from(geometry.pages_per_block);
            self.block.push((block * planes + plane % planes) as u32);
        }
        // In descending order, so that `pop` returns the lowest block.
        let free = (blocks as u32..geometry.blocks_per_plane).rev();
        self.free = vec![free.collect(); geometry.planes() as usize];
        Ok(())
    }

    fn pages_of(&self, vertices: u32) -> u64 {
        u64::from(vertices).div_ceil(self.per_page.into())
    }

    /// Returns the initial plane of a vertex and its page in that plane. Planes are numbered across the device.
    fn plane_and_page(&self, vertex: u32) -> (u64, u64) {
        let (page, planes) = (u64::from(vertex / self.per_page), self.geometry.planes());
        match self.mapping {
            Mapping::MultiPlane => (page % planes, page / planes),
            Mapping::Linear => {
                let of_plane = self.pages_of(self.vertices()).div_ceil(planes);
                (page / of_plane, page % of_plane)
            }
        }
    }

    /// Returns the current address of a vertex.
    pub fn address(&self, vertex: u32) -> PageAddress {
        let block = self.block[vertex as usize];
        let page = self.plane_and_page(vertex).1 % u64::from(self.geometry.pages_per_block);
        PageAddress {
            lun: self.lun[vertex as usize].into(),
            page: page as u32,
            block: block / self.geometry.planes_per_lun,
            plane: block % self.geometry.planes_per_lun,
        }
    }

    /// Moves the block of a vertex, as a refresh does. `which` selects the plane if any plane is allowed. Returns
    /// false, without moving anything, if that plane has no free block.
    pub fn refresh(&mut self, vertex: u32, to: RefreshTo, which: u64) -> bool {
        let planes = u64::from(self.geometry.planes_per_lun);
        let (lun, block) = (self.lun[vertex as usize], self.block[vertex as usize]);
        let from_plane = u64::from(lun) * planes + u64::from(block) % planes;
        let to_plane = match to {
            RefreshTo::SamePlane => from_plane,
            RefreshTo::Anywhere => which % self.geometry.planes(),
        };
        // Taken before the old block becomes free, so that a block never moves to itself.
        let Some(free) = self.free[to_plane as usize].pop() else { return false };
        // `pop` takes from the other end, so the old block is used only after all other free blocks.
        self.free[from_plane as usize].insert(0, block / self.geometry.planes_per_lun);
        let (new_lun, new_block) = ((to_plane / planes) as u16, (u64::from(free) * planes + to_plane % planes) as u32);
        for run in self.runs_of_block(vertex) {
            self.lun[run.clone()].fill(new_lun);
            self.block[run].fill(new_block);
        }
        true
    }

    /// Returns the vertices in the block of a vertex, as one run per page. A refresh moves whole blocks, so the vertices
    /// that were in one block at first still are.
    fn runs_of_block(&self, vertex: u32) -> Vec<Range<usize>> {
        let (plane, page) = self.plane_and_page(vertex);
        let (planes, of_block) = (self.geometry.planes(), u64::from(self.geometry.pages_per_block));
        let first = page - page % of_block;
        let pages = self.pages_of(self.vertices());
        let numbers = (first..first + of_block).filter_map(|page| match self.mapping {
            Mapping::MultiPlane => Some(page * planes + plane),
            Mapping::Linear => {
                let of_plane = pages.div_ceil(planes);
                (page < of_plane).then_some(plane * of_plane + page)
            }
        });
        let vertices = |page: u64| {
            let first = page as usize * self.per_page as usize;
            first..(first + self.per_page as usize).min(self.lun.len())
        };
        numbers.filter(|&page| page < pages).map(vertices).collect()
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u32 {
        self.offsets.len() as u32 - 1
    }

    /// Returns the vertex at which searches begin.
    pub fn entry(&self) -> u32 {
        self.entry
    }

    /// Returns the out-neighbors of a vertex.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn neighbors(&self, vertex: u32) -> &[u32] {
        let [from, to] = [self.offsets[vertex as usize], self.offsets[vertex as usize + 1]];
        &self.neighbors[from as usize..to as usize]
    }

    /// Returns the number of edges.
    pub(crate) fn edges(&self) -> u64 {
        self.neighbors.len() as u64
    }

    /// Returns the size of a vector in bytes.
    pub fn vector_bytes(&self) -> u32 {
        self.vector_bytes
    }

    /// Returns the first `count` vertices of a breadth-first search from the entry. Searches visit these most often.
    pub fn hottest(&self, count: usize) -> Vec<u32> {
        // A vertex is marked when it is added, not when it is expanded. Thus each one is added once.
        let mut met = vec![false; self.vertices() as usize];
        let mut order = vec![self.entry];
        met[self.entry as usize] = true;
        let mut next = 0;
        while next < order.len() && order.len() < count {
            for &neighbor in self.neighbors(order[next]) {
                if !std::mem::replace(&mut met[neighbor as usize], true) {
                    order.push(neighbor);
                }
            }
            next += 1;
        }
        order.truncate(count);
        order
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

/// Returns, averaged over the vertices, the largest difference between the number of a vertex and the number of one
/// of its neighbors (NDSearch, equation 1).
pub fn bandwidth(layout: &LunCsr) -> f64 {
    let farthest =
        |vertex: u32| layout.neighbors(vertex).iter().map(|&other| vertex.abs_diff(other)).max().unwrap_or(0);
    let sum: u64 = (0..layout.vertices()).map(|vertex| u64::from(farthest(vertex))).sum();
    sum as f64 / f64::from(layout.vertices().max(1))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn small() -> Geometry {
        Geometry {
            channels: 2,
            chips_per_channel: 2,
            luns_per_chip: 2,
            planes_per_lun: 2,
            blocks_per_plane: 4,
            pages_per_block: 3,
            page_bytes: 512,
        }
    }

    fn laid(vertices: u32, mapping: Mapping) -> LunCsr {
        LunCsr::new(&small(), vertices, 0, |_| &[], 128, mapping).unwrap()
    }

    /// Returns the vertices on each page.
    fn pages(layout: &LunCsr) -> HashMap<PageAddress, Vec<u32>> {
        let mut pages: HashMap<_, Vec<u32>> = HashMap::new();
        (0..layout.vertices()).for_each(|vertex| pages.entry(layout.address(vertex)).or_default().push(vertex));
        pages
    }

    #[test]
    fn consecutive_pages_are_placed_on_planes_of_one_lun() {
        let layout = laid(700, Mapping::MultiPlane);
        let (first, second, third) = (layout.address(0), layout.address(4), layout.address(8));
        assert_eq!((first.lun, first.plane, first.page), (0, 0, 0));
        assert_eq!((second.lun, second.plane, second.page), (0, 1, 0));
        assert_eq!((third.lun, third.plane, third.page), (1, 0, 0));
        assert_eq!(layout.address(64), PageAddress { lun: 0, page: 1, block: 0, plane: 0 });
        let linear = laid(700, Mapping::Linear);
        assert_eq!([0, 4, 8].map(|vertex| linear.address(vertex).page), [0, 1, 2]);
        assert!([0, 4, 8].iter().all(|&vertex| linear.address(vertex).lun == 0));
    }

    #[test]
    fn layouts_that_exceed_the_device_are_refused() {
        let none: fn(u32) -> &'static [u32] = |_| &[];
        let page = LunCsr::new(&small(), 9, 0, none, 513, Mapping::Linear).unwrap_err().to_string();
        assert!(page.contains("a vector takes 513 bytes, but a page of the device has 512"), "{page}");
        let room = LunCsr::new(&small(), 10_000, 0, none, 128, Mapping::Linear).unwrap_err().to_string();
        assert!(room.contains("the data take 1280000 bytes, but the device holds 98304"), "{room}");
        let edge = LunCsr::new(&small(), 2, 0, |_| &[2], 128, Mapping::Linear).unwrap_err().to_string();
        assert!(edge.contains("has 2 vertices, but names another one"), "{edge}");
        assert!(LunCsr::new(&small(), 0, 0, none, 128, Mapping::Linear).is_err());
    }

    #[test]
    fn the_hottest_vertices_are_in_breadth_first_order() {
        let edges: [&[u32]; 5] = [&[3, 2], &[], &[1], &[4, 2], &[]];
        let layout = LunCsr::new(&small(), 5, 0, |vertex| edges[vertex as usize], 128, Mapping::Linear).unwrap();
        assert_eq!(layout.hottest(4), [0, 3, 2, 4]);
        assert_eq!(layout.hottest(100).len(), 5);
        assert_eq!(bandwidth(&layout), (3.0 + 0.0 + 1.0 + 1.0 + 0.0) / 5.0);
    }

    proptest! {
        #[test]
        fn pages_hold_their_capacity_and_refreshes_move_whole_blocks(
            vertices in 1u32..768,
            linear: bool,
            anywhere: bool,
            moves in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..30),
        ) {
            let mut layout = laid(vertices, if linear { Mapping::Linear } else { Mapping::MultiPlane });
            let to = if anywhere { RefreshTo::Anywhere } else { RefreshTo::SamePlane };
            let before: HashSet<Vec<u32>> = pages(&layout).into_values().collect();
            prop_assert_eq!(before.len() as u64, u64::from(vertices).div_ceil(4));
            for (vertex, which) in moves {
                let vertex = vertex.index(vertices as usize) as u32;
                let block = |address: PageAddress| (address.lun, address.block, address.plane);
                let all: Vec<PageAddress> = (0..vertices).map(|vertex| layout.address(vertex)).collect();
                let (was, has_moved) = (all[vertex as usize], layout.refresh(vertex, to, which));
                let is = layout.address(vertex);
                prop_assert_eq!(has_moved, block(was) != block(is));
                prop_assert!(anywhere || (was.lun, was.plane) == (is.lun, is.plane));
                // The vertices of the block move together, and no others.
                for (other, before) in (0..).zip(all) {
                    let now = layout.address(other);
                    prop_assert_eq!(now.page, before.page);
                    prop_assert_eq!(block(now), if block(before) == block(was) { block(is) } else { block(before) });
                }
                let after: HashSet<Vec<u32>> = pages(&layout).into_values().collect();
                prop_assert_eq!(&after, &before);
            }
        }
    }
}
