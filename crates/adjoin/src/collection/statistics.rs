//! What a collection holds and takes, and what writes to it cost.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::background::Waits;
use super::log::on_disk;
use super::operations::{Collection, CollectionFacts, Merged};
use super::sync::lock;
use crate::error::Result;

/// What a collection holds and takes now, and what its writer did since it was opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CollectionStatistics {
    /// What it holds; the log as it is now.
    #[serde(flatten)]
    pub facts: CollectionFacts,
    /// Bytes of memory of the rows that are not merged yet, and of those of them that are gone.
    pub unmerged_bytes: u64,
    /// Bytes on disk of the index, and of the places of its ids.
    pub index_bytes: u64,
    /// Bytes on disk, about, of rows that are gone: what the next merge frees beside the log.
    pub dead_bytes: u64,
    /// Merges since it was opened to write.
    pub merges: u64,
    /// The last of them; none where there was none.
    pub last_merge: Option<Merged>,
    /// Whether one is under way.
    pub merging: bool,
    /// Bytes of the vectors and ids that came since then.
    pub came_bytes: u64,
    /// Bytes that were written since then: of the log, of merges, and of what is temporary meanwhile.
    pub written_bytes: u64,
    /// Bytes written for each byte that came; none where nothing came.
    pub write_amplification: Option<f64>,
    /// Writes since then that waited as merges had fallen behind, and how long they waited together.
    pub waits: u64,
    /// Seconds of these.
    pub waited_seconds: f64,
    /// Why the last merge that came by itself failed; none where it did not.
    pub merge_failure: Option<String>,
}

/// What merges did since a collection was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merges {
    count: u64,
    last: Option<Merged>,
    bytes_written: u64,
}

impl Merges {
    pub(super) fn add(&mut self, merged: Merged) {
        self.count += 1;
        self.bytes_written += merged.bytes_written;
        self.last = Some(merged);
    }

    /// How long the last one took; 0 where there was none.
    pub(super) fn last_seconds(&self) -> f64 {
        self.last.map_or(0.0, |merged| merged.seconds)
    }
}

impl Collection {
    /// What it holds and takes now.
    ///
    /// # Errors
    /// Where the files of its log cannot be looked at.
    pub fn statistics(&self) -> Result<CollectionStatistics> {
        self.check_creator()?;
        let (log_files, log_bytes) = on_disk(&self.context, self.folder())?;
        let facts = CollectionFacts { log_files, log_bytes, ..self.facts() };
        let vector_bytes = self.manifest().vectors.bytes() as u64;
        let (unmerged_bytes, gone_bytes, base, gone_rows) = {
            let state = self.state();
            (state.fresh.held_bytes(), state.fresh.gone() * vector_bytes, state.base.clone(), state.gone.rows)
        };
        let index_bytes = base.as_ref().map_or(0, |base| base.bytes());
        let rows_on_disk = base.as_ref().map_or(1, |base| base.index.facts().rows);
        let dead_bytes = (index_bytes as f64 * gone_rows as f64 / rows_on_disk as f64) as u64 + gone_bytes;
        let (mut came_bytes, mut merges) = (0, Merges::default());
        let (mut written_bytes, mut waits, mut merging) = (0, Waits::default(), false);
        if let Ok(writer) = self.writer() {
            came_bytes = writer.came_bytes.load(Ordering::Relaxed);
            merges = *lock(&writer.merges);
            waits = writer.pressure.waits();
            merging = writer.merging.try_lock().is_err();
            written_bytes = writer.log.written_bytes() + merges.bytes_written;
        }
        Ok(CollectionStatistics {
            facts,
            unmerged_bytes,
            index_bytes,
            dead_bytes,
            merges: merges.count,
            last_merge: merges.last,
            merging,
            came_bytes,
            written_bytes,
            write_amplification: (came_bytes > 0).then(|| written_bytes as f64 / came_bytes as f64),
            waits: waits.count,
            waited_seconds: waits.seconds,
            merge_failure: waits.failure,
        })
    }
}
