//! Mutations of bytes.

use adjoin::Random;

/// Returns a number near a boundary: of a bit width, a sign, a limit of a format, or the length of the input.
pub(crate) fn edge(random: &mut Random, len: usize) -> u64 {
    const EDGES: &[u64] = &[
        0,
        1,
        2,
        7,
        255,
        512,
        8_192,
        8_193,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 40,
        (1 << 40) + 1,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 511,
        u64::MAX,
    ];
    match random.below(4) {
        0 => (len as u64).wrapping_add(random.below(17)).wrapping_sub(8),
        1 => {
            let bits = 1 + random.below(40);
            random.below(1 << bits)
        }
        _ => EDGES[random.below(EDGES.len() as u64) as usize],
    }
}

/// Mutates `bytes` one to four times; some mutations insert pieces of `others`.
pub(crate) fn mutate(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..1 + random.below(4) {
        once(random, bytes, others);
    }
}

fn once(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = place(random, bytes.len());
    let bits = random.below(10);
    let some = random.below(1 << bits) as usize;
    let end = (at + some).min(bytes.len());
    match random.below(10) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 if at < bytes.len() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, b'-', b'"', b'\n'][random.below(8) as usize],
        3 => bytes.truncate(at),
        4 => bytes.extend((0..some).map(|_| if some.is_multiple_of(2) { 0 } else { random.below(256) as u8 })),
        5 => drop(bytes.drain(at..end)),
        6 if !others.is_empty() => {
            let other = &others[random.below(others.len() as u64) as usize];
            let from = place(random, other.len());
            let piece = other[from..(from + some).min(other.len())].to_vec();
            let replaced = if random.below(2) == 0 { at } else { (at + piece.len()).min(bytes.len()) };
            bytes.splice(at..replaced, piece);
        }
        7 => number_in_text(random, bytes, at),
        _ => field(random, bytes, at),
    }
}

/// Returns an offset from 0 to `len`. Offsets near the start and the end are more frequent, since headers and footers
/// are there.
fn place(random: &mut Random, len: usize) -> usize {
    let len = len as u64;
    let at = match random.below(4) {
        0 => random.below(len.min(128) + 1),
        1 => len - random.below(len.min(128) + 1),
        2 => len - random.below(len.min(2_048) + 1),
        _ => random.below(len + 1),
    };
    at as usize
}

/// Sets a field at `at` to a boundary value. The field has 4 or 8 bytes or a variable length.
fn field(random: &mut Random, bytes: &mut [u8], at: usize) {
    let value = edge(random, bytes.len());
    let stored = match random.below(3) {
        0 => value.to_le_bytes()[..4].to_vec(),
        1 => value.to_le_bytes().to_vec(),
        _ => variable(value),
    };
    let at = if random.below(2) == 0 { at } else { at - at % 4 };
    let end = (at + stored.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&stored[..end - at]);
}

fn variable(mut value: u64) -> Vec<u8> {
    let mut stored = Vec::new();
    while value >= 0x80 {
        stored.push(value as u8 | 0x80);
        value >>= 7;
    }
    stored.push(value as u8);
    stored
}

/// Replaces the first decimal number after `at` by a boundary value.
fn number_in_text(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else { return };
    let start = at + start;
    let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = edge(random, bytes.len()).to_string();
    bytes.splice(start..start + digits, number.into_bytes());
}
