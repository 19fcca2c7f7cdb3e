//! Stores pairs in checkpoint files. When all pairs are found, they are passed to the sink of the join.

use super::sink::PairBatch;
use crate::base::checkpoint::{FrameReader, FrameWriter};
use crate::base::error::Result;
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};
use crate::source::{IdKind, Ids};

/// Bytes of a pair without ids: two rows and the value.
const PAIR_BYTES: usize = 2 * ROW_BYTES + size_of::<f32>();
/// Bytes of the length of an id.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Returns the approximate bytes of a pair. Text ids are assumed to have the length of URLs.
pub(crate) fn kept_bytes_of_a_pair(ids: [IdKind; 2]) -> u64 {
    let of_id = |ids| match ids {
        IdKind::None => 0,
        IdKind::Int64 => LENGTH_BYTES + 8,
        IdKind::Utf8 => LENGTH_BYTES + 40,
    };
    (PAIR_BYTES + ids.into_iter().map(of_id).sum::<usize>()) as u64
}

/// Appends pairs as a frame: their number, left rows, right rows, values, left ids and right ids, each id with its
/// length.
///
/// # Errors
/// If the device refuses.
pub(crate) fn keep_pairs(batch: &PairBatch, to: &mut FrameWriter) -> Result<()> {
    to.append(&encoded(batch))
}

/// Encodes pairs as a frame.
pub(super) fn encoded(batch: &PairBatch) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LENGTH_BYTES + batch.len() * PAIR_BYTES);
    frame.extend_from_slice(&(batch.len() as u32).to_le_bytes());
    for &row in batch.left_rows.iter().chain(&batch.right_rows) {
        frame.extend_from_slice(&packed(row));
    }
    batch.values.iter().for_each(|value| frame.extend_from_slice(&value.to_le_bytes()));
    for ids in [&batch.left_ids, &batch.right_ids] {
        (0..ids.len()).for_each(|k| ids.append_sized(k, &mut frame));
    }
    frame
}

/// Reads the next frame of pairs, whose ids have the kinds `ids`.
///
/// # Errors
/// If the frame is not as it was written, or the device fails.
pub(crate) fn kept_pairs(from: &mut FrameReader, ids: [IdKind; 2]) -> Result<Option<PairBatch>> {
    let Some(frame) = from.next()? else { return Ok(None) };
    match decoded(frame, ids) {
        Some(batch) => Ok(Some(batch)),
        None => Err(from.damaged()),
    }
}

/// Decodes a frame. Returns `None` if the frame is invalid.
pub(super) fn decoded(frame: &[u8], kinds: [IdKind; 2]) -> Option<PairBatch> {
    let (count, rest) = frame.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (pairs, mut rest) = rest.split_at_checked(count.checked_mul(PAIR_BYTES)?)?;
    let (rows, values) = pairs.split_at(2 * count * ROW_BYTES);
    let (left, right) = rows.split_at(count * ROW_BYTES);
    let [left_rows, right_rows] = [left, right].map(|rows| rows.chunks_exact(ROW_BYTES).map(unpacked).collect());
    let values = values.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect();
    let mut batch = PairBatch { left_rows, right_rows, values, ..PairBatch::of_kinds(kinds) };
    for (ids, kind) in [&mut batch.left_ids, &mut batch.right_ids].into_iter().zip(kinds) {
        for _ in 0..if kind == IdKind::None { 0 } else { count } {
            let (bytes, after) = rest.split_first_chunk()?;
            let (id, after) = after.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
            push(ids, id)?;
            rest = after;
        }
    }
    // Bytes after the last id mean that the frame is not what was written.
    rest.is_empty().then_some(batch)
}

fn push(ids: &mut Ids, id: &[u8]) -> Option<()> {
    let is_one = match ids.kind() {
        IdKind::None => false,
        IdKind::Int64 => id.len() == 8,
        IdKind::Utf8 => std::str::from_utf8(id).is_ok(),
    };
    is_one.then(|| ids.push_bytes(id))
}
