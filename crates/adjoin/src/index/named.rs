//! Looks up rows of an index by id or row number, and reads their vectors and columns.

use std::path::Path;

use super::reader::{bytes_of_columns, ids_at_once};
use super::scan::{Pieces, Scan};
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::source::{IdKind, Ids, Named};
use crate::store::{AttributeRows, FetchingBytes, StoredColumns};

/// Returns the bytes for fetching rows of the index in a folder by id. The ids and vectors themselves are not counted.
///
/// # Errors
/// If the file of the columns cannot be read.
pub(crate) fn fetching_bytes(context: &Context, folder: &Path, facts: &IndexManifest) -> Result<FetchingBytes> {
    let of_columns = bytes_of_columns(context, folder, facts, |columns| columns.fetching_bytes())?;
    Ok(of_columns.or(finding_bytes(facts)))
}

/// Returns the bytes for finding rows by id and for reading their vectors.
fn finding_bytes(facts: &IndexManifest) -> u64 {
    Scan::memory_bytes(facts.shape()) + ids_at_once(facts).1
}

/// Purpose of the memory in error messages.
const PURPOSE: &str = "fetching rows by their ids";

impl Index {
    /// Returns the bytes for fetching rows by id. The ids and vectors themselves are not counted.
    ///
    /// # Errors
    /// If the file of the columns cannot be read.
    pub(crate) fn fetching_bytes(&self) -> Result<FetchingBytes> {
        let of_columns = self.columns().map_or_else(|| Ok(FetchingBytes::default()), StoredColumns::fetching_bytes)?;
        Ok(of_columns.or(finding_bytes(self.facts())))
    }

    /// Returns the entry of the row with each of the given ids, or `None` if no row has the id. If rows have no ids,
    /// `names` are row numbers. Reads all ids or, if there are none, all pages.
    ///
    /// # Errors
    /// If the ids have another kind, if memory does not suffice, or if the index is damaged or cannot be read.
    pub(crate) fn entries_named(&self, context: &Context, names: &Ids) -> Result<Vec<Option<u64>>> {
        let mut named = Named::new(self.facts().ids, names)?;
        match self.facts().ids {
            IdKind::None => self.each_row(context, &mut |entry, row| named.meet_row(row, entry.into()))?,
            _ => self.each_id(context, &mut |entry, id| {
                named.meet(id, entry.into());
                Ok(())
            })?,
        }
        Ok(named.into_places())
    }

    /// Passes the row number of each entry to `take`.
    fn each_row(&self, context: &Context, take: &mut dyn FnMut(u32, u64)) -> Result<()> {
        let (shape, vertices) = (self.facts().shape(), self.facts().vertices);
        let _memory = context.reserve(Scan::memory_bytes(shape), PURPOSE)?;
        let pages = 0..shape.pages(vertices) as u32;
        Scan::new(shape).each(&context.cancel, &*self.pages, pages, &mut |number, page| match page {
            Ok(page) => {
                shape.vertices(number, vertices).enumerate().for_each(|(slot, vertex)| take(vertex, page.row(slot)));
                Ok(())
            }
            Err(no_page) => Err(self.no_page(number, no_page)),
        })?;
        // Further rows of vertices are not on pages. Their entries follow those of all vertices.
        (vertices..).zip(self.duplicates.rows()).for_each(|(entry, &row)| take(entry, row));
        Ok(())
    }

    /// Returns the stored vectors of entries, end to end. Reads each page once.
    ///
    /// # Errors
    /// If a page cannot be read or is damaged, or if memory does not suffice.
    pub(crate) fn vectors_of(&self, context: &Context, entries: &[u32]) -> Result<Vec<u8>> {
        let mut order: Vec<(u32, usize)> = entries.iter().map(|&entry| self.vertex_of(entry)).zip(0..).collect();
        // Vectors are read in the order of the pages, and stored in the order of `entries` below.
        order.sort_unstable();
        let _memory = context.reserve_between_runs(Scan::memory_bytes(self.facts().shape()), PURPOSE)?;
        let mut pages = Pieces::spread(self, entries.len() as u64);
        let bytes = self.facts().vectors.bytes();
        let mut out = vec![0; entries.len() * bytes];
        for (vertex, k) in order {
            context.cancel.check()?;
            out[k * bytes..][..bytes].copy_from_slice(&pages.vector(vertex)?[..bytes]);
        }
        Ok(out)
    }

    /// Returns the columns of entries, in their order.
    ///
    /// # Errors
    /// If their file cannot be read or is damaged, or if memory does not suffice.
    pub(crate) fn attributes_of(&self, context: &Context, entries: &[u32]) -> Result<AttributeRows> {
        AttributeRows::read(context, self.columns(), entries)
    }
}
