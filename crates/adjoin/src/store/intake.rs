//! Scans the usable rows of a source: each vector is checked, and bad rows are refused or left out.

use adjoin_device::Reservation;
use crossbeam_channel::bounded;

use super::OnBad;
use super::bad_rows::{BadRows, Lengths, fault_of_vector};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, Message, message};
use crate::base::options::{Metric, ROWS_MAX};
use crate::base::report::SharedSeconds;
use crate::base::row_numbers::RowSet;
use crate::base::workers::spawn_scoped;
use crate::source::{IdKind, Ids, VectorBatch, VectorSource};

/// Bytes of the vectors of a batch, if memory allows.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Smallest useful batch, in bytes.
const BATCH_BYTES_MIN: u64 = 64 << 10;
/// Batches in memory at once: being read, decoded, checked, waiting, being consumed, then waiting again and being
/// sorted.
const BATCHES: u64 = 7;
/// Bytes reserved for an id in a batch.
const BYTES_AN_ID: u64 = 48;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "reading the ids of these rows";

/// Consecutive usable rows.
pub(crate) struct UsableRows {
    /// Vectors, end to end, as stored.
    pub(crate) stored: Vec<u8>,
    /// Row numbers in the source, ascending.
    pub(crate) rows: Vec<u64>,
    /// Ids of the rows.
    pub(crate) ids: Ids,
}

impl UsableRows {
    /// Splits off all but the first `count` rows.
    pub(crate) fn split_off(&mut self, count: usize) -> Self {
        let bytes = self.stored.len() / self.rows.len().max(1);
        let stored = self.stored.split_off(count * bytes);
        let rows = self.rows.split_off(count);
        let mut ids = Ids::empty(self.ids.kind());
        if !rows.is_empty() && self.ids.kind() != IdKind::None {
            let mut first = ids.clone();
            (0..count).for_each(|k| first.push_from(&self.ids, k));
            (count..self.ids.len()).for_each(|k| ids.push_from(&self.ids, k));
            self.ids = first;
        }
        Self { stored, rows, ids }
    }
}

/// Statistics of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Scanned {
    pub(crate) usable_rows: u64,
    pub(crate) skipped_rows: u64,
    /// Seconds spent only waiting for the source.
    pub(crate) waited: f64,
}

/// The remedy for bad rows, in messages. [`fix_or_skip`] is for commands that can skip them.
pub(crate) fn fix() -> Message {
    "fix the rows".into()
}

pub(crate) fn fix_or_skip() -> Message {
    message!["fix the rows, or give ", Argument::OnBad.with("skip"), " to leave them out"]
}

/// A scan over the usable rows of a source.
pub(crate) struct Intake<'a> {
    pub(crate) context: &'a Context,
    pub(crate) source: &'a dyn VectorSource,
    pub(crate) metric: Metric,
    pub(crate) on_bad: OnBad,
    /// Rows that are left out, bad or not.
    pub(crate) left_out: Option<&'a RowSet>,
    /// Remedy for bad rows, for the error message.
    pub(crate) remedy: fn() -> Message,
    pub(crate) batch_bytes: u64,
}

/// Returns the bytes of a batch if `memory` bytes may be spent on all batches of the scan.
pub(crate) fn batch_bytes(memory: u64) -> u64 {
    (memory / BATCHES / 4).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
}

/// Bytes that a scan holds, in the source and in batches.
pub(crate) fn scan_bytes(source: &dyn VectorSource, batch_bytes: u64) -> u64 {
    let info = source.info();
    let vector = info.vectors.bytes() as u64;
    let rows = (batch_bytes / vector).max(1).min(info.rows);
    let of_ids = match source.id_bytes() {
        _ if info.ids == IdKind::None => 0,
        // A source that knows their length ends its batches by it.
        Some(bytes) => (rows * bytes).min(batch_bytes.max(bytes)).max(rows * BYTES_AN_ID),
        None => rows * BYTES_AN_ID,
    };
    BATCHES * (rows * (vector + size_of::<u64>() as u64) + of_ids) + source.scan_bytes(batch_bytes)
}

