//! Errors of devices, layouts and options.

/// Error that states what is wrong, and what would work.
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
        /// Section and key of the figure.
        name: String,
        /// What is wrong with the figure, and what would work.
        why: String,
    },
    /// No preset has this name.
    #[error("there is no device {name}; the devices are {known}")]
    Preset {
        /// The name that was given.
        name: String,
        /// Names of the presets.
        known: String,
    },
    /// A vector is longer than a page.
    #[error(
        "a vector takes {vector_bytes} bytes, but a page of the device has {page_bytes}; give a larger geometry.page"
    )]
    Page {
        /// Size of a vector in bytes.
        vector_bytes: u64,
        /// Size of a page in bytes.
        page_bytes: u64,
    },
    /// The data do not fit on the device.
    #[error("the data take {needed_bytes} bytes, but the device holds {bytes}; give more geometry.blocks_per_plane")]
    Capacity {
        /// Size of all pages that the data need, in bytes.
        needed_bytes: u64,
        /// Size of all pages of the device, in bytes.
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
