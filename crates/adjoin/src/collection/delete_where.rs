//! Deletion of all rows that match a filter, in one write.

use std::path::Path;

use super::Collection;
use super::log::{Appended, Durability};
use super::manifest::CollectionManifest;
use super::operations::{WriteReport, Writer};
use super::state::{StateView, WriteRoom};
use super::sync::lock;
use super::temporary_index::TemporaryView;
use super::write::{Incoming, Write};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, Message, message};
use crate::base::report::Cancel;
use crate::base::row_numbers::RowSet;
use crate::source::Ids;
use crate::sql::Condition;
use crate::store::FilterBitmap;

/// Purpose of the memory, for error messages.
const PURPOSE: &str = "deleting rows by a filter";
/// Attempts to find the rows while other threads write. After that, the search holds the write lock.
const LOOKS_MAX: usize = 3;
/// Number of ids that are found between two updates of the reservation.
const IDS_TOGETHER: usize = 4_096;

/// Refuses a request that needs columns if the collection has none. `asks` names the option, for the message.
pub(super) fn check_attributes(folder: &Path, manifest: &CollectionManifest, asks: Message) -> Result<()> {
    if !manifest.attributes.is_empty() {
        return Ok(());
    }
    let at = format!("{} is a collection whose rows have no columns, which ", folder.display());
    let make = " needs; create one with ";
    Err(Error::option(message![at, asks, make, Argument::Columns]))
}

impl Collection {
    /// Deletes all rows that match a filter. No write happens between the search for these rows and their deletion.
    /// Returns once the write is as durable as `durability` demands.
    ///
    /// # Errors
    /// If the filter names a column that the collection lacks, there are too many rows for one write, memory does not
    /// suffice, or the log cannot be written.
    pub fn delete_where(&self, condition: &Condition, durability: Durability) -> Result<WriteReport> {
        self.delete_where_until(condition, durability, &self.context.cancel)
    }

    /// As [`Self::delete_where`], but stops waiting for memory and searching for rows when `cancel` is cancelled or
    /// its deadline passes.
    ///
    /// # Errors
    /// As [`Self::delete_where`], and if it is cancelled or its deadline passes.
    pub fn delete_where_until(
        &self,
        condition: &Condition,
        durability: Durability,
        cancel: &Cancel,
    ) -> Result<WriteReport> {
        self.check_creator()?;
        self.check_attributes(Argument::DeleteWhere.into())?;
        let (writer, context) = (self.writer()?, &self.context.with_cancel(cancel));
        writer.latencies.of(|| {
            let (written, record) = self.put_with_ids_where(context, writer, condition, |deleted| {
                let incoming = Incoming::read(context, self, &Write::default())?.also_deleting(context, deleted)?;
                let room = WriteRoom { rows: context.reserve(0, PURPOSE)?, deletes: context.reserve(0, PURPOSE)? };
                self.put_in_turn(writer, &incoming, room)
            })?;
            self.tell_merger()?;
            self.commit(&record, durability)?;
            Ok(written)
        })
    }

    /// Writes rows and, if there is a condition, deletes the rows that match it, both in one step.
    pub(super) fn write_once(
        &self,
        incoming: Incoming<'_>,
        condition: Option<&Condition>,
        durability: Durability,
    ) -> Result<WriteReport> {
        let writer = self.writer()?;
        writer.latencies.of(|| {
            let (written, record) = match condition {
                Some(condition) => self.put_where(writer, incoming, condition)?,
                None => self.put(&self.context, &incoming)?,
            };
            self.commit(&record, durability)?;
            Ok(written)
        })
    }

