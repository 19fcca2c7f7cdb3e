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

/// Maximum size of the vectors of a batch, in bytes. Batches are smaller if memory is scarce.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Minimum size of the vectors of a batch, in bytes.
const BATCH_BYTES_MIN: u64 = 64 << 10;
/// Number of batches in memory at once: one each is read, decoded, checked, waiting for the consumer, consumed,
/// waiting to be sorted, and sorted.
const BATCHES: u64 = 7;
/// Bytes reserved for each id in a batch.
const BYTES_AN_ID: u64 = 48;
/// Purpose of the memory for ids, as an error message states it.
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
    /// Keeps the first `count` rows and returns the others.
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

/// Returns the remedy for bad rows, as part of a message. Commands that can skip bad rows use [`fix_or_skip`] instead.
pub(crate) fn fix() -> Message {
    "fix the rows".into()
}

pub(crate) fn fix_or_skip() -> Message {
    message!["fix the rows, or give ", Argument::OnBad.with("skip"), " to leave them out"]
}

/// A scan over the usable rows of a source.
#[derive(Clone, Copy)]
pub(crate) struct Intake<'a> {
    pub(crate) context: &'a Context,
    pub(crate) source: &'a dyn VectorSource,
    pub(crate) metric: Metric,
    pub(crate) on_bad: OnBad,
    /// Rows to leave out, whether they are bad or not.
    pub(crate) left_out: Option<&'a RowSet>,
    /// Returns the remedy for bad rows, as part of the error message.
    pub(crate) remedy: fn() -> Message,
    pub(crate) batch_bytes: u64,
}

/// Returns the size of the vectors of a batch, in bytes, if all batches of a scan together may take `memory` bytes.
pub(crate) fn batch_bytes(memory: u64) -> u64 {
    (memory / BATCHES / 4).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX)
}

/// Returns the bytes that a scan holds in the source and in batches.
pub(crate) fn scan_bytes(source: &dyn VectorSource, batch_bytes: u64) -> u64 {
    let info = source.info();
    let vector = info.vectors.bytes() as u64;
    let rows = (batch_bytes / vector).max(1).min(info.rows);
    let of_ids = match source.id_bytes() {
        _ if info.ids == IdKind::None => 0,
        // If the source knows the length of an id, it also ends a batch when the ids reach the size of a batch.
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
            return Err(Error::input(format!(
                "{rows} rows are more than the {ROWS_MAX} that a store can hold; split \
                                             the set"
            )));
        }
        let mut scanned = Scanned::default();
        if rows * self.source.info().vectors.bytes() as u64 <= self.batch_bytes {
            return self.scan_few(scanned, take);
        }
        let waited = SharedSeconds::default();
        std::thread::scope(|scope| {
            // The channel holds one batch while another is consumed and another is read. `BATCHES` counts all of them.
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

    /// Reads and checks batches until `send` returns false. Passes each batch to `send`, together with the number of
    /// rows that were read so far.
    fn read(&self, send: &mut dyn FnMut((UsableRows, u64)) -> bool) -> Result<()> {
        let mut scan = self.source.scan(self.batch_bytes as usize)?;
        let mut lengths = Lengths::new(self.source.info().vectors);
        while let Some(batch) = scan.next_batch()? {
            self.context.cancel.check()?;
            let seen = batch.first_row + batch.rows as u64;
            lengths.add(&batch);
            // If `send` returns false, the receiver has stopped and reports its own error.
            if !send((self.usable(batch, &lengths)?, seen)) {
                return Ok(());
            }
        }
        // All lengths are known only after the scan. If most lists have another length than the first one, the first
        // one is probably wrong.
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
        // In the common case all rows are usable, and the batch is passed on without a copy.
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

/// Reports the notes about a source to the user. Called once, before the source is scanned.
pub(crate) fn tell(context: &Context, source: &dyn VectorSource) {
    source.notes().iter().for_each(|note| context.progress.note(note));
    if source.info().rounded_from_f64 {
        context.progress.note("the source has f64 elements; they are rounded to f32");
    }
}

/// Reads all usable rows at once. The caller has reserved [`read_all_bytes`]. If the ids turn out to need more memory,
/// reserves the rest and returns that reservation with the rows.
///
/// # Errors
/// Fails if [`Intake::scan`] fails or if the ids do not fit in memory. In the second case, the error names a budget
/// that suffices for all ids.
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
        // Once the ids do not fit, rows are counted but not stored, so that the error can name a sufficient budget.
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

/// Returns the bytes that [`read_all_bytes`] includes for ids. The length of text ids is taken from the source if it
/// is known, and doubled because the buffer doubles as it grows.
fn granted_for_ids(source: &dyn VectorSource) -> u64 {
    let known = || source.id_bytes().map_or(BYTES_AN_ID, |bytes| 2 * (bytes + size_of::<u64>() as u64));
    match source.info().ids {
        IdKind::None => 0,
        IdKind::Int64 => source.info().rows * BYTES_AN_ID,
        IdKind::Utf8 => source.info().rows.saturating_mul(known().max(BYTES_AN_ID)),
    }
}

/// Memory for ids that are longer than expected, while they are read.
struct LongIds<'a> {
    context: &'a Context,
    /// Bytes that the caller has reserved for ids.
    granted: u64,
    /// Bytes that the ids take so far.
    bytes: u64,
    /// Whether all ids so far fit in memory.
    fits: bool,
    memory: Reservation,
}

impl LongIds<'_> {
    /// Counts more ids. Returns whether all ids so far fit in memory.
    fn take(&mut self, ids: &Ids) -> bool {
        self.bytes += ids.held_bytes();
        let needed = self.needed();
        self.fits = self.fits && self.context.grow(&mut self.memory, needed, PURPOSE).is_ok();
        self.fits
    }

    /// Returns the bytes needed in addition to `granted`. The ids count twice, since their buffer doubles as it grows.
    fn needed(&self) -> u64 {
        (2 * self.bytes).saturating_sub(self.granted)
    }

    fn finish(self) -> Result<Reservation> {
        if self.fits {
            return Ok(self.memory);
        }
        // The budget must also hold everything else that is reserved now.
        let held = self.context.budget().reserved() - self.memory.bytes();
        Err(self.context.too_small(held + self.needed(), PURPOSE))
    }
}

/// Returns the bytes to reserve for [`read_all`]. They are held during and after reading.
pub(crate) fn read_all_bytes(source: &dyn VectorSource) -> u64 {
    let info = source.info();
    let all = info.rows * (info.vectors.bytes() as u64 + size_of::<u64>() as u64) + granted_for_ids(source);
    all + scan_bytes(source, BATCH_BYTES_MAX)
}
