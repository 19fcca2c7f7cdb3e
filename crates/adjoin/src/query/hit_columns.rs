//! Columns of hits, read for as many hits at a time as memory holds.

use std::ops::ControlFlow;

use arrow_array::RecordBatch;

use super::id_room::IdRoom;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::store::{ColumnGathering, ResultColumns};

impl ColumnGathering {
    /// Adds a table of the rows with the next distinct keys. Returns whether `room` holds it.
    pub(crate) fn add(&mut self, table: RecordBatch, room: &mut IdRoom<'_>) -> bool {
        let fits = room.take(table.get_array_memory_size() as u64);
        if fits {
            self.push(table);
        }
        fits
    }

    /// Adds the rows that are stored in `columns`, whose keys are their numbers: the next `rows`. Returns whether `room`
    /// holds them.
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
