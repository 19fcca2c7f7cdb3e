//! Converts the reads of a trace to reads of the flash model.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use adjoin_device::{Operation, TraceReader};
use adjoin_flash::{FlashError, TraceRead};

use crate::base::error::{Error, Result};

/// Distance between the starts of files on the device. It is more than the length of a file. It is no power of two,
/// since that would put the starts of all files on equal page numbers.
const FILE_SPACING: u64 = (37 << 30) + (1 << 20);

/// Largest start time of a read, about 11 days. No trace is longer.
const START_NS_MAX: u64 = 1_000_000_000_000_000;
/// Picoseconds per nanosecond.
const PS_PER_NS: u64 = 1_000;

/// Iterator over the successful reads of a trace, in order.
pub struct TraceReads {
    reader: TraceReader<BufReader<File>>,
    path: PathBuf,
    is_timed: bool,
}

impl TraceReads {
    /// Opens a trace file.
    ///
    /// # Errors
    /// If the file cannot be read, or if it is no trace.
    pub fn open(path: &Path) -> Result<Self> {
        let at = path.display();
        let file = File::open(path).map_err(|error| Error::device(format!("cannot read {at}: {error}")))?;
        let reader = TraceReader::begin(BufReader::with_capacity(1 << 20, file));
        let reader = reader.map_err(|error| Error::input(format!("{at}: {error}")))?;
        Ok(Self { reader, path: path.to_owned(), is_timed: false })
    }

    /// Sets whether each read is issued no earlier than in the trace. Otherwise reads are issued as soon as possible.
    #[must_use]
    pub fn timed(self, is_timed: bool) -> Self {
        Self { is_timed, ..self }
    }
}

impl Iterator for TraceReads {
    type Item = std::result::Result<TraceRead, FlashError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            return match self.reader.next_operation() {
                Ok(Some(asked)) if asked.operation != Operation::Read || !asked.ok => continue,
                Ok(Some(asked)) => Some(Ok(TraceRead {
                    consumer: asked.consumer.map_or(u32::MAX, u32::from),
                    step: asked.step,
                    after: asked.after,
                    offset: (asked.file as u64 * FILE_SPACING).saturating_add(asked.offset % FILE_SPACING),
                    bytes: asked.bytes.min(FILE_SPACING),
                    at: if self.is_timed { asked.start_ns.min(START_NS_MAX) * PS_PER_NS } else { 0 },
                })),
                Ok(None) => None,
                Err(error) => Some(Err(FlashError::Input(format!("{}: {error}", self.path.display())))),
            };
        }
    }
}
