//! Caches pages in memory that a search does not need for anything else.
//!
//! Each part of the cache replaces its pages by a clock (Corbató 1968). The hand skips pages that were requested since
//! its last visit, and evicts the first page that was not. The contents of the cache do not affect the hits of a walk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use adjoin_device::{AlignedBuffer, Reclaimable, Reservation};

use super::{Index, PURPOSE_SEARCH};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::workers::map_items;

/// Largest number of parts, each with its own lock.
const PARTS_MAX: u64 = 16;
/// Least number of slabs of a part if there are several parts.
const PART_SLABS_MIN: u64 = 4;
/// Number of pages allocated at once. If aligned pages were allocated one by one, each could take up to twice its
/// bytes.
const SLAB_PAGES: usize = 64;
/// Bytes of each read in [`PageCache::filled`].
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that a cached page takes in addition to its contents. This is its entry in a hash table, which doubles its
/// size when it is full.
const BESIDE: u64 = 64;

/// Cached pages, by number.
pub(super) struct PageCache {
    /// All pages in order, in buffers of [`PIECE_BYTES`], if the cache was filled. Then the parts are empty.
    whole: Vec<AlignedBuffer>,
    parts: Vec<Mutex<Part>>,
    page_bytes: usize,
    /// Largest number of pages in a part.
    pages_max: usize,
    memory: Reservation,
}

#[derive(Default)]
struct Part {
    /// Position in `held` of each cached page, by page number.
    places: HashMap<u32, usize>,
    /// Contents of the pages, [`SLAB_PAGES`] per buffer, in the order of `held`.
    slabs: Vec<AlignedBuffer>,
    held: Vec<Held>,
    /// Position in `held` that the clock visits next.
    hand: usize,
}

struct Held {
    number: u32,
    /// Whether the page was requested since the clock's last visit.
    requested: bool,
}

impl PageCache {
    /// Creates a cache that takes all free memory except `left_bytes` bytes, but no more than all pages need.
    ///
    /// # Errors
    /// If other threads take the memory first.
    pub(super) fn leaving(context: &Context, index: &Index, left_bytes: u64) -> Result<Self> {
        let bytes = Self::useful_bytes(index, context.budget().free().saturating_sub(left_bytes));
        Ok(Self::new(context.reserve(bytes, PURPOSE_SEARCH)?, index.facts().shape().bytes()))
    }

    /// Returns the bytes of the largest cache of pages of an index within `bytes`: a number of slabs for each part.
    fn useful_bytes(index: &Index, bytes: u64) -> u64 {
        let shape = index.facts().shape();
        let slab_bytes = Self::slab_bytes(shape.bytes());
        let parts = Self::parts_of(bytes / slab_bytes);
        // All pages fit, although parts may have different numbers of them.
        let slabs_max = shape.pages(index.facts().vertices) / (parts * SLAB_PAGES as u64) + 1;
        (bytes / slab_bytes / parts).min(slabs_max) * parts * slab_bytes
    }

    /// Creates a cache of pages of `page_bytes` bytes within the reservation `memory`.
    fn new(memory: Reservation, page_bytes: usize) -> Self {
        let slabs = memory.bytes() / Self::slab_bytes(page_bytes);
        let parts = Self::parts_of(slabs);
        let pages_max = (slabs / parts) as usize * SLAB_PAGES;
        Self { whole: Vec::new(), parts: (0..parts).map(|_| Mutex::default()).collect(), page_bytes, pages_max, memory }
    }

    /// Returns the number of parts of a cache of `slabs` slabs. Parts have equally many slabs, so a small cache with many
    /// parts would leave memory unused.
    fn parts_of(slabs: u64) -> u64 {
        (slabs / PART_SLABS_MIN).clamp(1, PARTS_MAX)
    }

    /// Returns the bytes that the pages of a slab take.
    fn slab_bytes(page_bytes: usize) -> u64 {
        SLAB_PAGES as u64 * Self::bytes_of(page_bytes)
    }

    /// Returns the bytes that a cached page takes.
    fn bytes_of(page_bytes: usize) -> u64 {
        page_bytes as u64 + BESIDE
    }

