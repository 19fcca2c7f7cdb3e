//! Serializes graphs, as little-endian u32 numbers.

use super::adjacency::Graph;
use super::options::GraphOptions;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Bytes of a number.
const NUMBER_BYTES: usize = size_of::<u32>();

impl Graph {
    /// Serializes the graph for [`Graph::from_bytes`]. The numbers are the number of vertices, the degree, the entry
    /// point and, for each vertex, its out-degree and its out-neighbors.
    ///
    /// # Panics
    /// If a vertex is not in the graph.
    pub fn to_bytes(&self) -> Vec<u8> {
        let vertices = self.vertices() as u32;
        assert_eq!(self.live(), u64::from(vertices), "all vertices are in the graph");
        let mut numbers = vec![vertices, self.options().degree as u32, self.entry().unwrap_or_default()];
        for vertex in 0..vertices {
            let neighbors = self.neighbors(vertex);
            numbers.push(neighbors.len() as u32);
            numbers.extend_from_slice(neighbors);
        }
        numbers.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// Parses the bytes that [`Graph::to_bytes`] returned. The options of the graph are defaults, except the degree and
    /// the build list, which is set to the degree.
    ///
    /// # Errors
    /// If the bytes are not a valid graph, or if memory does not suffice.
    pub fn from_bytes(context: &Context, bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(format!("a graph in memory: {what}"));
        let (numbers, rest) = bytes.as_chunks::<NUMBER_BYTES>();
        let mut numbers = numbers.iter().map(|&number| u32::from_le_bytes(number));
        let mut next = || numbers.next().ok_or_else(|| damaged("it ends early"));
        let [vertices, degree, entry] = [next()?, next()?, next()?];
        let options = GraphOptions { degree: degree as usize, build_list: degree as usize, ..GraphOptions::default() };
        options.check().map_err(|error| damaged(&error.to_string()))?;
        // This is checked before memory is reserved, since a damaged number may be huge.
        if vertices as usize > bytes.len() / NUMBER_BYTES || (vertices > 0 && entry >= vertices) {
            return Err(damaged("it has fewer vertices than it states"));
        }
        let mut graph = Self::with_room(context, vertices as usize, &options, degree as usize)?;
        let mut neighbors = Vec::new();
        for vertex in 0..vertices {
            let count = next()?;
            if count > degree {
                return Err(damaged("a vertex has too many neighbors"));
            }
            neighbors.clear();
            for _ in 0..count {
                neighbors.push(next()?);
            }
            if neighbors.iter().any(|&neighbor| neighbor >= vertices || neighbor == vertex) {
                return Err(damaged("a vertex has invalid neighbors"));
            }
            graph.set_neighbors(vertex, &neighbors);
            graph.present.insert(vertex.into());
        }
        graph.entry = (vertices > 0).then_some(entry);
        if numbers.next().is_some() || !rest.is_empty() {
            return Err(damaged("extra bytes follow it"));
        }
        Ok(graph)
    }
}
