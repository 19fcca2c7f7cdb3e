//! Checkpoints of a build: it may be interrupted at any moment and continues from there. The centers are kept once they
//! are trained, rows as they are assigned, and buckets as they are written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES, WriteFile};
use adjoin_kernels::Panel;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{F64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BuildOptions;
use super::centers::default_buckets;
use super::files::Role;
use super::format::{ENTRY_BYTES, HEADER_BYTES};
use super::partitions::{BlocksCheckpoint, PartitionSizes, Partitions};
use super::records::Tally;
use crate::base::checkpoint::{Checkpoint, Fact, KEPT_BYTES, damaged};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coding, Coordinate, Space};
use crate::source::{VectorSource, facts_of_files};

/// The file of the trained centers.
const CENTERS_FILE: &str = "centers";
/// Least number of checkpoints of the rows. There are more if the rows between two would exceed `LEG_BYTES_MAX` bytes
/// of vectors.
const LEGS_MIN: u64 = 16;
/// Headers and entries per frame.
const EXTENTS_A_FRAME: usize = 4 << 10;
const LEG_BYTES_MAX: u64 = 1 << 30;

/// Progress of a build.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct BuildState {
    pub(super) learned: Option<Learned>,
    pub(super) rows: Option<RowsCheckpoint>,
    /// Buckets that are written, by checkpoint.
    extents: Vec<ExtentsCheckpoint>,
    /// The run that wrote the last checkpoint.
    run: u64,
    /// Upper bound on the distances that were computed again because a run was interrupted.
    repeated: u64,
}

/// Results of the first scan and the training, without the centers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Learned {
    pub(super) usable_rows: u64,
    pub(super) skipped_rows: u64,
    pub(super) duplicate_ids: u64,
    pub(super) id_bytes: u64,
    pub(super) longest: Option<f64>,
    pub(super) coding: Option<Coding>,
    pub(super) distances: u64,
    pub(super) spilled: u64,
    /// Bytes of the file of the centers, and their number; set when they are written.
    pub(super) centers_bytes: u64,
    pub(super) centers: usize,
}

/// Rows that are assigned to centers.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RowsCheckpoint {
    partitions: usize,
    /// First row of the source that is not assigned yet.
    pub(super) next_row: u64,
    /// Number of assigned rows.
    pub(super) usable_rows: u64,
    files: Vec<BlocksCheckpoint>,
    tallies_bytes: u64,
    /// Whether all rows are assigned.
    pub(super) are_all: bool,
}

/// Consecutive extents that were written.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct ExtentsCheckpoint {
    /// Number of extents up to and including these.
    parts: usize,
    /// End of the extents in the file of buckets, and the checksum of their bytes.
    end: u64,
    checksum: u64,
    /// Bytes of the file of their headers and entries.
    list_bytes: u64,
}

/// The part of the file of buckets that is written.
pub(super) struct WrittenExtents {
    pub(super) file: Box<dyn WriteFile>,
    pub(super) bytes: u64,
    /// Header and table entry of each extent.
    pub(super) listed: Vec<[u8; LISTED_BYTES]>,
}

/// Bytes of the header of an extent and of its entry in the table.
pub(super) const LISTED_BYTES: usize = HEADER_BYTES + ENTRY_BYTES;

/// A tally in a checkpoint.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TallyCheckpoint {
    rows: U64,
    id_bytes: U64,
    radius: F64,
}

/// Upper bounds on the work that a build in several runs repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildRepeated {
    /// Number of runs.
    pub runs: u64,
    /// Rows that were assigned to centers before the last run.
    pub rows_before: u64,
    /// Distances to centers.
    pub center_distances_max: u64,
}

/// Writes the checkpoints of a run of a build.
pub(super) struct BuildCheckpoint {
    pub(super) kept: Checkpoint<BuildState>,
    rows_before: u64,
    /// Rows between two checkpoints.
    rows_a_leg: u64,
}