    /// Creates a cache as [`Self::leaving`] does, for a search that reads `reads` single pages. Reads all pages by few
    /// long reads now if they fit in the cache, and if they are no more than that.
    ///
    /// # Errors
    /// If other threads take the memory first, if pages cannot be read, or if the work is cancelled.
    pub(super) fn filled(context: &Context, index: &Index, left_bytes: u64, reads: u64) -> Result<Self> {
        let cache = Self::leaving(context, index, left_bytes)?;
        let (pages, together) = (index.facts().shape().pages(index.facts().vertices), cache.pages_of_piece() as u64);
        if reads < pages || cache.memory.bytes() < pages * Self::bytes_of(cache.page_bytes) {
            return Ok(cache);
        }
        let pieces = pages.div_ceil(together) as usize;
        let whole = map_items(
            context.threads,
            pieces,
            &context.cancel,
            || (),
            |(), piece| {
                let first = piece as u64 * together;
                let mut buffer = AlignedBuffer::zeroed(together.min(pages - first) as usize * cache.page_bytes);
                index.read_pages(first as u32, &mut buffer)?;
                Ok(buffer)
            },
        )?;
        Ok(Self { whole, ..cache })
    }

    fn pages_of_piece(&self) -> usize {
        (PIECE_BYTES / self.page_bytes).max(1)
    }

    /// Returns a page, which is already verified, if the cache was filled.
    pub(super) fn of_whole(&self, number: u32) -> Option<&[u8]> {
        let (piece, page) = (number as usize / self.pages_of_piece(), number as usize % self.pages_of_piece());
        Some(&self.whole.get(piece)?[page * self.page_bytes..][..self.page_bytes])
    }

    /// Returns whether the cache was filled.
    pub(super) fn is_filled(&self) -> bool {
        !self.whole.is_empty()
    }

    fn part(&self, number: u32) -> &Mutex<Part> {
        // Consecutive pages, which are often read at the same time, do not share a lock.
        &self.parts[number as usize % self.parts.len()]
    }

    /// Copies a cached page, which is already verified, into `page`. Returns `false` if the page is not cached.
    pub(super) fn get(&self, number: u32, page: &mut [u8]) -> bool {
        // A cache without room for pages is empty, so no thread needs to wait for a lock.
        if self.pages_max == 0 {
            return false;
        }
        let part = &mut *lock(self.part(number));
        let Some(&place) = part.places.get(&number) else { return false };
        part.held[place].requested = true;
        // The page is copied under the lock, since another page may replace it as soon as the lock is released.
        page.copy_from_slice(part.page(place, self.page_bytes));
        true
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.pages_max > 0 && lock(self.part(number)).places.contains_key(&number)
    }

    /// Caches a page that was read and verified. If the cache is full, evicts another page.
    pub(super) fn put(&self, number: u32, page: &[u8]) {
        if self.pages_max == 0 {
            return;
        }
        let part = &mut *lock(self.part(number));
        if part.places.contains_key(&number) {
            return; // another thread cached it in the meantime
        }
        let place = part.place(self.pages_max, self.page_bytes);
        part.places.insert(number, place);
        // The page is not marked as requested, so a page that is needed only once is evicted at the next visit of the
        // hand.
        part.held[place] = Held { number, requested: false };
        part.page(place, self.page_bytes).copy_from_slice(page);
    }
}

/// Pages that searches of an open index keep for later searches, if their context lets them
/// ([`Context::keeping_caches`]).
#[derive(Default)]
pub(super) struct KeptPages(Mutex<Option<Arc<PageCache>>>);

impl KeptPages {
    /// Returns the cache of earlier searches. If there is none, or if twice as many pages would fit, creates one in all
    /// free memory of `context` but `left_bytes`.
    pub(super) fn cache(self: &Arc<Self>, context: &Context, index: &Index, left_bytes: u64) -> Arc<PageCache> {
        let kept = &mut *lock(&self.0);
        let bytes = PageCache::useful_bytes(index, context.budget().free().saturating_sub(left_bytes));
        if let Some(cache) = kept
            && bytes <= cache.memory.bytes()
        {
            return cache.clone();
        }
        let owner: Arc<dyn Reclaimable> = self.clone();
        let reserve = |bytes| context.budget().reserve_for_cache(bytes, Arc::downgrade(&owner));
        // If other threads take the memory first, this search caches nothing.
        let memory = reserve(bytes).or_else(|_| reserve(0)).expect("zero bytes can always be reserved");
        let cache = Arc::new(PageCache::new(memory, index.facts().shape().bytes()));
        *kept = Some(cache.clone());
        cache
    }
}

