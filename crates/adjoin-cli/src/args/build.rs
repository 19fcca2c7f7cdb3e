//! Flags of `adjoin build` and `adjoin append` as typed.

use std::path::PathBuf;

use adjoin::{Metric, OnDuplicateId};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueHint};

use super::choices::choice;
use super::groups::{
    BadRows, INPUT, KeptColumns, OUTPUT, Replace, Resources, SourceColumns, StoreOptions, TemporaryPlace,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  adjoin build embeddings/ --id-column name --metric cosine -o embeddings.store\n  \
    adjoin build part-*.parquet --columns lang,year -o docs.store --memory 4GB"
)]
pub(crate) struct Build {
    /// Files, folders (with subfolders) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .safetensors, .fbin,
    /// .u8bin, .i8bin, .fvecs, .bvecs; or a collection
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<String>,
    /// Folder of the store
    #[arg(short, long, value_name = "STORE", value_hint = ValueHint::DirPath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    /// Metric of joins and searches; ip (inner product) is for searches only
    #[arg(long, value_name = "METRIC", default_value_t = Metric::L2, value_parser = choice::<Metric>())]
    pub(crate) metric: Metric,
    #[command(flatten)]
    pub(crate) columns: KeptColumns,
    /// Column by which rows are sorted within buckets, so that a filter on a range of it reads only parts of buckets;
    /// also kept for other filters
    #[arg(long, value_name = "COLUMN", value_parser = NonEmpty::new(), help_heading = INPUT)]
    pub(crate) sort_by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) replace: Replace,
    /// Save checkpoints next to the store, to continue an interrupted run of the same command (both need --resume)
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin append docs.store --new today.parquet\n  \
    adjoin append docs.store --new today.parquet --delete old-ids.txt")]
pub(crate) struct Append {
    /// The store; open readers keep the old generation
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) store: PathBuf,
    /// New rows, numbered after the existing ones: any SOURCE that `build` reads, with the columns that the store keeps
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new(), required_unless_present = "delete",
        value_hint = ValueHint::AnyPath)]
    pub(crate) new: Vec<String>,
    /// File of the ids to delete, one per line, or row numbers if rows have no ids; - for standard input
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new(), value_hint = ValueHint::FilePath)]
    pub(crate) delete: Option<String>,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    #[command(flatten)]
    pub(crate) bad_rows: BadRows,
    /// Action on new rows with the id of an earlier row that is kept
    #[arg(long, value_name = "ACTION", default_value_t = OnDuplicateId::Error, value_parser = choice::<OnDuplicateId>(),
        help_heading = INPUT)]
    pub(crate) on_duplicate_id: OnDuplicateId,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
