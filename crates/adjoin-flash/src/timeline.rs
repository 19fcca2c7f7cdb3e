//! Timeline of the times at which resources are busy, for visualization.

use crate::device::Ps;

/// A resource, or the stages of a batch, in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// A bus between controller and chips.
    Channel(u32),
    /// A LUN.
    Lun(u32),
    /// The link to host or FPGA.
    Link,
    /// Stages of a batch of queries.
    Batch,
}

/// A time span during which a track was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The track.
    pub track: Track,
    /// Name of the activity.
    pub name: &'static str,
    /// Start, in picoseconds since the start of the run.
    pub begins: Ps,
    /// End, in picoseconds since the start of the run.
    pub ends: Ps,
}

/// The first spans of a run, up to a maximum number.
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
        // A span with no duration would not be visible.
        if self.spans.len() < self.most && begins < ends {
            self.spans.push(Span { track, name, begins, ends });
        }
    }

    pub(crate) fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}
