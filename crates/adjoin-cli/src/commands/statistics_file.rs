//! The file of `--stats`.

use std::path::Path;

use adjoin::{Context, LaterFile, MemoryStatistics, Result};
use serde::Serialize;

use super::memory_watch::MemoryWatch;
use super::tracing::cannot_write;

/// The file of `--stats`. It is opened before the work, so that an error is reported at once if it cannot be written.
pub(super) struct StatisticsFile<'a> {
    path: &'a Path,
    file: LaterFile,
    memory: Option<MemoryWatch>,
}

impl<'a> StatisticsFile<'a> {
    pub(super) fn begin(context: &Context, path: &'a Path, force: bool) -> Result<Self> {
        Ok(Self { path, file: LaterFile::begin(context, path, force)?, memory: MemoryWatch::begin() })
    }

    /// Writes the statistics of a run. `memory` returns a reference to their part about memory.
    pub(super) fn finish<S: Serialize>(
        self,
        statistics: &mut S,
        memory: impl FnOnce(&mut S) -> &mut MemoryStatistics,
    ) -> Result<()> {
        memory(statistics).over_time = self.memory.map(MemoryWatch::finish);
        let text = serde_json::to_string_pretty(statistics);
        let text = text.map_err(|error| cannot_write(self.path, error))?;
        self.file.finish(|out| out.write_all((text + "\n").as_bytes()))
    }
}
