//! Serializes quantizers. Counts are stored as u32 and floats as f32, little-endian.

use std::ops::RangeInclusive;

use adjoin_kernels::Panel;

use crate::base::error::{Error, Result};
use crate::base::geometry::COORDINATES_MAX;

/// Appends a count.
///
/// # Panics
/// If it does not fit in 32 bits.
pub(super) fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend(u32::try_from(count).expect("a count of 32 bits").to_le_bytes());
}

/// Appends the rows of a panel without their padding.
pub(super) fn put_rows(bytes: &mut Vec<u8>, panel: &Panel<f32>) {
    let rows = (0..panel.rows()).map(|row| &panel.row(row)[..panel.dimensions()]);
    bytes.extend(rows.flatten().flat_map(|x| x.to_le_bytes()));
}

/// Reader of serialized fields, in order.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..count).ok_or_else(|| {
            let (all, end) = (self.bytes.len(), self.at.saturating_add(count));
            Error::corrupt(format!("codebooks end after {all} bytes, but {end} or more are needed"))
        })?;
        self.at += count;
        Ok(taken)
    }

    /// Reads a count.
    ///
    /// # Errors
    /// If the bytes end, or if the count is outside `range`.
    pub(super) fn count(&mut self, range: RangeInclusive<usize>, what: &str) -> Result<usize> {
        let at = self.at;
        let bytes = self.take(size_of::<u32>())?;
        let count = bytes.iter().rev().fold(0, |count, &byte| count << 8 | usize::from(byte));
        if range.contains(&count) {
            return Ok(count);
        }
        let (least, most) = range.into_inner();
        Err(Error::corrupt(format!("codebooks state {count} {what} at byte {at}, not {least} to {most}")))
    }

    /// Reads a number of dimensions.
    ///
    /// # Errors
    /// The errors of [`Fields::count`].
    pub(super) fn dimensions(&mut self) -> Result<usize> {
        self.count(1..=COORDINATES_MAX, "dimensions")
    }

    /// Reads rows of finite floats.
    ///
    /// # Errors
    /// If the bytes end, or if a float is not finite.
    pub(super) fn rows(&mut self, rows: usize, dimensions: usize) -> Result<Panel<f32>> {
        let at = self.at;
        // The length is checked before memory is allocated.
        let floats = self.take(rows * dimensions * size_of::<f32>())?.as_chunks().0;
        let mut panel = Panel::zeroed(rows, dimensions);
        for (row, floats) in floats.chunks_exact(dimensions).enumerate() {
            panel.row_mut(row).iter_mut().zip(floats).for_each(|(to, &x)| *to = f32::from_le_bytes(x));
            // A value that is not finite would make every estimate of its chunk useless, and sums may become NaN.
            if let Some(bad) = panel.row(row).iter().find(|x| !x.is_finite()) {
                return Err(Error::corrupt(format!("codebooks hold {bad} in row {row} of those at byte {at}")));
            }
        }
        Ok(panel)
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// If bytes are left.
    pub(super) fn end(&self) -> Result<()> {
        let (at, all) = (self.at, self.bytes.len());
        if at == all {
            return Ok(());
        }
        Err(Error::corrupt(format!("codebooks end after {at} bytes, but there are {all}")))
    }
}
