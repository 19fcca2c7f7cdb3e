//! Traces: the operations on a device are recorded, parsed and replayed.
//!
//! A trace is text with one record per line:
//!
//! ```text
//! adjoin-trace 2
//! file NUMBER NAME
//! OPERATION FILE OFFSET BYTES START DURATION OUTCOME CONSUMER STEP DEPENDS-ON [TO]
//! ```
//!
//! The first line is the version. A `file` line names a file or folder; numbers count from 0 in the order of first use.
//! Bytes of the name that are not printable ASCII, and `%` itself, are written as `%` and two hexadecimal digits.
//!
//! All other lines are operations ([`Operation::word`](crate::Operation::word)), in the order in which they ended.
//! Their fields are:
//!
//! - number of the file
//! - offset and length in bytes, 0 if there are none
//! - start, in nanoseconds since the trace began
//! - duration in nanoseconds; for a read of a queue, until it was returned
//! - `ok` or `failed`
//! - the [`Cause`](crate::Cause): the consumer in one word, the number of the step that needs the bytes, and the number
//!   of the step whose reads had to end before
//! - for a rename, the number of the new name
//!
//! `-` stands for an unknown consumer, a step without a number, or a read that waited for nothing.
//!
//! A consumer numbers its steps upwards, and starts again for a second pass. A read that depends on a step starts after
//! the reads of that step have ended; of several passes, the last one before this line counts. A join or a pass carries
//! out its steps in order, so a read that depends on one step has also waited for all steps before. A consumer with
//! several concurrent chains of steps numbers all of them together. Reads of a consumer that do not depend on each
//! other, directly or indirectly, may be in flight at the same time, as many as the device accepts.
//!
//! Lines of version 1 have no consumer, step and depends-on.

mod parse;
mod record;
mod replay;

pub use parse::{Trace, TraceError, TraceReader, TracedOperation};
pub use record::Recorder;
pub use replay::{ReplayReport, replay};

/// The first line, now and in version 1, which is accepted too.
const HEADER: &str = "adjoin-trace 2";
const HEADER_1: &str = "adjoin-trace 1";
