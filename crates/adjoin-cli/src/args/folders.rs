//! Flags of `adjoin info`, `adjoin verify` and `adjoin copy` as typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::groups::{MemoryOption, OUTPUT, Quiet, Replace};

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

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    adjoin copy vectors.store s3://bucket/vectors.store\n  \
    adjoin copy s3://bucket/vectors.index /data/vectors.index")]
pub(crate) struct Copy {
    /// A store, an index or a collection: a folder, or a URL such as s3://BUCKET/KEY
    #[arg(value_name = "FROM", value_hint = ValueHint::DirPath)]
    pub(crate) source: PathBuf,
    /// Folder or URL of the copy, which appears whole or not at all
    #[arg(value_name = "TO", value_hint = ValueHint::DirPath)]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) limit: MemoryOption,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
}
