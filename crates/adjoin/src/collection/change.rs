//! The changes of one write, as they are stored in the log: ids to delete, and rows to insert. An inserted row
//! replaces the row with its id, so applying a change twice has the same effect as applying it once.

use super::attributes::Attribute;
use super::packed::{PackedRows, next_row};
use crate::source::{IdKind, Ids};

/// Types and sizes of a collection's rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowType<'a> {
    pub(super) ids: IdKind,
    pub(super) vector_bytes: usize,
    pub(super) attributes: &'a [Attribute],
}

/// Ids to delete, and rows to insert after the deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) deleted: Ids,
    /// Ids of the rows to insert.
    pub(super) ids: Ids,
    /// Vectors of the rows to insert, end to end.
    pub(super) stored: Vec<u8>,
    /// Columns of the rows to insert.
    pub(super) attributes: PackedRows,
}

impl Change {
    /// Size of the head in bytes: the number of ids to delete and the number of rows to insert.
    pub(super) const HEAD_BYTES: usize = 8;

    /// Returns the number of rows to insert of a serialized change, given its first bytes.
    pub(super) fn rows_of(bytes: &[u8]) -> u64 {
        count_of(&bytes[size_of::<u32>()..Self::HEAD_BYTES]) as u64
    }

    /// Returns the memory for parsing a serialized change. Buffers grow by doubling, so it is twice the size of
    /// `bytes`.
    pub(super) fn copied_bytes(bytes: &[u8]) -> u64 {
        2 * bytes.len() as u64
    }

    /// Returns a change that has no effect.
    pub(super) fn empty(kind: IdKind) -> Self {
        let (deleted, ids) = (Ids::empty(kind), Ids::empty(kind));
        Self { deleted, ids, stored: Vec::new(), attributes: PackedRows::default() }
    }

    /// Returns the bytes that the change takes in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        let of_attributes = self.attributes.bytes.len() + size_of::<u64>() * self.attributes.len();
        (self.stored.len() + of_attributes) as u64 + self.ids.held_bytes() + self.deleted.held_bytes()
    }

    /// Serializes the change: the number of ids to delete (u32), the number of rows to insert (u32), the ids to
    /// delete, the ids to insert, the vectors, and the columns of each row (`packed.rs`), if rows have any. An id is
    /// an i64, or the length (u32) and the bytes of a text.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { deleted, ids, stored, attributes } = self;
        let of_ids = deleted.bytes() + ids.bytes() + 4 * (deleted.len() + ids.len()) as u64;
        let mut bytes = Vec::with_capacity(Self::HEAD_BYTES + of_ids as usize + stored.len() + attributes.bytes.len());
        [deleted, ids].iter().for_each(|ids| bytes.extend((ids.len() as u32).to_le_bytes()));
        [deleted, ids].iter().for_each(|ids| push_ids(ids, &mut bytes));
        bytes.extend_from_slice(stored);
        bytes.extend_from_slice(&attributes.bytes);
        bytes
    }

    /// Parses the output of [`Self::to_bytes`]. Returns `None` if the bytes are not a change of rows of this type.
    pub(super) fn from_bytes(bytes: &[u8], rows: RowType<'_>) -> Option<Self> {
        let (counts, mut rest) = bytes.split_at_checked(Self::HEAD_BYTES)?;
        let deleted = take_ids(rows.ids, count_of(&counts[..4]), &mut rest)?;
        let ids = take_ids(rows.ids, count_of(&counts[4..]), &mut rest)?;
        let stored = rest.split_off(..ids.len().checked_mul(rows.vector_bytes)?)?.to_vec();
        let mut attributes = PackedRows::default();
        // Packed rows have no length field: the end of a row is found by parsing it, which also checks its values.
        if !rows.attributes.is_empty() {
            (0..ids.len()).try_for_each(|_| next_row(rows.attributes, &mut rest).map(|row| attributes.push(row)))?;
        }
        // If bytes are left over, the change has rows of another type.
        rest.is_empty().then_some(Self { deleted, ids, stored, attributes })
    }
}

