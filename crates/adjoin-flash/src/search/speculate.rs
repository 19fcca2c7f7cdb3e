//! Predicts the vertices that a query requests next (NDSearch, section VI-B2). These are neighbors of the neighbors
//! of the vertex that it expands. Vertices with more links from these neighbors are preferred.

use super::walk::Walk;
use crate::layout::LunCsr;

/// Predicts the next requests of a walk that expands `vertex`. Adds to `wanted` up to `most` vertices that the walk
/// has not seen. Returns how many numbers of neighbors were read.
pub(super) fn speculate(layout: &LunCsr, walk: &Walk, vertex: u32, most: usize, wanted: &mut Vec<u32>) -> u64 {
    let of_second_order = layout.neighbors(vertex).iter().flat_map(|&first| layout.neighbors(first));
    let mut second: Vec<u32> = of_second_order.copied().collect();
    let looked_at = second.len() + layout.neighbors(vertex).len();
    // After sorting, equal numbers are adjacent. The number of occurrences of a vertex is its number of links.
    second.sort_unstable();
    let ties = second.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0]));
    let mut likely: Vec<(usize, u32)> = ties.filter(|&(_, vertex)| !walk.has_seen(vertex)).collect();
    let order = |&(ties, vertex): &(usize, u32)| (std::cmp::Reverse(ties), vertex);
    if likely.len() > most {
        // The selection needs no order, since tasks are sorted by page later.
        likely.select_nth_unstable_by_key(most, order);
        likely.truncate(most);
    }
    wanted.extend(likely.iter().map(|&(_, vertex)| vertex));
    looked_at as u64
}
