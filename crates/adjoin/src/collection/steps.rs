//! Writes any number of rows. If memory holds all rows at once, they are written in one step. Otherwise all rows are
//! checked first, and then written in several steps.

use std::collections::HashSet;

use adjoin_device::Reservation;

use super::Collection;
use super::arriving::check_columns;
use super::log::Durability;
use super::operations::WriteReport;
use super::write::{Incoming, Put, Write, check, check_kind};
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::message::Argument;
use crate::base::options::format_count;
use crate::base::output::Target;
use crate::source::VectorSource;
use crate::sql::Condition;
use crate::store::{IdCheck, hash_of};

/// A write takes one step if its vectors take at most this fraction of the budget, and so do its columns. They are
/// copied several times on the way to the log and into memory.
const ONE_STEP_FRACTION: u64 = 16;
/// Maximum bytes of vectors, and of columns, of a write in one step, no matter how large the budget is.
const ONE_STEP_BYTES_MAX: u64 = 64 << 20;
/// Maximum memory in bytes for finding ids that occur twice.
const ID_CHECK_BYTES_MAX: u64 = 64 << 20;
/// Bytes reserved for the hash of an id in a set.
const BYTES_OF_HASH: u64 = 48;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "checking the ids of these rows";
/// Message if two rows of one write have the same id.
const TWICE: &str = "occurs twice in one write; give it once";

/// Hashes of the ids that a write deletes before it inserts rows.
struct DeletedIds {
    hashes: HashSet<u128>,
    _memory: Reservation,
}

