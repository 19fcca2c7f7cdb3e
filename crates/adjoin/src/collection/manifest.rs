//! The manifest of a collection: its options, and the names of its current files.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::attributes::{self, Attribute};
use super::change::RowType;
use super::segment::{LogStart, Point};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Space;
use crate::base::locks::WriterLock;
use crate::base::options::{DIMENSIONS_MAX, Metric, VectorType};
use crate::base::output::Target;
use crate::base::report::CommonStatistics;
use crate::graph::GraphOptions;
use crate::index::{IndexOptions, IndexParameters};
use crate::source::IdKind;
use crate::store::format::{FORMAT_VERSION, LIVE_VERSION, MANIFEST_FILE};
use crate::store::{Files, FolderKind, NO_CHECKSUM, check_target, has_manifest, read_manifest_bytes, sealed, unsealed};

/// Value of `kind` in the manifest.
const KIND: &str = "live";
/// File name of a manifest before its rename.
pub(super) const DRAFT: &str = "manifest.partial";

/// Options and merge state of a collection. Contains no time, path, thread count or budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CollectionManifest {
    /// `live`.
    pub kind: String,
    /// Version of the format.
    pub format_version: u32,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Metric of the searches.
    pub metric: Metric,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Columns that rows have in addition to vector and id.
    #[serde(rename = "columns", alias = "attributes", default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// Random number of 16 hexadecimal digits. It distinguishes records of this log from records of other logs.
    pub salt: String,
    /// Maximum number of neighbors of a vertex in the long-term index.
    pub degree: usize,
    /// Number of candidates that the search for a vertex's neighbors keeps.
    pub build_list: usize,
    /// Factor by which distances are scaled when edges are pruned.
    pub alpha: f64,
    /// Seed of graph, codes and navigation graph.
    pub seed: u64,
    /// Bytes of the code of a vector.
    pub code_bytes: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Number of the first valid record of the log. Earlier records are in the long-term index.
    pub first_record: u64,
    /// Number of rows in the long-term index. If it is not 0, the folder of the index is named after the last merged
    /// record, `first_record - 1`.
    pub merged_rows: u64,
    /// Files by role; always empty for a collection.
    pub files: Files,
    /// Checksum of the manifest, computed with 16 zeros in place of these digits.
    pub manifest_xxh3: String,
}

/// Options of a new collection.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectionOptions {
    /// Type of the vectors.
    pub vectors: VectorType,
    /// Metric of searches.
    pub metric: Metric,
    /// Kind of the ids: integers or texts.
    pub ids: IdKind,
    /// Columns that rows have in addition to vector and id, for results and filters.
    pub attributes: Vec<Attribute>,
    /// Options with which merges build the long-term index. Only the options that the manifest stores apply; the size
    /// of the navigation graph, the build method and the layout are always the defaults.
    pub index: IndexOptions,
}

impl CollectionOptions {
    fn check(&self) -> Result<()> {
        if !(1..=DIMENSIONS_MAX).contains(&self.vectors.dimensions) {
            let said = format!("{} dimensions; a vector has 1 to {DIMENSIONS_MAX}", self.vectors.dimensions);
            return Err(Error::option(said));
        }
        if self.ids == IdKind::None {
            return Err(Error::option("the vectors of a collection need ids; give int64 or text"));
        }
        attributes::check(&self.attributes)?;
        self.index.check()
    }
}

impl CollectionManifest {
    /// Creates an empty collection in `folder`.
    ///
    /// # Errors
    /// If an option is out of range, the folder is in use, or the device fails.
    pub(super) fn create(context: &Context, folder: &Path, options: &CollectionOptions) -> Result<()> {
        options.check()?;
        if let Ok(Some(FolderKind::Collection)) = FolderKind::of(context, folder) {
            let at = folder.display();
            return Err(Error::input(format!("{at} is already a collection; write to it, or choose another folder")));
        }
        check_target(context, folder, FolderKind::Collection, false)?;
        let device = &context.device;
        let is_new = device.kind(folder)?.is_none();
        if is_new {
            device.create_folder(folder)?;
            // The folder's name must be durable before its content counts.
            device.sync_folder(Target::parent_of(folder))?;
        }
        let lock = WriterLock::take(device, folder)?;
        let CollectionOptions { vectors, metric, ids, ref attributes, index } = *options;
        let IndexParameters { graph, code_bytes, page_bytes, .. } = index.parameters(vectors);
        let GraphOptions { degree, build_list, alpha, seed } = graph;
        let manifest = Self {
            kind: KIND.into(),
            // Versions of adjoin without support for columns cannot read a log with columns.
            format_version: if attributes.is_empty() { FORMAT_VERSION } else { LIVE_VERSION },
            vectors,
            metric,
            ids,
            attributes: attributes.clone(),
            // Blocks of the disk may still contain records of a removed log. The salt keeps them from being taken for
            // records of this log.
            salt: format!("{:016x}", RandomState::new().hash_one(0)),
            degree,
            build_list,
            alpha,
            seed,
            code_bytes,
            page_bytes,
            first_record: Point::START.next,
            merged_rows: 0,
            files: Files::new(&[], |_| unreachable!("a new collection has no files")),
            manifest_xxh3: NO_CHECKSUM.into(),
        };
        let published = manifest.publish(context, folder);
        if published.is_err() && is_new {
            drop(lock);
            let _ = device.remove(&folder.join(DRAFT)); // best effort: the original error is reported
            let _ = device.remove_empty_folder(folder);
            return published;
        }
        published.and_then(|()| lock.release())
    }

