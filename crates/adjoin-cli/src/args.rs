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
pub(crate) use flash::{Flash, FlashCalibrate, FlashRun, FlashSweep, FlashTables, ModelOptions, SearchedSet, count};
pub(crate) use serve::{BenchServe, Serve};

/// Joins and searches vectors that do not fit in memory: within the memory you set, and to the recall you set.
#[derive(Debug, Parser)]
#[command(name = "adjoin", version, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lay vectors on disk so that near ones lie together
    Build(Build),
    /// Add rows to a store, and remove others from it
    Append(Append),
    /// Find every pair of vectors within a threshold
    Join(Box<Join>),
    /// Write a data set again without its near-duplicates
    Dedupe(Dedupe),
    /// Find the nearest rows of queries in a store, an index or a collection
    Search(Search),
    /// Build a graph index: few reads for each query
    #[command(subcommand)]
    Index(Index),
    /// Create and change a collection: vectors that are inserted, updated and deleted
    #[command(subcommand)]
    Collection(Collection),
    /// Answer searches over HTTP
    Serve(Serve),
    /// Send searches to a server at random moments, and measure how long answers take
    BenchServe(BenchServe),
    /// Show what a join would find and cost, from a sample of a source, or its plan, from a store
    Explain(Explain),
    /// Show the contents of a store, an index or a collection
    Info(Info),
    /// Read every byte of a store, an index or a collection, and list damage
    Verify(Verify),
    /// Make a file of random vectors that are as hard to join as real ones
    Gen(Gen),
    /// Find the true pairs or neighbors by comparing everything with everything
    Groundtruth(Groundtruth),
    /// Make a page to look at from the pairs of a join
    Report(Report),
    /// Model another device: what would it bring?
    #[command(subcommand)]
    Flash(Flash),
    /// Print the manual page
    Man,
    /// Print what a shell completes
    Completions(Completions),
}

/// What every command that computes takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Resources {
    /// Memory of the whole process, such as 51MB, 2GiB, or 80% of what the machine or its cgroup has; half of that where not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Threads that compute; as many as the machine or its cgroup runs at once where not given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Level of the distance kernels: reference, avx2 or avx512-vnni (for experts)
    #[arg(long, value_name = "K", hide_short_help = true)]
    pub(crate) kernel: Option<String>,
    /// How many reads are kept in flight: io_uring or pread; io_uring where the system allows it (for experts)
    #[arg(long, value_name = "D", hide_short_help = true, value_parser = ["io_uring", "pread"])]
    pub(crate) device: Option<String>,
    /// Print neither progress nor summary
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Where temporary files go.
#[derive(Debug, Args)]
pub(crate) struct TemporaryPlace {
    /// Folder for temporary files; beside what is written where not given
    #[arg(long, value_name = "DIR")]
    pub(crate) temporary: Option<PathBuf>,
}

/// Which columns of a table are meant.
#[derive(Debug, Args)]
pub(crate) struct ColumnOptions {
    /// Column of the vectors, s.v for a field of a struct; the only list of numbers where not given
    #[arg(long, value_name = "C")]
    pub(crate) vector_column: Option<String>,
    /// Column of the ids; the column `id` where there is one, else rows go by their number
    #[arg(long, value_name = "C")]
    pub(crate) id_column: Option<String>,
    /// Let rows go by their number, even where there is a column `id`
    #[arg(long, conflicts_with = "id_column")]
    pub(crate) no_ids: bool,
    /// Split of a folder in Hugging Face's layout, such as train; all of them where not given
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
}

/// How a store is built.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Number of buckets; by the number of rows where not given
    #[arg(long, value_name = "M")]
    pub(crate) buckets: Option<u32>,
    /// Seed of whatever is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rows without a usable vector (null, NaN, infinite): error or skip
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// Ids that occur more than once: error or keep
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "keep"])]
    pub(crate) on_duplicate_id: String,
}

/// What is kept beside vectors.
#[derive(Debug, Args)]
pub(crate) struct Attributes {
    /// Columns of a SOURCE that are kept, for --where of searches; s.c for a field of a struct
    #[arg(long = "attributes", value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new())]
    pub(crate) names: Vec<String>,
}

