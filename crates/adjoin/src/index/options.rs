//! Options of building an index.

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::graph::GraphOptions;

/// Valid page sizes.
const PAGE_BYTES: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Largest code in bytes.
const CODE_BYTES_MAX: usize = 1_024;

/// Options of building an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexOptions {
    /// Options of the graph. Their seed is also used to sample vectors for the codes and for the navigation graph.
    pub graph: GraphOptions,
    /// Bytes of the code of a vector, 1 to 1,024. If a vector has fewer dimensions than this, its code has one byte per
    /// dimension.
    pub code_bytes: usize,
    /// Number of vectors in the navigation graph, which a search holds in memory. At least 1. The default is one in a
    /// hundred vectors, at most 10,000.
    pub navigation: Option<u32>,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page_bytes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { graph: GraphOptions::default(), code_bytes: 32, navigation: None, page_bytes: PAGE_BYTES[0] }
    }
}

impl IndexOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        self.graph.check()?;
        if !(1..=CODE_BYTES_MAX).contains(&self.code_bytes) {
            let range = format!(" is {}; give 1 to {CODE_BYTES_MAX}", self.code_bytes);
            return Err(Error::option(message![Argument::CodeBytes, range]));
        }
        if self.navigation == Some(0) {
            return Err(Error::option(message![Argument::Navigation, " is 0; give 1 or more"]));
        }
        if !PAGE_BYTES.contains(&self.page_bytes) {
            let range = format!(" is {} bytes; give 4KiB, 8KiB or 16KiB", self.page_bytes);
            return Err(Error::option(message![Argument::Page, range]));
        }
        Ok(())
    }
}
