//! Files in memory, on a device of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::{FaultPlan, SimulatedDevice};

/// Files by name.
#[derive(Clone, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<String, Arc<Vec<u8>>>);

impl Files {
    pub(crate) fn put(&mut self, name: &str, bytes: Vec<u8>) {
        self.0.insert(name.to_owned(), Arc::new(bytes));
    }

    /// Returns a device with these files in a folder.
    pub(crate) fn device(&self, folder: &Path) -> Arc<SimulatedDevice> {
        let device = SimulatedDevice::new(FaultPlan::None);
        self.0.iter().for_each(|(name, bytes)| device.put(folder.join(name), bytes));
        Arc::new(device)
    }
}