impl Intake<'_> {
    /// Passes all usable rows to `take`, in order. Reading and checking continue while `take` runs.
    ///
    /// # Errors
    /// Fails if the source cannot be read or has a bad row that must not be skipped, or if `take` fails.
    pub(crate) fn scan(&self, mut take: impl FnMut(UsableRows) -> Result<()>) -> Result<Scanned> {
        self.scan_into(&mut take)
    }

    fn scan_into(&self, take: &mut dyn FnMut(UsableRows) -> Result<()>) -> Result<Scanned> {
        let rows = self.source.info().rows;
        if rows > ROWS_MAX {
            return Err(Error::input(format!("{rows} rows are more than the {ROWS_MAX} that a store can hold")));
        }
        let mut scanned = Scanned::default();
        if rows * self.source.info().vectors.bytes() as u64 <= self.batch_bytes {
            return self.scan_few(scanned, take);
        }
        let waited = SharedSeconds::default();
        std::thread::scope(|scope| {
            // One batch waits, one is consumed and one is read: `BATCHES` counts them.
            let (sender, batches) = bounded::<Result<(UsableRows, u64)>>(1);
            spawn_scoped(scope, "adjoin source", move || {
                let sent = self.read(&mut |batch| sender.send(Ok(batch)).is_ok());
                if let Err(error) = sent {
                    let _ = sender.send(Err(error)); // if nobody receives, an earlier error is reported
                }
            })?;
            while let Ok(batch) = waited.measure(|| batches.recv()) {
                let (usable, seen) = batch?;
                scanned.usable_rows += usable.rows.len() as u64;
                take(usable)?;
                self.context.progress.advance(seen);
            }
            Ok::<_, Error>(())
        })?;
        scanned.skipped_rows = rows - scanned.usable_rows;
        Ok(Scanned { waited: waited.seconds(), ..scanned })
    }

    /// Scans a source of one batch or so on this thread: starting a thread would take longer than it saves.
    fn scan_few(&self, mut scanned: Scanned, take: &mut dyn FnMut(UsableRows) -> Result<()>) -> Result<Scanned> {
        let mut taken = Ok(());
        self.read(&mut |(usable, seen)| {
            scanned.usable_rows += usable.rows.len() as u64;
            taken = take(usable);
            self.context.progress.advance(seen);
            taken.is_ok()
        })?;
        taken?;
        scanned.skipped_rows = self.source.info().rows - scanned.usable_rows;
        Ok(scanned)
    }

    /// Reads and checks batches until `send` returns false. Each batch is sent with the number of rows seen up to its
    /// end.
    fn read(&self, send: &mut dyn FnMut((UsableRows, u64)) -> bool) -> Result<()> {
        let mut scan = self.source.scan(self.batch_bytes as usize)?;
        let mut lengths = Lengths::new(self.source.info().vectors);
        while let Some(batch) = scan.next_batch()? {
            self.context.cancel.check()?;
            let seen = batch.first_row + batch.rows as u64;
            lengths.add(&batch);
            // Not an error here: the receiver has stopped with one of its own.
            if !send((self.usable(batch, &lengths)?, seen)) {
                return Ok(());
            }
        }
        // Only now are all lengths known. If most lists were skipped, the first one is more likely the wrong one.
        lengths.refusal(self.source).map_or(Ok(()), Err)
    }

    fn usable(&self, batch: VectorBatch, lengths: &Lengths) -> Result<UsableRows> {
        let vectors = self.source.info().vectors;
        let mut bad = BadRows::default();
        let mut rows = Vec::with_capacity(batch.rows);
        let mut faults = batch.faults.iter().peekable();
        for (k, vector) in batch.bytes.chunks_exact(vectors.bytes()).enumerate() {
            let row = batch.first_row + k as u64;
            let fault = faults.next_if(|(row, _)| *row == k);
            if self.left_out.is_some_and(|left_out| left_out.contains(row)) {
                continue;
            }
            match fault {
                Some((_, fault)) => bad.add(row, || fault.in_words(vectors)),
                None => match fault_of_vector(vectors.element, self.metric, vector) {
                    Some(fault) => bad.add(row, || fault),
                    None => rows.push(row),
                },
            }
        }
        // The common case: the batch is passed on without a copy.
        if rows.len() == batch.rows {
            return Ok(UsableRows { stored: batch.bytes, rows, ids: batch.ids });
        }
        if self.on_bad == OnBad::Error && !bad.is_empty() {
            return Err(bad.refusal(self.source, lengths, (self.remedy)()));
        }
        let mut usable =
            UsableRows { stored: Vec::with_capacity(batch.bytes.len()), rows, ids: Ids::empty(batch.ids.kind()) };
        for k in usable.rows.iter().map(|row| (row - batch.first_row) as usize) {
            usable.stored.extend_from_slice(&batch.bytes[k * vectors.bytes()..][..vectors.bytes()]);
            usable.ids.push_from(&batch.ids, k);
        }
        Ok(usable)
    }
}

