//! Rules of DiskJoin, and simpler ones. A rule chooses the pairs that a join compares. The engine's rules are
//! compared with them (Figure 18). Joins by these rules run here in memory, and use the kernels and stores of the
//! engine. Joins by rules for whole buckets also run from disk, in an order of tasks and with a cache (`scheduled.rs`).
//!
//! A rule with a threshold `t` admits more pairs if `t` is larger. A calibration sets `t` such that the recall is
//! reached (`calibration.rs`).

mod calibration;
mod edges;
mod execution;
mod rows;
mod scheduled;
mod thresholds;

use std::str::FromStr;

use adjoin::{
    Context, Error, Predicate, Result, Store,
    lab::{
        ROWS_MIN,
        geometry::{Coordinate, Threshold},
        load::Buckets,
        plan::Task,
        report::Stopwatch,
        truth::Recalls,
    },
};

use self::calibration::Calibration;
use self::edges::EdgeThresholds;
use self::execution::Execution;
pub(crate) use self::execution::Found;
use self::rows::Rows;
pub(crate) use self::scheduled::execute;

/// Which pairs are compared, in addition to the pairs within a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All pairs of buckets that the triangle inequality does not exclude (DiskJoin, equation 1). No pair is missed.
    Triangle,
    /// Members with a distance of at most `sqrt(t) * eps` to the other center, in either bucket.
    Distance,
    /// Members with a margin of at most `t * eps` toward the other center, in either bucket.
    Margin,
    /// All members of a bucket and of its `t` nearest other buckets.
    Nearest,
    /// All members of a bucket and of the buckets that DiskJoin's probabilistic pruning leaves (section 5.2,
    /// Algorithm 3). The ball of the paper is taken to be the ball of radius eps around the center. `t` is the
    /// paper's lambda.
    Arc,
    /// [`Self::Arc`] with the constant `mu`, which equation 3 has but Algorithm 3 omits.
    ArcMu,
    /// [`Self::Arc`] with a ball that contains everything within eps of a member. Its radius is the bucket's radius
    /// plus eps.
    ArcRadius,
    /// [`Self::ArcRadius`] with the constant `mu`.
    ArcRadiusMu,
}

impl Rule {
    /// All rules.
    pub(crate) const ALL: [Self; 8] = [
        Self::Triangle,
        Self::Distance,
        Self::Margin,
        Self::Nearest,
        Self::Arc,
        Self::ArcMu,
        Self::ArcRadius,
        Self::ArcRadiusMu,
    ];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Triangle => "triangle",
            Self::Distance => "distance",
            Self::Margin => "margin",
            Self::Nearest => "nearest",
            Self::Arc => "arc",
            Self::ArcMu => "arc-mu",
            Self::ArcRadius => "arc-radius",
            Self::ArcRadiusMu => "arc-radius-mu",
        }
    }

    /// Returns whether the rule is a reading of DiskJoin's pruning.
    pub(crate) fn is_arc(self) -> bool {
        matches!(self, Self::Arc | Self::ArcMu | Self::ArcRadius | Self::ArcRadiusMu)
    }

    /// Returns whether the rule admits either all pairs of an edge or none.
    fn takes_whole(self) -> bool {
        !matches!(self, Self::Distance | Self::Margin)
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(format!("no such rule: {name}; choose one of union, margin-sum, {names}"))
        })
    }
}

/// A join of a store with itself by one of these rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleJoin {
    pub(crate) rule: Rule,
    pub(crate) predicate: Predicate,
    /// Recall to reach.
    pub(crate) recall: f64,
    /// Whether the recall counts all pairs only, as in the paper, and not also the neighbors of a vector.
    pub(crate) of_pairs_only: bool,
    /// Threshold of the rule. If it is set, it is used even if it does not reach the recall.
    pub(crate) t: Option<f64>,
    /// Number of nearest buckets that an arc rule considers for each bucket, which counts itself. All if absent.
    pub(crate) candidates: Option<usize>,
    /// Seed of the sample.
    pub(crate) seed: u64,
}

/// Result of a [`RuleJoin`].
pub(crate) struct Joined {
    /// Threshold of the rule. `None` if the rule is exact.
    pub(crate) t: Option<f64>,
    /// Recall of the rule for the sampled rows.
    pub(crate) recalls: Recalls,
    pub(crate) found: Found,
    pub(crate) calibrate_seconds: f64,
    pub(crate) plan_seconds: f64,
    pub(crate) execute_seconds: f64,
}

/// Plan of a [`RuleJoin`] of whole buckets.
pub(crate) struct Planned {
    /// Threshold of the rule. `None` if the rule is exact.
    pub(crate) t: Option<f64>,
    /// Recall of the rule for the sampled rows.
    pub(crate) recalls: Recalls,
    /// Pairs of buckets to compare, and each bucket with itself.
    pub(crate) tasks: Vec<Task>,
    pub(crate) calibrate_seconds: f64,
    pub(crate) plan_seconds: f64,
}

