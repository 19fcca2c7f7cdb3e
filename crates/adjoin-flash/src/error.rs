//! What can be wrong with a device, a layout or what is asked of them.

/// Each says what is wrong, and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// A text that is no TOML.
    #[error("line {line} of the configuration: {why}")]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A figure that is unknown, missing or out of range.
    #[error("{name} {why}")]
    Figure {
        /// Section and key.
        name: String,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// No preset has this name.
    #[error("no device is called {name}; there are {known}")]
    Preset {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A vector that is longer than a page.
    #[error(
        "a vector takes {vector_bytes} bytes and a page of the device has {page_bytes}; give a larger geometry.page"
    )]
    Page {
        /// Bytes of a vector.
        vector_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// More data than the device holds.
    #[error("the data take {needed_bytes} bytes and the device holds {bytes}; give more geometry.blocks_per_plane")]
    Capacity {
        /// Bytes of all pages that are needed.
        needed_bytes: u64,
        /// Bytes of all pages there are.
        bytes: u64,
    },
    /// A graph, an order or an option that cannot be.
    #[error("{0}")]
    Input(String),
}

impl FlashError {
    pub(crate) fn figure(name: &str, why: &str) -> Self {
        Self::Figure { name: name.to_owned(), why: why.to_owned() }
    }
}
