//! Flags of `adjoin append` as typed.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser as NonEmpty;

use super::{ColumnOptions, Resources, TemporaryPlace};

#[derive(Debug, Args)]
pub(crate) struct Append {
    /// The store; open readers keep the old generation
    pub(crate) store: PathBuf,
    /// New rows, numbered after the existing ones: any SOURCE that `build` reads, with the columns that the store keeps
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new(), required_unless_present = "delete")]
    pub(crate) new: Vec<String>,
    /// File of the ids to delete, one per line, or row numbers if rows have no ids; - for standard input
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) delete: Option<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Action on new rows without a usable vector (null, NaN, infinite)
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// Action on new rows with the id of an earlier row that is kept
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "keep"])]
    pub(crate) on_duplicate_id: String,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
