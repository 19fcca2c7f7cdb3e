//! Elements as files hold them: those of the engine, and f64, which is rounded on the way in.

use super::vectors::Fault;
use crate::options::Element;

// Arrow's buffers and the files' bytes are both copied as they lie.
const _: () = assert!(cfg!(target_endian = "little"), "the engine runs on little-endian machines");

/// Type of an element in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredElement {
    /// Delivered as it lies.
    Same(Element),
    /// Rounded to f32.
    F64,
}

impl StoredElement {
    /// Bytes of one in the file.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Same(element) => element.bytes(),
            Self::F64 => 8,
        }
    }

    /// Type as delivered.
    pub(super) fn element(self) -> Element {
        match self {
            Self::Same(element) => element,
            Self::F64 => Element::F32,
        }
    }

    /// Appends a vector, as it lies in the file, as it is delivered; zeros and the fault where it cannot be.
    pub(super) fn append(self, stored: &[u8], delivered: &mut Vec<u8>) -> Option<Fault> {
        let Self::F64 = self else {
            delivered.extend_from_slice(stored);
            return None;
        };
        let start = delivered.len();
        let (values, _) = stored.as_chunks::<8>();
        let values = values.iter().map(|value| f64::from_le_bytes(*value));
        delivered.extend(values.clone().flat_map(|value| (value as f32).to_le_bytes()));
        // found in two steps, of which the first is fast and is nearly always all
        let is_lost = |value: f64| value.is_finite() && (value as f32).is_infinite();
        if !values.clone().fold(false, |lost, value| lost | is_lost(value)) {
            return None;
        }
        let (at, value) = values.enumerate().find(|(_, value)| is_lost(*value))?;
        delivered[start..].fill(0);
        Some(Fault::TooLarge { at, value })
    }
}
