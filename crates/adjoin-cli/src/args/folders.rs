//! Flags of `adjoin info` and `adjoin verify` as typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::groups::{MemoryOption, OUTPUT};

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Print the manifest as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) limit: MemoryOption,
    /// Print damage only
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
}
