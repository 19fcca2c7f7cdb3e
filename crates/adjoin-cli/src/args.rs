//! Flags as typed.

mod append;
mod collection;
mod flash;
mod serve;

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Parser, Subcommand};

pub(crate) use append::Append;
pub(crate) use collection::{
    Collection, CollectionBackup, CollectionCreate, CollectionMerge, CollectionSnapshot, CollectionWrite,
};
pub(crate) use flash::{Flash, FlashCalibrate, FlashRun, FlashSweep, ModelOptions, SearchedSet, count};
pub(crate) use serve::{BenchServe, Serve};

/// Joins and searches vectors that do not fit in memory, with the memory and the recall that you set
#[derive(Debug, Parser)]
#[command(name = "adjoin", version, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build a store: vectors on disk, grouped so that similar ones are close together
    Build(Build),
    /// Append rows to a store, and delete others
    Append(Append),
    /// Find every pair of vectors within a threshold
    Join(Box<Join>),
    /// Copy a data set without its near-duplicates
    Dedupe(Dedupe),
    /// Find the nearest rows of queries in a store, an index or a collection
    Search(Search),
    /// Build a graph index, which takes few reads per query
    #[command(subcommand)]
    Index(Index),
    /// Create, write to, merge or copy a collection: an index that accepts inserts, updates and deletes
    #[command(subcommand)]
    Collection(Collection),
    /// Answer searches over HTTP
    Serve(Serve),
    /// Send searches to a server at random times, and measure latencies
    BenchServe(BenchServe),
    /// Estimate the result and cost of a join from a sample of a source, or print the plan from a store
    Explain(Explain),
    /// Show the contents of a store, an index or a collection
    Info(Info),
    /// Read every byte of a store, an index or a collection, and list damage
    Verify(Verify),
    /// Generate random vectors that are as hard to join as real ones
    Gen(Gen),
    /// Find the true pairs or neighbors by brute force
    Groundtruth(Groundtruth),
    /// Write an HTML page about the pairs of a join
    Report(Report),
    /// Model flash devices: estimate how long reads or searches would take on them
    #[command(subcommand)]
    Flash(Flash),
    /// Print the manual page
    Man,
    /// Print a shell completion script
    Completions(Completions),
}

/// Options of all commands that compute.
#[derive(Debug, Clone, Args)]
pub(crate) struct Resources {
    /// Memory limit of the whole process, e.g. 512MB, 2GiB or 80% of the machine or cgroup [default: 50%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Number of compute threads [default: as many as the machine or cgroup runs at once]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Level of the distance kernels: reference, avx2 or avx512-vnni [default: best available] (for experts)
    #[arg(long, value_name = "K", hide_short_help = true)]
    pub(crate) kernel: Option<String>,
    /// Interface for concurrent reads [default: io_uring if the system allows it] (for experts)
    #[arg(long, value_name = "D", hide_short_help = true, value_parser = ["io_uring", "pread"])]
    pub(crate) device: Option<String>,
    /// Print neither progress nor a summary
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Folder for temporary files.
#[derive(Debug, Args)]
pub(crate) struct TemporaryPlace {
    /// Folder for temporary files [default: next to the output]
    #[arg(long, value_name = "DIR")]
    pub(crate) temporary: Option<PathBuf>,
}

/// Columns of a table.
#[derive(Debug, Args)]
pub(crate) struct ColumnOptions {
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

/// Options of a build.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Number of buckets [default: depends on the number of rows]
    #[arg(long, value_name = "M")]
    pub(crate) buckets: Option<u32>,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Action on rows without a usable vector (null, NaN, infinite)
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// Action on ids that occur more than once
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "keep"])]
    pub(crate) on_duplicate_id: String,
}

/// Columns that are kept with vectors.
#[derive(Debug, Args)]
pub(crate) struct Attributes {
    /// Columns of SOURCE to keep for filters (--where), e.g. lang,year, or s.c for a field of a struct
    #[arg(long = "columns", value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) names: Vec<String>,
}

/// Threshold: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Threshold {
    /// Largest distance of a pair (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Least cosine similarity of a pair, e.g. 0.9
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
}

