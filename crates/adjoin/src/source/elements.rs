//! Elements as files hold them: those of the engine, and f64, which is rounded on the way in.

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

    /// Appends elements, as they lie in the file, as they are delivered.
    pub(super) fn append(self, stored: &[u8], delivered: &mut Vec<u8>) {
        match self {
            Self::Same(_) => delivered.extend_from_slice(stored),
            Self::F64 => {
                let (values, _) = stored.as_chunks::<8>();
                delivered.extend(values.iter().flat_map(|value| (f64::from_le_bytes(*value) as f32).to_le_bytes()));
            }
        }
    }
}
