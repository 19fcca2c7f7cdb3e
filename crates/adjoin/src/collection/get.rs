//! Lookup of rows by id.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Collection;
use super::attributes::{Attribute, schema};
use super::long_term_index::{LongTermIndex, folder_name};
use super::manifest::CollectionManifest;
use super::memory::{CollectionWork, Manifests};
use super::packed::table_of;
use super::temporary_index::TemporaryView;
use super::write::check_kind;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::VectorType;
use crate::index::fetching_bytes;
use crate::source::Ids;
use crate::store::{AttributeRows, FetchingBytes};

/// Location of a row.
#[derive(Clone, Copy)]
enum RowPlace {
    /// Row number in the temporary index.
    InMemory(u32),
    /// Entry of the long-term index.
    OnDisk(u32),
}

/// Rows of a collection that were looked up by id, as they were at one moment. They are in the order of the ids.
pub(crate) struct LocatedRows {
    vectors: VectorType,
    attributes: Vec<Attribute>,
    long_term: Option<Arc<LongTermIndex>>,
    view: TemporaryView,
    places: Vec<RowPlace>,
}

impl Collection {
    /// Returns the stored vector of each id; `None` if no row has the id.
    ///
    /// # Errors
    /// If the ids are of another kind, or the long-term index cannot be read.
    pub fn get(&self, ids: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
        let (located, missing) = self.locate(ids)?;
        let stored = located.vectors(&self.context, 0..located.places.len())?;
        let (mut found, mut missing) = (stored.chunks_exact(located.vectors.bytes()), missing.into_iter().peekable());
        let next = |k| if missing.next_if_eq(&k).is_some() { None } else { found.next().map(<[u8]>::to_vec) };
        Ok((0..ids.len()).map(next).collect())
    }

    /// Returns the columns of the rows with these ids, in the order of `ids`. Skips ids that no row has.
    ///
    /// # Errors
    /// As [`Self::get`], and if memory does not suffice.
    pub fn get_attributes(&self, ids: &Ids) -> Result<RecordBatch> {
        let (located, _) = self.locate(ids)?;
        Ok(located.attributes(&self.context, 0..located.places.len())?.table)
    }

    /// Returns a context for opening a collection and fetching rows. If the budget is too small for any step, the
    /// error names a budget that suffices for all steps. `bytes` is the memory for fetching, without the memory for
    /// passes over ids, vectors or columns.
    ///
    /// # Errors
    /// If the manifest of the long-term index or its columns cannot be read.
    pub(crate) fn fetching_context(
        context: &Context,
        folder: &Path,
        manifest: &CollectionManifest,
        bytes: u64,
    ) -> Result<Context> {
        let manifests = Manifests::read(context, folder, manifest.clone())?;
        let of_index = match (&manifests.index, manifest.merged()) {
            (Some(facts), Some(sequence)) => fetching_bytes(context, &folder.join(folder_name(sequence)), facts)?,
            _ => FetchingBytes::default(),
        };
        let bytes = of_index.and(TemporaryView::block_bytes() + bytes).longest;
        let work = CollectionWork::Read(bytes);
        Ok(context.naming_at_least(manifests.least_bytes(context, folder, work).unwrap_or(0)))
    }

    /// Returns the least memory for fetching rows, in bytes. Does not include the ids and vectors of these rows, and
    /// the columns of unmerged rows.
    ///
    /// # Errors
    /// If the file of the columns cannot be read.
    pub(crate) fn fetching_bytes(&self) -> Result<FetchingBytes> {
        let long_term = self.state().long_term.clone();
        let of_index = match &long_term {
            Some(long_term) => long_term.index.fetching_bytes()?,
            None => FetchingBytes::default(),
        };
        Ok(of_index.and(TemporaryView::block_bytes()))
    }

