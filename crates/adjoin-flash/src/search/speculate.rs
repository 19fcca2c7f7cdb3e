//! Predicts the vertices that a query requests next: second-order neighbors of the vertex it expands, those with most
//! links from its neighbors first (NDSearch, section VI-B2).

use super::walk::Walk;
use crate::layout::LunCsr;

/// Adds to `wanted` up to `most` vertices that the walk, which expands `vertex`, has not seen. Returns how many
/// neighbor numbers were read.
pub(super) fn speculate(layout: &LunCsr, walk: &Walk, vertex: u32, most: usize, wanted: &mut Vec<u32>) -> u64 {
    let of_second_order = layout.neighbors(vertex).iter().flat_map(|&first| layout.neighbors(first));
    let mut second: Vec<u32> = of_second_order.copied().collect();
    let looked_at = second.len() + layout.neighbors(vertex).len();
    // Equal numbers become adjacent; how often one occurs is its number of links.
    second.sort_unstable();
    let ties = second.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0]));
    let mut likely: Vec<(usize, u32)> = ties.filter(|&(_, vertex)| !walk.has_seen(vertex)).collect();
    let order = |&(ties, vertex): &(usize, u32)| (std::cmp::Reverse(ties), vertex);
    if likely.len() > most {
        // Tasks are sorted by page later, so the choice is enough and needs no order.
        likely.select_nth_unstable_by_key(most, order);
        likely.truncate(most);
    }
    wanted.extend(likely.iter().map(|&(_, vertex)| vertex));
    looked_at as u64
}
