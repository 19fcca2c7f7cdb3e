//! Lets the caller compute the graph of an index: returns the vectors of its vertices, and takes the graph.

use std::path::Path;

use adjoin_kernels::Panel;

use super::gathering::Gathering;
use super::lists::Lists;
use super::vertices::VertexMap;
use super::{PURPOSE, finishing, gather_room};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::with_coordinates;
use crate::graph::Graph;
use crate::index::IndexOptions;
use crate::load::Buckets;
use crate::store::Store;

/// The vectors of the vertices of an index, in the order of the vertices.
pub enum VertexVectors {
    /// Vectors whose coordinates are bytes.
    Bytes(Panel<u8>),
    /// Vectors whose coordinates are floats.
    Floats(Panel<f32>),
}

impl From<Panel<u8>> for VertexVectors {
    fn from(panel: Panel<u8>) -> Self {
        Self::Bytes(panel)
    }
}

impl From<Panel<f32>> for VertexVectors {
    fn from(panel: Panel<f32>) -> Self {
        Self::Floats(panel)
    }
}

/// Returns the vectors of the vertices of an index of a store. These are the distinct vectors of the store.
///
/// # Errors
/// If the store cannot be read, or if memory does not suffice.
pub fn vertex_vectors(context: &Context, store: &Store) -> Result<VertexVectors> {
    let buckets = &Buckets::of(store).between_rows();
    with_coordinates!(store.manifest().space(), T => {
        let centers = buckets.centers::<T>()?;
        let map = &VertexMap::find(context, buckets, &centers, &context.temporary(Some(store.folder())))?;
        let room = gather_room::<T>(buckets, &IndexOptions::default().parameters(buckets.vectors()), 0);
        let gathering = Gathering::new(context, buckets, map, room)?;
        let all = finishing::all::<T>(&gathering, u64::MAX)?;
        all.map(|(panel, _)| panel.into()).ok_or_else(|| Error::budget(format!("{PURPOSE}: vectors do not fit")))
    })
}

/// A graph of the vertices of an index, which the caller computed.
#[derive(Clone, Copy)]
pub(in crate::index) struct GivenGraph<'a> {
    pub(in crate::index) graph: &'a Graph,
    /// Name of the method that built the graph.
    pub(in crate::index) method: &'a str,
}

impl GivenGraph<'_> {
    /// Stores the lists of the graph, which must have `vertices` vertices. Returns the lists, the entry of the graph,
    /// and the bytes written to disk.
    pub(super) fn lists(
        &self,
        context: &Context,
        vertices: u32,
        temporary: &Path,
        memory: u64,
    ) -> Result<(Lists, u32, u64)> {
        let entry = self.graph.entry().filter(|_| self.graph.vertices() == vertices as usize);
        let entry = entry.ok_or_else(|| Error::input(format!("the graph is not one of {vertices} vertices")))?;
        let lists = Lists::of_graph(context, temporary, self.graph, memory)?;
        let spilled = lists.spilled();
        Ok((lists, entry, spilled))
    }
}
