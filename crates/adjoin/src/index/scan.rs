//! Pages one after the other, as whoever goes through all of them reads them.

use std::ops::Range;

use adjoin_device::{AlignedBuffer, DeviceError, ReadFile};

use super::page::{Page, PageShape};
use crate::error::Result;
use crate::report::Cancel;

/// Bytes that are read at once, about.
const PIECE_BYTES: usize = 1 << 20;

/// Why a page cannot be had.
pub(super) enum NoPage {
    /// The device failed: at this page, or one that was to be read with it.
    Device(DeviceError),
    /// It is not as it was written.
    Changed,
}

/// A page, or why there is none.
type Found<'a> = std::result::Result<Page<'a>, NoPage>;

/// A buffer for pages.
pub(super) struct Scan {
    shape: PageShape,
    buffer: AlignedBuffer,
}

impl Scan {
    pub(super) fn new(shape: PageShape) -> Self {
        Self { shape, buffer: AlignedBuffer::zeroed(Self::memory_bytes(shape) as usize) }
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(shape: PageShape) -> u64 {
        ((PIECE_BYTES / shape.bytes()).max(1) * shape.bytes()) as u64
    }

    /// Hands over pages of a file in their order, each with its number. Of pages that cannot be read together, only the first.
    ///
    /// # Errors
    /// Those of `take`, and where the work is cancelled.
    pub(super) fn each(
        &mut self,
        cancel: &Cancel,
        file: &dyn ReadFile,
        pages: Range<u32>,
        take: &mut dyn FnMut(u32, Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { shape, ref mut buffer } = *self;
        let together = buffer.len() / shape.bytes();
        for first in pages.clone().step_by(together) {
            cancel.check()?;
            let some = together.min((pages.end - first) as usize);
            let bytes = &mut buffer[..some * shape.bytes()];
            if let Err(error) = file.read_at(u64::from(first) * shape.bytes() as u64, bytes) {
                take(first, Err(NoPage::Device(error)))?;
                continue;
            }
            for (number, bytes) in (first..).zip(bytes.chunks_exact(shape.bytes())) {
                take(number, Page::check(shape, number, bytes).ok_or(NoPage::Changed))?;
            }
        }
        Ok(())
    }
}
