//! Flags of `adjoin index` as typed.

use std::path::PathBuf;

use adjoin::Metric;
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, Subcommand, ValueHint};

use super::choices::choice;
use super::groups::{KeptColumns, OUTPUT, Replace, Resources, StoreOptions, TemporaryPlace};

#[derive(Debug, Subcommand)]
pub(crate) enum Index {
    /// Build an index from a store or from files
    Build(Box<IndexBuild>),
    /// Move the vectors of an index to other pages
    Relayout(IndexRelayout),
}

/// Options of the graph and the pages of an index.
#[derive(Debug, Args)]
#[command(next_help_heading = "Index")]
pub(crate) struct IndexShape {
    /// Most neighbors of a vector in the graph (R) [default: 32, or 48 or 64 if a page holds as many vectors with them]
    #[arg(long, value_name = "R")]
    pub(crate) degree: Option<usize>,
    /// Candidates that a search for the neighbors of a vector keeps (L)
    #[arg(long, value_name = "L", default_value_t = 75)]
    pub(crate) build_list: usize,
    /// Prune a neighbor if another one is nearer to it by this factor (for experts)
    #[arg(long, value_name = "A", default_value_t = 1.2, hide_short_help = true)]
    pub(crate) alpha: f64,
    /// Bytes of the code of a vector, which is held in memory [default: one for four dimensions, at least 32]
    #[arg(long, value_name = "B")]
    pub(crate) code_bytes: Option<usize>,
    /// Size of a page, the unit of reads: 4KiB, 8KiB or 16KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) page: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin index build docs.store -o docs.index\n  \
    adjoin index build docs/ --metric cosine --columns lang,year -o docs.index --memory 8GB")]
pub(crate) struct IndexBuild {
    /// A store, or any SOURCE that `build` reads, from which a temporary store is built
    #[arg(required = true, value_name = "STORE|SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) inputs: Vec<String>,
    /// Folder of the index
    #[arg(short, long, value_name = "INDEX", value_hint = ValueHint::DirPath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) columns: KeptColumns,
    /// Metric of searches, if the input is a SOURCE [default: l2]
    #[arg(long, value_name = "METRIC", value_parser = choice::<Metric>())]
    pub(crate) metric: Option<Metric>,
    #[command(flatten)]
    pub(crate) shape: IndexShape,
    /// Number of vectors of the navigation graph, which is held in memory [default: 1 % of the rows, at most 10000]
    /// (for experts)
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Index")]
    pub(crate) navigation: Option<u32>,
    #[command(flatten)]
    pub(crate) replace: Replace,
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
    #[arg(value_name = "INDEX", value_hint = ValueHint::DirPath)]
    pub(crate) index: PathBuf,
    /// Folder of the new index [default: replaces INDEX]
    #[arg(short, long, value_name = "INDEX", value_hint = ValueHint::DirPath, help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
