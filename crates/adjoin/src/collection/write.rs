//! Reads a write from its sources, and checks it as far as this does not depend on the rows of the collection.

use std::collections::HashSet;

use adjoin_device::Reservation;

use super::Collection;
use super::arriving::{Arriving, ArrivingRows};
use super::change::Change;
use super::frame::PAYLOAD_BYTES_MAX;
use super::log::WAITING_BYTES_MAX;
use super::packed::PackedRows;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::source::{IdKind, Ids, VectorSource};
use crate::store::{Intake, OnBad, UsableRows, fix, hash_of, read_all, read_all_bytes, scan_bytes, tell};

/// Approximate bytes of vectors in one write of [`Collection::load`]. The bound also applies to the columns.
const LOAD_BYTES: u64 = 1 << 20;
/// Maximum number of rows in one write of [`Collection::load`].
const LOAD_ROWS: usize = 1 << 15;
/// Number of rows that are read between two checks of the memory for their columns.
const ROWS_TOGETHER: usize = 64;
/// Bytes reserved for the hash of an id in a set.
const BYTES_OF_HASH: u64 = 48;
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "writing these rows at once";

/// Operations of a write, in the order in which they are applied.
#[derive(Default, Clone, Copy)]
pub struct Write<'a> {
    /// Ids whose rows are deleted. If no row has an id, that is no error.
    pub delete: Option<&'a Ids>,
    /// Rows with new ids.
    pub insert: Option<&'a dyn VectorSource>,
    /// Rows that are inserted, and replace existing rows with their ids. If several of them have one id, the last one
    /// is stored.
    pub upsert: Option<&'a dyn VectorSource>,
}

/// Treatment of a row with an id that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The write is refused.
    Insert,
    /// The new row replaces the existing one.
    Upsert,
}

/// Source of the inserted rows, and their row numbers in it.
struct Origin<'a> {
    source: &'a dyn VectorSource,
    rows: Vec<u64>,
}

/// Rows to insert or upsert, and ids to delete.
pub(super) struct Incoming<'a> {
    pub(super) change: Change,
    /// The serialized change.
    pub(super) payload: Vec<u8>,
    /// Number of rows to insert. They precede the rows to upsert in `change`.
    inserted: usize,
    from: Option<Origin<'a>>,
    into: &'a Collection,
    _memory: Reservation,
}

impl<'a> Incoming<'a> {
    /// Reads all rows of a write.
    ///
    /// # Errors
    /// If a source cannot be read, its vectors or ids have another type than the collection's, or memory is too small
    /// for all rows.
    pub(super) fn read(context: &Context, into: &'a Collection, write: &Write<'a>) -> Result<Self> {
        let all = Self::read_within(context, into, write, u64::MAX)?;
        Ok(all.expect("only a bound can exclude a write"))
    }

