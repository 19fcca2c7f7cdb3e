//! Flags of collections as typed.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand};

use super::{ColumnOptions, IndexShape, Resources, TemporaryPlace};

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
pub(crate) struct CollectionCreate {
    /// Folder of the collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// Number of elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements
    #[arg(long, value_name = "T", default_value = "f32", value_parser = ["f32", "f16", "u8", "i8"])]
    pub(crate) element: String,
    /// Metric of searches
    #[arg(long, value_name = "METRIC", default_value = "l2", value_parser = ["l2", "cosine"])]
    pub(crate) metric: String,
    /// Type of the ids
    #[arg(long, value_name = "KIND", default_value = "int64", value_parser = ["int64", "text"])]
    pub(crate) ids: String,
    /// Columns for filters, each with its type: text, int64, float64, bool, date or timestamp; e.g.
    /// lang:text,year:int64
    #[arg(long, value_name = "NAME:TYPE,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) columns: Vec<String>,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionWrite {
    /// A collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// File of the ids to delete, one per line, or - for standard input; deletes are applied before inserts
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) delete: Option<String>,
    /// Filter on the rows to delete, as in SQL, e.g. "year < 2020"; deletes are applied before inserts
    #[arg(long = "delete-where", value_name = "CONDITION", value_parser = NonEmpty::new())]
    pub(crate) delete_where: Option<String>,
    /// New vectors: any SOURCE that `build` reads, with ids that do not exist yet; without ids, row numbers are the ids
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new())]
    pub(crate) insert: Vec<String>,
    /// Vectors to insert, or to replace the ones with their ids; if several have one id, the last one counts
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new())]
    pub(crate) upsert: Vec<String>,
    /// When to return: once writes survive a loss of power (group), or once the operating system has them (buffered)
    #[arg(long, value_name = "WHEN", default_value = "group", value_parser = ["group", "buffered"])]
    pub(crate) durability: String,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionMerge {
    /// A collection
    #[arg(value_name = "COLLECTION")]
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
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// File of the vectors (.parquet), with the columns id, vector and those of the collection
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionBackup {
    /// A collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// Folder of the copy, which is a collection too
    #[arg(value_name = "FOLDER")]
    pub(crate) copy: PathBuf,
    /// Replace an existing collection
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
