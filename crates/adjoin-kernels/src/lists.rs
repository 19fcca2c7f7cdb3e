//! Searches in lists of numbers. These are plain loops over lanes, which the compiler vectorizes for each level.

use crate::reference::Reference;

/// Number of values that are processed together.
const LANES: usize = 16;

/// Searches in lists, implemented by each level.
pub(crate) trait Lists {
    fn first_least_u32(&self, values: &[u32]) -> usize;
    fn first_least_f32(&self, values: &[f32]) -> usize;
    fn at_most(&self, values: &[u32], most: u32, found: &mut Vec<u64>);
    fn count_at_most(&self, values: &[u32], most: u32) -> u64;
}

impl Lists for Reference {
    fn first_least_u32(&self, values: &[u32]) -> usize {
        first_least(values)
    }

    fn first_least_f32(&self, values: &[f32]) -> usize {
        first_least(values)
    }

    fn at_most(&self, values: &[u32], most: u32, found: &mut Vec<u64>) {
        at_most(values, most, found);
    }

    fn count_at_most(&self, values: &[u32], most: u32) -> u64 {
        count_at_most(values, most)
    }
}

/// Returns the position of the smallest value, or of the first one if several are equal. Returns 0 if there is none.
#[inline(always)]
pub(crate) fn first_least<D: Copy + PartialOrd>(values: &[D]) -> usize {
    let Some(&first) = values.first() else { return 0 };
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [first; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value < *lane { value } else { *lane };
        }
    }
    // The lanes do not record positions, so a second pass searches for the smallest value.
    let least = lanes.iter().chain(rest).fold(first, |least, &value| if value < least { value } else { least });
    let holds = |chunk: &[D; LANES]| chunk.iter().fold(false, |any, &value| any | (value == least));
    let skipped = chunks.iter().position(holds).unwrap_or(chunks.len()) * LANES;
    skipped + values[skipped..].iter().position(|&value| value == least).unwrap_or(0)
}

/// Appends `value << 32 | position` for each value that is at most `most`, in order of position.
#[inline(always)]
pub(crate) fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) {
    let bit = |(lane, &value): (usize, &u32)| u32::from(value <= most) << lane;
    at_most_by(values, most, found, |chunk| chunk.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit));
}

/// Implements [`at_most`]. `near` returns a mask of the values of a chunk that are at most `most`.
#[inline(always)]
pub(crate) fn at_most_by(values: &[u32], most: u32, found: &mut Vec<u64>, near: impl Fn(&[u32; LANES]) -> u32) {
    let add = |found: &mut Vec<u64>, place: usize| found.push(u64::from(values[place]) << 32 | place as u64);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for (chunk, start) in chunks.iter().zip((0..).step_by(LANES)) {
        let mut near = near(chunk);
        while near != 0 {
            add(found, start + near.trailing_zeros() as usize);
            near &= near - 1;
        }
    }
    let start = values.len() - rest.len();
    (start..values.len()).filter(|&place| values[place] <= most).for_each(|place| add(found, place));
}

/// Returns the number of values that are at most `most`.
#[inline(always)]
pub(crate) fn count_at_most(values: &[u32], most: u32) -> u64 {
    // Counters of 32 bits keep all lanes of a register busy. They do not overflow, since lists are far shorter than
    // 2^32.
    values.iter().map(|&value| u32::from(value <= most)).sum::<u32>().into()
}
