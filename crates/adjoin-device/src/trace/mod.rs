//! What was asked of a device, written down, read again and asked once more.
//!
//! A trace is text, a line each:
//!
//! ```text
//! adjoin-trace 2
//! file NUMBER NAME
//! OPERATION FILE OFFSET BYTES START DURATION OUTCOME CONSUMER STEP DEPENDS-ON [TO]
//! ```
//!
//! The first line is the version. `file` names a file or folder, numbered from 0 in the order of their first use; bytes
//! of the name that are not printable ASCII, and `%` itself, are written as `%` and two hexadecimal digits. All other
//! lines are operations ([`Operation::word`](crate::Operation::word)), in the order in which they ended: number of the
//! file; offset and length in bytes, 0 where there are none; start, in nanoseconds since the trace began; duration in
//! nanoseconds, for a read of a queue until it was handed out; `ok` or `failed`; the [`Cause`](crate::Cause): who asked, in
//! one word, the number of the step that needs the bytes, and of the step whose reads had to end before; and for a rename
//! the number of the new name.
//!
//! `-` stands for a consumer who is not known, for a step without a number, and for nothing that a read waited for. A
//! consumer numbers its steps upwards, from the start again when it begins anew, as for a second pass. Each read starts
//! after the end of those of the step that it depends on: the last lines before its own with this consumer and step. A join
//! and a pass carry out their steps in order, so what depends on one of theirs has waited for those before it too; a
//! consumer with several chains of steps at a time numbers all of them together. Reads of a consumer that do not depend on
//! each other, directly or by others, may be in flight at the same time, as many as the device takes.
//!
//! Version 1 had lines without consumer, step and depends-on.

mod parse;
mod record;
mod replay;

pub use parse::{Trace, TraceError, TraceReader, TracedOperation};
pub use record::Recorder;
pub use replay::{ReplayReport, replay};

/// The first line, and that of the version before, which is read as well.
const HEADER: &str = "adjoin-trace 2";
const HEADER_1: &str = "adjoin-trace 1";
