//! Pages one after the other, as whoever goes through all of them reads them.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, DeviceError, ReadFile};

use super::Index;
use super::page::{Page, PageShape};
use crate::error::Result;
use crate::report::Cancel;

/// Bytes that are read at once, about.
const PIECE_BYTES: usize = 1 << 20;

/// Why a page cannot be had.
pub(super) enum NoPage {
    /// The device failed: at this page, or one that was to be read with it.
    Device(DeviceError),
    /// It is not as it was written.
    Changed,
}

/// A page, or why there is none.
type Found<'a> = std::result::Result<Page<'a>, NoPage>;

/// A buffer for pages.
pub(super) struct Scan {
    shape: PageShape,
    buffer: AlignedBuffer,
}

impl Scan {
    pub(super) fn new(shape: PageShape) -> Self {
        Self { shape, buffer: AlignedBuffer::zeroed(Self::memory_bytes(shape) as usize) }
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(shape: PageShape) -> u64 {
        ((PIECE_BYTES / shape.bytes()).max(1) * shape.bytes()) as u64
    }

    /// Hands over pages of a file in their order, each with its number. Of pages that cannot be read together, only the first.
    ///
    /// # Errors
    /// Those of `take`, and where the work is cancelled.
    pub(super) fn each(
        &mut self,
        cancel: &Cancel,
        file: &dyn ReadFile,
        pages: Range<u32>,
        take: &mut dyn FnMut(u32, Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { shape, ref mut buffer } = *self;
        let together = buffer.len() / shape.bytes();
        for first in pages.clone().step_by(together) {
            cancel.check()?;
            let some = together.min((pages.end - first) as usize);
            let bytes = &mut buffer[..some * shape.bytes()];
            if let Err(error) = file.read_at(u64::from(first) * shape.bytes() as u64, bytes) {
                take(first, Err(NoPage::Device(error)))?;
                continue;
            }
            for (number, bytes) in (first..).zip(bytes.chunks_exact(shape.bytes())) {
                take(number, Page::check(shape, number, bytes).ok_or(NoPage::Changed))?;
            }
        }
        Ok(())
    }
}

/// Pages of an index that are read some at a time, as their vertices are asked for, mostly in their order.
pub(super) struct Pieces<'a> {
    index: &'a Index,
    buffer: AlignedBuffer,
    /// The pages that are in the buffer.
    held: Range<u32>,
    /// Pages that are read at most: those before this one.
    end: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        Self::of_bytes(index, PIECE_BYTES as u64)
    }

    /// A page at a time.
    pub(super) fn single(index: &'a Index) -> Self {
        Self::of_bytes(index, 0)
    }

    /// So many bytes at a time, about.
    pub(super) fn of_bytes(index: &'a Index, bytes: u64) -> Self {
        let buffer = AlignedBuffer::zeroed(Self::memory_bytes(index, bytes) as usize);
        Self { index, buffer, held: 0..0, end: index.facts().shape().pages(index.facts().vertices) as u32 }
    }

    /// Nothing behind a vertex is asked for next.
    pub(super) fn until(&mut self, last: u32) {
        self.end = self.index.facts().shape().page_of(last) + 1;
    }

    /// Bytes of the buffer.
    pub(super) fn memory_bytes(index: &Index, bytes: u64) -> u64 {
        let (facts, shape) = (index.facts(), index.facts().shape());
        let of_page = shape.bytes() as u64;
        (bytes.min(PIECE_BYTES as u64) / of_page).clamp(1, shape.pages(facts.vertices)) * of_page
    }

    /// The page of a vertex, and where on it that lies; the page and others behind it are read where they are not in the buffer.
    fn page(&mut self, vertex: u32) -> Result<(Page<'_>, usize)> {
        let (facts, shape) = (self.index.facts(), self.index.facts().shape());
        let number = shape.page_of(vertex);
        if !self.held.contains(&number) {
            self.held = 0..0; // of a page that cannot be read, the buffer may hold a part
            let at_once = self.buffer.len() / shape.bytes();
            let some = at_once.min(self.end.saturating_sub(number).max(1) as usize);
            self.index.read_pages(number, &mut self.buffer[..some * shape.bytes()])?;
            self.held = number..number + some as u32;
        }
        let page = &self.buffer[(number - self.held.start) as usize * shape.bytes()..][..shape.bytes()];
        let slot = (vertex - shape.vertices(number, facts.vertices).start) as usize;
        Ok((Page::of_checked(shape, page), slot))
    }

    /// The vector of a vertex as it is stored.
    ///
    /// # Errors
    /// Where its page cannot be read, or is not as it was written.
    pub(super) fn vector(&mut self, vertex: u32) -> Result<&[u8]> {
        let bytes = self.index.facts().vectors.bytes();
        let (page, slot) = self.page(vertex)?;
        Ok(&page.vectors(slot + 1)[slot * bytes..])
    }

    /// Adds the neighbors of a vertex, nearest first.
    ///
    /// # Errors
    /// As [`Self::vector`].
    pub(super) fn neighbors(&mut self, vertex: u32, neighbors: &mut Vec<u32>) -> Result<()> {
        let index = self.index;
        let (page, slot) = self.page(vertex)?;
        index.add_neighbors(vertex, (page, slot), neighbors)
    }
}
