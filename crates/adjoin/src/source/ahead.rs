//! Orders the ranges of a remote file as a scan needs them, so that the device can read them ahead.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{READ_AHEAD_PIECE_BYTES, ReadFile};

/// Ranges start and end at multiples of this, since readers also round their reads to it.
const ALIGNMENT: u64 = 4_096;
/// Limit on the total length of the ranges, as a multiple of the length of the file.
const CLAIMED_MAX: u64 = 2;
/// Maximum gap between two ranges of a group, in bytes, that is read instead of skipped. Another request would take
/// longer.
const GAP_BYTES: u64 = 64 << 10;

/// Returns a view of a file that is read from start to end. If the file is not remote, returns the file itself.
pub(super) fn sequential(file: Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
    let len = file.len();
    grouped(file, || vec![vec![0..len]])
}

/// Returns a view of a file for a scan that reads one group of ranges after the other. Within a group, all ranges are
/// read at the same rate. If the file is not remote, returns the file itself.
pub(super) fn grouped(file: Arc<dyn ReadFile>, groups: impl FnOnce() -> Vec<Vec<Range<u64>>>) -> Arc<dyn ReadFile> {
    if !file.is_remote() {
        return file;
    }
    let len = file.len();
    let groups: Vec<_> = groups().into_iter().map(|group| merged(group, len)).collect();
    // A damaged footer may claim the whole file for each of many chunks. The list of their pieces alone could exceed
    // any memory.
    let bytes = groups.iter().flatten().map(|range| range.end - range.start).fold(0, u64::saturating_add);
    if bytes > CLAIMED_MAX.saturating_mul(len) {
        return file;
    }
    let pieces = groups.into_iter().flat_map(in_step).collect();
    file.clone().read_ahead(pieces).unwrap_or(file)
}

/// Splits the ranges of a group into pieces. Orders the pieces by the fraction of their range that is before them.
fn in_step(group: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    for range in group {
        let whole = (range.end - range.start) as f64;
        for start in range.clone().step_by(READ_AHEAD_PIECE_BYTES as usize) {
            let piece = start..(start + READ_AHEAD_PIECE_BYTES).min(range.end);
            pieces.push(((start - range.start) as f64 / whole, piece));
        }
    }
    pieces.sort_by(|(a, piece), (b, other)| a.total_cmp(b).then(piece.start.cmp(&other.start)));
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// Aligns the ranges of a group. Merges close ranges if the result is short enough to be read at once. The returned
/// ranges do not overlap.
fn merged(group: Vec<Range<u64>>, len: u64) -> Vec<Range<u64>> {
    let align = |range: Range<u64>| {
        let end = range.end.min(len).next_multiple_of(ALIGNMENT).min(len);
        range.start - range.start % ALIGNMENT..end
    };
    let mut ranges: Vec<Range<u64>> = group.into_iter().map(align).filter(|range| range.start < range.end).collect();
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last)
                if range.start.saturating_sub(last.end) <= GAP_BYTES
                    && range.end.saturating_sub(last.start) <= READ_AHEAD_PIECE_BYTES =>
            {
                last.end = last.end.max(range.end);
                continue;
            }
            // Long ranges are cut instead of merged, because they are read in step. The end of the earlier range is
            // needed last.
            Some(last) if range.start < last.end => last.end = range.start,
            _ => {}
        }
        merged.push(range);
    }
    merged.retain(|range| range.start < range.end);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pieces(group: Vec<Range<u64>>, len: u64) -> Vec<Range<u64>> {
        in_step(merged(group, len))
    }

    #[test]
    fn long_ranges_of_a_group_are_read_in_step() {
        let starts = |group| pieces(group, 20 * MIB).into_iter().map(|piece| piece.start).collect::<Vec<_>>();
        let group = vec![0..8 * MIB, 9 * MIB..13 * MIB];
        assert_eq!(starts(group), [0, 9, 2, 4, 11, 6].map(|mib| mib * MIB));
        // These ranges are adjacent in the file, but do not meet at a block boundary.
        let group = vec![4..8 * MIB + 5, 8 * MIB + 5..12 * MIB];
        assert_eq!(starts(group), [0, 8, 2, 4, 10, 6].map(|mib| mib * MIB));
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // ranges, not the numbers in them
    fn short_adjacent_ranges_are_read_at_once() {
        let group = vec![4..100_000, 100_100..200_000, 5 * MIB..5 * MIB + 10];
        assert_eq!(pieces(group, 6 * MIB), [0..200_704, 5 * MIB..5 * MIB + 4_096]);
        assert_eq!(pieces(vec![10..20], 15), [0..15]);
        assert_eq!(pieces(vec![0..0, 20..30, 7..u64::MAX], 15), [0..15]);
    }
}
