//! Flags of `adjoin search` as typed.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{ArgGroup, Args, ValueHint};

use super::groups::{
    EFFORT, INPUT, OUTPUT, Replace, Resources, ResultColumns, Seed, SourceColumns, StatisticsOutput, TARGET,
    TraceOutput,
};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").args(["k", "radius", "min_similarity"]).required(true))]
#[command(after_help = "Examples:\n  adjoin search vectors.store --queries queries.npy -k 10 -o hits.parquet\n  \
    adjoin search docs.collection --queries q.npy -k 10 --where \"year >= 2020\" --columns text -o - | head\n\n\
    Exit code 1 means that the search finished but recall or memory missed its target; see --stats.")]
pub(crate) struct Search {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Queries: files of any format that `build` reads. A store as its own queries: each row without itself
    #[arg(long, required = true, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath,
        help_heading = INPUT)]
    pub(crate) queries: Vec<String>,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    #[command(flatten)]
    pub(crate) effort: EffortArguments,
    /// Other vectors that are distributed like the queries, to calibrate the recall [default: rows of FOLDER]
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath, help_heading = EFFORT)]
    pub(crate) calibrate_with: Option<String>,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// File of the hits: .parquet, .csv or .jsonl, or - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = NonEmpty::new(),
        value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: String,
    #[command(flatten)]
    pub(crate) result_columns: ResultColumns,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) tracing: TraceOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Target of each query: exactly one of the first three.
#[derive(Debug, Args)]
#[command(next_help_heading = TARGET)]
pub(crate) struct TargetOptions {
    /// Number of neighbors to return for each query
    #[arg(short, long = "neighbors", value_name = "K")]
    pub(crate) k: Option<u64>,
    /// Largest distance of a hit (L2, the true distance)
    #[arg(long, visible_alias = "eps", value_name = "E", allow_negative_numbers = true)]
    pub(crate) radius: Option<f64>,
    /// Least cosine similarity of a hit
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
    /// Filter on the columns of rows, as in SQL, e.g. "lang = 'en' AND year >= 2020"
    #[arg(long = "where", value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) condition: Option<String>,
}

/// Effort of a search: at most one of these.
#[derive(Debug, Args)]
#[command(next_help_heading = EFFORT)]
pub(crate) struct EffortArguments {
    /// Least mean recall over the queries [default: 0.95, or 1 if that is cheap]
    #[arg(long, value_name = "R", conflicts_with_all = ["exact", "nprobe", "list"], allow_negative_numbers = true)]
    pub(crate) recall: Option<f64>,
    /// Find every hit
    #[arg(long, conflicts_with_all = ["nprobe", "list", "calibrate_with"])]
    pub(crate) exact: bool,
    /// Number of nearest buckets of a store to probe, without a promise of recall (for experts)
    #[arg(long, value_name = "P", hide_short_help = true, conflicts_with_all = ["list", "calibrate_with"])]
    pub(crate) nprobe: Option<u32>,
    /// Candidates that a walk of a graph keeps (L), without a promise of recall (for experts)
    #[arg(short = 'L', long, value_name = "L", hide_short_help = true, conflicts_with = "calibrate_with")]
    pub(crate) list: Option<usize>,
}
