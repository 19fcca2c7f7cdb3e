//! Vectors from a source into memory: each one checked, bad ones refused or skipped, ids checked for duplicates.

use std::collections::HashSet;

use super::{BuildOptions, OnBad, OnDuplicateId};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::{Element, Metric, ROWS_MAX};
use crate::predicate::{f16_values, f32_values, squared_norm};
use crate::source::{IdKind, Ids, SourceInfo, VectorBatch, VectorSource};

/// Vectors that a batch of the scan holds, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Bad rows that an error names.
const ROWS_NAMED: usize = 5;
/// Bytes granted for an id and its place in the set that finds duplicates.
const BYTES_AN_ID: u64 = 96;

/// The usable rows of a source.
pub(crate) struct Intake {
    /// Vectors, end to end, as stored.
    pub(crate) stored: Vec<u8>,
    /// Their row numbers in the source.
    pub(crate) rows: Vec<u64>,
    /// Their ids.
    pub(crate) ids: Ids,
    /// Rows without a usable vector.
    pub(crate) skipped_rows: u64,
    /// Rows whose id an earlier row has.
    pub(crate) duplicate_ids: u64,
}

/// Bytes that [`read_all`] holds, while it reads and after.
pub(crate) fn intake_bytes(info: &SourceInfo) -> u64 {
    let id = if info.ids == IdKind::None { 0 } else { BYTES_AN_ID };
    info.rows * (info.vectors.bytes() as u64 + size_of::<u64>() as u64 + id) + 4 * BATCH_BYTES as u64
}

/// Reads a whole source.
pub(crate) fn read_all(context: &Context, source: &dyn VectorSource, options: &BuildOptions) -> Result<Intake> {
    let info = source.info();
    if info.rows > ROWS_MAX {
        return Err(Error::input(format!("{} rows are more than the {ROWS_MAX} that a store can hold", info.rows)));
    }
    let mut intake = Intake {
        stored: Vec::with_capacity(info.rows as usize * info.vectors.bytes()),
        rows: Vec::with_capacity(info.rows as usize),
        ids: Ids::empty(info.ids),
        skipped_rows: 0,
        duplicate_ids: 0,
    };
    context.progress.begin("read", "rows", info.rows);
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(batch) = scan.next_batch()? {
        context.cancel.check()?;
        intake.take(source, &batch, options)?;
        context.progress.advance(batch.first_row + batch.rows as u64);
    }
    intake.check_ids(source, options.on_duplicate_id)?;
    Ok(intake)
}

impl Intake {
    fn take(&mut self, source: &dyn VectorSource, batch: &VectorBatch, options: &BuildOptions) -> Result<()> {
        let vectors = source.info().vectors;
        let mut bad = Vec::new();
        let mut missing = batch.missing.iter().peekable();
        for (k, vector) in batch.bytes.chunks_exact(vectors.bytes()).enumerate() {
            let is_missing = missing.next_if(|&&row| row == k).is_some();
            let fault =
                if is_missing { Some("is null".into()) } else { fault(vectors.element, options.metric, vector) };
            if let Some(fault) = fault {
                bad.push((batch.first_row + k as u64, fault));
                continue;
            }
            self.stored.extend_from_slice(vector);
            self.rows.push(batch.first_row + k as u64);
            self.ids.push_from(&batch.ids, k);
        }
        self.skipped_rows += bad.len() as u64;
        if bad.is_empty() || options.on_bad == OnBad::Skip { Ok(()) } else { Err(refusal(source, &bad)) }
    }

    fn check_ids(&mut self, source: &dyn VectorSource, on_duplicate: OnDuplicateId) -> Result<()> {
        let (count, first) = match &self.ids {
            Ids::None => return Ok(()),
            Ids::Int64(ids) => duplicates(ids.iter()),
            Ids::Utf8(texts) => duplicates((0..texts.len()).map(|k| texts.get(k))),
        };
        self.duplicate_ids = count;
        match first {
            Some(k) if on_duplicate == OnDuplicateId::Error => {
                let (file, row) = source.locate(self.rows[k]);
                Err(Error::input(format!(
                    "{}: the id {} of row {row} is that of an earlier row ({count} such rows in all); \
                     make ids unique, or give --on-duplicate-id keep",
                    file.display(),
                    self.ids.display(k, self.rows[k]),
                )))
            }
            _ => Ok(()),
        }
    }
}

/// How many items repeat an earlier one, and the first of those.
fn duplicates<I: Eq + std::hash::Hash>(items: impl ExactSizeIterator<Item = I>) -> (u64, Option<usize>) {
    let mut seen = HashSet::with_capacity(items.len());
    let mut repeated = items.enumerate().filter_map(|(k, item)| (!seen.insert(item)).then_some(k));
    let first = repeated.next();
    (first.map_or(0, |_| 1 + repeated.count() as u64), first)
}

/// Why a vector cannot be used, if it cannot.
fn fault(element: Element, metric: Metric, vector: &[u8]) -> Option<String> {
    let not_finite = match element {
        Element::F32 => f32_values(vector).enumerate().find(|(_, value)| !value.is_finite()),
        Element::F16 => f16_values(vector).enumerate().find(|(_, value)| !value.is_finite()),
        Element::U8 | Element::I8 => None,
    };
    if let Some((at, value)) = not_finite {
        return Some(format!("has {value} at element {at}"));
    }
    let zero = metric == Metric::Cosine && squared_norm(element, vector) == 0.0;
    zero.then(|| "is all zeros, which has no cosine".into())
}

fn refusal(source: &dyn VectorSource, bad: &[(u64, String)]) -> Error {
    let named: Vec<String> = bad
        .iter()
        .take(ROWS_NAMED)
        .map(|(row, fault)| {
            let (file, row) = source.locate(*row);
            format!("{}: the vector of row {row} {fault}", file.display())
        })
        .collect();
    let more = if bad.len() > named.len() { "; and more" } else { "" };
    Error::input(format!("{}{more}; mend the rows, or give --on-bad skip to leave them out", named.join("; ")))
}
