//! Traces of the operations on a device: recording, parsing and replaying.

mod parse;
mod record;
mod replay;

pub use parse::{Trace, TraceError, TraceReader, TracedOperation};
pub use record::Recorder;
pub use replay::{ReplayReport, replay};

/// First line of a trace. The header of version 1 is accepted too.
const HEADER: &str = "adjoin-trace 2";
const HEADER_1: &str = "adjoin-trace 1";
