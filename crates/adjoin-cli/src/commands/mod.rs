//! The work of each command, after its flags are resolved.

mod append;
mod build;
mod collection;
mod copy;
mod damage;
mod dedupe;
mod explain;
mod flash;
mod generate;
mod get;
mod groundtruth;
mod ids;
mod index;
mod info;
mod join;
mod join_files;
mod manual;
mod memory;
mod memory_watch;
mod nearest;
mod parts;
mod recall;
mod report;
mod search;
#[cfg(feature = "serve")]
mod serve;
mod statistics_file;
mod tracing;
mod verify;
mod words;

pub(crate) use append::append;
pub(crate) use build::build;
pub(crate) use collection::collection;
pub(crate) use copy::copy;
pub(crate) use dedupe::dedupe;
pub(crate) use explain::explain;
pub(crate) use flash::flash;
pub(crate) use generate::generate;
pub(crate) use get::get;
pub(crate) use groundtruth::groundtruth;
pub(crate) use index::index;
pub(crate) use info::info;
pub(crate) use join::join;
pub(crate) use manual::{completions, man};
pub(crate) use parts::{merge, plan, plan_build, run_part};
pub use report::read_statistics;
pub(crate) use report::report;
pub(crate) use search::search;
#[cfg(feature = "serve")]
pub(crate) use serve::{bench_serve, serve};
pub(crate) use verify::verify;
