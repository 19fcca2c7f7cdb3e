//! What was asked of a device, written down, read again and asked once more.
//!
//! A trace is text, a line each:
//!
//! ```text
//! adjoin-trace 1
//! file NUMBER NAME
//! OPERATION FILE OFFSET BYTES START DURATION OUTCOME [TO]
//! ```
//!
//! The first line is the version. `file` names a file or folder, numbered from 0 in the order of their first use; bytes
//! of the name that are not printable ASCII, and `%` itself, are written as `%` and two hexadecimal digits. All other
//! lines are operations ([`Operation::word`](crate::Operation::word)), in the order in which they ended: number of the
//! file; offset and length in bytes, 0 where there are none; start, in nanoseconds since the trace began; duration in
//! nanoseconds, for a read of a queue until it was handed out; `ok` or `failed`; and for a rename the number of the new
//! name.

mod parse;
mod record;
mod replay;

pub use parse::{Trace, TraceError, TracedOperation};
pub use record::Recorder;
pub use replay::{ReplayReport, replay};

/// The first line.
const HEADER: &str = "adjoin-trace 1";
