//! Flags of collections as typed.

use std::path::PathBuf;

use adjoin::{Durability, Element, IdKind, Metric};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand, ValueHint};

use super::choices::{choice, one_of};
use super::groups::{OUTPUT, Replace, Resources, Seed, SourceColumns, TemporaryPlace};
use super::index::IndexShape;

#[derive(Debug, Subcommand)]
pub(crate) enum Collection {
    /// Create an empty collection
    Create(CollectionCreate),
    /// Delete, insert and upsert vectors, and print the sequence number of the last write
    Write(CollectionWrite),
    /// Merge all writes into the graph index on disk
    Merge(CollectionMerge),
    /// Write the current vectors and ids to a Parquet file
    Snapshot(CollectionSnapshot),
    /// Copy the current state of a collection, even while another process writes to it
    Backup(CollectionBackup),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    adjoin collection create docs.collection --dimensions 768 --metric cosine --ids text --columns lang:text")]
pub(crate) struct CollectionCreate {
    /// Folder of the collection
    #[arg(value_name = "COLLECTION", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Number of elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements
    #[arg(long, value_name = "T", default_value_t = Element::F32, value_parser = choice::<Element>())]
    pub(crate) element: Element,
    /// Metric of searches
    #[arg(long, value_name = "METRIC", default_value_t = Metric::L2, value_parser = choice::<Metric>())]
    pub(crate) metric: Metric,
    /// Type of the ids
    #[arg(long, value_name = "T", default_value_t = IdKind::Int64,
        value_parser = one_of(IdKind::OF_COLLECTIONS, adjoin::Choice::name))]
    pub(crate) ids: IdKind,
    /// Columns for filters, each with its type: text, int64, float64, bool, date or timestamp; e.g.
    /// lang:text,year:int64
    #[arg(long, value_name = "NAME:TYPE,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) columns: Vec<String>,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    #[command(flatten)]
    pub(crate) seed: Seed,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin collection write docs.collection --upsert today.parquet\n  \
    adjoin collection write docs.collection --delete-where \"year < 2020\"")]
pub(crate) struct CollectionWrite {
    /// A collection
    #[arg(value_name = "COLLECTION", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// File of the ids to delete, one per line, or - for standard input; deletes are applied before inserts
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new(), value_hint = ValueHint::FilePath)]
    pub(crate) delete: Option<String>,
    /// Filter on the rows to delete, as in SQL, e.g. "year < 2020"; deletes are applied before inserts
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) delete_where: Option<String>,
    /// New vectors: any SOURCE that `build` reads, with ids that do not exist yet; without ids, row numbers are the ids
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) insert: Vec<String>,
    /// Vectors to insert, or to replace the ones with their ids; if several have one id, the last one counts
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) upsert: Vec<String>,
    /// When to return: once writes survive a loss of power (group), or once the operating system has them (buffered)
    #[arg(long, value_name = "WHEN", default_value_t = Durability::Group, value_parser = choice::<Durability>())]
    pub(crate) durability: Durability,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionMerge {
    /// A collection
    #[arg(value_name = "COLLECTION", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// How to compute the new index: by building it, by changing the current one, or the faster of both
    #[arg(long, value_name = "NAME", default_value = "fastest", value_parser = ["fastest", "build", "change"])]
    pub(crate) method: String,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionSnapshot {
    /// A collection
    #[arg(value_name = "COLLECTION", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// File of the vectors (.parquet), with the columns id, vector and all others
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionBackup {
    /// A collection
    #[arg(value_name = "COLLECTION", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Folder of the copy, which is a collection too
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) copy: PathBuf,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
