//! Measures how many comparisons each rule needs to reach a recall, on all sets.

use std::path::Path;

use adjoin::{Context, JoinEffort, JoinOptions, Result, lab::plan};

use super::setting::{Joined, Reached, RecallReached, Setting};
use crate::rules::{self, Rule, RuleJoin};

/// Sets with thresholds. At some of them, a vector has 10 or 100 neighbors on average. Others are round numbers.
const SETTINGS: [(&str, f64); 8] = [
    ("sift-200k.u8bin", 126.566),
    ("sift-200k.u8bin", 226.555),
    ("sift-stars-50k.u8bin", 77.569),
    ("sift-stars-50k.u8bin", 174.880),
    ("debdesc.f16.npy", 0.9),
    ("debdesc.f16.npy", 0.8),
    ("wordnet-20k.f16.npy", 0.9),
    ("wordnet-20k.f16.npy", 0.8),
];
const CALIBRATED: [Way; 5] = [
    Way::Engine(plan::Rule::Union),
    Way::Lab(Rule::Distance),
    Way::Lab(Rule::Margin),
    Way::Lab(Rule::Nearest),
    Way::Lab(Rule::Arc),
];
const RECALLS: [f64; 2] = [0.9, 0.99];
/// The paper's lambda for a recall of this size. It does not control the recall.
const LAMBDA: f64 = 0.8;

/// Number of pairs per vector that the prototypes of the study compare, for both recalls at 0.9 and at 0.99. The
/// study set their thresholds with the whole truth, while a promise needs a sample and a margin. For texts, the
/// numbers are estimated from the two tables of the study, which have one recall each.
const STUDY: [(&str, f64, &str, [f64; 2]); 6] = [
    ("sift-200k.u8bin", 126.566, "union", [78.0, 113.0]),
    ("sift-200k.u8bin", 126.566, "distance", [110.0, 1634.0]),
    ("sift-200k.u8bin", 126.566, "nearest", [473.0, 4892.0]),
    ("sift-200k.u8bin", 226.555, "union", [205.0, 477.0]),
    ("sift-200k.u8bin", 226.555, "distance", [586.0, 2492.0]),
    ("sift-200k.u8bin", 226.555, "nearest", [2632.0, f64::NAN]),
];

/// A rule, either of the engine or of the laboratory.
#[derive(Debug, Clone, Copy)]
enum Way {
    Engine(plan::Rule),
    Lab(Rule),
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Engine(rule) => rule.name(),
            Self::Lab(rule) => rule.name(),
        }
    }
}

/// A line of the table.
struct Line {
    t: Option<f64>,
    compared: f64,
    edges: u64,
    recall: RecallReached,
    seconds: f64,
}

/// Joins by a rule. The join must reach `recall`, or find every pair if it is `None`. If `given` is set, it is used
/// as the threshold of the rule.
fn joined(context: &Context, setting: &Setting, way: Way, recall: Option<f64>, given: Option<f64>) -> Result<Line> {
    match way {
        Way::Engine(rule) => {
            let aim = recall.map_or(Ok(JoinEffort::Every), JoinEffort::recall)?;
            let options = JoinOptions { rule: Some(rule), aim, ..JoinOptions::exact(setting.predicate) };
            let reached = setting.join(context, &options)?;
            let (compared, Reached { statistics, recall }) = (reached.compared(), reached);
            let (t, seconds) = (statistics.common.strategy.t, statistics.common.seconds.total);
            Ok(Line { t, compared, edges: statistics.join.edges, recall, seconds })
        }
        Way::Lab(rule) => {
            let recall = recall.unwrap_or(LAMBDA);
            let join = RuleJoin {
                rule,
                predicate: setting.predicate,
                recall,
                of_pairs_only: false,
                t: given,
                candidates: None,
                seed: 1,
            };
            let (joined, recall) = setting.join_by(context, &join)?;
            let rules::Joined { t, found, calibrate_seconds, plan_seconds, execute_seconds, .. } = joined;
            let compared = found.candidate_pairs as f64 / setting.rows() as f64;
            Ok(Line {
                t,
                compared,
                edges: found.edges,
                recall,
                seconds: calibrate_seconds + plan_seconds + execute_seconds,
            })
        }
    }
}

/// Prints the table.
pub(crate) fn print(context: &Context, data: &Path, work: &Path) -> Result<()> {
    for (name, threshold) in SETTINGS {
        let file = data.join(name);
        if !file.exists() {
            continue;
        }
        let setting = Setting::open(context, &file, work, threshold, Joined::Within)?;
        println!("  rule          R       t       pairs a vector     study     edges     pair  per vector  seconds");
        let calibrated = CALIBRATED.iter().flat_map(|&rule| RECALLS.map(|recall| (rule, Some(recall), None)));
        let proved = [(Way::Engine(plan::Rule::MarginSum), None, None)];
        let as_printed = [(Way::Lab(Rule::Arc), None, Some(LAMBDA))];
        for (way, recall, given) in calibrated.chain(as_printed).chain(proved) {
            let label = format!("  {:<12}  {:<6}", way.name(), recall.map_or("-".into(), |recall| recall.to_string()));
            let line = match joined(context, &setting, way, recall, given) {
                Ok(line) => line,
                Err(error) => {
                    println!("{label}  {error}");
                    continue;
                }
            };
            let of = |row: &&(&str, f64, &str, [f64; 2])| (row.0, row.1, row.2) == (name, threshold, way.name());
            let at = RECALLS.iter().position(|of| Some(*of) == recall);
            let study = STUDY.iter().find(of).zip(at).map_or(f64::NAN, |(row, at)| row.3[at]);
            println!(
                "{label}  {:<8}  {:>12.1}  {:>8}  {:>8}  {:.5}     {:.5}  {:>7.2}",
                line.t.map_or("-".into(), |t| format!("{t:.4}")),
                line.compared,
                if study.is_nan() { "-".into() } else { study.to_string() },
                line.edges,
                line.recall.pair,
                line.recall.per_vector,
                line.seconds,
            );
        }
    }
    Ok(())
}