    /// Finds the rows of `ids` at one moment. Returns the rows, and the indexes of the ids that no row has.
    ///
    /// # Errors
    /// If the ids are of another kind, or the id lookup of the long-term index cannot be read.
    pub(crate) fn locate(&self, ids: &Ids) -> Result<(LocatedRows, Vec<usize>)> {
        self.check_creator()?;
        check_kind(self, ids.kind())?;
        let manifest = self.manifest();
        // Row numbers and view are read under one lock: a write between them could replace the rows.
        let (in_memory, view, long_term, deleted) = {
            let state = self.state();
            let in_memory: Vec<Option<u32>> = (0..ids.len()).map(|k| state.temporary.number(ids, k)).collect();
            (in_memory, state.temporary.view(), state.long_term.clone(), state.deleted.clone())
        };
        // The lock is released by now, since this reads the disk.
        let entries =
            long_term.as_ref().map_or_else(|| Ok(vec![None; ids.len()]), |long_term| long_term.entries(ids))?;
        let (mut places, mut missing) = (Vec::with_capacity(ids.len()), Vec::new());
        for (k, (number, entry)) in in_memory.into_iter().zip(entries).enumerate() {
            let on_disk = entry.filter(|&entry| !deleted.has(entry)).map(RowPlace::OnDisk);
            // If a row in memory and a row on disk have one id, the row in memory is the current one.
            match number.map(RowPlace::InMemory).or(on_disk) {
                Some(place) => places.push(place),
                None => missing.push(k),
            }
        }
        let (vectors, attributes) = (manifest.vectors, manifest.attributes);
        Ok((LocatedRows { vectors, attributes, long_term, view, places }, missing))
    }
}

impl LocatedRows {
    /// Returns the stored vectors of the rows in `range`, end to end.
    ///
    /// # Errors
    /// If the long-term index cannot be read, or memory does not suffice.
    pub(crate) fn vectors(&self, context: &Context, range: Range<usize>) -> Result<Vec<u8>> {
        let (on_disk, _) = self.split(range.clone());
        let on_disk = self
            .long_term
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |long_term| long_term.index.vectors_of(context, &on_disk))?;
        let mut on_disk = on_disk.chunks_exact(self.vectors.bytes());
        let mut stored = Vec::with_capacity(range.len() * self.vectors.bytes());
        for &place in &self.places[range] {
            stored.extend_from_slice(match place {
                RowPlace::InMemory(number) => self.view.row(number).0,
                RowPlace::OnDisk(_) => on_disk.next().expect("every entry has a vector"),
            });
        }
        Ok(stored)
    }

    /// Returns the columns of the rows in `range`.
    ///
    /// # Errors
    /// As [`Self::vectors`].
    pub(crate) fn attributes(&self, context: &Context, range: Range<usize>) -> Result<AttributeRows> {
        let (on_disk, in_memory) = self.split(range.clone());
        let of_disk = match &self.long_term {
            // The first request for columns verifies their whole file.
            Some(long_term) if !on_disk.is_empty() => long_term.index.attributes_of(context, &on_disk)?,
            _ => AttributeRows::empty(context, schema(&self.attributes))?,
        };
        let all: Vec<usize> = (0..self.attributes.len()).collect();
        let of_memory = table_of(&self.attributes, &all, in_memory.iter().map(|&number| self.view.row(number).1));
        let (mut entries, mut numbers) = (0.., on_disk.len() as u32..);
        let places = self.places[range].iter().map(|place| match place {
            RowPlace::OnDisk(_) => entries.next(),
            RowPlace::InMemory(_) => numbers.next(),
        });
        of_disk.join(context, of_memory, places.flatten().collect())
    }

    /// Divides the rows in `range` into entries of the long-term index and row numbers of the temporary index, each in
    /// order.
    fn split(&self, range: Range<usize>) -> (Vec<u32>, Vec<u32>) {
        let (mut on_disk, mut in_memory) = (Vec::new(), Vec::new());
        self.places[range].iter().for_each(|&place| match place {
            RowPlace::OnDisk(entry) => on_disk.push(entry),
            RowPlace::InMemory(number) => in_memory.push(number),
        });
        (on_disk, in_memory)
    }
}
