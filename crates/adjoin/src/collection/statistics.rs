//! Statistics of a collection: its size, and the cost of its writes.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::backpressure::Waits;
use super::latencies::WriteLatency;
use super::log_files::on_disk;
use super::operations::{Collection, CollectionFacts, Merged, Merges};
use super::sync::lock;
use crate::base::error::Result;

/// Current size of a collection, and the work of its writer since opening.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CollectionStatistics {
    /// Rows and the current files of the log.
    #[serde(flatten)]
    pub facts: CollectionFacts,
    /// Memory in bytes of the unmerged rows, including deleted ones.
    pub unmerged_bytes: u64,
    /// Number of unmerged rows that are grouped into buckets, including deleted ones. Searches compare their queries with
    /// a part of them.
    pub bucketed_rows: u64,
    /// Bytes on disk of the long-term index and its id lookup.
    pub index_bytes: u64,
    /// Approximate bytes that deleted rows take on disk and in memory. The next merge frees them, in addition to the
    /// log.
    pub dead_bytes: u64,
    /// Merges since the collection was opened for writing.
    pub merges: u64,
    /// The last of these merges; `None` if there was none.
    pub last_merge: Option<Merged>,
    /// Whether a merge is running.
    pub merging: bool,
    /// Bytes of vectors and ids written since opening.
    pub ingested_bytes: u64,
    /// Bytes written to disk since opening: log, merges and their temporary files.
    pub written_bytes: u64,
    /// Bytes written to disk per byte of vectors and ids; `None` if no vectors or ids were written.
    pub write_amplification: Option<f64>,
    /// Number of writes since opening that waited because merges had fallen behind.
    pub waits: u64,
    /// Total time that writes waited, in seconds.
    pub waited_seconds: f64,
    /// Durations of the writes since opening; `None` without writes.
    pub write_ms: Option<WriteLatency>,
    /// Why the last merge in the background failed; `None` if it succeeded.
    pub merge_failure: Option<String>,
}

impl Collection {
    /// Returns the current statistics.
    ///
    /// # Errors
    /// If the files of the log cannot be listed or opened.
    pub fn statistics(&self) -> Result<CollectionStatistics> {
        self.check_creator()?;
        let (log_files, log_bytes) = on_disk(&self.context, self.folder())?;
        let facts = CollectionFacts { log_files, log_bytes, ..self.facts() };
        let vector_bytes = self.manifest().vectors.bytes() as u64;
        let (unmerged_bytes, bucketed_rows, deleted_bytes, long_term, deleted_rows) = {
            let state = self.state();
            (
                state.temporary.held_bytes(),
                state.temporary.bucketed_rows(),
                state.temporary.deleted_rows() * vector_bytes,
                state.long_term.clone(),
                state.deleted.len(),
            )
        };
        let index_bytes = long_term.as_ref().map_or(0, |long_term| long_term.bytes());
        // If there is no index, the dividend is 0; the divisor 1 avoids a division by zero.
        let rows_on_disk = long_term.as_ref().map_or(1, |long_term| long_term.index.facts().rows);
        // Deleted rows are assumed to have the mean size of all rows of the index.
        let dead_bytes = (index_bytes as f64 * deleted_rows as f64 / rows_on_disk as f64) as u64 + deleted_bytes;
        let (mut ingested_bytes, mut merges) = (0, Merges::default());
        let (mut written_bytes, mut waits, mut merging, mut write_ms) = (0, Waits::default(), false, None);
        if let Ok(writer) = self.writer() {
            ingested_bytes = writer.ingested_bytes.load(Ordering::Relaxed);
            merges = *lock(&writer.merges);
            waits = writer.pressure.waits();
            write_ms = writer.latencies.quantiles();
            merging = writer.merging.try_lock().is_err();
            written_bytes = writer.log.written_bytes() + merges.bytes_written;
        }
        Ok(CollectionStatistics {
            facts,
            unmerged_bytes,
            bucketed_rows,
            index_bytes,
            dead_bytes,
            merges: merges.count,
            last_merge: merges.last,
            merging,
            ingested_bytes,
            written_bytes,
            write_amplification: (ingested_bytes > 0).then(|| written_bytes as f64 / ingested_bytes as f64),
            waits: waits.count,
            waited_seconds: waits.seconds,
            write_ms,
            merge_failure: waits.failure,
        })
    }
}
