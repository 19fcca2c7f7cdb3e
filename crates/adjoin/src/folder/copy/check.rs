//! Verifies the bytes of a file while they are copied.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::store::BucketsCheck;
use crate::store::format::hexadecimal;

const CHECKSUM_BYTES: usize = size_of::<u64>();

/// Description of the damage.
type Fault = String;

/// A check in progress.
pub(super) enum PassingCheck {
    /// Compares the checksum of the whole file with this one, which is given in hexadecimal digits.
    Whole(String),
    /// Verifies parts of the file. Each part starts with its checksum.
    Parts(PartsCheck),
    /// Verifies buckets.
    Buckets(Box<BucketsCheck>),
    /// Verifies nothing. The length of the file was verified before.
    Length,
}

impl PassingCheck {
    /// Checks the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match self {
            Self::Parts(parts) => parts.update(bytes),
            Self::Buckets(buckets) => buckets.update(bytes),
            Self::Whole(_) | Self::Length => Ok(()),
        }
    }

    /// Ends the check of a file. `hash` is the checksum of all of its bytes.
    pub(super) fn finish(self, hash: u64) -> Result<(), Fault> {
        match self {
            Self::Whole(written) if written != hexadecimal(hash) => Err("checksum mismatch".to_owned()),
            Self::Parts(parts) if !parts.part.is_empty() => Err("it is cut off".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Check of parts of equal length. The checksum of a part depends on its number, so a part at a wrong place is
/// detected.
pub(super) struct PartsCheck {
    part_bytes: usize,
    number: u64,
    /// Bytes so far of a part that is not complete yet.
    part: Vec<u8>,
}

impl PartsCheck {
    pub(super) fn new(part_bytes: usize) -> Self {
        Self { part_bytes, number: 0, part: Vec::new() }
    }

    fn update(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            // Complete parts are checked without copying them.
            if self.part.is_empty() && bytes.len() >= self.part_bytes {
                let (whole, rest) = bytes.split_at(self.part_bytes);
                check_part(self.number, whole)?;
                bytes = rest;
            } else {
                let (some, rest) = bytes.split_at(bytes.len().min(self.part_bytes - self.part.len()));
                self.part.extend_from_slice(some);
                bytes = rest;
                if self.part.len() < self.part_bytes {
                    continue;
                }
                check_part(self.number, &self.part)?;
                self.part.clear();
            }
            self.number += 1;
        }
        Ok(())
    }
}

fn check_part(number: u64, part: &[u8]) -> Result<(), Fault> {
    let written = part.split_first_chunk::<CHECKSUM_BYTES>();
    let is_sound = written.is_some_and(|(sum, rest)| u64::from_le_bytes(*sum) == xxh3_64_with_seed(rest, number));
    if is_sound { Ok(()) } else { Err(format!("part {number}: checksum mismatch")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_checked_however_they_arrive() {
        let part =
            |number: u64, contents: &[u8]| [&xxh3_64_with_seed(contents, number).to_le_bytes()[..], contents].concat();
        let sound = [part(0, b"12345678"), part(1, b"abcdefgh"), part(2, b"        ")].concat();
        let check = |bytes: &[u8], at_once: usize| {
            let mut check = PassingCheck::Parts(PartsCheck::new(16));
            bytes.chunks(at_once).try_for_each(|some| check.update(some)).and_then(|()| check.finish(0))
        };
        for at_once in 1..=48 {
            assert_eq!(check(&sound, at_once), Ok(()));
            assert_eq!(check(&sound[..40], at_once), Err("it is cut off".to_owned()));
            for at in 0..48 {
                let mut damaged = sound.clone();
                damaged[at] ^= 1;
                let fault = format!("part {}: checksum mismatch", at / 16);
                assert_eq!(check(&damaged, at_once), Err(fault), "{at} {at_once}");
            }
        }
    }
}
