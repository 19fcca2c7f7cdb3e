//! Looks up vectors of an index by ids or row numbers.

use super::Index;
use super::scan::Scan;
use crate::context::Context;
use crate::error::Result;
use crate::source::{IdKind, Ids, Named};

impl Index {
    /// Returns the stored vectors of the rows with some ids, or with some row numbers if rows have no ids. The result
    /// is `None` for a name that no row has. Reads all ids, or all pages if there are no ids.
    ///
    /// # Errors
    /// If the ids have another kind, if memory does not suffice, or if the index is damaged or cannot be read.
    pub fn vectors_named(&self, context: &Context, names: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
        let mut named = Named::new(self.facts().ids, names)?;
        match self.facts().ids {
            IdKind::None => self.each_row(context, &mut |entry, row| named.meet_row(row, || self.vector(entry)))?,
            _ => self.each_id(context, &mut |entry, id| named.meet(id, || self.vector(entry)))?,
        }
        Ok(named.into_found())
    }

    /// Passes the row number of each entry to `take`.
    fn each_row(&self, context: &Context, take: &mut dyn FnMut(u32, u64) -> Result<()>) -> Result<()> {
        let (shape, vertices) = (self.facts().shape(), self.facts().vertices);
        let _memory = context.reserve(Scan::memory_bytes(shape), "looking for rows by their numbers")?;
        let pages = 0..shape.pages(vertices) as u32;
        Scan::new(shape).each(&context.cancel, &*self.pages, pages, &mut |number, page| match page {
            Ok(page) => {
                shape.vertices(number, vertices).enumerate().try_for_each(|(slot, vertex)| take(vertex, page.row(slot)))
            }
            Err(no_page) => Err(self.no_page(number, no_page)),
        })?;
        (vertices..).zip(self.duplicates.rows()).try_for_each(|(entry, &row)| take(entry, row))
    }
}
