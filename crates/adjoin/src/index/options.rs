//! What an index is to be like, and how it is searched.

use super::layout::Layout;
use crate::error::{Error, Result};
use crate::graph::GraphOptions;
use crate::message::{Argument, message};

/// Sizes of pages that may be asked for.
const PAGE_BYTES: [u64; 3] = [4 << 10, 8 << 10, 16 << 10];
/// Most bytes of a code.
const CODE_BYTES_MAX: usize = 1_024;
/// Longest list of candidates that a search may keep.
const LIST_MAX: usize = 1 << 20;

/// What an index is to be like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexOptions {
    /// The graph; its seed is also that of codes and of the navigation graph.
    pub graph: GraphOptions,
    /// Bytes of the code of a vector, 1 to 1,024; vectors of fewer dimensions have a byte for each.
    pub code_bytes: usize,
    /// Bytes of a page: 4, 8 or 16 KiB.
    pub page_bytes: u64,
    /// In which order vectors lie on pages.
    pub layout: Layout,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { graph: GraphOptions::default(), code_bytes: 32, page_bytes: PAGE_BYTES[0], layout: Layout::default() }
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
        if !PAGE_BYTES.contains(&self.page_bytes) {
            let range = format!(" is {} bytes; give 4KiB, 8KiB or 16KiB", self.page_bytes);
            return Err(Error::option(message![Argument::Page, range]));
        }
        Ok(())
    }
}

/// How an index is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSearchOptions {
    /// So many nearest vectors of each query, at least 1.
    pub k: u64,
    /// Candidates that a search keeps (L), 1 to 2^20; as many as are wanted where that is more.
    pub list: usize,
}

impl IndexSearchOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// Names the first option that is out of range, and its range.
    pub fn check(&self) -> Result<()> {
        if self.k == 0 {
            return Err(Error::option(message![Argument::K.with(0), " asks for nothing; give at least 1"]));
        }
        if !(1..=LIST_MAX).contains(&self.list) {
            return Err(Error::option(message![Argument::List, format!(" is {}; give 1 to {LIST_MAX}", self.list)]));
        }
        Ok(())
    }
}
