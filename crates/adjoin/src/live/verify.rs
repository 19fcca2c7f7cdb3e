//! Is every byte of a live index as it was written?

use std::path::Path;

use super::base::folder_name;
use super::{Collection, LiveFacts};
use crate::context::Context;
use crate::error::Result;
use crate::index::{self, IndexVerifyReport};

/// What [`verify`] found.
#[derive(Debug, Clone)]
pub struct LiveVerifyReport {
    /// What the live index holds.
    pub facts: LiveFacts,
    /// What was found of the index on disk, where there is one.
    pub index: Option<IndexVerifyReport>,
}

impl LiveVerifyReport {
    /// Whether all is as it must be.
    pub fn is_sound(&self) -> bool {
        self.index.as_ref().is_none_or(IndexVerifyReport::is_sound)
    }
}

/// Reads every byte of a live index: opening it reads the log and the places of ids, the pages and the graph are read after
/// that.
///
/// # Errors
/// Where there is none, it is of a newer version, memory is short, or the caller cancels; where the manifest, the log or the
/// places of ids are damaged. Damage to the index on disk is in the report.
pub fn verify(context: &Context, folder: &Path) -> Result<LiveVerifyReport> {
    let (facts, merged) = {
        let collection = Collection::open_read_only(context, folder)?;
        (collection.facts(), collection.manifest().merged())
    };
    let index = merged.map(|sequence| index::verify(context, &folder.join(folder_name(sequence)))).transpose()?;
    Ok(LiveVerifyReport { facts, index })
}