/// Decodes a little-endian count in the head of a change.
fn count_of(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |count, &byte| count << 8 | usize::from(byte))
}

fn push_ids(ids: &Ids, bytes: &mut Vec<u8>) {
    for k in 0..ids.len() {
        if let Ids::Utf8(texts) = ids {
            bytes.extend((texts.get(k).len() as u32).to_le_bytes());
        }
        ids.append_bytes_of(k, bytes);
    }
}

/// Parses `count` ids, and advances `rest` past them.
fn take_ids(kind: IdKind, count: usize, rest: &mut &[u8]) -> Option<Ids> {
    let mut ids = Ids::empty(kind);
    for _ in 0..count {
        let len = match kind {
            IdKind::None => return None,
            IdKind::Int64 => size_of::<i64>(),
            IdKind::Utf8 => u32::from_le_bytes(*rest.split_off(..size_of::<u32>())?.as_array()?) as usize,
        };
        let id = rest.split_off(..len)?;
        if kind == IdKind::Utf8 && std::str::from_utf8(id).is_err() {
            return None;
        }
        ids.push_bytes(id);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::super::packed::tests::{all_kinds, packed};
    use super::*;
    use crate::source::TextIds;

    fn texts(all: &[&str]) -> Ids {
        let mut ids = TextIds::default();
        all.iter().for_each(|text| ids.push(text.as_bytes()));
        Ids::Utf8(ids)
    }

    fn samples() -> Vec<(Change, Vec<Attribute>)> {
        let empty = Change::empty(IdKind::Int64);
        let (deleted, ids) = (Ids::Int64(vec![-7]), Ids::Int64(vec![3, i64::MIN]));
        let of_numbers = Change { deleted, ids, stored: vec![9; 8], ..empty.clone() };
        let (deleted, ids) = (texts(&["", "ä"]), texts(&["long one", "", "x"]));
        let of_texts = Change { deleted, ids, stored: vec![1; 12], ..empty.clone() };
        let with_attributes = Change { attributes: packed(), ..of_texts.clone() };
        vec![
            (of_numbers, Vec::new()),
            (of_texts, Vec::new()),
            (with_attributes, all_kinds()),
            (empty.clone(), Vec::new()),
            (empty, all_kinds()),
        ]
    }

    fn rows<'a>(change: &Change, attributes: &'a [Attribute]) -> RowType<'a> {
        RowType { ids: change.ids.kind(), vector_bytes: 4, attributes }
    }

    #[test]
    fn changes_round_trip_and_other_bytes_are_refused() {
        for (change, attributes) in samples() {
            let (rows, bytes) = (rows(&change, &attributes), change.to_bytes());
            assert_eq!(Change::from_bytes(&bytes, rows).as_ref(), Some(&change));
            (0..bytes.len()).for_each(|len| assert_eq!(Change::from_bytes(&bytes[..len], rows), None, "{len} bytes"));
            assert_eq!(Change::from_bytes(&[&bytes[..], &[0]].concat(), rows), None);
            let longer = RowType { vector_bytes: 5, ..rows };
            assert_eq!(Change::from_bytes(&bytes, longer).is_some(), change.stored.is_empty());
            let other = RowType { attributes: if attributes.is_empty() { &all_kinds() } else { &[] }, ..rows };
            assert_eq!(Change::from_bytes(&bytes, other).is_some(), change.stored.is_empty());
        }
    }

    #[test]
    fn damaged_change_bytes_are_decoded_or_refused() {
        for (change, attributes) in samples() {
            let bytes = change.to_bytes();
            for (at, flip) in (0..bytes.len()).flat_map(|at| [1, 0x80, 0xff].map(|flip| (at, flip))) {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Some(other) = Change::from_bytes(&other, rows(&change, &attributes)) {
                    assert_eq!(other.stored.len(), 4 * other.ids.len());
                    assert_eq!(other.attributes.len(), if attributes.is_empty() { 0 } else { other.ids.len() });
                }
            }
        }
    }
}