    /// Writes the manifest, and puts it in force by one rename.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn publish(&self, context: &Context, folder: &Path) -> Result<()> {
        let mut file = context.device.create(&folder.join(DRAFT))?;
        file.append(&sealed(&Self { manifest_xxh3: NO_CHECKSUM.into(), ..self.clone() }))?;
        file.sync()?;
        context.device.rename(&folder.join(DRAFT), &folder.join(MANIFEST_FILE))?;
        Ok(context.device.sync_folder(folder)?)
    }

    /// Returns whether this manifest is in force. Does not compare checksums.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn is_in_force(&self, context: &Context, folder: &Path) -> Result<bool> {
        let manifest_xxh3 = self.manifest_xxh3.clone();
        Ok(Self { manifest_xxh3, ..Self::read(context, folder)? } == *self)
    }

    /// Reads the manifest of a collection.
    ///
    /// # Errors
    /// If there is no manifest, or it is damaged, has a newer version, belongs to another kind of folder, or contains
    /// impossible values.
    pub(super) fn read(context: &Context, folder: &Path) -> Result<Self> {
        if !has_manifest(context, folder)? {
            let at = folder.display();
            return Err(Error::input(format!("{at} is not a collection; create one with: adjoin collection create")));
        }
        Self::decode(folder, &read_manifest_bytes(context, folder)?)
    }

    /// Decodes the manifest `bytes` of the collection in `folder`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn decode(folder: &Path, bytes: &[u8]) -> Result<Self> {
        let read = unsealed::<Self>(bytes, FolderKind::Collection)
            .map_err(|unreadable| unreadable.in_folder(folder, FolderKind::Collection));
        let manifest = read?;
        let makes_sense = manifest.options().check().is_ok() && manifest.first_record > 0 && manifest.salt().is_some();
        if makes_sense {
            return Ok(manifest);
        }
        let at = folder.join(MANIFEST_FILE);
        Err(Error::corrupt(format!("{}: it has impossible values; restore it from a backup", at.display())))
    }

    fn options(&self) -> CollectionOptions {
        let Self { vectors, metric, ids, attributes, .. } = self.clone();
        CollectionOptions { vectors, metric, ids, attributes, index: self.index_options() }
    }

    /// Returns the types and sizes of rows.
    pub(super) fn rows(&self) -> RowType<'_> {
        RowType { ids: self.ids, vector_bytes: self.vectors.bytes(), attributes: &self.attributes }
    }

    /// Returns [`Self::index_options`] for the vectors of the collection.
    pub(super) fn index_parameters(&self) -> IndexParameters {
        self.index_options().parameters(self.vectors)
    }

    /// Returns the options with which merges build the long-term index.
    pub(super) fn index_options(&self) -> IndexOptions {
        let Self { degree, build_list, alpha, seed, code_bytes, page_bytes, .. } = *self;
        let (degree, code_bytes) = (Some(degree), Some(code_bytes));
        IndexOptions { degree, build_list, alpha, seed, code_bytes, page_bytes, ..IndexOptions::default() }
    }

    /// Returns the sequence number of the last write in the long-term index; `None` if there is no index.
    pub(super) fn merged(&self) -> Option<u64> {
        (self.merged_rows > 0).then(|| self.first_record - 1)
    }

    /// Returns the manifest after a merge of all writes up to `sequence` into an index of `rows` rows.
    #[must_use]
    pub(super) fn with_merged(&self, sequence: u64, rows: u64) -> Self {
        Self { first_record: sequence + 1, merged_rows: rows, ..self.clone() }
    }

    fn salt(&self) -> Option<u64> {
        u64::from_str_radix(&self.salt, 16).ok()
    }

    /// Returns the start of the log: its salt, and the number of its first record.
    pub(super) fn log(&self) -> LogStart {
        LogStart { salt: self.salt().expect("a manifest that was read has one"), first: self.first_record }
    }

    pub(super) fn space(&self) -> Space<'static> {
        Space::plain(self.vectors, self.metric)
    }

    /// Returns the common statistics of a command on the collection, which has `rows` rows in total.
    pub(super) fn statistics(&self, context: &Context, rows: u64, command: &'static str) -> CommonStatistics {
        CommonStatistics {
            rows,
            dimensions: self.vectors.dimensions,
            element: self.vectors.element.to_string(),
            metric: self.metric.to_string(),
            ..context.statistics(command)
        }
    }
}
