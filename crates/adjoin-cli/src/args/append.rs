//! Flags of `adjoin append` as typed.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser as NonEmpty;

use super::{ColumnOptions, Resources, TemporaryPlace};

#[derive(Debug, Args)]
pub(crate) struct Append {
    /// The store; who has opened it goes on with what it was
    pub(crate) store: PathBuf,
    /// The rows that come, numbered behind those that are there: what `build` takes, with the columns that the store keeps
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new(), required_unless_present = "delete")]
    pub(crate) new: Vec<String>,
    /// A file with the ids of the rows to remove, one a line, or their numbers where rows have no ids; - for standard input
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) delete: Option<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// New rows without a usable vector (null, NaN, infinite): error or skip
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// New rows whose id an earlier row has that stays: error or keep
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "keep"])]
    pub(crate) on_duplicate_id: String,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