impl Collection {
    /// Deletes, inserts and upserts rows, in this order. Returns once the write is as durable as `durability` demands.
    /// Deletes the ids in `write.delete` and, in the same step, the rows that match `condition`. If several rows to
    /// upsert have one id, the last one is stored.
    ///
    /// If memory holds all rows at once, the write is one step, which is applied completely or not at all. Otherwise,
    /// a note announces several steps, and all rows are read and checked before the first step.
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::delete_where`]; nothing is written then. There is one exception: if the write
    /// takes several steps, the device or the memory may fail after some of them. The error then states how many rows
    /// were written.
    pub fn write_all(
        &self,
        write: &Write<'_>,
        condition: Option<&Condition>,
        durability: Durability,
    ) -> Result<WriteReport> {
        self.check_write(write, condition)?;
        // A merge frees memory, after which the write may fit into one step.
        if !self.has_merger() && self.is_full() {
            self.merge_if_possible()?;
        }
        let has_rows = write.insert.is_some() || write.upsert.is_some();
        match self.write_at_once(write, condition, durability) {
            Ok(Some(written)) => return Ok(written),
            // A write without rows has nothing to divide, so its lack of memory is final.
            Err(error) if error.kind() != ErrorKind::Budget || !has_rows => return Err(error),
            Ok(None) | Err(_) => {}
        }
        let rows = format_count(rows_of(write), "row");
        self.context.progress.note(&format!(
            "memory does not hold {rows} at once: they are checked, then written in several steps; if interrupted, \
             only the first steps are written"
        ));
        self.check_rows(write, condition)?;
        self.write_in_steps(write, condition, durability)
    }

    /// Refuses a write that does not match this collection, before anything is read or written.
    fn check_write(&self, write: &Write<'_>, condition: Option<&Condition>) -> Result<()> {
        self.writer()?;
        if condition.is_some() {
            self.check_attributes(Argument::DeleteWhere.into())?;
        }
        if let Some(ids) = write.delete {
            check_kind(self, ids.kind())?;
        }
        let manifest = self.manifest();
        for source in [write.insert, write.upsert].into_iter().flatten() {
            check(self, source)?;
            check_columns(&self.context, source, &manifest.attributes, &self.folder().display().to_string())?;
        }
        Ok(())
    }

    /// Writes everything in one step. Returns `None`, and writes nothing, if there is too much for one step.
    fn write_at_once(
        &self,
        write: &Write<'_>,
        condition: Option<&Condition>,
        durability: Durability,
    ) -> Result<Option<WriteReport>> {
        let most = (self.context.budget().total() / ONE_STEP_FRACTION).min(ONE_STEP_BYTES_MAX);
        // The size is checked before anything is read, so that a large source is not read for nothing.
        if rows_of(write).saturating_mul(self.manifest().vectors.bytes() as u64) > most {
            return Ok(None);
        }
        let incoming = Incoming::read_within(&self.context, self, write, most)?;
        incoming.map(|incoming| self.write_once(incoming, condition, durability)).transpose()
    }

    fn write_in_steps(
        &self,
        write: &Write<'_>,
        condition: Option<&Condition>,
        durability: Durability,
    ) -> Result<WriteReport> {
        let mut all = WriteReport { sequence: self.facts().sequence, ..WriteReport::default() };
        if write.delete.is_some() || condition.is_some() {
            let deletes = Incoming::read(&self.context, self, &Write { delete: write.delete, ..Write::default() })?;
            all = self.write_once(deletes, condition, durability)?;
        }
        for (source, put) in [(write.insert, Put::Insert), (write.upsert, Put::Upsert)] {
            if let Some(source) = source {
                all = all.and(self.load(source, put, durability)?);
            }
        }
        Ok(all)
    }

    /// Reads all rows and checks that each of them can be written. Also checks that no inserted row has the id of
    /// another row.
    fn check_rows(&self, write: &Write<'_>, condition: Option<&Condition>) -> Result<()> {
        let deleted = self.deleted_ids(write, condition)?;
        if let Some(source) = write.insert {
            self.check_inserted(source, &deleted)?;
        }
        match write.upsert {
            Some(source) => Incoming::each(&self.context, self, source, Put::Upsert, "check", &mut |_| Ok(())),
            None => Ok(()),
        }
    }

    fn deleted_ids(&self, write: &Write<'_>, condition: Option<&Condition>) -> Result<DeletedIds> {
        let mut deleted = DeletedIds { hashes: HashSet::new(), _memory: self.context.reserve(0, PURPOSE)? };
        let met = condition.map(|condition| self.ids_now_where(condition)).transpose()?;
        for ids in [write.delete, met.as_ref()].into_iter().flatten() {
            deleted._memory.join(self.context.reserve_between_runs(BYTES_OF_HASH * ids.len() as u64, PURPOSE)?);
            // Ids are represented by hashes of 128 bits, so that the memory does not depend on the lengths of texts.
            deleted.hashes.extend((0..ids.len()).filter_map(|k| hash_of(ids, k)));
        }
        Ok(deleted)
    }

    /// Fails if the id of a row exists already or is the id of an earlier row. Reports the first such row.
    fn check_inserted(&self, source: &dyn VectorSource, deleted: &DeletedIds) -> Result<()> {
        let (context, rows) = (&self.context, source.info().rows);
        let bytes = IdCheck::wanted_bytes(rows).min(ID_CHECK_BYTES_MAX).min(context.budget().free() / 4);
        let _memory = context.reserve_between_runs(bytes.max(IdCheck::least_bytes()), PURPOSE)?;
        let mut ids = IdCheck::new(context, &context.temporary(Some(Target::parent_of(self.folder()))), rows, bytes);
        Incoming::each(context, self, source, Put::Insert, "check", &mut |incoming| {
            // Deletes are applied before inserts, so a write may insert an id that it deletes.
            let is_deleted = |k| hash_of(&incoming.change.ids, k).is_some_and(|hash| deleted.hashes.contains(&hash));
            let is_there = self.ids_there(&incoming.change.ids)?;
            incoming.check(|k| is_there[k] && !is_deleted(k))?;
            for (k, &row) in incoming.rows().iter().enumerate() {
                hash_of(&incoming.change.ids, k).map_or(Ok(()), |hash| ids.add_hash(hash, row))?;
            }
            Ok(())
        })?;
        ids.finish(0)?.first.map_or(Ok(()), |row| Err(self.twice(context, source, row)))
    }

    /// Returns the error of a row that has the id of an earlier row in the same write.
    fn twice(&self, context: &Context, source: &dyn VectorSource, row: u64) -> Error {
        // The check for duplicates stores only row numbers. Another pass over the source finds the id and the file for
        // the message.
        let mut refusal = None;
        let found = Incoming::each(context, self, source, Put::Upsert, "check", &mut |incoming| {
            if refusal.is_none()
                && let Ok(k) = incoming.rows().binary_search(&row)
            {
                refusal = Some(incoming.refusal(k, TWICE));
            }
            Ok(())
        });
        refusal.or(found.err()).unwrap_or_else(|| Error::input(format!("the id of row {row} {TWICE}")))
    }
}

/// Returns the number of rows that a write inserts or upserts.
fn rows_of(write: &Write<'_>) -> u64 {
    [write.insert, write.upsert].into_iter().flatten().map(|source| source.info().rows).sum()
}
