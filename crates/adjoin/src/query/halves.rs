//! Splits queries into ranges whose hits fit in memory. The size of the hits is not known before they are found.

use std::ops::Range;

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Answers the queries `0..queries` with `find`, in one or several ranges. Passes the answer of each range to `take`,
/// in order. If `find` returns `None`, the hits of the range do not fit in memory, and both halves of the range are
/// tried one after the other.
///
/// `more` is the number of bytes, in addition to the memory in use, with which the hits of any query fit. An error
/// message recommends it.
///
/// # Errors
/// If the hits of a single query do not fit in memory, or if `find` or `take` fails.
pub(crate) fn in_halves<R>(
    context: &Context,
    more: u64,
    queries: u32,
    mut find: impl FnMut(Range<u32>) -> Result<Option<R>>,
    mut take: impl FnMut(Range<u32>, R) -> Result<()>,
) -> Result<()> {
    let mut ranges: Vec<Range<u32>> = std::iter::once(0..queries).filter(|all| !all.is_empty()).collect();
    while let Some(range) = ranges.pop() {
        match find(range.clone())? {
            Some(found) => take(range, found)?,
            None if range.len() == 1 => return Err(too_many_hits(context, more)),
            None => {
                let middle = range.start + (range.end - range.start) / 2;
                // The first half is on top of the stack, so ranges are answered in the order of the queries.
                ranges.extend([middle..range.end, range.start..middle]);
            }
        }
    }
    Ok(())
}

/// Returns the error for a query whose hits do not fit in memory. It recommends a budget with `more` bytes in addition
/// to the memory in use.
pub(crate) fn too_many_hits(context: &Context, more: u64) -> Error {
    let least = context.budget().reserved().saturating_add(more);
    Error::budget(message![
        "the hits of one query do not fit into memory; give ",
        Context::memory_of(context.whole_budget(least)),
        ", a smaller ",
        Argument::Radius,
        " or a larger ",
        Argument::MinSimilarity
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_halved_until_they_fit_in_order() {
        let mut seen = Vec::new();
        let find = |range: Range<u32>| Ok((range.len() <= 3).then(|| range.clone().map(|query| 2 * query).collect()));
        let context = &Context::default();
        in_halves(context, 1, 10, find, |range, found: Vec<u32>| {
            assert_eq!(found.len(), range.len());
            seen.extend(found);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, (0..10).map(|query| 2 * query).collect::<Vec<u32>>());
        in_halves(context, 1, 0, |_| panic!("there are none"), |_, ()| Ok(())).unwrap();
        assert!(in_halves(context, 1, 4, |_| Ok(None), |_, ()| Ok(())).is_err());
    }
}
