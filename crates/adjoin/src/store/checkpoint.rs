//! Checkpoints of a build, with which an interrupted build can continue. The centers are saved when they are trained,
//! rows while they are assigned, and buckets while they are written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES, WriteFile};
use adjoin_kernels::Panel;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{F64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BuildOptions;
use super::centers::{decode_center, default_buckets, encode_center};
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
/// Minimum number of checkpoints of the rows. There are more if the vectors between two checkpoints would exceed
/// `LEG_BYTES_MAX` bytes.
const LEGS_MIN: u64 = 16;
/// Number of extents per frame of a list of extents.
const EXTENTS_A_FRAME: usize = 4 << 10;
const LEG_BYTES_MAX: u64 = 1 << 30;

/// Progress of a build.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct BuildState {
    pub(super) learned: Option<Learned>,
    pub(super) rows: Option<RowsCheckpoint>,
    /// Extents that are written, by checkpoint.
    extents: Vec<ExtentsCheckpoint>,
    /// Number of the run that wrote the last checkpoint.
    run: u64,
    /// Upper bound on the number of distances that were computed again because a run was interrupted.
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
    /// Length of the file of centers. Set when the centers are written.
    pub(super) centers_bytes: u64,
    /// Number of centers.
    pub(super) centers: usize,
}

/// Checkpoint of the rows that are assigned to centers.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RowsCheckpoint {
    partitions: usize,
    /// Number of the first source row that is not assigned yet.
    pub(super) next_row: u64,
    /// Number of assigned rows.
    pub(super) usable_rows: u64,
    files: Vec<BlocksCheckpoint>,
    tallies_bytes: u64,
    /// Whether all rows are assigned.
    pub(super) are_all: bool,
}

/// Checkpoint of consecutive extents that were written.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct ExtentsCheckpoint {
    /// Number of all extents up to the end of this checkpoint.
    parts: usize,
    /// End of the extents in the file of buckets.
    end: u64,
    /// Checksum of the bytes of the extents.
    checksum: u64,
    /// Length of the file that lists the headers and table entries of the extents.
    list_bytes: u64,
}

/// The written part of the file of buckets.
pub(super) struct WrittenExtents {
    pub(super) file: Box<dyn WriteFile>,
    pub(super) bytes: u64,
    /// Header and table entry of each extent.
    pub(super) listed: Vec<[u8; LISTED_BYTES]>,
}

/// Size of the header of an extent and of its table entry, in bytes.
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
    /// Number of rows that were assigned to centers before the last run.
    pub rows_before: u64,
    /// Number of distances to centers that were computed again.
    pub center_distances_max: u64,
}

/// Writer of the checkpoints of one run of a build.
pub(super) struct BuildCheckpoint {
    pub(super) kept: Checkpoint<BuildState>,
    rows_before: u64,
    /// Number of rows between two checkpoints.
    rows_a_leg: u64,
}

impl BuildCheckpoint {
    /// Opens the checkpoints of an earlier run of the same build. Returns `None` if `options` do not ask for
    /// checkpoints.
    ///
    /// # Errors
    /// Fails as [`Checkpoint::open`] does, or if changes of the source could not be noticed.
    pub(super) fn open(
        context: &Context,
        source: &dyn VectorSource,
        store: &Path,
        options: &BuildOptions,
    ) -> Result<Option<Self>> {
        let Some(source_options) = &options.resume else { return Ok(None) };
        // A checkpoint is valid only for the same files, read in the same way, with the same options.
        let mut facts = facts_of_files(source)?;
        facts.push(Fact::new("the source options", source_options.in_words()));
        facts.extend(options.facts());
        let kept = Checkpoint::<BuildState>::open(context, store, facts, options.force)?;
        let info = source.info();
        let rows_in_most = LEG_BYTES_MAX / info.vectors.bytes() as u64;
        let rows_a_leg = info.rows.div_ceil(LEGS_MIN).min(rows_in_most).max(1);
        let rows_before = kept.state().rows.as_ref().map_or(0, |rows| rows.usable_rows);
        Ok(Some(Self { kept, rows_before, rows_a_leg }))
    }