/// Pairs to find: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PairTarget {
    /// Largest distance of a pair (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Least cosine similarity of a pair, e.g. 0.9
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
    /// Number of nearest neighbors to find for each row, without the row itself
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["what", "kept", "keep_rule", "cache", "yes", "resume", "with", "new", "condition", "where_other", "where_pair"])]
    pub(crate) nearest: Option<u64>,
    /// Number of rows to keep, approximately; sets the threshold (with --output keep, for a SOURCE)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["with", "new", "condition", "where_other", "where_pair"])]
    pub(crate) target_rows: Option<u64>,
}

/// Threshold: at most one of these. Without one, the command covers several thresholds of a source.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OptionalThreshold {
    /// Largest distance of a pair (L2, the true distance); a STORE needs this or --min-similarity
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Least cosine similarity of a pair, e.g. 0.9
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
}

/// Recall of a join.
#[derive(Debug, Args)]
pub(crate) struct RecallOptions {
    /// Least recall, per pair and per vector on average, 0 to 1 [default: 0.95, or 1 if that is cheap]
    #[arg(long, value_name = "R", conflicts_with = "exact", allow_negative_numbers = true)]
    pub(crate) recall: Option<f64>,
    /// Find every pair
    #[arg(long)]
    pub(crate) exact: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Files, folders (with subfolders) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .fbin, .u8bin, .i8bin,
    /// .fvecs, .bvecs; or a collection
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    /// Folder of the store
    #[arg(short, long, value_name = "STORE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) attributes: Attributes,
    /// Column by which rows are sorted within buckets, so that a filter on a range of it reads only parts of buckets;
    /// also kept for other filters
    #[arg(long, value_name = "COLUMN", value_parser = NonEmpty::new())]
    pub(crate) sort_by: Option<String>,
    /// Metric of joins and searches; ip (inner product) is for searches only
    #[arg(long, value_name = "METRIC", default_value = "l2", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: String,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Save checkpoints next to the store, to continue an interrupted run of the same command (both need --resume)
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace an existing store
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// A store, or any SOURCE that `build` reads, from which a temporary store is built
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    /// Second set to join with: its rows are on the right of pairs. Counts are of the first set, and keep removes rows
    /// of the first set that are near the second
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) with: Vec<String>,
    /// New rows to join with STORE and with each other, numbered after the rows of STORE; counts and removed rows are of
    /// the new rows
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), conflicts_with = "with")]
    pub(crate) new: Vec<String>,
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
    #[command(flatten)]
    pub(crate) sought: PairTarget,
    /// With --nearest: largest distance (L2) or least similarity (cosine) of a neighbor
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with_all = ["eps", "min_similarity", "target_rows"])]
    pub(crate) within: Option<f64>,
    /// With --nearest or --target-rows of a SOURCE: the metric; ip is for --nearest only [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Result: all pairs, the number of neighbors per row, clusters of connected rows, or rows to remove
    #[arg(long = "output", value_name = "WHAT", default_value = "pairs", value_parser = ["pairs", "counts", "clusters", "keep"])]
    pub(crate) what: String,
    /// File of the result: .parquet, .csv or .jsonl, or - for standard output [default: summary only]
    #[arg(short, value_name = "OUT", value_parser = NonEmpty::new())]
    pub(crate) output: Option<String>,
    /// With --output keep: file of the ids of the kept rows
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) kept: Option<String>,
    /// With --output keep: remove rows within the threshold of a kept row (greedy), or all but the first of each
    /// cluster (cluster)
    #[arg(long, value_name = "RULE", default_value = "greedy", value_parser = ["greedy", "cluster"])]
    pub(crate) keep_rule: String,
    /// File of the statistics (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Size of the bucket cache, e.g. 1GiB [default: the rest of the memory] (for experts)
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(crate) cache: Option<String>,
    /// Run even if the result may not fit on the disk
    #[arg(long)]
    pub(crate) yes: bool,
    /// File of a trace: every operation on files, with its time (for experts)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) trace: Option<PathBuf>,
    /// Save checkpoints next to the result, to continue an interrupted run of the same command (both need --resume)
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace an existing result
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Target of each query: exactly one of these.
#[derive(Debug, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetOptions {
    /// Number of neighbors to return for each query
    #[arg(short, value_name = "K", required_unless_present_any = ["radius", "min_similarity"], conflicts_with_all = ["radius", "min_similarity"])]
    pub(crate) k: Option<u64>,
    /// Largest distance of a hit (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with = "min_similarity")]
    pub(crate) radius: Option<f64>,
    /// Least cosine similarity of a hit
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
}

