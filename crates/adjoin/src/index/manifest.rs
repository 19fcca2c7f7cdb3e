//! What an index says of itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::options::{GraphMethod, IndexOptions};
use super::page::PageShape;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::Space;
use crate::graph::{GraphOptions, VERTICES_MAX};
use crate::options::{DIMENSIONS_MAX, Metric, ROWS_MAX, VectorType};
use crate::report::CommonStatistics;
use crate::source::IdKind;
use crate::store::format::MANIFEST_FILE;
use crate::store::{Files, Kind, NO_CHECKSUM, Role, is_longest, read_manifest_bytes, sealed, unsealed};

/// Version of the format of an index.
pub(super) const FORMAT_VERSION: u32 = 1;
/// Its kind, as its manifest calls it.
pub(super) const KIND: &str = "index";

/// Longest file: more than any disk holds, and little enough to be added up.
const FILE_BYTES_MAX: u64 = 1 << 50;

/// What an index says of itself. It holds no time, path, thread count or budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexManifest {
    /// `index`.
    pub kind: String,
    /// Version of the format.
    pub format_version: u32,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Vectors of the store that it was made of.
    pub rows: u64,
    /// Rows of the source of that store; row numbers are below it.
    pub source_rows: u64,
    /// Vertices: vectors that differ.
    pub vertices: u32,
    /// Metric of the searches.
    pub metric: Metric,
    /// For inner products, the length of the longest vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<f64>,
    /// Kind of the ids.
    pub ids: IdKind,
    /// How the graph was made.
    pub method: GraphMethod,
    /// Most neighbors of a vertex.
    pub degree: usize,
    /// Candidates that the search for a vertex's neighbors kept.
    pub build_list: usize,
    /// The factor of distances by which edges were left out.
    pub alpha: f64,
    /// Seed of graph, codes and navigation graph.
    pub seed: u64,
    /// Bytes of the code of a vector.
    pub code_bytes: usize,
    /// Vertices of the navigation graph, where that many were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub navigation: Option<u32>,
    /// Bytes of a page; where a record is larger, it has several.
    pub page_bytes: u64,
    /// In which order vertices lie on pages.
    pub layout: Layout,
    /// Which share of the other vertices on its page are neighbors of a vertex, on average.
    pub overlap_ratio: f64,
    /// The vertex from which all can be reached.
    pub entry: u32,
    /// Files by role.
    pub files: Files,
    /// Checksum of the manifest with these 16 digits as zeros.
    pub manifest_xxh3: String,
}

/// Names of the files of the index in a folder, the manifest among them.
///
/// # Errors
/// Where there is none, or its manifest cannot be read.
pub(crate) fn file_names(context: &Context, folder: &Path) -> Result<Vec<String>> {
    Ok(IndexManifest::read(context, folder)?.file_names())
}

impl IndexManifest {
    /// Names of its files, the manifest among them.
    pub(super) fn file_names(&self) -> Vec<String> {
        self.files.iter().map(|(_, facts)| facts.name.clone()).chain([MANIFEST_FILE.to_owned()]).collect()
    }

    /// The bytes of the manifest, its checksum made anew.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&Self { manifest_xxh3: NO_CHECKSUM.into(), ..self.clone() })
    }

    /// The manifest of an index.
    ///
    /// # Errors
    /// Where it is damaged, of a newer version or another kind, or says what cannot be.
    pub(crate) fn read(context: &Context, folder: &std::path::Path) -> Result<Self> {
        let bytes = read_manifest_bytes(context, folder)?;
        let read =
            unsealed::<Self>(&bytes, Kind::Index).map_err(|unreadable| unreadable.in_folder(folder, Kind::Index));
        let manifest = read?;
        match manifest.contradiction() {
            None => Ok(manifest),
            Some(what) => Err(Error::corrupt(format!(
                "{}: the manifest is impossible: {what}; build the index again",
                folder.display()
            ))),
        }
    }

    /// What it says that cannot be, or not together.
    fn contradiction(&self) -> Option<&'static str> {
        let options = self.options();
        let vertices = u64::from(self.vertices);
        // Before anything is computed of them.
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

    /// With which options it was built.
    pub fn options(&self) -> IndexOptions {
        let Self { method, degree, build_list, alpha, seed, code_bytes, navigation, page_bytes, layout, .. } = *self;
        let graph = GraphOptions { degree, build_list, alpha, seed };
        IndexOptions { method, graph, code_bytes, navigation, page_bytes, layout }
    }

    pub(super) fn shape(&self) -> PageShape {
        PageShape::new(self.vectors, self.degree, self.page_bytes)
    }

    pub(super) fn space(&self) -> Space<'static> {
        Space::plain(self.vectors, self.metric).up_to_length(self.longest)
    }

    /// What a command on the index reports of it.
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
