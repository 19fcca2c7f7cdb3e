//! Predicts the cost of a query: the fraction of all rows that it will be compared with. Predictions are kept per
//! kind of query.

use adjoin::SearchOptions;

/// Weight of the last answer in a known cost.
const LEARNED: f64 = 0.2;
/// Maximum number of kinds with a known cost; the least recently answered kind is forgotten.
const KINDS_MAX: usize = 64;

/// Known costs by kind of query. A cost is a fraction of the rows, so that it stays valid while a collection grows.
/// Each kind has its own cost, so that an expensive kind does not raise the predictions for the others.
#[derive(Default)]
pub(crate) struct Costs {
    /// Kinds with their costs, the most recently answered last.
    kinds: Vec<(SearchOptions, f64)>,
    /// Mean over all kinds.
    mean: Option<f64>,
}

impl Costs {
    /// Predicts the fraction of the rows that a query will be compared with. If nothing is known yet, returns 1.
    pub(crate) fn fraction(&self, search: &SearchOptions) -> f64 {
        let known = self.kinds.iter().find(|(kind, _)| kind == search).map(|&(_, fraction)| fraction);
        known.or(self.mean).unwrap_or(1.0)
    }

    /// Records that a query was compared with `distances` of `rows` rows.
    pub(crate) fn learn(&mut self, search: &SearchOptions, distances: f64, rows: u64) {
        if rows == 0 {
            return; // an empty collection gives no evidence
        }
        let now = (distances / rows as f64).min(1.0);
        let mean = |known: f64| (1.0 - LEARNED) * known + LEARNED * now;
        // The mean over all kinds predicts the cost of a kind that was not searched yet.
        self.mean = Some(self.mean.map_or(now, mean));
        // Removed here and pushed at the end, so that the kinds are in the order of their last use.
        let known = self.kinds.iter().position(|(kind, _)| kind == search).map(|at| self.kinds.remove(at));
        if self.kinds.len() == KINDS_MAX {
            self.kinds.remove(0);
        }
        self.kinds.push(known.map_or_else(|| (search.clone(), now), |(kind, fraction)| (kind, mean(fraction))));
    }
}

#[cfg(test)]
mod tests {
    use adjoin::{QueryTarget, SearchEffort};

    use super::*;
    use crate::request::SEED;

    fn nearest(k: u64) -> SearchOptions {
        let wanted = QueryTarget::Nearest(k);
        SearchOptions::new(wanted, SearchEffort::default(), SEED)
    }

    #[test]
    fn request_costs_grow_with_rows_and_ignore_empty_searches() {
        let mut costs = Costs::default();
        costs.learn(&nearest(3), 0.0, 0);
        assert_eq!(costs.fraction(&nearest(3)), 1.0);
        costs.learn(&nearest(3), 100.0, 400);
        assert_eq!(costs.fraction(&nearest(3)), 0.25);
    }

    #[test]
    fn expensive_requests_do_not_affect_the_cost_of_others() {
        let mut costs = Costs::default();
        costs.learn(&nearest(3), 1.0, 100);
        for k in 0..2 * KINDS_MAX as u64 {
            costs.learn(&nearest(1_000 + k), 100.0, 100);
            costs.learn(&nearest(3), 1.0, 100);
        }
        assert_eq!(costs.fraction(&nearest(3)), 0.01);
        assert!(costs.kinds.len() == KINDS_MAX && costs.fraction(&nearest(7)) > 0.01);
    }
}
