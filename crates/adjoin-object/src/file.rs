//! An object behind the device's trait.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{DeviceError, FileStamp, ReadFile};

use crate::ahead::{AheadFile, READ_AHEAD_BYTES};
use crate::object::{ALIGNMENT, Object};

/// An object whose reads wait for the store.
pub(crate) struct ObjectFile {
    pub(crate) object: Arc<Object>,
}

impl ReadFile for ObjectFile {
    fn len(&self) -> u64 {
        self.object.len()
    }

    /// Returns the stamp of the object as it was opened. Each read is refused by the store if it has changed since.
    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        Ok(self.object.stamp())
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn read_ahead_bytes(&self) -> u64 {
        READ_AHEAD_BYTES
    }

    fn read_ahead(self: Arc<Self>, ranges: Vec<Range<u64>>) -> Option<Arc<dyn ReadFile>> {
        Some(Arc::new(AheadFile::new(self.object.clone(), ranges)))
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        self.object.read_at(offset, buffer)
    }
}