/// The threshold: exactly one of both.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Threshold {
    /// Pairs at most this far apart (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Pairs at least this similar (cosine)
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
}

/// Which pairs a join finds: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PairTarget {
    /// Pairs at most this far apart (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Pairs at least this similar (cosine)
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
    /// Each row with its so many nearest neighbors, itself left out
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["what", "kept", "keep_rule", "strategy", "cache", "yes", "resume", "with", "new", "condition", "where_other", "where_pair"])]
    pub(crate) nearest: Option<u64>,
    /// With --output keep, of a SOURCE: pairs within the threshold that leaves so many rows, about
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["with", "new", "condition", "where_other", "where_pair"])]
    pub(crate) target_rows: Option<u64>,
}

/// The threshold, at most one of both: of a source, several are told of anyway.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OptionalThreshold {
    /// Pairs at most this far apart (L2, the true distance); of a STORE a threshold is needed
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// Pairs at least this similar (cosine)
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
}

/// How many of the pairs are wanted.
#[derive(Debug, Args)]
pub(crate) struct RecallOptions {
    /// Find at least this share, of all pairs and of the average vector's; 0.95 where not given, or all if that is cheap
    #[arg(long, value_name = "R", conflicts_with = "exact", allow_negative_numbers = true)]
    pub(crate) recall: Option<f64>,
    /// Find every pair
    #[arg(long)]
    pub(crate) exact: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Files, folders of shards (with the folders in them) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .fbin, .u8bin, .i8bin, .fvecs, .bvecs; or a collection as it is now
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    /// Folder of the store
    #[arg(short, long, value_name = "STORE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) attributes: Attributes,
    /// Column by which rows are sorted within buckets, so that a --where that asks for a range of it reads parts of these; kept as an attribute too
    #[arg(long, value_name = "COLUMN", value_parser = NonEmpty::new())]
    pub(crate) sort_by: Option<String>,
    /// Metric of the joins and searches to come: l2 or cosine; or ip, inner products, for searches alone
    #[arg(long, value_name = "METRIC", default_value = "l2", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: String,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Strategies beside the default, such as centers=random
    #[arg(long, value_name = "KEY=NAME,...", hide_short_help = true)]
    pub(crate) strategy: Option<String>,
    /// Keep beside the store what was done, and go on with what an earlier run of the same command has kept: give it from the first run on
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace a store that is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// A store, or what `build` takes: the store is then built in a temporary place first
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    /// Join each row with those of this set instead of with each other: the other rows are on the right of pairs; counts are of the first set, and keep leaves out rows of it that are near one of the other
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) with: Vec<String>,
    /// Rows that come to those of STORE: find their pairs, with each other and with those, as a join of all would; they are numbered behind those, counts are of new rows, and keep leaves out new rows
    #[arg(long, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), conflicts_with = "with")]
    pub(crate) new: Vec<String>,
    /// Join only rows whose attributes meet this condition, as in SQL, such as "lang = 'en' AND year >= 2020"; of two sets those of the first
    #[arg(long = "where", value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) condition: Option<String>,
    /// The same for the rows of the set that is named by --with
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) where_other: Option<String>,
    /// Find only pairs of which this is true, such as "left.source <> right.source": comparisons of the two rows, of which the earlier one is on the left, or that of the first set
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) where_pair: Option<String>,
    #[command(flatten)]
    pub(crate) sought: PairTarget,
    /// With --nearest: only neighbors within this threshold, a distance (L2) or a similarity (cosine)
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with_all = ["eps", "min_similarity", "target_rows"])]
    pub(crate) within: Option<f64>,
    /// With --nearest or --target-rows, of a SOURCE: the metric, l2 (where not given), cosine, or of neighbors ip (inner products)
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// What is wanted: every pair; how many neighbors each row has; which rows are connected by chains of pairs; which rows to remove
    #[arg(long = "output", value_name = "WHAT", default_value = "pairs", value_parser = ["pairs", "counts", "clusters", "keep"])]
    pub(crate) what: String,
    /// Where that goes: a .parquet, .csv or .jsonl file, or - for standard output; only a summary where not given
    #[arg(short, value_name = "OUT", value_parser = NonEmpty::new())]
    pub(crate) output: Option<String>,
    /// With --output keep: a file for the ids of the rows to keep
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) kept: Option<String>,
    /// With --output keep: remove a row if a kept row is within the threshold (greedy), or if it is not the first of its cluster (cluster)
    #[arg(long, value_name = "RULE", default_value = "greedy", value_parser = ["greedy", "cluster"])]
    pub(crate) keep_rule: String,
    /// Write what the run did to a JSON file
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Strategies beside the default, such as rule=triangle or centers=random
    #[arg(long, value_name = "KEY=NAME,...", hide_short_help = true)]
    pub(crate) strategy: Option<String>,
    /// Bytes of the cache of buckets; what the budget leaves where not given (for experts)
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(crate) cache: Option<String>,
    /// Write a result that may not fit on the disk
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write down every operation on files, with its time (for experts)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) trace: Option<PathBuf>,
    /// Keep beside the result what was done, and go on with what an earlier run of the same command has kept: give it from the first run on
    #[arg(long)]
    pub(crate) resume: bool,
    /// Replace a result that is there
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
    /// Filter on the columns of rows, as in SQL, such as "lang = 'en' AND year >= 2020"
    #[arg(long = "where", value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) condition: Option<String>,
    /// Other vectors that are distributed like the queries, to calibrate the recall with [default: rows of FOLDER]
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
    /// How graphs are walked, such as entry=vertex, beam=4, walks=1, ahead=1 or expanded=0.5 (for experts)
    #[arg(long, value_name = "KEY=VALUE,...", hide_short_help = true)]
    pub(crate) strategy: Option<String>,
    /// Replace existing results
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
    /// Lay vectors on disk with their neighbors in a graph
    Build(IndexBuild),
    /// Put the vectors of an index on its pages in another order
    Relayout(IndexRelayout),
}

