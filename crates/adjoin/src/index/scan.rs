//! Reads pages in order, for passes over all of them.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, DeviceError, ReadFile};

use super::Index;
use super::page::{Page, PageShape};
use crate::base::error::Result;
use crate::base::report::Cancel;

/// Approximate bytes of one read.
const PIECE_BYTES: usize = 1 << 20;
/// Many pages are read at once if, on average, at least one vertex is wanted per this number of pages. Disks read so
/// many pages in about the time of one read of a page.
const DENSE: u64 = 16;

/// Reason for which a page cannot be used.
pub(super) enum NoPage {
    /// The device failed to read this page or a page that was read with it.
    Device(DeviceError),
    /// The page is damaged.
    Changed,
}

/// A page, or the reason why it cannot be read.
type Found<'a> = std::result::Result<Page<'a>, NoPage>;

/// Buffer for pages.
pub(super) struct Scan {
    shape: PageShape,
    buffer: AlignedBuffer,
}

impl Scan {
    pub(super) fn new(shape: PageShape) -> Self {
        Self { shape, buffer: AlignedBuffer::zeroed(Self::memory_bytes(shape) as usize) }
    }

    /// Returns the bytes of the buffer.
    pub(super) fn memory_bytes(shape: PageShape) -> u64 {
        // A page with long vectors may be larger than a piece.
        ((PIECE_BYTES / shape.bytes()).max(1) * shape.bytes()) as u64
    }

    /// Passes pages of a file to `take` in order, each with its number. Several pages are read at once. If such a read
    /// fails, only its first page is passed to `take`, with the error.
    ///
    /// # Errors
    /// If `take` fails, or if the work is cancelled.
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
            // It is unknown which page of the read failed, so the first one is reported for all of them.
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

/// Reader of the pages of an index, by vertex. It reads several pages at once, since vertices are mostly requested in
/// order.
pub(super) struct Pieces<'a> {
    index: &'a Index,
    buffer: AlignedBuffer,
    /// Pages in the buffer.
    held: Range<u32>,
    /// End of the pages to read, exclusive.
    end: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        Self::of_bytes(index, PIECE_BYTES as u64)
    }

    /// Creates a reader of single pages.
    pub(super) fn single(index: &'a Index) -> Self {
        Self::of_bytes(index, 0)
    }

    /// Creates a reader for `wanted` vertices in ascending order, which are spread over all pages.
    pub(super) fn spread(index: &'a Index, wanted: u64) -> Self {
        let facts = index.facts();
        let is_dense = wanted * DENSE >= facts.shape().pages(facts.vertices);
        if is_dense { Self::new(index) } else { Self::single(index) }
    }

    /// Creates a reader with approximately `bytes` bytes per read.
    pub(super) fn of_bytes(index: &'a Index, bytes: u64) -> Self {
        let buffer = AlignedBuffer::zeroed(Self::memory_bytes(index, bytes) as usize);
        Self { index, buffer, held: 0..0, end: index.facts().shape().pages(index.facts().vertices) as u32 }
    }

    /// Announces that vertices after `last` will not be requested soon, so that their pages are not read in advance.
    pub(super) fn until(&mut self, last: u32) {
        self.end = self.index.facts().shape().page_of(last) + 1;
    }

    /// Returns the bytes of the buffer.
    pub(super) fn memory_bytes(index: &Index, bytes: u64) -> u64 {
        let (facts, shape) = (index.facts(), index.facts().shape());
        let of_page = shape.bytes() as u64;
        (bytes.min(PIECE_BYTES as u64) / of_page).clamp(1, shape.pages(facts.vertices)) * of_page
    }

    /// Returns the page and slot of a vertex. If the page is not in the buffer, reads it and some of the pages after
    /// it.
    fn page(&mut self, vertex: u32) -> Result<(Page<'_>, usize)> {
        let (facts, shape) = (self.index.facts(), self.index.facts().shape());
        let number = shape.page_of(vertex);
        if !self.held.contains(&number) {
            self.held = 0..0; // a failed read may leave a part of a page in the buffer
            let at_once = self.buffer.len() / shape.bytes();
            // Pages after the announced end are not needed soon.
            let some = at_once.min(self.end.saturating_sub(number).max(1) as usize);
            self.index.read_pages(number, &mut self.buffer[..some * shape.bytes()])?;
            self.held = number..number + some as u32;
        }
        let page = &self.buffer[(number - self.held.start) as usize * shape.bytes()..][..shape.bytes()];
        let slot = (vertex - shape.vertices(number, facts.vertices).start) as usize;
        Ok((Page::of_checked(shape, page), slot))
    }

    /// Returns the stored vector of a vertex.
    ///
    /// # Errors
    /// If its page cannot be read, or is damaged.
    pub(super) fn vector(&mut self, vertex: u32) -> Result<&[u8]> {
        let bytes = self.index.facts().vectors.bytes();
        let (page, slot) = self.page(vertex)?;
        Ok(&page.vectors(slot + 1)[slot * bytes..])
    }

    /// Appends the neighbors of a vertex, nearest first.
    ///
    /// # Errors
    /// The errors of [`Self::vector`].
    pub(super) fn neighbors(&mut self, vertex: u32, neighbors: &mut Vec<u32>) -> Result<()> {
        let index = self.index;
        let (page, slot) = self.page(vertex)?;
        index.add_neighbors(vertex, page, slot, neighbors)
    }
}
