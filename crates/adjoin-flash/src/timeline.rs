//! What was busy when, for a picture.

use crate::device::Ps;

/// Where something was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// A bus between controller and chips.
    Channel(u32),
    /// A logical unit.
    Lun(u32),
    /// To host or FPGA.
    Link,
    /// Stages of a batch of queries.
    Batch,
}

/// Something that took time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub track: Track,
    /// What.
    pub name: &'static str,
    /// Picoseconds from the start of the run to its own.
    pub begins: Ps,
    /// The same to its end.
    pub ends: Ps,
}

/// The first spans of a run, as many as are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    spans: Vec<Span>,
    most: usize,
}

impl Timeline {
    pub(crate) fn of(most: usize) -> Self {
        Self { spans: Vec::new(), most }
    }

    pub(crate) fn add(&mut self, track: Track, name: &'static str, begins: Ps, ends: Ps) {
        if self.spans.len() < self.most && begins < ends {
            self.spans.push(Span { track, name, begins, ends });
        }
    }

    pub(crate) fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}
