//! Verification of every byte of a collection.

use std::path::Path;

use super::log_files::Segments;
use super::long_term_index::{folder_name, is_of_merge, places_name};
use super::manifest::{self, CollectionManifest};
use super::memory::{CollectionWork, collection_context};
use super::segment::{self, first_of};
use super::{Collection, CollectionFacts};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::locks::{is_own_for, is_writer_file};
use crate::index::{Index, IndexVerifyReport};
use crate::store::REPLACED_MARK;
use crate::store::format::MANIFEST_FILE;

/// Maximum number of leftovers, and of strangers, that a report lists.
const LISTED_MAX: usize = 1_000;

/// Result of [`Collection::verify`](crate::Collection::verify).
#[derive(Debug, Clone)]
pub struct CollectionVerifyReport {
    /// Size and state of the collection.
    pub facts: CollectionFacts,
    /// Report on the long-term index, if there is one.
    pub index: Option<IndexVerifyReport>,
    /// Files in the folder that unfinished writes and merges left behind, at most 1,000. They are harmless.
    pub leftovers: Vec<String>,
    /// Other files and folders that do not belong to the collection, at most 1,000. Users or other programs put them
    /// there.
    pub strangers: Vec<String>,
}

impl CollectionVerifyReport {
    /// Returns whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.index.as_ref().is_none_or(IndexVerifyReport::is_sound)
    }
}

impl Collection {
    /// Reads and verifies every byte of a collection. First opens it, which reads the log and the id lookup; then
    /// reads the pages and the graph.
    ///
    /// # Errors
    /// If there is no collection, it is of a newer version, memory is short, or the caller cancels. Also if the
    /// manifest, the log or the id lookup is damaged. Damage to the long-term index is no error, but is in the report.
    pub fn verify(context: &Context, folder: &Path) -> Result<CollectionVerifyReport> {
        let context = &collection_context(context, folder, CollectionWork::Verify);
        // The collection is closed before its index is verified, so memory need only suffice for the larger of both
        // steps.
        let (facts, manifest) = {
            let collection = Collection::open_read_only(context, folder)?;
            (collection.facts(), collection.manifest())
        };
        let of_merged = |sequence| Index::verify(context, &folder.join(folder_name(sequence)));
        let mut index = manifest.merged().map(of_merged).transpose()?;
        let (mut leftovers, mut strangers) = unnamed(context, folder, &manifest)?;
        if let (Some(index), Some(sequence)) = (&mut index, manifest.merged()) {
            let within = |name: String| format!("{}/{name}", folder_name(sequence));
            leftovers.extend(std::mem::take(&mut index.leftovers).into_iter().map(within));
            strangers.extend(std::mem::take(&mut index.strangers).into_iter().map(within));
        }
        Ok(CollectionVerifyReport { facts, index, leftovers, strangers })
    }
}

/// Returns the names in the folder that do not belong to the collection, as leftovers and strangers.
fn unnamed(context: &Context, folder: &Path, manifest: &CollectionManifest) -> Result<(Vec<String>, Vec<String>)> {
    let (mut leftovers, mut strangers) = (Vec::new(), Vec::new());
    let merged = manifest.merged().map(|sequence| [folder_name(sequence), places_name(sequence)]);
    let log = Segments::open(context, folder, manifest.log())?;
    for name in context.device.list(folder)? {
        let text = name.to_string_lossy().into_owned();
        let is_log = first_of(&text).is_some_and(|first| log.has(first));
        if is_writer_file(&name) || is_log || text == MANIFEST_FILE || merged.iter().flatten().any(|name| *name == text)
        {
            continue;
        }
        let is_left = is_of_merge(&text) || first_of(&text).is_some() || is_draft(&text) || is_own_for("", &name);
        let listed = if is_left { &mut leftovers } else { &mut strangers };
        if listed.len() < LISTED_MAX {
            listed.push(text);
        }
    }
    Ok((leftovers, strangers))
}

/// Returns whether `name` is the name of a file before its completion: a log file, a manifest or the mark of a backup.
fn is_draft(name: &str) -> bool {
    [segment::DRAFT, manifest::DRAFT, REPLACED_MARK].contains(&name)
}
