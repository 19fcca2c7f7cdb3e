//! Writes the columns of remaining and inserted rows in the order of the merged index.

use std::path::Path;

use arrow_array::RecordBatch;

use super::PURPOSE;
use super::mixed::Mixed;
use crate::base::error::Result;
use crate::index::delete_list::DeleteList;
use crate::index::rows::EntryOrder;
use crate::store::{Drafts, FileFacts, Reordering};

impl Mixed<'_> {
    /// Writes the columns by entry, if the rows have any. Returns the facts for the manifest about the file, and the
    /// bytes that were written to temporary files.
    ///
    /// # Errors
    /// If columns are damaged, if the file cannot be written, or if memory does not suffice.
    pub(super) fn attributes(
        &self,
        drafts: &Drafts<'_>,
        temporary: &Path,
        deleted: &DeleteList,
        EntryOrder { places, duplicates }: EntryOrder<'_>,
    ) -> Result<Option<(FileFacts, u64)>> {
        let (context, index) = (self.context, self.index);
        let Some(columns) = index.columns() else { return Ok(None) };
        let (left, came) = (u64::from(self.left.len()), self.newcomers.rows());
        let _of_newcomers = context.reserve(u64::from(came) * size_of::<u32>() as u64, PURPOSE)?;
        let vertices = self.vertices_of_newcomers();
        let entry = |row: u64| {
            let vertex = match row.checked_sub(left) {
                Some(newcomer) => vertices[newcomer as usize],
                None => self.numbering.of_old(index.vertex_of(self.left.at_rank(row as u32))),
            };
            let place = places.by_vertex[vertex as usize];
            let (first, others) = duplicates.of(place);
            match others.binary_search(&row) {
                Ok(at) => self.numbering.vertices() + (first + at) as u32,
                // The row represents its vertex.
                Err(_) => place,
            }
        };
        let rows = left + u64::from(came);
        let reading = columns.reading_bytes()?;
        let mut reordering = Reordering::new(context, temporary, &columns.schema()?, rows, reading)?;
        let mut row = 0;
        let mut add = |table: Result<RecordBatch>| -> Result<()> {
            context.cancel.check()?;
            let table = table?;
            reordering.add(&table, |k| Ok(Some(entry(row + k as u64).into())))?;
            row += table.num_rows() as u64;
            Ok(())
        };
        columns.excluding(context, Some(deleted.entries()))?.try_for_each(&mut add)?;
        self.newcomers.attributes(context)?.try_for_each(&mut add)?;
        reordering.write(drafts).map(Some)
    }

    /// Returns the vertex of each inserted row.
    fn vertices_of_newcomers(&self) -> Vec<u32> {
        let mut vertices = vec![0; self.newcomers.rows() as usize];
        for (new, &newcomer) in (0..).zip(self.standing) {
            vertices[newcomer as usize] = self.numbering.of_new(new);
        }
        for (newcomer, vertex) in self.survey.sharing(self.numbering, self.standing) {
            vertices[newcomer as usize] = vertex;
        }
        vertices
    }
}