/// The threshold of each edge, and the threshold of the rule.
struct Decided {
    edges: EdgeThresholds,
    t: f64,
    recalls: Recalls,
    calibrate_seconds: f64,
    plan_seconds: f64,
}

impl RuleJoin {
    /// Joins a store with itself.
    ///
    /// # Errors
    /// If the store cannot be read, or the rule cannot be shown to reach the recall.
    pub(crate) fn run(&self, context: &Context, store: &Store) -> Result<Joined> {
        match Buckets::of(store).space().is_of_bytes() {
            true => self.join::<u8>(context, store),
            false => self.join::<f32>(context, store),
        }
    }

    fn join<T: Coordinate>(&self, context: &Context, store: &Store) -> Result<Joined> {
        let buckets = Buckets::of(store);
        let rows = &Rows::<T>::read(context, &buckets)?;
        let threshold = &Threshold::new(self.predicate, buckets.space());
        let Decided { edges, t, recalls, calibrate_seconds, plan_seconds } = self.decide(context, rows, threshold)?;
        let watch = Stopwatch::start();
        let found = Execution { context, rows, edges: &edges, rule: self.rule, threshold, t }.run()?;
        let t = (self.rule != Rule::Triangle).then_some(t);
        Ok(Joined { t, recalls, found, calibrate_seconds, plan_seconds, execute_seconds: watch.seconds() })
    }

    /// Returns the tasks that the rule selects, for a join from disk.
    ///
    /// # Errors
    /// If the rule selects parts of buckets, the store cannot be read, or the rule cannot be shown to reach the recall.
    pub(crate) fn plan(&self, context: &Context, store: &Store) -> Result<Planned> {
        if !self.rule.takes_whole() {
            let name = self.rule.name();
            return Err(Error::option(format!("the rule {name} compares parts of buckets; leave out order=")));
        }
        match Buckets::of(store).space().is_of_bytes() {
            true => self.planned::<u8>(context, store),
            false => self.planned::<f32>(context, store),
        }
    }

    fn planned<T: Coordinate>(&self, context: &Context, store: &Store) -> Result<Planned> {
        let buckets = Buckets::of(store);
        let rows = &Rows::<T>::read(context, &buckets)?;
        let threshold = &Threshold::new(self.predicate, buckets.space());
        let Decided { edges, t, recalls, calibrate_seconds, plan_seconds } = self.decide(context, rows, threshold)?;
        let filled: Vec<u32> = (0..rows.buckets()).filter(|&bucket| !rows.range(bucket).is_empty()).collect();
        let later = |at: usize| filled[at..].iter().map(move |&other| (at, other));
        let is_task = |&(i, j): &Task| i == j || edges.of(i, j) <= t;
        let tasks = (0..filled.len()).flat_map(later).map(|(at, other)| (filled[at], other)).filter(is_task).collect();
        let t = (self.rule != Rule::Triangle).then_some(t);
        Ok(Planned { t, recalls, tasks, calibrate_seconds, plan_seconds })
    }

    fn decide<T: Coordinate>(&self, context: &Context, rows: &Rows<T>, threshold: &Threshold) -> Result<Decided> {
        let mut watch = Stopwatch::start();
        let edges = EdgeThresholds::find(context, rows, self.rule, threshold.distance, self.candidates)?;
        let plan_seconds = watch.lap();
        let calibration = Calibration { context, rows, edges: &edges, rule: self.rule, threshold };
        let (t, drawn) = match (self.rule, self.t) {
            (Rule::Triangle, _) => (0.0, calibration.draw(ROWS_MIN, self.seed)?),
            (_, Some(t)) => (t, calibration.draw(ROWS_MIN, self.seed)?),
            (rule, None) => {
                let (t, drawn) = calibration.threshold(self.recall, self.of_pairs_only, self.seed)?;
                let (rule, recall) = (rule.name(), self.recall);
                let refused = || format!("the rule {rule} cannot be shown to reach a recall of {recall} here");
                (t.ok_or_else(|| Error::option(refused()))?, drawn)
            }
        };
        let recalls = drawn.sample.recalls(t, self.seed);
        Ok(Decided { edges, t, recalls, calibrate_seconds: watch.lap(), plan_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_parse_from_their_names() {
        for rule in Rule::ALL {
            assert_eq!(rule.name().parse::<Rule>().unwrap(), rule);
        }
        assert!("arc-sine".parse::<Rule>().unwrap_err().to_string().contains("arc, arc-mu, arc-radius, arc-radius-mu"));
    }
}
