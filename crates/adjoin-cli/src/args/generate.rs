//! Flags of `adjoin gen` and `adjoin groundtruth` as typed.

use std::path::PathBuf;

use adjoin::{Element, Metric, RangeForm};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueEnum, ValueHint};

use super::choices::choice;
use super::groups::{INPUT, OUTPUT, Quiet, Replace, Resources, Seed, SourceColumns, Threshold};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  adjoin gen --rows 1000000 --dimensions 128 --element u8 -o vectors.u8bin")]
pub(crate) struct Gen {
    /// Number of vectors
    #[arg(long, value_name = "N")]
    pub(crate) rows: u64,
    /// Number of elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements
    #[arg(long, value_name = "T", default_value_t = Element::F32, value_parser = choice::<Element>())]
    pub(crate) element: Element,
    /// How hard they are to join: 1 is like SIFT descriptors, 0 gives copies of a few vectors, above 1 gives fewer
    /// groups
    #[arg(long, value_name = "H", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) hardness: f64,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// File to write: .fbin, .u8bin or .i8bin, depending on the element type, or .npy
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin groundtruth vectors.fbin --eps 0.4 --sample 1000 -o pairs.parquet\n  \
    adjoin groundtruth --base_file b.bin --query_file q.bin --data_type float --dist_fn l2 --K 100 --gt_file gt.bin")]
pub(crate) struct Groundtruth {
    /// Files, folders or globs that `build` reads; finds their pairs within a threshold
    #[arg(required_unless_present = "base_file", value_name = "SOURCE", value_parser = NonEmpty::new(),
        value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<String>,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    /// Number of random rows to compare with all [default: all rows]
    #[arg(long, value_name = "N", help_heading = INPUT)]
    pub(crate) sample: Option<u64>,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// File of the pairs: .parquet, .csv or .jsonl, or - for standard output
    #[arg(short, long, value_name = "FILE", required_unless_present = "base_file", value_parser = NonEmpty::new(),
        value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: Option<String>,
    #[command(flatten)]
    pub(crate) files: TruthFiles,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Neighbors of queries, with the flags of DiskANN's compute_groundtruth.
#[derive(Debug, Args)]
#[command(next_help_heading = "Neighbors of queries, by the flags of DiskANN's compute_groundtruth")]
pub(crate) struct TruthFiles {
    /// Vectors to search: u32 rows, u32 dimensions, then the rows, whatever the file's extension
    #[arg(long = "base_file", value_name = "FILE",
        requires_all = ["query_file", "gt_file", "data_type", "dist_fn"],
        conflicts_with_all = ["sources", "eps", "min_similarity", "sample", "seed", "output", "vector_column", "id_column",
            "no_ids", "split"])]
    pub(crate) base_file: Option<PathBuf>,
    /// Queries, in the same format
    #[arg(long = "query_file", value_name = "FILE", requires = "base_file")]
    pub(crate) query_file: Option<PathBuf>,
    /// File of the result: i32 queries, i32 K, u32 ids, f32 distances
    #[arg(long = "gt_file", value_name = "FILE", requires = "base_file")]
    pub(crate) gt_file: Option<PathBuf>,
    /// Element type of both files
    #[arg(long = "data_type", value_name = "TYPE", requires = "base_file", value_enum)]
    pub(crate) data_type: Option<DiskAnnElement>,
    /// Distance: l2 (squared), mips (inner product) or cosine (2 - 2 cos)
    #[arg(long = "dist_fn", value_name = "NAME", requires = "base_file", value_enum)]
    pub(crate) dist_fn: Option<DiskAnnMetric>,
    /// Number of nearest rows to find for each query
    #[arg(long = "K", value_name = "K", requires = "base_file", conflicts_with = "range_threshold")]
    pub(crate) count: Option<u64>,
    /// Largest distance to a query, in the unit of the result; the least inner product for mips
    #[arg(long = "range_threshold", value_name = "R", requires = "base_file", allow_negative_numbers = true)]
    pub(crate) range_threshold: Option<f64>,
    /// Format of rows within a threshold: bigann, with distances, or diskann, without
    #[arg(long = "range_form", value_name = "NAME", requires = "range_threshold", conflicts_with = "count", 
        default_value_t = RangeForm::BigAnn, value_parser = choice::<RangeForm>())]
    pub(crate) range_form: RangeForm,
    /// Ids of the base rows, instead of row numbers: u32 rows, u32 1, u32 tags
    #[arg(long = "tags_file", value_name = "FILE", requires = "base_file")]
    pub(crate) tags_file: Option<PathBuf>,
}

/// Element types by the names of DiskANN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskAnnElement {
    Float,
    Int8,
    Uint8,
}

impl From<DiskAnnElement> for Element {
    fn from(element: DiskAnnElement) -> Self {
        match element {
            DiskAnnElement::Float => Self::F32,
            DiskAnnElement::Int8 => Self::I8,
            DiskAnnElement::Uint8 => Self::U8,
        }
    }
}

/// Distances by the names of DiskANN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskAnnMetric {
    L2,
    Mips,
    Cosine,
}

impl From<DiskAnnMetric> for Metric {
    fn from(metric: DiskAnnMetric) -> Self {
        match metric {
            DiskAnnMetric::L2 => Self::L2,
            // MIPS is short for maximum inner product search.
            DiskAnnMetric::Mips => Self::Ip,
            DiskAnnMetric::Cosine => Self::Cosine,
        }
    }
}
