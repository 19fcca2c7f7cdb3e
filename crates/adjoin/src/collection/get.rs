//! Lookup of rows by id.

use std::sync::Arc;

use super::Collection;
use super::attributes::Attribute;
use super::long_term_index::LongTermIndex;
use super::packed::{AttributeValue, pack, unpacked};
use super::write::check_kind;
use crate::error::Result;
use crate::source::Ids;

/// A row of a collection, without its id.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectionRow {
    /// The vector, as stored.
    pub vector: Vec<u8>,
    /// The columns, in the order of the manifest.
    pub attributes: Vec<AttributeValue>,
}

/// Location of a row.
enum RowPlace {
    /// The vector and the packed columns.
    InMemory(Vec<u8>, Vec<u8>),
    /// The entry in the long-term index.
    OnDisk(u32),
}

/// Locations of the rows of some ids (`None` for ids that no row has), and the index with those on disk.
struct Located {
    rows: Vec<Option<RowPlace>>,
    long_term: Option<Arc<LongTermIndex>>,
}

impl Collection {
    /// Returns the vectors of `ids`, as stored; `None` for an id that no row has.
    ///
    /// # Errors
    /// If the ids are of another kind, or the long-term index cannot be read.
    pub fn get(&self, ids: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
        let Located { rows, long_term } = self.locate(ids)?;
        let vector = |found| match (found, &long_term) {
            (Some(RowPlace::InMemory(vector, _)), _) => Ok(Some(vector)),
            (Some(RowPlace::OnDisk(entry)), Some(long_term)) => long_term.index.vector(entry).map(Some),
            _ => Ok(None),
        };
        rows.into_iter().map(vector).collect()
    }

    /// Returns the rows of `ids` with their columns; `None` for an id that no row has.
    ///
    /// # Errors
    /// As [`Self::get`], and if memory does not suffice.
    pub fn get_rows(&self, ids: &Ids) -> Result<Vec<Option<CollectionRow>>> {
        let (Located { rows: found, long_term }, attributes) = (self.locate(ids)?, self.manifest().attributes);
        let mut on_disk: Vec<(u32, usize)> = Vec::new();
        let mut rows = Vec::with_capacity(found.len());
        for (k, found) in found.into_iter().enumerate() {
            rows.push(match (found, &long_term) {
                (Some(RowPlace::InMemory(vector, packed)), _) => {
                    Some(CollectionRow { vector, attributes: unpacked(&attributes, &packed) })
                }
                (Some(RowPlace::OnDisk(entry)), Some(long_term)) => {
                    on_disk.push((entry, k));
                    Some(CollectionRow { vector: long_term.index.vector(entry)?, attributes: Vec::new() })
                }
                _ => None,
            });
        }
        if let Some(long_term) = long_term {
            self.add_attributes(&long_term, &attributes, on_disk, &mut rows)?;
        }
        Ok(rows)
    }

    /// Adds the columns of entries on disk to the rows at the given positions.
    fn add_attributes(
        &self,
        long_term: &LongTermIndex,
        attributes: &[Attribute],
        mut on_disk: Vec<(u32, usize)>,
        rows: &mut [Option<CollectionRow>],
    ) -> Result<()> {
        on_disk.sort_unstable();
        let entries: Vec<u32> = on_disk.iter().map(|&(entry, _)| entry).collect();
        let mut packed = Vec::new();
        long_term.index.each_attributes(&self.context, &entries, &mut |place, table, k| {
            packed.clear();
            pack(table, k, &mut packed);
            if let Some(row) = &mut rows[on_disk[place].1] {
                row.attributes = unpacked(attributes, &packed);
            }
            Ok(())
        })
    }

    /// Finds the rows of `ids` at one moment.
    fn locate(&self, ids: &Ids) -> Result<Located> {
        self.check_creator()?;
        check_kind(self, ids.kind())?;
        let (mut rows, long_term, deleted): (Vec<Option<RowPlace>>, _, _) = {
            let state = self.state();
            let copy = |(vector, attributes): (&[u8], &[u8])| RowPlace::InMemory(vector.to_vec(), attributes.to_vec());
            let in_memory = (0..ids.len()).map(|k| state.temporary.row(ids, k).map(copy)).collect();
            (in_memory, state.long_term.clone(), state.deleted.clone())
        };
        if let Some(long_term) = &long_term {
            for (found, entry) in rows.iter_mut().zip(long_term.entries(ids)?) {
                let on_disk = entry.filter(|&entry| !deleted.has(entry)).map(RowPlace::OnDisk);
                *found = found.take().or(on_disk);
            }
        }
        Ok(Located { rows, long_term })
    }
}