    /// Reserves memory for writing and reading checkpoints, including the tallies.
    ///
    /// # Errors
    /// Fails if the memory is not free.
    pub(super) fn reserve(context: &Context, rows: u64, options: &BuildOptions) -> Result<Reservation> {
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows)));
        context.reserve(KEPT_BYTES + buckets * size_of::<TallyCheckpoint>() as u64, "the checkpoint of the build")
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
            decode_center(&mut centers, row, frame);
        }
        Ok(centers)
    }

    /// Writes a checkpoint of the first scan and the training.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn keep_learned<T: Coordinate>(
        &mut self,
        mut learned: Learned,
        centers: &Panel<T>,
        space: Space<'_>,
    ) -> Result<()> {
        let mut file = self.kept.create(CENTERS_FILE)?;
        for row in 0..centers.rows() {
            file.append(&encode_center(centers, row, space.dimensions()))?;
        }
        learned.centers_bytes = file.finish()?;
        let run = self.kept.runs();
        self.kept.keep(|state| {
            // Earlier runs that wrote no checkpoint may have trained centers, too. How many distances they computed is
            // unknown, so each of them counts as a complete training.
            state.repeated += learned.distances * (run - state.run.max(1));
            (state.learned, state.run) = (Some(learned), run);
        })
    }

    /// Creates partitions with the rows of the checkpoints, and sets the tallies of these rows. The first run
    /// determines the number of partitions.
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
        // Rows on disk are in the partitions of the first run, so a run with a smaller budget cannot use fewer
        // partitions.
        let Some(sizes) = sizes.of(rows.partitions) else {
            return Err(context.too_small(PartitionSizes::least_for(rows.partitions as u64), "continuing the build"));
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

    /// Returns whether the rows before `next_row` are enough for another checkpoint.
    pub(super) fn is_due(&self, next_row: u64) -> bool {
        next_row - self.kept.state().rows.as_ref().map_or(0, |rows| rows.next_row) >= self.rows_a_leg
    }

    /// Writes a checkpoint of the rows before `next_row`, which are assigned to centers. `are_all` states whether
    /// these are all rows.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
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
            // No rows were added, so the tallies in the existing file are current. The state names that file, so it
            // must not be overwritten.
            Some(before) if before.files.len() == files.len() => before.tallies_bytes,
            _ => self.write_tallies(files.len(), tallies)?,
        };
        let (usable_rows, run) = (tallies.iter().map(|tally| tally.rows).sum::<u64>(), self.kept.runs());
        let of_leg = usable_rows - before.map_or(0, |rows| rows.usable_rows);
        let partitions = records.count();
        // Rows and tallies are durable now. The state is replaced last, so it never names missing data.
        self.kept.keep(|state| {
            state.repeated += of_leg * distances_a_row * (run - state.run);
            state.run = run;
            state.rows = Some(RowsCheckpoint { partitions, next_row, usable_rows, files, tallies_bytes, are_all });
        })
    }

    /// Writes the tallies of the rows in the first `files` files. Returns the length of the written file.
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

    /// Opens the file of buckets to append to it, after verifying every byte. Returns `None` if nothing is written
    /// yet, or if the file cannot be continued.
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
        // It is no error if the device cannot append to an existing file. Then all buckets are written again.
        match context.device.continue_file(&path, bytes) {
            Err(error) if error.source.kind() == ErrorKind::Unsupported => Ok(None),
            file => Ok(Some(WrittenExtents { file: file?, bytes, listed })),
        }
    }

    /// Adds extents to the checkpoint. They follow the extents that are already in it, and are durable.
    /// [`ExtentsCheckpoint`] describes `end` and `checksum`.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
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

    /// Removes all extents from the checkpoint, because their file cannot be continued.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn forget_extents(&mut self) -> Result<()> {
        if self.kept.state().extents.is_empty() {
            return Ok(());
        }
        self.kept.keep(|state| state.extents.clear())
    }

    /// Returns the number of rows between two checkpoints.
    pub(super) fn rows_a_leg(&self) -> u64 {
        self.rows_a_leg
    }

    /// Removes the checkpoints after the store was published. Returns the repeated work.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn finish(self) -> Result<BuildRepeated> {
        let (runs, rows_before) = (self.kept.runs(), self.rows_before);
        let center_distances_max = self.kept.state().repeated;
        // The checkpoints are removed last: until the store is published, a killed run needs them.
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

/// Returns the name of the file with the tallies of the rows in the first `files` files. Two names alternate, so that
/// the file that the current state names stays intact.
fn tallies_file(files: usize) -> String {
    format!("tallies-{}", files % 2)
}