    fn put_where(
        &self,
        writer: &Writer,
        incoming: Incoming<'_>,
        condition: &Condition,
    ) -> Result<(WriteReport, Appended)> {
        let context = &self.context;
        let bytes = self.state().temporary.bytes_of(&incoming.change);
        // Inserted rows take memory until the next merge; deletes do not. So a write that only deletes does not wait
        // for a merge.
        if bytes > 0 {
            self.keep_pace(bytes, &context.cancel)?;
        }
        let room = self.make_room(context, &incoming.change, bytes)?;
        let put = self.put_with_ids_where(context, writer, condition, |deleted| {
            self.put_in_turn(writer, &incoming.also_deleting(context, deleted)?, room)
        })?;
        self.tell_merger()?;
        Ok(put)
    }

    /// Calls `put` with the ids of the rows that match a filter. Until `put` returns, no other thread can write, so
    /// exactly these rows match. The search first runs while other threads write, and is repeated if one of them has
    /// written.
    fn put_with_ids_where(
        &self,
        context: &Context,
        writer: &Writer,
        condition: &Condition,
        put: impl FnOnce(&Ids) -> Result<(WriteReport, Appended)>,
    ) -> Result<(WriteReport, Appended)> {
        // A search that holds the lock blocks all writers, so it is the last resort, if other threads keep writing.
        for _ in 0..LOOKS_MAX {
            let era = writer.log.era();
            let moment = self.state().moment();
            let sequence = moment.sequence;
            let deleted = self.ids_of_moment_where(context, moment, condition)?;
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
            // If a write is dropped, a later write gets its number. So an equal sequence number does not prove that
            // nothing changed.
            if self.state().sequence == sequence && era.get().is_none() {
                return put(&deleted);
            }
        }
        let _order = lock(&writer.order);
        self.undo_dropped(writer);
        let moment = self.state().moment();
        // This may wait for other runs to end. None of them can be a writer, so there is no deadlock.
        put(&self.ids_of_moment_where(context, moment, condition)?)
    }

    /// Returns the ids of the rows that match a filter now.
    pub(super) fn ids_now_where(&self, condition: &Condition) -> Result<Ids> {
        self.ids_of_moment_where(&self.context, self.state().moment(), condition)
    }

    /// Refuses a request that needs columns if the collection has none.
    pub(super) fn check_attributes(&self, asks: Message) -> Result<()> {
        check_attributes(self.folder(), &self.manifest(), asks)
    }

    /// Returns the ids of the rows of a view that match a filter. The run has ended when this returns: a merge that
    /// holds the write lock may wait for all runs to end.
    fn ids_of_moment_where(&self, context: &Context, moment: StateView, condition: &Condition) -> Result<Ids> {
        let run = &context.for_run(least_bytes(&moment), PURPOSE)?;
        self.ids_where(run, &moment, condition)
    }

    /// As [`Self::ids_of_moment_where`], but uses the memory of a run that the caller started.
    fn ids_where(&self, context: &Context, moment: &StateView, condition: &Condition) -> Result<Ids> {
        let manifest = self.manifest();
        let mut ids = Ids::empty(manifest.ids);
        moment.view.passing(context, &manifest.attributes, condition)?.push_ids(&mut ids);
        let mut held = context.reserve(ids.held_bytes(), PURPOSE)?;
        let Some(long_term) = &moment.long_term else { return Ok(ids) };
        let passing = long_term.index.passing_without(context, condition, Some(&moment.deleted))?;
        long_term.index.each_id_of(context, &mut passing.iter(), &mut |_, id| {
            ids.push_bytes(id);
            // The number of ids is not known beforehand, so the reservation grows with them.
            match ids.len() % IDS_TOGETHER {
                0 => context.grow(&mut held, ids.held_bytes(), PURPOSE),
                _ => Ok(()),
            }
        })?;
        Ok(ids)
    }
}

/// Returns the memory in bytes that the search for matching rows takes, without their ids.
fn least_bytes(moment: &StateView) -> u64 {
    let on_disk =
        moment.long_term.as_ref().map_or(0, |long_term| FilterBitmap::least_bytes(long_term.index.facts().rows));
    let in_memory = RowSet::memory_bytes(moment.view.rows_ever()) + 4 * TemporaryView::block_bytes();
    on_disk + in_memory
}
