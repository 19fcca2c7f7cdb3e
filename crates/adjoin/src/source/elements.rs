//! Types of elements in files: the types of the engine, and f64 and bf16, which are converted to f32 when they are
//! read.

use std::path::Path;

use super::vectors::Fault;
use crate::base::error::{Error, Result};
use crate::base::options::{DIMENSIONS_MAX, Element};

// The buffers of Arrow and the bytes of files are copied unchanged, so both must be little-endian.
const _: () = assert!(cfg!(target_endian = "little"), "the engine runs on little-endian machines");

/// Type of an element in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredElement {
    /// Returned unchanged.
    Same(Element),
    /// Returned as f32, after rounding.
    F64,
    /// The upper half of an f32. Returned as f32, without loss.
    Bf16,
}

impl StoredElement {
    /// Returns the size of an element in the file, in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Same(element) => element.bytes(),
            Self::F64 => 8,
            Self::Bf16 => 2,
        }
    }

    /// Returns the type in which elements are returned.
    pub(super) fn element(self) -> Element {
        match self {
            Self::Same(element) => element,
            Self::F64 | Self::Bf16 => Element::F32,
        }
    }

    /// Converts a vector from its form in the file and appends it to `delivered`. If it cannot be converted, appends
    /// zeros and returns the fault.
    pub(super) fn append(self, stored: &[u8], delivered: &mut Vec<u8>) -> Option<Fault> {
        match self {
            Self::Same(_) => delivered.extend_from_slice(stored),
            Self::Bf16 => delivered.extend(stored.as_chunks().0.iter().flat_map(|&[low, high]| [0, 0, low, high])),
            Self::F64 => return Self::append_rounded(stored, delivered),
        }
        None
    }

    fn append_rounded(stored: &[u8], delivered: &mut Vec<u8>) -> Option<Fault> {
        let start = delivered.len();
        let (values, _) = stored.as_chunks::<8>();
        let values = values.iter().map(|value| f64::from_le_bytes(*value));
        delivered.extend(values.clone().flat_map(|value| (value as f32).to_le_bytes()));
        // This loop finds out whether any value is lost, without a position. It is fast, and nearly always finds
        // nothing.
        let is_lost = |value: f64| value.is_finite() && (value as f32).is_infinite();
        if !values.clone().fold(false, |lost, value| lost | is_lost(value)) {
            return None;
        }
        let (at, value) = values.enumerate().find(|(_, value)| is_lost(*value))?;
        // Distances to a vector with an infinite element would be wrong. The caller skips or refuses the row.
        delivered[start..].fill(0);
        Some(Fault::TooLarge { at, value })
    }
}

/// Checks that the number of dimensions in a file is within the limits of the engine.
pub(super) fn check_dimensions(path: &Path, stated: i128) -> Result<usize> {
    match usize::try_from(stated) {
        Ok(dimensions @ 1..=DIMENSIONS_MAX) => Ok(dimensions),
        _ => Err(Error::input(format!(
            "{}: its vectors have {stated} dimensions; vectors of 1 to {DIMENSIONS_MAX} dimensions can be read",
            path.display()
        ))),
    }
}