/// Effort of a search: at most one of these.
#[derive(Debug, Args)]
#[command(next_help_heading = "Effort")]
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

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin search vectors.store --queries queries.npy -k 10 -o hits.parquet\n  \
    adjoin search docs.collection --queries queries.npy -k 10 --where \"year >= 2020\" -o hits.csv")]
pub(crate) struct Search {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Queries: files of any format that `build` reads. A store as its own queries: each row without itself
    #[arg(long, required = true, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) queries: Vec<String>,
    /// Filter on the columns of rows, as in SQL, e.g. "lang = 'en' AND year >= 2020"
    #[arg(long = "where", value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) condition: Option<String>,
    /// Other vectors that are distributed like the queries, to calibrate the recall [default: rows of FOLDER]
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) calibrate_with: Option<String>,
    /// Seed of the calibration sample
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// File of the hits: .parquet, .csv or .jsonl, or - for standard output
    #[arg(short, long, value_name = "HITS", default_value = "-", value_parser = NonEmpty::new())]
    pub(crate) output: String,
    /// File of the statistics (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// File of a trace: every operation on files, with its time (for experts)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) trace: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    #[command(flatten)]
    pub(crate) effort: EffortArguments,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Index {
    /// Build an index from a store or from files
    Build(Box<IndexBuild>),
    /// Move the vectors of an index to other pages
    Relayout(IndexRelayout),
}

/// Options of the graph and the pages of an index.
#[derive(Debug, Args)]
pub(crate) struct IndexShape {
    /// Most neighbors of a vector in the graph (R)
    #[arg(long, value_name = "R", default_value_t = 32)]
    pub(crate) degree: usize,
    /// Candidates that a search for the neighbors of a vector keeps (L)
    #[arg(long, value_name = "L", default_value_t = 75)]
    pub(crate) build_list: usize,
    /// Prune a neighbor if another one is nearer to it by this factor (for experts)
    #[arg(long, value_name = "A", default_value_t = 1.2, hide_short_help = true)]
    pub(crate) alpha: f64,
    /// Bytes of the code of a vector, which is held in memory
    #[arg(long, value_name = "B", default_value_t = 32)]
    pub(crate) code_bytes: usize,
    /// Size of a page, the unit of reads: 4KiB, 8KiB or 16KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) page: String,
}

