//! Reads and writes the manifest of an index.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::blocks::BLOCK_BYTES;
use super::options::IndexParameters;
use super::page::PageShape;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Space;
use crate::base::options::{DIMENSIONS_MAX, Metric, ROWS_MAX, VectorType};
use crate::base::report::CommonStatistics;
use crate::graph::{GraphOptions, VERTICES_MAX};
use crate::source::IdKind;
use crate::store::format::MANIFEST_FILE;
use crate::store::{Files, FolderKind, NO_CHECKSUM, Role, is_longest, read_manifest_bytes, sealed, unsealed};

/// Version of the format of an index.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Kind of the folder, as stated in its manifest.
pub(super) const KIND: &str = "index";
/// Name of the method that builds a graph from the nearest rows of each row.
pub(super) const NEAR: &str = "near";

/// Longest file in bytes: more than any disk holds, and small enough that sums do not overflow.
const FILE_BYTES_MAX: u64 = 1 << 50;

/// Manifest of an index. It has no time, path, thread count or budget, so that equal builds give equal bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexManifest {
    /// Always `index`.
    pub kind: String,
    /// Version of the format.
    pub format_version: u32,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Number of vectors in the store that the index was built from.
    pub rows: u64,
    /// Number of rows in the source of that store. All row numbers are smaller.
    pub source_rows: u64,
    /// Number of vertices, which are the distinct vectors.
    pub vertices: u32,
    /// Metric of searches.
    pub metric: Metric,
    /// Length of the longest vector, for inner products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<f64>,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Name of the method by which the graph was built.
    pub method: String,
    /// Largest number of neighbors of a vertex.
    pub degree: usize,
    /// Number of candidates kept by the search for a vertex's neighbors.
    pub build_list: usize,
    /// Factor by which distances are multiplied when edges are pruned (Vamana's alpha).
    pub alpha: f64,
    /// Seed of the graph, the codes and the navigation graph.
    pub seed: u64,
    /// Bytes of a vector's code.
    pub code_bytes: usize,
    /// Mean squared error of the codes at their training, divided by the mean squared distance of vectors to their mean.
    /// A merge trains new codes if the error has grown. Unknown in an index of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_error: Option<f64>,
    /// Number of sampled vertices in the navigation graph, if the option was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub navigation: Option<u32>,
    /// Bytes of a page. If a record is larger, each page has a multiple of these bytes.
    pub page_bytes: u64,
    /// Order of the vertices on pages.
    pub layout: String,
    /// Overlap ratio OR(G): the number of neighbors of a vertex on its page, divided by the number of other vertices on
    /// this page, on average over all vertices.
    pub overlap_ratio: f64,
    /// Vertex from which all other vertices are reachable.
    pub entry: u32,
    /// Files by role.
    pub files: Files,
    /// Checksum of the manifest, computed with these 16 digits as zeros.
    pub manifest_xxh3: String,
}

/// Returns the names of the files of the index in a folder, including its manifest.
///
/// # Errors
/// If there is no index, or if its manifest cannot be read.
pub(crate) fn file_names(context: &Context, folder: &Path) -> Result<Vec<String>> {
    Ok(IndexManifest::read(context, folder)?.file_names())
}

impl IndexManifest {
    /// Returns the mean bytes of an id in the file of ids. If ids are texts, this includes the stored end of the text.
    pub(crate) fn id_bytes(&self) -> u64 {
        self.files[Role::Ids].bytes.div_ceil(self.rows.max(1))
    }

    /// Returns the bytes of the parts of a file if each part has a checksum: pages, or blocks of ids. Returns `None`
    /// for other roles.
    pub(crate) fn part_bytes(&self, role: &str) -> Option<usize> {
        match role {
            _ if role == Role::Pages.name() => Some(self.shape().bytes()),
            _ if role == Role::Ids.name() => Some(BLOCK_BYTES),
            _ => None,
        }
    }

    /// Returns the names of all files of the index, including the manifest.
    pub(super) fn file_names(&self) -> Vec<String> {
        self.files.iter().map(|(_, facts)| facts.name.clone()).chain([MANIFEST_FILE.to_owned()]).collect()
    }

    /// Encodes the manifest, with a new checksum.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&Self { manifest_xxh3: NO_CHECKSUM.into(), ..self.clone() })
    }

    /// Reads the manifest of an index.
    ///
    /// # Errors
    /// If it is damaged, has a newer version or another kind, or has impossible values.
    pub(crate) fn read(context: &Context, folder: &std::path::Path) -> Result<Self> {
        Self::decode(folder, &read_manifest_bytes(context, folder)?)
    }

    /// Decodes the manifest of the index in a folder.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub(crate) fn decode(folder: &std::path::Path, bytes: &[u8]) -> Result<Self> {
        let read = unsealed::<Self>(bytes, FolderKind::Index)
            .map_err(|unreadable| unreadable.in_folder(folder, FolderKind::Index));
        let manifest = read?;
        match manifest.contradiction() {
            None => Ok(manifest),
            Some(what) => Err(Error::corrupt(format!(
                "{}: the manifest has an invalid value: {what}; build the index again",
                folder.display()
            ))),
        }
    }

    /// Returns the name of the first value that is impossible or contradicts another value.
    fn contradiction(&self) -> Option<&'static str> {
        let options = self.parameters();
        let vertices = u64::from(self.vertices);
        // These are checked first, since the shape of pages is computed from them.
        if options.check().is_err() || !(1..=DIMENSIONS_MAX).contains(&self.vectors.dimensions) {
            return Some("its options or its number of dimensions");
        }
        let shape = self.shape();
        let facts = [
            ("its number of rows", (1..=self.source_rows).contains(&self.rows) && self.source_rows <= ROWS_MAX),
            ("its number of vertices", (1..=self.rows.min(VERTICES_MAX as u64)).contains(&vertices)),
            ("the length of a file", self.files.iter().all(|(_, facts)| facts.bytes <= FILE_BYTES_MAX)),
            ("the length of its longest vector", is_longest(self.metric, self.longest)),
            ("its entry point", self.entry < self.vertices),
            ("its code bytes", self.code_bytes <= self.vectors.dimensions),
            (
                "the length of its pages",
                self.files[Role::Pages].bytes == shape.pages(self.vertices) * shape.bytes() as u64,
            ),
            ("the length of its codes", self.files[Role::Codes].bytes == vertices * self.code_bytes as u64),
        ];
        facts.into_iter().find(|(_, holds)| !holds).map(|(what, _)| what)
    }

    /// Returns the options with which the index was built.
    pub(crate) fn parameters(&self) -> IndexParameters {
        let Self { degree, build_list, alpha, seed, code_bytes, navigation, page_bytes, .. } = *self;
        let graph = GraphOptions { degree, build_list, alpha, seed };
        IndexParameters { graph, code_bytes, navigation, page_bytes }
    }

    pub(super) fn shape(&self) -> PageShape {
        PageShape::new(self.vectors, self.degree, self.page_bytes)
    }

    pub(super) fn space(&self) -> Space<'static> {
        Space::plain(self.vectors, self.metric).up_to_length(self.longest)
    }

    /// Returns the statistics that commands on the index report.
    pub(super) fn statistics(&self, context: &Context, command: &'static str) -> CommonStatistics {
        CommonStatistics {
            rows: self.rows,
            dimensions: self.vectors.dimensions,
            element: self.vectors.element.to_string(),
            metric: self.metric.to_string(),
            seed: self.seed,
            skipped_rows: self.source_rows - self.rows,
            ..context.statistics(command)
        }
    }
}
