//! What a command says of the memory that it took.

use adjoin::options::format_bytes;
use adjoin::report::MemoryStatistics;

use crate::Outcome;

/// The line of a summary.
pub(super) fn print_memory(memory: &MemoryStatistics) {
    let (peak, budget) = (format_bytes(memory.peak_bytes), format_bytes(memory.budget_bytes));
    eprintln!("memory: {peak} at most; the budget is {budget}");
}

/// Says so where the budget was not kept.
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
    fn a_budget_that_was_not_kept_is_a_promise_not_kept() {
        let memory = |kept| MemoryStatistics { kept, ..MemoryStatistics::default() };
        assert!(matches!(memory_verdict(&memory(true)), Outcome::Done));
        assert!(matches!(memory_verdict(&memory(false)), Outcome::PromiseNotKept));
    }
}
