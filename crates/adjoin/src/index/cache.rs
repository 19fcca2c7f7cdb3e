//! Pages that a search holds because they may be needed again, in memory that nothing else of it needs.
//!
//! A clock (Corbató 1968) goes over the places of a part in a circle: a page that was asked for since the clock last came by
//! stays, the first other one makes room. What a walk finds does not depend on what is held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use adjoin_device::{AlignedBuffer, Reservation};

use super::Index;
use super::run::PURPOSE;
use crate::context::Context;
use crate::error::Result;
use crate::workers::lock;

/// Parts, each with a lock of its own.
const PARTS: usize = 16;
/// What a page takes beside its bytes.
const BESIDE: u64 = 96;

/// A page that several may look at.
pub(super) type SharedPage = Arc<AlignedBuffer>;

/// Pages by number.
pub(super) struct PageCache {
    parts: Vec<Mutex<Part>>,
    /// Pages of a part, at most.
    most: usize,
    _memory: Reservation,
}

#[derive(Default)]
struct Part {
    places: HashMap<u32, usize>,
    held: Vec<Held>,
    /// The place to which the clock comes next.
    hand: usize,
}

struct Held {
    number: u32,
    page: SharedPage,
    /// Whether it was asked for since the clock came by.
    wanted: bool,
}

impl PageCache {
    /// One in what is free beyond `keep` bytes.
    ///
    /// # Errors
    /// Where others take the memory meanwhile.
    pub(super) fn beside(context: &Context, index: &Index, keep: u64) -> Result<Self> {
        let shape = index.facts().shape();
        let all = (shape.pages(index.facts().vertices) + PARTS as u64) * Self::bytes_of(shape.bytes());
        let bytes = context.budget().free().saturating_sub(keep).min(all);
        Ok(Self::new(context.reserve(bytes, PURPOSE)?, shape.bytes()))
    }

    /// One within a reservation, for pages of `page_bytes`.
    fn new(memory: Reservation, page_bytes: usize) -> Self {
        let most = (memory.bytes() / Self::bytes_of(page_bytes)) as usize / PARTS;
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), most, _memory: memory }
    }

    /// Bytes of a page that is held.
    fn bytes_of(page_bytes: usize) -> u64 {
        page_bytes as u64 + BESIDE
    }

    fn part(&self, number: u32) -> &Mutex<Part> {
        &self.parts[number as usize % PARTS]
    }

    /// A page, where it is held.
    pub(super) fn get(&self, number: u32) -> Option<SharedPage> {
        if self.most == 0 {
            return None;
        }
        let part = &mut *lock(self.part(number));
        let held = &mut part.held[*part.places.get(&number)?];
        held.wanted = true;
        Some(held.page.clone())
    }

    /// Holds a page that was read and checked; returns the one that made room for it.
    pub(super) fn put(&self, number: u32, page: &SharedPage) -> Option<SharedPage> {
        if self.most == 0 {
            return None;
        }
        let part = &mut *lock(self.part(number));
        if part.places.contains_key(&number) {
            return None; // another thread has read it meanwhile
        }
        let held = Held { number, page: page.clone(), wanted: false };
        if part.held.len() < self.most {
            part.places.insert(number, part.held.len());
            part.held.push(held);
            return None;
        }
        while std::mem::take(&mut part.held[part.hand].wanted) {
            part.hand = (part.hand + 1) % self.most;
        }
        let place = part.hand;
        part.hand = (place + 1) % self.most;
        let gone = std::mem::replace(&mut part.held[place], held);
        part.places.remove(&gone.number);
        part.places.insert(number, place);
        Some(gone.page)
    }
}

#[cfg(test)]
mod tests {
    use adjoin_device::MemoryBudget;

    use super::*;
    use crate::random::Random;

    fn cache(bytes: u64, page_bytes: usize) -> PageCache {
        PageCache::new(MemoryBudget::new(bytes).reserve(bytes).unwrap(), page_bytes)
    }

    fn page(number: u32) -> SharedPage {
        let mut page = AlignedBuffer::zeroed(8);
        page[..4].copy_from_slice(&number.to_le_bytes());
        Arc::new(page)
    }

    #[test]
    fn what_is_held_is_what_was_put_and_no_more_than_there_is_room_for() {
        let cache = cache(PARTS as u64 * 3 * PageCache::bytes_of(8), 8);
        let mut random = Random::new(1, "pages");
        let (mut held, mut found) = (0_usize, 0);
        for _ in 0..20_000 {
            let number = random.below(200) as u32;
            match cache.get(number) {
                Some(page) => {
                    assert_eq!(page[..4], number.to_le_bytes());
                    found += 1;
                }
                None => held += usize::from(cache.put(number, &page(number)).is_none()),
            }
            assert!(held <= 3 * PARTS);
        }
        assert!((3_000..7_000).contains(&found), "about a quarter is held: {found}");
    }

    #[test]
    fn a_page_that_is_asked_for_stays() {
        let cache = cache(PARTS as u64 * 2 * PageCache::bytes_of(8), 8);
        let of_one_part = |k: u32| k * PARTS as u32;
        cache.put(0, &page(0));
        for k in 1..50 {
            assert!(cache.get(0).is_some(), "{k}");
            cache.put(of_one_part(k), &page(of_one_part(k)));
            assert!(cache.get(of_one_part(k)).is_some());
        }
    }

    #[test]
    fn a_cache_without_room_holds_nothing() {
        let cache = cache(100, 4_096);
        assert!(cache.put(1, &page(1)).is_none() && cache.get(1).is_none());
    }
}
