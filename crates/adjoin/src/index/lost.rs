//! Adds vertices of regions that walks do not reach to the navigation graph.
//!
//! Each vertex is reachable from the entry (`build/reach.rs`), but a walk expands only vertices near its query. If all
//! edges into a region start far from it, no walk takes them. Therefore walks search for sampled rows by their own
//! vectors. A row is *lost* if its walk finds neither its vertex nor the nearest neighbor of this vertex. Some of the
//! lost vertices are added to the navigation graph.
//!
//! The recall is measured later with an independent sample of rows, since this step repairs only the regions of its own
//! sample.

use adjoin_device::Reservation;

use super::cache::PageCache;
use super::navigation::{self, Navigation, StoredVertices};
use super::promise::publishing_bytes;
use super::sample::tried_entries;
use super::scan::Pieces;
use super::walk::WalkAim;
use super::walk_strategy::WalkStrategy;
use super::walks::{WalkQueries, Walks};
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::Metric;
use crate::load::Members;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Role};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "finding rows that walks miss";
/// Number of hits of a walk that searches for a row.
const HITS: usize = 16;
/// Number of candidates that such a walk keeps.
const LIST: usize = 16;
/// Number of rows searched for at once.
const TOGETHER: usize = 256;
/// Bytes of a hit while it is found and sorted.
const HIT_BYTES: u64 = 64;
/// Largest number of rounds of searches. In each round, vertices fill at most half of the remaining room in the
/// navigation graph.
const ROUNDS_MAX: usize = 4;

/// Writes a new navigation graph if rows of the index in `drafts` are lost. Returns the manifest, which names the new
/// graph. `inserted` has the entries of the rows that a merge inserted. Some of these rows are searched for too.
///
/// If memory does not suffice, nothing is repaired. The recall that is measured later is then lower.
///
/// # Errors
/// If the index cannot be read, if a file cannot be written, or if the work is cancelled.
pub(super) fn lead_in<T: Coordinate>(
    context: &Context,
    drafts: &Drafts<'_>,
    mut manifest: IndexManifest,
    inserted: &[u32],
) -> Result<IndexManifest> {
    // By inner product, the row with the largest score for a vector is usually another row, so a walk may miss a row
    // for good reason.
    if manifest.metric == Metric::Ip {
        return Ok(manifest);
    }
    let role = Role::Navigation;
    let mut tried = None;
    // Each round searches with the navigation graph of the previous one for the rows that were lost there.
    for _ in 0..ROUNDS_MAX {
        if context.budget().free() < least_bytes::<T>(context, &manifest) {
            break;
        }
        let index = Index::of_drafts(context, drafts.folder(), manifest.clone())?;
        let lost = lost::<T>(context, &index, &tried.unwrap_or_else(|| tried_vertices(&index, inserted)))?;
        let Some((navigation, _memory)) = with_some::<T>(context, &index, &lost)? else { break };
        let bytes = navigation.to_bytes(|vertex| vertex);
        drafts.write(role.file(), &bytes)?;
        manifest.files.add(role, FileFacts::of(&role.file_of(checksum(&bytes)), &bytes));
        tried = Some(lost);
    }
    Ok(manifest)
}

/// Returns the vertices of rows to search for, ascending. `inserted` has the entries of inserted rows.
fn tried_vertices(index: &Index, inserted: &[u32]) -> Vec<u32> {
    let entries = tried_entries(index.facts(), inserted);
    let mut vertices: Vec<u32> = entries.into_iter().map(|entry| index.vertex_of(entry)).collect();
    vertices.sort_unstable();
    vertices.dedup();
    vertices
}

/// Returns the bytes for one round: the open index, a second navigation graph, and the searches.
fn least_bytes<T: Coordinate>(context: &Context, manifest: &IndexManifest) -> u64 {
    let (vertices, options) = (manifest.vertices.into(), manifest.parameters());
    let building = navigation::building_bytes(vertices, manifest.space(), &options);
    // While the second graph is built, it reserves memory of its own.
    let graph = navigation::graph_building_bytes(context.threads, vertices, &options);
    publishing_bytes::<T>(context, manifest) + building + graph + 2 * looking_bytes::<T>(manifest)
}

