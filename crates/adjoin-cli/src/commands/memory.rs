//! Reports of a command's memory.

use adjoin::{Context, MemoryStatistics, format_bytes};

use crate::Outcome;
use crate::print::percent;

/// Prints the line about memory in the summary of a command.
pub(super) fn print_memory(memory: &MemoryStatistics) {
    eprintln!("{}{}", in_words(memory), share_in_words(memory));
}

/// Describes the peak and the budget.
fn in_words(memory: &MemoryStatistics) -> String {
    let budget = format_bytes(memory.budget_bytes);
    match memory.peak_bytes {
        Some(peak) => format!("memory: {} at most; the budget is {budget}", format_bytes(peak)),
        None => format!("memory: this system does not report the peak; the budget is {budget}"),
    }
}

/// Describes the memory of which the budget is a fraction. Returns an empty text if the budget was given as a size.
fn share_in_words(memory: &MemoryStatistics) -> String {
    let share_of = memory.share.zip(memory.share_of_bytes).zip(memory.share_of);
    share_of.map_or_else(String::new, |((share, bytes), whose)| {
        let share = if share == Context::DEFAULT_MEMORY_SHARE { "half".to_owned() } else { percent(share) };
        format!(", {share} of the {} of this {whose}", format_bytes(bytes))
    })
}

/// Prints a line if the budget was exceeded.
pub(super) fn memory_verdict(memory: &MemoryStatistics) -> Outcome {
    let Some((peak, false)) = memory.peak_bytes.zip(memory.kept) else {
        return Outcome::Done;
    };
    let (peak, budget) = (format_bytes(peak), format_bytes(memory.budget_bytes));
    eprintln!("adjoin: the memory budget was exceeded: the process held {peak}, the budget is {budget}");
    Outcome::PromiseNotKept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeding_the_memory_budget_counts_as_a_broken_promise() {
        let memory = |kept| MemoryStatistics { peak_bytes: Some(9), kept: Some(kept), ..MemoryStatistics::default() };
        assert!(matches!(memory_verdict(&memory(true)), Outcome::Done));
        assert!(matches!(memory_verdict(&memory(false)), Outcome::PromiseNotKept));
    }

    #[test]
    fn an_unknown_peak_is_reported_and_is_no_promise() {
        let memory = MemoryStatistics { budget_bytes: 2_000_000, ..MemoryStatistics::default() };
        assert!(matches!(memory_verdict(&memory), Outcome::Done));
        assert_eq!(in_words(&memory), "memory: this system does not report the peak; the budget is 2.0 MB");
        assert_eq!(serde_json::to_value(&memory).unwrap()["kept"], serde_json::Value::Null);
    }

    #[test]
    fn memory_fractions_name_their_base() {
        let share = |share| MemoryStatistics {
            share: Some(share),
            share_of_bytes: Some(300_000_000),
            share_of: Some("cgroup"),
            ..MemoryStatistics::default()
        };
        assert_eq!(share_in_words(&share(0.5)), ", half of the 300.0 MB of this cgroup");
        assert_eq!(share_in_words(&share(0.8)), ", 80 % of the 300.0 MB of this cgroup");
        assert_eq!(share_in_words(&MemoryStatistics::default()), "");
    }
}
