//! Lists the files of a collection, for a copy of its folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::ReadFile;

use super::log_files::Segments;
use super::long_term_index::{folder_name, is_of_merge, places_name};
use super::manifest::CollectionManifest;
use super::segment::{READING_BYTES, first_of};
use crate::base::context::Context;
use crate::base::error::Result;

/// Files of a collection, except its manifest. All paths are relative to the folder of the collection.
pub(crate) struct CollectionFiles {
    /// Folder of the long-term index.
    pub(crate) index: Option<PathBuf>,
    /// File of the id lookup, in blocks of [`BLOCK_BYTES`](super::places::BLOCK_BYTES).
    pub(crate) places: Option<PathBuf>,
    /// Open files of the log, which contain the records of one moment.
    pub(crate) log: Vec<(PathBuf, Arc<dyn ReadFile>)>,
    segments: Segments,
}

impl CollectionFiles {
    /// Lists the files, and opens the log.
    ///
    /// # Errors
    /// If a file of the log is missing or has no header.
    pub(crate) fn of(context: &Context, folder: &Path, manifest: &CollectionManifest) -> Result<Self> {
        let merged = manifest.merged();
        let segments = Segments::open(context, folder, manifest.log())?;
        let log = segments.files().map(|(name, file)| (name.into(), file.clone())).collect();
        Ok(Self {
            index: merged.map(|sequence| folder_name(sequence).into()),
            places: merged.map(|sequence| places_name(sequence).into()),
            log,
            segments,
        })
    }

    /// Returns the memory in bytes that [`Self::check_log`] needs. Finding the longest record in an object store takes
    /// as long as the check itself, so its records are assumed to be short.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn log_bytes(&self) -> Result<u64> {
        let is_remote = self.log.iter().any(|(_, file)| file.is_remote());
        let longest = if is_remote { 0 } else { self.segments.count_rows()?.record_bytes_max };
        Ok(READING_BYTES.max(longest))
    }

    /// Reads the log and verifies its records.
    ///
    /// # Errors
    /// If it is damaged, or memory does not suffice.
    pub(crate) fn check_log(self, context: &Context) -> Result<()> {
        self.segments.read(context, None, &mut |_| context.cancel.check()).map(|_| ())
    }
}

/// Returns whether a file or folder with this name, other than a manifest, can only belong to a collection.
pub(crate) fn is_of_collection(name: &str) -> bool {
    is_of_merge(name) || first_of(name).is_some()
}