impl BuildCheckpoint {
    /// Opens the checkpoints of an earlier run of the same build, if `options` ask for checkpoints.
    ///
    /// # Errors
    /// Fails as [`Checkpoint::open`] does, or if the source can change without being noticed.
    pub(super) fn open(
        context: &Context,
        source: &dyn VectorSource,
        store: &Path,
        options: &BuildOptions,
    ) -> Result<Option<Self>> {
        let Some(source_options) = &options.resume else { return Ok(None) };
        // A checkpoint is valid only for the same files, read in the same way, with the same options.
        let mut facts = facts_of_files(source)?;
        facts.push(Fact::new("what is read of them", source_options.in_words()));
        facts.extend(options.facts());
        let kept = Checkpoint::<BuildState>::open(context, store, facts, options.force)?;
        let info = source.info();
        let rows_in_most = LEG_BYTES_MAX / info.vectors.bytes() as u64;
        let rows_a_leg = info.rows.div_ceil(LEGS_MIN).min(rows_in_most).max(1);
        let rows_before = kept.state().rows.as_ref().map_or(0, |rows| rows.usable_rows);
        Ok(Some(Self { kept, rows_before, rows_a_leg }))
    }

    /// Reserves memory for writing and reading checkpoints, including tallies.
    ///
    /// # Errors
    /// Fails if it is not free.
    pub(super) fn reserve(context: &Context, rows: u64, options: &BuildOptions) -> Result<Reservation> {
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows)));
        context.reserve(KEPT_BYTES + buckets * size_of::<TallyCheckpoint>() as u64, "what is kept of the build")
    }

    /// Returns the results of the first scan and the training, if a checkpoint has them.
    pub(super) fn learned(&self) -> Option<Learned> {
        self.kept.state().learned.clone()
    }

    /// Reads the centers of the checkpoint.
    ///
    /// # Errors
    /// Fails if they are damaged or the device fails.
    pub(super) fn centers<T: Coordinate>(&self, learned: &Learned, dimensions: usize) -> Result<Panel<T>> {
        let mut file = self.kept.read(CENTERS_FILE, learned.centers_bytes)?;
        let mut centers = Panel::zeroed(learned.centers, dimensions);
        for row in 0..learned.centers {
            let frame = file.next()?.filter(|frame| frame.len() == dimensions * size_of::<f32>());
            let Some(frame) = frame else { return Err(file.damaged()) };
            let values = frame.as_chunks().0.iter().map(|&value| f64::from(f32::from_le_bytes(value)));
            centers.row_mut(row).iter_mut().zip(values).for_each(|(to, value)| *to = T::from_mean(value));
        }
        Ok(centers)
    }

    /// Writes a checkpoint of the first scan and the training. Centers are stored as f32, which represents both kinds
    /// of coordinates.
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(super) fn keep_learned<T: Coordinate>(
        &mut self,
        mut learned: Learned,
        centers: &Panel<T>,
        space: Space<'_>,
    ) -> Result<()> {
        let mut file = self.kept.create(CENTERS_FILE)?;
        for row in 0..centers.rows() {
            let values = centers.row(row)[..space.dimensions()].iter().map(|value| value.value() as f32);
            file.append(&values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())?;
        }
        (learned.centers_bytes, learned.centers) = (file.finish()?, centers.rows());
        let run = self.kept.runs();
        self.kept.keep(|state| {
            // Earlier runs without a checkpoint may have trained centers too. How far is unknown, so each counts in
            // full.
            state.repeated += learned.distances * (run - state.run.max(1));
            (state.learned, state.run) = (Some(learned), run);
        })
    }

    /// Creates partitions with the rows of the checkpoints, and sets their tallies. The first run determines the number
    /// of partitions.
    ///
    /// # Errors
    /// Fails if a checkpoint is damaged or needs more memory than is available.
    pub(super) fn partitions(
        &self,
        context: &Context,
        sizes: PartitionSizes,
        tallies: &mut [Tally],
    ) -> Result<Partitions> {
        let Some(rows) = &self.kept.state().rows else {
            return Partitions::kept(context, &self.kept, sizes, &[]);
        };
        // Rows on disk are divided into the partitions of the first run, so a smaller budget cannot choose fewer.
        let Some(sizes) = sizes.of(rows.partitions) else {
            return Err(context.too_small(PartitionSizes::least_for(rows.partitions as u64), "going on with the build"));
        };
        let mut file = self.kept.read(&tallies_file(rows.files.len()), rows.tallies_bytes)?;
        let frame = file.next()?.filter(|frame| frame.len() == tallies.len() * size_of::<TallyCheckpoint>());
        let Some(frame) = frame else { return Err(file.damaged()) };
        let read = frame.chunks_exact(size_of::<TallyCheckpoint>()).map(|bytes| TallyCheckpoint::ref_from_bytes(bytes));
        for (tally, kept) in tallies.iter_mut().zip(read.map_while(std::result::Result::ok)) {
            *tally = Tally { rows: kept.rows.get(), id_bytes: kept.id_bytes.get(), radius: kept.radius.get() };
        }
        Partitions::kept(context, &self.kept, sizes, &rows.files)
    }

    /// Returns whether enough rows are assigned for the next checkpoint.
    pub(super) fn is_due(&self, next_row: u64) -> bool {
        next_row - self.kept.state().rows.as_ref().map_or(0, |rows| rows.next_row) >= self.rows_a_leg
    }

    /// Writes a checkpoint of the rows before `next_row`, which are assigned to centers. `are_all` is true if no rows
    /// follow.
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(super) fn keep_rows(
        &mut self,
        records: &mut Partitions,
        tallies: &[Tally],
        next_row: u64,
        distances_a_row: u64,
        are_all: bool,
    ) -> Result<()> {
        let before = self.kept.state().rows.as_ref();
        let mut files = before.map_or_else(Vec::new, |rows| rows.files.clone());
        files.extend(records.persist(&self.kept, files.len())?);
        let tallies_bytes = match before {
            // No rows were added: the tallies in the file that the state names are current, and that file must not be
            // overwritten.
            Some(before) if before.files.len() == files.len() => before.tallies_bytes,
            _ => self.write_tallies(files.len(), tallies)?,
        };
        let (usable_rows, run) = (tallies.iter().map(|tally| tally.rows).sum::<u64>(), self.kept.runs());
        let of_leg = usable_rows - before.map_or(0, |rows| rows.usable_rows);
        let partitions = records.count();
        // The rows and tallies are durable by now. The state is replaced last, so it never names missing data.
        self.kept.keep(|state| {
            state.repeated += of_leg * distances_a_row * (run - state.run);
            state.run = run;
            state.rows = Some(RowsCheckpoint { partitions, next_row, usable_rows, files, tallies_bytes, are_all });
        })
    }

    /// Writes the tallies that belong to `files` files of rows, and returns their bytes.
    fn write_tallies(&self, files: usize, tallies: &[Tally]) -> Result<u64> {
        let of = |tally: &Tally| TallyCheckpoint {
            rows: tally.rows.into(),
            id_bytes: tally.id_bytes.into(),
            radius: tally.radius.into(),
        };
        let bytes: Vec<u8> = tallies.iter().flat_map(|tally| of(tally).as_bytes().to_vec()).collect();
        let mut file = self.kept.create(&tallies_file(files))?;
        file.append(&bytes)?;
        file.finish()
    }

    /// Returns the path of the file of buckets while it is written.
    pub(super) fn extents_path(&self) -> PathBuf {
        self.kept.path(Role::Vectors.file())
    }

    /// Opens the file of buckets to continue it, after verifying every byte. Returns `None` if none is written, or it
    /// cannot be continued.
    ///
    /// # Errors
    /// Fails if it is damaged or the device fails.
    pub(super) fn extents(&self, context: &Context) -> Result<Option<WrittenExtents>> {
        let legs = &self.kept.state().extents;
        let (Some(&ExtentsCheckpoint { end: bytes, .. }), path) = (legs.last(), self.extents_path()) else {
            return Ok(None);
        };
        let mut listed = Vec::new();
        for (number, leg) in legs.iter().enumerate() {
            let mut list = self.kept.read(&extents_file(number), leg.list_bytes)?;
            while let Some(frame) = list.next()? {
                listed.extend_from_slice(frame.as_chunks().0);
            }
            if listed.len() != leg.parts {
                return Err(list.damaged());
            }
        }
        if context.device.kind(&path)?.is_none() {
            return Ok(None); // the run was about to publish it
        }
        let file = self.kept.open_whole(Role::Vectors.file(), bytes)?;
        let (mut chunk, mut at) = (vec![0; WRITE_BUFFER_BYTES], 0);
        for leg in legs {
            let mut checksum = Xxh3::new();
            while at < leg.end {
                let chunk = &mut chunk[..(leg.end - at).min(WRITE_BUFFER_BYTES as u64) as usize];
                file.read_at(at, chunk)?;
                checksum.update(chunk);
                at += chunk.len() as u64;
            }
            if checksum.digest() != leg.checksum {
                return Err(damaged(&path, &format!("before byte {at}")));
            }
        }
        // A device that cannot continue a file is no error: all buckets are written again.
        match context.device.continue_file(&path, bytes) {
            Err(error) if error.source.kind() == ErrorKind::Unsupported => Ok(None),
            file => Ok(Some(WrittenExtents { file: file?, bytes, listed })),
        }
    }

    /// Adds extents to the checkpoint, which follow those already in it and are durable. `end` and `checksum` are those
    /// of [`ExtentsCheckpoint`].
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(super) fn keep_extents(&mut self, listed: &[[u8; LISTED_BYTES]], end: u64, checksum: u64) -> Result<()> {
        let legs = &self.kept.state().extents;
        let parts = legs.last().map_or(0, |leg| leg.parts) + listed.len();
        let mut list = self.kept.create(&extents_file(legs.len()))?;
        for some in listed.chunks(EXTENTS_A_FRAME) {
            list.append(some.as_flattened())?;
        }
        let list_bytes = list.finish()?;
        self.kept.keep(|state| state.extents.push(ExtentsCheckpoint { parts, end, checksum, list_bytes }))
    }

    /// Removes extents from the checkpoint that cannot be continued.
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(super) fn forget_extents(&mut self) -> Result<()> {
        if self.kept.state().extents.is_empty() {
            return Ok(());
        }
        self.kept.keep(|state| state.extents.clear())
    }

    /// Returns the rows between two checkpoints.
    pub(super) fn rows_a_leg(&self) -> u64 {
        self.rows_a_leg
    }

    /// Removes the checkpoints once the store is published.
    ///
    /// # Errors
    /// Fails if the device refuses.
    pub(super) fn finish(self) -> Result<BuildRepeated> {
        let (runs, rows_before) = (self.kept.runs(), self.rows_before);
        let center_distances_max = self.kept.state().repeated;
        // The store is published by now. Until then, a killed run needs the checkpoints.
        self.kept.finish()?;
        Ok(BuildRepeated { runs, rows_before, center_distances_max })
    }

    pub(super) fn explain(&mut self, error: Error) -> Error {
        self.kept.explain(error)
    }
}

/// Returns the name of the file with the headers and entries of the extents of a checkpoint.
fn extents_file(leg: usize) -> String {
    format!("extents-{leg}")
}

/// Returns the name of the file of the tallies that belong to `files` files of rows. Two files alternate, so that the
/// one named by the state stays intact.
fn tallies_file(files: usize) -> String {
    format!("tallies-{}", files % 2)
}
