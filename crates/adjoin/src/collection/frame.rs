//! A record of the log: a number, a reference to the record before it, and a payload, under a checksum.
//!
//! Each record contains the checksum of the one before it, as the frames of SQLite's write-ahead log do. Bytes of an
//! earlier file that are still on the disk are therefore never taken for the next record. Each record also states the
//! number up to which records were durable when it was written. This distinguishes damage from a loss of power: an
//! unreadable record is damaged if a later record states that it was durable. Otherwise, a loss of power cut it off.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Alignment of records in a file, in bytes.
pub(super) const ALIGNMENT: usize = 8;
/// Most bytes of a payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// Head of a record, before its payload. All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Head {
    /// XXH3 of the following bytes up to the next record, with the log's salt as seed.
    pub(super) checksum: u64,
    /// Size of the payload in bytes.
    pub(super) bytes: u32,
    zero: u32,
    /// Number of the record, from 1.
    pub(super) sequence: u64,
    /// Checksum of the record before it.
    pub(super) previous: u64,
    /// Records up to this number were durable when this one was written.
    pub(super) durable: u64,
}

pub(super) const HEAD_BYTES: usize = size_of::<Head>();

/// Returns the bytes of a record with a payload of `payload` bytes.
pub(super) fn frame_bytes(payload: usize) -> usize {
    (HEAD_BYTES + payload).next_multiple_of(ALIGNMENT)
}

/// Position of a record in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordLinks {
    /// Number of the record, from 1.
    pub(super) sequence: u64,
    /// Checksum of the record before it.
    pub(super) previous: u64,
    /// Records up to this number are durable when this one is written.
    pub(super) durable: u64,
}

/// Appends a record to `out`; returns its checksum.
pub(super) fn push_frame(
    out: &mut Vec<u8>,
    salt: u64,
    RecordLinks { sequence, previous, durable }: RecordLinks,
    payload: &[u8],
) -> u64 {
    let start = out.len();
    let mut head = Head { checksum: 0, bytes: payload.len() as u32, zero: 0, sequence, previous, durable };
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(payload);
    // The checksum also covers the padding, so that every byte of the log is checked.
    out.resize(start + frame_bytes(payload.len()), 0);
    head.checksum = xxh3_64_with_seed(&out[start + size_of::<u64>()..], salt);
    out[start..start + HEAD_BYTES].copy_from_slice(head.as_bytes());
    head.checksum
}

impl Head {
    /// Parses the first bytes of a record; returns `None` if no record can begin with them.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let head = Self::read_from_prefix(bytes).ok()?.0;
        // No record is durable when it is written, so `durable` is always less than its own number.
        let makes_sense = head.zero == 0
            && head.bytes as usize <= PAYLOAD_BYTES_MAX
            && head.sequence > 0
            && head.durable < head.sequence;
        makes_sense.then_some(head)
    }

    /// Returns the bytes of the whole record.
    pub(super) fn frame_bytes(&self) -> usize {
        frame_bytes(self.bytes as usize)
    }

    /// Returns the payload of a whole record; `None` if the checksum does not match.
    pub(super) fn payload<'a>(&self, salt: u64, frame: &'a [u8]) -> Option<&'a [u8]> {
        let is_right = xxh3_64_with_seed(&frame[size_of::<u64>()..], salt) == self.checksum;
        is_right.then(|| &frame[HEAD_BYTES..][..self.bytes as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damaged_ones_are_refused() {
        for payload in [&b""[..], b"1234567", b"12345678", &[7; 100]] {
            let mut frame = Vec::new();
            let links = RecordLinks { sequence: 9, previous: 77, durable: 8 };
            let checksum = push_frame(&mut frame, 5, links, payload);
            let head = Head::of(&frame).unwrap();
            assert_eq!((head.checksum, head.sequence, head.previous, head.durable), (checksum, 9, 77, 8));
            assert_eq!((head.frame_bytes(), head.payload(5, &frame)), (frame.len(), Some(payload)));
            assert_eq!(head.payload(6, &frame), None, "another salt");
            for at in 0..frame.len() {
                let mut other = frame.clone();
                other[at] ^= 0x10;
                let read = Head::of(&other).filter(|head| head.frame_bytes() == other.len());
                assert_eq!(read.and_then(|head| head.payload(5, &other).map(<[u8]>::len)), None, "byte {at}");
            }
        }
    }
}
