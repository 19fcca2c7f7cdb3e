//! Flags of the model of flash devices as typed.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand};

use super::Resources;

#[derive(Debug, Subcommand)]
pub(crate) enum Flash {
    /// Say how long a trace, or the searches of a graph, would take on a device
    Run(FlashRun),
    /// The same for several values of a figure or an option, as CSV or a page with charts
    Sweep(FlashSweep),
    /// Measure the disk under a folder, and write a device that is like it
    Calibrate(FlashCalibrate),
    /// The tables of NDSearch's evaluation, made again with vectors of yours
    Tables(FlashTables),
}

/// Which device is modelled.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// The device: ndsearch, mqsim, femu-tlc, z-nand, virtual-disk, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "ndsearch")]
    pub(crate) model: String,
    /// A figure of the device with another value in its unit, such as timing.read=77.5
    #[arg(long = "set", value_name = "FIGURE=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Which vectors are searched, and for what.
#[derive(Debug, Clone, Args)]
pub(crate) struct SearchedSet {
    /// Vectors to search: files, folders or globs
    #[arg(value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) inputs: Vec<String>,
    /// The queries
    #[arg(long, value_name = "SOURCE", value_parser = NonEmpty::new())]
    pub(crate) queries: Vec<String>,
    /// The graph: that of DiskANN, or layers with as many neighbors in the lowest and half of that above
    #[arg(long, value_name = "NAME", default_value = "vamana", value_parser = ["vamana", "hnsw"])]
    pub(crate) graph: String,
    /// Most neighbors of a vertex of the graph
    #[arg(long, value_name = "R", default_value_t = 32)]
    pub(crate) degree: usize,
    /// Candidates that a search keeps
    #[arg(long, value_name = "L", default_value_t = 64, value_parser = count)]
    pub(crate) list: usize,
    /// Nearest that are wanted of each query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = count)]
    pub(crate) k: usize,
    /// Queries of a batch
    #[arg(long, value_name = "N", default_value_t = 2_048, value_parser = count)]
    pub(crate) batch: usize,
    /// Share of the vectors in the memory of the platform: host memory of processors, the device's DRAM elsewhere
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub(crate) memory_share: f64,
    /// Order of vectors on pages: rows, degree, bfs, bnp, bnf, bns, grown, margo, gp2 or gp3
    #[arg(long, value_name = "NAME", default_value = "degree")]
    pub(crate) layout: String,
    /// How pages are given to planes
    #[arg(long, value_name = "NAME", default_value = "multi-plane", value_parser = ["multi-plane", "linear"])]
    pub(crate) mapping: String,
    /// Let each query read for itself
    #[arg(long)]
    pub(crate) no_allocating: bool,
    /// Read nothing before it is wanted
    #[arg(long)]
    pub(crate) no_speculating: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct FlashRun {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) searched: SearchedSet,
    /// A trace whose reads are carried out instead, as --trace of other commands writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["inputs", "queries"])]
    pub(crate) trace: Option<PathBuf>,
    /// Reads of the trace that are under way at the same time, at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(crate) depth: usize,
    /// Ask for each read of the trace no earlier than it was asked for there
    #[arg(long, requires = "trace")]
    pub(crate) as_timed: bool,
    /// Elements that each byte of the trace is compared with where it comes to the platform
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = comparisons)]
    pub(crate) comparisons: f64,
    /// Where it runs: cpu, cpu-dram, gpu, smartssd, deepstore-channel, deepstore-chip or ndsearch; cpu for a trace, else
    /// ndsearch, where not given
    #[arg(long, value_name = "NAME")]
    pub(crate) platform: Option<String>,
    /// A picture of what happened when, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,
    /// The result as .json, .csv or .html, a page with charts; standard output where not given
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct FlashSweep {
    #[command(flatten)]
    pub(crate) run: FlashRun,
    /// What changes: a figure, or batch, list, depth, memory-share or platform, with its values
    #[arg(long, value_name = "NAME=V,V,...")]
    pub(crate) over: String,
}

#[derive(Debug, Args)]
pub(crate) struct FlashCalibrate {
    /// Folder on the disk; a file is written there and removed
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Bytes of that file
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub(crate) size: String,
    /// How often each kind of read is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Traces whose reads are carried out in that file and on the model, between the measurements
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Vec<PathBuf>,
    /// Reads of a trace that are under way at the same time, at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(crate) depth: usize,
    /// The device, as TOML
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
pub(crate) struct FlashTables {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    #[command(flatten)]
    pub(crate) searched: SearchedSet,
    /// Traces for a table of which device is best for which of them
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Vec<PathBuf>,
    /// Reads of a trace that are under way at the same time, at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    pub(crate) depth: usize,
    /// Elements that each byte of a trace is compared with
    #[arg(long, value_name = "N", default_value_t = 16.0, value_parser = comparisons)]
    pub(crate) comparisons: f64,
    /// The tables, as Markdown; standard output where not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// More candidates, queries or reads at once than this are no device's.
const COUNT_MAX: usize = 1 << 20;
/// More elements for a byte than this are no comparison.
const COMPARISONS_MAX: f64 = 1e6;

/// How many candidates, queries or reads, as typed.
///
/// # Errors
/// That it is no such number.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("give a whole number from 1 to {COUNT_MAX}"))
}

fn comparisons(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=COMPARISONS_MAX).contains(number));
    number.ok_or_else(|| format!("give a number from 0 to {COMPARISONS_MAX}"))
}
