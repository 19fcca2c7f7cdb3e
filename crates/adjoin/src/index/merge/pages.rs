//! Reads all pages of an index on all threads.

use adjoin_device::AlignedBuffer;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::workers::map_items;
use crate::index::page::Page;
use crate::index::{Index, IndexManifest};

/// Least bytes of pages that a thread works on.
pub(super) const PIECE_BYTES_MIN: u64 = 512 << 10;

/// Vertices of consecutive pages.
pub(super) struct Piece<'a> {
    index: &'a Index,
    /// Number of the first page.
    first: u32,
    /// Verified pages.
    pages: &'a [u8],
}

/// A vertex on a page.
#[derive(Clone, Copy)]
pub(super) struct OnPage<'a> {
    pub(super) vertex: u32,
    /// Its stored vector.
    pub(super) vector: &'a [u8],
    page: Page<'a>,
    slot: usize,
}

/// Returns the number of pages of the index in `bytes` bytes, at least 1.
pub(super) fn pages_of(facts: &IndexManifest, bytes: u64) -> usize {
    let shape = facts.shape();
    (bytes / shape.bytes() as u64).clamp(1, shape.pages(facts.vertices)) as usize
}

/// Reads all pages on all threads, and calls `work` with `piece_bytes` bytes of them at a time. Returns its results in the
/// order of the pages.
///
/// # Errors
/// If pages cannot be read, if `work` fails, or if the work is cancelled.
pub(super) fn over_pages<S: Send, R: Send>(
    context: &Context,
    index: &Index,
    piece_bytes: u64,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, Piece<'_>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (facts, shape) = (index.facts(), index.facts().shape());
    let (pages, together) = (shape.pages(facts.vertices) as usize, pages_of(facts, piece_bytes));
    let state = || (state(), AlignedBuffer::zeroed(together * shape.bytes()));
    map_items(context.threads, pages.div_ceil(together), &context.cancel, state, |(state, buffer), piece| {
        let first = piece * together;
        let some = together.min(pages - first);
        let pages = index.read_pages(first as u32, &mut buffer[..some * shape.bytes()])?;
        work(state, Piece { index, first: first as u32, pages })
    })
}

impl<'a> Piece<'a> {
    /// Returns all vertices.
    pub(super) fn vertices(&self) -> impl Iterator<Item = OnPage<'a>> + use<'a> {
        let Self { index, first, pages } = *self;
        let (facts, shape) = (index.facts(), index.facts().shape());
        let of_page = move |(number, page)| {
            let (all, page) = (shape.vertices(number, facts.vertices), Page::of_checked(shape, page));
            let vectors = page.vectors(all.len()).chunks_exact(facts.vectors.bytes());
            all.zip(vectors).enumerate().map(move |(slot, (vertex, vector))| OnPage { vertex, vector, page, slot })
        };
        (first..).zip(pages.chunks_exact(shape.bytes())).flat_map(of_page)
    }

    /// Appends the neighbors of a vertex, nearest first.
    ///
    /// # Errors
    /// If they are impossible.
    pub(super) fn neighbors(&self, on_page: OnPage<'_>, neighbors: &mut Vec<u32>) -> Result<()> {
        self.index.add_neighbors(on_page.vertex, on_page.page, on_page.slot, neighbors)
    }
}
