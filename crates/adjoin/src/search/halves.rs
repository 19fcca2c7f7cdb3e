//! Queries in as large parts as memory holds what they find: that is known once they have found it.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::message::{Argument, message};

/// Lets `find` answer queries, and hands the answers of some to `take`, in their order. Where it says that memory holds less
/// than what several find (none), each half of them is tried.
///
/// # Errors
/// Where what one query finds does not fit, or of `find` or `take`.
pub(crate) fn in_halves<R>(
    queries: u32,
    mut find: impl FnMut(Range<u32>) -> Result<Option<R>>,
    mut take: impl FnMut(Range<u32>, R) -> Result<()>,
) -> Result<()> {
    let mut ranges: Vec<Range<u32>> = std::iter::once(0..queries).filter(|all| !all.is_empty()).collect();
    while let Some(range) = ranges.pop() {
        match find(range.clone())? {
            Some(found) => take(range, found)?,
            None if range.len() == 1 => return Err(too_many_hits()),
            None => {
                let middle = range.start + (range.end - range.start) / 2;
                ranges.extend([middle..range.end, range.start..middle]);
            }
        }
    }
    Ok(())
}

/// The refusal of a query that finds more than memory holds.
pub(crate) fn too_many_hits() -> Error {
    Error::budget(message![
        "the hits of one query do not fit into memory; give more ",
        Argument::Memory,
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
    fn parts_come_in_order_and_no_larger_than_they_may_be() {
        let mut seen = Vec::new();
        let find = |range: Range<u32>| Ok((range.len() <= 3).then(|| range.clone().map(|query| 2 * query).collect()));
        in_halves(10, find, |range, found: Vec<u32>| {
            assert_eq!(found.len(), range.len());
            seen.extend(found);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, (0..10).map(|query| 2 * query).collect::<Vec<u32>>());
        in_halves(0, |_| panic!("there are none"), |_, ()| Ok(())).unwrap();
        assert!(in_halves(4, |_| Ok(None), |_, ()| Ok(())).is_err());
    }
}
