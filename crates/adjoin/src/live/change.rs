//! What one write changes, as bytes of the log: which ids go, and which rows come. A row that comes takes the place of the one
//! that has its id, so that to apply a change twice is the same as once.

use crate::source::{IdKind, Ids};

/// Bytes before ids: how many go, and how many come.
const HEAD_BYTES: usize = 8;

/// Ids that go, and rows that come after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) deleted: Ids,
    /// Of the rows that come.
    pub(super) ids: Ids,
    /// Their vectors, end to end.
    pub(super) stored: Vec<u8>,
}

impl Change {
    /// Nothing.
    pub(super) fn empty(kind: IdKind) -> Self {
        Self { deleted: Ids::empty(kind), ids: Ids::empty(kind), stored: Vec::new() }
    }

    /// Its bytes: two counts (u32), the ids that go, those that come (i64, or the length of a text as u32 and the text), the
    /// vectors.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { deleted, ids, stored } = self;
        let of_ids = deleted.bytes() + ids.bytes() + 4 * (deleted.len() + ids.len()) as u64;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + of_ids as usize + stored.len());
        [deleted, ids].iter().for_each(|ids| bytes.extend((ids.len() as u32).to_le_bytes()));
        [deleted, ids].iter().for_each(|ids| push_ids(ids, &mut bytes));
        bytes.extend_from_slice(stored);
        bytes
    }

    /// What [`Self::to_bytes`] wrote; none where these are not such bytes for ids of a kind and vectors of so many bytes.
    pub(super) fn from_bytes(bytes: &[u8], kind: IdKind, vector_bytes: usize) -> Option<Self> {
        let (counts, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let count = |half: &[u8]| half.iter().rev().fold(0usize, |count, &byte| count << 8 | usize::from(byte));
        let deleted = take_ids(kind, count(&counts[..4]), &mut rest)?;
        let ids = take_ids(kind, count(&counts[4..]), &mut rest)?;
        let is_whole = Some(rest.len()) == ids.len().checked_mul(vector_bytes);
        is_whole.then(|| Self { deleted, ids, stored: rest.to_vec() })
    }
}

fn push_ids(ids: &Ids, bytes: &mut Vec<u8>) {
    for k in 0..ids.len() {
        if let Ids::Utf8(texts) = ids {
            bytes.extend((texts.get(k).len() as u32).to_le_bytes());
        }
        ids.append_bytes_of(k, bytes);
    }
}

/// So many ids, and what is behind them.
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
    use super::*;
    use crate::source::TextIds;

    fn texts(all: &[&str]) -> Ids {
        let mut ids = TextIds::default();
        all.iter().for_each(|text| ids.push(text.as_bytes()));
        Ids::Utf8(ids)
    }

    fn samples() -> Vec<Change> {
        let of_numbers =
            Change { deleted: Ids::Int64(vec![-7]), ids: Ids::Int64(vec![3, i64::MIN]), stored: vec![9; 8] };
        let of_texts = Change { deleted: texts(&["", "ä"]), ids: texts(&["long one", ""]), stored: vec![1; 8] };
        vec![of_numbers, of_texts, Change::empty(IdKind::Int64)]
    }

    #[test]
    fn a_change_comes_back_from_its_bytes_and_from_no_others() {
        for change in samples() {
            let (kind, bytes) = (change.ids.kind(), change.to_bytes());
            assert_eq!(Change::from_bytes(&bytes, kind, 4).as_ref(), Some(&change));
            (0..bytes.len())
                .for_each(|len| assert_eq!(Change::from_bytes(&bytes[..len], kind, 4), None, "{len} bytes"));
            assert_eq!(Change::from_bytes(&[&bytes[..], &[0]].concat(), kind, 4), None);
            assert_eq!(Change::from_bytes(&bytes, kind, 5).is_some(), change.stored.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_a_change_or_none() {
        for change in samples() {
            let bytes = change.to_bytes();
            for (at, flip) in (0..bytes.len()).flat_map(|at| [1, 0x80, 0xff].map(|flip| (at, flip))) {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Some(other) = Change::from_bytes(&other, change.ids.kind(), 4) {
                    assert_eq!(other.stored.len(), 4 * other.ids.len());
                }
            }
        }
    }
}
