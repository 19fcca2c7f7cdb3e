//! Reports of the recall of a search.

use adjoin::{CommonStatistics, format_count};

use super::memory::memory_verdict;
use crate::Outcome;
use crate::print::percent;

/// Prints which promises of a search were not kept.
pub(super) fn verdict(common: &CommonStatistics) -> Outcome {
    let outcome = memory_verdict(&common.memory);
    match common.recall.as_ref().filter(|recall| !recall.kept) {
        None => outcome,
        Some(recall) => {
            let (target, reached) = (percent(recall.target), recall.at_k.map(|at_k| percent(at_k.estimate)));
            let reached = reached.map_or_else(String::new, |reached| format!("; about {reached} is reached"));
            eprintln!("adjoin: no reasonable search reaches a recall of {target}{reached}");
            Outcome::PromiseNotKept
        }
    }
}

/// Prints the recall that was reached, and the queries for which it holds: the ones that `rows` describes, or the
/// given calibration queries. If the search promised no recall, prints the `option` that set its effort.
pub(super) fn print_recall(common: &CommonStatistics, has_calibration_queries: bool, option: &str, rows: &str) {
    let Some(recall) = &common.recall else { return eprintln!("recall: no target with {option}") };
    // An exact search has no sample.
    let (Some(sample), Some(at_k), Some(p5)) = (recall.sample_queries, recall.at_k, recall.p5) else {
        return eprintln!("recall: 100 % (exact); at least {} requested", percent(recall.target));
    };
    let [estimate, low, high, p5, target] = [at_k.estimate, at_k.low, at_k.high, p5, recall.target].map(percent);
    let inserted = recall.queries.as_deref().filter(|queries| queries.contains("merge"));
    let (rows, others) = match (has_calibration_queries, inserted) {
        (true, _) => ("of --calibrate-with", ""),
        (false, None) => (rows, " (for other queries, give some as --calibrate-with)"),
        (false, Some(_)) => ("that the last merge inserted", ", whose recall is the lowest"),
    };
    eprintln!(
        "recall: mean {estimate} (between {low} and {high}); 95 % of the queries reached at least {p5}; measured with {} \
         {rows} as queries{others}; at least {target} requested",
        format_count(sample, "row"),
    );
}
