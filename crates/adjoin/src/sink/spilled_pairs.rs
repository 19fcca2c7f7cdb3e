//! Pairs in a temporary file, for a sink that can start only after the join has released its memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Device, Reservation};

use super::kept_pairs::{decoded, keep_pairs};
use super::sink::{PairBatch, PairSink, Written};
use crate::base::checkpoint::{FrameWriter, KEPT_BYTES};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::frames::Frames;
use crate::base::locks::OwnFolder;
use crate::source::IdKind;

/// Writes the pairs of a join to a temporary file.
pub(crate) struct SpilledPairs {
    writer: FrameWriter,
    ids: [IdKind; 2],
    device: Arc<dyn Device>,
    folder: OwnFolder,
    path: PathBuf,
    memory: Reservation,
}

impl SpilledPairs {
    /// Returns the bytes that are held until all pairs have been read.
    pub(crate) fn memory_bytes() -> u64 {
        KEPT_BYTES
    }

    /// Creates the file, in a new folder in `at`. `ids` are the kinds of the ids of the pairs.
    ///
    /// # Errors
    /// If memory does not suffice or the device refuses.
    pub(crate) fn create(context: &Context, at: &Path, ids: [IdKind; 2]) -> Result<Self> {
        let memory = context.reserve(Self::memory_bytes(), "pairs on disk")?;
        let device = context.device.clone();
        let folder = OwnFolder::create(&device, at, "pairs")?;
        let path = folder.path().join("pairs");
        let writer = FrameWriter::create(&*device, &path)?;
        Ok(Self { writer, ids, device, folder, path, memory })
    }

    /// Completes the file, and returns a reader for it.
    ///
    /// # Errors
    /// If the device refuses.
    pub(crate) fn read(self) -> Result<SpilledPairReader> {
        let Self { writer, ids, device, folder, path, memory } = self;
        let bytes = writer.finish()?;
        let frames = Frames::new(device.open(&path)?, 0..bytes, usize::MAX);
        Ok(SpilledPairReader { frames, ids, bytes, path, _folder: folder, _memory: memory })
    }
}

impl PairSink for SpilledPairs {
    fn wants_ids(&self) -> bool {
        self.ids != [IdKind::None; 2]
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        keep_pairs(batch, &mut self.writer)
    }

    /// Discards the pairs. A caller that needs them calls [`SpilledPairs::read`] instead.
    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

/// Reads the pairs in the order in which they were found. The file is removed when the reader is dropped.
pub(crate) struct SpilledPairReader {
    frames: Frames,
    ids: [IdKind; 2],
    bytes: u64,
    path: PathBuf,
    _folder: OwnFolder,
    _memory: Reservation,
}

impl SpilledPairReader {
    /// Returns the next pairs, or `None` after the last.
    ///
    /// # Errors
    /// If the file is not as it was written, or the device fails.
    pub(crate) fn next(&mut self) -> Result<Option<PairBatch>> {
        if self.frames.is_at_end() {
            return Ok(None);
        }
        let batch = match self.frames.read_next()? {
            Some(_) => decoded(self.frames.last(), self.ids),
            None => None,
        };
        batch.map(Some).ok_or_else(|| {
            let (at, byte) = (self.path.display(), self.frames.offset());
            Error::corrupt(format!("{at} is damaged before byte {byte}; check the disk and run again"))
        })
    }

    /// Returns the bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
