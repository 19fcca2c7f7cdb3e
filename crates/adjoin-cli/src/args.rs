//! Flags as typed.
//!
//! `groups` has the options that several commands share, `choices` the options with a closed set of values.

mod build;
mod choices;
mod collection;
mod flash;
mod folders;
mod generate;
mod get;
mod groups;
mod index;
mod join;
mod manual;
mod parts;
mod report;
mod search;
#[cfg(feature = "serve")]
mod serve;

use clap::{Parser, Subcommand};

pub(crate) use build::{Append, Build};
pub(crate) use collection::{
    Collection, CollectionBackup, CollectionCreate, CollectionMerge, CollectionSnapshot, CollectionWrite,
};
pub(crate) use flash::{Flash, FlashCalibrate, FlashRun, FlashSweep, ModelOptions, PageMapping, SearchedSet, count};
pub(crate) use folders::{Copy, Info, Verify};
pub(crate) use generate::{Gen, Groundtruth, TruthFiles};
pub(crate) use get::Get;
pub(crate) use groups::{
    MemoryOption, ProgressForm, Quiet, ReadInterface, Resources, SourceColumns, StoreOptions, TemporaryPlace,
};
pub(crate) use index::{Index, IndexBuild, IndexRelayout, IndexShape};
pub(crate) use join::{Dedupe, Explain, Join, JoinFilters, JoinOutput};
pub(crate) use manual::{Completions, Man};
pub(crate) use parts::{Merge, Plan, PlanBuild, RunPart};
pub(crate) use report::Report;
pub(crate) use search::{EffortArguments, Search};
#[cfg(feature = "serve")]
pub(crate) use serve::{BenchServe, LogForm, LogLevel, Serve};

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
    /// Plan a join in parts, to be run on many machines
    Plan(Box<Plan>),
    /// Plan a build in parts, to be run on many machines
    PlanBuild(Box<PlanBuild>),
    /// Run one part of a planned join
    RunPart(RunPart),
    /// Merge the results of all parts of a planned join or build
    Merge(Merge),
    /// Copy a data set without its near-duplicates
    Dedupe(Dedupe),
    /// Find the nearest rows of queries in a store, an index or a collection
    Search(Search),
    /// Fetch rows of a store, an index or a collection by their ids
    Get(Get),
    /// Build a graph index, which takes few reads per query
    #[command(subcommand)]
    Index(Index),
    /// Create, write to, merge or copy a collection: an index that accepts inserts, updates and deletes
    #[command(subcommand)]
    Collection(Collection),
    /// Answer searches over HTTP
    #[cfg(feature = "serve")]
    Serve(Serve),
    /// Send searches to a server at random times, and measure latencies
    #[cfg(feature = "serve")]
    BenchServe(BenchServe),
    /// Estimate the result and cost of a join from a sample of a source, or print the plan from a store
    Explain(Explain),
    /// Show the contents of a store, an index or a collection
    Info(Info),
    /// Read every byte of a store, an index or a collection, and list damage
    Verify(Verify),
    /// Copy a store, an index or a collection to or from an object store, and verify every byte
    Copy(Copy),
    /// Generate random vectors that are as hard to join as real ones
    Gen(Gen),
    /// Find the true pairs or neighbors by brute force
    Groundtruth(Groundtruth),
    /// Write an HTML page about a result: pairs, removed rows, clusters, neighbors or hits
    Report(Report),
    /// Model flash devices: estimate how long reads or searches would take on them
    #[command(subcommand)]
    Flash(Flash),
    /// Print the manual, or write it as files
    Man(Man),
    /// Print a shell completion script
    Completions(Completions),
}
