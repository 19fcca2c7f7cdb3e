//! An object behind the device's trait.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{DeviceError, FileStamp, ReadFile};

use crate::ahead::{AheadFile, READ_AHEAD_BYTES};
use crate::object::{ALIGNMENT, Object};

/// An object as a file. Reads block until the store has answered.
pub(crate) struct ObjectFile {
    pub(crate) object: Arc<Object>,
}

impl ReadFile for ObjectFile {
    fn len(&self) -> u64 {
        self.object.len()
    }

    /// Returns the stamp of the version that was opened. If the object changes later, the store refuses each read.
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
