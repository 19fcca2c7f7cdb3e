//! Groups of options that several commands share.

use std::path::PathBuf;

use adjoin::{JoinEffort, OnBad, OnDuplicateId, Result, kernels::Kernel, parse_bytes};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueEnum, ValueHint};

use super::choices::choice;

/// Heading of options about files that are read.
pub(super) const INPUT: &str = "Input";
/// Heading of options that select what is found.
pub(super) const TARGET: &str = "What to find";
/// Heading of options about recall.
pub(super) const EFFORT: &str = "How hard to search";
/// Heading of options about files that are written.
pub(super) const OUTPUT: &str = "Output";
/// Heading of options about the machine.
pub(super) const RESOURCES: &str = "Resources";

/// Options of all commands that compute.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct Resources {
    #[command(flatten)]
    pub(crate) limit: MemoryOption,
    /// Number of compute threads [default: as many as the machine or cgroup runs at once]
    #[arg(long, value_name = "N", env = "ADJOIN_THREADS", hide_env_values = true)]
    pub(crate) threads: Option<usize>,
    /// Level of the distance kernels [default: the best of this processor] (for experts)
    #[arg(long, value_name = "K", env = "ADJOIN_KERNEL", hide_env_values = true, hide_short_help = true,
        value_parser = Kernel::NAMES)]
    pub(crate) kernel: Option<String>,
    /// Interface for concurrent reads [default: io_uring if the system allows it] (for experts)
    #[arg(long, value_name = "D", env = "ADJOIN_DEVICE", hide_env_values = true, hide_short_help = true)]
    pub(crate) device: Option<ReadInterface>,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
}

/// Memory of the process.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct MemoryOption {
    /// Limit for the whole process, e.g. 512MB, 2GiB or 80% of the machine or cgroup [default: 50%]
    #[arg(long, value_name = "SIZE", env = "ADJOIN_MEMORY", hide_env_values = true)]
    pub(crate) memory: Option<String>,
}

/// Whether a command prints progress and a summary.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct Quiet {
    /// Print neither progress nor a summary
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Form of progress on standard error; json writes an object per line, for programs
    #[arg(long, value_name = "FORM", default_value = "text", value_enum, hide_short_help = true)]
    pub(crate) progress: ProgressForm,
}

/// Form of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    Text,
    Json,
}

/// Interface for concurrent reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ReadInterface {
    IoUring,
    Pread,
}

/// Folder for temporary files.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct TemporaryPlace {
    /// Folder for temporary files [default: next to the output]
    #[arg(long, value_name = "DIR", env = "ADJOIN_TEMPORARY", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub(crate) temporary: Option<PathBuf>,
}

/// Size of the bucket cache of a join.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
pub(crate) struct CacheSize {
    /// Size of the bucket cache, e.g. 1GiB [default: the rest of the memory] (for experts)
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    cache: Option<String>,
}

impl CacheSize {
    /// Returns the bytes; `None` if the option is not given.
    ///
    /// # Errors
    /// If the value is not a size.
    pub(crate) fn bytes(&self) -> Result<Option<u64>> {
        self.cache.as_deref().map(parse_bytes).transpose()
    }

    pub(crate) fn is_given(&self) -> bool {
        self.cache.is_some()
    }
}

/// Whether existing files and folders are replaced.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct Replace {
    /// Replace an existing output
    #[arg(long)]
    pub(crate) force: bool,
}

/// File of the statistics of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct StatisticsOutput {
    /// File of the statistics (JSON)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) stats: Option<PathBuf>,
}

/// File of the operations of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct TraceOutput {
    /// File of a trace: every operation on files, with its time (for experts)
    #[arg(long, value_name = "FILE", hide_short_help = true, value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
}

/// How the vectors and ids in files are found.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
pub(crate) struct SourceColumns {
    /// Column of the vectors, e.g. emb, or s.emb for a field of a struct [default: the only list of numbers]
    #[arg(long, value_name = "C")]
    pub(crate) vector_column: Option<String>,
    /// Column of the ids [default: the column `id`, if present, else row numbers]
    #[arg(long, value_name = "C")]
    pub(crate) id_column: Option<String>,
    /// Identify rows by their number, even if there is a column `id`
    #[arg(long, conflicts_with = "id_column")]
    pub(crate) no_ids: bool,
    /// Split of a folder in Hugging Face's layout, e.g. train [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
}

/// Rows without a usable vector.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
pub(crate) struct BadRows {
    /// Action on rows without a usable vector (null, NaN, infinite)
    #[arg(long, value_name = "ACTION", default_value_t = OnBad::Error, value_parser = choice::<OnBad>())]
    pub(crate) on_bad: OnBad,
}

/// Seed of a run.
#[derive(Debug, Args)]
pub(crate) struct Seed {
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Options of a build.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
pub(crate) struct StoreOptions {
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    #[command(flatten)]
    pub(crate) bad_rows: BadRows,
    /// Action on ids that occur more than once
    #[arg(long, value_name = "ACTION", default_value_t = OnDuplicateId::Error, value_parser = choice::<OnDuplicateId>())]
    pub(crate) on_duplicate_id: OnDuplicateId,
    /// Number of buckets [default: depends on the number of rows]
    #[arg(long, value_name = "M")]
    pub(crate) buckets: Option<u32>,
    #[command(flatten)]
    pub(crate) seed: Seed,
}

/// Columns that are kept with vectors.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
pub(crate) struct KeptColumns {
    /// Columns of SOURCE to keep for filters (--where), e.g. lang,year, or s.c for a field of a struct
    #[arg(long = "columns", value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) names: Vec<String>,
}

/// Columns that a result carries.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct ResultColumns {
    /// Columns of the rows found to add to the result, e.g. text,url, of those that FOLDER keeps
    #[arg(long = "columns", value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) names: Vec<String>,
}

/// Threshold of pairs. A command says whether it needs one.
#[derive(Debug, Args)]
#[command(next_help_heading = TARGET)]
pub(crate) struct Threshold {
    /// Largest distance of a pair (L2, the true distance)
    #[arg(long, visible_alias = "radius", value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Least cosine similarity of a pair, e.g. 0.9
    #[arg(long, value_name = "S", allow_negative_numbers = true, conflicts_with = "eps")]
    pub(crate) min_similarity: Option<f64>,
}

/// Recall of a join.
#[derive(Debug, Args)]
#[command(next_help_heading = EFFORT)]
pub(crate) struct RecallOptions {
    /// Least recall, per pair and per vector on average, 0 to 1 [default: 0.95, or 1 if that is cheap]
    #[arg(long, value_name = "R", conflicts_with = "exact", allow_negative_numbers = true)]
    pub(crate) recall: Option<f64>,
    /// Find every pair
    #[arg(long)]
    pub(crate) exact: bool,
}

/// Meaning of the recall of a join.
#[derive(Debug, Args)]
#[command(next_help_heading = EFFORT)]
pub(crate) struct RecallMeaning {
    /// What --recall is a fraction of; `pairs` promises it of all pairs only, as papers do, and takes less time
    #[arg(long, value_name = "WHAT", requires = "recall", default_value = JoinEffort::RECALL_OF[0],
        value_parser = JoinEffort::RECALL_OF)]
    pub(crate) recall_of: String,
}
