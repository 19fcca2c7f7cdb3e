//! Errors of devices, layouts and options.

/// An error: what is wrong, and what would work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The text is not TOML.
    #[error("line {line} of the configuration: {why}")]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong on the line.
        why: String,
    },
    /// A figure is unknown, missing or out of range.
    #[error("{name} {why}")]
    Figure {
        /// Section and key.
        name: String,
        /// What is wrong with it, and what would work.
        why: String,
    },
    /// No preset has this name.
    #[error("there is no device {name}; the devices are {known}")]
    Preset {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A vector is longer than a page.
    #[error(
        "a vector takes {vector_bytes} bytes, but a page of the device has {page_bytes}; give a larger geometry.page"
    )]
    Page {
        /// Bytes of a vector.
        vector_bytes: u64,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// The data exceed the device's capacity.
    #[error("the data take {needed_bytes} bytes, but the device holds {bytes}; give more geometry.blocks_per_plane")]
    Capacity {
        /// Bytes of all pages needed.
        needed_bytes: u64,
        /// Bytes of all pages of the device.
        bytes: u64,
    },
    /// A graph, an order or an option is invalid.
    #[error("{0}")]
    Input(String),
}

impl FlashError {
    pub(crate) fn figure(name: &str, why: &str) -> Self {
        Self::Figure { name: name.to_owned(), why: why.to_owned() }
    }
}
