//! Flags of collections as typed.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand};

use super::{ColumnOptions, IndexShape, Resources, TemporaryPlace};

#[derive(Debug, Subcommand)]
pub(crate) enum Collection {
    /// Make a collection without vectors
    Create(CollectionCreate),
    /// Insert, replace and delete vectors, and print the number of the last write
    Write(CollectionWrite),
    /// Make what was written part of the graph index on disk
    Merge(CollectionMerge),
    /// Write the vectors that are there now, with their ids, to a Parquet file
    Snapshot(CollectionSnapshot),
    /// Copy a collection as it is now, while others may write to it
    Backup(CollectionBackup),
}

#[derive(Debug, Args)]
pub(crate) struct CollectionCreate {
    /// Folder of the collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// Elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements: f32, f16, u8 or i8
    #[arg(long, value_name = "T", default_value = "f32", value_parser = ["f32", "f16", "u8", "i8"])]
    pub(crate) element: String,
    /// Metric of the searches: l2 or cosine
    #[arg(long, value_name = "METRIC", default_value = "l2", value_parser = ["l2", "cosine"])]
    pub(crate) metric: String,
    /// What names a vector: int64 or text
    #[arg(long, value_name = "KIND", default_value = "int64", value_parser = ["int64", "text"])]
    pub(crate) ids: String,
    /// Columns that vectors have beside that, each with its type, to filter searches by: text, int64, float64, bool, date or timestamp
    #[arg(long, value_name = "NAME:TYPE,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) attributes: Vec<String>,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    /// Seed of whatever is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionWrite {
    /// The collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// A file with an id on each line, - for standard input: their vectors go, before others come
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) delete: Option<String>,
    /// A condition as in SQL, such as "year < 2020": the vectors whose attributes meet it go, before others come
    #[arg(long = "delete-where", value_name = "CONDITION", value_parser = NonEmpty::new())]
    pub(crate) delete_where: Option<String>,
    /// What `build` takes: vectors with ids that are not there yet; without ids, integers are the numbers of rows
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new())]
    pub(crate) insert: Vec<String>,
    /// Vectors that replace those with their ids; the last one counts if several have one id
    #[arg(long, value_name = "SOURCE", num_args = 1.., value_parser = NonEmpty::new())]
    pub(crate) upsert: Vec<String>,
    /// When the command ends: group, when a loss of power takes no write any more, or buffered, when the system has them
    #[arg(long, value_name = "WHEN", default_value = "group", value_parser = ["group", "buffered"])]
    pub(crate) durability: String,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionMerge {
    /// The collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// How the new index is made: by building it of all vectors, by changing the one that there is, or whichever is faster
    /// (change-nearest: to compare with)
    #[arg(long, value_name = "NAME", default_value = "fastest", value_parser = ["fastest", "build", "change", "change-nearest"])]
    pub(crate) method: String,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionSnapshot {
    /// The collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// File of the vectors, which ends in .parquet: columns id and vector, and those of --attributes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct CollectionBackup {
    /// The collection
    #[arg(value_name = "COLLECTION")]
    pub(crate) folder: PathBuf,
    /// Folder of the copy, which is a collection too
    #[arg(value_name = "FOLDER")]
    pub(crate) copy: PathBuf,
    /// Replace a collection that is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