impl Reclaimable for KeptPages {
    fn release(&self) {
        lock(&self.0).take();
    }
}

impl Part {
    /// Returns a place for a new page. If the part is full, evicts a page and returns its place.
    fn place(&mut self, pages_max: usize, page_bytes: usize) -> usize {
        if self.held.len() < pages_max {
            let place = self.held.len();
            if place.is_multiple_of(SLAB_PAGES) {
                self.slabs.push(AlignedBuffer::zeroed(SLAB_PAGES * page_bytes));
            }
            self.held.push(Held { number: 0, requested: false });
            return place;
        }
        // Each visit clears a mark, so the loop ends after at most one round.
        while std::mem::take(&mut self.held[self.hand].requested) {
            self.hand = (self.hand + 1) % pages_max;
        }
        let place = self.hand;
        self.hand = (place + 1) % pages_max;
        self.places.remove(&self.held[place].number);
        place
    }

    fn page(&mut self, place: usize, page_bytes: usize) -> &mut [u8] {
        &mut self.slabs[place / SLAB_PAGES][place % SLAB_PAGES * page_bytes..][..page_bytes]
    }
}

#[cfg(test)]
mod tests {
    use adjoin_device::MemoryBudget;

    use super::*;
    use crate::base::allocated::{allocated, assert_states_bytes};
    use crate::base::random::Random;

    const PAGE_BYTES: usize = 8;

    #[test]
    fn a_full_page_cache_holds_the_bytes_that_it_reserved() {
        let page_bytes = 4_096;
        for slabs in [1, 2, 5, 8, 64, 80] {
            let pages = (slabs * SLAB_PAGES) as u32;
            let bytes = u64::from(pages) * PageCache::bytes_of(page_bytes);
            let memory = MemoryBudget::new(bytes).reserve(bytes).unwrap();
            let page = vec![7; page_bytes];
            let (cache, held) = allocated(|| {
                let cache = PageCache::new(memory, page_bytes);
                // Twice as many pages as fit are cached, so that each part is full.
                (0..2 * pages).for_each(|number| cache.put(number, &page));
                cache
            });
            assert!(cache.parts.iter().all(|part| lock(part).held.len() == cache.pages_max));
            assert_states_bytes(held, bytes);
        }
    }

    /// Creates a cache with `slabs` slabs.
    fn cache(slabs: usize) -> PageCache {
        let bytes = (slabs * SLAB_PAGES) as u64 * PageCache::bytes_of(PAGE_BYTES);
        PageCache::new(MemoryBudget::new(bytes).reserve(bytes).unwrap(), PAGE_BYTES)
    }

    fn page(number: u32) -> [u8; PAGE_BYTES] {
        (u64::from(number) * 0x0101).to_le_bytes()
    }

    fn has(cache: &PageCache, number: u32) -> bool {
        let mut found = [0; PAGE_BYTES];
        let is_held = cache.get(number, &mut found);
        assert!(!is_held || found == page(number), "{number}: {found:?}");
        is_held
    }

    #[test]
    fn the_page_cache_returns_stored_pages_within_its_capacity() {
        let (cache, mut random, mut found) = (cache(32), Random::new(1, "pages"), 0);
        let pages = 4 * (32 * SLAB_PAGES) as u64;
        for _ in 0..60_000 {
            let number = random.below(pages) as u32;
            assert_eq!(cache.has(number), has(&cache, number));
            match cache.has(number) {
                true => found += 1,
                false => cache.put(number, &page(number)),
            }
        }
        let held = (0..pages as u32).filter(|&number| cache.has(number)).count();
        assert_eq!(held, 32 * SLAB_PAGES);
        assert!((10_000..20_000).contains(&found), "about a quarter is held: {found}");
    }

    #[test]
    fn a_frequently_used_page_is_not_evicted() {
        let cache = cache(8);
        let of_one_part = |k: usize| (k * cache.parts.len()) as u32;
        cache.put(0, &page(0));
        for k in 1..20 * SLAB_PAGES {
            assert!(has(&cache, 0), "{k}");
            cache.put(of_one_part(k), &page(of_one_part(k)));
            assert!(cache.has(of_one_part(k)), "{k}");
        }
    }

    #[test]
    fn a_cache_without_capacity_is_empty() {
        let cache = cache(0);
        cache.put(1, &page(1));
        assert!(!has(&cache, 1));
    }
}
