//! Flags of `adjoin join`, `adjoin dedupe` and `adjoin explain` as typed.

use std::path::PathBuf;

use adjoin::{KeepRule, Metric, OnBad, ResultKind, ShingleUnit, TextOptions};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{ArgGroup, Args, ValueHint};

use super::choices::{choice, one_of};
use super::groups::{
    CacheSize, EFFORT, INPUT, OUTPUT, RecallMeaning, RecallOptions, Replace, Resources, Seed, SourceColumns,
    StatisticsOutput, StoreOptions, TARGET, TemporaryPlace, Threshold, TraceOutput,
};

/// Options that do not apply to nearest neighbors.
const NOT_OF_NEIGHBORS: [&str; 12] = [
    "result",
    "kept",
    "keep_rule",
    "columns",
    "cache",
    "yes",
    "resume",
    "with",
    "new",
    "condition",
    "where_other",
    "where_pair",
];

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").args(["eps", "min_similarity", "neighbors", "target_rows"]).required(true))]
#[command(after_help = "Examples:\n  \
    adjoin join embeddings/ --id-column name --min-similarity 0.9 -o pairs.parquet\n  \
    adjoin join docs.store --eps 0.4 --exact --result counts -o counts.csv\n  \
    adjoin join docs.parquet --min-similarity 0.9 --columns text,url -o pairs.parquet\n  \
    adjoin join test/ --with train.store --min-similarity 0.95 --result removed -o leaked.parquet\n  \
    adjoin join docs.store -k 15 --recall 0.95 -o neighbors.parquet\n\n\
    Exit code 1 means that the join finished but recall or memory missed its target; see --stats.")]
pub(crate) struct Join {
    /// A store, or any SOURCE that `build` reads, from which a temporary store is built
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    /// Number of nearest neighbors to find for each row, without the row itself
    #[arg(short = 'k', long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), help_heading = TARGET,
        conflicts_with_all = NOT_OF_NEIGHBORS)]
    pub(crate) neighbors: Option<u64>,
    /// With --neighbors: largest distance (L2) or least similarity (cosine) of a neighbor
    #[arg(long, value_name = "E", allow_negative_numbers = true, help_heading = TARGET,
        conflicts_with_all = ["eps", "min_similarity", "target_rows"])]
    pub(crate) within: Option<f64>,
    /// Number of rows to keep, approximately; sets the threshold (with --result removed or kept, for a SOURCE)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = TARGET,
        conflicts_with_all = ["with", "new", "condition", "where_other", "where_pair"])]
    pub(crate) target_rows: Option<u64>,
    /// With --neighbors or --target-rows of a SOURCE: the metric; ip is for --neighbors only [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = choice::<Metric>(), help_heading = TARGET)]
    pub(crate) metric: Option<Metric>,
    #[command(flatten)]
    pub(crate) other: OtherRows,
    #[command(flatten)]
    pub(crate) filters: JoinFilters,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    #[command(flatten)]
    pub(crate) meaning: RecallMeaning,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) output: JoinOutput,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) cache: CacheSize,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Rows that the first set is joined with.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
pub(crate) struct OtherRows {
    /// Second set to join with: its rows are on the right of pairs. Counts are of the first set, and rows of the first
    /// set are removed that are near the second
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) with: Vec<String>,
    /// New rows to join with STORE and with each other, numbered after the rows of STORE; counts and removed rows are of
    /// the new rows
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), conflicts_with = "with",
        value_hint = ValueHint::AnyPath)]
    pub(crate) new: Vec<String>,
}

/// Filters of a join.
#[derive(Debug, Args)]
#[command(next_help_heading = TARGET)]
pub(crate) struct JoinFilters {
    /// Filter on columns of rows, as in SQL, e.g. "lang = 'en' AND year >= 2020"; with two sets, on the first
    #[arg(long = "where", value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) condition: Option<String>,
    /// Filter on rows of the set of --with
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) where_other: Option<String>,
    /// Filter on pairs: comparisons of both rows, e.g. "left.source <> right.source"; left is the earlier row, or that
    /// of the first set
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) where_pair: Option<String>,
}