/// Reports notes about a source to the user, once, before it is scanned.
pub(crate) fn tell(context: &Context, source: &dyn VectorSource) {
    source.notes().iter().for_each(|note| context.progress.note(note));
    if source.info().rounded_from_f64 {
        context.progress.note("the source has f64 elements; they are rounded to f32");
    }
}

/// Reads all usable rows at once. Reserves what their ids take beyond [`read_all_bytes`], which is unknown before they are read.
///
/// # Errors
/// As [`Intake::scan`], and if the ids do not fit: names a budget that suffices for all of them.
pub(crate) fn read_all(
    context: &Context,
    source: &dyn VectorSource,
    metric: Metric,
) -> Result<(UsableRows, Reservation)> {
    let info = source.info();
    let (granted, memory) = (granted_for_ids(source), context.reserve(0, PURPOSE)?);
    let mut long_ids = LongIds { context, granted, bytes: 0, fits: true, memory };
    let mut all = UsableRows {
        stored: Vec::with_capacity(info.rows as usize * info.vectors.bytes()),
        rows: Vec::with_capacity(info.rows as usize),
        ids: Ids::empty(info.ids),
    };
    let (on_bad, left_out) = (OnBad::Error, None);
    let intake = Intake { context, source, metric, on_bad, left_out, remedy: fix, batch_bytes: BATCH_BYTES_MAX };
    let mut take = |mut usable: UsableRows| {
        // Goes on counting without storing, so that the error can name a budget that suffices.
        if !long_ids.take(&usable.ids) {
            return;
        }
        all.stored.append(&mut usable.stored);
        (0..usable.rows.len()).for_each(|k| all.ids.push_from(&usable.ids, k));
        all.rows.append(&mut usable.rows);
    };
    tell(context, source);
    context.progress.begin("read", "rows", info.rows);
    // For a few rows, starting a thread that reads ahead takes longer than reading them.
    if info.rows * info.vectors.bytes() as u64 <= BATCH_BYTES_MIN {
        intake.read(&mut |(usable, _)| {
            take(usable);
            true
        })?;
    } else {
        intake.scan(|usable| {
            take(usable);
            Ok(())
        })?;
    }
    long_ids.finish().map(|memory| (all, memory))
}

/// Returns the bytes that [`read_all_bytes`] has for ids: those of texts, as far as they are known, in a buffer that doubles.
fn granted_for_ids(source: &dyn VectorSource) -> u64 {
    let known = || source.id_bytes().map_or(BYTES_AN_ID, |bytes| 2 * (bytes + size_of::<u64>() as u64));
    match source.info().ids {
        IdKind::None => 0,
        IdKind::Int64 => source.info().rows * BYTES_AN_ID,
        IdKind::Utf8 => source.info().rows.saturating_mul(known().max(BYTES_AN_ID)),
    }
}

/// Memory of ids while they are read.
struct LongIds<'a> {
    context: &'a Context,
    /// Bytes that were reserved before.
    granted: u64,
    /// Bytes of the ids so far.
    bytes: u64,
    /// Whether there was memory for them.
    fits: bool,
    memory: Reservation,
}

impl LongIds<'_> {
    /// Counts ids; returns whether there is memory for them and all before.
    fn take(&mut self, ids: &Ids) -> bool {
        self.bytes += ids.held_bytes();
        let needed = self.needed();
        self.fits = self.fits && self.context.grow(&mut self.memory, needed, PURPOSE).is_ok();
        self.fits
    }

    /// Bytes in addition to the ones reserved before. A buffer doubles as it grows.
    fn needed(&self) -> u64 {
        (2 * self.bytes).saturating_sub(self.granted)
    }

    fn finish(self) -> Result<Reservation> {
        if self.fits {
            return Ok(self.memory);
        }
        // The budget must hold everything else that is reserved now, too.
        let held = self.context.budget().reserved() - self.memory.bytes();
        Err(self.context.too_small(held + self.needed(), PURPOSE))
    }
}

/// Returns the bytes that [`read_all`] holds while it reads and afterwards.
pub(crate) fn read_all_bytes(source: &dyn VectorSource) -> u64 {
    let info = source.info();
    let all = info.rows * (info.vectors.bytes() as u64 + size_of::<u64>() as u64) + granted_for_ids(source);
    all + scan_bytes(source, BATCH_BYTES_MAX)
}
