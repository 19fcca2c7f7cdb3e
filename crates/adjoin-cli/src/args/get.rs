//! Flags of `adjoin get` as typed.

use std::path::PathBuf;

use adjoin::OnMissing;
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueHint};

use super::Resources;
use super::choices::choice;
use super::groups::{OUTPUT, Replace};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin get vectors.store --ids ids.txt -o rows.parquet\n  \
    tail -n +2 hits.csv | cut -d, -f3 | adjoin get docs.collection --ids - -o rows.jsonl")]
pub(crate) struct Get {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// File of the ids, one per line, or - for standard input; row numbers if rows have no ids
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new(), value_hint = ValueHint::FilePath)]
    pub(crate) ids: String,
    /// File of the rows, in the order of the ids (.parquet or .jsonl): the columns id and vector, and those of --columns
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    /// Action on ids that no row has
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = choice::<OnMissing>())]
    pub(crate) on_missing: OnMissing,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