/// Returns the bytes for searching for [`TOGETHER`] rows.
fn looking_bytes<T: Coordinate>(manifest: &IndexManifest) -> u64 {
    let of_row = 2 * manifest.vectors.bytes() as u64 + HITS as u64 * HIT_BYTES;
    TOGETHER as u64 * (Members::<T>::memory_bytes(1, manifest.space()) + of_row)
}

/// Returns those of the vertices `tried` that walks do not find. They are ascending if `tried` is.
fn lost<T: Coordinate>(context: &Context, index: &Index, tried: &[u32]) -> Result<Vec<u32>> {
    let facts = index.facts();
    let _looking = context.reserve(looking_bytes::<T>(facts), PURPOSE)?;
    let cache = &PageCache::filled(context, index, context.budget().free() / 2, (tried.len() * LIST) as u64)?;
    let aim = WalkAim::nearest(HITS, LIST);
    let walks = Walks::<T>::new(context, index, aim, None, WalkStrategy::default(), cache);
    let (mut pieces, mut neighbors, mut lost) = (Pieces::single(index), Vec::new(), Vec::new());
    for some in tried.chunks(TOGETHER) {
        let (mut stored, mut nearest) = (Vec::new(), Vec::new());
        for &vertex in some {
            stored.extend_from_slice(pieces.vector(vertex)?);
            neighbors.clear();
            pieces.neighbors(vertex, &mut neighbors)?;
            // Neighbors are stored nearest first.
            nearest.push(neighbors.first().copied());
        }
        let queries = Members::<T>::new(context.kernel, facts.space(), &stored);
        // No vertex is hidden, since the walk must be able to find the row's own vertex.
        let found = walks.search(WalkQueries::inside(&queries, &[]), 0..some.len() as u32)?;
        for (found, (&vertex, nearest)) in found.expect("their number is bounded").iter().zip(some.iter().zip(nearest))
        {
            let mut hits = found.hits.iter().map(|hit| index.vertex_of(hit.place.0));
            if !hits.any(|hit| hit == vertex || Some(hit) == nearest) {
                lost.push(vertex);
            }
        }
    }
    Ok(lost)
}

/// Returns the navigation graph with some of the lost vertices added, and the reservation for it. Returns `None` if no
/// vertex is lost, or if the graph has no room for another vertex.
fn with_some<T: Coordinate>(
    context: &Context,
    index: &Index,
    lost: &[u32],
) -> Result<Option<(Navigation, Reservation)>> {
    let (facts, options) = (index.facts(), index.facts().parameters());
    // Adding a vertex that is in the navigation graph already would not help.
    let lost: Vec<u32> = lost.iter().copied().filter(|&vertex| !index.navigation.has(vertex)).collect();
    let room = index.navigation.room(facts.vertices.into(), &options);
    let count = room.div_ceil(2).min(lost.len());
    // The vertices are evenly spread over the lost ones. Vertices near each other have numbers near each other, so each
    // large region gets some.
    let some: Vec<u32> = (0..count).map(|number| lost[number * lost.len() / count]).collect();
    if some.is_empty() {
        return Ok(None);
    }
    let memory =
        context.reserve(navigation::building_bytes(facts.vertices.into(), facts.space(), &options), PURPOSE)?;
    let (mut pieces, mut stored) = (Pieces::single(index), Vec::new());
    for &vertex in &some {
        stored.extend_from_slice(pieces.vector(vertex)?);
    }
    let more = StoredVertices { vertices: some, stored };
    let navigation = index.navigation.with::<T>(context, facts.space(), more, &options.graph)?;
    Ok(Some((navigation, memory)))
}