    /// Reads all rows of a write. Returns `None` if their columns take more than `attribute_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_within(
        context: &Context,
        into: &'a Collection,
        write: &Write<'a>,
        attribute_bytes_max: u64,
    ) -> Result<Option<Self>> {
        let (manifest, at) = (into.manifest(), into.folder().display().to_string());
        let kind = manifest.ids;
        let mut change = Change::empty(kind);
        let mut held = context.reserve_between_runs(0, PURPOSE)?;
        if let Some(ids) = write.delete {
            check_kind(into, ids.kind())?;
            change.deleted = ids.clone();
        }
        let (mut inserted, mut from) = (0, None);
        for (source, put) in [(write.insert, Put::Insert), (write.upsert, Put::Upsert)] {
            let Some(source) = source else { continue };
            check(into, source)?;
            let arriving = Arriving::of(context, source, &manifest.attributes, &at)?;
            // Memory for the rows while they are read, and for the rows that are held after that. [`Self::new`]
            // reserves the memory for the change and its bytes in the log.
            let _reading = context.reserve_between_runs(read_all_bytes(source), PURPOSE)?;
            let (usable, _of_ids) = read_all(context, source, manifest.metric)?;
            let mut rows = arriving.scan(context)?;
            for start in (0..usable.rows.len()).step_by(ROWS_TOGETHER) {
                rows.take((usable.rows.len() - start).min(ROWS_TOGETHER), &mut change.attributes)?;
                // The size of the columns is known only after they are read, so it is checked every few rows.
                if change.attributes.bytes.len() as u64 > attribute_bytes_max {
                    return Ok(None);
                }
                let more = (change.attributes.bytes.len() as u64).saturating_sub(held.bytes());
                held.join(context.reserve_between_runs(more, PURPOSE)?);
            }
            let ids = ids_of(kind, &usable);
            (0..ids.len()).for_each(|k| change.ids.push_from(&ids, k));
            change.stored.extend_from_slice(&usable.stored);
            if put == Put::Insert {
                (inserted, from) = (ids.len(), Some(Origin { source, rows: usable.rows }));
            }
        }
        Self::new(context, into, change, inserted, from).map(Some)
    }

    /// Calls `take` with groups of rows of a source, in order. `phase` is the name of the phase in progress reports.
    ///
    /// # Errors
    /// As [`Self::read`], and if `take` fails.
    pub(super) fn each(
        context: &Context,
        into: &'a Collection,
        source: &'a dyn VectorSource,
        put: Put,
        phase: &str,
        take: &mut dyn FnMut(Self) -> Result<()>,
    ) -> Result<()> {
        check(into, source)?;
        let _reading = context.reserve_between_runs(scan_bytes(source, LOAD_BYTES), PURPOSE)?;
        let (metric, on_bad, left_out) = (into.manifest().metric, OnBad::Error, None);
        let intake = Intake { context, source, metric, on_bad, left_out, remedy: fix, batch_bytes: LOAD_BYTES };
        let (manifest, at) = (into.manifest(), into.folder().display().to_string());
        let arriving = Arriving::of(context, source, &manifest.attributes, &at)?;
        let mut rows = arriving.scan(context)?;
        tell(context, source);
        context.progress.begin(phase, "rows", source.info().rows);
        intake.scan(|mut usable| {
            while !usable.rows.is_empty() {
                let (some, attributes) = part_of(&mut usable, &mut rows)?;
                let ids = ids_of(manifest.ids, &some);
                let inserted = if put == Put::Insert { ids.len() } else { 0 };
                let change = Change { deleted: Ids::empty(manifest.ids), ids, stored: some.stored, attributes };
                let from = Origin { source, rows: some.rows };
                take(Self::new(context, into, change, inserted, Some(from))?)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Adds ids to those that the write deletes before it inserts rows.
    ///
    /// # Errors
    /// If memory does not suffice, or there are too many ids for one write.
    pub(super) fn also_deleting(self, context: &Context, deleted: &Ids) -> Result<Self> {
        let Self { mut change, inserted, from, into, .. } = self;
        (0..deleted.len()).for_each(|k| change.deleted.push_from(deleted, k));
        Self::new(context, into, change, inserted, from)
    }

    /// Returns the numbers of these rows in the source that was passed to [`Self::each`].
    pub(super) fn rows(&self) -> &[u64] {
        self.from.as_ref().map_or(&[], |from| &from.rows)
    }

    fn new(
        context: &Context,
        into: &'a Collection,
        change: Change,
        inserted: usize,
        from: Option<Origin<'a>>,
    ) -> Result<Self> {
        let bytes = change.held_bytes() + change.ids.held_bytes() + change.deleted.held_bytes();
        if bytes > PAYLOAD_BYTES_MAX as u64 {
            return Err(Error::input(format!(
                "a write takes {bytes} bytes; write at most {PAYLOAD_BYTES_MAX} at once"
            )));
        }
        let rows = (change.ids.len() + change.deleted.len()) as u64;
        // Memory holds the change, its serialized bytes, and a copy of these in the log. The copy is not counted if it
        // fits into the log's own buffer.
        let copies = if bytes > WAITING_BYTES_MAX as u64 { 3 } else { 2 };
        let memory = context.reserve_between_runs(copies * bytes + BYTES_OF_HASH * rows, PURPOSE)?;
        let payload = change.to_bytes();
        let incoming = Self { change, payload, inserted, from, into, _memory: memory };
        incoming.check_repeated()?;
        Ok(incoming)
    }

    /// Fails if an id is inserted twice. Rows to upsert may have equal ids; the last one is stored, as if they were
    /// written one by one.
    fn check_repeated(&self) -> Result<()> {
        let ids = &self.change.ids;
        let mut seen = HashSet::with_capacity(self.inserted);
        match (0..self.inserted).find(|&k| !seen.insert(hash_of(ids, k))) {
            None => Ok(()),
            Some(k) => Err(self.refusal(k, "occurs twice in one write; give it once")),
        }
    }

    /// Checks that no row to insert has the id of a row that exists after the deletes. `is_there` returns whether a
    /// row has the id of row `k` before them.
    ///
    /// # Errors
    /// If such a row exists. The error names the first one.
    pub(super) fn check(&self, is_there: impl Fn(usize) -> bool) -> Result<()> {
        let Change { deleted, ids, .. } = &self.change;
        let deleted_hashes: HashSet<_> = (0..deleted.len()).map(|k| hash_of(deleted, k)).collect();
        match (0..self.inserted).find(|&k| is_there(k) && !deleted_hashes.contains(&hash_of(ids, k))) {
            None => Ok(()),
            Some(k) => Err(self.refusal(k, "already exists; upsert the row to replace it")),
        }
    }

    /// Returns an error about inserted row `k`, with the reason `why`.
    pub(super) fn refusal(&self, k: usize, why: &str) -> Error {
        let id = self.change.ids.display(k, 0);
        let from = self.from.as_ref().and_then(|from| from.rows.get(k).map(|&row| from.source.locate(row)));
        let at = self.into.folder().display();
        match from {
            Some((file, row)) => Error::input(format!("{}: the id {id} of row {row} {why} ({at})", file.display())),
            None => Error::input(format!("{at}: the id {id} {why}")),
        }
    }
}

/// Splits off the first rows and their columns, approximately as many as one write holds.
fn part_of(usable: &mut UsableRows, rows: &mut ArrivingRows<'_>) -> Result<(UsableRows, PackedRows)> {
    // The number of rows is limited too: ids take memory, no matter how short the vectors are.
    let (all, mut attributes, mut count) = (usable.rows.len().min(LOAD_ROWS), PackedRows::default(), 0);
    while count < all && (attributes.bytes.len() as u64) < LOAD_BYTES {
        let more = (all - count).min(ROWS_TOGETHER);
        rows.take(more, &mut attributes)?;
        count += more;
    }
    let rest = usable.split_off(count);
    Ok((std::mem::replace(usable, rest), attributes))
}

/// Returns the ids of new rows. If they have none and ids are integers, returns their row numbers.
fn ids_of(kind: IdKind, usable: &UsableRows) -> Ids {
    match (&usable.ids, kind) {
        (Ids::None, IdKind::Int64) => Ids::Int64(usable.rows.iter().map(|&row| row.cast_signed()).collect()),
        (ids, _) => ids.clone(),
    }
}

/// Checks that a source has vectors and ids of the collection's types.
///
/// # Errors
/// If it does not.
pub(super) fn check(into: &Collection, source: &dyn VectorSource) -> Result<()> {
    let (info, ours) = (source.info(), into.manifest().vectors);
    let (file, at) = (source.locate(0).0, into.folder().display());
    if info.vectors != ours {
        let (theirs, file) = (info.vectors, file.display());
        let remedy = if theirs.dimensions == ours.dimensions {
            format!("convert the vectors to {}, or create a collection of {}", ours.element, theirs.element)
        } else {
            "give vectors of the same model".to_owned()
        };
        return Err(Error::input(format!(
            "{file} has vectors of {} x {}, but {at} stores {} x {}; {remedy}",
            theirs.dimensions, theirs.element, ours.dimensions, ours.element
        )));
    }
    match (info.ids, into.manifest().ids) {
        (theirs, ours) if theirs == ours => Ok(()),
        (IdKind::None, IdKind::Int64) => Ok(()),
        (IdKind::None, _) => {
            let file = file.display();
            Err(Error::input(message![
                format!("{file} has no ids, but the rows of {at} have text ids; give "),
                Argument::IdColumn
            ]))
        }
        (theirs, _) => check_kind(into, theirs),
    }
}

/// Checks that ids are of the collection's kind.
///
/// # Errors
/// If they are not.
pub(super) fn check_kind(into: &Collection, theirs: IdKind) -> Result<()> {
    let ours = into.manifest().ids;
    if theirs == ours {
        return Ok(());
    }
    let named = |kind| if kind == IdKind::Utf8 { "texts" } else { "integers" };
    let at = into.folder().display();
    Err(Error::input(format!(
        "the ids are {}, but those of {at} are {}; give ids of that kind",
        named(theirs),
        named(ours)
    )))
}
