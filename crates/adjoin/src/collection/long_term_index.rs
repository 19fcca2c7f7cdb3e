//! The long-term index, which contains the rows of all writes up to the last merge.

use std::path::Path;

use super::attributes::{Attribute, schema};
use super::places::{self, Places};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::index::Index;
use crate::source::Ids;

/// Returns the folder name of the index that contains all writes up to `sequence`.
pub(super) fn folder_name(sequence: u64) -> String {
    format!("index-{sequence:016x}")
}

/// Returns the file name of the id lookup of the index that contains all writes up to `sequence`.
pub(super) fn places_name(sequence: u64) -> String {
    format!("places-{sequence:016x}.bin")
}

/// Returns whether `name` is the name of a folder or file that merges create.
pub(super) fn is_of_merge(name: &str) -> bool {
    let digits = name.strip_prefix("index-").or_else(|| name.strip_prefix("places-")?.strip_suffix(".bin"));
    digits.is_some_and(|digits| digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok())
}

/// The graph index on disk, with the lookup that finds its entries by id.
pub(super) struct LongTermIndex {
    pub(super) index: Index,
    places: Places,
    /// Memory in bytes for reading the columns of the index.
    pub(super) columns_reading_bytes: u64,
}

impl LongTermIndex {
    /// Writes the id lookup of a built index, and syncs the folder. After that, a manifest may name the index.
    ///
    /// # Errors
    /// If the index cannot be read, or the device fails.
    pub(super) fn complete(context: &Context, collection: &Path, sequence: u64) -> Result<()> {
        let index = Index::open(context, &collection.join(folder_name(sequence)))?;
        places::write(context, &index, &collection.join(places_name(sequence)))?;
        Ok(context.device.sync_folder(collection)?)
    }

    /// Opens the index that contains all writes up to `sequence`.
    ///
    /// # Errors
    /// If it is missing or damaged, its columns differ from the columns of the collection, or memory does not suffice.
    pub(super) fn open(context: &Context, collection: &Path, sequence: u64, attributes: &[Attribute]) -> Result<Self> {
        let folder = collection.join(folder_name(sequence));
        let index = Index::open(context, &folder)?;
        // The id lookup and the delete list store entries as 32-bit numbers.
        if index.facts().rows > u64::from(u32::MAX) {
            return Err(Error::corrupt(format!(
                "{} has more rows than a collection can have; restore the folder from a \
                                               backup",
                folder.display()
            )));
        }
        if index.attribute_schema()?.fields() != schema(attributes).fields() {
            let at = folder.display();
            let why = "its columns differ from those of the collection; restore the folder from a backup";
            return Err(Error::corrupt(format!("{at}: {why}")));
        }
        let places = Places::open(context, &index, &collection.join(places_name(sequence)))?;
        let columns_reading_bytes = index.columns_reading_bytes()?;
        Ok(Self { index, places, columns_reading_bytes })
    }

    /// Returns the size on disk of the index and its id lookup, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let facts = self.index.facts();
        facts.files.iter().map(|(_, file)| file.bytes).sum::<u64>() + places::file_bytes(facts.rows)
    }

    /// Returns the entry of each id; `None` for an id that is not in the index.
    ///
    /// # Errors
    /// If the id lookup cannot be read.
    pub(super) fn entries(&self, ids: &Ids) -> Result<Vec<Option<u32>>> {
        self.places.entries(&self.index, ids)
    }
}
