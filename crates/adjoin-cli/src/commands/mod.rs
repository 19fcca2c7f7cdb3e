//! What each command does, once its flags are resolved.

mod build;
mod dedupe;
mod explain;
mod flash;
mod generate;
mod groundtruth;
mod index;
mod info;
mod join;
mod live;
mod manual;
mod memory;
mod report;
mod search;
mod tracing;
mod verify;

pub(crate) use build::build;
pub(crate) use dedupe::dedupe;
pub(crate) use explain::explain;
pub(crate) use flash::flash;
pub(crate) use generate::generate;
pub(crate) use groundtruth::groundtruth;
pub(crate) use index::index;
pub(crate) use info::info;
pub(crate) use join::join;
pub(crate) use live::live;
pub(crate) use manual::{completions, man};
pub(crate) use report::report;
pub(crate) use search::search;
pub(crate) use verify::verify;
