//! How searches of an open index go that promise a recall for queries like its rows. To derive that from the calibration takes
//! longer than most searches, and to learn it longer still, so it is done once for each K and recall.

use std::sync::Mutex;

use crate::report::RecallStatistics;
use crate::workers::lock;

/// Promises that are remembered, at most.
const PROMISES_MAX: usize = 64;

/// What is asked of a search: K, the recall, and the seed.
pub(super) type Promise = (u64, f64, u64);

/// How it is kept: the list of the walks, or `None` for a comparison with all pages; and what is known of the recall.
pub(super) type Keeping = (Option<usize>, RecallStatistics);

/// Known promises; the last is the most recently used.
#[derive(Debug, Default)]
pub(super) struct Promises(Mutex<Vec<(Promise, Keeping)>>);

impl Promises {
    /// Returns how a promise is kept, if that is known.
    pub(super) fn get(&self, promise: Promise) -> Option<Keeping> {
        let mut known = lock(&self.0);
        let at = known.iter().position(|(of, _)| *of == promise)?;
        let found = known.remove(at);
        known.push(found);
        known.last().map(|(_, keeping)| keeping.clone())
    }

    /// Remembers how a promise is kept, and forgets the least recently used one if there are too many.
    pub(super) fn put(&self, promise: Promise, keeping: Keeping) {
        let mut known = lock(&self.0);
        known.retain(|(of, _)| *of != promise);
        if known.len() == PROMISES_MAX {
            known.remove(0);
        }
        known.push((promise, keeping));
    }

    /// Whether it is known how a promise is kept.
    pub(super) fn contains(&self, promise: Promise) -> bool {
        lock(&self.0).iter().any(|(of, _)| *of == promise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_promise_is_forgotten() {
        let promises = Promises::default();
        let put = |k: u64| promises.put((k, 0.9, 1), (Some(k as usize), RecallStatistics::promised(0.9)));
        (0..PROMISES_MAX as u64).for_each(put);
        assert_eq!(promises.get((0, 0.9, 1)).unwrap().0, Some(0));
        put(1_000);
        assert!(promises.contains((0, 0.9, 1)) && promises.contains((1_000, 0.9, 1)));
        assert!(!promises.contains((1, 0.9, 1)) && promises.get((0, 0.8, 1)).is_none());
    }
}
