//! Reads the columns of hits, for as many hits at a time as memory holds.

use std::ops::ControlFlow;

use arrow_array::RecordBatch;

use super::id_room::IdRoom;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::store::{ColumnGathering, ResultColumns};

impl ColumnGathering {
    /// Adds a table that has the rows of the next distinct keys. Returns `false` if the table does not fit in `room`.
    pub(crate) fn add(&mut self, table: RecordBatch, room: &mut IdRoom<'_>) -> bool {
        let fits = room.take(table.get_array_memory_size() as u64);
        if fits {
            self.push(table);
        }
        fits
    }

    /// Adds rows that are stored in `columns`. `rows` has their numbers, which are the next distinct keys. Returns
    /// `false` if the rows do not fit in `room`.
    ///
    /// # Errors
    /// If the columns cannot be read.
    pub(crate) fn add_stored(
        &mut self,
        context: &Context,
        columns: &ResultColumns<'_>,
        rows: &[u32],
        room: &mut IdRoom<'_>,
    ) -> Result<bool> {
        let mut fits = true;
        columns.each_of(context, rows, &mut |table| {
            fits = self.add(table, room);
            Ok(if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(fits)
    }
}