/// Results of a join.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub(crate) struct JoinOutput {
    /// Result: all pairs, the number of neighbors per row, clusters of connected rows, rows to remove, or rows to keep
    #[arg(long, value_name = "KIND", default_value_t = ResultKind::Pairs, value_parser = choice::<ResultKind>())]
    pub(crate) result: ResultKind,
    /// File of the result: .parquet, .csv or .jsonl, or - for standard output [default: summary only]
    #[arg(short = 'o', long = "output", value_name = "FILE", value_parser = NonEmpty::new(),
        value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,
    /// With --result removed: file of the kept rows too
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new(), value_hint = ValueHint::FilePath)]
    pub(crate) kept: Option<String>,
    /// Columns to add to pairs and removed rows (of both rows) and to clusters, e.g. text,url; a STORE must keep them
    #[arg(long, value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) columns: Vec<String>,
    /// With --result removed or kept: remove rows within the threshold of a kept row (greedy), or all but the first of
    /// each cluster (cluster)
    #[arg(long, value_name = "RULE", default_value_t = KeepRule::Greedy, value_parser = choice::<KeepRule>())]
    pub(crate) keep_rule: KeepRule,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) tracing: TraceOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
    /// Save checkpoints next to the result, to continue an interrupted run of the same command (both need --resume)
    #[arg(long)]
    pub(crate) resume: bool,
    /// Run even if the result may not fit on the disk
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Texts to compare instead of vectors.
#[derive(Debug, Args)]
#[command(next_help_heading = TARGET)]
pub(crate) struct Texts {
    /// Compare the texts of this column, not vectors: near texts share many shingles (runs of words)
    #[arg(long, value_name = "COLUMN", value_parser = NonEmpty::new(), conflicts_with_all = ["vector_column", "on_bad"])]
    pub(crate) text: Option<String>,
    /// With --text: least Jaccard similarity of two texts, the fraction of their shingles that both have
    #[arg(long, value_name = "J", allow_negative_numbers = true, default_value_t = TextOptions::MIN_JACCARD,
        conflicts_with_all = ["eps", "min_similarity"])]
    pub(crate) min_jaccard: f64,
    /// With --text: unit of shingles; characters for languages without spaces, such as Chinese
    #[arg(long, value_name = "UNIT", default_value_t = ShingleUnit::Words, value_parser = choice::<ShingleUnit>(),
        conflicts_with_all = ["eps", "min_similarity"])]
    pub(crate) shingles: ShingleUnit,
    /// With --text: number of words or characters of a shingle [default: 3 words or 9 characters]
    #[arg(long, value_name = "N", conflicts_with_all = ["eps", "min_similarity"])]
    pub(crate) shingle_size: Option<usize>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").args(["eps", "min_similarity", "text"]).required(true))]
#[command(after_help = "Examples:\n  \
    adjoin dedupe articles.parquet --min-similarity 0.9 -o clean.parquet\n  \
    adjoin dedupe articles.parquet --text body --min-jaccard 0.8 -o clean.parquet\n  \
    adjoin dedupe shards/ --eps 0.4 --keep-by \"length(text) desc\" -o clean/\n  \
    adjoin dedupe docs.parquet --eps 0.4 -o clean.parquet --removed removed.csv --columns text,url\n\n\
    Exit code 1 means that the run finished but recall or memory missed its target; see --stats.")]
pub(crate) struct Dedupe {
    /// Files, folders (with subfolders) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .safetensors, .fbin,
    /// .u8bin, .i8bin, .fvecs, .bvecs
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<String>,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    #[command(flatten)]
    pub(crate) texts: Texts,
    /// Order that decides which of several near rows is kept, e.g. "length(text) desc, date" [default: the order of
    /// SOURCE]. Nulls are last unless NULLS FIRST is given
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new(), help_heading = TARGET)]
    pub(crate) keep_by: Option<String>,
    /// Rows with equal values count as one and are not compared: a column, or normalize(COLUMN) for equal words
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new(), help_heading = TARGET)]
    pub(crate) exact_text: Option<String>,
    /// Rows to keep or to remove whatever they are near, as saved from the page of `adjoin report`: JSON lines such as
    /// {"id": "a", "decision": "keep"} or "remove"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = TARGET)]
    pub(crate) decisions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    /// Action on rows without a usable vector (null, NaN, infinite); skip keeps them all
    #[arg(long, value_name = "ACTION", default_value_t = OnBad::Error, value_parser = choice::<OnBad>(), help_heading = INPUT)]
    pub(crate) on_bad: OnBad,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// File of the new data set if SOURCE is one file, else a folder, with the file names of SOURCE
    #[arg(short, long, value_name = "OUT", help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    /// File of the removed rows, each with its kept row and the reason: .parquet, .csv or .jsonl
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new(), value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) removed: Option<String>,
    /// Columns of both rows to add to the file of removed rows, e.g. text,url: text, kept_text, url, kept_url
    #[arg(long = "columns", value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new(),
        requires = "removed", help_heading = OUTPUT)]
    pub(crate) removed_columns: Vec<String>,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    /// Replace existing files; folders are never replaced
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin explain embeddings/ --metric cosine --columns text\n  \
    adjoin explain docs.store --eps 0.4 --memory 2GB")]
pub(crate) struct Explain {
    /// A store, with a threshold; or any SOURCE that `build` reads: compares a sample with all rows, and builds nothing
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    /// Metric of a SOURCE if no threshold is given [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = one_of(Metric::OF_JOINS, adjoin::Choice::name),
        help_heading = TARGET)]
    pub(crate) metric: Option<Metric>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Plan to find every pair, without looking for a rule that misses some
    #[arg(long, conflicts_with = "recall", help_heading = EFFORT)]
    pub(crate) no_calibrate: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Columns of a SOURCE to show for two pairs near each threshold, e.g. text
    #[arg(long, value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new(), help_heading = OUTPUT)]
    pub(crate) columns: Vec<String>,
    /// Print the estimate for a SOURCE as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) cache: CacheSize,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
