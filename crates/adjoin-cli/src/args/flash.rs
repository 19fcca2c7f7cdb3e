//! Flags of the model of flash devices as typed.

use std::path::PathBuf;

use adjoin::{GraphKind, VectorOrder, flash_model::Platform};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::choices::{choice, one_of};
use super::groups::{OUTPUT, Replace, Resources};

#[derive(Debug, Subcommand)]
pub(crate) enum Flash {
    /// Estimate how long a trace, or the searches of a graph, would take on a device
    Run(FlashRun),
    /// Run once per value of a figure or an option, and write CSV or a page with charts
    Sweep(FlashSweep),
    /// Measure the disk under a folder, and write a device that behaves like it
    Calibrate(FlashCalibrate),
}

/// The device to model.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// Device: ndsearch, mqsim, femu-tlc, z-nand, virtual-disk, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "ndsearch")]
    pub(crate) model: String,
    /// Another value for a figure of the device, in its unit, e.g. timing.read=77.5
    #[arg(long = "set", value_name = "FIGURE=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Vectors and queries, and how they are searched.
#[derive(Debug, Clone, Args)]
pub(crate) struct SearchedSet {
    /// Vectors to search: files, folders or globs
    #[arg(value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<String>,
    /// Queries: files, folders or globs
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) queries: Vec<String>,
    /// Graph: Vamana (DiskANN), or HNSW with R neighbors (--degree) in the lowest layer and half as many above
    #[arg(long, value_name = "NAME", default_value_t = GraphKind::Vamana, value_parser = choice::<GraphKind>())]
    pub(crate) graph: GraphKind,
    /// Most neighbors of a vertex of the graph
    #[arg(long, value_name = "R", default_value_t = 32)]
    pub(crate) degree: usize,
    /// Candidates that a search keeps
    #[arg(long, value_name = "L", default_value_t = 64, value_parser = count)]
    pub(crate) list: usize,
    /// Number of neighbors to find for each query
    #[arg(short, long = "neighbors", value_name = "K", default_value_t = 10, value_parser = count)]
    pub(crate) k: usize,
    /// Number of queries per batch
    #[arg(long, value_name = "N", default_value_t = 2_048, value_parser = count)]
    pub(crate) batch: usize,
    /// Fraction of the vectors in memory: host memory for processors, the device's DRAM for other platforms
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) memory_share: f64,
    /// Order of vectors on pages
    #[arg(long, value_name = "NAME", default_value_t = VectorOrder::Degree, value_parser = choice::<VectorOrder>())]
    pub(crate) layout: VectorOrder,
    /// Mapping of pages to planes
    #[arg(long, value_name = "NAME", default_value = "multi-plane", value_enum)]
    pub(crate) mapping: PageMapping,
    /// Disable dynamic allocating: each query reads its own pages
    #[arg(long)]
    pub(crate) no_allocating: bool,
    /// Disable speculation: read nothing ahead
    #[arg(long)]
    pub(crate) no_speculating: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  adjoin flash run --trace trace.txt --model femu-tlc\n  \
    adjoin flash run vectors.u8bin --queries queries.u8bin --platform ndsearch -o run.html")]
pub(crate) struct FlashRun {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) searched: SearchedSet,
    /// Trace to replay instead of searches, from --trace of another command
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["inputs", "queries"])]
    pub(crate) trace: Option<PathBuf>,
    /// Most concurrent reads of the trace
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(crate) depth: usize,
    /// Submit each read no earlier than in the trace
    #[arg(long, requires = "trace")]
    pub(crate) as_timed: bool,
    /// Number of elements to compare each byte of the trace with, where the platform compares
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = comparisons)]
    pub(crate) comparisons: f64,
    /// Platform that computes [default: cpu for a trace, else ndsearch]
    #[arg(long, value_name = "NAME", value_parser = one_of(&Platform::ALL, Platform::name))]
    pub(crate) platform: Option<Platform>,
    /// File of a timeline for ui.perfetto.dev
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) perfetto: Option<PathBuf>,
    /// File of the result: .json, .csv or .html (a page with charts) [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  adjoin flash sweep --trace trace.txt --over depth=1,8,32 -o depths.csv")]
pub(crate) struct FlashSweep {
    #[command(flatten)]
    pub(crate) run: FlashRun,
    /// Parameter to vary: a figure, or batch, list, depth, memory-share or platform, with its values, e.g. depth=1,8,32
    #[arg(long, value_name = "NAME=V,V,...")]
    pub(crate) over: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  adjoin flash calibrate /data -o disk.toml")]
pub(crate) struct FlashCalibrate {
    /// Folder on the disk; a file is created there and removed
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// Size of that file
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) size: String,
    /// Number of measurements of each kind of read
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Traces to replay in that file and on the model, between the measurements
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) replay: Vec<PathBuf>,
    /// Most concurrent reads of a trace
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(crate) depth: usize,
    /// File of the device (TOML)
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Mapping of pages to planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageMapping {
    MultiPlane,
    Linear,
}

/// Limit on candidates, queries or concurrent reads, which no device exceeds.
const COUNT_MAX: usize = 1 << 20;
/// Limit on the elements per byte, which no comparison exceeds.
const COMPARISONS_MAX: f64 = 1e6;

/// Parses a number of candidates, queries or reads.
///
/// # Errors
/// If it is not such a number.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("give a whole number from 1 to {COUNT_MAX}"))
}

fn comparisons(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=COMPARISONS_MAX).contains(number));
    number.ok_or_else(|| format!("give a number from 0 to {COMPARISONS_MAX}"))
}