/// What an index is like, however it comes about.
#[derive(Debug, Args)]
pub(crate) struct IndexShape {
    /// Neighbors of a vector at most (R)
    #[arg(long, value_name = "R", default_value_t = 32)]
    pub(crate) degree: usize,
    /// Candidates that are looked at for the neighbors of a vector (L)
    #[arg(long, value_name = "L", default_value_t = 75)]
    pub(crate) build_list: usize,
    /// Leave out a neighbor where another one is nearer to it by this factor (for experts)
    #[arg(long, value_name = "A", default_value_t = 1.2, hide_short_help = true)]
    pub(crate) alpha: f64,
    /// Bytes of the code of a vector, which is held in memory
    #[arg(long, value_name = "B", default_value_t = 32)]
    pub(crate) code_bytes: usize,
    /// Size of a page, which is read at once: 4KiB, 8KiB or 16KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) page: String,
}

#[derive(Debug, Args)]
pub(crate) struct IndexBuild {
    /// A store, or what `build` takes: the store is then built in a temporary place first
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    /// Folder of the index
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) attributes: Attributes,
    /// Of a SOURCE, the metric of the searches to come: l2 (where not given), cosine or ip (inner products)
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine", "ip"])]
    pub(crate) metric: Option<String>,
    /// Make the graph of the nearest rows of each row (near), or by inserting row after row into a graph in memory (vamana)
    /// (for experts)
    #[arg(long, value_name = "NAME", default_value = "near", hide_short_help = true)]
    pub(crate) graph: String,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    /// Vectors of the graph that leads searches in, which is held in memory; one of a hundred, at most 10000, where not given
    /// (for experts)
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) navigation: Option<u32>,
    /// In which order vectors lie on pages: grown, or one of those to compare it with, such as bnf or rows (for experts)
    #[arg(long, value_name = "NAME", default_value = "grown", hide_short_help = true)]
    pub(crate) layout: String,
    /// Replace an index that is there
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
    /// The index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// In which order vectors are to lie on pages: grown, bnp, bnf, bns, margo, degree, bfs, gp1, gp2 or gp3
    #[arg(long, value_name = "NAME", default_value = "grown")]
    pub(crate) layout: String,
    /// Folder of the index that is written; where not given it takes the place of INDEX
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: Option<PathBuf>,
    /// Replace another index that is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A store, or what `build` takes: a sample of that is then compared with all of it, and nothing is built
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) threshold: OptionalThreshold,
    /// Of a SOURCE without a threshold: l2 (where not given) or cosine
    #[arg(long, value_name = "METRIC", value_parser = ["l2", "cosine"])]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Do not look for a rule that misses some pairs; plan to find every one
    #[arg(long, conflicts_with = "recall")]
    pub(crate) no_calibrate: bool,
    /// Print what is said of a SOURCE as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Strategies beside the default, such as rule=triangle
    #[arg(long, value_name = "KEY=NAME,...", hide_short_help = true)]
    pub(crate) strategy: Option<String>,
    /// Bytes of the cache of buckets; what the budget leaves where not given (for experts)
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(crate) cache: Option<String>,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// The store, the index or the collection
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Print the manifest as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The store, the index or the collection
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Memory of the whole process, such as 51MB, 2GiB, or 80% of what the machine or its cgroup has; half of that where not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Print nothing but damage
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// Number of vectors
    #[arg(long, value_name = "N")]
    pub(crate) rows: u64,
    /// Elements of a vector
    #[arg(long, value_name = "D")]
    pub(crate) dimensions: usize,
    /// Type of the elements: f32, f16, u8 or i8
    #[arg(long, value_name = "T", default_value = "f32", value_parser = ["f32", "f16", "u8", "i8"])]
    pub(crate) element: String,
    /// How hard they are to join: 1 is like SIFT descriptors, 0 gives copies of a few vectors, above 1 there are fewer groups
    #[arg(long, value_name = "H", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) hardness: f64,
    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The file: .fbin, .u8bin or .i8bin by the element type, or .npy
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Groundtruth {
    /// What `build` takes: its pairs within a threshold are found
    #[arg(required_unless_present = "base_file", value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Pairs at most this far apart (L2, the true distance)
    #[arg(long, value_name = "E", allow_negative_numbers = true, conflicts_with = "min_similarity")]
    pub(crate) eps: Option<f64>,
    /// Pairs at least this similar (cosine)
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) min_similarity: Option<f64>,
    /// Only so many rows, drawn at random, are compared with all; all rows where not given
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<u64>,
    /// Seed of the drawing
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the pairs go: a .parquet, .csv or .jsonl file, or - for standard output
    #[arg(short, long, value_name = "OUT", required_unless_present = "base_file", value_parser = NonEmpty::new())]
    pub(crate) output: Option<String>,
    #[command(flatten)]
    pub(crate) files: TruthFiles,
    /// Replace a result that is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// The neighbors of queries, by the flags of DiskANN's compute_groundtruth.