#[derive(Debug, Args)]
pub(crate) struct IndexBuild {
    /// A store, or any SOURCE that `build` reads, from which a temporary store is built
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    /// Folder of the index
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) attributes: Attributes,
    /// Metric of searches, if the input is a SOURCE [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    /// Number of vectors of the navigation graph, which is held in memory [default: 1 % of the rows, at most 10000]
    /// (for experts)
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) navigation: Option<u32>,
    /// Replace an existing index
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct IndexRelayout {
    /// An index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Folder of the new index [default: replaces INDEX]
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing index
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A store, or any SOURCE that `build` reads: compares a sample with all rows, and builds nothing
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) threshold: OptionalThreshold,
    /// Metric of a SOURCE if no threshold is given [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine"])]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Plan to find every pair, without looking for a rule that misses some
    #[arg(long, conflicts_with = "recall")]
    pub(crate) no_calibrate: bool,
    /// Print the estimate for a SOURCE as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Size of the bucket cache, e.g. 1GiB [default: the rest of the memory] (for experts)
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(crate) cache: Option<String>,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Print the manifest as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Memory limit of the whole process, e.g. 512MB, 2GiB or 80% of the machine or cgroup [default: 50%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Print damage only
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// Number of vectors
    #[arg(long, value_name = "N")]
    pub(crate) rows: u64,
    /// Number of elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements
    #[arg(long, value_name = "T", default_value = "f32", value_parser = ["f32", "f16", "u8", "i8"])]
    pub(crate) element: String,
    /// How hard they are to join: 1 is like SIFT descriptors, 0 gives copies of a few vectors, above 1 gives fewer
    /// groups
    #[arg(long, value_name = "H", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) hardness: f64,
    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// File to write: .fbin, .u8bin or .i8bin, depending on the element type, or .npy
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Groundtruth {
    /// Files, folders or globs that `build` reads; finds their pairs within a threshold
    #[arg(required_unless_present = "base_file", value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Largest distance of a pair (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with = "min_similarity")]
    pub(crate) eps: Option<f64>,
    /// Least cosine similarity of a pair, e.g. 0.9
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
    /// Number of random rows to compare with all [default: all rows]
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<u64>,
    /// Seed of the sample
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// File of the pairs: .parquet, .csv or .jsonl, or - for standard output
    #[arg(short, long, value_name = "OUT", required_unless_present = "base_file", value_parser = NonEmpty::new())]
    pub(crate) output: Option<String>,
    #[command(flatten)]
    pub(crate) files: TruthFiles,
    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,
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
    #[arg(long = "data_type", value_name = "TYPE", requires = "base_file", value_parser = ["float", "int8", "uint8"])]
    pub(crate) data_type: Option<String>,
    /// Distance: l2 (squared), mips (inner product) or cosine (2 - 2 cos)
    #[arg(long = "dist_fn", value_name = "NAME", requires = "base_file", value_parser = ["l2", "mips", "cosine"])]
    pub(crate) dist_fn: Option<String>,
    /// Number of nearest rows to find for each query
    #[arg(long = "K", value_name = "K", requires = "base_file", conflicts_with = "range_threshold")]
    pub(crate) count: Option<u64>,
    /// Largest distance to a query, in the unit of the result; the least inner product for mips
    #[arg(long = "range_threshold", value_name = "R", requires = "base_file", allow_negative_numbers = true)]
    pub(crate) range_threshold: Option<f64>,
    /// Format of rows within a threshold: bigann, with distances, or diskann, without
    #[arg(long = "range_form", value_name = "NAME", requires = "range_threshold", conflicts_with = "count", default_value = "bigann",
        value_parser = ["bigann", "diskann"])]
    pub(crate) range_form: String,
    /// Ids of the base rows, instead of row numbers: u32 rows, u32 1, u32 tags
    #[arg(long = "tags_file", value_name = "FILE", requires = "base_file")]
    pub(crate) tags_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Dedupe {
    /// Files, folders (with subfolders) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .fbin, .u8bin, .i8bin,
    /// .fvecs, .bvecs
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    /// File of the new data set if SOURCE is one file, else a folder, with the file names of SOURCE
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Order that decides which of several near rows is kept, e.g. "length(text) desc, date" [default: the order of
    /// SOURCE]. Nulls are last unless NULLS FIRST is given
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) keep_by: Option<String>,
    /// Rows with equal values count as one and are not compared: a column, or normalize(COLUMN) for equal words
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) exact_text: Option<String>,
    /// File of the removed rows, each with its kept row and the reason: .parquet, .csv or .jsonl
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) removed: Option<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Action on rows without a usable vector (null, NaN, infinite); skip keeps them all
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// File of the statistics (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Replace existing files; folders are never replaced
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Pairs from a join: .parquet, .csv or .jsonl
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// Statistics of the join, from its --stats
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Table of ids with names or texts: a .parquet, .csv or .jsonl file, a folder of shards or a glob; with two sets,
    /// of the left rows
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new())]
    pub(crate) names: Option<String>,
    /// Column of the ids in NAMES [default: `id`, if present, else row numbers]
    #[arg(long, value_name = "C")]
    pub(crate) id_column: Option<String>,
    /// Column of the texts in NAMES [default: the first text column other than the ids]
    #[arg(long, value_name = "C")]
    pub(crate) name_column: Option<String>,
    /// With pairs of `join --with`: the table of the right rows, which may be the same one
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new(), requires = "names")]
    pub(crate) with_names: Option<String>,
    /// Column of the ids in the table of --with-names; default as for --id-column
    #[arg(long, value_name = "C", requires = "with_names")]
    pub(crate) with_id_column: Option<String>,
    /// Column of the texts in the table of --with-names; default as for --name-column
    #[arg(long, value_name = "C", requires = "with_names")]
    pub(crate) with_name_column: Option<String>,
    /// File of the page, e.g. report.html
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: PathBuf,
    /// Replace an existing page
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory limit of the whole process, e.g. 512MB, 2GiB or 80% of the machine or cgroup [default: 50%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Print no summary
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to complete commands for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
