//! Reports of a command's memory.

use adjoin::{Context, MemoryStatistics, format_bytes};

use crate::Outcome;
use crate::print::percent;

/// Prints the line of a summary.
pub(super) fn print_memory(memory: &MemoryStatistics) {
    let (peak, budget) = (format_bytes(memory.peak_bytes), format_bytes(memory.budget_bytes));
    eprintln!("memory: {peak} at most; the budget is {budget}{}", share_in_words(memory));
}

/// Describes the memory that a budget is a fraction of, if it is one.
fn share_in_words(memory: &MemoryStatistics) -> String {
    let share_of = memory.share.zip(memory.share_of_bytes).zip(memory.share_of);
    share_of.map_or_else(String::new, |((share, bytes), whose)| {
        let share = if share == Context::DEFAULT_MEMORY_SHARE { "half".to_owned() } else { percent(share) };
        format!(", {share} of the {} of this {whose}", format_bytes(bytes))
    })
}

/// Prints a line if the budget was exceeded.
pub(super) fn memory_verdict(memory: &MemoryStatistics) -> Outcome {
    if memory.kept {
        return Outcome::Done;
    }
    let (peak, budget) = (format_bytes(memory.peak_bytes), format_bytes(memory.budget_bytes));
    eprintln!("adjoin: the memory budget was exceeded: the process held {peak}, the budget is {budget}");
    Outcome::PromiseNotKept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeding_the_memory_budget_counts_as_a_broken_promise() {
        let memory = |kept| MemoryStatistics { kept, ..MemoryStatistics::default() };
        assert!(matches!(memory_verdict(&memory(true)), Outcome::Done));
        assert!(matches!(memory_verdict(&memory(false)), Outcome::PromiseNotKept));
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