#[derive(Debug, Args)]
#[command(next_help_heading = "Neighbors of queries, by the flags of DiskANN's compute_groundtruth")]
pub(crate) struct TruthFiles {
    /// The vectors that are found: u32 rows, u32 dimensions, then the rows, whatever the ending is
    #[arg(long = "base_file", value_name = "FILE",
        requires_all = ["query_file", "gt_file", "data_type", "dist_fn"],
        conflicts_with_all = ["sources", "eps", "min_similarity", "sample", "seed", "output", "vector_column", "id_column",
            "no_ids", "split"])]
    pub(crate) base_file: Option<PathBuf>,
    /// The queries, laid out as that
    #[arg(long = "query_file", value_name = "FILE", requires = "base_file")]
    pub(crate) query_file: Option<PathBuf>,
    /// Where the truth goes: i32 queries, i32 K, u32 ids, f32 distances
    #[arg(long = "gt_file", value_name = "FILE", requires = "base_file")]
    pub(crate) gt_file: Option<PathBuf>,
    /// Elements of both files: float, int8 or uint8
    #[arg(long = "data_type", value_name = "TYPE", requires = "base_file", value_parser = ["float", "int8", "uint8"])]
    pub(crate) data_type: Option<String>,
    /// What is near: l2 (distances are squared), mips (inner products) or cosine (2 - 2 cos)
    #[arg(long = "dist_fn", value_name = "NAME", requires = "base_file", value_parser = ["l2", "mips", "cosine"])]
    pub(crate) dist_fn: Option<String>,
    /// So many nearest rows of each query
    #[arg(long = "K", value_name = "K", requires = "base_file", conflicts_with = "range_threshold")]
    pub(crate) count: Option<u64>,
    /// All rows at most so far from a query, in the distances that are written; of inner products, at least so large
    #[arg(long = "range_threshold", value_name = "R", requires = "base_file", allow_negative_numbers = true)]
    pub(crate) range_threshold: Option<f64>,
    /// Who reads rows within a threshold: bigann, with distances, or diskann, without
    #[arg(long = "range_form", value_name = "NAME", requires = "range_threshold", conflicts_with = "count", default_value = "bigann",
        value_parser = ["bigann", "diskann"])]
    pub(crate) range_form: String,
    /// Names of the rows of the base, which are then the ids: u32 rows, u32 1, u32 tags
    #[arg(long = "tags_file", value_name = "FILE", requires = "base_file")]
    pub(crate) tags_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Dedupe {
    /// Files, folders of shards (with the folders in them) or globs: Parquet, Arrow, JSON lines, .npy, .npz, .fbin, .u8bin, .i8bin, .fvecs, .bvecs
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) sources: Vec<String>,
    /// Where the data set goes: a file where SOURCE is one file, else a folder, with the files as they are called in SOURCE
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    /// Of near rows, which stays: the first by these columns, such as "length(text) desc, date", nulls last unless NULLS FIRST is said; the first of SOURCE where not given
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) keep_by: Option<String>,
    /// Rows for which this is equal count as one and are not compared: a column, or normalize(COLUMN) for equal words
    #[arg(long, value_name = "SQL", value_parser = NonEmpty::new())]
    pub(crate) exact_text: Option<String>,
    /// A list of the rows that went, with the row that stays for each and why: a .parquet, .csv or .jsonl file
    #[arg(long, value_name = "FILE", value_parser = NonEmpty::new())]
    pub(crate) removed: Option<String>,
    #[command(flatten)]
    pub(crate) columns: ColumnOptions,
    /// Rows without a usable vector (null, NaN, infinite): error, or skip, which keeps them all
    #[arg(long, value_name = "WHAT", default_value = "error", value_parser = ["error", "skip"])]
    pub(crate) on_bad: String,
    /// Seed of whatever is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write what the run did to a JSON file
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Replace files that are there; a folder is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Pairs that a join wrote: .parquet, .csv or .jsonl
    #[arg(value_name = "RESULT")]
    pub(crate) result: PathBuf,
    /// What that run did, as its --stats wrote it
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// A table of ids with names or texts: .parquet, .csv or .jsonl; a file, a folder of shards or a glob. Of pairs of two sets that of the rows on the left
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new())]
    pub(crate) names: Option<String>,
    /// Its column of ids; `id` where not given, or rows go by their number where there is none
    #[arg(long, value_name = "C")]
    pub(crate) id_column: Option<String>,
    /// Its column of texts; its first column of text that is not the ids where not given
    #[arg(long, value_name = "C")]
    pub(crate) name_column: Option<String>,
    /// Of pairs that `join --with` wrote: the table of the rows on the right, which may be the same one
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new(), requires = "names")]
    pub(crate) with_names: Option<String>,
    /// Its column of ids, as --id-column
    #[arg(long, value_name = "C", requires = "with_names")]
    pub(crate) with_id_column: Option<String>,
    /// Its column of texts, as --name-column
    #[arg(long, value_name = "C", requires = "with_names")]
    pub(crate) with_name_column: Option<String>,
    /// The page
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: PathBuf,
    /// Replace a page that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory of the whole process, such as 512MiB or 80%; half of what the machine or its cgroup has where not given
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Print no summary
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
