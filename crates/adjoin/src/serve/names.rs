//! Holds the ids of the hits that queries have found so far. Ids are noted when a bucket is compared, since the bucket
//! may be evicted before the query is done.

use std::sync::Mutex;

use crate::base::mutex::lock;
use crate::load::Buckets;
use crate::source::{IdKind, Ids};

/// A place in a store: a bucket, and the position of a member in it.
type Place = (u32, u32);

/// Number of ids that a query may hold in addition to those of its hits.
const SPARE: usize = 64;

/// Places of members, and their ids.
struct NotedIds {
    places: Vec<Place>,
    ids: Ids,
}

impl NotedIds {
    fn empty(kind: IdKind) -> Self {
        Self { places: Vec::new(), ids: Ids::empty(kind) }
    }

    /// Returns the ids of the members at `places`, in this order.
    ///
    /// # Panics
    /// If an id was not noted.
    fn select(&self, places: &[Place]) -> Self {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_unstable_by_key(|&position| self.places[position]);
        let mut ids = Ids::empty(self.ids.kind());
        for place in places {
            let found = order.binary_search_by_key(place, |&position| self.places[position]);
            ids.push_from(&self.ids, order[found.expect("the id of a hit was noted")]);
        }
        Self { places: places.to_vec(), ids }
    }
}

/// Ids of the hits that each query of a batch holds. There may also be ids of hits that it no longer holds.
pub(super) struct Names {
    kind: IdKind,
    by_query: Vec<Mutex<NotedIds>>,
}

impl Names {
    /// Creates empty lists for `queries` queries.
    pub(super) fn new(kind: IdKind, queries: usize) -> Self {
        Self { kind, by_query: (0..queries).map(|_| Mutex::new(NotedIds::empty(kind))).collect() }
    }

    /// Returns the bytes of the ids of a query with `hits` hits.
    pub(super) fn memory_bytes(buckets: &Buckets<'_>, hits: u64) -> u64 {
        if buckets.ids(0) == IdKind::None {
            return 0;
        }
        // Twice the mean length of all ids, since a growing vector may have twice the capacity that it needs.
        let ids: u64 = buckets.extents().iter().map(|extent| extent.id_bytes).sum();
        let of_name = size_of::<Place>() as u64 + 8 + ids / buckets.rows().max(1);
        hits.saturating_mul(2).saturating_add(SPARE as u64).saturating_mul(2 * of_name)
    }

    /// Notes the ids of those members of a bucket that are hits of a query. `held` returns all hits of the query. It is
    /// called if the query has many ids, to remove the ids that are not needed.
    pub(super) fn note(&self, query: usize, bucket: u32, members: &[u32], ids: &Ids, held: impl Fn() -> Vec<Place>) {
        if self.kind == IdKind::None || members.is_empty() {
            return;
        }
        let mut own = lock(&self.by_query[query]);
        for &member in members {
            own.places.push((bucket, member));
            own.ids.push_from(ids, member as usize);
        }
        // This is done rarely, since `held` locks and copies the hits of the query.
        if own.places.len() > 2 * SPARE {
            let held = held();
            // Ids that are not needed anymore are removed once they are the majority.
            if own.places.len() > 2 * held.len() + SPARE {
                *own = own.select(&held);
            }
        }
    }

    /// Removes the ids of a query. Returns the ids of its hits `held`, in this order.
    ///
    /// # Panics
    /// If the id of a hit was not noted.
    pub(super) fn take(&self, query: usize, held: &[Place]) -> Ids {
        if self.kind == IdKind::None {
            return Ids::None;
        }
        let own = std::mem::replace(&mut *lock(&self.by_query[query]), NotedIds::empty(self.kind));
        own.select(held).ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_held_hits_are_kept_as_others_are_added() {
        let names = Names::new(IdKind::Int64, 2);
        let ids = Ids::Int64((0..1_000).map(|id| 5 * id).collect());
        let held = [(3, 7), (0, 1), (9, 999)];
        for bucket in 0..1_000 {
            // In bucket 9 the last member is noted, in all other buckets the first 20 members. Of these, two are kept.
            let members: Vec<u32> = if bucket == 9 { vec![999] } else { (0..20).collect() };
            let held = || held.into_iter().filter(|place| place.0 <= bucket).collect();
            names.note(1, bucket, &members, &ids, held);
            assert!(lock(&names.by_query[1]).places.len() <= 2 * SPARE + 20);
        }
        assert_eq!(names.take(1, &held), Ids::Int64(vec![35, 5, 4_995]));
        assert!(lock(&names.by_query[0]).places.is_empty() && lock(&names.by_query[1]).places.is_empty());
        assert_eq!(Names::new(IdKind::None, 1).take(0, &held), Ids::None);
    }
}
